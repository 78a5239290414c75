"""What doorbells run. Actors carry no facts: they say where to look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dramatiq

from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.signals.broker import WakingBroker
from cardledger.workers.signals.doorbell import BULK_QUEUE, CHORES_QUEUE, LIVE_QUEUE


@dataclass(frozen=True, slots=True)
class Handlers:
    """What this process does when a doorbell rings."""

    drain: Callable[[Lane, Sequence[int]], None]
    activate_cards: Callable[[], None]
    send_webhooks: Callable[[], None]


def declare(broker: WakingBroker, handlers: Handlers) -> None:
    """Declare the actors of `handlers` on `broker`.

    Nobody retries a doorbell: the sweeper finds what it was rung for.
    """

    def drain_inbox(lane: int, *shards: int) -> None:
        handlers.drain(Lane(lane), shards)

    for queue in (LIVE_QUEUE, BULK_QUEUE, CHORES_QUEUE):
        broker.declare_queue(queue)
    # One actor for both lanes: a message names its queue, and live ones sort before bulk ones.
    dramatiq.actor(actor_name="drain_inbox", queue_name=LIVE_QUEUE, priority=0, broker=broker)(
        drain_inbox
    )
    for name, run in (
        ("activate_cards", handlers.activate_cards),
        ("send_webhooks", handlers.send_webhooks),
    ):
        dramatiq.actor(actor_name=name, queue_name=CHORES_QUEUE, priority=1, broker=broker)(run)
