"""Changes of issued cards: freeze, unfreeze, close, replace funding sources or the limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.cards import funding_sources
from cardledger.ledger.cards.registry import COLUMNS, render
from cardledger.ledger.core.card import CardState
from cardledger.ledger.messaging import inbox, outbox
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.ports import Issuer
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.cards import CardResource
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.envelope import WebhookType

SOURCE: Final = "cards"
"""Source of the inbox message that a card was closed."""

_TRANSITIONS: Final = {
    CardState.ACTIVE: frozenset({CardState.FROZEN, CardState.CLOSED}),
    CardState.FROZEN: frozenset({CardState.ACTIVE, CardState.CLOSED}),
}
"""The allowed transitions. `CLOSED` is final."""


class CardConflict(StrEnum):
    """Why a card's present state does not allow a change."""

    INVALID_STATE_TRANSITION = "INVALID_STATE_TRANSITION"
    CARD_ALREADY_CLOSED = "CARD_ALREADY_CLOSED"
    CARD_NOT_MUTABLE = "CARD_NOT_MUTABLE"


class CardConflictError(Exception):
    """Nothing is changed: the card's state does not allow it."""

    def __init__(self, conflict: CardConflict, message: str) -> None:
        super().__init__(message)
        self.conflict = conflict


class Unchanged:
    """Marks a value that is not changed, where None has a meaning of its own."""


UNCHANGED: Final = Unchanged()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChange:
    """A change of a card: None and `UNCHANGED` keep what there is."""

    state: CardState | None = None
    funding_sources: Sequence[Id] | None = None
    max_spend_per_transaction: int | Unchanged | None = UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCard:
    """A card after a change; `closing` is the inbox message that releases its holds."""

    card: CardResource
    closing: Message | None


async def apply(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    change: CardChange,
    reply_to: str | None,
    inbox_key: InboxKey,
    at: datetime,
    issuer: Issuer | None,
) -> ChangedCard | None:
    """Change a card, with what follows from it, in the caller's database transaction.

    The card is locked, so of two changes at once the second sees what the first has left. Its
    webhooks and, when it is closed, the message to the engine are rows of the same commit; the
    caller rings for that message afterwards. None when the platform has no such card.

    Raises: CardConflictError, CardRefusedError; then nothing has been written.
    """
    columns = tables.cards.c
    rows = await connection.execute(
        select(*COLUMNS)
        .where(columns.id == card_id, columns.platform_id == platform_id)
        .with_for_update()
    )
    before = rows.mappings().one_or_none()
    if before is None:
        return None
    _check_state(CardState(before["state"]), change)
    changes = _changes(change, at)
    if change.funding_sources is not None:
        funding_sources.refuse_repetitions(change.funding_sources)
        await funding_sources.eligible_currency(
            connection,
            platform_id=platform_id,
            cardholder_id=before["customer_id"],
            sources=change.funding_sources,
            issuer=issuer,
            currency=before["currency"],
        )
    await connection.execute(tables.cards.update().where(columns.id == card_id).values(**changes))
    card = render({**before, **changes})
    owner = Owner(before["customer_id"], platform_id)
    for webhook_type in _webhook_types(change):
        await connection.execute(
            outbox.insert(
                type=webhook_type,
                subject_id=card_id,
                customer_id=owner.customer_id,
                platform_id=platform_id,
                data=card.wire(),
                at=at,
            )
        )
    closing = None
    if change.state is CardState.CLOSED:
        closing = _closing(card_id, owner, reply_to, at)
        await inbox.accept_async(await driver_async(connection), [closing], inbox_key)
    return ChangedCard(card=card, closing=closing)


def _check_state(state: CardState, change: CardChange) -> None:
    match state, change.state:
        case CardState.CLOSED, CardState.CLOSED:
            raise CardConflictError(CardConflict.CARD_ALREADY_CLOSED, "The card is already CLOSED.")
        case CardState.CLOSED, None:
            message = "The card is CLOSED; a closed card cannot be changed."
            raise CardConflictError(CardConflict.CARD_NOT_MUTABLE, message)
        case ((CardState.ACTIVE | CardState.FROZEN), None):
            return
        case _ if change.state in _TRANSITIONS.get(state, ()):
            return
        case _:
            message = f"The card is {state}; {_hint(state)}"
            raise CardConflictError(CardConflict.INVALID_STATE_TRANSITION, message)


def _hint(state: CardState) -> str:
    if state in _TRANSITIONS:
        return f"allowed: {', '.join(sorted(_TRANSITIONS[state]))}."
    if state is CardState.CLOSED:
        return "that is final; issue another card."
    return "it can be changed once it is ACTIVE."


def _changes(change: CardChange, at: datetime) -> dict[str, Any]:
    changes: dict[str, Any] = {"updated_at": at}
    if change.state is not None:
        changes["state"] = change.state.value
    if change.state is CardState.CLOSED:
        changes["state_reason"] = "CLOSED_BY_PLATFORM"
    if change.funding_sources is not None:
        changes["funding_sources"] = list(change.funding_sources)
    if not isinstance(change.max_spend_per_transaction, Unchanged):
        changes["max_spend_per_transaction"] = change.max_spend_per_transaction
    return changes


def _webhook_types(change: CardChange) -> list[WebhookType]:
    """Return the webhooks of a change, the state first; the limit alone has none."""
    types = []
    if change.state is not None:
        types.append(WebhookType.CARD_STATE_CHANGE)
    if change.funding_sources is not None:
        types.append(WebhookType.CARD_FUNDING_SOURCE_CHANGE)
    return types


def _closing(card_id: Id, owner: Owner, reply_to: str | None, at: datetime) -> Message:
    """Return the message to the engine that the card was closed, so that its holds are released.

    An authorization that read the card as it was before this commit is decided before the
    message, because both lock the cardholder's accounts; so its hold is released as well.
    """
    body = {
        "type": inbox.CARD_CLOSED,
        "source": SOURCE,
        "reference": f"{card_id}/closed",
        "cardId": public_id("Card", card_id),
    }
    return inbox.address(body, owner, lane=Lane.LIVE, reply_to=reply_to, at=at)
