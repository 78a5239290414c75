"""Breaks are also of statements of the bank."""

from typing import Final

from alembic import op

revision = "0100"
down_revision = "0099"

_COMMENTS: Final = {
    "statement_id": "The statement of the bank (bank_statements.id); null: of a file.",
    "paid_file_id": "Of BANK_DIFFERS and NOT_PAID: the file of the network that is paid, or not;"
    " of several the last.",
    "file_id": "The file (network_files.id); null: of a statement.",
    "line": "The line of the file or statement; null: IN_LEDGER_ONLY or NOT_PAID.",
    "kind": "AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE, IN_FILE_ONLY,"
    " IN_LEDGER_ONLY, TIMING or AMBIGUOUS; of a statement BANK_DIFFERS, BANK_ONLY or NOT_PAID.",
    "file_amount": "Amount of the line, minor units; positive: due to the network, of a statement"
    " arrived at the bank.",
    "ledger_amount": "Amount of the event, minor units of its currency, of a statement what was"
    " expected; signed as file_amount.",
    "candidates": "Of AMBIGUOUS and BANK_ONLY: events or files that the line may be, up to 10.",
}
_BEFORE: Final = {
    "file_id": "The file (network_files.id).",
    "line": "The line of the file; null: IN_LEDGER_ONLY.",
    "kind": "AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE, IN_FILE_ONLY,"
    " IN_LEDGER_ONLY, TIMING or AMBIGUOUS.",
    "file_amount": "Amount of the line, minor units; positive: due to the network.",
    "ledger_amount": "Amount of the event, minor units of its currency; positive: due to the"
    " network.",
    "candidates": "Of AMBIGUOUS: events that the line may be, up to 10.",
}

_OF_FILES: Final = (
    "'AMOUNT_DIFFERS', 'CURRENCY_DIFFERS', 'TYPE_DIFFERS', 'DUPLICATE_LINE', 'IN_FILE_ONLY',"
    " 'IN_LEDGER_ONLY', 'TIMING', 'AMBIGUOUS'"
)
_OF_STATEMENTS: Final = "'BANK_DIFFERS', 'BANK_ONLY', 'NOT_PAID'"
_ABOUT: Final = "num_nulls(card_transaction_id, sequence, customer_id) IN (0, 3)"

_TRIGGER: Final = """
CREATE OR REPLACE TRIGGER about_the_same BEFORE UPDATE ON breaks FOR EACH ROW
    WHEN ((OLD.id, OLD.file_id, OLD.card_transaction_id, OLD.customer_id, OLD.line, OLD.sequence,
            OLD.kind, OLD.cause, OLD.currency, OLD.file_amount, OLD.ledger_amount,
            OLD.ledger_currency, OLD.opened_at{old})
        IS DISTINCT FROM (NEW.id, NEW.file_id, NEW.card_transaction_id, NEW.customer_id, NEW.line,
            NEW.sequence, NEW.kind, NEW.cause, NEW.currency, NEW.file_amount, NEW.ledger_amount,
            NEW.ledger_currency, NEW.opened_at{new}))
    EXECUTE FUNCTION refuse_change();
"""


def upgrade() -> None:
    """Add the columns; the new constraints are validated by the next revision."""
    op.execute(f"""
        ALTER TABLE breaks ADD COLUMN statement_id UUID, ADD COLUMN paid_file_id UUID,
            ALTER COLUMN file_id DROP NOT NULL,
            DROP CONSTRAINT breaks_kind_check, DROP CONSTRAINT breaks_about_check,
            ADD CONSTRAINT breaks_kind_check CHECK (CASE
                WHEN statement_id IS NULL THEN kind IN ({_OF_FILES}) AND file_id IS NOT NULL
                ELSE kind IN ({_OF_STATEMENTS}) AND file_id IS NULL END) NOT VALID,
            ADD CONSTRAINT breaks_about_check CHECK (
                (kind IN ('IN_LEDGER_ONLY', 'NOT_PAID')) = (line IS NULL) AND {_ABOUT}
                AND (paid_file_id IS NOT NULL) = (kind IN ('BANK_DIFFERS', 'NOT_PAID'))) NOT VALID
    """)
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN breaks.{column} IS '{comment}'")
    op.execute(
        "COMMENT ON TABLE breaks IS 'What a settlement file or a statement of the bank and the"
        " ledger differ by; nothing is deleted.'"
    )
    op.execute(
        _TRIGGER.format(
            old=", OLD.statement_id, OLD.paid_file_id", new=", NEW.statement_id, NEW.paid_file_id"
        )
    )
    op.execute("ALTER TABLE breaks ENABLE ALWAYS TRIGGER about_the_same")


def downgrade() -> None:
    """Put back what was there; refused while there are breaks of statements."""
    op.execute("""
DO $$ BEGIN
    IF EXISTS (SELECT FROM breaks WHERE statement_id IS NOT NULL) THEN
        RAISE EXCEPTION 'there are breaks of bank statements: nothing of them is deleted';
    END IF;
END $$
""")
    op.execute(_TRIGGER.format(old="", new=""))
    op.execute("ALTER TABLE breaks ENABLE ALWAYS TRIGGER about_the_same")
    op.execute(f"""
        ALTER TABLE breaks DROP CONSTRAINT breaks_kind_check, DROP CONSTRAINT breaks_about_check,
            ADD CONSTRAINT breaks_kind_check CHECK (kind IN ({_OF_FILES})) NOT VALID,
            ADD CONSTRAINT breaks_about_check CHECK (CASE kind WHEN 'IN_LEDGER_ONLY'
                THEN line IS NULL ELSE line IS NOT NULL END AND {_ABOUT}) NOT VALID,
            ALTER COLUMN file_id SET NOT NULL,
            DROP COLUMN statement_id, DROP COLUMN paid_file_id
    """)
    for column, comment in _BEFORE.items():
        op.execute(f"COMMENT ON COLUMN breaks.{column} IS '{comment}'")
    op.execute(
        "COMMENT ON TABLE breaks IS 'What a settlement file and the ledger differ by; nothing is"
        " deleted.'"
    )
