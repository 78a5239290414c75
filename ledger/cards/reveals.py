"""Card number reveals: one page view per token, for five minutes, with an audit record."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.card import CardState
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id

LIFETIME: Final = timedelta(minutes=5)
_TOKEN_BYTES: Final = 32
_SHOWN: Final = frozenset({CardState.ACTIVE, CardState.FROZEN})

_log = structlog.get_logger()


class NotRevealableError(Exception):
    """The card's state, which the message names, has no number to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """A page that can be opened once; only the caller knows `token`."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedCard:
    """The card whose page was opened."""

    card_id: Id
    state: CardState
    last4: str
    exp_month: int
    exp_year: int


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    api_token_id: Id,
    keys: KeyRing,
    at: datetime,
) -> Reveal | None:
    """Create a token that shows a card number once; the caller is recorded and logged.

    None when the platform has no such card.
    Raises: NotRevealableError when the card has no number yet, or none any more.
    """
    columns = tables.cards.c
    rows = await connection.execute(
        select(columns.state).where(columns.id == card_id, columns.platform_id == platform_id)
    )
    state = rows.scalar_one_or_none()
    if state is None:
        return None
    if state not in _SHOWN:
        message = f"the card is {state}; only an ACTIVE or FROZEN card has a number to show"
        raise NotRevealableError(message)
    reveal = Reveal(token=secrets.token_urlsafe(_TOKEN_BYTES), expires_at=at + LIFETIME)
    await connection.execute(
        tables.card_reveals.insert().values(
            token_hash=keys.hash_secret(reveal.token),
            card_id=card_id,
            api_token_id=api_token_id,
            created_at=at,
            expires_at=reveal.expires_at,
        )
    )
    _audit("card number requested", card_id, api_token_id, at)
    return reveal


async def open_once(
    connection: AsyncConnection, *, token: str, keys: KeyRing, at: datetime
) -> RevealedCard | None:
    """Return the card of `token` and mark the token as used.

    None when there is no such token, when it is used or expired, or when the card has been closed
    since.
    """
    reveals, card = tables.card_reveals.c, tables.cards.c
    # One statement: of two concurrent calls, the second waits and then finds the token used.
    rows = await connection.execute(
        tables.card_reveals.update()
        .where(
            reveals.token_hash == keys.hash_secret(token),
            reveals.opened_at.is_(None),
            reveals.expires_at > at,
            card.id == reveals.card_id,
            card.state.in_(_SHOWN),
        )
        .values(opened_at=at)
        .returning(
            reveals.api_token_id,
            card.id,
            card.state,
            card.last4,
            card.exp_month,
            card.exp_year,
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    _audit("card number shown", row.id, row.api_token_id, at)
    return RevealedCard(
        card_id=row.id,
        state=CardState(row.state),
        last4=row.last4,
        exp_month=row.exp_month,
        exp_year=row.exp_year,
    )


def _audit(what: str, card_id: Id, api_token_id: Id, at: datetime) -> None:
    """Log who did what to which card, without anything secret."""
    card = public_id("Card", card_id)
    _log.info(what, audit=True, actor=str(api_token_id), card=card, at=at.isoformat())
