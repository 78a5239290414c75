"""The roles of the database: what each may do to every table, asked of PostgreSQL itself."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import LargeBinary, Text

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import database_findings, databases, role_findings
from cardledger.install.credentials import Credentials
from cardledger.install.findings import FAIL, OK, WARN
from cardledger.ledger.projections import transfers
from cardledger.ledger.quotes import records as quotes
from cardledger.schema import migrate, roles
from cardledger.schema.platform_views import VIEWS, schema_beside
from cardledger.schema.roles import API_ON_TABLES, SECRETS, WRITERS, Role
from cardledger.schema.tables import APPEND_ONLY, metadata
from tests.databases import as_platform, as_role, fresh_database
from tests.world import Cardholder, World, open_world

BY_MIGRATIONS: Final = {"alembic_version"}  # Alembic's own, which is not in `schema.tables`.
TABLES: Final = sorted({table.name for table in metadata.sorted_tables} | BY_MIGRATIONS)
BOOKS: Final = (
    "card_transaction_events",
    "card_transactions",
    "deposits",
    "duplicates",
    "entries",
    "outcomes",
    "parked",
    "pending_pulls",
    "settlement_details",
    "suspense_items",
)
"""Balances are columns of `internal_accounts`, which has tests of its own."""
AMOUNTS: Final = ("balance", "held", "owed", "pending", "version")
HASHES_OF_CONTENT: Final = {
    ("authentication_passkeys", "challenge"),
    ("authentication_passkeys", "credential"),
    ("authentication_passkeys", "credential_id"),
    ("document_contents", "file_sha256"),
    ("external_accounts", "fingerprint"),
    ("forged_messages", "body_hash"),
    ("forged_messages", "mac"),
    ("idempotency_keys", "request_hash"),
    ("inbox", "body_hash"),
    ("inbox", "mac"),
    ("outcomes", "body_hash"),
    ("quotes", "mac"),
    ("rejections", "mac"),
    ("server_keys", "header"),
    ("transfers", "mac"),
}
"""Columns of bytes that are no secrets."""
NAMED_SECRETS: Final = {(table, name) for table, names in SECRETS.items() for name in names}
NAMED_LIKE_SECRETS: Final = re.compile(
    "challenge|code|cookie|credential|digest|hash|invit|key|link|nonce|otp|password|secret|session"
    "|signature|ticket|token|uri|url"
)
TEXTS_WITHOUT_A_RIGHT: Final = {
    ("authentication_passkeys", "challenge_purpose"),
    ("authentication_passkeys", "challenge_subject"),
    ("bank_statements", "digest"),
    ("card_transactions", "issuer_transaction_token"),
    ("currencies", "code"),
    ("file_refusals", "code"),
    ("idempotency_keys", "key"),
    ("invitations", "invitee_uma"),
    ("invitations", "inviter_uma"),
    ("kyc_links", "redirect_uri"),
    ("network_files", "digest"),
    ("network_lines", "token"),
    ("parked", "issuer_transaction_token"),
    ("pending_pulls", "issuer_transaction_token"),
    ("platforms", "public_key"),
    ("webhook_endpoints", "url"),
    ("webhook_signing_keys", "public_key"),
}
"""Columns of text with such names that admit to nothing."""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    """A cardholder with an outcome, events and entries."""
    made = world.cardholder(world.platform(), 5_000)
    world.process(world.engine(), [(made, world.authorization(made, "T1", 1_000))])
    return made


@pytest.fixture(scope="module")
def logins(world: World, cardholder: Cardholder) -> Iterator[Mapping[Role, psycopg.Connection]]:  # noqa: ARG001 - the scene
    """A connection of each role, as its processes use one."""
    found = {role: psycopg.connect(as_role(world.app_url, role)) for role in Role}
    found[Role.API].close()
    found[Role.API] = as_platform(world.app_url)
    yield found
    for connection in found.values():
        connection.close()


Logins = Mapping[Role, psycopg.Connection]


@pytest.fixture(scope="module")
def api_on_tables(world: World, cardholder: Cardholder) -> Iterator[psycopg.Connection]:  # noqa: ARG001 - the scene
    """A connection of the API's role to the tables, which its requests reach by views."""
    with psycopg.connect(as_role(world.app_url, Role.API)) as connection:
        yield connection


def refused(connection: psycopg.Connection, statement: str, *values: object) -> bool:
    """Return whether PostgreSQL refuses `statement` for want of a right; nothing is changed.

    Append-only triggers refuse with the same code, but not before the right is there.
    """
    with connection.transaction(force_rollback=True):
        try:
            connection.execute(statement.encode(), values)
        except errors.InsufficientPrivilege as error:
            return "permission denied" in str(error)
        except errors.WrongObjectType:  # TRUNCATE of a view.
            return True
        except psycopg.Error:
            return False
    return False


def columns(table: str) -> list[str]:
    if table in BY_MIGRATIONS:
        return ["version_num"]
    return [column.name for column in metadata.tables[table].columns]


_MAY: Final = """
    SELECT concat(
        CASE WHEN has_any_column_privilege(t.name, 'INSERT') THEN 'a' END,
        CASE WHEN has_table_privilege(t.name, 'DELETE') THEN 'd' END,
        CASE WHEN has_any_column_privilege(t.name, 'UPDATE') THEN 'w' END,
        CASE WHEN has_table_privilege(t.name, 'UPDATE') THEN ' whole' END,
        CASE WHEN has_table_privilege(t.name, 'TRUNCATE, REFERENCES, TRIGGER') THEN ' more' END)
    FROM (SELECT %s::text) AS t (name)
"""


def may(connection: psycopg.Connection, table: str) -> str:
    """Return what the login may write to `table`: letters as in `roles.WRITERS`."""
    row = connection.execute(_MAY, [table]).fetchone()
    assert row is not None
    return str(row[0])


# --- every table ----------------------------------------------------------------------------------


def test_every_table_is_classified() -> None:
    assert sorted(WRITERS) == TABLES


@pytest.mark.parametrize("table", TABLES)
def test_a_role_writes_the_tables_of_its_work_and_no_other(logins: Logins, table: str) -> None:
    found = {role: may(logins[role], table) for role in roles.NEW}

    assert found == {role: WRITERS[table].get(role, "") for role in roles.NEW}


@pytest.mark.parametrize(
    "function",
    [
        "count_deleted_rows",
        "count_rows",
        "guard_adjustment",
        "prepare_adjustment",
        "record_acceptance",
        "refuse_loss",
    ],
)
def test_no_role_has_the_trigger_of_a_table_write_for_a_table_of_its_own(
    logins: Logins, function: str
) -> None:
    refusals = []
    for role in Role:
        connection = logins[role]
        with connection.transaction(force_rollback=True):
            connection.execute("CREATE TEMPORARY TABLE own (platform_id uuid, customer_id uuid)")
            refusals.append(
                refused(
                    connection,
                    "CREATE TRIGGER mine AFTER INSERT ON own REFERENCING NEW TABLE AS written"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION cardledger.{function}()",
                )
            )

    assert all(refusals), dict(zip(Role, refusals, strict=True))


@pytest.mark.parametrize("table", TABLES)
def test_the_api_writes_to_tables_only_what_is_not_of_one_platform(
    api_on_tables: psycopg.Connection, table: str
) -> None:
    assert may(api_on_tables, table) == roles.on_table(table, Role.API)


@pytest.mark.parametrize("table", VIEWS)
def test_the_api_reads_of_tables_with_a_view_what_it_is_for(
    api_on_tables: psycopg.Connection, table: str
) -> None:
    rights = API_ON_TABLES.get(table, ())
    whole = "SELECT" in rights
    named = " ".join(right for right in rights if right.startswith("SELECT ("))

    readable = [
        name for name in columns(table) if not refused(api_on_tables, f"SELECT {name} FROM {table}")
    ]

    assert readable == [
        name for name in columns(table) if whole or re.search(rf"\b{name}\b", named)
    ]


def test_the_api_reads_no_other_table_but_what_is_of_the_installation(
    api_on_tables: psycopg.Connection,
) -> None:
    readable = [
        table
        for table in TABLES
        if table not in VIEWS and not refused(api_on_tables, f"SELECT FROM {table}")
    ]

    assert readable == [
        "alembic_version",
        "book_verification_runs",
        "book_verifications",
        "console_tickets",
        "enqueued_events",
        "enqueued_events_progress",
        "exchange_rates",
        "forged_messages",
        "inbox",
        "inbox_macs",
        "inbox_shards",
        "schema_compatibility",
        "server_keys",
        "stalled_queues",
        "trial_balance_progress",
    ]


@pytest.mark.parametrize("role", [role for role in roles.NEW if role is not Role.API])
@pytest.mark.parametrize("table", VIEWS)
def test_the_views_are_for_the_api(world: World, logins: Logins, table: str, role: Role) -> None:
    view = f"{schema_beside(DatabaseUrl(world.url).schema)}.{table}"

    assert refused(logins[role], f"SELECT FROM {view}")


@pytest.mark.parametrize("role", [role for role in roles.NEW if role is not Role.WORKER])
@pytest.mark.parametrize("table", BOOKS)
def test_only_the_worker_can_write_the_books(
    logins: Logins, api_on_tables: psycopg.Connection, table: str, role: Role
) -> None:
    deeds = [f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}", f"TRUNCATE {table}"]
    deeds += [f"UPDATE {table} SET {name} = DEFAULT" for name in columns(table)]

    for deed in deeds:
        assert refused(logins[role], deed), deed
        assert refused(api_on_tables, deed), deed
    assert not refused(logins[Role.WORKER], deeds[0])


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_api_can_neither_open_an_account_with_money_nor_change_a_balance(
    logins: Logins, amount: str
) -> None:
    api = logins[Role.API]

    assert refused(api, f"UPDATE internal_accounts SET {amount} = 1")
    assert refused(
        api,
        f"INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
        f" {amount}, created_at, updated_at) SELECT gen_random_uuid(), customer_id, platform_id,"
        f" currency, type, status, 1, now(), now() FROM internal_accounts LIMIT 1",
    )
    assert refused(api, "DELETE FROM internal_accounts")


@pytest.mark.parametrize("amount", AMOUNTS)
def test_the_api_cannot_overwrite_a_balance_by_an_upsert(logins: Logins, amount: str) -> None:
    assert refused(
        logins[Role.API],
        "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
        " created_at, updated_at) SELECT id, customer_id, platform_id, currency, type, status,"
        " now(), now() FROM internal_accounts LIMIT 1"
        f" ON CONFLICT (id, customer_id) DO UPDATE SET {amount} = 1",
    )


@pytest.mark.parametrize("status", ["COMPLETED", "PROCESSING"])
def test_the_api_cannot_settle_a_transfer(logins: Logins, status: str) -> None:
    assert refused(
        logins[Role.API], f"UPDATE transfers SET status = '{status}', settled_at = now()"
    )
    assert refused(logins[Role.API], "UPDATE transfers SET amount = amount + 1")


@pytest.mark.parametrize(
    ("table", "terms"), [("quotes", quotes.SIGNED), ("transfers", transfers.SIGNED)]
)
def test_no_role_changes_what_is_signed_of_a_payment(
    logins: Logins, api_on_tables: psycopg.Connection, table: str, terms: tuple[str, ...]
) -> None:
    used = [api_on_tables, *(logins[role] for role in roles.NEW)]

    for name in (*terms, "mac"):
        deed = f"UPDATE {table} SET {name} = {name}"
        assert all(refused(connection, deed) for connection in used), name
    assert not refused(logins[Role.API], f"INSERT INTO {table} (mac) VALUES ('')")
    # What only the engine can write says that it has begun with a payment.
    for name in {"sequence", "due_at", "settled_at"} & set(columns(table)):
        assert refused(logins[Role.API], f"INSERT INTO {table} ({name}) VALUES (NULL)"), name
        assert refused(logins[Role.API], f"UPDATE {table} SET {name} = {name}"), name


@pytest.mark.parametrize("table", [table.name for table in APPEND_ONLY])
def test_no_role_changes_history(
    logins: Logins, api_on_tables: psycopg.Connection, table: str
) -> None:
    name = columns(table)[0]
    deeds = (f"UPDATE {table} SET {name} = {name}", f"DELETE FROM {table}", f"TRUNCATE {table}")

    used = [api_on_tables, *(logins[role] for role in roles.NEW)]
    assert all(refused(connection, deed) for connection in used for deed in deeds)


def test_the_sender_of_webhooks_reads_no_account_and_writes_no_message(logins: Logins) -> None:
    webhooks = logins[Role.WEBHOOKS]

    for table in ("internal_accounts", "entries", "inbox", "api_tokens", "cards"):
        assert refused(webhooks, f"SELECT FROM {table}"), table
    assert refused(webhooks, "INSERT INTO inbox DEFAULT VALUES")


def test_a_worker_reads_no_personal_data_and_no_secret(logins: Logins) -> None:
    worker = logins[Role.WORKER]

    assert refused(worker, "SELECT full_name FROM customers")
    for table in ("external_accounts", "beneficial_owners", "api_tokens", "platforms"):
        assert refused(worker, f"SELECT id FROM {table}"), table


def test_private_keys_are_for_the_sender_of_webhooks_only(logins: Logins) -> None:
    for deed in (
        "SELECT signing_key FROM platforms",
        "SELECT private_key FROM webhook_signing_keys",
    ):
        readers = [role for role in roles.NEW if not refused(logins[role], deed)]
        assert readers == [Role.WEBHOOKS], deed


# --- the reader, and the role that submits --------------------------------------------------------


def columns_of(kind: type[LargeBinary | Text]) -> set[tuple[str, str]]:
    return {
        (table.name, column.name)
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, kind)
    }


def test_every_column_of_bytes_is_a_secret_or_known_to_be_none() -> None:
    found = columns_of(LargeBinary)

    assert found == (found & NAMED_SECRETS) | HASHES_OF_CONTENT


def test_every_text_that_is_named_like_a_secret_is_one_or_known_to_be_none() -> None:
    texts = columns_of(Text)
    found = {(table, name) for table, name in texts if NAMED_LIKE_SECRETS.search(name)}

    assert found == (texts & NAMED_SECRETS) | TEXTS_WITHOUT_A_RIGHT
    assert columns_of(LargeBinary) | texts >= NAMED_SECRETS


@pytest.mark.parametrize("table", TABLES)
def test_the_reader_reads_everything_but_secrets(logins: Logins, table: str) -> None:
    unreadable = [
        name
        for name in columns(table)
        if refused(logins[Role.READER], f"SELECT {name} FROM {table}")
    ]

    assert sorted(unreadable) == sorted(SECRETS.get(table, ()))


def test_the_reader_reads_the_journal(logins: Logins) -> None:
    assert logins[Role.READER].execute("SELECT event FROM journal").fetchone() is not None


def test_the_role_that_submits_reads_outcomes_and_nothing_else(logins: Logins) -> None:
    readable = [
        table
        for table in [*TABLES, "journal"]
        if not all(
            refused(logins[Role.SUBMIT], f"SELECT {name} FROM {table}")
            for name in (columns(table) if table != "journal" else ["event"])
        )
    ]

    assert readable == ["outcomes"]


# --- who the roles are ----------------------------------------------------------------------------


def test_no_role_owns_anything_or_has_a_special_right(logins: Logins) -> None:
    for role in Role:
        owned = logins[role].execute(
            "SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
            " WHERE r.rolname = current_user"
        )
        special = logins[role].execute(
            "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM"
            " pg_roles WHERE rolname = current_user"
        )
        assert owned.fetchone() == (0,)
        assert special.fetchone() == (False,) * 5


def test_the_public_has_no_right(world: World) -> None:
    assert world.rows(
        "SELECT relname, acl.privilege_type FROM pg_class c, aclexplode(c.relacl) acl"
        " WHERE c.relnamespace = current_schema()::regnamespace AND acl.grantee = 0"
        " UNION SELECT relname, acl.privilege_type FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) acl"
        " WHERE c.relnamespace = current_schema()::regnamespace AND acl.grantee = 0"
        " UNION SELECT nspname, acl.privilege_type FROM pg_namespace, aclexplode(nspacl) acl"
        " WHERE nspname = current_schema() AND acl.grantee = 0"
        " UNION SELECT 'default', acl.privilege_type FROM pg_default_acl, aclexplode(defaclacl) acl"
    ) == []  # fmt: skip


@pytest.fixture
def server_login(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """The login of a role that owns a database and may not create roles."""
    with fresh_database(postgres_url) as url:
        owner = sql.Identifier(f"{url.database}_owner")
        database = sql.Identifier(url.database)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'app'").format(owner))
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, owner))
        yield url.with_user(f"{url.database}_owner", "app")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(owner))
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(database))
            connection.execute(sql.SQL("DROP ROLE {}").format(owner))


def test_an_owner_that_may_not_create_roles_is_told_which_are_missing(
    postgres_url: DatabaseUrl, server_login: DatabaseUrl
) -> None:
    name = server_login.database
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(f"{name}_app")))
    try:
        with pytest.raises(CommandError) as refusal:
            databases.upgrade(server_login)
        assert f"may not create role {name}_api: give it CREATEROLE" in str(refusal.value)
        before = migrate.current(server_login)
        assert before not in {None, migrate.head()}
        added = (*roles.NEW, Role.FINANCE, *roles.Right)
        with created(postgres_url, [f"{name}_{role}" for role in added]):
            databases.upgrade(server_login)
            assert migrate.current(server_login) == migrate.head()
            migrate.downgrade(server_login, str(before))
    finally:
        with psycopg.connect(server_login, autocommit=True) as connection:
            connection.execute("DROP SCHEMA cardledger CASCADE")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(f"{name}_app")))


@contextmanager
def created(url: DatabaseUrl, names: list[str]) -> Iterator[None]:
    """Create roles, as an administrator does for an owner who may not, and drop them."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        yield
        for name in names:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


# --- what `doctor` says -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database whose roles are named after it; copies of the template's are not."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url)
        with psycopg.connect(url, autocommit=True) as connection:
            for role in Role:
                name = sql.Identifier(f"{url.database}_{role}")
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD 'app'").format(name))
        yield url
        migrate.downgrade(url, "base")


def test_processes_share_the_login_of_earlier_releases_until_each_has_its_own(
    installed: DatabaseUrl, tmp_path: Path
) -> None:
    kept = Credentials(path=tmp_path / "credentials.json")
    app_url = installed.with_user(f"{installed.database}_app", "app")
    given = dict.fromkeys(roles.PROCESSES, "app")
    api = sql.Identifier(f"{installed.database}_api")
    with psycopg.connect(installed, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(api))
        shared = databases.process_logins(app_url, app_url, kept, given)
        with pytest.raises(CommandError, match="cannot log in"):
            databases.process_logins(installed, app_url, kept, given)
        connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(api))

    own = databases.process_logins(app_url, app_url, kept, given)

    assert set(shared.values()) == {app_url}
    assert {role: url.role for role, url in own.items()} == {
        role: f"{installed.database}_{role}" for role in roles.PROCESSES
    }


def findings(url: DatabaseUrl, *, for_production: bool = False) -> dict[str, tuple[str, str]]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = role_findings.examine(connection, is_running=False, for_production=for_production)
        return {finding.name: (finding.state, finding.detail) for finding in found}


def test_a_database_is_examined_with_few_statements(
    installed: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[object] = []
    execute = psycopg.Cursor.execute

    def noted(cursor: psycopg.Cursor[Any], query: Any, *values: Any, **named: Any) -> Any:  # noqa: ANN401
        executed.append(query)
        return execute(cursor, query, *values, **named)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    url = installed.with_user(f"{installed.database}_api", "app")
    with psycopg.connect(url, autocommit=True) as connection:
        states = {
            finding.name: finding.state
            for finding in database_findings.of_schema(connection, is_running=False)
        }

    assert {states["application role"], states["process roles"], states["append-only"]} == {OK}
    assert len(executed) <= 20


def test_each_right_of_the_application_role_to_change_facts_is_named(
    installed: DatabaseUrl,
) -> None:
    role, tables = f"{installed.database}_app", [table.name for table in APPEND_ONLY[:2]]
    with psycopg.connect(installed) as connection:
        connection.execute(f"GRANT DELETE, UPDATE ON {', '.join(tables)} TO {role}".encode())
        found = {
            finding.name: finding
            for finding in role_findings.examine(connection, is_running=False, for_production=False)
        }
        connection.rollback()

    finding = found["application role"]
    rights = [f"{right} on {table}" for table in tables for right in ("UPDATE", "DELETE")]
    assert (finding.state, finding.detail) == (FAIL, f"{role} may {', '.join(rights)}")
    assert f"ON cardledger.{tables[0]} FROM {role}" in str(finding.fix)


@pytest.mark.parametrize("role", roles.PROCESSES)
def test_a_process_with_its_own_role_is_as_it_should_be(installed: DatabaseUrl, role: Role) -> None:
    url = installed.with_user(f"{installed.database}_{role}", "app")

    states = {name: state for name, (state, _) in findings(url, for_production=True).items()}

    assert states == {"application role": OK, "process roles": OK, "role in use": OK}


@pytest.mark.parametrize(
    ("login", "reason"), [("app", "may do what all processes do"), (None, "owns the tables")]
)
def test_a_login_with_more_rights_than_a_process_needs_is_a_warning_and_fails_for_production(
    installed: DatabaseUrl, login: str | None, reason: str
) -> None:
    url = installed.with_user(f"{installed.database}_{login}", "app") if login else installed

    state, detail = findings(url)["role in use"]
    strictly, _ = findings(url, for_production=True)["role in use"]

    assert (state, strictly) == (WARN, FAIL)
    assert reason in detail


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        ("GRANT UPDATE (balance) ON internal_accounts TO {0}_reader", "may UPDATE on internal_"),
        ("GRANT INSERT ON entries TO {0}_api", "may INSERT on entries"),
        ("GRANT INSERT ON inbox TO {0}_submit", "may INSERT on inbox"),
        ("GRANT DELETE ON customers TO {0}_api", "may DELETE on customers"),
        ("GRANT DELETE ON cardledger_api.cards TO {0}_api", "may DELETE on cardledger_api.cards"),
        ("GRANT UPDATE (id) ON cardledger_api.cards TO {0}_worker", "may UPDATE on cardledger_api"),
        ("GRANT UPDATE ON agents TO {0}_api", "every column of agents"),
        ("GRANT {0}_worker TO {0}_api", "is a member of"),
        ("ALTER ROLE {0}_submit BYPASSRLS", "more rights than it needs"),
    ],
)
def test_a_role_with_a_right_that_is_not_its_work_is_found(
    installed: DatabaseUrl, grant: str, reason: str
) -> None:
    with psycopg.connect(installed) as connection:
        connection.execute(grant.format(f"{installed.database}").encode())
        found = {
            finding.name: finding
            for finding in role_findings.examine(connection, is_running=False, for_production=False)
        }
        connection.rollback()

    assert found["process roles"].state == FAIL
    assert reason in found["process roles"].detail
