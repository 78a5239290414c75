"""Whether the key of this process is that of the installation, before it calls messages forged.

To a process with the wrong key every message seems forged. So a process refuses none until it has
verified one itself. Behind any number of forged messages it finds that one in steps, each of which
ends soon: the next attempt goes on where the last one has stopped.
Source: docs/decisions/0049-macs-of-the-inbox.md
"""

from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging import claims
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.schema.ids import Id

_ROWS: Final = 500
_STEP_S: Final = 0.1  # Of the time in which the queues are locked.


class KeyProof:
    """What one process knows about its key; for several threads."""

    def __init__(self, key: InboxKey, clock: Callable[[], float] = monotonic) -> None:
        """Know nothing about `key`. `clock` counts seconds."""
        self._key: Final = key
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._has_verified = False
        self._looked: dict[tuple[Lane, int], Id] = {}  # How far into which queues.

    def note(self, *, has_verified: bool) -> None:
        """Note whether a batch had a message from outside the ledger whose MAC is right."""
        if has_verified:
            self._has_verified = True

    def holds(
        self,
        connection: Connection[Any],
        lane: Lane,
        forged: Sequence[Message],
        without: Sequence[Id],
    ) -> bool:
        """Return whether a message was verified, after looking for one behind those of `forged`.

        They are of a batch without the messages of the cardholders `without`. What waits before
        them may be of a key that was exchanged since, and proves nothing about the present one.
        """
        first: dict[int, Id] = {}
        for message in forged:
            first.setdefault(message.shard, message.id)
        begin = {
            shard: max(self._looked.get((lane, shard), oldest), oldest)
            for shard, oldest in first.items()
        }
        end = self._clock() + _STEP_S
        while begin and not self._has_verified:
            found, begin = claims.look_for_verified(
                connection, lane, begin, _ROWS, self._key, without=without
            )
            self.note(has_verified=found)
            if self._clock() > end:
                break
        with self._lock:
            for shard in first:
                if shard in begin:
                    self._looked[lane, shard] = begin[shard]
                else:  # Its end was reached: from the forged messages again.
                    self._looked.pop((lane, shard), None)
        return self._has_verified
