"""What a batch may decide: messages that were accepted here, of cardholders whose rows are free."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from psycopg import Connection

from cardledger.ledger.engine import locked_cardholders, rejections
from cardledger.ledger.engine.key_proof import KeyProof
from cardledger.ledger.engine.locked_cardholders import LockedCardholders
from cardledger.ledger.engine.records import Claimed, Decided
from cardledger.ledger.messaging import claims
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.messaging.queue_positions import QueuePositions
from cardledger.schema.ids import Id

_LOCKED_AT_ONCE: Final = 32  # Locked cardholders that are passed over to find a free one.

_log = structlog.get_logger()


class Queues(NamedTuple):
    """Queues of one lane, without the messages of stalled cardholders."""

    lane: Lane
    shards: Sequence[int]
    held: Sequence[Id]


class Claimer:
    """Claims messages for the batches of one process; for several threads."""

    def __init__(self, key: InboxKey, now: Callable[[Connection[Any]], datetime]) -> None:
        """Claim what was accepted with `key`; `now` is when forged messages are refused."""
        self._key: Final = key
        self._now: Final = now
        self._proof: Final = KeyProof(key)
        self._positions: Final = QueuePositions()
        self.found: Final = self._positions.found
        self.locked: Final = LockedCardholders()

    def claim(
        self, connection: Connection[Any], queues: Queues, limit: int, *, waits: bool
    ) -> Claimed:
        """Claim messages, without those of cardholders known to be locked by others.

        Unless the batch `waits` for locks, or when they were locked lately, cardholders are tried
        here: all messages of one who is locked stay in the inbox, so that their order is kept.
        """
        lane, shards, held = queues
        left_out = self.locked.left_out()
        without = [*left_out, *held]
        messages, unfinished, forged, has_verified = claims.claim(
            connection, lane, shards, limit, self._key, without=without, positions=self._positions
        )
        self._proof.note(has_verified=has_verified)
        refused: list[Decided] = []
        if forged:
            if not self._proof.holds(connection, lane, forged, without):
                raise rejections.UnverifiedError
            refused = rejections.refuse(connection, forged, self._now(connection))
        claimed = {message.customer_id for message in messages}
        tried = self.locked.suspects(claimed) if waits else claimed
        if not tried:
            return Claimed(messages, unfinished, refused, left_out)
        mine = [message for message in messages if message.customer_id in tried]
        locked = locked_cardholders.locked_by_others(connection, mine)
        if found := self.locked.note(tried, locked):
            _log.warning("locked cardholders left out of the batch", cardholders=len(found))
        free = [message for message in messages if message.customer_id not in locked]
        return Claimed(free, unfinished, refused, [*left_out, *locked], has_locked=bool(locked))

    def claim_oldest(
        self, connection: Connection[Any], queues: Queues
    ) -> tuple[list[Message], list[Decided]]:
        """Claim the oldest message whose cardholder is not locked; returns the forged ones, too.

        There is none when all are locked, or as many as are looked at in one attempt.
        """
        refused: list[Decided] = []
        for _ in range(_LOCKED_AT_ONCE):
            claimed = self.claim(connection, queues, 1, waits=False)
            refused += claimed.refused
            if claimed.messages or not claimed.has_locked:
                return claimed.messages, refused
        return [], refused
