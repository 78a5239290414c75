"""What `cardledger doctor` says about the roles of the database: who may do more than its work."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg

from cardledger.install.findings import CONNECTION_NAME, FAIL, OK, WARN, Finding, NamedCheck
from cardledger.schema import platform_views, roles
from cardledger.schema.roles import Role
from cardledger.schema.tables import APPEND_ONLY, UNCHANGED

_FORBIDDEN: Final = [
    *((table.name, ("UPDATE", "DELETE", "TRUNCATE")) for table in APPEND_ONLY),
    *((table.name, ("UPDATE", "TRUNCATE")) for table in UNCHANGED),
]
"""Privileges on tables that the application's role must not have."""
_WORDS: Final = {"a": "INSERT", "w": "UPDATE", "d": "DELETE"}
_NAMED: Final = 3
_LIMITED: Final = (Role.API, Role.SUBMIT)  # When no earlier release runs any more.
_EXAMINED: Final = (*roles.NEW, Role.FINANCE)
_PAGE: Final = "docs/postgresql.md#roles"


def examine(
    connection: psycopg.Connection[Any], *, is_running: bool, for_production: bool
) -> Iterator[Finding]:
    """Yield the findings of `checks`."""
    for _, check in checks(connection, is_running=is_running, for_production=for_production):
        yield check()


def checks(
    connection: psycopg.Connection[Any], *, is_running: bool, for_production: bool
) -> Sequence[NamedCheck]:
    """Return the checks of the database of `connection`, whose login is that of the processes.

    `is_running`: a system runs here, whose processes may have other logins; theirs are judged.
    `for_production`: a process with more rights than its work needs is an error.
    """
    wrong = FAIL if for_production else WARN
    return [
        ("application role", lambda: _application_role(connection)),
        ("process roles", lambda: _process_roles(connection)),
        ("role in use", lambda: _used(connection, is_running=is_running, wrong=wrong)),
    ]


# --- what the roles may do ------------------------------------------------------------------------

_HAVE_ATTRIBUTES: Final = """
    SELECT r.name, rolsuper OR rolcreaterole OR rolbypassrls OR rolcreatedb OR rolreplication
    FROM unnest(%s::text[]) AS r (name) JOIN pg_roles ON rolname = r.name::name
"""
_MAY: Final = """
    SELECT f.privilege, f.name
    FROM unnest(%(names)s::text[], %(privileges)s::text[]) WITH ORDINALITY
        AS f (name, privilege, place)
    WHERE has_table_privilege(%(role)s::name, f.name, f.privilege)
    ORDER BY f.place
"""


def _application_role(connection: psycopg.Connection[Any]) -> Finding:
    name, role = "application role", _name(connection, Role.APP)
    problem = _attributes(connection, name, [role])
    if problem is not None:
        return problem
    asked = [(table, privilege) for table, privileges in _FORBIDDEN for privilege in privileges]
    names, privileges = map(list, zip(*asked, strict=True))
    named = {"role": role, "names": names, "privileges": privileges}
    wrong = connection.execute(_MAY, named).fetchall()
    if wrong:
        table = f"{_schema(connection)}.{wrong[0][1]}"
        may = ", ".join(f"{privilege} on {other}" for privilege, other in wrong)
        fix = f"psql -c 'REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {role}'"
        return Finding(name=name, state=FAIL, detail=f"{role} may {may}", fix=fix)
    return Finding(name=name, state=OK, detail=f"{role} can append facts and cannot change them")


def _attributes(
    connection: psycopg.Connection[Any], name: str, wanted: Sequence[str]
) -> Finding | None:
    """Return what is wrong with a role itself; None: each exists and has no special right."""
    is_special = dict(connection.execute(_HAVE_ATTRIBUTES, [list(wanted)]).fetchall())
    for role in wanted:
        if role not in is_special:
            # A copied or renamed database: its rights belong to the role of the name it had.
            fix = f"psql -c 'CREATE ROLE {role} LOGIN IN ROLE <the role it was copied with>'"
            return Finding(name=name, state=FAIL, detail=f"no role {role}", fix=fix)
        if is_special[role]:
            unwanted = "NOSUPERUSER NOCREATEROLE NOBYPASSRLS NOCREATEDB NOREPLICATION"
            return Finding(
                name=name,
                state=FAIL,
                detail=f"{role} has more rights than it needs",
                fix=f"psql -c 'ALTER ROLE {role} {unwanted}'",
            )
    return None


def _process_roles(connection: psycopg.Connection[Any]) -> Finding:
    name = "process roles"
    problem = _attributes(connection, name, [_name(connection, role) for role in _EXAMINED])
    if problem is not None:
        return problem
    memberships, excess = _memberships(connection), _excess(connection)
    for role in _EXAMINED:
        found = [*memberships[role], *excess[role]]
        if found:
            what = f"{', '.join(found[:_NAMED])}{' and more' if len(found) > _NAMED else ''}"
            finish = "cardledger migrate --finish, once no earlier release runs; or "
            return Finding(
                name=name,
                state=FAIL,
                detail=f"{_name(connection, role)} {what}, which is not its work",
                fix=f"{finish if role in _LIMITED else ''}psql: REVOKE what {_PAGE} does not name",
            )
    detail = f"{', '.join(_EXAMINED)}: each may write what its work needs"
    return Finding(name=name, state=OK, detail=detail)


# By oid: a name in a schema that this login may not use cannot be looked up.
_PRIVILEGES: Final = """
    SELECT r.name, n.nspname, c.relname,
        has_any_column_privilege(r.name::name, c.oid, 'INSERT'),
        has_any_column_privilege(r.name::name, c.oid, 'UPDATE'),
        has_table_privilege(r.name::name, c.oid, 'DELETE'),
        has_table_privilege(r.name::name, c.oid, 'UPDATE'),
        has_table_privilege(r.name::name, c.oid, 'TRUNCATE')
    FROM unnest(%(roles)s::text[]) AS r (name), pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%(schemas)s) AND c.relkind IN ('r', 'v') AND c.relname = ANY(%(names)s)
    ORDER BY n.nspname, c.relname
"""


def _excess(connection: psycopg.Connection[Any]) -> Mapping[Role, Sequence[str]]:
    """Return what roles may do to tables beyond `roles.on_table`, and to views of a platform."""
    own = {_name(connection, role): role for role in _EXAMINED}
    tables = _schema(connection)
    views = platform_views.schema_beside(tables)
    named = {"roles": list(own), "schemas": [tables, views], "names": list(roles.WRITERS)}
    found: dict[Role, list[str]] = {role: [] for role in _EXAMINED}
    for name, *row in connection.execute(_PRIVILEGES, named):
        found[own[name]] += _beyond(own[name], row, views=views)
    return found


def _beyond(role: Role, row: Sequence[Any], *, views: str) -> Iterator[str]:
    """Yield what `role` may do beyond its work to the table, or view, of a row of `_PRIVILEGES`."""
    schema, name, inserts, updates, deletes, whole, truncates = row
    is_view = schema == views
    table = f"{views}.{name}" if is_view else name
    wanted = roles.on_view(name, role) if is_view else roles.on_table(name, role)
    for letter, may in (("a", inserts), ("w", updates), ("d", deletes)):
        if may and letter not in wanted:
            yield f"may {_WORDS[letter]} on {table}"
    if whole and "w" in wanted:
        yield f"may UPDATE every column of {table}"
    if truncates:
        yield f"may TRUNCATE {table}"


_MEMBERSHIPS: Final = """
    SELECT own.name, other.name
    FROM unnest(%(own)s::text[]) AS own (name),
        unnest(%(others)s::text[]) WITH ORDINALITY AS other (name, place)
        JOIN pg_roles ON rolname = other.name::name
    WHERE other.name <> own.name AND pg_has_role(own.name::name, pg_roles.oid, 'MEMBER')
    ORDER BY other.place
"""


def _memberships(connection: psycopg.Connection[Any]) -> Mapping[Role, Sequence[str]]:
    """Return the other roles of this database that roles may become."""
    own = {_name(connection, role): role for role in _EXAMINED}
    named = {"own": list(own), "others": [_name(connection, other) for other in Role]}
    found: dict[Role, list[str]] = {role: [] for role in _EXAMINED}
    for name, other in connection.execute(_MEMBERSHIPS, named):
        found[own[name]].append(f"is a member of {other}")
    return found


# --- what the processes run as --------------------------------------------------------------------

_RUNNING: Final = f"""
    SELECT DISTINCT usename FROM pg_stat_activity
    WHERE datname = current_database() AND starts_with(application_name, 'cardledger')
        AND application_name <> '{CONNECTION_NAME}' AND pid <> pg_backend_pid()
"""


def _running(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the roles of the sessions of processes that run now."""
    return {name for (name,) in connection.execute(_RUNNING.encode())}


def _used(connection: psycopg.Connection[Any], *, is_running: bool, wrong: str) -> Finding:
    name = "role in use"
    found = _running(connection) if is_running else {_one(connection, "SELECT session_user")}
    own = {_name(connection, role) for role in roles.PROCESSES}
    others = sorted(found - own)
    if not others:
        return Finding(name=name, state=OK, detail=", ".join(sorted(found)) or "none")
    who = "a process runs as" if is_running else "a process with this DATABASE_URL would run as"
    return Finding(
        name=name,
        state=wrong,
        detail=f"{who} {others[0]}, which {_why(connection, others[0])}",
        fix="export DATABASE_URL=<login of "
        + ", ".join(f"{_name(connection, role)} for {_ROLE_USE[role]}" for role in roles.PROCESSES)
        + f">, see {_PAGE}",
    )


_ROLE_USE: Final = {
    Role.API: "the API",
    Role.WORKER: "`worker --only events`",
    Role.WEBHOOKS: "`worker --only webhooks`",
}

_OWNS: Final = """
    SELECT pg_has_role(%s, relowner, 'MEMBER') FROM pg_class WHERE oid = 'entries'::regclass
"""


def _why(connection: psycopg.Connection[Any], role: str) -> str:
    if _one(connection, _OWNS, role):
        return "owns the tables"
    if role == _name(connection, Role.APP):
        return "may do what all processes do together, write balances included"
    return "is not the role of a process"


# --- helpers --------------------------------------------------------------------------------------


def _name(connection: psycopg.Connection[Any], role: Role) -> str:
    return f"{connection.info.dbname}_{role}"


def _schema(connection: psycopg.Connection[Any]) -> str:
    """Return the PostgreSQL schema of the tables; `psql` without our URL does not know it."""
    return str(_one(connection, "SELECT current_schema()"))


def _one(connection: psycopg.Connection[Any], query: str, *arguments: object) -> Any:  # noqa: ANN401
    row = connection.execute(query, arguments).fetchone()
    assert row is not None, query
    return row[0]
