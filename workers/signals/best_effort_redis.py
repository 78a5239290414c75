"""Commands to Redis that may be lost: nothing depends on them but time."""

from collections.abc import Callable
from time import monotonic
from typing import Final

import redis
import structlog
from redis.client import Pipeline

_UNAVAILABLE_S: Final = 1.0  # How long Redis counts as unavailable after a failure.

_log = structlog.get_logger()


class BestEffort:
    """Sends commands; after a failure it sends none for a moment.

    The engine sends between two batches, and a Redis that hangs must not delay the next batch: so
    all senders of a process share one instance, and only one of them waits for the time-out.
    """

    def __init__(self, client: redis.Redis) -> None:
        """Send over `client`, which should have a short time-out."""
        self._client: Final = client
        self._unavailable_until = 0.0

    def send(self, fill: Callable[[Pipeline], object]) -> None:
        """Send what `fill` puts on a pipeline, unless Redis is unavailable."""
        if monotonic() < self._unavailable_until:
            return
        pipeline = self._client.pipeline(transaction=False)
        fill(pipeline)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            self._unavailable_until = monotonic() + _UNAVAILABLE_S
            _log.warning("redis unavailable; falling back to polling", error=str(error))
