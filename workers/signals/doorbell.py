"""Doorbells: "there is work", without the work itself. Losing every one of them loses nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dramatiq import Message
from uuid_utils import uuid4

from cardledger.ledger.messaging.inbox import SHARDS, Lane

NAMESPACE: Final = "cardledger"
LIVE_QUEUE: Final = "live"
BULK_QUEUE: Final = "bulk"
PERIODIC_QUEUE: Final = "periodic"

QUEUES: Final = {Lane.LIVE: LIVE_QUEUE, Lane.BULK: BULK_QUEUE}
"""Queues by lane: a waiting file never delays an authorization."""

DRAIN: Final = "drain_inbox"
TOKEN_LIMIT: Final = 32
"""More wake tokens than any worker has threads to wake."""


@dataclass(frozen=True, slots=True)
class Doorbell:
    """What to run, on which queue."""

    queue: str
    actor: str
    args: tuple[int, ...] = ()

    @property
    def subjects(self) -> list[str]:
        """What it announces: the shards of its lane, or else one run of its actor."""
        args = self.args[1:] if self.actor == DRAIN else self.args
        return [f"{self.actor}:{arg}" for arg in args] or [f"{self.actor}()"]


CARDS: Final = Doorbell(PERIODIC_QUEUE, "activate_cards")
WEBHOOKS: Final = Doorbell(PERIODIC_QUEUE, "send_webhooks")


def drain(lane: Lane, *shards: int) -> Doorbell:
    """Return one doorbell for `shards` of a lane of the inbox."""
    return Doorbell(QUEUES[lane], DRAIN, (int(lane), *shards))


def drain_all(queues: Iterable[tuple[Lane, int]]) -> list[Doorbell]:
    """Return a doorbell for each lane in `queues`, with its shards in ascending order."""
    by_lane: dict[Lane, set[int]] = {}
    for lane, shard in queues:
        by_lane.setdefault(lane, set()).add(shard)
    return [drain(lane, *sorted(shards)) for lane, shards in by_lane.items()]


def exist(lane: object, shards: Sequence[object]) -> bool:
    """Return whether `lane` and each of `shards` exist; of these there are `SHARDS` at most."""
    return (
        type(lane) is int
        and lane in QUEUES
        and 0 < len(shards) <= SHARDS
        and all(type(shard) is int and 0 <= shard < SHARDS for shard in shards)
    )


def is_known(doorbell: Doorbell) -> bool:
    """Return whether `doorbell` is one that the functions here make."""
    match doorbell.args:
        case (lane, *shards) if doorbell.actor == DRAIN:
            return exist(lane, shards) and QUEUES[Lane(lane)] == doorbell.queue
        case _:
            return doorbell in (CARDS, WEBHOOKS)


def merged(doorbells: Iterable[Doorbell]) -> list[Doorbell]:
    """Return one doorbell in the place of all for one lane, and of all that are equal.

    Shape: at most one for each lane and each other actor, however many are given.
    """
    queues: list[tuple[Lane, int]] = []
    others: dict[Doorbell, None] = {}
    for doorbell in doorbells:
        if doorbell.actor == DRAIN:
            lane, *shards = doorbell.args
            queues += [(Lane(lane), shard) for shard in shards]
        else:
            others[doorbell] = None
    return [*drain_all(queues), *others]


class Pipeline(Protocol):
    """What sync and asyncio pipelines of redis-py have in common here."""

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> object: ...  # noqa: ANN401
    def lpush(self, name: str, *values: str) -> object: ...
    def ltrim(self, name: str, start: int, end: int) -> object: ...


REPAIR: Final = """
    local function repair(key, kind)
        local found = redis.call('TYPE', key).ok
        if found == kind or found == 'none' then return 0 end
        redis.call('UNLINK', key)
        return 1
    end
"""
"""A Lua function that deletes `key` if its type is not `kind`; every command on it would fail."""

# A doorbell is left out when what it announces is announced by doorbells that still wait. An empty
# queue has none, whatever the set says: the process that had taken them may have died.
_NOTIFY: Final = f"""
    {REPAIR}
    local announced, messages, queue, wake_list = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
    repair(announced, 'set') repair(messages, 'hash')
    repair(queue, 'list') repair(wake_list, 'list')
    local fresh = redis.call('SADD', announced, unpack(ARGV, 4))
    if fresh == 0 and redis.call('LLEN', queue) > 0 then return 0 end
    redis.call('HSET', messages, ARGV[1], ARGV[2])
    redis.call('RPUSH', queue, ARGV[1])
    redis.call('LPUSH', wake_list, '1')
    redis.call('LTRIM', wake_list, 0, ARGV[3] - 1)
    return 1
"""


def notify(pipeline: Pipeline, doorbells: Sequence[Doorbell]) -> None:
    """Put `doorbells` on `pipeline`, in the format that Dramatiq documents for other senders.

    However many are sent, those that wait are at most one for each subject.
    """
    for doorbell in doorbells:
        queue, redis_id = doorbell.queue, str(uuid4())
        message: Message[None] = Message(
            queue_name=queue,
            actor_name=doorbell.actor,
            args=doorbell.args,
            kwargs={},
            options={"redis_message_id": redis_id},
        )
        values = redis_id, message.encode(), TOKEN_LIMIT, *doorbell.subjects
        pipeline.eval(_NOTIFY, 4, *keys_of(queue), *values)


def wake(pipeline: Pipeline, queue: str) -> None:
    """Put a token on `pipeline` that wakes one sleeping consumer of `queue`."""
    pipeline.lpush(wake_list(queue), "1")
    pipeline.ltrim(wake_list(queue), 0, TOKEN_LIMIT - 1)


def keys_of(queue: str) -> tuple[str, str, str, str]:
    """Return the keys of `queue`: what is announced, the messages, their order, the wake list."""
    name = f"{NAMESPACE}:{queue}"
    return announced_set(queue), f"{name}.msgs", name, wake_list(queue)


def wake_list(queue: str) -> str:
    """Return the Redis list on which consumers of `queue` sleep."""
    return f"{NAMESPACE}:{queue}.wake"


def announced_set(queue: str) -> str:
    """Return the Redis set of what the waiting doorbells of `queue` announce.

    A consumer removes what the doorbells that it has taken announce before any of them is run: what
    is announced from then on is a new doorbell, so no work that is committed later is overlooked.
    """
    return f"{NAMESPACE}:{queue}.announced"
