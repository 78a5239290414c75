"""Receives outcomes over Redis."""

from typing import Final

from cardledger.workers.client import replies
from cardledger.workers.client.pending import PendingOutcomes
from cardledger.workers.client.redis_gateway import RedisGateway


class ReplyListener:
    """Resolves pending outcomes as workers reply."""

    def __init__(self, redis: RedisGateway, pending: PendingOutcomes) -> None:
        self._redis: Final = redis
        self._pending: Final = pending

    async def listen(self) -> None:
        """Wait for one reply."""
        reply = await self._redis.next_reply()
        if reply:
            self._pending.note_reply()
            self._pending.resolve(replies.read(reply))
