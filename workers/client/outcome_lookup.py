"""Looks up outcomes in PostgreSQL whose replies are late, or cannot arrive."""

import asyncio
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.engine import outcomes as recorded_outcomes
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.engines import driver_async
from cardledger.workers.client.errors import DATABASE_UNAVAILABLE
from cardledger.workers.client.pending import PendingOutcomes
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.signals import database_failures
from cardledger.workers.signals.outage_log import DATABASE

_POLL_INTERVAL_S: Final = 0.05
# The same while no reply can arrive, and the part of the time that look-ups may take then.
_POLL_WITHOUT_REDIS_S: Final = 0.003
_POLL_SHARE: Final = 0.25
_PATIENCE_S: Final = 1.0  # How long a reply may take before its outcome is looked up.
_PATIENCE_UNDER_LOAD_S: Final = 5.0  # The same while replies to other messages arrive.
# The same for a while after a reply was lost, of as many messages at a time: a worker may have lost
# Redis. Many would be looked up before their replies had a chance.
_PATIENCE_AFTER_LOSS_S: Final = 0.02
_LOSS_LASTS_S: Final = 30.0
_AFTER_LOSS: Final = 100


class OutcomeLookup:
    """Resolves pending outcomes from the database."""

    def __init__(
        self, engine: AsyncEngine, redis: RedisGateway, pending: PendingOutcomes, key: InboxKey
    ) -> None:
        """Read through `engine`; `key` verifies what waits in the inbox."""
        # Each statement sees what is committed by then, in a database transaction or without one.
        self._autocommit: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis: Final = redis
        self._pending: Final = pending
        self._key: Final = key
        self._look_s = 0.0  # How long the last look-up took.
        self._lost_at = float("-inf")  # When an outcome was found whose reply had not arrived.

    async def poll(self) -> None:
        """Wait a moment, then look up what is overdue."""
        await asyncio.sleep(self._interval_s())
        began = elapsed_s()
        patience_s = self._patience_s()
        is_suspicious = began - self._lost_at < _LOSS_LASTS_S and patience_s > 0
        overdue = (
            self._pending.take_overdue(_PATIENCE_AFTER_LOSS_S, _AFTER_LOSS)
            if is_suspicious
            else self._pending.take_overdue(patience_s)
        )
        if not overdue:
            return
        try:
            async with self._autocommit.connect() as outer:
                connection = await driver_async(outer)
                outcomes = await recorded_outcomes.find(connection, overdue, self._key)
        except DATABASE_UNAVAILABLE as error:
            database_failures.note(error)
            return
        finally:
            self._look_s = elapsed_s() - began
        DATABASE.succeeded()
        # After a short time, the reply may only be late.
        if self._pending.resolve(outcomes.items()) and patience_s > 0 and not is_suspicious:
            self._lost_at = began

    def _interval_s(self) -> float:
        """Return how long to wait before the next look: a moment while replies cannot arrive."""
        if DATABASE.is_out or self._redis.is_available:
            return _POLL_INTERVAL_S
        return min(_POLL_INTERVAL_S, max(_POLL_WITHOUT_REDIS_S, self._look_s / _POLL_SHARE))

    def _patience_s(self) -> float:
        """Return after how long a message is looked up.

        While replies arrive, a long queue is only that: it is looked up seldom, and in parts.
        """
        if not self._redis.is_available:
            return 0.0
        if elapsed_s() - self._pending.last_reply_at < _PATIENCE_S:
            return _PATIENCE_UNDER_LOAD_S
        return _PATIENCE_S
