"""Guesses, and as many credentials as can be made at once."""

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from secrets import token_hex
from typing import Any, Final
from uuid import uuid4

from attack.arena import Arena, Attack, Party
from attack.judge import Measure, Strike
from attack.victim import MERCHANT
from attack.wire import Answer, Connection, basic

POLICY: Final = {
    "permissions": ["VIEW_TRANSACTIONS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 5},
}

TIMING_LIMIT: Final = 1.25
"""The larger of two medians of latencies, divided by the smaller."""

_TOKENS: Final = 300
_COUNTED: Final = ("customers", "cards")
_MORE: Final = 50
_CREATORS: Final = 64
_SECRET: Final = 43  # Characters of the secret at the end of an agent's token.

_COMPANY: Final = {
    "legalName": "Acme Inc.",
    "taxId": "12-3456789",
    "incorporatedOn": "2001-02-03",
}
_OWNER: Final = {
    "roles": ["UBO"],
    "ownershipPercentage": 0,
    "personalInfo": {
        "firstName": "Ada",
        "lastName": "Lovelace",
        "birthDate": "1978-06-15",
        "nationality": "US",
        "address": {
            "line1": "123 Pine Street",
            "city": "Seattle",
            "state": "WA",
            "postalCode": "98101",
            "country": "US",
        },
        "idType": "SSN",
        "identifier": "123-45-6789",
    },
}


async def agent_token(arena: Arena, party: Party) -> str:
    """Return the access token of a new agent of `party`."""
    body = {"name": "Bookkeeper", "customerId": party.customers[0], "policy": POLICY}
    agent = await arena.made("/agents", body, by=party.authorization)
    code = agent["deviceCode"]["code"]
    redeemed = await arena.made(f"/agents/device-codes/{code}/redeem", None, by=None)
    return str(redeemed["accessToken"])


async def _wrong_secrets(arena: Arena) -> Strike:
    token = await agent_token(arena, arena.victim)
    right = f"Bearer {token}"
    login = basic(arena.attacker.access.client_id, "wrong")
    # Of the agent itself, and of the other platform: with their own ids, and not their secrets.
    own = f"Bearer {token[:-_SECRET]}{'A' * _SECRET}"
    other = basic(arena.victim.access.client_id, "wrong")
    refused, asked = 0, 0

    def guess(number: int) -> bytes:
        kind = number % 6
        if kind == 0:
            code = f"AAAAA-AAAAA-{number % 100_000:05}".translate(str.maketrans("01", "23"))
            return arena.request("POST", f"/agents/device-codes/{code}/redeem", by=None)
        ids = basic(str(uuid4()), "wrong")
        wrong = (None, f"Bearer {uuid4()}", own, ids, login, other)[kind]
        return arena.request("GET", "/agents/me" if kind <= 2 else "/config", by=wrong)

    async def use_agent() -> None:
        nonlocal refused, asked
        connection = arena.connection()
        while arena.is_on:
            answer = await connection.exchange(arena.request("GET", "/agents/me", by=right))
            asked += 1
            refused += answer.status != 200
            await asyncio.sleep(0.1)

    numbers = itertools.count()
    arena.begin()
    flood, _ = await asyncio.gather(arena.flood(lambda: guess(next(numbers)), 16), use_agent())
    return flood.strike(
        400,
        401,
        404,
        429,
        measures=[
            Measure(name="requests of the agent refused", value=refused, limit=0),
            Measure(name="times the agent sent nothing", value=0 if asked else 1, limit=0),
        ],
    )


async def _caps(arena: Arena) -> Strike:
    customer, account = arena.attacker.customers[0], arena.attacker.accounts[0]
    agent = await arena.made(
        "/agents",
        {"name": "Bookkeeper", "customerId": customer, "policy": POLICY},
    )
    company = {"customerType": "BUSINESS", "businessInfo": _COMPANY}
    business = (await arena.made("/customers", company))["id"]
    # The sandbox has no verdict about this name, so the customer still needs its link.
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada 003"}
    unverified = (await arena.made("/customers", person))["id"]
    paths: Iterator[tuple[str, dict[str, Any] | None]] = itertools.cycle(
        [
            ("/tokens", {"name": "till", "permissions": ["VIEW"]}),
            (f"/agents/{agent['agent']['id']}/device-codes", None),
            ("/webhooks/endpoints", {"url": "http://127.0.0.1:9/", "state": "DISABLED"}),
            ("/cards", {"cardholderId": customer, "form": "VIRTUAL", "fundingSources": [account]}),
            ("/customers/external-accounts", {"customerId": customer, "currency": "USDC"}),
            ("/customers/internal-accounts", {"customerId": customer, "currency": "USD"}),
            ("/agents", {"name": "Saver", "customerId": customer, "policy": POLICY}),
            ("/beneficial-owners", _OWNER | {"customerId": business}),
            (f"/customers/{unverified}/kyc-link", None),
        ]
    )

    def creation() -> bytes:
        path, body = next(paths)
        if path == "/customers/external-accounts":
            # Its last three characters are no value to which the sandbox has a result of its own.
            wallet = {"accountType": "POLYGON_WALLET", "address": f"0x{token_hex(19)}aa"}
            body = (body or {}) | {"accountInfo": wallet}
        return arena.request("POST", path, body)

    arena.begin()
    flood = await arena.flood(creation, _TOKENS)
    return flood.strike(201, 409, 429, 503, processed=(201,), proof=f" on {_TOKENS} connections")


_SMALL_QUOTA: Final = """
    INSERT INTO row_quotas (platform_id, resource, rows)
    SELECT %(platform)s, resource, coalesce(sum(rows), 0) + %(more)s
    FROM row_counts WHERE platform_id = %(platform)s AND resource = ANY(%(resources)s)
    GROUP BY resource
"""

_ABOVE_QUOTA: Final = """
    SELECT q.resource, greatest(0, sum(c.rows) - q.rows)
    FROM row_quotas q JOIN row_counts c USING (platform_id, resource)
    WHERE q.platform_id = %(platform)s GROUP BY q.resource, q.rows
"""


async def _quotas(arena: Arena) -> Strike:
    """Create customers and cards at once beyond the quotas, which are small for this platform."""
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    cards = itertools.cycle(
        {"cardholderId": customer, "form": "VIRTUAL", "fundingSources": [account]}
        for customer, account in zip(arena.attacker.customers, arena.attacker.accounts, strict=True)
    )
    paths = itertools.cycle(["/customers", "/cards"])

    def creation() -> bytes:
        path = next(paths)
        return arena.request("POST", path, person if path == "/customers" else next(cards))

    with arena.stage.connect() as connection:
        values = {
            "platform": arena.attacker.platform_id,
            "resources": list(_COUNTED),
            "more": _MORE,
        }
        small = connection.execute(_SMALL_QUOTA.encode(), values).rowcount
    arena.begin()
    flood = await arena.flood(creation, _CREATORS)
    arena.end()
    with arena.stage.connect() as connection:
        above = connection.execute(_ABOVE_QUOTA.encode(), values).fetchall()
        # What is inserted at the same moment may be above it, so this platform has none from now.
        connection.execute("DELETE FROM row_quotas WHERE platform_id = %(platform)s", values)
    return flood.strike(
        201,
        409,
        429,
        503,
        processed=(409,),
        proof=f"; {_MORE} more of each allowed",
        measures=[
            Measure(name="quotas not set", value=len(_COUNTED) - small, limit=0),
            *(
                Measure(name=f"{resource} above the quota", value=int(rows), limit=_CREATORS)
                for resource, rows in above
            ),
        ],
    )


async def _timing(arena: Arena) -> Strike:
    """Compare a card of the other platform with ids that never existed, one after the other."""
    cards = arena.victim.cards
    body = {"amount": 100, "currency": {"code": "USD"}, "merchant": MERCHANT}
    ways = {
        "shown": ("GET", "/cards/{}", None),
        "authorized": ("POST", "/sandbox/cards/{}/simulate/authorization", body),
        "revealed": ("POST", "/cards/{}/reveal", {}),
    }
    seconds: dict[tuple[str, bool], list[float]] = {
        (way, exists): [] for way in ways for exists in (True, False)
    }
    found = 0
    connection = arena.connection()
    arena.begin()
    for number in itertools.count():
        if not arena.is_on:
            break
        # The order changes, so that what the first of two pays for is paid by both.
        kinds = (True, False) if number % 2 else (False, True)
        for (way, (method, path, content)), exists in itertools.product(ways.items(), kinds):
            card = cards[number % len(cards)] if exists else f"Card:{uuid4()}"
            answer, taken = await _timed(
                connection, arena.request(method, path.format(card), content)
            )
            found += answer.status != 404
            seconds[way, exists].append(taken)
    return Strike(
        struck=min(len(taken) for taken in seconds.values()),
        proof=f"{len(seconds['shown', True]):,} pairs of each of {len(ways)} kinds of request",
        measures=[
            Measure(name="answers other than 404", value=found, limit=0),
            *(
                Measure(
                    name=f"ratio of medians in percent: {way}",
                    value=_ratio(seconds[way, True], seconds[way, False]) * 100,
                    limit=TIMING_LIMIT * 100,
                )
                for way in ways
            ),
        ],
    )


async def _timed(connection: Connection, whole: bytes) -> tuple[Answer, float]:
    began = time.perf_counter()
    answer = await connection.exchange(whole)
    return answer, time.perf_counter() - began


def _ratio(one: list[float], other: list[float]) -> float:
    medians = sorted(statistics.median(values or [0.0]) for values in (one, other))
    return medians[1] / medians[0] if medians[0] else float("inf")


ATTACKS: Final = (
    Attack(
        item="A5",
        name="wrong secrets",
        aim="wrong codes, bearers and passwords from its address lock an agent out",
        run=_wrong_secrets,
    ),
    Attack(
        item="A5",
        name="caps at once",
        aim=f"{_TOKENS} concurrent requests make more tokens, codes, endpoints than allowed",
        run=_caps,
    ),
    Attack(
        item="A6",
        name="quotas of rows",
        aim=f"{_CREATORS} concurrent requests make more rows than the quota of a platform",
        run=_quotas,
    ),
    Attack(
        item="B12",
        name="timing of cards",
        aim="the time of a refusal tells whether another platform's card exists",
        run=_timing,
    ),
)
