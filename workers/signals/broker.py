"""A Redis broker whose consumers sleep on a list instead of polling.

Dramatiq's own consumer backs off to a second between polls, so that a message to an idle worker
waits a third of a second. Here it sleeps in BLPOP on a wake list, to which every sender pushes a
token. A token that is lost costs one time-out of that sleep, never a message (docs/decisions/0007).
"""

from threading import Event
from typing import Any, Final

import redis
from dramatiq import Message, MessageProxy
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import ConnectionClosed
from dramatiq.middleware import Middleware
from redis.backoff import NoBackoff
from redis.retry import Retry

from cardledger.workers.signals.doorbell import NAMESPACE, wake, wake_list

_IDLE_MS: Final = 1000  # How long a consumer sleeps when no token wakes it.
_SOCKET_TIMEOUT_S: Final = 5.0  # Above the sleep, so that sleeping is not taken for a failure.


def connect(url: str, *, timeout_s: float = _SOCKET_TIMEOUT_S) -> redis.Redis:
    """Return a client that fails at once instead of retrying by itself.

    A repeated command would be a second doorbell, and ten retries last longer than an
    authorization may take.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=1.0,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
    )


class WakingBroker(RedisBroker):
    """Dramatiq's Redis broker with consumers that wake at once."""

    def __init__(self, url: str, middleware: list[Middleware]) -> None:
        """Receive doorbells from the Redis at `url`."""
        super().__init__(  # type: ignore[no-untyped-call]  # Dramatiq's brokers have no types.
            client=connect(url),
            middleware=middleware,
            namespace=NAMESPACE,
            # A sweep of dead workers' messages; it also scans for keys, so it should be rare.
            maintenance_chance=50_000,
        )

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
        self._has_capacity = Event()

    def ack(self, message: MessageProxy) -> None:
        self._settle(super().ack, message)

    def nack(self, message: MessageProxy) -> None:
        self._settle(super().nack, message)

    def __next__(self) -> MessageProxy | None:
        """Return the next message; None after a sleep, for the worker to do housekeeping."""
        try:
            if not self.message_cache:
                self._fetch()
            if not self.message_cache:
                self._sleep()
                return None
        except redis.RedisError as error:
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
        message = Message.decode(self.message_cache.pop(0))
        self.queued_message_ids.add(message.message_id)
        return MessageProxy(message)

    def _fetch(self) -> None:
        self._has_capacity.clear()
        capacity = self.prefetch - self.outstanding_message_count
        if capacity > 0:
            self.message_cache = self.broker.do_fetch(self.queue_name, capacity)

    def _sleep(self) -> None:
        if self.outstanding_message_count >= self.prefetch:
            self._has_capacity.wait(self.timeout / 1000)
        else:
            self.broker.client.blpop([wake_list(self.queue_name)], timeout=_IDLE_MS / 1000)

    def _settle(self, settle: Any, message: MessageProxy) -> None:  # noqa: ANN401 - ack or nack
        try:
            settle(message)
        except redis.TimeoutError as error:
            # redis-py does not count it among connection errors; for the worker it is one.
            raise ConnectionClosed(error) from None  # type: ignore[no-untyped-call]
        finally:
            self._has_capacity.set()
