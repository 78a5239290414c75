"""What the console says about the installation: checks of `cardledger doctor`.

Those of readiness, and of files and ports of a machine, are left out: an API process knows neither
its data directory nor that of a worker. Addresses of servers are left out as well, for the console
is read by platforms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import psycopg

from cardledger.api.health.examination import Check, Examine, Report
from cardledger.install import database_findings, redis_findings
from cardledger.install.findings import FAIL, WARN, Finding
from cardledger.ledger.queries.console import running_workers
from cardledger.ledger.queries.console.running_workers import RunningWorker
from cardledger.ledger.storage.secrets.key_ring import KeyRing, ServerKey
from cardledger.schema import compatibility, connections

_REPLY_LIMIT_S: Final = 2.0  # Of a statement; the wait for PostgreSQL has that of its URL.

_LIMIT_S: Final = 10.0  # After that no check is begun.

_UNFINISHED: Final = Finding(
    name="examination",
    state=WARN,
    detail=f"was ended after {_LIMIT_S:.0f} s; some checks are missing",
    fix="cardledger doctor",
)
_AWAY: Final = Finding(
    name="PostgreSQL",
    state=FAIL,
    detail="did not answer in time",
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
    keys = KeyRing(secret_key)

    def examine() -> Report:
        findings: list[Finding] = []
        workers: Sequence[RunningWorker] | None = None
        try:
            with connections.connect(
                database_url, autocommit=True, reply_limit_s=_REPLY_LIMIT_S
            ) as connection:
                workers = running_workers.read(connection)
                findings += _in_time(_of_database(connection, keys))
        except psycopg.Error:
            findings.append(_AWAY)
        findings += map(_without_address, redis_findings.examine(redis_url))
        checks = [Check(**asdict(finding)) for finding in findings]
        return Report(at=datetime.now(UTC), checks=checks, workers=workers)

    return examine


def _in_time(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield `findings` until the time of an examination is over."""
    end = monotonic() + _LIMIT_S
    for finding in findings:
        yield finding
        if monotonic() > end:
            yield _UNFINISHED
            return


def _of_database(connection: psycopg.Connection[Any], keys: KeyRing) -> Iterator[Finding]:
    yield from database_findings.durability(connection)
    revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if revision is None or revision[0] != compatibility.head():
        yield _OTHER_SCHEMA
        return
    yield from database_findings.of_schema(connection, is_running=True)
    yield database_findings.shown(
        "secret key",
        lambda: database_findings.secret_key(connection, keys, source="the API process"),
    )


def _without_address(finding: Finding) -> Finding:
    """Return a finding about Redis without the address in the message of an error."""
    if finding.name != "Redis" or finding.state != FAIL:
        return finding
    return replace(finding, detail="does not answer; the system works without Redis, but slower")
