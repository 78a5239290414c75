"""Conversions, in a view of finance and in outcomes by SQL."""

import json
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance
from cardledger.schema.wire.common import CURRENCIES

revision = "0093"
down_revision = "0092"

_HERE: Final = Path(__file__)


def upgrade() -> None:
    """Create the view, with a comment on every column, and replace the function."""
    finance.run(_HERE.with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()
    _replace_json("0093_card_transaction_json.sql")


def downgrade() -> None:
    """Remove the view, and put back the function of revision 0073."""
    _replace_json("0073_card_transaction_json.sql")
    finance.run("DROP VIEW finance.conversions")


def _replace_json(name: str) -> None:
    currencies = json.dumps({code: info.wire() for code, info in CURRENCIES.items()})
    op.execute(
        _HERE.with_name(name).read_text(encoding="utf-8").replace("__CURRENCIES__", currencies)
    )
