"""How many webhooks a worker delivers a second, and how soon it makes the first attempt.

One worker process and one receiver, which takes everything at once, on the same machine. That
nothing is lost when both fail is for `benchmarks/webhook_faults.py`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Final, LiteralString

import psycopg

from benchmarks import workload
from benchmarks.parts.engine import Progress
from benchmarks.parts.service import Authorizations, Service, wait_until
from benchmarks.results.figures import Figure, quantile
from cardledger.install.http_client import HttpApi
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Listener, Reply

_PART: Final = "webhooks"
_BACKLOG: Final = 3_000
_RATE: Final = 200
_SECONDS: Final = 6.0
_KINDS: Final = "CARD_TRANSACTION.*"

# From when the engine looked at the clock, before the commit, to the request.
FIRST_ATTEMPTS: Final[LiteralString] = """
    SELECT extract(epoch FROM a.attempted_at - (w.body::json ->> 'timestamp')::timestamptz) * 1000
    FROM webhook_attempts a JOIN webhook_deliveries w ON w.id = a.delivery_id
    WHERE a.number = 1 AND w.type = 'CARD_TRANSACTION.AUTHORIZED'
        AND w.endpoint_id = %s AND (w.body::json ->> 'timestamp')::timestamptz >= %s
"""
"""Milliseconds until the first attempt of every event since a moment, at an endpoint."""

# What is dispatched while no endpoint is enabled is stored once, without an endpoint.
_STORED: Final[LiteralString] = """
    SELECT count(*) FROM webhook_deliveries
    WHERE endpoint_id IS NULL AND type = 'CARD_TRANSACTION.AUTHORIZED'
        AND (body::json ->> 'timestamp')::timestamptz >= %s
"""

_WAITING: Final[LiteralString] = """
    SELECT count(*) FROM webhook_deliveries
    WHERE endpoint_id = %s AND state = 'PENDING' AND type <> 'TEST'
"""


def measure(
    system: Service,
    *,
    rounds: int,
    progress: Progress,
    backlog: int = _BACKLOG,
    seconds: float = _SECONDS,
) -> Iterator[Figure]:
    """Yield the rate at which a backlog is delivered in order, and how soon a first attempt is."""
    with (
        Listener(lambda _headers, _body: Reply()) as receiver,
        HttpApi(
            system.running.base_url, system.running.client_id, system.running.client_secret
        ) as api,
        psycopg.connect(system.bench.owner_url, autocommit=True) as connection,
    ):
        # Events dispatched after the endpoint exists would be delivered to it.
        wait_until(lambda: not _has_undispatched(connection), "an empty outbox")
        endpoint = _Endpoint(api, connection, receiver.url)
        progress(f"webhooks: a backlog of {backlog:,}")
        yield Figure(
            part=_PART,
            name="webhooks delivered, a backlog, FIFO",
            unit="/s",
            values=[_delivered(system, endpoint, backlog, number) for number in range(rounds)],
        )
        progress(f"webhooks: first attempts at {_RATE} events a second")
        authorizations = Authorizations(system)
        latencies = [_first_attempts(authorizations, endpoint, seconds) for _ in range(rounds)]
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield Figure(
            part=_PART,
            name=f"webhook, first attempt at {_RATE} events/s, {name}",
            unit="ms",
            values=[quantile(waits, share) for waits in latencies],
            lower=True,
        )


def _has_undispatched(connection: psycopg.Connection) -> bool:
    """Return whether the outbox has events without deliveries."""
    return connection.execute("SELECT FROM outbox LIMIT 1").fetchone() is not None


class _Endpoint:
    """A FIFO endpoint subscribed to card transactions."""

    def __init__(self, api: HttpApi, connection: psycopg.Connection, url: str) -> None:
        self._api: Final = api
        self._connection: Final = connection
        request = {"url": url, "mode": "FIFO", "eventTypes": [_KINDS]}
        self._public_id: Final = api.post("/webhooks/endpoints", request)["id"]
        self._id: Final = Id.parse(self._public_id.rpartition(":")[2])

    def set(self, state: str) -> None:
        """Enable or disable it."""
        self._api.patch(f"/webhooks/endpoints/{self._public_id}", {"state": state})

    def replay(self, since: datetime) -> int:
        """Have it receive what it has missed since then; return how many webhooks."""
        request = {"endpointId": self._public_id, "since": since.isoformat()}
        return int(self._api.post("/webhooks/replay", request)["count"])

    def missed(self, since: datetime) -> int:
        """Return how many webhooks were stored for later since then."""
        return self._count(_STORED, since)

    def waiting(self) -> int:
        """Return how many deliveries of what it wants are not done."""
        return self._count(_WAITING, self._id)

    def _count(self, query: LiteralString, of: datetime | Id) -> int:
        row = self._connection.execute(query, [of]).fetchone()
        assert row is not None
        return int(row[0])

    def first_attempts_ms(self, since: datetime) -> list[float]:
        """Return how long after its event each first attempt came."""
        rows = self._connection.execute(FIRST_ATTEMPTS, [self._id, since])
        return [float(ms) for (ms,) in rows]


def _delivered(system: Service, endpoint: _Endpoint, backlog: int, number: int) -> float:
    """Let an endpoint miss webhooks, then replay them; returns how many were delivered a second."""
    endpoint.set("DISABLED")
    since = datetime.now(UTC)
    wanted = workload.purchases(system.cardholders, backlog, seed=number, run="webhooks")
    system.bench.accept(workload.authorizations(wanted))
    wait_until(lambda: endpoint.missed(since) == backlog, "all webhooks stored")
    endpoint.set("ENABLED")
    started = perf_counter()
    replayed = endpoint.replay(since)  # With what the minute before has left.
    assert replayed >= backlog
    wait_until(lambda: not endpoint.waiting(), "all webhooks delivered")
    return replayed / (perf_counter() - started)


def _first_attempts(
    authorizations: Authorizations, endpoint: _Endpoint, seconds: float
) -> list[float]:
    since = datetime.now(UTC)
    answered = len(authorizations.paced(_RATE, seconds=seconds).seconds)
    # Nothing may be waiting while the last ones have not even been dispatched.
    wait_until(
        lambda: len(endpoint.first_attempts_ms(since)) >= answered, "a first attempt for each event"
    )
    return endpoint.first_attempts_ms(since)
