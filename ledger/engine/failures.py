"""How batches and messages fail, and what a failure says of others.

A message is rejected by what is in it alone; every other failure is the server's, another session's
or the ledger's own (docs/decisions/0029).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Final, TypeVar

import psycopg
from psycopg.errors import (
    CharacterNotInRepertoire,
    ProgramLimitExceeded,
    UntranslatableCharacter,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import CANARIES_FROM, Message
from cardledger.ledger.storage import engines
from cardledger.ledger.storage.engines import is_unable, message_of
from cardledger.schema.connections import SilentServerError
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType

_CLOSED_DAY: Final = "CL004"
"""SQLSTATE of the trigger of `entries` that refuses a day for which the books are closed."""

Result = TypeVar("Result")

_SNAPSHOTS: Final = 5  # Of one batch.

_OURS: Final = Path(__file__).parents[1]  # The folder of what can fail.
_ERROR_LENGTH: Final = 300  # Characters of an error that are kept.
_SHOWN: Final = 200  # Characters of an id in a line of the log.

# A value of the message that no repair of the schema makes storable.
_FAULTS_OF_A_MESSAGE: Final = (
    ProgramLimitExceeded,  # Too long for an index.
    CharacterNotInRepertoire,
    UntranslatableCharacter,
)


class UnavailableError(Exception):
    """PostgreSQL is unavailable or cancelled the work; nothing was written. Retry later."""


class LockedError(UnavailableError):
    """Another session has locked a row for longer than a batch waits; nothing was written."""


class CardholderLockedError(LockedError):
    """The same when it is known whose message has waited: that cardholder is left out from now."""


class SlowMessageError(UnavailableError):
    """PostgreSQL ended a statement of a message that is decided alone; nothing was written."""

    def __init__(self, cardholder: Id) -> None:
        super().__init__("a message alone takes longer than a statement may")
        self.cardholder: Final = cardholder


class DeadlinePassedError(Exception):
    """An approval would be committed after its `decideBy`; by the later clock it is a decline.

    `messages` are that of this approval, and those that would be late in another attempt.
    """

    def __init__(self, messages: Collection[Id]) -> None:
        super().__init__("a deadline has passed since the decision")
        self.messages: Final = messages


class StaleSnapshotError(Exception):
    """What was read is not true any more: read again.

    A card, a card transaction or a transfer is on an account that is not locked, or the books were
    closed for a day on which an entry was to be posted.
    """


@contextmanager
def open_days() -> Iterator[None]:
    """Have entries written on days that are open.

    Raises: StaleSnapshotError when the books were closed for one of them meanwhile.
    """
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate != _CLOSED_DAY:
            raise
        raise StaleSnapshotError from error


def repeated(decide: Callable[[], Result]) -> Result:
    """Return the result of `decide`, which is called again when it has lost a race.

    Raises: StaleSnapshotError when several snapshots in a row were stale.
    """
    stale = 0
    while True:
        try:
            return decide()
        except DeadlinePassedError:
            continue
        except StaleSnapshotError:
            stale += 1
            if stale == _SNAPSHOTS:
                raise


def is_unavailable(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL is unavailable, whatever the message."""
    cause = getattr(error, "orig", None) or error
    return is_unable(cause) or isinstance(
        cause, UnavailableError | PoolTimeoutError | psycopg.InterfaceError
    )


def is_too_slow(error: UnavailableError) -> bool:
    """Return whether PostgreSQL had too many messages for its limits of time, as it seems."""
    cause = error.__cause__
    cause = getattr(cause, "orig", None) or cause
    return is_cancelled(error) or isinstance(cause, SilentServerError)


def is_cancelled(error: UnavailableError) -> bool:
    """Return whether PostgreSQL, which responds, has ended a statement at its limit of time."""
    cause = error.__cause__
    return isinstance(cause, Exception) and engines.is_cancelled(cause)


def is_fault_of_message(error: BaseException) -> bool:
    """Return whether `error` can only come from the data of the message that it failed on."""
    return isinstance(error, _FAULTS_OF_A_MESSAGE)


class FailedError(Exception):
    """A message failed even alone and stays in the inbox; None: the queues cannot be read."""

    def __init__(self, message: Message | None, error: str) -> None:
        super().__init__(error)
        self.message: Final = message
        self.error: Final = error


def succeeds(decided: Sequence[Decided]) -> bool:
    """Return whether an event was decided, and its decision recorded.

    Canaries, for which nothing is written, forged messages, which are moved away, rejections and
    duplicates say nothing of others.
    """
    return any(
        each.outcome not in _OF_NO_EVENT and not each.is_forged and not is_canary(each.message)
        for each in decided
    )


_OF_NO_EVENT: Final = frozenset({OutcomeType.REJECTED, OutcomeType.DUPLICATE})


def is_canary(message: Message) -> bool:
    """Return whether `message` is a canary, of which nothing is written."""
    return message.customer_id >= CANARIES_FROM


def describe(error: BaseException) -> str:
    """Return what failed and where, in one line without the data of rows."""
    if isinstance(error, psycopg.Error):
        what = f"{error.sqlstate or type(error).__name__}: {message_of(error)}"
    else:
        what = f"{type(error).__name__}: {error}"
    ours = [
        frame for frame in extract_tb(error.__traceback__) if _OURS in Path(frame.filename).parents
    ]
    where = f" ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
    return " ".join(what.split())[:_ERROR_LENGTH] + where


def log_ids(message: Message) -> dict[str, str]:
    """Return what a line of the log about `message` names: itself, its event, its purchase."""
    named = {
        "message_id": str(message.id),
        "network_event": f"{message.source}/{message.reference}"[:_SHOWN],
    }
    if isinstance(message.body, dict):  # It may be malformed.
        found = {"card": "cardId", "issuer_transaction_token": "issuerTransactionToken"}
        named |= {
            name: str(message.body[field])[:_SHOWN]
            for name, field in found.items()
            if field in message.body
        }
    return named
