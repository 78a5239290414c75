"""Positions of queues: the next claim begins there and skips rows that were deleted long ago.

Deleted rows stay in the index until no open snapshot can see them. While one is open for long, a
backup for example, each claim from the beginning of its queues would walk over all that has been
decided since.

Ids rise with the clocks of the senders, and a message is committed a little after its id was made.
So a position stays behind the oldest message that was waiting, by a margin for slow commits and for
clocks that differ. What becomes visible behind a position nevertheless is found by the next look at
all queues from their beginning (`Engine.waiting`, twice a second), which moves the position back.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.sharing import Sharing
from cardledger.ledger.storage.ids import first_id_at, time_of_id
from cardledger.schema.ids import Id

MARGIN: Final = timedelta(seconds=10)
"""How much older than a claimed message one that is committed later may be and be claimed next."""

BEGINNING: Final = Id(bytes(16))


class QueuePositions:
    """The positions of one process; for several threads."""

    def __init__(self, sharing: Sharing | None = None) -> None:
        """Begin every queue at its beginning; `sharing` is of the same queues."""
        self.sharing: Final = sharing or Sharing()
        self._lock: Final = Lock()
        self._positions: Final[dict[tuple[Lane, int], Id]] = {}

    def of(self, lane: Lane, shards: Iterable[int]) -> dict[int, Id]:
        """Return where a claim of each of `shards` begins."""
        return {shard: self._positions.get((lane, shard), BEGINNING) for shard in shards}

    def advance(self, lane: Lane, used: Mapping[int, Id], messages: Sequence[Message]) -> None:
        """Note that `messages` are the oldest, by age, behind the positions `used`.

        A position that was moved back since is left as it is: something waits there.
        """
        oldest: dict[int, Id] = {}
        for message in messages:
            oldest.setdefault(message.shard, message.id)
        with self._lock:
            for shard, key in oldest.items():
                if self._positions.get((lane, shard), BEGINNING) == used[shard]:
                    self._positions[lane, shard] = _behind(key)

    def found(self, oldest: Iterable[tuple[Lane, int, Id]]) -> None:
        """Note the oldest message of each queue, which were read from the beginning."""
        with self._lock:
            for lane, shard, key in oldest:
                self._positions[lane, shard] = _behind(key)


def _behind(key: Id) -> Id:
    # An id may be of a time to come: of an expiry that was enqueued by hand.
    return first_id_at(min(time_of_id(key), datetime.now(UTC)) - MARGIN)
