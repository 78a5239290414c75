"""Outcomes sent over Redis to callers that wait: a copy, at once. PostgreSQL has them as well.

A reply has a line for each message: its id, the outcome type, and the outcome as JSON. So a caller
that only passes outcomes on does not have to parse them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from redis.client import Pipeline

from cardledger.ledger.projections import card_transaction as roll_up
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.signals.best_effort_redis import BestEffort

if TYPE_CHECKING:
    from cardledger.ledger.engine.records import Decided

_RETENTION_S: Final = 60  # After which Redis drops a list whose reader has died.


def outcome(decided: "Decided") -> Outcome:
    """Return `decided` as the sender of the event sees it."""
    return outcomes.outcome(
        decided.message.reference,
        decided.outcome,
        reason=decided.reason,
        detail=decided.detail,
        first_outcome=decided.first_outcome,
        card_transaction=roll_up.wire(decided.roll_up) if decided.roll_up else None,
    )


def read(reply: bytes) -> Iterator[tuple[Id, Outcome]]:
    """Yield the outcomes in `reply`, each with the id of its message."""
    for line in reply.split(b"\n"):
        message_id, kind, json = line.split(b" ", 2)
        yield Id.fromhex(message_id.decode()), Outcome(OutcomeType(kind.decode()), json)


def _line(message_id: Id, outcome: Outcome) -> bytes:
    return b"%s %s %s" % (message_id.hex().encode(), outcome.outcome.encode(), outcome.json)


class Replies:
    """Sends outcomes to the callers that wait for them."""

    def __init__(self, best_effort: BestEffort) -> None:
        """Send over `best_effort`."""
        self._redis: Final = best_effort

    def send(self, batch: "Iterable[Decided]") -> None:
        """Send every outcome that a caller waits for; without Redis, callers look it up."""
        replies: dict[str, list[bytes]] = defaultdict(list)
        for decided in batch:
            if decided.message.reply_to:
                line = _line(decided.message.id, outcome(decided))
                replies[decided.message.reply_to].append(line)
        if replies:
            self._redis.send(partial(_push, replies))


def _push(replies: Mapping[str, Sequence[bytes]], pipeline: Pipeline) -> None:
    for reply_list, lines in replies.items():
        pipeline.rpush(reply_list, b"\n".join(lines))
        pipeline.expire(reply_list, _RETENTION_S)
