"""Reveals of a card's number: a page for one browser, for one minute, on record."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hmac import compare_digest
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement, Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.card import CardState
from cardledger.ledger.storage import caps
from cardledger.ledger.storage.caps import CapReachedError
from cardledger.ledger.storage.secrets import owned_tokens
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id

LIFETIME: Final = timedelta(seconds=60)

PAGE_LIMIT: Final = 10
"""Pages of a card that have not expired, shown or not."""

_HASH_BYTES: Final = 32
_SHOWN: Final = frozenset({CardState.ACTIVE, CardState.FROZEN})

_REVEAL: Final = tables.card_reveals.c
_CARD: Final = tables.cards.c
_SHOWN_COLUMNS: Final = (
    _REVEAL.api_token_id,
    _REVEAL.expires_at,
    _CARD.id,
    _CARD.state,
    _CARD.brand,
    _CARD.last4,
    _CARD.exp_month,
    _CARD.exp_year,
)

_log = structlog.get_logger()


class NotRevealableError(Exception):
    """The card is in a state without a number to show; the message names the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """A page for one browser; only the caller of `create` knows `token`."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedCard:
    """The card on a page; `viewer` lets the same browser open the page again."""

    card_id: Id
    state: CardState
    brand: str
    last4: str
    exp_month: int
    exp_year: int
    expires_at: datetime
    viewer: str


async def create(  # noqa: PLR0913 - the card and the caller, by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    api_token_id: Id,
    keys: KeyRing,
    at: datetime,
) -> Reveal | None:
    """Create a page with the number of a card; the API token is recorded and logged.

    None when the platform has no such card.
    Raises: NotRevealableError when the card's state has no number to show; CapReachedError.
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
    await _check_cap(connection, card_id, at)
    reveal = Reveal(token=owned_tokens.new(card_id), expires_at=at + LIFETIME)
    await connection.execute(
        tables.card_reveals.insert().values(
            token_hash=keys.hash_secret(reveal.token, Purpose.CARD_PAGE),
            card_id=card_id,
            api_token_id=api_token_id,
            created_at=at,
            expires_at=reveal.expires_at,
        )
    )
    _audit("card number requested", card_id, api_token_id, at)
    return reveal


async def _check_cap(connection: AsyncConnection, card_id: Id, at: datetime) -> None:
    """Check that the card has fewer than `PAGE_LIMIT` pages, before one more is created.

    Each is a credential for its number, and its row is kept for more than a year.
    Raises: CapReachedError.
    """
    await caps.lock(connection, tables.card_reveals, card_id)
    pages = select(_REVEAL.card_id).where(_REVEAL.card_id == card_id, _REVEAL.expires_at > at)
    counted = select(func.count()).select_from(pages.limit(PAGE_LIMIT).subquery())
    if await connection.scalar(counted) == PAGE_LIMIT:
        message = (
            f"The card has {PAGE_LIMIT} pages with its number, the maximum; each expires after"
            f" {LIFETIME.seconds} seconds."
        )
        raise CapReachedError(message, limit=PAGE_LIMIT)


async def platform_of(connection: AsyncConnection, *, token: str, keys: KeyRing) -> Id | None:
    """Return the platform of the card of `token`; None: there is no such token."""
    platform_id: Id | None = await connection.scalar(
        select(_CARD.platform_id)
        .join_from(tables.card_reveals, tables.cards, _CARD.id == _REVEAL.card_id)
        .where(*_of_token(token, keys))
    )
    return platform_id


async def view(
    connection: AsyncConnection, *, token: str, viewer: str | None, keys: KeyRing, at: datetime
) -> RevealedCard | None:
    """Return the card of `token` to its first viewer, and count the view.

    `viewer` is the key that an earlier view returned to this browser. None when there is no such
    token or it has expired, when another browser opened the page first, or when the card has been
    closed since.
    """
    # One statement: of two first views at once, the second waits and then finds the page opened.
    rows = await connection.execute(
        tables.card_reveals.update()
        .where(*_visible(token, viewer, keys, at))
        .values(
            opened_at=func.coalesce(_REVEAL.opened_at, at),
            view_count=_REVEAL.view_count + 1,
        )
        .returning(*_SHOWN_COLUMNS)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    _audit("card number shown", row.id, row.api_token_id, at)
    return _view(row, token, keys)


async def peek(
    connection: AsyncConnection, *, token: str, viewer: str | None, keys: KeyRing, at: datetime
) -> RevealedCard | None:
    """Return what `view` would return, and count nothing: for link previews."""
    rows = await connection.execute(
        select(*_SHOWN_COLUMNS)
        .join_from(tables.card_reveals, tables.cards, _CARD.id == _REVEAL.card_id)
        .where(*_visible(token, viewer, keys, at))
    )
    row = rows.one_or_none()
    return None if row is None else _view(row, token, keys)


def is_first_viewer(token: str, viewer: str | None, keys: KeyRing) -> bool:
    """Return whether `viewer` proves that this browser was the first to see the card of `token`."""
    if viewer is None:
        return False
    expected = keys.presented(token, Purpose.CARD_VIEWER).candidates
    given = viewer.encode(errors="replace")
    return any(compare_digest(given, _cookie_of(digest).encode()) for digest in expected)


def viewer_key(token: str, keys: KeyRing) -> str:
    """Return what proves that a browser was the first to open the page of `token`."""
    return _cookie_of(keys.hash_secret(token, Purpose.CARD_VIEWER))


def _cookie_of(digest: bytes) -> str:
    """Return a hash without its header: which server key it is of concerns no browser."""
    return digest[-_HASH_BYTES:].hex()


def _visible(
    token: str, viewer: str | None, keys: KeyRing, at: datetime
) -> list[ColumnElement[bool]]:
    conditions = [
        *_of_token(token, keys),
        _REVEAL.expires_at > at,
        _CARD.id == _REVEAL.card_id,
        _CARD.state.in_(_SHOWN),
    ]
    if not is_first_viewer(token, viewer, keys):
        conditions.append(_REVEAL.opened_at.is_(None))
    return conditions


def _of_token(token: str, keys: KeyRing) -> list[ColumnElement[bool]]:
    """Return the conditions of the page of `token`: its hash is in the row of the card it names."""
    candidates = keys.presented(token, Purpose.CARD_PAGE).candidates
    return [_REVEAL.token_hash.in_(candidates), _REVEAL.card_id == owned_tokens.owner_in(token)]


def _view(row: Row[*tuple[Any, ...]], token: str, keys: KeyRing) -> RevealedCard:
    return RevealedCard(
        card_id=row.id,
        state=CardState(row.state),
        brand=row.brand,
        last4=row.last4,
        exp_month=row.exp_month,
        exp_year=row.exp_year,
        expires_at=row.expires_at,
        viewer=viewer_key(token, keys),
    )


def _audit(action: str, card_id: Id, api_token_id: Id, at: datetime) -> None:
    """Log the action, the API token and the card, and nothing that is secret."""
    card = public_id("Card", card_id)
    _log.info(action, audit=True, actor=str(api_token_id), card=card, at=at.isoformat())
