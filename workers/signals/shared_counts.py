"""Counts that processes share over Redis: rate limits add their own and read the totals.

Each process signs what it has counted, in a field of its own; what is not signed does not
count. So a program that writes to Redis can hide the counts of other processes, as an outage does,
and can neither add to them nor take away what this process has counted itself.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError, ResponseError

from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.workers.signals.message_key import MessageKey
from cardledger.workers.signals.redis_connections import connect_async
from cardledger.workers.signals.repeated_warning import RepeatedWarning

EXCHANGE_LIMIT: Final = 500
"""The most increments of one exchange; each has two keys in Redis, of its window and the last."""

WRONG_TYPE: Final = RepeatedWarning("counts of another type deleted; check who writes to Redis")
"""Keys of counts that hold no hash."""

_KEY: Final = "cardledger:counts:{name}:{window}"
_OWN_LIMIT: Final = 100_000  # Counts of this process that are kept, of those used last.
_PROCESS_LIMIT: Final = 256  # Fields of a count that are verified; more are not ours.


class SharedCountsUnavailableError(Exception):
    """Redis did not answer; the counts may or may not have been added. Add them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """An addition to the counter `name` of a window, which Redis forgets after `expires_s`."""

    name: str
    window: int
    times: int
    expires_s: int


class SharedCounts:
    """Counters in Redis, by name and window."""

    def __init__(self, redis_url: str, secret_key: str | ServerKey) -> None:
        """Connect on the first exchange; counts are signed with a key derived from the server's."""
        self._redis: Final = connect_async(redis_url, timeout_s=1.0, connect_timeout_s=0.5)
        self._key: Final = MessageKey(secret_key)
        self._process: Final = new_id().hex().encode()
        self._own: Final[OrderedDict[str, int]] = OrderedDict()  # What this process has counted.

    async def exchange(self, increments: Sequence[Increment]) -> list[tuple[int, int]]:
        """Add `increments`; return for each the total of its window and of the window before.

        At most `EXCHANGE_LIMIT` increments. A key of another type is replaced, and counts nothing.
        Raises: SharedCountsUnavailableError.
        """
        assert len(increments) <= EXCHANGE_LIMIT
        own: dict[str, int] = {}
        for increment in increments:
            now, _ = _keys_of(increment)
            own[now] = own.get(now, self._own.get(now, 0)) + increment.times
        try:
            replies = await self._send(increments, own)
            damaged = _damaged(increments, replies)
            if damaged:
                WRONG_TYPE.note(len(damaged), key=damaged[0])
                await self._replace(damaged, increments, own)
        except (RedisError, OSError) as error:
            raise SharedCountsUnavailableError(str(error)) from error
        self._keep(own)
        return [
            (self._total(now, counts), self._total(before, counts_before))
            for (now, before), counts, counts_before in zip(
                map(_keys_of, increments), replies[2::4], replies[3::4], strict=True
            )
        ]

    async def _send(self, increments: Sequence[Increment], own: Mapping[str, int]) -> list[Any]:
        """Return four replies to each increment: to two commands, and both counts or errors."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for increment in increments:
                now, before = _keys_of(increment)
                await pipeline.hset(now, self._process, self._signed(now, own[now]))  # Queues it.
                await pipeline.expire(now, increment.expires_s)
                await pipeline.hgetall(now)
                await pipeline.hgetall(before)
            # By key: an error of one key does not keep the others from being counted.
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            return replies

    async def _replace(
        self, damaged: Collection[str], increments: Sequence[Increment], own: Mapping[str, int]
    ) -> None:
        """Delete the keys `damaged`, and put what this process has counted in their place."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key in damaged:
                await pipeline.expire(
                    key, 0
                )  # Deletes it; docs/redis-users.acl has no `unlink` here.
            for increment in increments:
                now, _ = _keys_of(increment)
                if now in damaged:
                    await pipeline.hset(now, self._process, self._signed(now, own[now]))
                    await pipeline.expire(now, increment.expires_s)
            await pipeline.execute(raise_on_error=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def _keep(self, own: Mapping[str, int]) -> None:
        for key, number in own.items():
            self._own[key] = number
            self._own.move_to_end(key)
        while len(self._own) > _OWN_LIMIT:
            self._own.popitem(last=False)

    def _total(self, key: str, counts: Mapping[bytes, bytes] | ResponseError) -> int:
        """Return the sum of the signed `counts` at `key`, by process, and of this process's own."""
        total = self._own.get(key, 0)
        if isinstance(counts, ResponseError) or len(counts) > _PROCESS_LIMIT:
            return total
        for process, signed in counts.items():
            number, _, signature = signed.partition(b":")
            if process != self._process and self._key.verify(
                key, process + b":" + number, signature
            ):
                total += int(number)
        return max(0, total)

    def _signed(self, key: str, number: int) -> bytes:
        signature = self._key.sign(key, b"%s:%d" % (self._process, number))
        return b"%d:%s" % (number, signature)


def _keys_of(increment: Increment) -> tuple[str, str]:
    """Return the keys of the count of its window and of the window before."""
    name, window = increment.name, increment.window
    return _KEY.format(name=name, window=window), _KEY.format(name=name, window=window - 1)


def _damaged(increments: Sequence[Increment], replies: Sequence[Any]) -> list[str]:
    """Return the keys of another type among those of `increments`.

    Raises: RedisError when a command was refused for another reason, which no key explains.
    """
    keys = [key for now, before in map(_keys_of, increments) for key in (now, now, now, before)]
    damaged: dict[str, None] = {}
    for key, reply in zip(keys, replies, strict=True):
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            damaged[key] = None
        elif isinstance(reply, RedisError):
            raise reply
    return list(damaged)
