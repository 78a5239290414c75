"""The Dramatiq actors that doorbells run. Messages carry no facts, only which shards have work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dramatiq

from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.signals import doorbell
from cardledger.workers.signals.broker import WakingBroker
from cardledger.workers.signals.doorbell import BULK_QUEUE, LIVE_QUEUE, PERIODIC_QUEUE
from cardledger.workers.signals.doorbell_queue import MALFORMED


@dataclass(frozen=True, slots=True)
class Handlers:
    """What this process runs for each kind of doorbell."""

    drain: Callable[[Lane, Sequence[int]], None]
    activate_cards: Callable[[], None]
    send_webhooks: Callable[[], None]


def declare(broker: WakingBroker, handlers: Handlers) -> None:
    """Declare the actors of `handlers` on `broker`.

    A doorbell is never retried: the sweeper finds the work that it announced.
    """

    def drain_inbox(lane: int, *shards: int) -> None:
        if doorbell.exist(lane, shards):
            handlers.drain(Lane(lane), shards)
        else:
            MALFORMED.note()

    for queue in (LIVE_QUEUE, BULK_QUEUE, PERIODIC_QUEUE):
        broker.declare_queue(queue)
    # One actor for both lanes: a message names its queue, and live ones sort before bulk ones.
    dramatiq.actor(actor_name="drain_inbox", queue_name=LIVE_QUEUE, priority=0, broker=broker)(
        drain_inbox
    )
    for name, run in (
        ("activate_cards", handlers.activate_cards),
        ("send_webhooks", handlers.send_webhooks),
    ):
        dramatiq.actor(actor_name=name, queue_name=PERIODIC_QUEUE, priority=1, broker=broker)(run)
