"""Programs with the other logins to PostgreSQL, with the server key, or with moved secrets."""

import asyncio
import base64
import hmac
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import psycopg

from attack.arena import Arena, Attack
from attack.attacks.database import FACTS, Session, login, passes, until_claimed, views
from attack.attacks.webhooks import PAUSE_LIMIT_S, Arrivals
from attack.judge import Measure, Strike
from attack.victim import MERCHANT
from cardledger.install import credentials, databases
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import DEPOSIT, Lane, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.webhooks import signatures
from cardledger.schema import location, roles
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.schema.wire.network_events import EventType
from cardledger.webhooks.receiver import Listener, Reply
from storm.system import ENQUEUE, WEBHOOKS, WORKERS

_HISTORY: Final = ("card_transaction_events", "entries", "outcomes", "deposits")
"""Facts that a worker may add, and that no login may change."""

_SIGNING: Final = frozenset({"platforms", "webhook_endpoints", "webhook_signing_keys"})
"""Tables whose secrets the sender of webhooks signs with."""

_PAUSE_S: Final = 0.1


def _logins(arena: Arena) -> dict[Role, str]:
    """Return the logins that are not the API's, by role."""
    stage = arena.stage
    kept = credentials.load(stage.home / "data")
    people = (Role.READER, Role.FINANCE)
    return {
        Role.WORKER: stage.environment(WORKERS[0])["DATABASE_URL"],
        Role.WEBHOOKS: stage.environment(WEBHOOKS)["DATABASE_URL"],
        Role.SUBMIT: stage.environment(ENQUEUE)["DATABASE_URL"],
    } | {role: databases.login(stage.owner_url, role, kept) for role in people}


def _forbidden(role: Role, schema: str) -> Iterator[tuple[str, str]]:
    """Yield what must not pass for `role`: names and statements, which lock no row."""
    for table, column in FACTS.items():
        if role is Role.WORKER and table not in _HISTORY:
            continue
        named = f"{schema}.{table}"
        yield f"UPDATE {table}", f"UPDATE {named} SET {column} = DEFAULT WHERE false"
        yield f"DELETE {table}", f"DELETE FROM {named} WHERE false"
        yield f"TRUNCATE {table}", f"TRUNCATE {named}"
        if role is not Role.WORKER:
            yield f"INSERT {table}", f"INSERT INTO {named} DEFAULT VALUES"
    if role is not Role.WORKER:
        yield "INSERT inbox", f"INSERT INTO {schema}.inbox DEFAULT VALUES"
    for table, columns in roles.SECRETS.items():
        if role is not Role.WEBHOOKS or table not in _SIGNING:
            for column in columns:
                yield f"{table}.{column}", f"SELECT {column} FROM {schema}.{table} WHERE false"


async def _other_logins(arena: Arena) -> Strike:
    urls = await asyncio.to_thread(_logins, arena)
    tried = 0
    passed: set[str] = set()
    arena.begin()

    def play() -> None:
        nonlocal tried
        with ExitStack() as stack:
            sessions = {
                role: stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
                for role, url in urls.items()
            }
            schema = location.name_in(arena.stage.owner_url)
            while arena.is_on:
                for role, session in sessions.items():
                    for name, statement in _forbidden(role, schema):
                        tried += 1
                        if passes(session, statement):
                            passed.add(f"{role}: {name}")

    await asyncio.to_thread(play)
    names = ", ".join(sorted(passed))
    return Strike(
        struck=tried,
        proof=f"{tried:,} statements of {len(urls)} logins"
        + (f"; passed: {names}" if names else "; none passed"),
        measures=[Measure(name="kinds of statements that pass", value=len(passed), limit=0)],
    )


# --- the server key -------------------------------------------------------------------------------


def _contradictions(arena: Arena, source: str) -> list[tuple[Owner, dict[str, Any]]]:
    """Return messages that contradict themselves, each with the owner that its row names."""
    own = Owner(_id(arena.attacker.customers[0]), arena.attacker.platform_id)
    # The other customer, as if it were one of the attacker's platform.
    taken = Owner(_id(arena.victim.customers[0]), arena.attacker.platform_id)
    mine, other = arena.attacker.cards[0], arena.victim.cards[0]
    event = {"amount": 1, "currency": "USD", "merchant": MERCHANT}
    purchase = event | {"type": EventType.AUTHORIZATION.value, "source": source}
    own_account, other_account = arena.attacker.accounts[0], arena.victim.accounts[0]

    def paid(account: str, by: str) -> dict[str, Any]:
        return {"type": DEPOSIT, "accountId": str(_id(account)), "amount": 1, "source": by}

    return [
        (own, purchase | {"cardId": other}),
        (taken, purchase | {"cardId": other}),
        (taken, purchase | {"cardId": mine}),
        (own, paid(other_account, "sandbox")),
        (taken, paid(other_account, "sandbox")),
        (own, paid(own_account, "transfers")),
        (own, purchase | {"cardId": mine, "source": "engine"}),
        (own, purchase | {"cardId": mine, "type": inbox.TRANSFER, "source": source}),
        (own, purchase | {"cardId": mine, "type": inbox.RECOVERY, "source": source}),
    ]


_APPLIED: Final = """
    SELECT count(*) FROM outcomes
    WHERE platform_id = %s AND reference LIKE %s AND outcome = 'APPLIED'
"""
_REFUSED: Final = """
    SELECT reason, count(*) FROM rejections
    WHERE platform_id = %s AND reference LIKE %s GROUP BY reason ORDER BY reason
"""
_INSERT: Final = f"INSERT INTO inbox VALUES ({', '.join(['%s'] * 12)})"


async def _signed_messages(arena: Arena) -> Strike:
    """Sign messages about what belongs to others, and in the name of other sources."""
    key, name = InboxKey(arena.stage.secret_key), secrets.token_hex(8)
    source = "attack"
    written = 0
    kinds = _contradictions(arena, source)
    arena.begin()
    with (
        arena.stage.connect() as owner,
        closing(await asyncio.to_thread(login, arena)) as session,
    ):
        while arena.is_on:
            for named, body in kinds:
                written += 1
                reference = f"{name}-{written}"
                message = inbox.address(
                    {"issuerTransactionToken": reference} | body | {"reference": reference},
                    named,
                    lane=Lane.LIVE,
                    reply_to=None,
                    at=datetime.now(UTC),
                )
                row = inbox.row_of(message, key)
                await asyncio.to_thread(session.execute, _INSERT.encode(), row)
            await asyncio.sleep(_PAUSE_S)
        arena.end()
        platform = arena.attacker.platform_id
        await until_claimed(owner, platform)
        values = [platform, f"{name}-%"]
        [(applied,)] = owner.execute(_APPLIED.encode(), values)
        refused = dict(owner.execute(_REFUSED.encode(), values).fetchall())
    words = ", ".join(f"{count:,} x {reason}" for reason, count in refused.items())
    return Strike(
        struck=written,
        proof=f"{written:,} messages of {len(kinds)} kinds with right MACs; {words}",
        measures=[
            Measure(name="messages that were applied", value=applied, limit=0),
            Measure(
                name="messages that were not refused",
                value=written - sum(refused.values()),
                limit=0,
            ),
        ],
    )


# --- sealed values --------------------------------------------------------------------------------


class _Inbox:
    """What an endpoint received: the headers and the body of each webhook."""

    def __init__(self) -> None:
        self._guard: Final = threading.Lock()
        self._received: Final[list[tuple[float, Mapping[str, str], bytes]]] = []

    def take(self, headers: dict[str, str], body: bytes) -> Reply:
        with self._guard:
            self._received.append((time.time(), headers, body))
        return Reply()

    def signed_with(self, secret: str, since: float) -> int:
        """Return how many webhooks that arrived `since` then are signed with `secret`."""
        with self._guard:
            received = list(self._received)
        return sum(
            _is_signed_with(secret, headers, body) for at, headers, body in received if at >= since
        )


def _is_signed_with(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix(signatures.SECRET_PREFIX))
    stamp = f"{headers[signatures.WEBHOOK_ID]}.{headers[signatures.WEBHOOK_TIMESTAMP]}."
    mac = base64.b64encode(hmac.digest(key, stamp.encode() + body, sha256)).decode()
    return f"v1,{mac}" in headers[signatures.WEBHOOK_SIGNATURE].split()


_SEALED: Final = "SELECT secret FROM webhook_endpoints WHERE id = %s"
_SEAL: Final = "UPDATE webhook_endpoints SET secret = %s, updated_at = now() WHERE id = %s"
_WAITING: Final = """
    SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = ANY(%s) AND state = 'PENDING'
"""


def _exchanged(sessions: Sequence[Session], endpoints: Sequence[Id]) -> int:
    """Give each of two endpoints the sealed secret of the other one; return how many changed."""
    found = [
        session.execute(_SEALED.encode(), [endpoint]).fetchone()
        for session, endpoint in zip(sessions, endpoints, strict=True)
    ]
    sealed = [row[0] for row in found if row is not None]
    return sum(
        session.execute(_SEAL.encode(), [value, endpoint]).rowcount
        for session, value, endpoint in zip(sessions, reversed(sealed), endpoints, strict=True)
    )


async def _moved_secrets(arena: Arena) -> Strike:
    """Exchange the sealed secrets of two endpoints of two platforms while webhooks are sent."""
    victim = arena.victim.authorization
    own_box, other_box, arrivals = _Inbox(), _Inbox(), Arrivals()
    with (
        Listener(own_box.take) as own_listener,
        Listener(other_box.take) as other_listener,
        Listener(arrivals.take) as beside,
    ):
        own = await arena.made("/webhooks/endpoints", {"url": own_listener.url})
        other = await arena.made("/webhooks/endpoints", {"url": other_listener.url}, by=victim)
        third = await arena.made("/webhooks/endpoints", {"url": beside.url}, by=victim)
        await asyncio.to_thread(arrivals.first.wait, 30)
        endpoints = [_id(own["id"]), _id(other["id"])]
        platforms = [arena.attacker.platform_id, arena.victim.platform_id]
        with ExitStack() as stack:
            sessions = [
                stack.enter_context(closing(await asyncio.to_thread(views, arena, platform)))
                for platform in platforms
            ]
            moved = await asyncio.to_thread(_exchanged, sessions, endpoints)
            moved_at = time.time() + 1  # What was being sent then has its right signature.
            arena.begin()
            sent = await _authorize(arena)
            arena.end()
            pause_s = arrivals.longest_pause_s(arena.began, arena.ended)
            with arena.stage.connect() as owner:
                [(waiting,)] = owner.execute(_WAITING.encode(), [endpoints])
            await asyncio.to_thread(_exchanged, sessions, endpoints)
        signed = own_box.signed_with(other["secret"], moved_at)
        signed += other_box.signed_with(own["secret"], moved_at)
        await arena.call("DELETE", f"/webhooks/endpoints/{own['id']}")
        for endpoint in (other, third):
            await arena.call("DELETE", f"/webhooks/endpoints/{endpoint['id']}", by=victim)
    return Strike(
        struck=moved,
        proof=f"{moved} sealed secrets moved; {waiting:,} webhooks of both endpoints wait,"
        f" {sent:,} of the attacker were caused",
        measures=[
            Measure(name="webhooks signed with a moved secret", value=signed, limit=0),
            Measure(name="times no webhook was to be signed", value=not waiting, limit=0),
            Measure(
                name="other platform's webhooks paused",
                value=pause_s,
                limit=PAUSE_LIMIT_S,
                unit="s",
            ),
        ],
    )


async def _authorize(arena: Arena) -> int:
    """Authorize a few times a second until the time is over; return how often it succeeded."""
    body = {"amount": 1, "currency": {"code": "USD"}, "merchant": MERCHANT}
    path = f"/sandbox/cards/{arena.attacker.cards[0]}/simulate/authorization"
    connection, count = arena.connection(), 0
    while arena.is_on:
        count += (await connection.exchange(arena.request("POST", path, body))).status == 200
        await asyncio.sleep(_PAUSE_S)
    return count


def _id(resource: str) -> Id:
    return Id.parse(resource.partition(":")[2])


ATTACKS: Final = (
    Attack(
        item="B9",
        name="writes as other roles",
        aim="the logins of workers, senders, readers and submitters write facts or read secrets",
        run=_other_logins,
    ),
    Attack(
        item="B9",
        name="signed messages",
        aim="messages with right MACs reach other platforms, or speak for other sources",
        run=_signed_messages,
    ),
    Attack(
        item="B10",
        name="moved secrets",
        aim="the sealed secret of an endpoint signs the webhooks of another platform",
        run=_moved_secrets,
    ),
)
