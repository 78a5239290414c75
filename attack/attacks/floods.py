"""Too much of what is allowed, and large requests that are refused."""

import asyncio
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from attack.arena import Arena, Attack, Flood, cycle
from attack.judge import Measure, Strike
from attack.probes import probes, prompt
from attack.victim import MERCHANT
from attack.wire import Connection
from cardledger.api.http.json_body import MAX_KEYS
from cardledger.api.http.middleware import MAX_PARAMETERS
from cardledger.api.http.routing import MAX_BODY

REFUSAL_LIMIT: Final = 16 * 1024
"""Bytes of the answer to a refused request."""

_UNKNOWN_FIELDS: Final = 130_000
_BODY: Final = MAX_BODY - 64
"""Bytes of a body that is not refused for its size."""

_QUERY: Final = 62 * 1024
_HEAD: Final = 15 * 1024
"""Bytes of a query that is not refused for the size of the head."""

_SENDERS: Final = 8
_PROBE_S: Final = 0.05
_DELIVERIES: Final = 200_000
_REFUSED: Final = (400, 413, 414, 431)
_SHARED: Final = (200, 429, 503)
"""What more requests than the share of a platform may get, while they are processed fairly."""

_ADD_DELIVERIES: Final = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        attempts, created_at, delivered_at, webhook_id)
    SELECT gen_random_uuid(), %(customer)s, %(platform)s, 'CARD.STATE_CHANGE', gen_random_uuid(),
        '{}', 'NO_ENDPOINT', 0, now(), NULL, gen_random_uuid()
    FROM generate_series(1, %(count)s)
"""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A request that is refused, and what the refusal says when it met the control it is for."""

    whole: bytes
    control: bytes


async def _refused(arena: Arena, kinds: Mapping[str, _Kind]) -> Strike:
    """Send requests of all `kinds` on each connection; every one of them has to be refused.

    Each is refused by a limit of its own, and none delays a health check for long.
    """
    flood = Flood()
    met: set[str] = set()

    async def send_on(connection: Connection, first: int) -> None:
        # Each begins with another kind, and sends two, so that all are sent in any time.
        for number, (name, kind) in enumerate(itertools.cycle(kinds.items())):
            if number < first:
                continue
            if number > first + 1 and not arena.is_on:
                return
            answer = await connection.exchange(kind.whole)
            flood.note(answer)
            if kind.control in answer.body:
                met.add(name)

    async def send() -> None:
        await asyncio.gather(*(send_on(arena.connection(), number) for number in range(_SENDERS)))

    arena.begin()
    found, _ = await asyncio.gather(probes(arena, kept=True, interval_s=_PROBE_S), send())
    unmet = sorted(kinds.keys() - met)
    return flood.strike(
        *_REFUSED,
        proof=f"; {len(kinds)} kinds",
        measures=[
            Measure(name="largest answer", value=flood.largest, limit=REFUSAL_LIMIT, unit="B"),
            Measure(name=f"controls not met {unmet or ''}".strip(), value=len(unmet), limit=0),
            *prompt(found),
        ],
    )


def _fields(count: int) -> bytes:
    """Return an object of as many fields, which no operation knows."""
    return b"{" + b",".join(b'"%05x":0' % number for number in range(count)) + b"}"


async def _unknown_fields(arena: Arena) -> Strike:
    """Send bodies above the limit of bytes, and below it those that have other limits."""
    few = {f"{number:03}{'k' * 40}": 0 for number in range(MAX_KEYS - 1)}
    allowed = json.dumps({"customerType": "INDIVIDUAL"} | few).encode()
    person = b'{"customerType":"INDIVIDUAL","fullName":%s}'
    bodies = {
        "1 MB": (_fields(_UNKNOWN_FIELDS)[: 1 << 20], b"body too large"),
        "fields": (_fields(_BODY // 10), b"keys; send at most"),
        "as many fields as allowed": (allowed, b"moreErrors"),
        "objects in a list": (b"[" + b'{"a":0},' * (_BODY // 8 - 1) + b"0]", b"keys; send at most"),
        "levels": (b'{"a":' * MAX_KEYS, b"nested too deeply"),
        "brackets": (b"[" * _BODY, b"nested too deeply"),
        "digits": (b'{"a":%s}' % (b"9" * (_BODY - 8)), b"digits"),
        "a string": (person % (b'"%s"' % (b"\\u00e9" * (_BODY // 6 - 9))), b"fullName"),
        "numbers": (person % (b"[%s0]" % ((b"9" * 90 + b",") * (_BODY // 91 - 1))), b"fullName"),
    }
    return await _refused(
        arena,
        {
            name: _Kind(arena.request("POST", "/customers", body), control)
            for name, (body, control) in bodies.items()
        },
    )


async def _long_queries(arena: Arena) -> Strike:
    """Send queries above the limit of a head, and below it those that have other limits."""
    many = "&".join(f"x{number}=1" for number in range(12_000))
    allowed = "&".join(f"x{number}={'%41' * 90}" for number in range(MAX_PARAMETERS))
    queries = {
        "62 KB": (many[:_QUERY], b"headers too large"),
        "parameters": (many[:_HEAD], b"query parameters"),
        "parameters without names": ("&" * _HEAD, b"query parameters"),
        "as many parameters as allowed": (allowed, b'"errors"'),
        "one that comes twice": ("limit=1&" * (MAX_PARAMETERS - 1), b"duplicate query parameter"),
        "a long cursor": ("cursor=" + "%41" * (_HEAD // 3), b"cursor"),
        "an id that is encoded twice": ("customerId=" + "%2541" * (_HEAD // 5), b"customerId"),
    }
    return await _refused(
        arena,
        {
            name: _Kind(arena.request("GET", f"/transactions?{query}"), control)
            for name, (query, control) in queries.items()
        },
    )


async def _authorizations(arena: Arena) -> Strike:
    card, amounts = cycle(arena.attacker.cards), itertools.cycle(range(100, 1000))

    def authorization() -> bytes:
        body = {"amount": next(amounts), "currency": {"code": "USD"}, "merchant": MERCHANT}
        return arena.request("POST", f"/sandbox/cards/{card()}/simulate/authorization", body)

    arena.begin()
    flood = await arena.flood(authorization, 256)
    return flood.strike(*_SHARED, processed=(200,))


async def _lists(arena: Arena) -> Strike:
    with arena.stage.connect() as connection:
        values = {
            "customer": arena.attacker.customers[0].partition(":")[2],
            "platform": arena.attacker.platform_id,
            "count": _DELIVERIES,
        }
        connection.execute(_ADD_DELIVERIES.encode(), values)
    path = cycle(
        [
            "/webhooks/deliveries?limit=1",
            "/webhooks/deliveries?limit=1&state=DELIVERED",
            f"/webhooks/deliveries?limit=1&subjectId={quote(arena.attacker.cards[0])}",
            "/transactions?limit=1",
            "/customers?limit=1",
            "/cards?limit=1&state=CLOSED",
        ]
    )
    arena.begin()
    flood = await arena.flood(lambda: arena.request("GET", path()), 64)
    return flood.strike(*_SHARED, processed=(200,))


ATTACKS: Final = (
    Attack(
        item="A2",
        name="unknown fields",
        aim="bodies of 1 MB with 130,000 unknown fields, and the worst of 64 KB, block the event"
        " loop",
        run=_unknown_fields,
    ),
    Attack(
        item="A2",
        name="long queries",
        aim="queries of 62 KB, and the worst of 15 KB, block the event loop",
        run=_long_queries,
    ),
    Attack(
        item="A6",
        name="authorizations",
        aim="256 connections of authorizations delay another platform's",
        run=_authorizations,
    ),
    Attack(
        item="A6",
        name="lists",
        aim=f"lists that count {_DELIVERIES:,} deliveries take the database's time",
        run=_lists,
    ),
)
