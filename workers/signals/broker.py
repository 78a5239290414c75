"""A Redis broker whose consumers sleep on a list instead of polling.

Dramatiq's own consumer backs off to a second between polls, so that a message to an idle worker
waits a third of a second. Here it sleeps in BLPOP on a wake list, to which every sender pushes a
token. A token that is lost costs one time-out of that sleep, never a message (docs/decisions/0007).
"""

from collections.abc import Callable, Iterable
from threading import Event, Lock
from time import monotonic
from typing import Any, Final

import redis
from dramatiq import Message, MessageProxy
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer

from cardledger.workers.signals import doorbell_queue
from cardledger.workers.signals.doorbell import (
    NAMESPACE,
    Doorbell,
    is_known,
    notify,
    wake,
    wake_list,
)
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.redis_connections import connect, interrupt

_IDLE_MS: Final = 1000  # How long a consumer sleeps when no token wakes it.
_TAKE_S: Final = 1.0  # How long a worker that stops waits for Redis to answer.
_RETRY_S: Final = 1.0  # How long after a failure of Redis a consumer tries again.


class WakingBroker(RedisBroker):
    """Dramatiq's Redis broker with consumers that wake at once and believe doorbells only."""

    def __init__(
        self,
        url: str,
        *,
        accepts: Callable[[Doorbell], bool] = is_known,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Receive the doorbells that `accepts` returns True for from the Redis at `url`.

        `on_failure` is called whenever Redis has failed a consumer.
        """
        super().__init__(  # type: ignore[no-untyped-call]  # Dramatiq's brokers have no types.
            client=connect(url),
            middleware=[],
            namespace=NAMESPACE,
            # A sweep of the messages of dead workers: doorbells leave Redis when they are taken.
            maintenance_chance=0,
        )
        self.accepts: Final = accepts
        self.on_failure: Final = on_failure
        self.consumers: Final[list[_WakingConsumer]] = []
        self.is_stopping: Final = Event()

    def let_consumers_take_no_more(self) -> None:
        """Wait for a moment for what is being taken; the worker stops."""
        self.is_stopping.set()
        deadline = monotonic() + _TAKE_S
        for consumer in self.consumers:
            # A doorbell that is being taken would be lost.
            if consumer.taking.acquire(timeout=max(0.0, deadline - monotonic())):
                consumer.taking.release()

    def cached(self) -> list[MessageProxy]:
        """Return what consumers that have ended have taken and not passed on."""
        return [
            MessageProxy(each) for consumer in self.consumers for each in consumer.message_cache
        ]

    def announce(self, messages: Iterable[MessageProxy]) -> None:
        """Announce again what was taken and not begun."""
        doorbells = [
            Doorbell(message.queue_name, message.actor_name, message.args) for message in messages
        ]
        if not doorbells:
            return
        pipeline = self.client.pipeline(transaction=False)
        notify(pipeline, doorbells)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            REDIS.failed(error)  # The sweepers of other workers find the work.

    def end_sleeps(self) -> None:
        """End the sleeps of all consumers."""
        interrupt(self.client)

    def close(self) -> None:
        """Close the connections to Redis."""
        self.client.close()

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue, without one for delayed messages: a doorbell is never delayed."""
        if queue_name in self.queues:
            return
        self.emit_before("declare_queue", queue_name)
        self.queues.add(queue_name)
        self.emit_after("declare_queue", queue_name)

    @property
    def consumer_class(self) -> type["_WakingConsumer"]:
        """Return the class of this broker's consumers."""
        return _WakingConsumer

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Enqueue `message` and wake a consumer."""
        sent: Message[Any] = super().enqueue(message, delay=delay)
        pipeline = self.client.pipeline(transaction=False)
        wake(pipeline, sent.queue_name)
        pipeline.execute()
        return sent


class _WakingConsumer(_RedisConsumer):
    def __init__(self, broker: WakingBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]
        self.taking: Final = Lock()
        self._has_capacity = Event()
        self._is_drained = False  # The queue, when it was last fetched from.
        broker.consumers.append(self)

    def ack(self, message: MessageProxy) -> None:
        """Make room for another doorbell; in Redis there is nothing left of this one."""
        self.queued_message_ids.discard(message.message_id)
        self._has_capacity.set()

    nack = ack

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Announce again, when the worker stops, what it has not begun."""
        self.broker.announce(messages)

    def __next__(self) -> MessageProxy | None:
        """Return the next message; None after a sleep, for the worker to do housekeeping."""
        try:
            if not self.message_cache and not self._is_drained:
                with self.taking:
                    self._fetch()
            if not self.message_cache:
                self._sleep()
                REDIS.succeeded()
                return None
        except redis.RedisError as error:
            if not self.broker.is_stopping.is_set():
                REDIS.failed(error)
                self.broker.on_failure()
            # Not Dramatiq's pause, from which nothing wakes a worker that stops.
            self.broker.is_stopping.wait(_RETRY_S)
            return None
        message = self.message_cache.pop(0)
        self.queued_message_ids.add(message.message_id)
        return MessageProxy(message)

    def _fetch(self) -> None:
        self._has_capacity.clear()
        capacity = self.prefetch - self.outstanding_message_count
        if capacity > 0 and not self.broker.is_stopping.is_set():
            taken, may_have_more = doorbell_queue.take(
                self.broker.client, self.queue_name, capacity, self.broker.accepts
            )
            # New messages: what a sender has put into the old one beside the doorbell is ignored.
            self.message_cache = [
                Message(each.queue, each.actor, each.args, kwargs={}, options={}) for each in taken
            ]
            # What is sent from now on leaves a wake token: the next fetch would be for nothing.
            self._is_drained = not may_have_more

    def _sleep(self) -> None:
        self._is_drained = False
        if self.outstanding_message_count >= self.prefetch:
            self._has_capacity.wait(self.timeout / 1000)
        elif not self.broker.is_stopping.is_set():
            self.broker.client.blpop([wake_list(self.queue_name)], timeout=_IDLE_MS / 1000)
