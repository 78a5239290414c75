"""The record: tables, the application role and its rights, append-only guards, inbox shards."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

SHARDS = 16
LANES = 2

APPEND_ONLY = (
    "card_transaction_events",
    "entries",
    "deposits",
    "outcomes",
    "rejections",
    "webhook_attempts",
)
# What the application may change beside adding rows: never who or what a row is about. The right
# to update any column is also the right to lock a row.
UPDATABLE = {
    "platforms": "name, supported_currencies, webhook_endpoint, updated_at",
    "customers": "platform_customer_id, kyc_status, region, currencies, email, phone_number,"
    " full_name, birth_date, nationality, address, uma_address, is_deleted, updated_at",
    "cards": "state, state_reason, brand, last4, exp_month, exp_year, funding_sources,"
    " max_spend_per_transaction, activate_at, updated_at",
    "card_reveals": "opened_at",
    "internal_accounts": "status, balance, held, owed, pending, version, updated_at",
    "card_transactions": "descriptor, mcc, country, status, sequence, authorizations, authorized,"
    " settled, settlement_count,"
    " refunded, refund_count, pulled, pull_count, pending, pending_count, open_pull, unpaid,"
    " debt_since, debt_id, released, release_count, closed_by, declined, decline_reason,"
    " expires_at, last_event_at, updated_at",
    "inbox_shards": "lock",
    "outbox": "retry_at",
    "pending_pulls": "due_at",
    "webhook_deliveries": "state, attempts, next_attempt_at, last_status, delivered_at",
}
DELETABLE = ("api_tokens", "inbox", "outbox", "parked", "pending_pulls")

_JOURNAL = """
CREATE VIEW journal AS
SELECT e.recorded_at, e.customer_id, e.subject_id, e.sequence, e.line,
       coalesce(f.kind, 'DEPOSITED') AS event,
       coalesce(debit.kind, 'CUSTOMER') AS debit, coalesce(credit.kind, 'CUSTOMER') AS credit,
       e.amount, coalesce(debit.currency, credit.currency) AS currency,
       e.account_id, e.account_version, e.balance_after
FROM entries e
LEFT JOIN card_transaction_events f
    ON f.card_transaction_id = e.subject_id AND f.sequence = e.sequence
LEFT JOIN system_accounts debit ON debit.id = e.debit_account_id
LEFT JOIN system_accounts credit ON credit.id = e.credit_account_id;
COMMENT ON VIEW journal IS
    'Entries in words: what happened, which account gave, which one got, how much.'
"""


# A role of that name may be the user's own: only the one with our comment is dropped, and not while
# another installation in this database, or anything else, depends on it.
_RELEASE_ROLE = """
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %I', current_schema(), role);
        EXECUTE format('REVOKE ALL ON alembic_version FROM %I', role);
    END IF;
    IF EXISTS (SELECT FROM pg_roles
               WHERE rolname = role AND shobj_description(oid, 'pg_authid') = 'cardledger') THEN
        BEGIN
            EXECUTE format('DROP ROLE %I', role);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            NULL;
        END;
    END IF;
"""


def upgrade() -> None:
    """Create everything."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "INSERT INTO inbox_shards (lane, shard)"
        f" SELECT lane, shard FROM generate_series(0, {LANES - 1}) lane,"
        f" generate_series(0, {SHARDS - 1}) shard"
    )
    op.execute(_JOURNAL)
    _guard_append_only()
    _grant_to_the_application()


def downgrade() -> None:
    """Remove everything, and the application role unless something else depends on it."""
    op.execute("DROP VIEW journal")
    op.execute(
        "DROP TABLE webhook_attempts, webhook_deliveries, outbox, pending_pulls, parked,"
        " rejections, outcomes, inbox,"
        " inbox_shards, deposits, entries, card_transaction_events, card_transactions,"
        " internal_accounts, system_accounts, card_reveals, cards, customers, api_tokens, platforms"
    )
    op.execute("DROP FUNCTION refuse_change()")
    op.execute(_for_the_role(_RELEASE_ROLE))


def _guard_append_only() -> None:
    """Refuse changes even to those who have the right to make them.

    ALWAYS: also when `session_replication_role` is `replica`, which skips ordinary triggers.
    """
    op.execute(
        """
        CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP
                USING ERRCODE = 'insufficient_privilege',
                      HINT = 'Record a new fact that corrects the old one.';
        END $$
        """
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")


def _grant_to_the_application() -> None:
    """Create the role `<database>_app`, which can log in and can neither own nor erase facts."""
    op.execute(
        _for_the_role(
            """
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I LOGIN', role);
                EXECUTE format('COMMENT ON ROLE %I IS ''cardledger''', role);
            END IF;
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
            EXECUTE format('GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA %I TO %I',
                           current_schema(), role);
            EXECUTE format('REVOKE INSERT ON alembic_version, inbox_shards FROM %I', role);
            """
            + "".join(
                f"EXECUTE format('GRANT UPDATE ({columns}) ON {table} TO %I', role);\n"
                for table, columns in UPDATABLE.items()
            )
            + "".join(
                f"EXECUTE format('GRANT DELETE ON {table} TO %I', role);\n" for table in DELETABLE
            )
        )
    )


def _for_the_role(statements: str) -> str:
    return f"DO $$ DECLARE role text := current_database() || '_app'; BEGIN {statements} END $$"
