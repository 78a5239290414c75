"""Outcomes for whoever waits: a copy over Redis, at once. The record has them as well.

A reply has a line for each message: its id, what became of it, and its outcome as JSON. So whoever
only hands outcomes on does not have to read them.
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

_KEPT_S: Final = 60  # A list whose reader has died goes away by itself.


def outcome(decided: "Decided") -> Outcome:
    """Return `decided` as its sender sees it."""
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
        key, kind, said = line.split(b" ", 2)
        yield Id.fromhex(key.decode()), Outcome(OutcomeType(kind.decode()), said)


def _line(key: Id, found: Outcome) -> bytes:
    return b"%s %s %s" % (key.hex().encode(), found.outcome.encode(), found.json)


class Replies:
    """Sends outcomes to whoever waits for them."""

    def __init__(self, best_effort: BestEffort) -> None:
        """Send over `best_effort`."""
        self._redis: Final = best_effort

    def send(self, decided: "Iterable[Decided]") -> None:
        """Send every outcome that somebody waits for; when Redis is away, they look it up."""
        lists: dict[str, list[bytes]] = defaultdict(list)
        for one in decided:
            if one.message.reply_to:
                lists[one.message.reply_to].append(_line(one.message.id, outcome(one)))
        if lists:
            self._redis.send(partial(_push, lists))


def _push(lists: Mapping[str, Sequence[bytes]], pipeline: Pipeline) -> None:
    for name, told in lists.items():
        pipeline.rpush(name, b"\n".join(told))
        pipeline.expire(name, _KEPT_S)
