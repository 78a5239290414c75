"""Doorbells: "there is work", without the work itself. Losing every one of them loses nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dramatiq import Message
from uuid_utils import uuid4

from cardledger.ledger.messaging.inbox import Lane

NAMESPACE: Final = "cardledger"
LIVE_QUEUE: Final = "live"
BULK_QUEUE: Final = "bulk"
PERIODIC_QUEUE: Final = "periodic"

QUEUES: Final = {Lane.LIVE: LIVE_QUEUE, Lane.BULK: BULK_QUEUE}
"""Queues by lane: a waiting file never delays an authorization."""

_TOKEN_LIMIT: Final = 32  # More wake tokens than any worker has threads to wake.


@dataclass(frozen=True, slots=True)
class Doorbell:
    """What to run, on which queue."""

    queue: str
    actor: str
    args: tuple[int, ...] = ()


CARDS: Final = Doorbell(PERIODIC_QUEUE, "activate_cards")
WEBHOOKS: Final = Doorbell(PERIODIC_QUEUE, "send_webhooks")


def drain(lane: Lane, *shards: int) -> Doorbell:
    """Return one doorbell for `shards` of a lane of the inbox."""
    return Doorbell(QUEUES[lane], "drain_inbox", (int(lane), *shards))


def drain_all(queues: Iterable[tuple[Lane, int]]) -> list[Doorbell]:
    """Return a doorbell for each lane in `queues`, with its shards in ascending order."""
    by_lane: dict[Lane, set[int]] = {}
    for lane, shard in queues:
        by_lane.setdefault(lane, set()).add(shard)
    return [drain(lane, *sorted(shards)) for lane, shards in by_lane.items()]


class Pipeline(Protocol):
    """What sync and asyncio pipelines of redis-py have in common here."""

    def hset(self, name: str, key: str, value: bytes) -> object: ...
    def rpush(self, name: str, *values: str) -> object: ...
    def lpush(self, name: str, *values: str) -> object: ...
    def ltrim(self, name: str, start: int, end: int) -> object: ...


def notify(pipeline: Pipeline, doorbells: Sequence[Doorbell]) -> None:
    """Put `doorbells` on `pipeline`, in the format that Dramatiq documents for other senders."""
    for doorbell in doorbells:
        redis_id = str(uuid4())
        message: Message[None] = Message(
            queue_name=doorbell.queue,
            actor_name=doorbell.actor,
            args=doorbell.args,
            kwargs={},
            options={"redis_message_id": redis_id},
        )
        pipeline.hset(f"{NAMESPACE}:{doorbell.queue}.msgs", redis_id, message.encode())
        pipeline.rpush(f"{NAMESPACE}:{doorbell.queue}", redis_id)
        wake(pipeline, doorbell.queue)


def wake(pipeline: Pipeline, queue: str) -> None:
    """Put a token on `pipeline` that wakes one sleeping consumer of `queue`."""
    pipeline.lpush(wake_list(queue), "1")
    pipeline.ltrim(wake_list(queue), 0, _TOKEN_LIMIT - 1)


def wake_list(queue: str) -> str:
    """Return the Redis list on which consumers of `queue` sleep."""
    return f"{NAMESPACE}:{queue}.wake"
