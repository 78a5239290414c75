"""Too much of what is allowed, and large requests that are refused."""

import itertools
from typing import Final
from urllib.parse import quote

from attack.arena import Arena, Attack, Flood, cycle
from attack.judge import Measure, Strike
from attack.victim import MERCHANT

REFUSAL_LIMIT: Final = 16 * 1024
"""Bytes of the answer to a refused request."""

_UNKNOWN_FIELDS: Final = 130_000
_QUERY: Final = 62 * 1024
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


def _refusals(flood: Flood) -> Strike:
    size = Measure(name="largest answer", value=flood.largest, limit=REFUSAL_LIMIT, unit="B")
    return flood.strike(*_REFUSED, measures=[size])


async def _unknown_fields(arena: Arena) -> Strike:
    body = b"{" + b",".join(b'"%05x":0' % number for number in range(_UNKNOWN_FIELDS)) + b"}"
    whole = arena.request("POST", "/customers", body[: 1 << 20])
    arena.begin()
    return _refusals(await arena.flood(lambda: whole, 8))


async def _long_queries(arena: Arena) -> Strike:
    query = "&".join(f"x{number}=1" for number in range(12_000))[:_QUERY]
    whole = arena.request("GET", f"/transactions?{query}")
    arena.begin()
    return _refusals(await arena.flood(lambda: whole, 8))


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
        aim="bodies of 1 MB with 130,000 unknown fields block the event loop",
        run=_unknown_fields,
    ),
    Attack(
        item="A2",
        name="long queries",
        aim="queries of 62 KB block the event loop",
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
