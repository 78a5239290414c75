"""From a process that decides to one that sends webhooks: there is something to tell.

No doorbells of Dramatiq, for there is one after every commit and nothing in it: lists that hold
one token each at most. Losing every one of them loses nothing, for a sender looks by itself, too.
"""

from functools import partial
from typing import Final, Protocol

import redis
import structlog
from redis.client import Pipeline

from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.doorbell import NAMESPACE
from cardledger.workers.signals.periodic_task import PeriodicTask

_WAKE: Final = f"{NAMESPACE}:webhooks.wake"
_WAKE_DISPATCH: Final = f"{NAMESPACE}:webhooks.wake-dispatch"
_LISTENS_S: Final = 1.0  # At a time; a shutdown waits for it.
_STOP_S: Final = 5.0

_log = structlog.get_logger()


class Wakeable(Protocol):
    """Whoever sends webhooks, or tells somebody who does."""

    def wake(self) -> None:
        """Look at once what there is to tell, and what is due."""

    def wake_dispatch(self) -> None:
        """Look at once what there is to tell."""


class WebhookWakeup:
    """Wakes whoever sends webhooks; where the last nudge has not been heard, that is enough."""

    def __init__(self, best_effort: BestEffort) -> None:
        """Tell over `best_effort`."""
        self._redis: Final = best_effort

    def wake(self) -> None:
        """Have somebody look what there is to tell, and what is due."""
        self._redis.send(partial(_give, _WAKE))

    def wake_dispatch(self) -> None:
        """Have somebody look what there is to tell."""
        self._redis.send(partial(_give, _WAKE_DISPATCH))


def _give(name: str, pipeline: Pipeline) -> None:
    pipeline.lpush(name, "1")
    pipeline.ltrim(name, 0, 0)


class Nudges:
    """Hears nudges, in a thread of its own."""

    def __init__(self, client: redis.Redis, webhooks: Wakeable, *, every_s: float) -> None:
        """Wake `webhooks` at every nudge; when Redis is away, try again in `every_s`."""
        self._client: Final = client
        self._by_list: Final = {_WAKE: webhooks.wake, _WAKE_DISPATCH: webhooks.wake_dispatch}
        self._chore: Final = PeriodicTask("nudges", self._listen, every_s=every_s)
        self._is_away = False

    def start(self) -> None:
        """Start listening."""
        self._chore.start()
        self._chore.wake()

    def stop(self) -> None:
        """Stop listening."""
        self._chore.stop(_STOP_S)

    def _listen(self) -> bool:
        try:
            heard = self._client.blpop(list(self._by_list), timeout=_LISTENS_S)
        except redis.RedisError as error:
            if not self._is_away:
                _log.warning("Redis is away: webhooks are found a little later", error=str(error))
            self._is_away = True
            return False
        self._is_away = False
        if heard:
            name = heard[0]
            assert isinstance(name, bytes), "this client decodes nothing"
            self._by_list[name.decode()]()
        return True
