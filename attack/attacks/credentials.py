"""Credentials: guesses against who is new to a process, many tokens, ended ones, secrets again."""

import asyncio
import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from attack.arena import Arena, Attack, Party
from attack.attacks.guesses import POLICY, agent_token
from attack.judge import Measure, Refusals, Strike
from attack.wire import Address, Answer, Connection, basic
from storm.system import CLIENT

WAIT_LIMIT_S: Final = 2.0
"""What right credentials wait for at most, beside any number of wrong ones."""

END_LIMIT_S: Final = 5.0
"""How long a token may count after its end: it is looked up again every three seconds."""

_FRESH: Final = 10  # Of each kind of credentials that a process has never seen.
_GUESSERS: Final = 16
_EXCEED_S: Final = 30.0
_RATE: Final = 200
_TOKENS: Final = 60
_AGENTS: Final = 10
_FAILURES: Final = 60  # The default of `CARDLEDGER_FAILURE_LIMIT`, a minute.
_MINUTE_S: Final = 60.0
_KEYS: Final = 4
_AT_ONCE: Final = 4
_ENDS_S: Final = 2.0
_USE_S: Final = 0.02
_AFTER_S: Final = END_LIMIT_S + 3.0


def _guesses(arena: Arena, client_id: str) -> Iterator[bytes]:
    """Yield wrong codes, bearers, ids that never existed, and secrets of `client_id`."""
    for number in itertools.count():
        code = f"AAAAA-AAAAA-{number % 100_000:05}".translate(str.maketrans("01", "23"))
        yield arena.request("POST", f"/agents/device-codes/{code}/redeem", by=None)
        yield arena.request("GET", "/agents/me", by=f"Bearer {uuid4()}")
        yield arena.request("GET", "/config", by=basic(str(uuid4()), "wrong"))
        yield arena.request("GET", "/config", by=basic(client_id, "wrong"))


async def _exceed(arena: Arena, wrong: Iterator[bytes]) -> None:
    """Send wrong credentials until the limit on failures of this address is exceeded.

    Raises: TimeoutError.
    """
    async with asyncio.timeout(_EXCEED_S):
        connection = arena.connection()
        refused: set[int] = set()
        while 429 not in refused:
            refused = {(await connection.exchange(next(wrong))).status for _ in range(4)}
        await asyncio.sleep(1)  # The processes exchange their counts.


async def _new_agent(arena: Arena, party: Party) -> dict[str, Any]:
    body = {"name": "Bookkeeper", "customerId": party.customers[0], "policy": POLICY}
    return await arena.made("/agents", body, by=party.authorization)


async def _token(arena: Arena, party: Party, **fields: object) -> dict[str, Any]:
    body = {"name": "till", "permissions": ["VIEW"]} | fields
    return await arena.made("/tokens", body, by=party.authorization)


def _login(token: Mapping[str, Any]) -> str:
    return basic(token["clientId"], token["clientSecret"])


async def _new_to_a_process(arena: Arena) -> Strike:
    """Use credentials in a process that has just started, beside a flood of wrong ones."""
    victim = arena.victim
    bearers = [await agent_token(arena, victim) for _ in range(_FRESH)]
    codes = [(await _new_agent(arena, victim))["deviceCode"]["code"] for _ in range(_FRESH)]
    tokens = [await _token(arena, victim) for _ in range(_FRESH)]
    right = [
        request
        for bearer, code, token in zip(bearers, codes, tokens, strict=True)
        for request in (
            arena.request("GET", "/agents/me", by=f"Bearer {bearer}"),
            arena.request("POST", f"/agents/device-codes/{code}/redeem", by=None),
            arena.request("GET", "/config", by=_login(token)),
        )
    ]
    wrong = _guesses(arena, victim.access.client_id)
    await _exceed(arena, wrong)
    with arena.another_api() as address:
        arena.begin()
        flood, answers = await asyncio.gather(
            arena.flood(lambda: next(wrong), _GUESSERS, address=address),
            _in_turn(arena, right, address),
        )
        arena.end()
    for token in tokens:
        await arena.call("DELETE", f"/tokens/{token['id']}", by=victim.authorization)
    refused = sum(not 200 <= answer.status < 300 for answer, _ in answers)
    return flood.strike(
        400,
        401,
        404,
        429,
        processed=(429,),
        proof=f"; {len(answers)} right credentials for the first time",
        measures=[
            Measure(name="right credentials refused", value=refused, limit=0),
            Measure(
                name="right credentials wait",
                value=max((took_s for _, took_s in answers), default=math.inf),
                limit=WAIT_LIMIT_S,
                unit="s",
            ),
        ],
    )


async def _in_turn(
    arena: Arena, requests: list[bytes], address: Address
) -> list[tuple[Answer, float]]:
    """Send each request once, spread over the time; return the answers and what they took."""
    answers = []
    for whole in requests:
        connection = Connection(address)
        began = time.perf_counter()
        answers.append((await connection.exchange(whole), time.perf_counter() - began))
        connection.abort()
        await asyncio.sleep(arena.seconds / (len(requests) + 1))
    return answers


async def _many_tokens(arena: Arena) -> Strike:
    """Use many tokens and agents at once: their platform has one limit, and its agents another."""
    party = arena.attacker
    logins = itertools.cycle([_login(await _token(arena, party)) for _ in range(_TOKENS)])
    bearers = itertools.cycle([await agent_token(arena, party) for _ in range(_AGENTS)])
    with arena.another_api(CARDLEDGER_RATE_LIMIT=f"{_RATE}/minute") as address:
        arena.begin()
        by_token, by_agent = await asyncio.gather(
            arena.flood(
                lambda: arena.request("GET", "/config", by=next(logins)), 16, address=address
            ),
            arena.flood(
                lambda: arena.request("GET", "/agents/me", by=f"Bearer {next(bearers)}"),
                16,
                address=address,
            ),
        )
        arena.end()
    # A window may end during the attack, and another one begin.
    most = _RATE * (1 + math.ceil(arena.seconds / _MINUTE_S))
    strike = by_token.strike(200, 429, processed=(429,))
    return Strike(
        struck=strike.struck,
        proof=f"{_TOKENS} tokens: {by_token.words()}; {_AGENTS} agents: {by_agent.words()}",
        measures=[
            *strike.measures,
            *by_agent.strike(200, 429, processed=(429,)).measures,
            Measure(name="requests of all tokens", value=by_token.statuses[200], limit=most),
            Measure(name="requests of all agents", value=by_agent.statuses[200], limit=most),
        ],
    )


async def _forged_addresses(arena: Arena) -> Strike:
    """Name other addresses in headers: to guess on, and to use a token of another network."""
    inside = "203.0.113.7"
    token = await _token(arena, arena.attacker, allowedAddresses=["203.0.113.0/24"])
    refusals = Refusals(["a guess", "a token of another network"])
    numbers = itertools.count()
    judged = 0

    def forged(address: str) -> dict[str, str]:
        return {
            "X-Forwarded-For": address,
            "X-Real-IP": address,
            "Forwarded": f"for={address};host=x;proto=https",
            "X-Forwarded-Proto": "https",
        }

    async def guess(connection: Connection) -> None:
        nonlocal judged
        while arena.is_on:
            number = next(numbers)
            headers = forged(f"198.51.{number // 256 % 256}.{number % 256}")
            wrong = basic(str(uuid4()), "wrong")
            whole = arena.request("GET", "/config", by=wrong, headers=headers)
            status = (await connection.exchange(whole)).status
            refusals.note("a guess", status)
            judged += status == 401
            whole = arena.request("GET", "/config", by=_login(token), headers=forged(inside))
            refusals.note("a token of another network", (await connection.exchange(whole)).status)

    arena.begin()
    await asyncio.gather(*(guess(arena.connection()) for _ in range(8)))
    arena.end()
    most = _FAILURES * (1 + math.ceil(arena.seconds / _MINUTE_S))
    return refusals.strike(Measure(name="guesses that were judged", value=judged, limit=most))


async def _repeated_secrets(arena: Arena) -> Strike:
    """Repeat requests that return secrets with their keys; only one response may have a secret."""
    party = arena.attacker
    agent = (await _new_agent(arena, party))["agent"]["id"]
    token = (await _token(arena, party))["id"]
    url = {"url": "http://127.0.0.1:9/", "state": "DISABLED"}
    endpoint = (await arena.made("/webhooks/endpoints", url))["id"]
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada 003"}
    customer = (await arena.made("/customers", person))["id"]
    new = {"name": "Saver", "customerId": party.customers[0], "policy": POLICY}
    operations: list[tuple[str, object, str]] = [
        ("/tokens", {"name": "x", "permissions": ["VIEW"]}, "clientSecret"),
        (f"/tokens/{token}/rotate-secret", {}, "clientSecret"),
        ("/webhooks/endpoints", url, "secret"),
        (f"/webhooks/endpoints/{endpoint}/rotate-secret", {}, "secret"),
        ("/agents", new, "deviceCode.code"),
        (f"/agents/{agent}/device-codes", None, "code"),
        (f"/customers/{customer}/kyc-link", None, "kycUrl"),
    ]
    requests = [
        (path, body, secret, str(uuid4()))
        for path, body, secret in operations
        for _ in range(_KEYS)
    ]
    shown: defaultdict[str, int] = defaultdict(int)
    sent = 0
    other: list[str] = []

    async def repeat(connection: Connection) -> None:
        nonlocal sent
        for path, body, secret, key in requests:
            headers = {"Idempotency-Key": key}
            answer = await connection.exchange(arena.request("POST", path, body, headers=headers))
            sent += 1
            shown[key] += answer.status in range(200, 300) and _has(answer.json(), secret)
            if answer.status not in {200, 201, 429}:
                other.append(f"{path}: {answer.status} {answer.body[:80]!r}")

    connections = [arena.connection() for _ in range(_AT_ONCE)]
    arena.begin()
    while arena.is_on:
        await asyncio.gather(*(repeat(connection) for connection in connections))
    return Strike(
        struck=sent,
        proof="; ".join([f"{sent:,} requests with {len(requests)} keys", *other[:1]]),
        measures=[
            Measure(
                name="secrets returned again",
                value=sum(max(0, count - 1) for count in shown.values()),
                limit=0,
            ),
            Measure(
                name="secrets never returned",
                value=sum(not count for count in shown.values()),
                limit=0,
            ),
            Measure(name="answers of other statuses", value=len(other), limit=0),
        ],
    )


def _has(found: Any, path: str) -> bool:  # noqa: ANN401 - JSON
    """Return whether an answer has the field at `path`."""
    for name in path.split("."):
        found = found.get(name) or {}
    return bool(found)


# --- tokens that have ended -----------------------------------------------------------------------


async def _expire(_arena: Arena, _token: Mapping[str, Any]) -> None:
    await asyncio.sleep(_ENDS_S)


async def _delete(arena: Arena, token: Mapping[str, Any]) -> None:
    await asyncio.sleep(_ENDS_S)
    await arena.call("DELETE", f"/tokens/{token['id']}")


async def _rotate(arena: Arena, token: Mapping[str, Any]) -> None:
    await asyncio.sleep(_ENDS_S)
    await arena.call("POST", f"/tokens/{token['id']}/rotate-secret", {"overlapHours": 0})


async def _revoke(arena: Arena, token: Mapping[str, Any]) -> None:
    """Delete it in the database, as the operator does: no process of the API is told."""
    command = [sys.executable, "-m", "cardledger", "platform", "revoke", token["clientId"]]
    running = await asyncio.create_subprocess_exec(
        *command,
        env=arena.stage.environment(CLIENT),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await running.wait():
        raise RuntimeError("cardledger platform revoke failed")


_ENDS: Final[Mapping[str, Callable[[Arena, Mapping[str, Any]], Awaitable[None]]]] = {
    "expired": _expire,
    "deleted": _delete,
    "rotated": _rotate,
    "revoked": _revoke,
}


class _Use:
    """Uses a token without a pause: how often it passed and was refused, when it last passed."""

    def __init__(self, arena: Arena, login: str) -> None:
        self._arena: Final = arena
        self._login: Final = login
        self._is_over = False
        self.passed = 0
        self.refused = 0
        self.last_at = 0.0

    async def play(self) -> None:
        """Use it until `stop`."""
        connection = self._arena.connection()
        whole = self._arena.request("GET", "/config", by=self._login)
        while not self._is_over:
            sent_at = time.monotonic()
            status = (await connection.exchange(whole)).status
            if status == 200:
                self.passed, self.last_at = self.passed + 1, sent_at
            self.refused += status in {401, 429}
            await asyncio.sleep(_USE_S)

    def stop(self) -> None:
        """Use it no longer."""
        self._is_over = True


async def _ended(arena: Arena, way: str) -> tuple[_Use, float]:
    """End a new token; return its use, and how long it went on to count."""
    ends_at = datetime.now(UTC) + timedelta(seconds=_ENDS_S)
    fields = {"expiresAt": ends_at.isoformat()} if way == "expired" else {}
    use = _Use(arena, _login(token := await _token(arena, arena.attacker, **fields)))
    using = asyncio.create_task(use.play())
    await _ENDS[way](arena, token)
    ended_at = time.monotonic()
    await asyncio.sleep(_AFTER_S)
    use.stop()
    await using
    return use, max(0.0, use.last_at - ended_at)


async def _ended_tokens(arena: Arena) -> Strike:
    """Use tokens without a pause until after their end, again and again."""
    uses: defaultdict[str, list[tuple[_Use, float]]] = defaultdict(list)
    arena.begin()
    while arena.is_on:
        found = await asyncio.gather(*(_ended(arena, way) for way in _ENDS))
        for way, one in zip(_ENDS, found, strict=True):
            uses[way].append(one)
    arena.end()
    every = [one for ended in uses.values() for one in ended]
    unplayed = sum(not use.passed or not use.refused for use, _ in every)
    return Strike(
        struck=sum(use.passed for use, _ in every),
        proof=f"{len(every)} tokens ended; {sum(use.refused for use, _ in every):,} uses refused",
        measures=[
            Measure(name="tokens that were not used before and after", value=unplayed, limit=0),
            *(
                Measure(
                    name=f"a token counts, {way}",
                    value=max(took_s for _, took_s in ended),
                    limit=END_LIMIT_S,
                    unit="s",
                )
                for way, ended in uses.items()
            ),
        ],
    )


ATTACKS: Final = (
    Attack(
        item="A5",
        name="new to a process",
        aim="wrong credentials lock out who has not been seen since a process started",
        run=_new_to_a_process,
    ),
    Attack(
        item="A5",
        name="many tokens",
        aim=f"{_TOKENS} tokens and {_AGENTS} agents have the limit of their platform each",
        run=_many_tokens,
    ),
    Attack(
        item="A5",
        name="forged addresses",
        aim="headers that name other addresses evade the limit on failures, or a token's networks",
        run=_forged_addresses,
    ),
    Attack(
        item="B8",
        name="repeated secrets",
        aim="a repetition with the same key returns a secret again",
        run=_repeated_secrets,
    ),
    Attack(
        item="B8",
        name="ended tokens",
        aim="a token that has expired, or was deleted, rotated or revoked, goes on to count",
        run=_ended_tokens,
    ),
)
