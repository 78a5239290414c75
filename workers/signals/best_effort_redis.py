"""Commands to Redis that may be lost: nothing depends on them but time."""

from collections.abc import Callable
from time import monotonic
from typing import Final

import redis
import structlog
from redis.client import Pipeline

_PAUSE_S: Final = 1.0

_log = structlog.get_logger()


class BestEffort:
    """Sends commands; after a failure it leaves Redis alone for a moment.

    A drain sends between two batches, and a Redis that hangs must not keep it from the next one:
    so whoever sends in a process shares one of these, and none finds out anew what another knows.
    """

    def __init__(self, client: redis.Redis) -> None:
        """Send over `client`, which should time out soon."""
        self._client: Final = client
        self._away_until = 0.0

    def send(self, fill: Callable[[Pipeline], object]) -> None:
        """Send what `fill` puts on a pipeline, unless Redis is away."""
        if monotonic() < self._away_until:
            return
        pipeline = self._client.pipeline(transaction=False)
        fill(pipeline)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            self._away_until = monotonic() + _PAUSE_S
            _log.warning("Redis is away: others find out by themselves", error=str(error))
