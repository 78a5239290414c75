"""Journal and statements name the events of payments."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0089"
down_revision = "0088"

_VERSIONS: Final = Path(__file__).parent

# What revisions 0060, 0046 and 0005 made, with one table more: a payment event has no other event.
_EVENT: Final = ("coalesce(f.kind, CASE", "coalesce(f.kind, y.kind, CASE")
_MESSAGE: Final = (
    "coalesce(f.message_id, p.message_id)",
    "coalesce(f.message_id, y.message_id, p.message_id)",
)
_JOIN: Final = """
LEFT JOIN transfer_events y ON y.transfer_id = {0}.subject_id AND y.sequence = {0}.sequence
    AND y.customer_id = {0}.customer_id
"""
_DEPOSITS_OF: Final = "LEFT JOIN deposits p ON p.id = {0}.subject_id"

_OWN_JOURNAL: Final = """
CREATE OR REPLACE VIEW journal AS
SELECT e.recorded_at, e.customer_id, e.subject_id, e.sequence, e.line,
       {event} AS event,
       coalesce(debit.kind, 'CUSTOMER') AS debit, coalesce(credit.kind, 'CUSTOMER') AS credit,
       e.amount, coalesce(debit.currency, credit.currency) AS currency,
       e.account_id, e.account_version, e.balance_after
FROM entries e
LEFT JOIN card_transaction_events f
    ON f.card_transaction_id = e.subject_id AND f.sequence = e.sequence
LEFT JOIN system_accounts debit ON debit.id = e.debit_account_id
LEFT JOIN system_accounts credit ON credit.id = e.credit_account_id
{join}
"""
_OTHERS: Final = (
    "CASE WHEN 'TRANSFERS' IN (debit.kind, credit.kind) THEN 'TRANSFERRED' ELSE 'DEPOSITED' END"
)


def upgrade() -> None:
    """Replace the views and the function."""
    journal = _with_payments(_journal(), "e", _EVENT, _MESSAGE)
    finance.run(f"{journal} {_with_payments(_statement(), 'l', _EVENT)}")
    op.execute(
        _OWN_JOURNAL.format(
            event=f"coalesce(f.kind, y.kind, {_OTHERS})", join=_JOIN.format("e").strip()
        )
    )


def downgrade() -> None:
    """Put back what was there."""
    finance.run(f"{_journal()} {_statement()}")
    op.execute(_OWN_JOURNAL.format(event=f"coalesce(f.kind, {_OTHERS})", join=""))


def _with_payments(statement: str, entry: str, *replacements: tuple[str, str]) -> str:
    for before, after in replacements:
        assert before in statement, before
        statement = statement.replace(before, after)
    deposits = _DEPOSITS_OF.format(entry)
    assert deposits in statement, deposits
    return statement.replace(deposits, f"{_JOIN.format(entry).strip()} {deposits}", 1)


def _journal() -> str:
    return _found("0060_finance_periods.sql", r"CREATE OR REPLACE VIEW finance\.journal .*?;")


def _statement() -> str:
    created = _found("0046_finance_on_totals.sql", r"CREATE FUNCTION finance\.statement\(.*?\nEND;")
    return created.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def _found(name: str, pattern: str) -> str:
    text = (_VERSIONS / name).read_text(encoding="utf-8")
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None, pattern
    return found[0]
