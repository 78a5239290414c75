"""Outcomes sent over Redis to callers that wait: a copy, at once. PostgreSQL has them as well.

A reply has a line for each message: its id, the outcome type, and the outcome as JSON. So a caller
that only passes outcomes on does not have to parse them. The first line is the signature of the
others and of the list that they are sent to, under a key derived from the server key: only a
process of this installation can send a reply.
Source: docs/decisions/0041-redis-is-not-trusted.md
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
from cardledger.workers.signals.message_key import MessageKey

if TYPE_CHECKING:
    from cardledger.ledger.engine.records import Decided

LISTS: Final = "cardledger:replies:"
"""How the names of all reply lists begin."""

_RETENTION_S: Final = 60  # After which Redis drops a list whose reader has died.
_SIZE_LIMIT: Final = 1024 * 1024  # Bytes of a reply: a reader takes four times as much.

# The signature is in the form of a line of no message, which an earlier release passes over.
_SIGNATURE: Final = b"%s %s " % (bytes(16).hex().encode(), OutcomeType.APPLIED.encode())


class ForgedReplyError(Exception):
    """A reply without the signature of this installation."""


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


def read(reply: bytes, reply_list: str, key: MessageKey) -> Iterator[tuple[Id, Outcome]]:
    """Yield the outcomes in a `reply` taken from `reply_list`, each with the id of its message.

    Raises: ForgedReplyError, before the first of them.
    """
    signature, _, lines = reply.partition(b"\n")
    if not key.verify(reply_list, lines, signature.removeprefix(_SIGNATURE)):
        raise ForgedReplyError
    for line in lines.split(b"\n"):
        message_id, kind, json = line.split(b" ", 2)
        yield Id.fromhex(message_id.decode()), Outcome(OutcomeType(kind.decode()), json)


def written(lines: Sequence[bytes], reply_list: str, key: MessageKey) -> Iterator[bytes]:
    """Yield the replies to `reply_list` that consist of `lines`, in their order."""
    for part in _parts(lines):
        content = b"\n".join(part)
        yield b"%s%s\n%s" % (_SIGNATURE, key.sign(reply_list, content), content)


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield `lines` in parts of limited size."""
    start = size = 0
    for number, line in enumerate(lines):
        if size + len(line) > _SIZE_LIMIT and number > start:
            yield lines[start:number]
            start, size = number, 0
        size += len(line) + 1
    yield lines[start:]


def _line(message_id: Id, outcome: Outcome) -> bytes:
    return b"%s %s %s" % (message_id.hex().encode(), outcome.outcome.encode(), outcome.json)


class Replies:
    """Sends outcomes to the callers that wait for them."""

    def __init__(self, best_effort: BestEffort, key: MessageKey) -> None:
        """Send over `best_effort`, signed with `key`."""
        self._redis: Final = best_effort
        self._key: Final = key

    def send(self, batch: "Iterable[Decided]") -> None:
        """Send every outcome that a caller waits for; without Redis, callers look it up."""
        replies: dict[str, list[bytes]] = defaultdict(list)
        for decided in batch:
            if decided.message.reply_to and decided.message.reply_to.startswith(LISTS):
                line = _line(decided.message.id, outcome(decided))
                replies[decided.message.reply_to].append(line)
        if replies:
            self._redis.send(partial(_push, replies, self._key))


def _push(replies: Mapping[str, Sequence[bytes]], key: MessageKey, pipeline: Pipeline) -> None:
    for reply_list, lines in replies.items():
        pipeline.rpush(reply_list, *written(lines, reply_list, key))
        pipeline.expire(reply_list, _RETENTION_S)
