"""The schema of finance: its columns, what they say of events, and what cannot be read by it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors, sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import finance as schema
from cardledger.schema import migrate, roles
from cardledger.schema.roles import Right, Role
from tests.databases import as_role, fresh_database
from tests.world import Cardholder, World, open_world

CONTRACT: Final = {
    "currencies": "code decimals",
    "accounts": "account_id platform_id customer_id kind class normal_side currency status"
    " opened_at",
    "journal": "entry_id platform_id posted_on occurred_at recorded_at event debit_account_id"
    " debit_kind debit_class credit_account_id credit_kind credit_class amount amount_decimal"
    " currency customer_id card_id merchant source reference subject_id sequence line late_from",
    "postings": "entry_id side account_id kind class currency amount posted_on occurred_at"
    " recorded_at platform_id",
    "card_transactions": "card_transaction_id platform_id customer_id card_id account_id"
    " issuer_transaction_token merchant mcc country currency status decline_reason authorized"
    " settled refunded pulled released held owed owed_since authorized_at recorded_at expires_at"
    " updated_at written_off credit_authorized",
    "conversions": "card_transaction_id sequence is_first platform_id customer_id merchant_amount"
    " merchant_amount_decimal merchant_currency billing_amount billing_amount_decimal currency rate"
    " recorded_at",
    "open_holds": "card_transaction_id platform_id customer_id card_id account_id merchant currency"
    " held authorized_at recorded_at expires_at age_days",
    "receivables": "card_transaction_id platform_id customer_id card_id account_id merchant"
    " currency owed owed_since authorized_at age_days written_off",
    "events": "card_transaction_id sequence platform_id customer_id currency event amount unfunded"
    " final reason source reference occurred_at recorded_at",
    "network_days": "settlement_date network cycle currency platform_id presentments credits"
    " reversals fees interchange net paid open",
    "unapplied": "message_id state platform_id source reference type amount currency reason"
    " recorded_at age_days suspense_id",
    "suspense": "suspense_id platform_id customer_id card_id source reference type currency amount"
    " open_amount cause reason recorded_at posted_on age_days resolved_at resolved_by",
    "adjustments": "adjustment_id platform_id kind state from_kind to_kind amount amount_decimal"
    " currency card_transaction_id suspense_id reason prepared_by prepared_at decided_by decided_at"
    " booked_at refusal break_id reverses_id",
    "audit": "recorded_at person action subject detail",
    "files": "network_file_id platform_id network file_id settlement_date cycle lines digest"
    " imported_at imported_by open_breaks",
    "lines": "network_file_id line platform_id network settlement_date cycle type reference"
    " network_reference issuer_transaction_token card_id amount currency merchant_amount"
    " merchant_currency interchange transaction_date merchant mcc rule card_transaction_id sequence"
    " matched_at",
    "breaks": "break_id platform_id network settlement_date cycle network_file_id file_id line kind"
    " cause state reference issuer_transaction_token card_transaction_id sequence currency"
    " file_amount ledger_amount difference ledger_currency ledger_difference rule age_days owner"
    " opened_at closed_at closed_by candidates statement_id paid_network_file_id",
    "bank_statements": "statement_id platform_id account bank_statement_id currency first_day"
    " last_day opening closing lines digest imported_at imported_by closing_before open_breaks",
    "bank_lines": "statement_id line platform_id account booking_date value_date amount currency"
    " bank_reference description rule booking_id moved",
    "bank_payments": "statement_id line network_file_id network settlement_date cycle currency"
    " amount expected rule rest_of_statement_id rest_of_line matched_at",
    "statement_proofs": "statement_id proved_at ledger difference statement is_latest",
    "break_history": "break_id done_at done_by action note owner difference",
    "proofs": "network_file_id proved_at currency ledger difference file is_latest",
    "bookings": "booking_id platform_id kind from_kind to_kind amount amount_decimal currency"
    " posted_for network_file_id statement_id line made_at booked_at",
    "periods": "closing_id first_day last_day state prepared_at prepared_by decided_at decided_by"
    " decision_reason exceptions sealed_at sealed_by seal_version sha256 entries late_entries"
    " trial_balance",
    "reopenings": "reopening_id closing_id first_day last_day state reason prepared_at prepared_by"
    " decided_at decided_by decision_reason",
}
"""Columns of each view, in their order; another one is added on the right."""

FUNCTIONS: Final = {
    "add_lines(uuid,text,text,text,text,text,text,text,text,text,text,text,text,text,text)",
    "approve_adjustment(uuid)",
    "assign_break(uuid,text,text)",
    "begin_file(uuid,text,text,date,text)",
    "begin_statement(uuid,text,text,text,date,date,bigint,bigint)",
    "add_statement_lines(uuid,text,text,text,text,text,text)",
    "finish_statement(uuid,text)",
    "rematch_bank()",
    "finish_file(uuid,text,jsonb)",
    "note_break(uuid,text)",
    "make_event(uuid,text)",
    "refuse_file(text,integer,text,text)",
    "rematch()",
    "resolve_break(uuid,text,text)",
    "approve_closing(uuid)",
    "first_open_day()",
    "in_the_way(date,date)",
    "prepare_closing(date,date,jsonb)",
    "prepare_reopening(uuid,text)",
    "reject_closing(uuid,text)",
    "seal_closing(uuid,integer,text,bigint)",
    "balance(uuid,date,timestamp with time zone)",
    "begin_books(date)",
    "json_or_null(text)",
    "open_holds(date,timestamp with time zone)",
    "prepare_move(uuid,text,text,bigint,text,text)",
    "prepare_bank_move(uuid,text,text,bigint,text,text,uuid)",
    "prepare_reversal(uuid,text)",
    "prepare_suspense_resolution(uuid,text)",
    "prepare_write_off(uuid,bigint,text)",
    "receivables(date,timestamp with time zone)",
    "reject_adjustment(uuid,text)",
    "statement(uuid,date,date,timestamp with time zone)",
    "suspense(date,timestamp with time zone)",
    "trial_balance(date,timestamp with time zone,uuid)",
    "version()",
}
EMPTY: Final = {
    *("adjustments", "audit", "periods", "reopenings"),
    *("files", "lines", "breaks", "break_history", "proofs", "bookings"),
    *("bank_statements", "bank_lines", "bank_payments", "statement_proofs"),
}
"""Views without rows here: what people and files do has tests of its own."""

EUROS: Final = {"merchantAmount": {"amount": 830, "currency": "EUR"}, "rate": "1.0843"}
HIDDEN: Final = "Zoe-Hidden"
"""Stands in every place of a person's data that the tests can fill."""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    """A cardholder who has bought, been refunded, and had messages rejected and parked."""
    made = world.cardholder(world.platform(), 5_000)
    world.connection.execute(
        "UPDATE customers SET full_name = %(hidden)s, email = %(hidden)s || '@example.com',"
        " phone_number = %(hidden)s, birth_date = NULL, address = to_jsonb(%(hidden)s::text)"
        " WHERE id = %(id)s",
        {"hidden": HIDDEN, "id": made.owner.customer_id},
    )
    authorized_at = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    world.process(
        world.engine(),
        [
            (made, world.authorization(made, "T1", 1_000, occurredAt=authorized_at)),
            (made, world.authorization(made, "T2", 700)),
            (made, world.clearing(made, "T2", 900, conversion=EUROS)),
            (made, world.event("RETURN", made, "T2", 300)),
            (made, world.clearing(made, "T3", 9_000)),
            (made, world.event("CLEARING_REVERSAL", made, "T9", 50)),
            (made, world.clearing(made, "T4", 100) | {"currency": "EUR"}),
            (made, world.authorization(made, "T5", 100) | {"currency": "EUR"}),
        ],
    )
    world.connection.execute(
        "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body, reason,"
        " detail, recorded_at) VALUES (%s, %s, %s, 'test', 'broken', %s, 'MALFORMED', %s, now())",
        [new_id(), made.owner.customer_id, made.owner.platform_id, f'{{"type": {HIDDEN}', HIDDEN],
    )
    return made


@pytest.fixture(scope="module")
def finance(world: World, cardholder: Cardholder) -> Iterator[psycopg.Connection[Any]]:  # noqa: ARG001 - the scene
    with psycopg.connect(as_role(world.app_url, Role.FINANCE), autocommit=True) as connection:
        yield connection


# --- the contract ---------------------------------------------------------------------------------


def test_every_view_has_the_columns_of_the_contract_with_a_comment(world: World) -> None:
    found: dict[str, list[str]] = {}
    for view, view_comment, column, comment in world.rows(
        "SELECT c.relname, obj_description(c.oid), a.attname, col_description(c.oid, a.attnum)"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " WHERE c.relnamespace = 'finance'::regnamespace ORDER BY c.relname, a.attnum"
    ):
        assert view_comment, view
        assert comment, (view, column)
        found.setdefault(view, []).append(column)

    assert {view: " ".join(columns) for view, columns in found.items()} == CONTRACT


def test_every_function_has_a_comment_and_keeps_what_its_names_mean(world: World) -> None:
    found = world.rows(
        "SELECT p.oid::regprocedure::text, obj_description(p.oid), p.prosecdef, p.proconfig,"
        " p.prosqlbody IS NOT NULL FROM pg_proc p WHERE p.pronamespace = 'finance'::regnamespace"
    )

    assert {name.removeprefix("finance.") for name, *_ in found} == FUNCTIONS
    for name, comment, has_its_owners_rights, configured, is_bound in found:
        assert comment, name
        if has_its_owners_rights:
            assert is_bound, name
            assert "search_path=pg_catalog, pg_temp" in configured, name


def test_the_version_is_the_one_of_this_release(finance: psycopg.Connection[Any]) -> None:
    assert finance.execute("SELECT finance.version()").fetchone() == (schema.VERSION,)


# --- what it says ---------------------------------------------------------------------------------


def test_an_entry_says_what_happened_and_whose_message_it_was(
    finance: psycopg.Connection[Any], cardholder: Cardholder
) -> None:
    [row] = finance.execute(
        "SELECT debit_kind, debit_class, credit_kind, credit_class, amount, amount_decimal::text,"
        " currency, customer_id, card_id, source, reference IS NOT NULL, late_from"
        " FROM finance.journal WHERE event = 'CLEARED' AND amount = 900"
    ).fetchall()

    assert row[:7] == (
        *("CARD_HOLDS", "LIABILITY", "NETWORK_SETTLEMENT", "LIABILITY"),
        *(900, "9.00", "USD"),
    )
    assert row[7:] == (cardholder.owner.customer_id, cardholder.card_id, "test", True, None)


@pytest.mark.parametrize(
    ("currency", "amount", "expected"),
    [
        ("USD", 2**63 - 1, "92233720368547758.07"),
        ("JPY", 1_250, "1250"),
        ("KWD", 1_250, "1.250"),
    ],
)
def test_an_amount_in_units_is_exact(
    world: World, cardholder: Cardholder, currency: str, amount: int, expected: str
) -> None:
    debit, credit, subject = new_id(), new_id(), new_id()
    with world.connection.transaction(force_rollback=True):
        world.connection.execute("INSERT INTO currencies VALUES ('KWD', 3) ON CONFLICT DO NOTHING")
        for key, kind in ((debit, "SETTLEMENT_BANK"), (credit, "SUSPENSE")):
            world.connection.execute(
                "DELETE FROM system_accounts WHERE platform_id = %s AND currency = %s"
                " AND kind = %s",
                [cardholder.owner.platform_id, currency, kind],
            )
            world.connection.execute(
                "INSERT INTO system_accounts (id, platform_id, currency, kind)"
                " VALUES (%s, %s, %s, %s)",
                [key, cardholder.owner.platform_id, currency, kind],
            )
        world.connection.execute(
            "INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,"
            " credit_account_id, amount, recorded_at, occurred_at, posted_on) VALUES (%s, 0, 0,"
            " '00000000-0000-0000-0000-000000000000', %s, %s, %s, now(), now(), current_date)",
            [subject, debit, credit, amount],
        )
        rows = world.rows(
            "SELECT amount_decimal::text, customer_id, event, debit_class, credit_class"
            " FROM finance.journal WHERE subject_id = %s",
            subject,
        )

    assert rows == [(expected, None, "ADJUSTED", "ASSET", "LIABILITY")]


def test_a_hold_is_as_old_as_its_authorization_at_the_network(
    finance: psycopg.Connection[Any],
) -> None:
    [(held, age, authorized_at, recorded_at)] = finance.execute(
        "SELECT held, age_days, authorized_at, recorded_at FROM finance.open_holds"
    ).fetchall()

    assert (held, age) == (1_000, 3)
    assert recorded_at - authorized_at > timedelta(days=2)


def test_a_receivable_says_who_owes_what_since_when(
    finance: psycopg.Connection[Any], cardholder: Cardholder
) -> None:
    [(customer, owed, since, authorized_at, age)] = finance.execute(
        "SELECT customer_id, owed, owed_since, authorized_at, age_days FROM finance.receivables"
    ).fetchall()

    assert (customer, owed, authorized_at, age) == (cardholder.owner.customer_id, 9_000, None, 0)
    assert datetime.now(UTC) - since < timedelta(hours=1)


def test_a_message_that_moved_money_and_is_not_booked_is_listed(
    finance: psycopg.Connection[Any],
) -> None:
    rows = finance.execute(
        "SELECT state, type, amount, currency, source, reason IS NULL, age_days,"
        " suspense_id = message_id FROM finance.unapplied ORDER BY state"
    ).fetchall()

    assert rows == [
        ("PARKED", "CLEARING_REVERSAL", 50, "USD", "test", True, 0, True),
        ("REJECTED", "CLEARING", 100, "EUR", "test", False, 0, True),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"type": "RETURN", "amount": 5, "currency": "USD"}', (5, "USD")),
        ('{"type": "RETURN", "amount": "5", "currency": "USD"}', (None, "USD")),
        ('{"type": "RETURN", "amount": 1.5, "currency": "=HYPERLINK(1)"}', (None, None)),
        ('{"type": "RETURN", "amount": -5, "currency": null}', (None, None)),
        ('{"type": "RETURN", "amount": 1e30}', (None, None)),
        (r'{"type": "RETURN", "amount": 5, "merchant": "a\u0000\u0000b"}', (5, None)),
        (r'{"type": "RETURN", "amount": 5, "merchant": "\ud800"}', (5, None)),
        (r'{"type": "RETURN", "amount": 5, "merchant": "\\\u0000", "m": "\\u0000"}', (5, None)),
        ('{"type": "RETURN", "settlement": {"merchantAmount": {"amount": 7}}}', (None, None)),
    ],
)
def test_of_a_rejected_message_an_amount_is_shown_where_it_can_be_read(
    world: World, cardholder: Cardholder, body: str, expected: tuple[int | None, str | None]
) -> None:
    key = new_id()
    with world.connection.transaction(force_rollback=True):
        world.connection.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body,"
            " reason, recorded_at) VALUES (%s, %s, %s, 's', 'r', %s, 'MALFORMED', now())",
            [key, cardholder.owner.customer_id, cardholder.owner.platform_id, body],
        )
        rows = world.rows(
            "SELECT amount, currency FROM finance.unapplied WHERE message_id = %s", key
        )
        world.connection.execute(
            "INSERT INTO rejection_retries (rejection_id, platform_id, message_id, retried_at)"
            " VALUES (%s, %s, %s, now())",
            [key, cardholder.owner.platform_id, new_id()],
        )
        after = world.rows("SELECT FROM finance.unapplied WHERE message_id = %s", key)

    assert rows == [expected]
    assert after == []


def test_a_network_day_has_what_the_network_says_of_it(
    world: World, finance: psycopg.Connection[Any], cardholder: Cardholder
) -> None:
    today = datetime.now(UTC).date()
    day = date(2026, 1, 31)
    [(transaction, sequence, message)] = world.rows(
        "SELECT card_transaction_id, sequence, message_id FROM card_transaction_events"
        " WHERE kind = 'CLEARED' AND amount = 900"
    )
    with world.connection.transaction(force_rollback=True):
        world.connection.execute(
            "INSERT INTO settlement_details (card_transaction_id, sequence, customer_id,"
            " platform_id, message_id, network, settlement_date, cycle, interchange, recorded_at)"
            " VALUES (%s, %s, %s, %s, %s, 'VISA', %s, '1', 0.123456, now())",
            [transaction, sequence, *_owner(cardholder), message, day],
        )
        rows = world.rows(
            "SELECT settlement_date, network, cycle, presentments, credits, reversals, fees,"
            " interchange::text, net, paid, open FROM finance.network_days ORDER BY network"
        )
    without = finance.execute("SELECT network, net, open FROM finance.network_days").fetchall()

    assert rows == [
        (day, "VISA", "1", 900, 0, 0, 0, "12.3456", 900, 0, 900),
        # With 100 of a rejected clearing and 50 of a parked reversal, which stand in SUSPENSE.
        (today, None, None, 9_100, 300, 50, 0, "0", 8_750, 0, 8_750),
    ]
    assert without == [(None, 9_650, 9_650)]


def _owner(cardholder: Cardholder) -> tuple[Any, Any]:
    return cardholder.owner.customer_id, cardholder.owner.platform_id


# --- what cannot be read --------------------------------------------------------------------------

_RELATIONS: Final = """
    SELECT n.nspname, c.relname, array_agg(a.attname ORDER BY a.attnum)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname !~ '^(pg_|information_schema)'
    GROUP BY n.nspname, c.relname ORDER BY 1, 2
"""


def denied(connection: psycopg.Connection[Any], statement: sql.Composed) -> bool:
    with connection.transaction(force_rollback=True):
        try:
            connection.execute(statement)
        except errors.InsufficientPrivilege:
            return True
        except psycopg.Error:
            return False
    return False


@pytest.mark.parametrize("role", [Role.FINANCE, *Right])
def test_only_the_schema_of_finance_can_be_read_and_nothing_can_be_written(
    world: World, template_database: DatabaseUrl, role: Role | Right
) -> None:
    relations = world.rows(_RELATIONS)
    readable, writable = set(), set()
    with psycopg.connect(world.url, autocommit=True) as connection:
        name = sql.Identifier(roles.name_in(template_database, role))
        connection.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(name))
        for schema_name, relation, columns in relations:
            table = sql.Identifier(schema_name, relation)
            for column in map(sql.Identifier, columns):
                select = sql.SQL("SELECT {} FROM {} LIMIT 1").format(column, table)
                update = sql.SQL("UPDATE {} SET {} = NULL").format(table, column)
                if not denied(connection, select):
                    readable.add(f"{schema_name}.{relation}")
                if not denied(connection, update):
                    writable.add(f"{schema_name}.{relation}")
            for verb in ("INSERT INTO {} DEFAULT VALUES", "DELETE FROM {}", "TRUNCATE {}"):
                if not denied(connection, sql.SQL(verb).format(table)):
                    writable.add(f"{schema_name}.{relation}")

    assert len(relations) > 60
    assert readable == ({f"finance.{view}" for view in CONTRACT} if role is Role.FINANCE else set())
    # PostgreSQL writes through no view that adds up or joins, whatever the rights of the login.
    assert {name for name in writable if not name.startswith("finance.")} == set()
    assert (
        world.rows(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'finance'::regnamespace"
            " AND (has_table_privilege(%(role)s, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')"
            " OR has_any_column_privilege(%(role)s, c.oid, 'INSERT, UPDATE'))".replace(
                "%(role)s", f"'{roles.name_in(template_database, role)}'"
            )
        )
        == []
    )


def test_no_personal_data_can_be_reached(
    finance: psycopg.Connection[Any], world: World, cardholder: Cardholder
) -> None:
    [(name, body)] = world.rows(
        "SELECT c.full_name, r.body FROM customers c, rejections r"
        " WHERE c.id = %s AND r.reference = 'broken'",
        cardholder.owner.customer_id,
    )
    assert HIDDEN in name
    assert HIDDEN in body

    for view in CONTRACT:
        rows = finance.execute(f"SELECT * FROM finance.{view}".encode()).fetchall()
        assert HIDDEN not in str(rows), view
        assert rows or view in EMPTY, view


def test_a_condition_of_the_reader_sees_no_message_that_a_view_hides(
    finance: psycopg.Connection[Any],
) -> None:
    # A cheap function of the reader's own is called before the view's conditions, if it may be.
    finance.execute(
        "CREATE FUNCTION pg_temp.look(seen text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
        " $$ BEGIN RAISE NOTICE '%', seen; RETURN true; END $$"
    )
    heard: list[str] = []
    finance.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))

    finance.execute("SELECT count(*) FROM finance.unapplied WHERE pg_temp.look(reference)")

    assert len(heard) == 2
    assert "broken" not in heard


def test_a_function_reads_what_it_always_reads_whatever_its_caller_calls_so(
    finance: psycopg.Connection[Any],
) -> None:
    query = "SELECT * FROM finance.trial_balance(NULL, NULL)"
    before = finance.execute(query).fetchall()
    finance.execute("CREATE TEMPORARY TABLE entries (posted_on date)")
    finance.execute("CREATE TEMPORARY TABLE system_accounts (id uuid)")
    finance.execute(
        "CREATE FUNCTION pg_temp.coalesce_hook(text) RETURNS text LANGUAGE sql AS 'SELECT NULL'"
    )
    finance.execute("SET search_path = pg_temp, cardledger, pg_catalog")

    after = finance.execute(query).fetchall()

    assert after == before
    assert after
    finance.execute("RESET search_path")


def test_the_public_can_call_no_function(world: World) -> None:
    assert (
        world.rows(
            "SELECT p.proname FROM pg_proc p, aclexplode(coalesce(p.proacl,"
            " acldefault('f', p.proowner))) acl WHERE acl.grantee = 0"
            " AND p.pronamespace = 'finance'::regnamespace"
        )
        == []
    )


# --- where it is ----------------------------------------------------------------------------------


@pytest.fixture
def empty_url(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    with fresh_database(postgres_url) as url:
        yield url
        migrate.downgrade(url, "base")


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {
            name
            for (name,) in connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%finance%'"
            )
        }


def test_a_schema_of_the_users_own_keeps_its_name(empty_url: DatabaseUrl) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE SCHEMA finance")
        connection.execute("CREATE TABLE finance.journal (of_the_user int)")

    migrate.upgrade(empty_url)

    with psycopg.connect(empty_url) as connection:
        found = connection.execute(f"SELECT {schema.find('cardledger')}".encode()).fetchone()
        assert found == ("cardledger_finance",)
        assert connection.execute("SELECT cardledger_finance.version()").fetchone() == (2,)
        assert connection.execute(
            "SELECT count(*) FROM cardledger_finance.trial_balance(NULL, NULL)"
        ).fetchone() == (0,)
    migrate.downgrade(empty_url, "0039")
    assert schemas(empty_url) == {"finance"}
    migrate.upgrade(empty_url)


def test_it_moves_with_tables_that_are_moved(empty_url: DatabaseUrl) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE SCHEMA finance")
    migrate.upgrade(empty_url.with_schema("public"))
    assert schemas(empty_url) == {"finance", "public_finance"}

    migrate.upgrade(empty_url)

    assert schemas(empty_url) == {"finance", "cardledger_finance"}
    with psycopg.connect(empty_url) as connection:
        assert connection.execute(
            "SELECT count(*) FROM cardledger_finance.trial_balance(NULL, NULL)"
        ).fetchone() == (0,)
