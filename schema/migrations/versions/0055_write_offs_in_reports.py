"""What is held, owed and written off, in the views of finance and in outcomes by SQL."""

import json
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance
from cardledger.schema.wire.common import CURRENCIES

revision = "0055"
down_revision = "0054"

_HERE: Final = Path(__file__)


def upgrade() -> None:
    """Replace the views, with a column more on the right, and the function."""
    finance.run(_HERE.with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()
    _replace_json(_HERE.with_name("0055_card_transaction_json.sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Put back what revisions 0034, 0041 and 0042 created."""
    json_function = _part(
        "0034_enqueued_events.sql",
        "CREATE FUNCTION card_transaction_json",
        "-- STABLE: all queries",
    )
    _replace_json(json_function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1))
    finance.run("""
        DROP FUNCTION finance.receivables(date, timestamptz);
        DROP FUNCTION finance.open_holds(date, timestamptz);
        DROP VIEW finance.receivables, finance.open_holds, finance.card_transactions;
    """)
    views = "CREATE VIEW finance.card_transactions", "-- What the network moved"
    finance.run(_part("0041_finance_views.sql", *views))
    finance.run(_part("0042_finance_functions.sql", "CREATE FUNCTION finance.open_holds"))
    finance.grant_again()


def _replace_json(function: str) -> None:
    currencies = json.dumps({code: info.wire() for code, info in CURRENCIES.items()})
    op.execute(function.replace("__CURRENCIES__", currencies))


def _part(file: str, start: str, end: str | None = None) -> str:
    """Return the text of `file` from `start` on, until `end`."""
    text = _HERE.with_name(file).read_text(encoding="utf-8")
    text = text[text.index(start) :]
    return text if end is None else text[: text.index(end)]
