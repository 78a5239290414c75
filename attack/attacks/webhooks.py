"""Webhooks as a means: tests, endpoints that collect, deletions of what waits, replays."""

import asyncio
import gzip
import itertools
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from attack.arena import Arena, Attack, cycle
from attack.judge import Measure, Strike
from attack.measures import WAITING_DELIVERIES
from attack.victim import MERCHANT
from benchmarks.results.figures import quantile
from cardledger.ledger.webhooks.endpoint_tests import TEST_LIMIT
from cardledger.ledger.webhooks.endpoints import ENDPOINT_LIMIT
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Listener, Reply

PAUSE_LIMIT_S: Final = 5.0
"""The longest time in which no webhook of the other platform arrives, while it has some."""

ROWS_LIMIT: Final = 1.0
"""Rows for each webhook whose endpoints are all disabled."""

FIRST_ATTEMPT_LIMIT_S: Final = 3.0
"""What 99 of 100 first attempts at the other platform's webhooks take at most."""

TEST_LIMIT_S: Final = 5.0
"""What a test of another platform's endpoint takes at most."""

_TESTS: Final = 100
_HANG_S: Final = 60.0
_FIRST_S: Final = 30.0
_DISABLED: Final = 20
_ENABLED: Final = ENDPOINT_LIMIT
_DELETED: Final = 5
_WAITING: Final = 30_000
_LARGE: Final = 64 * 1024 * 1024

_ADD_WAITING: Final = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        attempts, next_attempt_at, created_at, webhook_id, endpoint_id)
    SELECT gen_random_uuid(), %(customer)s, %(platform)s, 'CARD.STATE_CHANGE', gen_random_uuid(),
        '{}', 'PENDING', 1, now() + interval '1 hour', now(), gen_random_uuid(), %(endpoint)s
    FROM generate_series(1, %(count)s)
"""


def _id(resource: str) -> Id:
    return Id.parse(resource.partition(":")[2])


@contextmanager
def _hanging() -> Iterator[Listener]:
    """Listen without an answer until the end of the block."""
    ended = threading.Event()

    def hang(_headers: dict[str, str], _body: bytes) -> Reply:
        ended.wait(_HANG_S)
        return Reply()

    with Listener(hang) as listener:
        try:
            yield listener
        finally:
            ended.set()


async def _tests(arena: Arena) -> Strike:
    victim = arena.victim.authorization
    with _hanging() as listener, Listener(lambda _headers, _body: Reply()) as quick:
        endpoint = (await arena.made("/webhooks/endpoints", {"url": listener.url}))["id"]
        tested = {"url": quick.url, "eventTypes": ["TEST"]}
        own = (await arena.made("/webhooks/endpoints", tested, by=victim))["id"]

        def test() -> bytes:
            headers = {"Idempotency-Key": str(uuid4())}
            return arena.request(
                "POST", "/webhooks/test", {"endpointId": endpoint}, headers=headers
            )

        arena.begin()
        flood, most, others = await asyncio.gather(
            arena.flood(test, _TESTS), _most_tests(arena), _tests_of(arena, own)
        )
        arena.end()
        await arena.call("DELETE", f"/webhooks/endpoints/{endpoint}")
        await arena.call("DELETE", f"/webhooks/endpoints/{own}", by=victim)
    # 503: the test was sent, and the endpoint has not responded within the limit of a request.
    return flood.strike(
        200,
        429,
        503,
        processed=(200, 503),
        measures=[
            Measure(name="webhook tests at once", value=most, limit=TEST_LIMIT),
            Measure(
                name="other platform's slowest test",
                value=max(others, default=math.inf),
                limit=TEST_LIMIT_S,
                unit="s",
            ),
        ],
    )


async def _tests_of(arena: Arena, endpoint: str) -> list[float]:
    """Return how long each test of the other platform's `endpoint` took; without end: it failed."""
    waits = []
    connection = arena.connection()
    while arena.is_on:
        whole = arena.request(
            "POST", "/webhooks/test", {"endpointId": endpoint}, by=arena.victim.authorization
        )
        began = time.perf_counter()
        answer = await connection.exchange(whole)
        waits.append(time.perf_counter() - began if answer.status == 200 else math.inf)
        await asyncio.sleep(1)
    return waits


_TESTS_NOW: Final = """
    SELECT count(*) FROM webhook_deliveries
    WHERE platform_id = %s AND state = 'PENDING' AND type = 'TEST' AND webhook_id = id
"""
"""Those that were requested; a new endpoint is sent one as well."""


async def _most_tests(arena: Arena) -> int:
    """Return how many tests were under way at most, looked at twenty times a second."""
    most = 0
    with arena.stage.connect() as connection:
        while arena.is_on:
            found = await asyncio.to_thread(
                lambda: connection.execute(
                    _TESTS_NOW.encode(), [arena.attacker.platform_id]
                ).fetchone()
            )
            most = max(most, found[0] if found else 0)
            await asyncio.sleep(0.05)
    return most


async def _disabled(arena: Arena) -> Strike:
    for _ in range(_DISABLED):
        body = {"url": "http://127.0.0.1:9/", "state": "DISABLED"}
        await arena.made("/webhooks/endpoints", body)
    card, amounts = cycle(arena.attacker.cards), itertools.cycle(range(100, 1000))

    def authorization() -> bytes:
        body = {"amount": next(amounts), "currency": {"code": "USD"}, "merchant": MERCHANT}
        return arena.request("POST", f"/sandbox/cards/{card()}/simulate/authorization", body)

    arena.begin()
    flood = await arena.flood(authorization, 32)
    arena.end()
    await _until_dispatched(arena)
    with arena.stage.connect() as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT webhook_id) FROM webhook_deliveries"
            " WHERE platform_id = %s",
            [arena.attacker.platform_id],
        ).fetchone()
    assert found is not None
    rows, webhooks = found
    return flood.strike(
        200,
        429,
        503,
        processed=(200,),
        proof=f"; {rows:,} rows for {webhooks:,} webhooks, {_DISABLED} disabled endpoints",
        measures=[
            Measure(name="rows of a webhook", value=rows / max(webhooks, 1), limit=ROWS_LIMIT),
            Measure(name="times without a webhook", value=0 if webhooks else 1, limit=0),
        ],
    )


# Of every webhook about an authorization of the other platform, also of those that still wait: the
# seconds from its event to its first attempt.
_FIRST_ATTEMPTS: Final = """
    SELECT extract(epoch FROM coalesce(a.attempted_at, now()) - recorded_at)::float8
    FROM (
        SELECT recorded_at, NULL::uuid AS delivery_id FROM outbox
        WHERE platform_id = %(platform)s AND type = 'CARD_TRANSACTION.AUTHORIZED'
        UNION ALL
        SELECT (body::json ->> 'timestamp')::timestamptz, id FROM webhook_deliveries
        WHERE endpoint_id = %(endpoint)s AND type = 'CARD_TRANSACTION.AUTHORIZED'
    ) webhooks
    LEFT JOIN webhook_attempts a USING (delivery_id)
    WHERE coalesce(a.number, 1) = 1
        AND recorded_at BETWEEN to_timestamp(%(began)s) AND to_timestamp(%(ended)s)
"""

_WAITING_NOW: Final = """
    SELECT count(*) FROM webhook_deliveries WHERE platform_id = %s AND state = 'PENDING'
"""


async def _enabled(arena: Arena) -> Strike:
    """Authorize in a loop with endpoints of which half hang, beside another platform's webhooks."""
    card, amounts = cycle(arena.attacker.cards), itertools.cycle(range(100, 1000))

    def authorization() -> bytes:
        body = {"amount": next(amounts), "currency": {"code": "USD"}, "merchant": MERCHANT}
        return arena.request("POST", f"/sandbox/cards/{card()}/simulate/authorization", body)

    victim = arena.victim.authorization
    with (
        _hanging() as hanging,
        Listener(lambda _headers, _body: Reply()) as quick,
        Listener(lambda _headers, _body: Reply()) as listener,
    ):
        own = await arena.made("/webhooks/endpoints", {"url": listener.url}, by=victim)
        endpoints = [
            await arena.made("/webhooks/endpoints", {"url": (hanging if number % 2 else quick).url})
            for number in range(_ENABLED)
        ]
        arena.begin()
        flood = await arena.flood(authorization, 32)
        arena.end()
        # Those that still wait count with the time that they have waited until then.
        await asyncio.sleep(2 * FIRST_ATTEMPT_LIMIT_S)
        waiting, latencies = _webhooks_of_both(arena, _id(own["id"]))
        for endpoint in endpoints:
            await arena.call("DELETE", f"/webhooks/endpoints/{endpoint['id']}")
        await arena.call("DELETE", f"/webhooks/endpoints/{own['id']}", by=victim)
    slowest_s = quantile(latencies, 0.99) if latencies else math.inf
    return flood.strike(
        200,
        429,
        503,
        processed=(200,),
        proof=f"; {_ENABLED} enabled endpoints, {waiting:,} deliveries wait;"
        f" {len(latencies):,} webhooks of the other platform",
        measures=[
            Measure(
                name="other platform's first attempts, p99",
                value=slowest_s,
                limit=FIRST_ATTEMPT_LIMIT_S,
                unit="s",
            ),
            # As many again: a hundredth for each endpoint.
            Measure(name="waiting deliveries", value=waiting, limit=2 * WAITING_DELIVERIES),
        ],
    )


def _webhooks_of_both(arena: Arena, endpoint: Id) -> tuple[int, list[float]]:
    """Return the attacker's waiting deliveries, and the latencies of the other platform's."""
    values = {
        "platform": arena.victim.platform_id,
        "endpoint": endpoint,
        "began": arena.began,
        "ended": arena.ended,
    }
    with arena.stage.connect() as connection:
        rows = connection.execute(_FIRST_ATTEMPTS.encode(), values).fetchall()
        found = connection.execute(_WAITING_NOW.encode(), [arena.attacker.platform_id]).fetchone()
    assert found is not None
    return found[0], [latency for (latency,) in rows]


async def _until_dispatched(arena: Arena) -> None:
    """Wait, for some time at most, until the attacker's webhooks have been dispatched."""
    deadline = time.monotonic() + 60
    with arena.stage.connect() as connection:
        while time.monotonic() < deadline:
            waiting = connection.execute(
                "SELECT FROM outbox WHERE platform_id = %s LIMIT 1", [arena.attacker.platform_id]
            ).fetchone()
            if waiting is None:
                return
            await asyncio.sleep(0.2)


class Arrivals:
    """Webhooks of the other platform: the times at which they arrive."""

    def __init__(self) -> None:
        self._guard: Final = threading.Lock()
        self._times: Final[list[float]] = []
        self.first: Final = threading.Event()

    def take(self, _headers: dict[str, str], _body: bytes) -> Reply:
        with self._guard:
            self._times.append(time.time())
        self.first.set()
        return Reply()

    def count(self, began: float) -> int:
        with self._guard:
            return sum(at >= began for at in self._times)

    def longest_pause_s(self, began: float, ended: float) -> float:
        with self._guard:
            times = [began, *(at for at in self._times if began <= at <= ended), ended]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


async def _deletions(arena: Arena) -> Strike:
    """Delete endpoints with many waiting deliveries while the other platform's webhooks arrive."""
    endpoints = [
        (await arena.made("/webhooks/endpoints", {"url": "http://127.0.0.1:9/"}))["id"]
        for _ in range(_DELETED)
    ]
    with arena.stage.connect() as connection:
        for endpoint in endpoints:
            values = {
                "customer": _id(arena.attacker.customers[0]),
                "platform": arena.attacker.platform_id,
                "endpoint": _id(endpoint),
                "count": _WAITING,
            }
            connection.execute(_ADD_WAITING.encode(), values)
    arrivals = Arrivals()
    victim = arena.victim.authorization
    with Listener(arrivals.take) as listener:
        own = await arena.made("/webhooks/endpoints", {"url": listener.url}, by=victim)
        await asyncio.to_thread(arrivals.first.wait, _FIRST_S)
        arena.begin()
        statuses = []
        for endpoint in endpoints:
            answer = await arena.call("DELETE", f"/webhooks/endpoints/{endpoint}")
            statuses.append(answer.status)
            await asyncio.sleep(arena.seconds / _DELETED)
        arena.end()
        pause_s = arrivals.longest_pause_s(arena.began, arena.ended)
        await arena.call("DELETE", f"/webhooks/endpoints/{own['id']}", by=victim)
    deleted = sum(200 <= status < 300 for status in statuses)
    return Strike(
        struck=deleted,
        proof=f"{deleted} endpoints with {_WAITING:,} waiting deliveries each deleted;"
        f" {arrivals.count(arena.began):,} webhooks of the other platform arrived",
        measures=[
            Measure(
                name="other platform's webhooks paused",
                value=pause_s,
                limit=PAUSE_LIMIT_S,
                unit="s",
            ),
            Measure(name="deletions refused", value=len(statuses) - deleted, limit=0),
        ],
    )


def _hostile(trap: str) -> list[Reply]:
    """Return responses that lead the sender elsewhere, or that it should not read to their end."""
    moved = [
        Reply(status=status, headers=(("Location", trap),)) for status in (301, 302, 303, 307, 308)
    ]
    return [
        *moved,
        Reply(headers=(("Location", trap), ("Refresh", f"0; url={trap}"), ("Alt-Svc", trap))),
        Reply(body=b"x" * _LARGE),
        Reply(headers=(("Content-Encoding", "gzip"),), body=gzip.compress(b"x" * _LARGE)),
        Reply(headers=tuple((f"X-{number}", "x" * 1000) for number in range(500))),
        Reply(status=429, headers=(("Retry-After", "9" * 400),)),
    ]


async def _hostile_receivers(arena: Arena) -> Strike:
    """Answer webhooks so as to lead the sender elsewhere, and to make it read without end."""
    victim = arena.victim.authorization
    hits, arrivals = itertools.count(), Arrivals()
    struck = itertools.count()

    def spring(_headers: dict[str, str], _body: bytes) -> Reply:
        next(hits)
        return Reply()

    with Listener(spring) as trap, Listener(arrivals.take) as quick:
        replies = _hostile(trap.url)

        def answer(_headers: dict[str, str], _body: bytes) -> Reply:
            return replies[next(struck) % len(replies)]

        with Listener(answer) as listener:
            own = await arena.made("/webhooks/endpoints", {"url": quick.url}, by=victim)
            endpoint = await arena.made("/webhooks/endpoints", {"url": listener.url})
            await asyncio.to_thread(arrivals.first.wait, _FIRST_S)
            arena.begin()
            flood = await arena.flood(lambda: _authorization(arena), 4)
            arena.end()
            pause_s = arrivals.longest_pause_s(arena.began, arena.ended)
            await arena.call("DELETE", f"/webhooks/endpoints/{endpoint['id']}")
            await arena.call("DELETE", f"/webhooks/endpoints/{own['id']}", by=victim)
    answered = next(struck)
    strike = flood.strike(200, 429, 503, processed=(200,))
    return Strike(
        struck=answered,
        proof=f"{answered:,} hostile responses of {len(replies)} kinds; {strike.proof}",
        measures=[
            *strike.measures,
            Measure(name="requests led elsewhere", value=next(hits), limit=0),
            Measure(name="kinds of responses not sent", value=answered < len(replies), limit=0),
            Measure(
                name="other platform's webhooks paused",
                value=pause_s,
                limit=PAUSE_LIMIT_S,
                unit="s",
            ),
        ],
    )


def _authorization(arena: Arena) -> bytes:
    body = {"amount": 100, "currency": {"code": "USD"}, "merchant": MERCHANT}
    card = arena.attacker.cards[0]
    return arena.request("POST", f"/sandbox/cards/{card}/simulate/authorization", body)


async def _replays(arena: Arena) -> Strike:
    times = cycle(
        ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"]
    )
    arena.begin()
    flood = await arena.flood(
        lambda: arena.request("POST", "/webhooks/replay", {"since": times()}), 4
    )
    return flood.strike(200, 202, 400, 409, 429)


ATTACKS: Final = (
    Attack(
        item="A1",
        name="webhook tests",
        aim=f"{_TESTS} tests at once to a receiver that hangs take every connection",
        run=_tests,
    ),
    Attack(
        item="A6",
        name="disabled endpoints",
        aim=f"{_DISABLED} disabled endpoints collect rows without limit",
        run=_disabled,
    ),
    Attack(
        item="A6",
        name="enabled endpoints",
        aim=f"{_ENABLED} enabled endpoints, half of which hang, delay other platforms' webhooks",
        run=_enabled,
    ),
    Attack(
        item="B12",
        name="deleted endpoints",
        aim="deleting what has many waiting deliveries stops other platforms' webhooks",
        run=_deletions,
    ),
    Attack(
        item="B12",
        name="hostile receivers",
        aim="responses to webhooks lead the sender elsewhere, or take its memory and threads",
        run=_hostile_receivers,
    ),
    Attack(
        item="B12",
        name="replays of all time",
        aim="a replay since the first or last year of the calendar fails",
        run=_replays,
    ),
)
