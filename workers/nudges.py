"""From a process that decides to one that sends webhooks: there is something to tell.

No doorbell of Dramatiq, for there is one after every commit and nothing in it: a list that holds
one token at most. Losing every one of them loses nothing, for a sender looks by itself, too.
"""

from collections.abc import Callable
from typing import Final

import redis
import structlog
from redis.client import Pipeline

from workers.best_effort import BestEffort
from workers.chores import Chore
from workers.doorbell import NAMESPACE

_LIST: Final = f"{NAMESPACE}:webhooks.nudge"
_LISTENS_S: Final = 1.0  # At a time; a shutdown waits for it.
_STOP_S: Final = 5.0

_log = structlog.get_logger()


class Nudge:
    """Tells whoever sends webhooks that there are some."""

    def __init__(self, client: redis.Redis) -> None:
        """Tell over `client`, which should time out soon."""
        self._redis: Final = BestEffort(client)

    def give(self) -> None:
        """Tell it once; where nobody has heard the last time, that is enough."""
        self._redis.send(_give)


def _give(pipeline: Pipeline) -> None:
    pipeline.lpush(_LIST, "1")
    pipeline.ltrim(_LIST, 0, 0)


class Nudges:
    """Hears nudges, in a thread of its own."""

    def __init__(self, client: redis.Redis, hear: Callable[[], None], *, every_s: float) -> None:
        """Call `hear` for every nudge; when Redis is away, try again in `every_s`."""
        self._client: Final = client
        self._hear: Final = hear
        self._chore: Final = Chore("nudges", self._listen, every_s=every_s)

    def start(self) -> None:
        """Start listening."""
        self._chore.start()
        self._chore.wake()

    def stop(self) -> None:
        """Stop listening."""
        self._chore.stop(_STOP_S)

    def _listen(self) -> bool:
        try:
            if self._client.blpop([_LIST], timeout=_LISTENS_S):
                self._hear()
        except redis.RedisError as error:
            _log.warning("Redis is away: webhooks are found a little later", error=str(error))
            return False
        return True
