"""Migrations: up, down to nothing, up again, and the same schema as the tables say."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from psycopg import errors, sql
from psycopg.types.json import Json
from sqlalchemy import CheckConstraint, NullPool, create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DatabaseError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.projections import accounts
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import compatibility, earlier_releases, migrate
from cardledger.schema import relations as installed
from cardledger.schema.connections import parameters
from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view
from cardledger.schema.roles import Right, Role, name_in
from cardledger.schema.tables import APPEND_ONLY, UNCHANGED, metadata
from tests.api.support import new_tenant
from tests.databases import fresh_database


@pytest.fixture
def empty_url(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    with fresh_database(postgres_url) as url:
        yield url
        migrate.downgrade(url, "base")  # The role belongs to the server and would stay.


def names(url: str, query: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute(query.encode())}


def relations(url: str) -> set[str]:
    return names(
        url,
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'cardledger'",
    )


def functions(url: str) -> set[str]:
    return names(
        url,
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'cardledger'",
    )


def roles(url: str) -> set[str]:
    return names(url, "SELECT rolname FROM pg_roles")


def test_the_schema_goes_up_down_to_nothing_and_up_again(empty_url: DatabaseUrl) -> None:
    assert migrate.current(empty_url) is None

    migrate.upgrade(empty_url)

    assert migrate.current(empty_url) == migrate.head()
    assert migrate.app_role(empty_url) in roles(empty_url)
    first = relations(empty_url)
    assert {table.name for table in metadata.sorted_tables} <= first

    migrate.downgrade(empty_url, "base")

    assert migrate.current(empty_url) is None
    assert relations(empty_url) <= {"alembic_version", "alembic_version_pkc"}
    assert functions(empty_url) == set()
    assert migrate.app_role(empty_url) not in roles(empty_url)

    migrate.upgrade(empty_url)

    assert relations(empty_url) == first


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(empty_url: DatabaseUrl) -> None:
    migrate.upgrade(empty_url)
    migrate.upgrade(empty_url)

    assert migrate.current(empty_url) == migrate.head()


def test_a_role_that_existed_before_is_used_and_never_dropped(empty_url: DatabaseUrl) -> None:
    role = sql.Identifier(migrate.app_role(empty_url))
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        connection.execute("CREATE SCHEMA mine")
        connection.execute("CREATE TABLE mine.orders (id int)")
        connection.execute(sql.SQL("ALTER TABLE mine.orders OWNER TO {}").format(role))

    migrate.upgrade(empty_url)
    upgraded = migrate.current(empty_url)
    migrate.downgrade(empty_url, "base")

    assert upgraded == migrate.head()
    assert not migrate.owns_role(empty_url, Role.APP)
    assert migrate.app_role(empty_url) in roles(empty_url)
    assert tables_in(empty_url, "mine") == {"orders"}
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA mine CASCADE")
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_two_installations_in_one_database_share_the_role(empty_url: DatabaseUrl) -> None:
    other = empty_url.with_schema("books")
    migrate.upgrade(empty_url)
    migrate.upgrade(other)

    migrate.downgrade(other, "base")

    assert migrate.owns_role(empty_url, Role.APP)
    assert {name_in(empty_url, role) for role in (Role.FINANCE, *Right)} <= roles(empty_url)
    with psycopg.connect(empty_url) as connection:
        may = connection.execute(
            "SELECT has_table_privilege(%s, 'cardledger.entries', 'INSERT')",
            [migrate.app_role(empty_url)],
        ).fetchone()
    assert may == (True,)


# --- where the tables are ------------------------------------------------------------------------


def tables_in(url: str, schema: str) -> set[str]:
    return names(url, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")


OURS = {table.name for table in metadata.sorted_tables} | {"alembic_version"}


def test_an_installation_in_public_is_moved_with_its_facts_and_rights(
    empty_url: DatabaseUrl,
) -> None:
    before = empty_url.with_schema("public")
    reporting = sql.Identifier(f"{empty_url.database}_reporting")
    migrate.upgrade(before, "0008")
    key = new_id()
    with psycopg.connect(before) as connection:
        connection.execute("CREATE TABLE public.invoices (id int)")
        connection.execute(sql.SQL("CREATE ROLE {}").format(reporting))
        connection.execute(sql.SQL("GRANT SELECT ON entries TO {}").format(reporting))
        connection.execute(
            "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash,"
            " message_id, outcome, recorded_at)"
            " VALUES (%s, %s, 'network', 'r1', '', %s, 'APPLIED', now())",
            [key, key, key],
        )
    assert migrate.current(empty_url) == "0008"

    migrate.upgrade(empty_url)

    assert migrate.current(empty_url) == migrate.head()
    assert tables_in(empty_url, "cardledger") == OURS
    assert tables_in(empty_url, "public") == {"invoices"}
    assert functions(empty_url) == {
        "refuse_change",
        "refuse_way_back",
        "record_acceptance",
        "record_client_id",
        "count_rows",
        "count_deleted_rows",
        "delete_document_pieces",
        "delete_expired_credentials",
        "fill_platform",
        "refuse_loss",
        "enqueue",
        "outcome",
        "card_transaction_json",
        "summarize_entries",
        "refuse_closed_day",
        "end_of_business_day",
        "find_closing",
        "refuse_second_request",
        "lock_books",
        "prepare_closing",
        "prepare_reopening",
        "approve_closing",
        "seal_closing",
        "reject_closing",
        "closing_findings",
        "closing_trial_balance",
        "begin_books",
        "moved_by_beginning",
        "guard_adjustment",
        "prepare_adjustment",
        "refuse_unfinished_file",
        "line_sign",
        "folded",
        "begin_network_file",
        "add_network_lines",
        "finish_network_file",
        "match_round",
        "add_events",
        "match_cards",
        "set_card_keys",
        "rewrite_open",
        "network_file",
        "match_network_file",
        "ledger_of_file",
        "explain_breaks",
        "explain_break",
        "open_breaks",
        "open_breaks_of_lines",
        "duplicate_lines",
        "match_again",
        "rematch_network_files",
        "refuse_network_file",
        "find_break",
        "work_on_break",
        "close_break",
        "make_event_of_break",
        "duplicate_fees",
        "rounded_half_even",
        "book_network_file",
        "refuse_unfinished_statement",
        "begin_bank_statement",
        "add_bank_lines",
        "finish_bank_statement",
        "expected_at_bank",
        "is_named",
        "match_bank",
        "runs_named",
        "pay_days",
        "book_bank_line",
        "pay_rests",
        "open_bank_breaks",
        "prove_statements",
        "rematch_bank",
        "check_bank_move",
        "reversed_move",
        "moved_of_break",
        "bank_findings",
        "add_runs",
        "lend_days",
        "release_days",
        "refuse_release",
        "repeats_lines",
        "statement_of_namesake",
        "uma_receiver",
        "find_invitation",
        "claim_invitation",
        "match_files",
        "waiting_files",
        "prove_file",
        "find_events",
        "match_equal",
        "match_references",
        "match_tokens",
        "find_card_events",
        "find_causes",
        "open_breaks_of_matches",
        "entries_sha256",
    }
    app = empty_url.with_user(migrate.app_role(empty_url), "app")
    with psycopg.connect(empty_url) as connection:
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD 'app'").format(
                sql.Identifier(migrate.app_role(empty_url))
            )
        )
    with psycopg.connect(app) as connection:
        assert connection.execute("SELECT reference FROM outcomes").fetchall() == [("r1",)]
        assert connection.execute("SELECT count(*) FROM journal").fetchall() == [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE outcomes SET reference = 'r2'")
    with psycopg.connect(empty_url) as owner, pytest.raises(psycopg.Error, match="append-only"):
        owner.execute("DELETE FROM outcomes")
    with psycopg.connect(empty_url, autocommit=True) as owner:
        owner.execute(sql.SQL("SET ROLE {}").format(reporting))
        assert owner.execute("SELECT count(*) FROM entries").fetchone() == (0,)
        owner.execute("RESET ROLE")
        owner.execute(sql.SQL("DROP OWNED BY {}").format(reporting))
        owner.execute(sql.SQL("DROP ROLE {}").format(reporting))


def test_every_revision_has_the_relations_that_are_listed_for_it(empty_url: DatabaseUrl) -> None:
    query = (
        "SELECT c.relname FROM pg_class c WHERE c.relkind IN ('r', 'v')"
        " AND c.relnamespace = 'cardledger'::regnamespace"
    )
    revisions = sorted(
        file.name[:4] for file in Path(migrate.__file__).parent.glob("migrations/versions/0*.py")
    )

    for revision in revisions:
        migrate.upgrade(empty_url, revision)

        assert names(empty_url, query) == set(installed.at(revision)), revision
    assert revisions[-1] == migrate.head()


def test_a_table_named_like_one_of_a_later_revision_is_not_moved(empty_url: DatabaseUrl) -> None:
    migrate.upgrade(empty_url.with_schema("public"), "0008")
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TABLE public.duplicates (invoice int)")

    migrate.upgrade(empty_url)

    assert tables_in(empty_url, "cardledger") == OURS
    assert tables_in(empty_url, "public") == {"duplicates"}


def test_a_database_that_is_shared_keeps_the_tables_and_the_version_of_its_owner(
    empty_url: DatabaseUrl,
) -> None:
    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TABLE public.alembic_version (version_num text)")
        connection.execute("INSERT INTO public.alembic_version VALUES ('0001')")
        connection.execute("CREATE TABLE public.customers (name text)")
        connection.execute("INSERT INTO public.customers VALUES ('Ada')")

    migrate.upgrade(empty_url)

    assert tables_in(empty_url, "cardledger") == OURS
    assert tables_in(empty_url, "public") == {"alembic_version", "customers"}
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT version_num FROM public.alembic_version").fetchall() == [
            ("0001",)
        ]
        assert connection.execute("SELECT name FROM public.customers").fetchall() == [("Ada",)]


def test_the_tables_may_be_in_a_schema_of_another_name(empty_url: DatabaseUrl) -> None:
    url = empty_url.with_schema("user")  # A keyword, which needs quotes.

    migrate.upgrade(url)

    assert tables_in(url, "user") == OURS
    assert tables_in(url, "cardledger") == set()
    assert migrate.current(url) == migrate.head()
    assert migrate.current(empty_url) is None
    migrate.downgrade(url, "base")


def test_the_migrated_schema_is_the_one_of_the_tables(database_url: DatabaseUrl) -> None:
    engine = create_engine(database_url.sqlalchemy, poolclass=NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )

        differences = compare_metadata(context, metadata)

    assert differences == []


def test_every_check_of_the_tables_is_in_the_migrated_schema(database_url: DatabaseUrl) -> None:
    # Alembic does not compare them.
    there = names(
        database_url,
        "SELECT conname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
        " WHERE c.contype = 'c' AND n.nspname = 'cardledger'",
    )

    written = postgresql.dialect().identifier_preparer.format_constraint  # type: ignore[no-untyped-call]
    meant = {
        written(constraint)
        for table in metadata.sorted_tables
        for owner in (table, *table.columns)
        for constraint in owner.constraints
        if isinstance(constraint, CheckConstraint)
    }
    assert meant
    assert meant == there


def test_the_storage_of_every_table_is_what_the_tables_say(database_url: DatabaseUrl) -> None:
    # Nor these.
    there = names(
        database_url,
        "SELECT c.relname || ' ' || option FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(c.reloptions) AS option"
        " WHERE n.nspname = 'cardledger' AND c.relkind = 'r'",
    )

    meant = {
        f"{table.name} {option}={value}"
        for table in metadata.sorted_tables
        for option, value in (table.dialect_options["postgresql"]["with"] or {}).items()
    }
    assert meant
    assert meant == there


def test_every_column_has_a_comment(database_url: DatabaseUrl) -> None:
    silent = names(
        database_url,
        "SELECT c.relname || '.' || a.attname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE n.nspname = 'cardledger' AND c.relkind = 'r' AND c.relname <> 'alembic_version'"
        " AND col_description(c.oid, a.attnum) IS NULL",
    )

    assert silent == set()


def test_every_shard_has_a_row_to_lock(database_url: DatabaseUrl) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT lane, shard FROM inbox_shards").fetchall()

    assert sorted(rows) == [(lane, shard) for lane in Lane for shard in range(SHARDS)]


def test_the_one_endpoint_of_a_platform_becomes_its_default_one_and_back(
    empty_url: DatabaseUrl,
) -> None:
    platform, sent, waiting, lost = (new_id() for _ in range(4))
    migrate.upgrade(empty_url, "0003")
    with psycopg.connect(empty_url) as connection:
        connection.execute(
            "INSERT INTO platforms (id, name, supported_currencies, webhook_endpoint, signing_key,"
            " public_key, webhook_secret, created_at, updated_at) VALUES (%s, 'Acme', '{USD}',"
            " 'https://127.0.0.1/hook', '', '', '', now(), now())",
            [platform],
        )
        for key, url, state in (
            (sent, "https://127.0.0.1/old", "DELIVERED"),
            (waiting, "https://127.0.0.1/hook", "PENDING"),
            (lost, None, "NO_ENDPOINT"),
        ):
            connection.execute(
                "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id,"
                " url, body, state, next_attempt_at, created_at) VALUES (%s, %s, %s, 'X', %s, %s,"
                " '{}', %s, CASE WHEN %s = 'PENDING' THEN now() END, now())",
                [key, key, platform, key, url, state, state],
            )

    migrate.upgrade(empty_url)

    with psycopg.connect(empty_url) as connection:
        [(endpoint, is_default, url)] = connection.execute(
            "SELECT id, is_default, url FROM webhook_endpoints"
        ).fetchall()
        rows = connection.execute(
            "SELECT webhook_id, endpoint_id, state FROM webhook_deliveries WHERE webhook_id = id"
        ).fetchall()
    assert (is_default, url) == (True, "https://127.0.0.1/hook")
    assert set(rows) == {
        (sent, endpoint, "DELIVERED"),
        (waiting, endpoint, "PENDING"),
        (lost, None, "NO_ENDPOINT"),
    }
    migrate.downgrade(empty_url, "0003")
    with psycopg.connect(empty_url) as connection:
        [(kept,)] = connection.execute("SELECT webhook_endpoint FROM platforms").fetchall()
        states = connection.execute("SELECT id, url, state FROM webhook_deliveries").fetchall()
    assert kept == url
    assert set(states) == {
        (sent, url, "DELIVERED"),
        (waiting, url, "PENDING"),
        (lost, None, "NO_ENDPOINT"),
    }


def test_an_account_event_in_the_outbox_is_readable_after_an_upgrade_and_a_downgrade(
    empty_url: DatabaseUrl,
) -> None:
    account, customer = new_id(), new_id()
    kept = {
        "id": f"InternalAccount:{account}",
        "customerId": f"Customer:{customer}",
        "type": "INTERNAL_FIAT",
        "status": "ACTIVE",
        "currency": "USD",
        "balance": 900,
        "held": 100,
        "owed": 0,
        "pending": 50,
        "createdAt": "2026-03-01T12:00:00.000000Z",
        "updatedAt": "2026-03-02T12:00:00.250000Z",
    }
    migrate.upgrade(empty_url, "0007")
    with psycopg.connect(empty_url) as connection:
        connection.execute(
            "INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, sequence, data,"
            " recorded_at) VALUES (%s, %s, %s, 'INTERNAL_ACCOUNT.BALANCE_UPDATED', %s, 7, %s,"
            " now())",
            [uuid.uuid4(), customer, uuid.uuid4(), account, Json(kept)],
        )

    migrate.upgrade(empty_url)

    [data] = waiting(empty_url)
    resource = accounts.wire(
        data, key=account, customer_id=customer, platform_id=new_id(), version=7
    )
    assert resource["id"] == kept["id"]
    assert resource["customerId"] == kept["customerId"]
    assert (resource["createdAt"], resource["updatedAt"]) == (kept["createdAt"], kept["updatedAt"])
    assert (resource["totalBalance"]["amount"], resource["sequence"]) == (950, 7)
    migrate.downgrade(empty_url, "0007")
    assert waiting(empty_url) == [kept]


def waiting(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return [data for (data,) in connection.execute("SELECT data FROM outbox")]


def test_every_append_only_table_is_guarded_always(database_url: DatabaseUrl) -> None:
    guarded = names(
        database_url,
        "SELECT tgrelid::regclass::text FROM pg_trigger"
        " WHERE tgname = 'append_only' AND tgenabled = 'A'",
    )

    assert guarded == {table.name for table in (*APPEND_ONLY, *UNCHANGED)}


def test_the_migrations_can_be_read_as_sql(capsys: pytest.CaptureFixture[str]) -> None:
    migrate.sql(schema="books")

    text = capsys.readouterr().out
    assert text.index('CREATE SCHEMA "books"') < text.index("CREATE TABLE")
    assert "%%" not in text
    for table in metadata.sorted_tables:
        assert f"CREATE TABLE {table.name} (" in text
    assert "ENABLE ALWAYS TRIGGER append_only" in text
    assert "UPDATE alembic_version" in text or "INSERT INTO alembic_version" in text


def test_tokens_with_limits_are_not_left_to_a_release_that_ignores_them(
    empty_url: DatabaseUrl,
) -> None:
    migrate.upgrade(empty_url)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        new_tenant(empty_url)
        connection.execute("UPDATE api_tokens SET expires_at = now()")

        with pytest.raises(Exception, match="earlier releases ignore"):
            migrate.downgrade(empty_url, "0015")
        assert connection.execute("SELECT expires_at FROM api_tokens").fetchone()

        connection.execute("DELETE FROM api_tokens")
    migrate.downgrade(empty_url, "0015")


def test_the_client_id_of_a_token_of_an_earlier_release_is_not_issued_again(
    empty_url: DatabaseUrl,
) -> None:
    migrate.upgrade(empty_url, "0149")
    new_tenant(empty_url)
    migrate.upgrade(empty_url)

    with psycopg.connect(empty_url) as connection:
        connection.execute("CREATE TEMP TABLE deleted AS TABLE api_tokens")
        connection.execute("DELETE FROM api_tokens")
        with pytest.raises(errors.InsufficientPrivilege, match="was issued before"):
            connection.execute("INSERT INTO api_tokens TABLE deleted")


def test_messages_of_earlier_releases_are_decided_until_their_deployment_is_finished(
    empty_url: DatabaseUrl,
) -> None:
    def needs_macs() -> list[tuple[bool]]:
        with psycopg.connect(empty_url) as connection:
            return connection.execute("SELECT is_required FROM inbox_macs").fetchall()

    migrate.upgrade(empty_url)
    assert needs_macs() == [(True,)], "no earlier release has used a new database"

    new_tenant(empty_url)
    migrate.downgrade(empty_url, "0016")
    migrate.upgrade(empty_url)
    assert needs_macs() == [(False,)]

    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference, body,"
            " body_hash, received_at) SELECT 0, 0, gen_random_uuid(), gen_random_uuid(),"
            " gen_random_uuid(), 'visa', '1', '{}', '', now()"
        )
        with pytest.raises(earlier_releases.UndecidedError):
            migrate.finish(empty_url)
        assert needs_macs() == [(False,)]
        connection.execute("DELETE FROM inbox")

    migrate.finish(empty_url)
    assert needs_macs() == [(True,)]


def rights_on_view(url: DatabaseUrl, name: str) -> set[str]:
    """Return who may do what to a view or to columns of it."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT a.grantee::regrole::text, a.privilege_type, NULL FROM pg_class c,"
            " aclexplode(c.relacl) a WHERE c.oid = %(view)s::regclass"
            " UNION SELECT a.grantee::regrole::text, a.privilege_type, n.attname"
            " FROM pg_attribute n, aclexplode(n.attacl) a WHERE n.attrelid = %(view)s::regclass",
            {"view": f"cardledger_api.{name}"},
        ).fetchall()
    return {" ".join(filter(None, row)) for row in rows}


def test_a_column_comes_and_goes_beneath_a_view(empty_url: DatabaseUrl) -> None:
    def shown() -> list[str]:
        with psycopg.connect(empty_url) as connection:
            names = connection.execute(
                "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
                " AND attrelid = 'cardledger_api.agents'::regclass ORDER BY attnum"
            )
            return [name for (name,) in names]

    migrate.upgrade(empty_url)
    before, rights = shown(), rights_on_view(empty_url, "agents")
    engine = create_engine("postgresql+psycopg://", connect_args=parameters(empty_url))
    with (
        engine.begin() as connection,
        Operations.context(MigrationContext.configure(connection)),
    ):
        add_to_table_and_view("agents", "ADD COLUMN colour TEXT")
    assert shown() == [*before, "colour"]
    assert rights_on_view(empty_url, "agents") == rights

    with (
        engine.begin() as connection,
        Operations.context(MigrationContext.configure(connection)),
    ):
        change_table_below_view("agents", "DROP COLUMN is_paused, DROP COLUMN colour")
    engine.dispose()

    assert shown() == [name for name in before if name != "is_paused"]
    assert rights_on_view(empty_url, "agents") == {
        right for right in rights if not right.endswith(" is_paused")
    }
    with psycopg.connect(empty_url) as login:
        [(definition, options)] = login.execute(
            "SELECT pg_get_viewdef(oid), reloptions FROM pg_class"
            " WHERE oid = 'cardledger_api.agents'::regclass"
        )
    assert "current_setting('cardledger.platform_id'" in definition
    assert options == ["check_option=local"]


def test_only_a_new_database_takes_the_rights_of_earlier_releases_at_once(
    empty_url: DatabaseUrl,
) -> None:
    def rights() -> tuple[bool, bool]:
        """Whether the API may read tables, and the role that submits insert into the inbox."""
        with psycopg.connect(empty_url) as connection:
            [found] = connection.execute(
                "SELECT has_table_privilege(%s, 'customers', 'SELECT'),"
                " has_any_column_privilege(%s, 'inbox', 'INSERT')",
                [name_in(empty_url, Role.API), name_in(empty_url, Role.SUBMIT)],
            )
            return found

    migrate.upgrade(empty_url)
    assert rights() == (False, False), "no earlier release has used a new database"

    migrate.downgrade(empty_url, "0023")
    assert rights() == (True, True), "the release before needs them"
    migrate.upgrade(empty_url)
    assert rights() == (True, True), "it may run until the deployment is finished"

    migrate.finish(empty_url)
    assert rights() == (False, False)


def test_a_release_that_writes_no_macs_may_not_use_a_database_that_requires_them(
    empty_url: DatabaseUrl,
) -> None:
    """It passed the gate, and what it accepted was acknowledged and never decided."""

    def refused() -> list[str]:
        """Return which earlier releases may not use the schema, by their newest revisions."""
        with psycopg.connect(empty_url) as connection:
            [(oldest_head,)] = connection.execute("SELECT oldest_head FROM schema_compatibility")
        return [
            head
            for head in ("0012", "0018", "0023", "0033", "0034", "0145", "0147")
            if compatibility.problem(migrate.head(), head=head, oldest_head=oldest_head)
        ]

    migrate.upgrade(empty_url)
    of_a_new_database = refused()
    migrate.downgrade(empty_url, "0023")
    migrate.upgrade(empty_url)
    before = refused()

    migrate.finish(empty_url)
    finished = refused()
    migrate.downgrade(empty_url, "0040")
    below = refused()
    migrate.upgrade(empty_url)

    assert before == []
    assert finished == of_a_new_database == ["0012", "0018", "0023", "0033", "0034", "0145"]
    # A release before 0147 may run again until the deployment is finished once more.
    assert below == refused() == ["0012", "0018", "0023", "0033"]


_BOOKED_OF_A_FILE: Final = (
    "INSERT INTO settlement_bookings (platform_id, file_id, network, amount, posted_for, kind,"
    " currency, from_kind, to_kind) SELECT x, x, 'VISA', 1, now(), 'INTERCHANGE', 'USD',"
    " 'NETWORK_SETTLEMENT', 'INTERCHANGE' FROM gen_random_uuid() AS x"
)
_MOVED_MONEY: Final = {
    ("head", "0049", "suspense_items"): (
        "INSERT INTO suspense_items (id, customer_id, platform_id, card_id, type, currency, amount,"
        " cause, recorded_at, posted_on) SELECT x, x, x, x, 'CLEARING', 'USD', 1, 'REJECTED',"
        " now(), now() FROM gen_random_uuid() AS x"
    ),
    ("head", "0060", "adjustments"): (
        "INSERT INTO adjustments (id, kind, platform_id, currency, amount, from_kind, to_kind,"
        " reason, state, decided_by, decided_at, booked_at) SELECT x, 'MOVE', x, 'USD', 1,"
        " 'SETTLEMENT_BANK', 'NETWORK_FEES', 'fees', 'BOOKED', 'ben', now(), now()"
        " FROM gen_random_uuid() AS x"
    ),
    ("head", "0098", "settlement_bookings"): (
        "INSERT INTO settlement_bookings (platform_id, statement_id, line, amount, posted_for,"
        " kind, currency, from_kind, to_kind) SELECT x, x, 2, 1, now(), 'BANK_LINE', 'USD',"
        " 'SETTLEMENT_BANK', 'NETWORK_SETTLEMENT' FROM gen_random_uuid() AS x"
    ),
    ("head", "0096", "settlement_bookings"): _BOOKED_OF_A_FILE,
    ("0096", "0094", "settlement_bookings"): _BOOKED_OF_A_FILE,
}


@pytest.mark.parametrize(("at", "before", "table"), _MOVED_MONEY)
def test_what_has_moved_money_is_not_removed(
    empty_url: DatabaseUrl, at: str, before: str, table: str
) -> None:
    migrate.upgrade(empty_url, at)
    statements = f"ALTER TABLE {table} DISABLE TRIGGER USER; {_MOVED_MONEY[at, before, table]}"
    with psycopg.connect(empty_url) as connection:
        connection.execute(statements.encode())

    with pytest.raises(DatabaseError, match="have moved money: their entries stay"):
        migrate.downgrade(empty_url, before)

    assert migrate.current(empty_url) == f"{int(before) + 1:04}"
    with psycopg.connect(empty_url) as connection:
        connection.execute(f"TRUNCATE {table}".encode())
