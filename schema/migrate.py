"""Migrate a database to a revision of the schema, up or down, while other sessions use it.

Each revision is a database transaction of its own, so whatever interrupts a migration leaves a
complete revision, and the next run goes on from there. A statement that waits for a lock makes
every later request for that lock wait, so it waits briefly and its revision is tried again after a
pause.
Source: docs/decisions/0038-deploy-without-a-stop.md
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from cardledger.schema import (
    compatibility,
    connections,
    earlier_releases,
    finance,
    location,
    platform_views,
    relations,
    roles,
)
from cardledger.schema.roles import Role

GIVE_UP_AFTER_S: Final = 60.0
"""How long a revision is tried by default while other sessions hold locks on its tables."""

Progress = Callable[[str], None]

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 0x6361726C  # Any number: one migration of a database at a time holds it.
_TURN_PAUSE_S: Final = 0.2

# Live work waits 250 ms for a lock: a migration gives up before the sessions that queue behind it.
_LOCK_TIMEOUT_MS: Final = 200
# PostgreSQL ends an autovacuum for a session that has waited for `deadlock_timeout`, one second.
_AUTOVACUUM_LOCK_TIMEOUT_MS: Final = 1_500
_RETRY_PAUSE_S: Final = 1.0  # Meanwhile the work that queued behind the attempt is done.


class BusyError(Exception):
    """Another session kept a lock that the migration needs; the revision was rolled back.

    Run the migration again. Its text names the sessions that hold locks.
    """


def ignore(_line: str) -> None:
    """Discard a line of progress."""


def upgrade(
    url: str,
    revision: str = "head",
    *,
    give_up_after_s: float = GIVE_UP_AFTER_S,
    progress: Progress = ignore,
) -> None:
    """Bring the database at `url` up to `revision`, one revision after the other.

    `progress` is called with a line for each step.

    The tables are in the PostgreSQL schema that `url` names, and so is the table of the version.
    An installation of a release that kept its tables in `public` is moved there.
    The role in `url` must be allowed to create a schema, tables and roles.
    Raises: BusyError; the revisions before are kept.
    """
    schema = location.name_in(url)
    with _turn(url, give_up_after_s, progress) as connection:
        was = _revision(connection, schema)
        run = _Run(connection, schema, give_up_after_s, progress)
        run.repeat(lambda: command.upgrade(run.config, revision))
        if was is None and _revision(connection, schema) == head():
            earlier_releases.refuse(connection, url)  # None has used this database.
            connection.commit()


def downgrade(
    url: str,
    revision: str,
    *,
    give_up_after_s: float = GIVE_UP_AFTER_S,
    progress: Progress = ignore,
) -> None:
    """Bring the database at `url` down to `revision` (`base`: nothing left), one after the other.

    Raises: BusyError; the revisions that are removed already stay removed.
    """
    if current(url) is None:
        return
    schema = location.name_in(url)
    with _turn(url, give_up_after_s, progress) as connection:
        run = _Run(connection, schema, give_up_after_s, progress)
        run.repeat(lambda: command.downgrade(run.config, revision))


def finish(url: str) -> None:
    """Take what only earlier releases need, none of which runs any more.

    Messages without a MAC are refused, and so are quotes and payments; the API's role reaches the
    rows of platforms by views, and the role that submits enqueues events by a function. A release
    that does not work so may not use the schema any more.
    Raises: UndecidedError while messages, payments or collections without a MAC wait.
    """
    with _engine(url).begin() as connection:
        earlier_releases.refuse(connection, url)
        earlier_releases.require_macs(connection)


def sql(revision: str = "head", *, schema: str = location.DEFAULT) -> None:
    """Print the statements that lead from nothing to `revision`, for a reader to check."""
    config = _config(None)
    config.attributes["schema"] = location.checked(schema)
    command.upgrade(config, revision, sql=True)


def current(url: str) -> str | None:
    """Return the revision of the database at `url`; None when it has none."""
    with _engine(url).connect() as connection:
        return _revision(connection, location.name_in(url))


def problem(url: str) -> str | None:
    """Return why this release cannot use the schema at `url`, and what to do; None when it can."""
    with _engine(url).connect() as connection:
        revision, oldest_head = _revision(connection, location.name_in(url)), None
        if connection.execute(text(_SAYS_WHO_MAY_USE_IT)).scalar():
            oldest_head = connection.execute(text(_OLDEST_HEAD)).scalar()
        return compatibility.problem(revision, head=head(), oldest_head=oldest_head)


def head() -> str:
    """Return the newest revision that this release knows."""
    newest = revisions().get_current_head()
    assert newest is not None, "there is at least one migration"
    return newest


@cache
def revisions() -> ScriptDirectory:
    """Return the revisions that this release knows, each of which is a module to execute."""
    return ScriptDirectory(str(_MIGRATIONS))


def app_role(url: str) -> str:
    """Return the name of the role of all processes of earlier releases in the database at `url`."""
    return roles.name_in(url, Role.APP)


_IS_OURS: Final = """
    SELECT coalesce(shobj_description(oid, 'pg_authid') = 'cardledger', false)
    FROM pg_roles WHERE rolname = :role
"""


def owns_role(url: str, role: Role) -> bool:
    """Return whether a migration created `role` of the database at `url`."""
    with _engine(url).connect() as connection:
        named = {"role": roles.name_in(url, role)}
        return bool(connection.execute(text(_IS_OURS), named).scalar())


# --- one step after the other ---------------------------------------------------------------------


class _Run:
    """A migration: repeated while locks are in the way, as long as there is progress."""

    def __init__(
        self, connection: Connection, schema: str, give_up_after_s: float, progress: Progress
    ) -> None:
        self.config: Final = _config(connection)
        self.config.attributes |= {
            "on_step": self._report,
            "progress": progress,
            "give_up_after_s": give_up_after_s,
        }
        self._connection: Final = connection
        self._schema: Final = schema
        self._give_up_after_s: Final = give_up_after_s
        self._progress: Final = progress
        self._began_at = time.monotonic()  # The present revision.

    def repeat(self, migration: Callable[[], None]) -> None:
        """Call `migration`, which goes on where it stopped, until it comes to its end.

        Raises: BusyError when one revision has not succeeded for `give_up_after_s`.
        """
        lock_timeout_ms = _LOCK_TIMEOUT_MS
        while True:
            try:
                self._prepare(lock_timeout_ms)
                migration()
            except DBAPIError as error:
                if not isinstance(error.orig, _LOCKED):
                    raise
                self._connection.rollback()
                holders = _lock_holders(self._connection, self._schema, lock_timeout_ms)
                waited_s = time.monotonic() - self._began_at
                if waited_s + _RETRY_PAUSE_S > self._give_up_after_s:
                    raise BusyError(
                        f"tables are in use by {_listed(holders)}; gave up after {waited_s:.1f} s"
                    ) from error
                self._progress(f"tables are in use by {_listed(holders)}; trying again")
                is_autovacuum = {holder.is_autovacuum for holder in holders} == {True}
                lock_timeout_ms = _AUTOVACUUM_LOCK_TIMEOUT_MS if is_autovacuum else _LOCK_TIMEOUT_MS
                time.sleep(_RETRY_PAUSE_S)
            else:
                return

    def _prepare(self, lock_timeout_ms: int) -> None:
        connection = self._connection
        connection.execute(text(f"SET lock_timeout = '{lock_timeout_ms}ms'"))
        connection.commit()  # Else a roll-back would undo it.
        _create_schema(connection, self._schema)
        _move_installation(connection, self._schema)
        connection.commit()

    def _report(self, step: MigrationInfo) -> None:
        now = time.monotonic()
        direction = "up" if step.is_upgrade else "down"
        title = getattr(step.up_revision, "doc", "")
        took_s = now - self._began_at
        self._progress(f"{direction} {step.up_revision_id} in {took_s:.2f} s: {title}")
        self._began_at = now


@contextmanager
def _turn(url: str, give_up_after_s: float, progress: Progress) -> Iterator[Connection]:
    """Yield a connection that migrates alone.

    Raises: BusyError when another migration has not ended in time.
    """
    # A migration takes as long as it needs, on a server that is there.
    with _engine(url, reply_limit_s=None).connect() as connection:
        deadline = time.monotonic() + give_up_after_s
        # It asks instead of waiting: CREATE INDEX CONCURRENTLY of the other migration would wait
        # for the transaction that waits here.
        waiting = False
        while not connection.execute(text(_TAKE_TURN), {"key": _LOCK}).scalar():
            connection.rollback()
            if not waiting:
                progress("waiting for another migration of this database")
                waiting = True
            if time.monotonic() > deadline:
                raise BusyError(
                    f"another migration of this database is running; gave up after"
                    f" {give_up_after_s:g} s"
                )
            time.sleep(_TURN_PAUSE_S)
        connection.commit()
        yield connection


# --- who is in the way ----------------------------------------------------------------------------

_TAKE_TURN: Final = "SELECT pg_try_advisory_lock(:key)"

# A lock that was not granted in time, and a deadlock, of which PostgreSQL ended our side.
_LOCKED: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

# Without the right to read all statistics, the times of other roles are null.
_LOCK_HOLDERS: Final = """
    SELECT a.pid, coalesce(a.usename, ''), coalesce(a.backend_type, '') = 'autovacuum worker',
        coalesce(a.state, ''), a.xact_start, min(l.relation::regclass::text)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_class c ON c.oid = l.relation
    WHERE l.granted AND l.pid <> pg_backend_pid() AND l.locktype = 'relation'
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND c.relnamespace = CAST(:schema AS regnamespace)
        AND coalesce(a.xact_start < clock_timestamp() - :waited_ms * interval '1 ms', true)
    GROUP BY a.pid, a.usename, a.backend_type, a.state, a.xact_start
    ORDER BY a.xact_start NULLS LAST LIMIT 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """A session whose transaction holds a lock on one of our tables."""

    pid: int
    role: str
    is_autovacuum: bool
    state: str
    since: datetime | None
    table: str

    def __str__(self) -> str:
        who = "autovacuum" if self.is_autovacuum else f"role {self.role}, {self.state or 'unknown'}"
        since = f" since {self.since:%H:%M:%S %Z}" if self.since else ""
        return f"session {self.pid} ({who}{since}, {self.table})"


def _lock_holders(connection: Connection, schema: str, waited_ms: int) -> list[_Holder]:
    """Return at most three sessions that hold locks for longer than was waited, oldest first."""
    values = {"schema": f'"{location.checked(schema)}"', "waited_ms": waited_ms}
    rows = connection.execute(text(_LOCK_HOLDERS), values).all()
    connection.rollback()
    return [
        _Holder(pid=pid, role=role, is_autovacuum=vacuum, state=state, since=since, table=table)
        for pid, role, vacuum, state, since, table in rows
    ]


def _listed(holders: Sequence[_Holder]) -> str:
    return " and ".join(map(str, holders)) or "others"


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

_FUNCTIONS: Final = """
    SELECT p.proname, oidvectortypes(p.proargtypes), EXISTS (
        SELECT FROM unnest(p.proconfig) c WHERE c LIKE 'search_path=%'
    ) FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND (
        p.proname || '(' || oidvectortypes(p.proargtypes) || ')' = ANY(:functions)
        OR p.oid IN (
            SELECT t.tgfoid FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace
                AND c.relname = ANY(:names)
        )
    )
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


_SAYS_WHO_MAY_USE_IT: Final = "SELECT to_regclass('schema_compatibility') IS NOT NULL"
_OLDEST_HEAD: Final = "SELECT oldest_head FROM schema_compatibility"


def _revision(connection: Connection, schema: str) -> str | None:
    """Return the revision of the installation in `schema`, or in `public` if it was not moved."""
    where = _PUBLIC if _revision_in_public(connection, schema) else None
    return MigrationContext.configure(
        connection, opts={"version_table_schema": where}
    ).get_current_revision()


def _revision_in_public(connection: Connection, schema: str) -> str | None:
    """Return the revision of an installation that `public` has and `schema` does not; else None."""

    def count(names: Sequence[str], where: str) -> int:
        there = connection.execute(text(_EXIST), {"names": list(names), "schema": where})
        return int(there.scalar_one())

    if schema == _PUBLIC or count(_MARKS[:1], schema) or count(_MARKS, _PUBLIC) < len(_MARKS):
        return None
    # A version table of the user's own has other revisions.
    known = {script.revision for script in revisions().walk_revisions()}
    version = connection.execute(text("SELECT version_num FROM public.alembic_version")).scalar()
    return version if version in known else None


def _move_installation(connection: Connection, schema: str) -> None:
    """Move the tables of an older release from `public` to `schema`, with all that is theirs.

    Only relations that its revision created, and that the owner of our tables owns: a database may
    be shared.
    """
    revision = _revision_in_public(connection, schema)
    if revision is None:
        return
    quoted = f'"{location.checked(schema)}"'  # A keyword, such as user, is a name too.
    names = relations.at(revision)
    ours = {"names": names, "functions": relations.functions_at(revision)}
    functions = connection.execute(text(_FUNCTIONS), ours).all()
    for relation, is_view in connection.execute(text(_RELATIONS), {"names": names}).all():
        kind = "VIEW" if is_view else "TABLE"
        connection.execute(text(f'ALTER {kind} public."{relation}" SET SCHEMA {quoted}'))
    if revision >= platform_views.SINCE:  # The views are of these tables, whatever their name.
        was, now = (f'"{platform_views.schema_beside(name)}"' for name in (_PUBLIC, schema))
        connection.execute(text(f"ALTER SCHEMA {was} RENAME TO {now}"))
    beside = connection.execute(text(_SCHEMA_EXISTS), {"name": finance.beside(_PUBLIC)}).first()
    if revision >= finance.SINCE and beside is not None:
        was, now = (f'"{finance.beside(name)}"' for name in (_PUBLIC, schema))
        connection.execute(text(f"ALTER SCHEMA {was} RENAME TO {now}"))
    for name, arguments, has_a_search_path in functions:
        function = f'"{name}"({arguments})'
        connection.execute(text(f"ALTER FUNCTION public.{function} SET SCHEMA {quoted}"))
        if has_a_search_path:  # It looks names up where it says, not where its caller says.
            search_path = f"SET search_path = {quoted}, pg_temp"
            connection.execute(text(f"ALTER FUNCTION {quoted}.{function} {search_path}"))
    # Whichever role may read a table must be able to reach it: the application, reporting roles.
    grantees = connection.execute(text(_GRANTEES), {"schema": quoted}).scalars().all()
    for grantee in grantees:
        connection.execute(text(f"GRANT USAGE ON SCHEMA {quoted} TO {grantee}"))


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _engine(url: str, *, reply_limit_s: float | None = connections.REPLY_LIMIT_S) -> Engine:
    engine = create_engine(
        connections.DRIVER, poolclass=NullPool, connect_args=connections.parameters(url)
    )
    connections.limit_replies(engine, reply_limit_s, lambda: None)
    return engine
