"""A program with the API's login to PostgreSQL: what it may write, forge, move and see."""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import psycopg
from psycopg import errors

from attack.arena import Arena, Attack
from attack.judge import Measure, Strike
from attack.wire import basic
from cardledger.ledger.messaging.inbox import DEPOSIT, Lane, shard_of
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import location, platform_views, roles
from cardledger.schema.ids import Id
from storm.system import API

FACTS: Final = {
    "internal_accounts": "balance",
    "card_transactions": "settled",
    "card_transaction_events": "amount",
    "entries": "amount",
    "outcomes": "outcome",
    "deposits": "amount",
}
"""The tables that only a decision of the engine may write, each with a column of it."""

_FORGED: Final = 500_000_000
_CLAIMED_S: Final = 30.0

Session = psycopg.Connection[Any]


def login(arena: Arena) -> Session:
    """Return a connection of the API's login to the tables."""
    return psycopg.connect(arena.stage.environment(API)["DATABASE_URL"], autocommit=True)


def views(arena: Arena, platform_id: Id | None) -> Session:
    """Return a connection of the API's login to its views, as requests of the platform use one."""
    url = arena.stage.environment(API)["DATABASE_URL"]
    path = platform_views.search_path(location.name_in(url))
    session = psycopg.connect(url, autocommit=True, options=f"-c search_path={path}")
    if platform_id is not None:
        setting = [platform_views.SETTING, str(platform_id)]
        session.execute("SELECT set_config(%s, %s, false)", setting)
    return session


def passes(session: Session, statement: str, *values: object) -> bool:
    """Say whether there is the right for a statement; whatever it did is undone."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(statement.encode(), values or None)
    except errors.InsufficientPrivilege:
        return False
    except (errors.IntegrityError, errors.DataError):
        return True  # The right is there; another row would have been written.
    return True


def writes(table: str, column: str) -> list[tuple[str, str]]:
    """Return what must not pass for `table`: names and statements, which lock no row."""
    return [
        (f"UPDATE {table}", f"UPDATE {table} SET {column} = {column} WHERE false"),
        (f"INSERT {table}", f"INSERT INTO {table} SELECT * FROM {table} WHERE false"),
        (f"DELETE {table}", f"DELETE FROM {table} WHERE false"),
    ]


_MINT: Final = f"UPDATE internal_accounts SET balance = balance + {_FORGED} WHERE id = %s"


async def _facts(arena: Arena) -> Strike:
    account = Id.parse(arena.attacker.accounts[0].partition(":")[2])
    statements = [one for table, column in FACTS.items() for one in writes(table, column)]
    tried = 0
    passed: set[str] = set()
    arena.begin()

    def play() -> None:
        nonlocal tried
        platform_id = arena.attacker.platform_id
        with closing(login(arena)) as tables, closing(views(arena, platform_id)) as seen:
            while arena.is_on:
                for session in (tables, seen):
                    for name, statement in statements:
                        tried += 1
                        if passes(session, statement):
                            passed.add(name)
                    tried += 1
                    if passes(session, _MINT, account):
                        passed.add("money for the own account")

    await asyncio.to_thread(play)
    names = ", ".join(sorted(passed))
    return Strike(
        struck=tried,
        proof=f"{tried:,} statements against {len(FACTS)} tables"
        + (f"; passed: {names}" if names else "; none passed"),
        measures=[Measure(name="kinds of writes that pass", value=len(passed), limit=0)],
    )


def _sum_of(session: Session, platform_id: Id) -> int:
    found = session.execute(
        "SELECT coalesce(sum(balance), 0)::bigint FROM internal_accounts WHERE platform_id = %s",
        [platform_id],
    ).fetchone()
    assert found is not None
    return int(found[0])


_FORGE: Final = """
    INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference, body,
        body_hash, reply_to, received_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, NULL, now())
"""


async def _forged_deposits(arena: Arena) -> Strike:
    """Write deposits into the inbox, as only a process with the key of acceptors should."""
    account = Id.parse(arena.attacker.accounts[0].partition(":")[2])
    customer = Id.parse(arena.attacker.customers[0].partition(":")[2])
    platform = arena.attacker.platform_id
    tried, written = 0, 0

    def forge(session: Session) -> None:
        nonlocal tried, written
        key, reference = new_id(), secrets.token_hex(8)
        body = {
            "type": DEPOSIT,
            "source": "sandbox",
            "reference": reference,
            "accountId": str(account),
            "amount": _FORGED,
        }
        values = (
            int(Lane.LIVE), shard_of(customer), key, customer, platform, "sandbox", reference,
            json.dumps(body), secrets.token_bytes(32),
        )  # fmt: skip
        tried += 1
        try:
            session.execute(_FORGE.encode(), values)
        except errors.InsufficientPrivilege:
            return
        written += 1

    with arena.stage.connect() as owner:
        before = _sum_of(owner, platform)
        arena.begin()
        await _repeated(arena, forge, pause_s=0.1)
        arena.end()
        await until_claimed(owner, platform)
        gained = _sum_of(owner, platform) - before
        kept = count(owner, "forged_messages", platform)
        # What cannot be decided must not stand in the way of the attacks to come.
        owner.execute("DELETE FROM inbox WHERE platform_id = %s", [platform])
    return Strike(
        struck=tried,
        proof=f"{tried:,} rows tried, {written:,} written, {kept:,} of them kept as forged,"
        f" {gained:,} minor units gained",
        measures=[
            Measure(name="minor units from nothing", value=gained, limit=0),
            Measure(name="forged rows that are not kept", value=written - kept, limit=0),
        ],
    )


def count(session: Session, table: str, platform_id: Id) -> int:
    statement = f"SELECT count(*) FROM {table} WHERE platform_id = %s"
    [(count,)] = session.execute(statement.encode(), [platform_id])
    return int(count)


_OPEN: Final = """
    INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status, created_at,
        updated_at)
    VALUES (%s, %s, %s, 'EUR', 'INTERNAL_FIAT', 'ACTIVE', now(), now())
"""
_QUOTE: Final = f"""
    INSERT INTO quotes (id, platform_id, customer_id, status, transaction_id, source_account_id,
        destination_account_id, sending_currency, receiving_currency, locked_side, sending_amount,
        receiving_amount, fee_amount, fee_fixed, fee_bps, rate_numerator, rate_denominator,
        created_at, expires_at, updated_at)
    SELECT %(id)s, %(platform)s, %(customer)s, 'PENDING', gen_random_uuid(), %(source)s,
        %(destination)s, currency, 'EUR', 'SENDING', 1, {_FORGED}, 0, 0, 0, {_FORGED}, 1, now(),
        now() + interval '1 hour', now()
    FROM internal_accounts WHERE id = %(source)s
"""
_ARRIVED: Final = f"""
    INSERT INTO transfers (id, platform_id, customer_id, kind, destination_account_id, amount,
        currency, status, needs_approval, requested_at, created_at, updated_at)
    SELECT %(id)s, %(platform)s, %(customer)s, 'RECEIVED', %(source)s, {_FORGED}, currency,
        'PENDING', true, now(), now(), now()
    FROM internal_accounts WHERE id = %(source)s
"""
_CONFLICT: Final = 409


async def _forged_quotes(arena: Arena) -> Strike:
    """Insert quotes and payments that promise money, and execute and approve them honestly."""
    source = Id.parse(arena.attacker.accounts[0].partition(":")[2])
    customer = Id.parse(arena.attacker.customers[0].partition(":")[2])
    platform = arena.attacker.platform_id
    euros = new_id()
    kinds = (
        (_QUOTE, "/quotes/Quote:{}/execute"),
        (_ARRIVED, "/transactions/Transaction:{}/approve"),
    )
    statuses: Counter[int] = Counter()
    with (
        arena.stage.connect() as owner,
        closing(await asyncio.to_thread(views, arena, platform)) as session,
    ):
        session.execute(_OPEN, [euros, customer, platform])
        before = _sum_of(owner, platform)
        arena.begin()
        while arena.is_on:
            for statement, path in kinds:
                key = new_id()
                row = {
                    "id": key,
                    "platform": platform,
                    "customer": customer,
                    "source": source,
                    "destination": euros,
                }
                await asyncio.to_thread(session.execute, statement.encode(), row)
                statuses[(await arena.call("POST", path.format(key))).status] += 1
            await asyncio.sleep(0.1)
        arena.end()
        await until_claimed(owner, platform)
        gained = _sum_of(owner, platform) - before
    return Strike(
        struck=statuses.total(),
        proof=f"{statuses.total():,} rows inserted; answers {dict(statuses)}; {gained:,} minor"
        " units gained",
        measures=[
            Measure(name="minor units from nothing", value=gained, limit=0),
            Measure(name="no quote was refused", value=int(not statuses[_CONFLICT]), limit=0),
        ],
    )


async def until_claimed(owner: Session, platform_id: Id) -> None:
    """Wait, for some time at most, until no message of the platform is left in the inbox."""
    deadline = time.monotonic() + _CLAIMED_S
    while time.monotonic() < deadline:
        if not count(owner, "inbox", platform_id):
            return
        await asyncio.sleep(0.2)


async def _repeated(arena: Arena, deed: Callable[[Session], None], *, pause_s: float) -> None:
    with closing(await asyncio.to_thread(login, arena)) as session:
        while arena.is_on:
            await asyncio.to_thread(deed, session)
            await asyncio.sleep(pause_s)


_MOVE: Final = """
    INSERT INTO api_tokens (id, platform_id, name, client_id, secret_hash, permissions, scopes,
        created_at)
    VALUES (%s, %s, 'moved', %s, %s, %s, %s, now())
"""


def _moves_token(arena: Arena) -> bool:
    """Say whether the own token becomes one of the other platform, with its client id."""
    own = arena.attacker
    take = (
        "DELETE FROM api_tokens WHERE client_id = %s RETURNING client_id, secret_hash, permissions,"
        " scopes"
    )
    with (
        closing(views(arena, own.platform_id)) as session,
        session.transaction(force_rollback=True),
    ):
        [row] = session.execute(take.encode(), [own.access.client_id])
        setting = [platform_views.SETTING, str(arena.victim.platform_id)]
        session.execute("SELECT set_config(%s, %s, false)", setting)
        return passes(session, _MOVE, new_id(), arena.victim.platform_id, *row)


async def _moved_hash(arena: Arena) -> Strike:
    """Copy the hash of an own secret into a token of the other platform, and log in with it."""
    access, victim_id = arena.attacker.access, arena.victim.platform_id
    tried, moved, refused, entered, taken = 0, 0, 0, 0, 0
    arena.begin()
    with closing(await asyncio.to_thread(login, arena)) as session:
        [own] = session.execute(
            "SELECT secret_hash, permissions, scopes FROM api_tokens WHERE client_id = %s",
            [access.client_id],
        )
    with closing(await asyncio.to_thread(views, arena, victim_id)) as session:
        while arena.is_on:
            client_id = secrets.token_hex(12)
            tried += 1
            taken += await asyncio.to_thread(_moves_token, arena)
            try:
                session.execute(_MOVE.encode(), [new_id(), victim_id, client_id, *own])
            except errors.InsufficientPrivilege:
                continue
            moved += 1
            forged = basic(client_id, access.client_secret)
            answer = await arena.call("GET", "/config", by=forged)
            entered += answer.status == 200
            refused += answer.status in {401, 429}  # The latter after too many wrong secrets.
            with arena.stage.connect() as owner:
                owner.execute("DELETE FROM api_tokens WHERE client_id = %s", [client_id])
    return Strike(
        struck=tried,
        proof=f"{moved:,} of {tried:,} hashes moved, {entered:,} logins as the other platform;"
        f" {taken:,} of {tried:,} tokens moved with their client id",
        measures=[
            Measure(name="tokens moved with their client id", value=taken, limit=0),
            Measure(name="logins as the other platform", value=entered, limit=0),
            Measure(name="logins that were not refused", value=moved - refused, limit=0),
        ],
    )


async def _unfiltered(arena: Arena) -> Strike:
    """Read without naming a platform, as a forgotten condition would, by views and beside them."""
    beside = set(platform_views.VIEWS) - roles.API_ON_TABLES.keys()
    tried = 0
    seen: set[str] = set()
    arena.begin()

    def play() -> None:
        nonlocal tried
        with closing(login(arena)) as tables, closing(views(arena, None)) as own:
            while arena.is_on:
                for session, names in ((own, platform_views.VIEWS), (tables, beside)):
                    for table in names:
                        tried += 1
                        if _shows(session, table):
                            seen.add(table)

    await asyncio.to_thread(play)
    return Strike(
        struck=tried,
        proof=f"{tried:,} queries of {len(platform_views.VIEWS)} tables without a platform",
        measures=[Measure(name="tables that show rows", value=len(seen), limit=0)],
    )


def _shows(session: Session, table: str) -> bool:
    """Return whether a query without a condition finds a row."""
    try:
        return session.execute(f"SELECT FROM {table} LIMIT 1".encode()).rowcount > 0
    except errors.InsufficientPrivilege:
        return False


ATTACKS: Final = (
    Attack(
        item="B9",
        name="writes as the API",
        aim="the API's database role changes balances, events, entries or outcomes",
        run=_facts,
    ),
    Attack(
        item="B9",
        name="forged inbox rows",
        aim="the API's database role makes money with rows of the inbox",
        run=_forged_deposits,
    ),
    Attack(
        item="B9",
        name="forged quotes",
        aim="the API's database role makes money with quotes that honest requests execute",
        run=_forged_quotes,
    ),
    Attack(
        item="B9",
        name="forgotten conditions",
        aim="a query of the API without a platform shows other platforms' rows",
        run=_unfiltered,
    ),
    Attack(
        item="B10",
        name="moved hashes",
        aim="the hash of an own secret opens another platform",
        run=_moved_hash,
    ),
)
