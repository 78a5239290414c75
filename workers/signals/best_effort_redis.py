"""Commands to Redis that may be lost; a loss costs time only."""

from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Thread
from time import monotonic
from typing import Final

import redis
from redis.client import Pipeline

from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.repeated_warning import RepeatedFailure

_UNAVAILABLE_S: Final = 1.0  # How long nothing is sent after a failure.
_WAITING_LIMIT: Final = 1_000  # Of `send`; a batch of the engine makes two.
_STOP_S: Final = 2.0

_FAILED: Final = RepeatedFailure("commands not sent to Redis")


class BestEffort:
    """Sends commands in a thread of its own; after a failure it sends none for a moment.

    The engine sends between two batches, and a Redis that is slow, hangs or is dead must not delay
    the next batch: `send` never waits. Commands that wait together share a round trip. When too
    many wait, the oldest are dropped: their callers have looked their outcomes up by now.
    """

    def __init__(self, client: redis.Redis) -> None:
        """Send over `client`, which should have a short time-out; `start` starts the thread."""
        self._client: Final = client
        self._waiting: Final[deque[Callable[[Pipeline], object]]] = deque(maxlen=_WAITING_LIMIT)
        self._changed: Final = Condition()
        self._unavailable_until = 0.0
        self._is_stopping = False
        self._thread: Final = Thread(target=self._run, name="best-effort redis", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self, limit_s: float = _STOP_S) -> None:
        """Send what waits, if Redis is available, then end the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(min(limit_s, _STOP_S))

    def send(self, fill: Callable[[Pipeline], object]) -> None:
        """Send what `fill` puts on a pipeline, later and unless Redis is unavailable."""
        with self._changed:
            if monotonic() >= self._unavailable_until:
                self._waiting.append(fill)
                self._changed.notify()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._send(batch)
            except Exception as error:  # noqa: BLE001 - the thread never ends by itself
                if not isinstance(error, redis.RedisError | OSError):
                    _FAILED.note(error)
                self._note_failure(error)

    def _send(self, batch: Iterable[Callable[[Pipeline], object]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for fill in batch:
            try:
                fill(pipeline)
            except Exception as error:  # noqa: BLE001 - what others send is sent all the same
                _FAILED.note(error)
        if len(pipeline) > 0:
            _note(pipeline.execute(raise_on_error=False))

    def _next_batch(self) -> list[Callable[[Pipeline], object]]:
        """Wait for commands and return them all; none once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_stopping)
            batch = list(self._waiting)
            self._waiting.clear()
            return batch

    def _note_failure(self, error: Exception) -> None:
        with self._changed:
            self._unavailable_until = monotonic() + _UNAVAILABLE_S
            self._waiting.clear()
        REDIS.failed(error)


def _note(answers: Iterable[object]) -> None:
    """Note what Redis has answered; a command that it refused keeps no other from being sent."""
    refusal = next((each for each in answers if isinstance(each, redis.RedisError)), None)
    if refusal is None:
        REDIS.succeeded()
    else:
        REDIS.failed(refusal)
