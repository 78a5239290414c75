"""Cards after they were issued: frozen, used again, closed, spending from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.cards import issuing
from cardledger.ledger.core.card import CardState
from cardledger.ledger.messaging import inbox, outbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.cards import CardResource
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.envelope import WebhookType

SOURCE: Final = "cards"
"""Who sends the message that a card was closed."""

_MOVES: Final = {
    CardState.ACTIVE: frozenset({CardState.FROZEN, CardState.CLOSED}),
    CardState.FROZEN: frozenset({CardState.ACTIVE, CardState.CLOSED}),
}
"""Where a card may go. From nowhere else, and nowhere twice: `CLOSED` is the end."""


class Conflict(StrEnum):
    """Why a card, as it stands, does not change."""

    INVALID_STATE_TRANSITION = "INVALID_STATE_TRANSITION"
    CARD_ALREADY_CLOSED = "CARD_ALREADY_CLOSED"
    CARD_NOT_MUTABLE = "CARD_NOT_MUTABLE"


class ConflictError(Exception):
    """Nothing is changed: the card is in a state that does not allow it."""

    def __init__(self, conflict: Conflict, message: str) -> None:
        super().__init__(message)
        self.conflict = conflict


class Keep:
    """Stands for a value that is not to be changed, where None means something."""


KEEP: Final = Keep()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is asked of a card: None and `KEEP` leave things as they are."""

    state: CardState | None = None
    funding_sources: Sequence[Id] | None = None
    max_spend_per_transaction: int | Keep | None = KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A card after a change; `closing` is the message that gives back what is held on it."""

    card: CardResource
    closing: Message | None


async def apply(  # noqa: PLR0913 - which card, what, and how to tell
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    change: Change,
    reply_to: str | None,
    at: datetime,
    is_sandbox: bool = True,
) -> Changed | None:
    """Change a card, with what follows from it, in the caller's database transaction.

    The card is locked, so of two changes at once the second sees what the first has left. Its
    webhooks and, when it is closed, the message to the engine are rows of the same commit; the
    caller rings for that message afterwards. None when the platform has no such card.

    Raises: ConflictError, cards.RefusedError; then nothing has been written.
    """
    columns = tables.cards.c
    rows = await connection.execute(
        select(*issuing.COLUMNS)
        .where(columns.id == card_id, columns.platform_id == platform_id)
        .with_for_update()
    )
    before = rows.mappings().one_or_none()
    if before is None:
        return None
    _check_state(CardState(before["state"]), change)
    changes = _changes(change, at)
    if change.funding_sources is not None:
        issuing.refuse_repetitions(change.funding_sources)
        await issuing.eligible_currency(
            connection,
            platform_id=platform_id,
            cardholder_id=before["customer_id"],
            sources=change.funding_sources,
            is_sandbox=is_sandbox,
            currency=before["currency"],
        )
    await connection.execute(tables.cards.update().where(columns.id == card_id).values(**changes))
    card = issuing.render({**before, **changes})
    owner = Owner(before["customer_id"], platform_id)
    for kind in _events(change):
        await connection.execute(
            outbox.insert(
                type=kind,
                subject_id=card_id,
                customer_id=owner.customer_id,
                platform_id=platform_id,
                data=card.wire(),
                at=at,
            )
        )
    closing = None
    if change.state is CardState.CLOSED:
        closing = await _tell_the_engine(connection, card_id, owner, reply_to, at)
    return Changed(card=card, closing=closing)


def _check_state(state: CardState, change: Change) -> None:
    match state, change.state:
        case CardState.CLOSED, CardState.CLOSED:
            raise ConflictError(Conflict.CARD_ALREADY_CLOSED, "the card is CLOSED already")
        case CardState.CLOSED, None:
            message = "the card is CLOSED; nothing about it can be changed any more"
            raise ConflictError(Conflict.CARD_NOT_MUTABLE, message)
        case ((CardState.ACTIVE | CardState.FROZEN), None):
            return
        case _ if change.state in _MOVES.get(state, ()):
            return
        case _:
            message = f"the card is {state}; {_way_out(state)}"
            raise ConflictError(Conflict.INVALID_STATE_TRANSITION, message)


def _way_out(state: CardState) -> str:
    if state in _MOVES:
        return "from there it can go to " + " or ".join(sorted(_MOVES[state]))
    if state is CardState.CLOSED:
        return "that is final; issue another card"
    return "it can be changed once it is ACTIVE"


def _changes(change: Change, at: datetime) -> dict[str, Any]:
    changes: dict[str, Any] = {"updated_at": at}
    if change.state is not None:
        changes["state"] = change.state.value
    if change.state is CardState.CLOSED:
        changes["state_reason"] = "CLOSED_BY_PLATFORM"
    if change.funding_sources is not None:
        changes["funding_sources"] = list(change.funding_sources)
    if not isinstance(change.max_spend_per_transaction, Keep):
        changes["max_spend_per_transaction"] = change.max_spend_per_transaction
    return changes


def _events(change: Change) -> list[WebhookType]:
    """Return what is told, the state first; a limit alone is nobody's news."""
    told = []
    if change.state is not None:
        told.append(WebhookType.CARD_STATE_CHANGE)
    if change.funding_sources is not None:
        told.append(WebhookType.CARD_FUNDING_SOURCE_CHANGE)
    return told


async def _tell_the_engine(
    connection: AsyncConnection, card_id: Id, owner: Owner, reply_to: str | None, at: datetime
) -> Message:
    """Put into the inbox that the card was closed: what is held on it goes back.

    An authorization that read the card as it was before this commit is decided before the
    message, because both wait for the cardholder's accounts; so it is given back as well.
    """
    body = {
        "type": inbox.CARD_CLOSED,
        "source": SOURCE,
        "reference": f"{card_id}/closed",
        "cardId": public_id("Card", card_id),
    }
    message = inbox.address(body, owner, lane=Lane.LIVE, reply_to=reply_to, at=at)
    await inbox.accept_async(await driver_async(connection), [message])
    return message
