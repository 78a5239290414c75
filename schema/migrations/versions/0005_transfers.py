"""Transfers, what agents ask for, and deposits that can be listed."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"

# Never between which accounts or how much: another transfer is another row.
_RIGHTS = (
    "GRANT SELECT, INSERT ON transfers, agent_actions",
    "GRANT UPDATE (status, failure_reason, settled_at, updated_at) ON transfers",
    "GRANT UPDATE (rejection_reason) ON agent_actions",
)

_JOURNAL = """
CREATE OR REPLACE VIEW journal AS
SELECT e.recorded_at, e.customer_id, e.subject_id, e.sequence, e.line,
       coalesce(f.kind, {without_event}) AS event,
       coalesce(debit.kind, 'CUSTOMER') AS debit, coalesce(credit.kind, 'CUSTOMER') AS credit,
       e.amount, coalesce(debit.currency, credit.currency) AS currency,
       e.account_id, e.account_version, e.balance_after
FROM entries e
LEFT JOIN card_transaction_events f
    ON f.card_transaction_id = e.subject_id AND f.sequence = e.sequence
LEFT JOIN system_accounts debit ON debit.id = e.debit_account_id
LEFT JOIN system_accounts credit ON credit.id = e.credit_account_id
"""
_TRANSFERRED_OR_DEPOSITED = (
    "CASE WHEN 'TRANSFERS' IN (debit.kind, credit.kind) THEN 'TRANSFERRED' ELSE 'DEPOSITED' END"
)

# ALWAYS: also when `session_replication_role` is `replica`, which skips ordinary triggers.
_GUARD = """
CREATE FUNCTION refuse_way_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a transfer that is % does not become %', OLD.status, NEW.status
        USING ERRCODE = 'insufficient_privilege',
              HINT = 'PENDING, then PROCESSING, then COMPLETED; or FAILED before that.';
END $$;
CREATE TRIGGER only_forward BEFORE UPDATE ON transfers FOR EACH ROW
    WHEN ((OLD.status, NEW.status) NOT IN (('PENDING', 'PROCESSING'), ('PENDING', 'FAILED'),
        ('PROCESSING', 'COMPLETED'), ('PROCESSING', 'FAILED')))
    EXECUTE FUNCTION refuse_way_back();
ALTER TABLE transfers ENABLE ALWAYS TRIGGER only_forward;
"""


def upgrade() -> None:
    """Create the tables, let deposits be listed, and give the application its rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_JOURNAL.format(without_event=_TRANSFERRED_OR_DEPOSITED))
    op.execute(_GUARD)
    given = " ".join(f"EXECUTE format('{right} TO %I', role);" for right in _RIGHTS)
    op.execute(f"DO $$ DECLARE role text := current_database() || '_app'; BEGIN {given} END $$")


def downgrade() -> None:
    """Remove the tables, and the rights with them; refused once money has moved by them."""
    op.execute(
        "DO $$ BEGIN IF EXISTS (SELECT FROM transfers WHERE status = 'COMPLETED') THEN"
        " RAISE EXCEPTION 'transfers have moved money: their entries stay, so do they';"
        " END IF; END $$"
    )
    op.execute(_JOURNAL.format(without_event="'DEPOSITED'"))
    op.execute("DROP INDEX deposits_platform_id_idx, deposits_customer_id_idx")
    op.execute("ALTER TABLE deposits DROP COLUMN platform_id")
    op.execute("DROP TABLE agent_actions")
    op.execute("DROP TABLE transfers")
    op.execute("DROP FUNCTION refuse_way_back()")
    op.execute("DELETE FROM system_accounts WHERE kind = 'TRANSFERS'")
    op.execute("ALTER TABLE system_accounts DROP CONSTRAINT system_accounts_kind_check")
    op.execute(
        "ALTER TABLE system_accounts ADD CONSTRAINT system_accounts_kind_check CHECK (kind IN"
        " ('CARD_HOLDS', 'NETWORK_SETTLEMENT', 'RECEIVABLE', 'SANDBOX_FUNDING', 'OPERATOR_LOSS'))"
    )
    op.execute(
        "COMMENT ON COLUMN entries.subject_id IS 'The card transaction or deposit it belongs to.';"
        " COMMENT ON COLUMN entries.sequence IS 'The event there; 0 for a deposit.'"
    )
