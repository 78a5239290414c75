"""Guarantees of the database itself: each is attacked in SQL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.tables import APPEND_ONLY, metadata
from tests.world import Cardholder, World, open_world

FACTS = [table.name for table in APPEND_ONLY]
FIRST_COLUMN = {table.name: next(iter(table.columns)).name for table in APPEND_ONLY}
CHANGES = ["UPDATE {0} SET {1} = {1}", "DELETE FROM {0}", "TRUNCATE {0}"]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    """A cardholder with a row in every table of facts."""
    cardholder = world.cardholder(world.platform(), 50_000)
    engine = world.engine()
    settlement = {"network": "VISA", "settlementDate": "2026-10-14"}
    conversion = {"merchantAmount": {"amount": 1400, "currency": "EUR"}, "rate": "1.0714"}
    tip = [
        (cardholder, world.authorization(cardholder, "T1", 1250)),
        (
            cardholder,
            world.clearing(cardholder, "T1", 1500, settlement=settlement, conversion=conversion),
        ),
        (cardholder, world.clearing(cardholder, "T1", 1500, currency="EUR")),
    ]
    world.process(engine, [*tip, tip[0]])
    world.connection.execute(
        "INSERT INTO webhook_attempts VALUES (%s, 1, %s, now(), 5, 200, NULL, NULL)",
        [new_id(), cardholder.owner.customer_id],
    )
    world.connection.execute(
        "INSERT INTO calendars VALUES ('MC', '2026-10-01', 'UTC', '00:00', '{1,2,3,4,5}')"
    )
    world.connection.execute(
        "INSERT INTO person_changes (name, may, change) VALUES ('anna', '{prepare}', 'ADDED')"
    )
    world.connection.execute(
        "INSERT INTO exchange_rates (id, source_currency, destination_currency, numerator,"
        " denominator, source) VALUES (%s, 'USD', 'EUR', 1, 2, 'test')",
        [new_id()],
    )
    world.connection.execute(
        "INSERT INTO platform_exchange_rates (id, platform_id, source_currency,"
        " destination_currency, numerator, denominator) VALUES (%s, %s, 'USD', 'EUR', 1, 2)",
        [new_id(), cardholder.owner.platform_id],
    )
    _add_rows_of_a_settlement_file(world)
    world.add_totals(page_entries=1, account_entries=1)
    world.connection.execute(
        "WITH closed AS (INSERT INTO closings (kind, first_day, last_day, state, decided_at,"
        " decided_by) VALUES ('CLOSE', '2019-10-01', '2019-10-31', 'SEALED', now(), 'ben')"
        " RETURNING id), allowed AS (INSERT INTO closing_exceptions (closing_id, kind, reason,"
        " found) SELECT id, 'PARKED', 'disputed', 1 FROM closed)"
        " INSERT INTO seals (closing_id, version, sha256, entries, late_entries, trial_balance)"
        " SELECT id, 1, repeat('0', 64), 0, 0, '[]' FROM closed"
    )
    world.connection.execute(
        "INSERT INTO transfer_events VALUES (%s, 1, %s, 'DEBITED', NULL, %s, now(), now())",
        [new_id(), cardholder.owner.customer_id, new_id()],
    )
    world.connection.execute(
        "INSERT INTO transfers (id, customer_id, platform_id, source_account_id, amount, currency,"
        " status, kind, sequence, requested_at, created_at, updated_at)"
        " VALUES (%s, %s, %s, %s, 1, 'USD', 'PENDING', 'OUT', 1, now(), now(), now())",
        [
            new_id(),
            cardholder.owner.customer_id,
            cardholder.owner.platform_id,
            cardholder.account_id,
        ],
    )
    world.connection.execute("INSERT INTO book_beginnings (first_day) VALUES ('2019-01-01')")
    world.connection.execute("INSERT INTO book_verifications (days) VALUES ('{}')")
    world.connection.execute("INSERT INTO book_verification_runs VALUES (now(), 0)")
    world.connection.execute(
        "INSERT INTO rejection_retries VALUES (%s, %s, %s, now())",
        [new_id(), cardholder.owner.platform_id, new_id()],
    )
    world.connection.execute(
        "INSERT INTO forged_messages (id, lane, shard, message_id, customer_id, platform_id,"
        " source, reference, body, body_hash, received_at, refused_at)"
        " VALUES (%s, 0, 0, %s, %s, %s, 'test', 'r', '{}', '', now(), now())",
        [new_id(), new_id(), cardholder.owner.customer_id, cardholder.owner.platform_id],
    )
    return cardholder


def _add_rows_of_a_settlement_file(world: World) -> None:
    """Add a row to each table of its facts, past the triggers that want a whole file."""
    key = str(new_id())
    with world.connection.transaction():
        world.connection.execute("SET LOCAL session_replication_role = replica")
        for row in (
            f"network_file_totals VALUES ('{key}', 'USD', 1, 1, 0)",
            (
                f"network_lines (file_id, line, amount, type, currency)"
                f" VALUES ('{key}', 2, 1, 'PRESENTMENT', 'USD')"
            ),
            (
                f"line_matches (file_id, line, card_transaction_id, customer_id, sequence, rule)"
                f" VALUES ('{key}', 2, '{key}', '{key}', 1, 'REFERENCE')"
            ),
            f"break_history (break_id, action) VALUES ('{key}', 'NOTED')",
            (
                f"file_proofs (file_id, currency, ledger, difference, file)"
                f" VALUES ('{key}', 'USD', 1, 0, 1)"
            ),
            "file_refusals (code, message) VALUES ('EMPTY_FILE', 'The file is empty.')",
            (
                f"bank_lines (statement_id, line, amount, booking_date)"
                f" VALUES ('{key}', 2, 1, '2026-10-26')"
            ),
            (
                f"bank_payments (statement_id, line, file_id, currency, amount, expected, rule)"
                f" VALUES ('{key}', 2, '{key}', 'USD', 1, 1, 'AMOUNT')"
            ),
            (
                f"statement_proofs (statement_id, ledger, difference, statement)"
                f" VALUES ('{key}', 1, 0, 1)"
            ),
        ):
            world.connection.execute(f"INSERT INTO {row}".encode())


@pytest.fixture
def app(world: World, cardholder: Cardholder) -> Iterator[psycopg.Connection]:  # noqa: ARG001 - the scene
    with psycopg.connect(world.app_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def owner(world: World, cardholder: Cardholder) -> Iterator[psycopg.Connection]:  # noqa: ARG001 - the scene
    with psycopg.connect(world.url, autocommit=True) as connection:
        yield connection


def ask(connection: psycopg.Connection, statement: str, *parameters: object) -> psycopg.Cursor:
    return connection.execute(statement.encode(), parameters or None)


# --- facts cannot be changed -------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", FACTS)
def test_the_application_has_no_right_to_change_facts(
    app: psycopg.Connection, table: str, change: str
) -> None:
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied"):
        ask(app, change.format(table, FIRST_COLUMN[table]))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", FACTS)
def test_the_owner_is_refused_by_a_trigger(
    owner: psycopg.Connection, world: World, table: str, change: str
) -> None:
    before = world.count(table)

    with pytest.raises(errors.InsufficientPrivilege, match=f"{table} is append-only"):
        ask(owner, change.format(table, FIRST_COLUMN[table]))

    assert world.count(table) == before > 0


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", FACTS)
def test_the_owner_is_refused_in_the_role_of_a_replica_too(
    owner: psycopg.Connection, table: str, change: str
) -> None:
    ask(owner, "SET session_replication_role = replica")

    with pytest.raises(errors.InsufficientPrivilege, match=f"{table} is append-only"):
        ask(owner, change.format(table, FIRST_COLUMN[table]))


def test_truncating_everything_at_once_is_refused(owner: psycopg.Connection) -> None:
    with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
        ask(owner, f"TRUNCATE {', '.join(table.name for table in metadata.sorted_tables)} CASCADE")


def test_facts_cannot_be_overwritten_by_an_upsert(app: psycopg.Connection, world: World) -> None:
    [row] = world.rows("SELECT * FROM outcomes LIMIT 1")
    places = ", ".join(["%s"] * len(row))

    with pytest.raises(errors.InsufficientPrivilege):
        ask(
            app,
            f"INSERT INTO outcomes VALUES ({places}) ON CONFLICT"
            " (reference, source, platform_id, customer_id) DO UPDATE SET outcome = 'DECLINED'",
            *row,
        )


# --- the application's role ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "deed",
    [
        "DROP TABLE entries",
        "ALTER TABLE entries DISABLE TRIGGER ALL",
        "ALTER TABLE entries DISABLE TRIGGER append_only",
        "ALTER TABLE entries DROP CONSTRAINT entries_amount_positive_check",
        "DROP TRIGGER append_only ON entries",
        "DROP FUNCTION refuse_change() CASCADE",
        (
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RETURN NULL; END $$"
        ),
        "CREATE TABLE shadow (id int)",
        "CREATE TRIGGER later AFTER INSERT ON entries EXECUTE FUNCTION refuse_change()",
        "SET session_replication_role = replica",
        "DELETE FROM card_transactions",
        "TRUNCATE card_transactions",
        "DELETE FROM internal_accounts",
        "TRUNCATE internal_accounts",
        "DELETE FROM customers",
        "DELETE FROM beneficial_owners",
        "UPDATE beneficial_owners SET customer_id = customer_id",
        "DELETE FROM verifications",
        "UPDATE verifications SET customer_id = customer_id",
        "DELETE FROM cards",
        "DELETE FROM agents",
        "TRUNCATE agents CASCADE",
        "UPDATE agents SET id = id",
        "UPDATE agents SET platform_id = platform_id",
        "UPDATE agents SET customer_id = customer_id",
        "UPDATE agents SET created_at = created_at",
        "DELETE FROM agent_device_codes",
        "UPDATE agent_device_codes SET code_hash = code_hash",
        "UPDATE agent_device_codes SET agent_id = agent_id",
        "UPDATE agent_device_codes SET expires_at = expires_at",
        "DELETE FROM platforms",
        "DELETE FROM system_accounts",
        "UPDATE system_accounts SET kind = kind",
        "DELETE FROM inbox_shards",
        "TRUNCATE inbox",
        "TRUNCATE outbox",
        "UPDATE inbox SET body = '{}'",
        "UPDATE transfers SET status = 'FAILED', failure_reason = 'CANCELLED'",
        "UPDATE transfers SET requested_at = NULL",
        "UPDATE alembic_version SET version_num = '0'",
        "INSERT INTO alembic_version VALUES ('0')",
        "DELETE FROM alembic_version",
        "CREATE ROLE friend SUPERUSER",
        "CREATE DATABASE elsewhere",
        "COPY entries TO PROGRAM 'cat'",
    ],
)
def test_the_application_role_cannot_change_recorded_facts(
    app: psycopg.Connection, deed: str
) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        ask(app, deed)


def test_the_application_owns_nothing_and_has_no_special_right(app: psycopg.Connection) -> None:
    [owned] = ask(
        app,
        "SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
        " WHERE r.rolname = current_user",
    ).fetchall()
    [rights] = ask(
        app,
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM pg_roles"
        " WHERE rolname = current_user",
    ).fetchall()

    assert owned == (0,)
    assert rights == (False,) * 5


# --- what no row may say -----------------------------------------------------------------------


def test_no_balance_is_negative(owner: psycopg.Connection, cardholder: Cardholder) -> None:
    with pytest.raises(errors.CheckViolation, match="balance_not_negative"):
        ask(owner, "UPDATE internal_accounts SET balance = -1 WHERE id = %s", cardholder.account_id)


@pytest.mark.parametrize("column", ["held", "owed"])
def test_nothing_held_or_owed_is_negative(
    owner: psycopg.Connection, cardholder: Cardholder, column: str
) -> None:
    with pytest.raises(errors.CheckViolation, match="sums_not_negative"):
        ask(
            owner,
            f"UPDATE internal_accounts SET {column} = -1 WHERE id = %s",
            cardholder.account_id,
        )


def test_no_balance_goes_beyond_a_bigint(owner: psycopg.Connection, cardholder: Cardholder) -> None:
    with pytest.raises(errors.NumericValueOutOfRange):
        ask(
            owner,
            "UPDATE internal_accounts SET balance = balance + 9223372036854775807 WHERE id = %s",
            cardholder.account_id,
        )


def test_nothing_is_released_that_was_not_pulled(owner: psycopg.Connection) -> None:
    with pytest.raises(errors.CheckViolation, match="released_was_pulled"):
        ask(owner, "UPDATE card_transactions SET released = pulled + 1")


@pytest.mark.parametrize("column", ["authorized", "settled", "open_pull", "declined", "released"])
def test_no_total_of_a_card_transaction_is_negative(owner: psycopg.Connection, column: str) -> None:
    with pytest.raises(errors.CheckViolation, match="totals_not_negative"):
        ask(owner, f"UPDATE card_transactions SET {column} = -1")


def copied(
    connection: psycopg.Connection, table: str, where: str = "true", **changes: object
) -> None:
    """Insert a copy of a row of `table` with `changes`; it must differ or be refused."""
    columns = [column.name for column in metadata.tables[table].columns]
    values = sql.SQL(", ").join(
        sql.Literal(changes[column]) if column in changes else sql.Identifier(column)
        for column in columns
    )
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} LIMIT 1").format(
            sql.Identifier(table),
            names,
            values,
            sql.Identifier(table),
            sql.SQL(where.encode().decode()),
        )
    )


def test_a_card_transaction_has_one_event_per_sequence(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="card_transaction_events_pkey"):
        copied(app, "card_transaction_events", kind="RELEASED", amount=1)


@pytest.mark.parametrize(
    "change", [{"sequence": 0}, {"sequence": -1}, {"sequence": 99, "amount": -1}]
)
def test_an_event_has_a_positive_sequence_and_no_negative_amount(
    app: psycopg.Connection, change: dict[str, Any]
) -> None:
    with pytest.raises(errors.CheckViolation, match="card_transaction_events_amounts"):
        copied(app, "card_transaction_events", **change)


@pytest.mark.parametrize("amount", [0, -1])
def test_the_amount_of_an_entry_is_positive(app: psycopg.Connection, amount: int) -> None:
    with pytest.raises(errors.CheckViolation, match="amount_positive"):
        copied(app, "entries", line=9, amount=amount, account_id=None, account_version=None,
               balance_after=None)  # fmt: skip


def test_an_entry_moves_between_two_accounts(
    app: psycopg.Connection, cardholder: Cardholder
) -> None:
    account = str(cardholder.account_id)
    with pytest.raises(errors.CheckViolation, match="two_accounts"):
        copied(app, "entries", line=9, debit_account_id=account, credit_account_id=account,
               account_version=99)  # fmt: skip


@pytest.mark.parametrize("missing", ["account_id", "account_version", "balance_after"])
def test_the_customers_side_of_an_entry_is_whole_or_absent(
    app: psycopg.Connection, missing: str
) -> None:
    change: dict[str, Any] = {"line": 9, "account_version": 99} | {missing: None}
    with pytest.raises(errors.CheckViolation, match="customer_side"):
        copied(app, "entries", "account_id IS NOT NULL", **change)


def test_no_entry_leaves_a_negative_balance(app: psycopg.Connection) -> None:
    with pytest.raises(errors.CheckViolation, match="balance_not_negative"):
        copied(app, "entries", "account_id IS NOT NULL", line=9, account_version=99,
               balance_after=-1)  # fmt: skip


def test_an_account_has_one_entry_per_version(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="entries_account_version_key"):
        copied(app, "entries", "account_id IS NOT NULL", line=9)


def test_a_subject_has_one_entry_per_sequence_and_line(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="entries_pkey"):
        copied(app, "entries", "account_id IS NULL")


def test_an_idempotency_key_is_used_once(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="outcomes_pkey"):
        copied(app, "outcomes", message_id=str(new_id()), body_hash=b"another")


def test_a_token_means_one_card_transaction_of_a_card(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="card_transactions_token_key"):
        copied(app, "card_transactions", id=str(new_id()))


@pytest.mark.parametrize("amount", [0, -1])
def test_the_amount_of_a_deposit_is_positive(app: psycopg.Connection, amount: int) -> None:
    with pytest.raises(errors.CheckViolation, match="amount_positive"):
        copied(app, "deposits", id=str(new_id()), amount=amount)


def test_a_platform_has_one_account_per_currency_and_kind(app: psycopg.Connection) -> None:
    with pytest.raises(errors.UniqueViolation, match="system_accounts"):
        copied(app, "system_accounts", id=str(new_id()))


def test_the_chart_of_accounts_is_closed(app: psycopg.Connection) -> None:
    with pytest.raises(errors.ForeignKeyViolation, match="system_accounts_kind"):
        copied(app, "system_accounts", id=str(new_id()), kind="POCKET_MONEY")
    with pytest.raises(errors.CheckViolation, match="system_accounts_kind"):
        copied(app, "system_accounts", id=str(new_id()), kind="CUSTOMER")


def test_an_account_belongs_to_a_platform_that_exists(app: psycopg.Connection) -> None:
    with pytest.raises(errors.ForeignKeyViolation):
        copied(app, "internal_accounts", id=str(new_id()), platform_id=str(new_id()))


@pytest.mark.parametrize("share", ["-0.0001", "100.0001"])
def test_the_share_of_an_owner_is_between_0_and_100_percent(
    app: psycopg.Connection, cardholder: Cardholder, share: str
) -> None:
    with pytest.raises(errors.CheckViolation, match="share"):
        ask(
            app,
            "INSERT INTO beneficial_owners (id, platform_id, customer_id, roles,"
            " ownership_percentage, personal_info, identifier, kyc_status, created_at, updated_at)"
            " VALUES (gen_random_uuid(), %s, %s, '{UBO}', %s, '{}', '', 'PENDING', now(), now())",
            cardholder.owner.platform_id,
            cardholder.owner.customer_id,
            share,
        )


def test_a_customer_has_one_verification_that_is_not_decided(
    app: psycopg.Connection, cardholder: Cardholder
) -> None:
    def verify(status: str) -> None:
        ask(
            app,
            "INSERT INTO verifications (id, platform_id, customer_id, status, errors, created_at,"
            " updated_at) VALUES (gen_random_uuid(), %s, %s, %s, '[]', now(), now())",
            cardholder.owner.platform_id,
            cardholder.owner.customer_id,
            status,
        )

    for status in ("REJECTED", "APPROVED", "RESOLVE_ERRORS"):
        verify(status)
    with pytest.raises(errors.UniqueViolation, match="undecided"):
        verify("IN_PROGRESS")


def test_the_application_role_can_do_all_that_the_engine_needs(
    world: World, cardholder: Cardholder
) -> None:
    # The other side of all the refusals above: the same role does a day's work.
    engine = world.engine()

    world.process(engine, [(cardholder, world.authorization(cardholder, "T2", 10))], Lane.BULK)

    world.check_books(cardholder)
