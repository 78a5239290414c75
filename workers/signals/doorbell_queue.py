"""Takes doorbells from Redis: a few at a time, and only those that our own senders could have sent.

Whatever else is found under the keys of a queue is deleted, at a bounded cost for each call. A
doorbell is taken once and never put back: the sweeper finds the work that it announced.
Source: docs/decisions/0041-redis-is-not-trusted.md
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import redis
from pydantic_core import from_json

from cardledger.ledger.messaging.inbox import SHARDS
from cardledger.workers.signals.doorbell import (
    DRAIN,
    REPAIR,
    TOKEN_LIMIT,
    Doorbell,
    keys_of,
)
from cardledger.workers.signals.repeated_warning import RepeatedWarning

_SIZE_LIMIT: Final = 1024  # Bytes of a message; one for all shards has 300.
_ID_LIMIT: Final = 64
_LENGTH_LIMIT: Final = 1000  # Doorbells that wait in a queue; senders leave one for each shard.

MALFORMED: Final = RepeatedWarning("malformed doorbells dropped; check who writes to Redis")
"""What was dropped, for this process."""

# A queue that is longer than senders make it is emptied, because sweepers find the work sooner.
# What a message announces is named as by `Doorbell.subjects`; unreadable ones announce nothing.
_TAKE: Final = f"""
    {REPAIR}
    local announced, messages, queue, wake_list = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
    local count, size_limit, id_limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
    local length_limit, token_limit = tonumber(ARGV[4]), tonumber(ARGV[5])
    local function may_be_announced(body)
        local message = cjson.decode(body)
        local actor, args = message.actor_name, message.args
        if #args == 0 then redis.call('SREM', announced, actor .. '()') end
        for place = actor == '{DRAIN}' and 2 or 1, #args do
            redis.call('SREM', announced, string.format('%s:%d', actor, args[place]))
        end
    end
    local dropped = repair(announced, 'set') + repair(messages, 'hash')
        + repair(queue, 'list') + repair(wake_list, 'list')
    local longest = math.max(redis.call('LLEN', queue), redis.call('HLEN', messages),
        redis.call('SCARD', announced))
    if longest > length_limit then
        dropped = dropped + longest
        redis.call('UNLINK', queue, messages, announced)
    end
    if redis.call('LLEN', wake_list) > token_limit then redis.call('UNLINK', wake_list) end
    local taken = {{}}
    for _ = 1, length_limit do
        local id = #taken < count and redis.call('LPOP', queue)
        if not id then break end
        local size = #id <= id_limit and redis.call('HSTRLEN', messages, id) or 0
        if 0 < size and size <= size_limit then
            taken[#taken + 1] = redis.call('HGET', messages, id)
            pcall(may_be_announced, taken[#taken])
        else
            dropped = dropped + 1
        end
        redis.call('HDEL', messages, id)
    end
    return {{dropped, taken}}
"""


def take(
    client: redis.Redis, queue: str, count: int, accepts: Callable[[Doorbell], bool]
) -> tuple[list[Doorbell], bool]:
    """Take up to `count` doorbells of `queue`, and say whether there may be more.

    Returned are those that are valid and accepted, however old: their time is that of the sender's
    clock, and one that is moot costs a claim of nothing.
    What they announce may be announced again from now on.
    Messages that are too large are dropped and do not count: behind them a doorbell would wait for
    the next time, which is a second later.
    Bounds: one round trip; `count` messages of 1 KB.
    Raises: redis.RedisError.
    """
    limits = count, _SIZE_LIMIT, _ID_LIMIT, _LENGTH_LIMIT, TOKEN_LIMIT
    dropped, bodies = client.eval(_TAKE, 4, *keys_of(queue), *limits)
    taken = list(_read(bodies, queue, accepts))
    dropped += len(bodies) - len(taken)
    if dropped:
        MALFORMED.note(dropped, queue=queue)
    return taken, len(bodies) == count


def _read(
    bodies: Sequence[bytes], queue: str, accepts: Callable[[Doorbell], bool]
) -> Iterator[Doorbell]:
    for body in bodies:
        doorbell = _parse(body, queue)
        if doorbell is not None and accepts(doorbell):
            yield doorbell


def _parse(body: bytes, queue: str) -> Doorbell | None:
    """Return the doorbell in a message of Dramatiq; None if malformed.

    Options are ignored: they could have the message delayed, repeated or sent on.
    """
    try:
        fields = from_json(body)
    except ValueError:
        return None
    match fields:
        case {
            "queue_name": str(name),
            "actor_name": str(actor),
            "args": list(args),
            "kwargs": dict(named),
            "message_timestamp": int(),
        } if name == queue and not named:
            if len(args) <= 1 + SHARDS and all(type(argument) is int for argument in args):
                return Doorbell(queue, actor, tuple(args))
    return None
