"""A program with full access to Redis: it forges, deletes, renames, blocks and floods.

At the end the processes are told to stop while it goes on, and every answer that the other platform
got is compared with the record in PostgreSQL.
"""

import asyncio
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit

from redis import Redis, RedisError
from redis.exceptions import NoPermissionError, ResponseError

from attack.arena import Arena, Attack, yield_processor
from attack.judge import Measure, Sample, Strike
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.workers.client.replies import LISTS
from cardledger.workers.signals import doorbell
from storm.system import WORKERS, System

DECISION_LIMIT_MS: Final = 2_000.0
STOP_LIMIT_S: Final = 30.0
WORKER_STOP_LIMIT_S: Final = 10.0
"""Within which a worker has ended, whatever it is doing."""

_SHARDS: Final = 200_000
_SMALL: Final = 450
_BIG: Final = 16 * 1024 * 1024
_KEYS: Final = "cardledger:*"
_PAUSE_S: Final = 0.02
_RING_S: Final = 0.5
_BUSY_S: Final = 6.0  # Until a new worker takes work from the queues.

Deed = Callable[[Redis, random.Random], int]
"""Strikes once; returns how many keys, messages or clients it struck."""


def _keys(redis: Redis, pattern: str) -> list[bytes]:
    return list(itertools.islice(redis.scan_iter(pattern, count=1000), 1000))


def _forge_replies(redis: Redis, _chance: random.Random) -> int:
    """Turn declines into approvals in the replies that wait to be read, and add invented ones."""
    struck = 0
    for name in _keys(redis, f"{LISTS}*"):
        replies: Any = redis.lrange(name, 0, 50)
        for place, reply in enumerate(replies):
            redis.execute_command("LSET", name, place, _approved(reply))  # type: ignore[no-untyped-call]
            struck += 1
        invented = b"%s APPLIED %s" % (new_id().hex().encode(), b'{"outcome":"APPLIED"}')
        redis.rpush(name, invented, b"junk", b"0 " * 10_000)
        struck += 1
    return struck


def _approved(reply: bytes) -> bytes:
    return reply.replace(b"DECLINED", b"APPLIED").replace(b"INSUFFICIENT_FUNDS", b"")


def _steal_replies(redis: Redis, _chance: random.Random) -> int:
    """Take replies away, and put them back changed where their reader may still be waiting."""
    struck = 0
    for name in _keys(redis, f"{LISTS}*"):
        with suppress(RedisError):
            reply: Any = redis.lpop(name)
            if reply:
                redis.rpush(name, _approved(reply))
                struck += 1
    return struck


def _ring(redis: Redis, chance: random.Random) -> int:
    """Announce work in shards that do not exist, and in the form of other messages."""
    for queue in (doorbell.LIVE_QUEUE, doorbell.BULK_QUEUE, doorbell.PERIODIC_QUEUE):
        announced, messages, order, wake = doorbell.keys_of(queue)
        many = (int(Lane.LIVE), *range(_SHARDS))
        forms: Sequence[tuple[str, Sequence[object]]] = [
            (doorbell.DRAIN, many),
            ("x", many),
            (doorbell.DRAIN, (99, -1)),
            (doorbell.DRAIN, ({"a": 1},)),
            (doorbell.DRAIN, ()),
            # Shorter than the longest message that is read, and fewer than are taken.
            *((doorbell.DRAIN, _shards(number, 16)) for number in range(_SMALL)),
            *((doorbell.DRAIN, _shards(number, 100)) for number in range(_SMALL)),
        ]
        forged = {
            f"forged-{chance.random()}": _message(queue, args, actor) for actor, args in forms
        }
        redis.hset(messages, mapping=forged)  # type: ignore[arg-type]
        redis.rpush(order, *forged)
        redis.sadd(announced, *(f"{doorbell.DRAIN}:{shard}" for shard in range(16)))
        redis.lpush(wake, *["1"] * 100)
    return 1


def _shards(number: int, size: int) -> list[int]:
    """Return arguments with `size` shards that do not exist."""
    return [int(Lane.LIVE), *range(SHARDS + number * size, SHARDS + (number + 1) * size)]


def _message(queue: str, args: Sequence[object], actor: str) -> bytes:
    fields = {
        "queue_name": queue,
        "actor_name": actor,
        "args": args,
        "kwargs": {},
        "options": {},
        "message_id": str(new_id()),
        "message_timestamp": int(time.time() * 1000),
    }
    return json.dumps(fields).encode()


def _count(redis: Redis, _chance: random.Random) -> int:
    """Raise the counts of rate limits beyond every limit."""
    struck = 0
    for name in _keys(redis, "cardledger:counts:*"):
        redis.hset(name, mapping={"x": b"1000000:" + b"0" * 64, "y": b"junk"})
        struck += 1
    return struck


def _change_types(redis: Redis, _chance: random.Random) -> int:
    """Put a text in the place of every list, set and hash."""
    names = _keys(redis, _KEYS) + [
        name.encode() for queue in doorbell.QUEUES.values() for name in doorbell.keys_of(queue)
    ]
    for name in names:
        redis.set(name, "a text")
    return len(names)


def _rename(redis: Redis, chance: random.Random) -> int:
    names = _keys(redis, _KEYS)
    chance.shuffle(names)
    struck = 0
    for one, other in itertools.pairwise(names):
        with suppress(RedisError):
            redis.rename(one, other)
            struck += 1
    return struck


def _delete(redis: Redis, _chance: random.Random) -> int:
    redis.flushall()
    return 1


def _pause(redis: Redis, _chance: random.Random) -> int:
    redis.client_pause(700)
    return 1


def _block(redis: Redis, _chance: random.Random) -> int:
    """Keep the server busy with one script."""
    script = "local n = 0 for i = 1, 30000000 do n = n + i end return n"
    with suppress(RedisError):  # It may end the session of who waits for too long.
        redis.eval(script, 0)
    return 1


def _disconnect(redis: Redis, _chance: random.Random) -> int:
    found: Any = redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
    return int(found)


def _swell(redis: Redis, _chance: random.Random) -> int:
    """Make what the processes read large."""
    for queue in doorbell.QUEUES.values():
        _, messages, order, wake = doorbell.keys_of(queue)
        with suppress(RedisError):
            redis.hset(messages, "big", b"x" * _BIG)
            redis.rpush(order, "big", *["nothing"] * 5_000)
            redis.lpush(wake, *["1"] * 5_000)
    for name in _keys(redis, f"{LISTS}*"):
        with suppress(RedisError):
            redis.rpush(name, b"y" * _BIG)
    return 1


DEEDS: Final[dict[str, Deed]] = {
    "forged replies": _forge_replies,
    "stolen replies": _steal_replies,
    "doorbells": _ring,
    "counts": _count,
    "wrong types": _change_types,
    "renamed": _rename,
    "emptied": _delete,
    "paused": _pause,
    "blocked": _block,
    "disconnected": _disconnect,
    "big keys": _swell,
}

_OFTEN: Final = ("forged replies", "stolen replies")
"""Before each other deed, because replies are taken within milliseconds."""


class _Program:
    """Strikes in a thread until it is stopped."""

    def __init__(self, system: System) -> None:
        self._system: Final = system
        self._stopping: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="redis", daemon=True)
        self.struck: Final[Counter[str]] = Counter()
        self.failed: Final[Counter[str]] = Counter()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        yield_processor()
        chance = random.Random(1)
        with self._system.redis_client() as redis:
            for deed in itertools.cycle(name for name in DEEDS if name not in _OFTEN):
                # Each kind for a moment, so that the next finds what it strikes.
                for name in [*_OFTEN, deed] * 2:
                    if self._stopping.wait(_PAUSE_S):
                        return
                    self._strike(redis, chance, name)

    def _strike(self, redis: Redis, chance: random.Random, name: str) -> None:
        try:
            self.struck[name] += DEEDS[name](redis, chance)
        except (RedisError, OSError) as error:
            self.failed[f"{name}: {type(error).__name__}"] += 1


async def _full_access(arena: Arena) -> Strike:
    program = _Program(arena.stage)
    arena.begin()
    program.start()
    try:
        await arena.run_out()
        arena.end()
        stops = {
            name: await asyncio.to_thread(_seconds_to_stop, process.stop)
            for name, process in arena.stage.processes.items()
        }
    finally:
        await asyncio.to_thread(program.stop)
    words = ", ".join(f"{count:,} {name}" for name, count in program.struck.items())
    never = [name for name in DEEDS if not program.struck[name]]
    return Strike(
        struck=program.struck.total(),
        proof=words,
        measures=[
            Measure(
                name=f"kinds that never struck {never or ''}".strip(), value=len(never), limit=0
            ),
            *(
                Measure(
                    name=f"SIGTERM to the end of {name}", value=took_s, limit=STOP_LIMIT_S, unit="s"
                )
                for name, took_s in stops.items()
            ),
        ],
    )


async def _doorbells(arena: Arena) -> Strike:
    """Announce work in shards that do not exist, while a worker is told to stop."""
    rung, stops = 0, []

    def ring() -> None:
        nonlocal rung
        chance = random.Random(2)
        with arena.stage.redis_client() as redis:
            while arena.is_on:
                rung += _ring(redis, chance)
                time.sleep(_RING_S)
            for queue in (*doorbell.QUEUES.values(), doorbell.PERIODIC_QUEUE):
                redis.delete(*doorbell.keys_of(queue))

    def stop_one() -> float:
        arguments = ["worker", "--only", "events"]
        with arena.stage.another(WORKERS[0], arguments, {}) as process:
            time.sleep(_BUSY_S)
            if not process.is_running:
                raise RuntimeError("the worker ended by itself")
            return _seconds_to_stop(process.stop)

    arena.begin()
    ringing = asyncio.create_task(asyncio.to_thread(ring))
    while arena.is_on:
        stops.append(await asyncio.to_thread(stop_one))
    arena.end()
    await ringing
    return Strike(
        struck=rung,
        proof=f"{rung:,} times {_SHARDS:,} shards announced; {len(stops)} workers stopped",
        measures=[
            Measure(
                name="SIGTERM to the end of a worker",
                value=max(stops),
                limit=WORKER_STOP_LIMIT_S,
                unit="s",
            )
        ],
    )


def _seconds_to_stop(stop: Callable[[], None]) -> float:
    began = time.monotonic()
    stop()
    return time.monotonic() - began


_USERS: Final = Path(__file__).parents[2] / "docs" / "redis-users.acl"
_PREFIX: Final = "cardledger_"
_FORBIDDEN: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "api": [
        ["RPUSH", "cardledger:replies:1", "x"],
        ["BLPOP", "cardledger:webhooks.wake", "1"],
        ["EVAL", "return redis.call('RPUSH', KEYS[1], 'x')", "1", "cardledger:replies:1"],
    ],
    "worker": [
        ["BLPOP", "cardledger:replies:1", "1"],
        ["LRANGE", "cardledger:replies:1", "0", "1"],
        ["HSET", "cardledger:counts:x:1", "a", "1"],
        ["GET", "cardledger:traces:x"],
    ],
    "webhooks": [
        ["RPUSH", "cardledger:replies:1", "x"],
        ["RPUSH", "cardledger:live", "x"],
        ["HGETALL", "cardledger:counts:x:1"],
        ["EVAL", "return 1", "0"],
    ],
}
"""What the user of each role must not do to what belongs to the others."""

_ADMINISTRATION: Final[Sequence[Sequence[str]]] = [
    ["FLUSHALL"],
    ["CONFIG", "GET", "*"],
    ["CONFIG", "SET", "dir", "/"],
    ["KEYS", "*"],
    ["SCAN", "0"],
    ["ACL", "LIST"],
    ["ACL", "SETUSER", "other", "on", "nopass", "+@all"],
    ["CLIENT", "PAUSE", "100"],
    ["CLIENT", "KILL", "TYPE", "normal"],
    ["MODULE", "LIST"],
    ["SAVE"],
    ["SHUTDOWN"],
    ["MONITOR"],
    ["REPLICAOF", "NO", "ONE"],
    ["SET", "another:application", "x"],
    ["PUBLISH", "x", "x"],
]


async def _stolen_logins(arena: Arena) -> Strike:
    """Use the users of the documentation, each beyond its role."""
    password = token_hex(16)
    tried, refused = 0, 0
    passed: set[str] = set()

    def play() -> None:
        nonlocal tried, refused
        users = _users(password)
        with arena.stage.redis_client() as owner:
            for name, rules in users.items():
                owner.execute_command("ACL", "SETUSER", name, "reset", *rules)
            try:
                while arena.is_on:
                    for role, others in _FORBIDDEN.items():
                        with _as_user(arena, f"{_PREFIX}{role}", password) as redis:
                            redis.ping()
                            for command in (*others, *_ADMINISTRATION):
                                tried += 1
                                if _is_refused(redis, command):
                                    refused += 1
                                else:
                                    passed.add(f"{role}: {' '.join(command)}")
            finally:
                owner.execute_command("ACL", "DELUSER", *users)

    arena.begin()
    await asyncio.to_thread(play)
    names = ", ".join(sorted(passed))
    return Strike(
        struck=refused,
        proof=f"{tried:,} commands of {len(_FORBIDDEN)} users"
        + (f"; passed: {names}" if names else "; none passed"),
        measures=[Measure(name="kinds of commands that pass", value=len(passed), limit=0)],
    )


def _users(password: str) -> dict[str, list[str]]:
    """Return the rules of the documented users of our roles, all with `password`."""
    lines = (line.split() for line in _USERS.read_text(encoding="utf-8").splitlines())
    return {
        words[1]: [
            f">{password}" if rule.endswith("_PASSWORD") else rule for rule in _rules(words[2:])
        ]
        for words in lines
        if words[:1] == ["user"] and words[1].startswith(_PREFIX)
    }


def _rules(words: Sequence[str]) -> list[str]:
    """Return rules as the command takes them: a selector in parentheses is one argument."""
    rules: list[str] = []
    for word in words:
        if rules and rules[-1].startswith("(") and not rules[-1].endswith(")"):
            rules[-1] += f" {word}"
        else:
            rules.append(word)
    return rules


def _as_user(arena: Arena, name: str, password: str) -> Redis:
    url = urlsplit(arena.stage.redis.url)
    netloc = f"{name}:{password}@{url.netloc.rpartition('@')[2]}"
    return Redis.from_url(url._replace(netloc=netloc).geturl(), socket_timeout=5)


def _is_refused(redis: Redis, command: Sequence[str]) -> bool:
    """Say whether there is no permission for a command; an error of another kind has passed."""
    try:
        redis.execute_command(*command)  # type: ignore[no-untyped-call]
    except NoPermissionError:
        return True
    except ResponseError as error:
        return "permission" in str(error) or "can't" in str(error)
    except RedisError:
        return False
    return False


def differing(system: System, samples: Sequence[Sample]) -> list[str]:
    """Return the answers that the record in PostgreSQL contradicts."""
    answered = {
        sample.subject.rpartition(":")[2]: sample.state
        for sample in samples
        if sample.status == 200
    }
    with system.connect() as connection:
        rows = connection.execute(
            "SELECT id::text, status FROM card_transactions WHERE id = ANY(%s::uuid[])",
            [list(answered)],
        ).fetchall()
    record = dict(rows)
    return [
        f"{key}: answered {state}, recorded {record.get(key)}"
        for key, state in answered.items()
        if record.get(key) != state
    ]


ATTACKS: Final = (
    Attack(
        item="A4",
        name="doorbells",
        aim=f"doorbells for {_SHARDS:,} shards stop decisions, and keep a worker from its end",
        run=_doorbells,
        longest_ms=DECISION_LIMIT_MS,
    ),
    Attack(
        item="B7",
        name="stolen Redis logins",
        aim="the Redis user of a role does what another one may, or administers the server",
        run=_stolen_logins,
    ),
    Attack(
        item="B7",
        name="full access to Redis",
        aim="forges, deletes, renames, blocks and floods",
        run=_full_access,
        longest_ms=DECISION_LIMIT_MS,
        ends_system=True,
    ),
)
