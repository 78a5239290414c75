"""Authorized credits, in the views of finance and in outcomes by SQL."""

import json
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance
from cardledger.schema.wire.common import CURRENCIES

revision = "0073"
down_revision = "0072"

_HERE: Final = Path(__file__)


def upgrade() -> None:
    """Replace the view, with a column more on the right, and the function."""
    finance.run(_text("0073_credits_in_reports.sql"))
    _replace_json("0073_card_transaction_json.sql")


def downgrade() -> None:
    """Put back what revision 0055 created."""
    _replace_json("0055_card_transaction_json.sql")
    # A column cannot be taken away from a view: what reads it is created anew.
    finance.run("""
        DROP FUNCTION finance.receivables(date, timestamptz);
        DROP FUNCTION finance.open_holds(date, timestamptz);
        DROP VIEW finance.receivables, finance.open_holds, finance.card_transactions;
    """)
    finance.run(_text("0041_finance_views.sql", *_VIEW))
    finance.run(_text("0055_write_offs_in_reports.sql"))
    finance.grant_again()


_VIEW: Final = ("CREATE VIEW finance.card_transactions", "-- What the network moved")


def _replace_json(name: str) -> None:
    currencies = json.dumps({code: info.wire() for code, info in CURRENCIES.items()})
    op.execute(_text(name).replace("__CURRENCIES__", currencies))


def _text(name: str, start: str = "", end: str | None = None) -> str:
    """Return the text of a file beside this one, from `start` on, until `end`."""
    text = _HERE.with_name(name).read_text(encoding="utf-8")
    text = text[text.index(start) :]
    return text if end is None else text[: text.index(end)]
