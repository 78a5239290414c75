"""What the console says about the installation: checks of `cardledger doctor`.

Those of readiness, and of files and ports of a machine, are left out: an API process knows neither
its data directory nor that of a worker. Addresses of servers are left out as well, for the console
is read by platforms.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg.abc import RV, PQGen
from typing_extensions import override

from cardledger.api.health.examination import Check, Examine, Report
from cardledger.install import database_findings, redis_findings
from cardledger.install.findings import FAIL, WARN, Finding
from cardledger.ledger.queries.console import running_workers
from cardledger.ledger.queries.console.running_workers import RunningWorker
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.schema import compatibility, connections
from cardledger.schema.connections import LimitedConnection, SilentServerError

_Result = TypeVar("_Result")

_log = structlog.get_logger()

_CONNECT_LIMIT_S: Final = 2  # To a host.
_REPLY_LIMIT_S = 2.0  # Of a statement or command.
_DATABASE_LIMIT_S = 7.0  # After that no statement is waited for.
_LIMIT_S: Final = 10.0  # Of all; Redis gets what is left.
_REDIS_REPLIES: Final = 6  # That are waited for.
_LEAST_REPLY_LIMIT_S: Final = 0.2

_UNFINISHED: Final = Finding(
    name="examination",
    state=WARN,
    detail=f"was ended after {_DATABASE_LIMIT_S:.0f} s; some checks are missing",
    fix="cardledger doctor",
)
_AWAY: Final = Finding(
    name="PostgreSQL",
    state=FAIL,
    detail="could not be connected to, or did not answer in time",
    fix="check the server, and the network to it",
)
_OTHER_SCHEMA: Final = Finding(
    name="schema",
    state=FAIL,
    detail="is not that of this release; nothing else was examined",
    fix="cardledger migrate",
)


def examiner(database_url: str, redis_url: str, secret_key: str | ServerKey) -> Examine:
    """Return what examines an installation, as the login of `database_url`."""
    database = _Database(database_url, KeyRing(secret_key))

    def examine() -> Report:
        began = monotonic()
        findings, workers = database.examine(end=began + _DATABASE_LIMIT_S)
        left_s = (began + _LIMIT_S - monotonic()) / _REDIS_REPLIES
        limit_s = max(min(left_s, _REPLY_LIMIT_S), _LEAST_REPLY_LIMIT_S)
        findings += map(_without_address, redis_findings.examine(redis_url, reply_limit_s=limit_s))
        checks = [Check(**asdict(finding)) for finding in findings]
        return Report(at=datetime.now(UTC), checks=checks, workers=workers)

    return examine


class _Database:
    """Examines a database; a check that fails leaves the others, and is logged once."""

    def __init__(self, url: str, keys: KeyRing) -> None:
        self._url: Final = url
        self._keys: Final = keys
        # Checks that fail now, with the class of the error.
        self._failing: Final = dict[str, str]()

    def examine(self, *, end: float) -> tuple[list[Finding], Sequence[RunningWorker] | None]:
        """Return what is found until `end`, and the workers; None: they could not be read."""
        findings, workers, is_connected = list[Finding](), None, False
        try:
            with _connect(self._url, end) as connection:
                is_connected = True
                workers = self._result(
                    connection, "workers", lambda: running_workers.read(connection), findings
                )
                self._check(connection, findings)
        except psycopg.Error as error:
            if is_connected and monotonic() >= end:  # It answers, but slowly.
                return [*findings, _UNFINISHED], workers
            self._note("PostgreSQL", error)
            return [*findings, _AWAY], None
        self._failing.pop("PostgreSQL", None)
        return findings, workers

    def _check(self, connection: psycopg.Connection[Any], findings: list[Finding]) -> None:
        for name, check in _checks(connection, self._keys):
            finding = self._result(connection, name, check, findings)
            if finding is not None:
                findings.append(finding)
            if finding is _OTHER_SCHEMA:
                return

    def _result(
        self,
        connection: psycopg.Connection[Any],
        name: str,
        check: Callable[[], _Result],
        findings: list[Finding],
    ) -> _Result | None:
        """Return what `check` returns; None, and a finding, when it fails.

        Raises: psycopg.Error when the connection has ended.
        """
        try:
            result = check()
        except Exception as error:
            if connection.closed:
                raise
            self._note(name, error)
            findings.append(_failed(name, error))
            return None
        self._failing.pop(name, None)
        return result

    def _note(self, name: str, error: Exception) -> None:
        kind = type(error).__name__
        if self._failing.get(name) != kind:
            _log.warning("check failed", check=name, exc_info=error)
        self._failing[name] = kind


class _TimedConnection(LimitedConnection[tuple[Any, ...]]):
    """A connection on which no wait exceeds `_REPLY_LIMIT_S`, and none goes on at `end`."""

    end = float("inf")

    @override
    def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        left_s = self.end - monotonic()
        if left_s <= 0:  # One that is answered at once would not be limited.
            self.pgconn.finish()
            raise SilentServerError("the time for this connection is over")
        self.reply_limit_s = min(left_s, _REPLY_LIMIT_S)
        return super().wait(gen, *arguments, **named)


def _connect(url: str, end: float) -> _TimedConnection:
    parameters = connections.parameters(url) | {"connect_timeout": _CONNECT_LIMIT_S}
    connection = _TimedConnection.connect(autocommit=True, **parameters)
    connection.end = end
    return connection


def _failed(name: str, error: Exception) -> Finding:
    return Finding(
        name=name,
        state=FAIL,
        detail=f"the check failed: {type(error).__name__}; the log of the API says why",
        fix="cardledger doctor",
    )


def _checks(
    connection: psycopg.Connection[Any], keys: KeyRing
) -> Sequence[tuple[str, Callable[[], Finding | None]]]:
    return [
        *database_findings.checks_of_durability(connection),
        ("schema", lambda: _schema(connection)),
        *database_findings.checks_of_schema(connection, is_running=True),
        (
            "secret key",
            lambda: database_findings.shown(
                "secret key",
                lambda: database_findings.secret_key(connection, keys, source="the API process"),
            ),
        ),
    ]


def _schema(connection: psycopg.Connection[Any]) -> Finding | None:
    try:
        revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return _OTHER_SCHEMA
    return None if revision is not None and revision[0] == compatibility.head() else _OTHER_SCHEMA


def _without_address(finding: Finding) -> Finding:
    """Return a finding about Redis without the address in the message of an error."""
    if finding.name != "Redis" or finding.state != FAIL:
        return finding
    return replace(finding, detail="does not answer; the system works without Redis, but slower")
