"""The traces of recent changes, from workers to senders of webhooks, over Redis.

PostgreSQL has no column for them, which every authorization would pay for. A hint that is lost, or
that an intruder has written, changes the parent of a span and nothing else.
"""

import json
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Final

import redis
from redis.client import Pipeline

from cardledger.ledger.webhooks.leases import Delivery
from cardledger.workers.signals.best_effort_redis import BestEffort
from cardledger.workers.signals.doorbell import NAMESPACE
from cardledger.workers.tracing import spans

_KEYS: Final = f"{NAMESPACE}:traces:"
_KEPT_S: Final = 60  # First attempts are made within seconds; Redis must not fill with hints.
_LEFT_ALONE_S: Final = 5.0
_LENGTH: Final = 55  # Of a `traceparent`.


def keep(best_effort: BestEffort, traces: Mapping[str, str]) -> None:
    """Keep `traces`, each a `traceparent` by its change, for the senders of webhooks."""
    if traces:
        best_effort.send(partial(_set, traces))


def _set(traces: Mapping[str, str], pipeline: Pipeline) -> None:
    for change, traceparent in traces.items():
        pipeline.set(_KEYS + change, traceparent, ex=_KEPT_S)


class TraceHints:
    """Finds the trace that a delivery belongs to; for threads.

    After a failure Redis is left alone for some seconds, so that it delays few webhooks.
    """

    def __init__(self, client: redis.Redis) -> None:
        """Ask `client`, which should have a short time-out."""
        self._client: Final = client
        self._not_before = 0.0  # On the clock of `monotonic`.

    def of(self, delivery: Delivery) -> str | None:
        """Return the `traceparent` of the change that `delivery` reports, None when unknown.

        Only of a first attempt: later ones begin when most traces are not kept any more.
        """
        if delivery.attempts or monotonic() < self._not_before:
            return None
        sequence = json.loads(delivery.body).get("sequence")
        if not isinstance(sequence, int):
            return None
        change = spans.change_key(delivery.subject_id.hex(), sequence)
        try:
            found = self._client.get(_KEYS + change)
        except redis.RedisError:
            # The delivery is made all the same, and others report the outage.
            self._not_before = monotonic() + _LEFT_ALONE_S
            return None
        if not isinstance(found, bytes) or len(found) != _LENGTH:
            return None
        return found.decode("ascii", "replace")
