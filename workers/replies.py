"""Outcomes for whoever waits: a copy over Redis, at once. The record has them as well.

A reply has a line for each message: its id, what became of it, and its outcome as JSON. So whoever
only hands outcomes on does not have to read them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Final
from uuid import UUID

import redis
import structlog

from ledger import roll_up
from ledger.batch import Decided
from schema.wire import outcomes
from schema.wire.outcomes import Outcome, OutcomeType

_PAUSE_S: Final = 1.0
_KEPT_S: Final = 60  # A list whose reader has died goes away by itself.

_log = structlog.get_logger()


def outcome(decided: Decided) -> Outcome:
    """Return `decided` as its sender sees it."""
    return outcomes.outcome(
        decided.message.reference,
        decided.outcome,
        reason=decided.reason,
        detail=decided.detail,
        first_outcome=decided.first_outcome,
        card_transaction=roll_up.wire(decided.roll_up) if decided.roll_up else None,
    )


def read(reply: bytes) -> Iterator[tuple[UUID, Outcome]]:
    """Yield the outcomes in `reply`, each with the id of its message."""
    for line in reply.split(b"\n"):
        key, kind, said = line.split(b" ", 2)
        yield UUID(key.decode()), Outcome(OutcomeType(kind.decode()), said)


def _line(key: UUID, found: Outcome) -> bytes:
    return b"%s %s %s" % (key.hex.encode(), found.outcome.encode(), found.json)


class Replies:
    """Sends outcomes; after a failure it leaves Redis alone for a moment.

    A drain sends between two batches, and a Redis that hangs must not keep it from the next one.
    """

    def __init__(self, client: redis.Redis) -> None:
        """Send over `client`, which should time out soon."""
        self._client: Final = client
        self._away_until = 0.0

    def send(self, decided: Iterable[Decided]) -> None:
        """Send every outcome that somebody waits for; when Redis is away, they look it up."""
        lists: dict[str, list[bytes]] = defaultdict(list)
        for one in decided:
            if one.message.reply_to:
                lists[one.message.reply_to].append(_line(one.message.id, outcome(one)))
        if not lists or monotonic() < self._away_until:
            return
        pipeline = self._client.pipeline(transaction=False)
        for name, told in lists.items():
            pipeline.rpush(name, b"\n".join(told))
            pipeline.expire(name, _KEPT_S)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            self._away_until = monotonic() + _PAUSE_S
            _log.warning("replies not sent: Redis is away", error=str(error))
