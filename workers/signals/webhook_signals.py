"""Wake-ups from a process that decides events to one that sends webhooks.

These are not doorbells of Dramatiq, for there is one after every commit and nothing in it: each
list holds one token at most. Losing every one of them loses nothing, because a sender also polls.
"""

from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, Protocol

import redis
from redis.client import Pipeline

from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.doorbell import NAMESPACE
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.redis_connections import interrupt

_INTERRUPT_AGAIN_S: Final = 0.05
_WAKE: Final = f"{NAMESPACE}:webhooks.wake"
_WAKE_DISPATCH: Final = f"{NAMESPACE}:webhooks.wake-dispatch"
_LISTEN_S: Final = 1.0  # How long one wait lasts.
_STOP_S: Final = 5.0


class Wakeable(Protocol):
    """Sends webhooks, or wakes another process that does."""

    def wake(self) -> None:
        """Dispatch the outbox and send what is due, at once."""

    def wake_dispatch(self) -> None:
        """Dispatch the outbox at once."""


class WebhookWakeup:
    """Wakes the processes that send webhooks; a wake-up that is still unread is not repeated."""

    def __init__(self, best_effort: BestEffort) -> None:
        """Send over `best_effort`."""
        self._redis: Final = best_effort

    def wake(self) -> None:
        """Have a sender dispatch the outbox and send what is due."""
        self._redis.send(partial(_put_token, _WAKE))

    def wake_dispatch(self) -> None:
        """Have a sender dispatch the outbox."""
        self._redis.send(partial(_put_token, _WAKE_DISPATCH))


def _put_token(list_name: str, pipeline: Pipeline) -> None:
    pipeline.lpush(list_name, "1")
    pipeline.ltrim(list_name, 0, 0)


class WebhookWakeupListener:
    """Receives wake-ups, in a thread of its own."""

    def __init__(self, client: redis.Redis, webhooks: Wakeable, *, every_s: float) -> None:
        """Wake `webhooks` at every wake-up; when Redis is unavailable, try again in `every_s`."""
        self._client: Final = client
        self._by_list: Final = {_WAKE: webhooks.wake, _WAKE_DISPATCH: webhooks.wake_dispatch}
        self._task: Final = PeriodicTask("webhook wake-ups", self._listen, every_s=every_s)
        self._is_stopping = False

    def start(self) -> None:
        """Start listening."""
        self._task.start()
        self._task.wake()

    def stop(self, limit_s: float = _STOP_S) -> None:
        """Stop listening, also while Redis is silent."""
        self._is_stopping = True
        deadline = monotonic() + limit_s
        while self._task.is_running and monotonic() < deadline:
            interrupt(self._client)  # Again and again, because a sleep may just be beginning.
            self._task.stop(_INTERRUPT_AGAIN_S)

    def _listen(self) -> bool:
        if self._is_stopping:
            return False
        try:
            token = self._client.blpop(list(self._by_list), timeout=_LISTEN_S)
            if token:
                # Senders leave one token; any number is one wake-up, which has not begun yet.
                self._client.unlink(token[0])
        except redis.ResponseError as error:
            REDIS.failed(error)
            with suppress(redis.RedisError):
                self._client.unlink(*self._by_list)  # A key of another type, perhaps.
            return False
        except redis.RedisError as error:
            if not self._is_stopping:
                REDIS.failed(error)
            return False
        REDIS.succeeded()
        if token:
            list_name = token[0]
            assert isinstance(list_name, bytes), "this client decodes nothing"
            self._by_list[list_name.decode()]()
        return True
