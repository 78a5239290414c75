"""What `cardledger doctor` and the console say about a database that answers and has a schema."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import psycopg

from cardledger.install import key_check, message_findings, role_findings
from cardledger.install.findings import FAIL, OK, UNKNOWN, WARN, Finding, NamedCheck
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.tables import APPEND_ONLY, UNCHANGED, bank_payments


def durability(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Yield whether commits survive a crash of PostgreSQL."""
    for _, check in checks_of_durability(connection):
        yield check()


def checks_of_durability(connection: psycopg.Connection[Any]) -> Sequence[NamedCheck]:
    """Return the checks of the settings without which a crash may lose commits."""
    settings = ("fsync", "synchronous_commit", "full_page_writes")
    return [(setting, partial(_is_on, connection, setting)) for setting in settings]


def of_schema(
    connection: psycopg.Connection[Any], *, is_running: bool, for_production: bool = False
) -> Iterator[Finding]:
    """Yield the findings of `checks_of_schema`."""
    for _, check in checks_of_schema(
        connection, is_running=is_running, for_production=for_production
    ):
        yield check()


def checks_of_schema(
    connection: psycopg.Connection[Any], *, is_running: bool, for_production: bool = False
) -> Sequence[NamedCheck]:
    """Return the checks of a database whose schema is that of this release.

    `is_running`, `for_production`: as for `role_findings.checks`.
    """
    checks: list[NamedCheck] = [
        ("stalls", lambda: _stalls(connection)),
        ("inbox", lambda: message_findings.forged(connection)),
        ("enqueued events", lambda: message_findings.enqueued(connection)),
    ]
    return [
        *role_findings.checks(connection, is_running=is_running, for_production=for_production),
        ("append-only", lambda: _triggers(connection)),
        *((name, partial(shown, name, check)) for name, check in checks),
    ]


def secret_key(connection: psycopg.Connection[Any], keys: KeyRing, *, source: str) -> Finding:
    """Return whether `keys`, which are from `source`, open the secrets of the platforms."""
    _, closed = key_check.opened_and_closed(connection, keys)
    if closed:
        return Finding(
            name="secret key",
            state=FAIL,
            detail=f"from {source}; {closed} platform(s) were encrypted with another key",
            fix="export CARDLEDGER_SECRET_KEY=<the key that the database was set up with>",
        )
    return Finding(name="secret key", state=OK, detail=f"from {source}")


def shown(name: str, check: Callable[[], Finding]) -> Finding:
    """Return the finding of `check`, for which the login of a process may lack a right."""
    try:
        return check()
    except psycopg.errors.InsufficientPrivilege:
        return Finding(name=name, state=UNKNOWN, detail="not shown to this login")


def _is_on(connection: psycopg.Connection[Any], setting: str) -> Finding:
    value = str(_one(connection, "SELECT current_setting(%s)", setting))
    if value == "off":
        fix = f"psql -c 'ALTER SYSTEM SET {setting} = on' -c 'SELECT pg_reload_conf()'"
        detail = "off: a crash may lose acknowledged events"
        return Finding(name=setting, state=FAIL, detail=detail, fix=fix)
    return Finding(name=setting, state=OK, detail=value)


_GUARDED: Final = """
    SELECT tgrelid::regclass::text, tgname FROM pg_trigger
    WHERE tgname = ANY(%s) AND tgenabled = 'A'
"""
_APPEND_ONLY: Final = "append_only"
_ALSO_GUARDED: Final = [(bank_payments.name, "only_differing")]
"""Triggers beside those, of tables of which some rows may be deleted."""


def _triggers(connection: psycopg.Connection[Any]) -> Finding:
    tables = (*APPEND_ONLY, *UNCHANGED)
    wanted = [*((table.name, _APPEND_ONLY) for table in tables), *_ALSO_GUARDED]
    names = list({trigger for _, trigger in wanted})
    guarded = set(connection.execute(_GUARDED, [names]))
    missing = [each for each in wanted if each not in guarded]
    if missing:
        table, trigger = missing[0]
        enable = f"ALTER TABLE {_schema_name(connection)}.{table} ENABLE ALWAYS TRIGGER {trigger}"
        return Finding(
            name="append-only",
            state=FAIL,
            detail=f"trigger disabled or missing on {', '.join(name for name, _ in missing)}",
            fix=f"psql -c '{enable}'",
        )
    return Finding(name="append-only", state=OK, detail=f"enforced on {len(tables)} tables")


_STALLED: Final = """
    SELECT count(*) FILTER (WHERE is_whole_queue), count(*) FILTER (WHERE NOT is_whole_queue),
        min(since)
    FROM stalled_queues
"""


def _stalls(connection: psycopg.Connection[Any]) -> Finding:
    [(queues, cardholders, since)] = connection.execute(_STALLED)
    if not queues and not cardholders:
        return Finding(name="stalls", state=OK, detail="no queue and no cardholder is stalled")
    columns = "lane, shard, is_whole_queue, customer_id, error, since"
    return Finding(
        name="stalls",
        state=FAIL if queues else WARN,
        detail=f"{queues} queue(s) and {cardholders} cardholder(s) have internal errors, the first"
        f" since {since:%Y-%m-%d %H:%M:%S %Z}; they continue by themselves after the repair",
        fix=f"psql -c 'SELECT {columns} FROM {_schema_name(connection)}.stalled_queues'",
    )


def _schema_name(connection: psycopg.Connection[Any]) -> str:
    """Return the PostgreSQL schema of the tables; `psql` without our URL does not know it."""
    return str(_one(connection, "SELECT current_schema()"))


def _one(connection: psycopg.Connection[Any], query: str, *arguments: object) -> Any:  # noqa: ANN401
    row = connection.execute(query, arguments).fetchone()
    assert row is not None, query
    return row[0]
