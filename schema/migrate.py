"""Bringing a database to a version of the schema, up or down."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, make_url, text

from cardledger.schema import location
from cardledger.schema.tables import metadata

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x6361726C  # Any number: two migrations at once wait for each other on it.


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database at `url` up to `revision`; all or nothing.

    The tables are in the PostgreSQL schema that `url` names, and so is the table of the version.
    An installation of a release that kept its tables in `public` is moved there.
    The role in `url` must be allowed to create a schema, tables and roles.
    """
    with _connection(url) as connection:
        schema = location.name_in(url)
        _create_schema(connection, schema)
        _move_installation(connection, schema)
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Bring the database at `url` down to `revision` (`base`: nothing left); all or nothing."""
    if current(url) is None:
        return
    with _connection(url) as connection:
        schema = location.name_in(url)
        _create_schema(connection, schema)
        _move_installation(connection, schema)
        command.downgrade(_config(connection), revision)


def sql(revision: str = "head", *, schema: str = location.DEFAULT) -> None:
    """Print the statements that lead from nothing to `revision`, for a reader to check."""
    config = _config(None)
    config.attributes["schema"] = location.checked(schema)
    command.upgrade(config, revision, sql=True)


def current(url: str) -> str | None:
    """Return the revision of the database at `url`; None when it has none."""
    engine = create_engine(_driver(url), poolclass=NullPool)
    with engine.connect() as connection:
        schema = "public" if _is_in_public(connection, location.name_in(url)) else None
        return MigrationContext.configure(
            connection, opts={"version_table_schema": schema}
        ).get_current_revision()


def head() -> str:
    """Return the newest revision that this release knows."""
    newest = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
    assert newest is not None, "there is at least one migration"
    return newest


def app_role(url: str) -> str:
    """Return the name of the role that the application uses in the database at `url`."""
    return f"{make_url(url).database}_app"


_IS_OURS: Final = """
    SELECT coalesce(shobj_description(oid, 'pg_authid') = 'cardledger', false)
    FROM pg_roles WHERE rolname = :role
"""


def owns_app_role(url: str) -> bool:
    """Return whether a migration created the application role of the database at `url`."""
    engine = create_engine(_driver(url), poolclass=NullPool)
    with engine.connect() as connection:
        return bool(connection.execute(text(_IS_OURS), {"role": app_role(url)}).scalar())


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = create_engine(_driver(url), poolclass=NullPool)
    with engine.begin() as connection:
        # A migration that waits for a lock makes everybody else wait behind it.
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


# --- the PostgreSQL schema ------------------------------------------------------------------------

_PUBLIC: Final = "public"
_MARKS: Final = ("alembic_version", "card_transaction_events", "inbox_shards")

_SCHEMA_EXISTS: Final = "SELECT FROM pg_namespace WHERE nspname = :name"

_EXIST: Final = """
    SELECT count(*) FROM unnest(CAST(:names AS text[])) AS name
    WHERE to_regclass(quote_ident(:schema) || '.' || quote_ident(name)) IS NOT NULL
"""

_RELATIONS: Final = """
    SELECT c.relname, c.relkind = 'v' FROM pg_class c
    JOIN pg_class mark ON mark.oid = 'public.inbox_shards'::regclass AND mark.relowner = c.relowner
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
        AND c.relname = ANY(:names)
"""

_TRIGGER_FUNCTIONS: Final = """
    SELECT DISTINCT p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND p.pronamespace = 'public'::regnamespace
        AND t.tgrelid IN (SELECT oid FROM pg_class
                          WHERE relnamespace = 'public'::regnamespace AND relname = ANY(:names))
"""

_GRANTEES: Final = """
    SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC')
    FROM pg_class c, aclexplode(c.relacl) acl LEFT JOIN pg_roles r ON r.oid = acl.grantee
    WHERE c.relnamespace = CAST(:schema AS regnamespace) AND acl.grantee <> c.relowner
"""


def _create_schema(connection: Connection, schema: str) -> None:
    # IF NOT EXISTS alone would ask for the right to create one even where one exists.
    if connection.execute(text(_SCHEMA_EXISTS), {"name": schema}).first() is None:
        connection.execute(text(f'CREATE SCHEMA "{location.checked(schema)}"'))


def _is_in_public(connection: Connection, schema: str) -> bool:
    """Return whether the tables of an installation are in `public` and none are in `schema`."""

    def count(names: Sequence[str], where: str) -> int:
        there = connection.execute(text(_EXIST), {"names": list(names), "schema": where})
        return int(there.scalar_one())

    if schema == _PUBLIC or count(_MARKS[:1], schema) or count(_MARKS, _PUBLIC) < len(_MARKS):
        return False
    # A version table of the user's own has other revisions.
    known = {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}
    version = connection.execute(text("SELECT version_num FROM public.alembic_version")).scalar()
    return version in known


def _move_installation(connection: Connection, schema: str) -> None:
    """Move the tables of an older release from `public` to `schema`, with all that is theirs.

    Only what has a name of ours and the owner of our tables: a database may be shared.
    """
    if not _is_in_public(connection, schema):
        return
    quoted = f'"{location.checked(schema)}"'  # A keyword, such as user, is a name too.
    names = [*(table.name for table in metadata.sorted_tables), *_MARKS, "journal"]
    functions = connection.execute(text(_TRIGGER_FUNCTIONS), {"names": names}).scalars().all()
    for relation, is_view in connection.execute(text(_RELATIONS), {"names": names}).all():
        kind = "VIEW" if is_view else "TABLE"
        connection.execute(text(f'ALTER {kind} public."{relation}" SET SCHEMA {quoted}'))
    for function in functions:
        connection.execute(text(f'ALTER FUNCTION public."{function}"() SET SCHEMA {quoted}'))
    # Whichever role may read a table must be able to reach it: the application, reporting roles.
    grantees = connection.execute(text(_GRANTEES), {"schema": quoted}).scalars().all()
    for grantee in grantees:
        connection.execute(text(f"GRANT USAGE ON SCHEMA {quoted} TO {grantee}"))


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _driver(url: str) -> str:
    driver = make_url(location.with_default(url)).set(drivername="postgresql+psycopg")
    return driver.render_as_string(hide_password=False)
