"""A line of the bank pays what it pays exactly, whichever file came first."""

import re
from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import functions

revision = "0129"
down_revision = "0128"

_BEFORE: Final = Path(__file__).with_name("0103_bank_matching.sql")

_REPLACED: Final = "match_bank(uuid, text)"
_NEW: Final = (
    "add_runs(integer, integer)",
    "lend_days(uuid, integer, boolean)",
    "release_days(uuid, integer)",
)

_BOOKING: Final = "book_bank_line(uuid, integer)"
_OF_LINE: Final = "    WHERE s.id = statement AND l.line = line_number;\n"
# A line that leaves its days for others was booked when it was found to pay the first ones.
_OF_UNBOOKED_LINE: Final = """    WHERE s.id = statement AND l.line = line_number AND NOT EXISTS (
        SELECT FROM settlement_bookings b WHERE (b.statement_id, b.line) = (s.id, l.line)
    );
"""

_BREAKS: Final = "open_bank_breaks(uuid, text)"
_NOT_PAID: Final = (
    "    INSERT INTO breaks (statement_id, paid_file_id, kind, currency, ledger_amount, difference,"
)
# The day was paid by a line that pays others now. What people have decided about it was said to be
# explained by that payment: the difference is there again, and is theirs again.
_AGAIN: Final = f"""    WITH again AS (
        UPDATE breaks k SET state = 'open', difference = -d.expected, closed_at = NULL,
            closed_by = NULL
        FROM days_to_pay d
        WHERE d.file_id = k.paid_file_id AND k.kind = 'NOT_PAID' AND k.currency = currency_code
            AND k.state NOT IN ('open', 'investigating') AND k.difference = 0 AND NOT d.is_paid
        RETURNING k.id
    )
    INSERT INTO break_history (break_id, action, note)
    SELECT a.id, 'NOTED', 'the line that paid the day pays others' FROM again a;
{_NOT_PAID}"""

# A line leaves its days in `release_days`, before anything else becomes of its break.
_GUARD: Final = """
CREATE FUNCTION refuse_release() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF OLD.rule <> 'NETWORK' OR NOT EXISTS (
        SELECT FROM breaks k
        WHERE (k.statement_id, k.line, k.kind) = (OLD.statement_id, OLD.line, 'BANK_DIFFERS')
            AND k.state = 'open'
    ) THEN
        RAISE EXCEPTION 'bank_payments is append-only, but for rule NETWORK while its break is open'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN OLD;
END $body$
"""

_PAYMENTS: Final = (
    "Which line of the bank pays which days of networks, {}: a file and currency is paid by one"
    " line, and by one more that brings the rest."
)


def upgrade() -> None:
    """Replace the functions; payments with another amount than expected may be taken back."""
    op.execute(
        "CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR TRUNCATE ON bank_payments"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute("ALTER TABLE bank_payments ENABLE ALWAYS TRIGGER append_only")
    op.execute(_GUARD)
    functions.protect("refuse_release()")
    op.execute(
        "CREATE TRIGGER only_differing BEFORE DELETE ON bank_payments FOR EACH ROW"
        " EXECUTE FUNCTION refuse_release()"
    )
    op.execute("ALTER TABLE bank_payments ENABLE ALWAYS TRIGGER only_differing")
    _comment("append-only but for rule NETWORK, while its break is open")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for signature in (*_NEW, _REPLACED):
        functions.protect(signature)
    functions.change(_BOOKING, _OF_LINE, _OF_UNBOOKED_LINE)
    functions.change(_BREAKS, _NOT_PAID, _AGAIN)


def downgrade() -> None:
    """Put back those of revision 0103."""
    functions.change(_BREAKS, _AGAIN, _NOT_PAID)
    functions.change(_BOOKING, _OF_UNBOOKED_LINE, _OF_LINE)
    op.execute(_function("match_bank"))
    functions.protect(_REPLACED)
    op.execute(f"DROP FUNCTION {', '.join(reversed(_NEW))}")
    op.execute("DROP TRIGGER only_differing ON bank_payments")
    op.execute("DROP FUNCTION refuse_release()")
    op.execute(
        "CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON bank_payments"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute("ALTER TABLE bank_payments ENABLE ALWAYS TRIGGER append_only")
    _comment("append-only")


def _comment(kept: str) -> None:
    op.execute(f"COMMENT ON TABLE bank_payments IS '{_PAYMENTS.format(kept)}'")


def _function(name: str) -> str:
    statements = _BEFORE.read_text(encoding="utf-8")
    found = re.search(rf"CREATE FUNCTION {name}\(.*?END \$body\$;\n", statements, re.DOTALL)
    assert found is not None, name
    return found[0].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
