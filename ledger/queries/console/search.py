"""Find what a text names: an id, the key of an event, a platform's own identifier, a card's end.

Each form has an index that leads to a few rows; a text of no such form gets a hint what to add,
never by reading through a table.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id

HIT_LIMIT: Final = 20
"""What one search returns at most."""

CARD_LIMIT: Final = 200
"""How many cards of a customer are looked at for last four digits and an issuer's token."""

_UUID: Final = re.compile(
    r"(?:([A-Za-z]{1,40}):)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})", re.ASCII
)
_LAST4: Final = re.compile(r"[0-9]{4}", re.ASCII)
_MAX_TEXT: Final = 300

# What is looked for by its id, with the tables of its rows. All have an index on the id.
_TABLES: Final[tuple[tuple[str, Table], ...]] = (
    ("CardTransaction", tables.card_transactions),
    ("Card", tables.cards),
    ("Customer", tables.customers),
    ("InternalAccount", tables.internal_accounts),
    ("Transaction", tables.transfers),
    ("Transaction", tables.deposits),
    ("WebhookDelivery", tables.webhook_deliveries),
    ("WebhookEndpoint", tables.webhook_endpoints),
    ("Rejection", tables.rejections),
)

NOT_FOUND: Final = "Nothing of this platform has this id or name."
NEEDS_KIND: Final = (
    "No card transaction, card, customer, account, transfer, deposit, rejection, webhook endpoint"
    " or delivery of this platform has this id. Of another kind, write the whole id: `Quote:…`."
)
NEEDS_MORE: Final = (
    "An issuer's token has no index of its own: add the card or the customer, as in"
    " `token Card:…`. The last four digits of a card need their customer: `4242 Customer:…`. An"
    " event is found by its source and reference: `visa 8123`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A resource of the platform, by its public id; `by` says what the text named."""

    resource: str
    key: Id
    by: str

    @property
    def name(self) -> str:
        """Its public id."""
        return public_id(self.resource, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, and what to add to the text when that is nothing.

    `is_capped`: at most so many; others have the same name.
    `has_more_cards`: of the customer's cards only `CARD_LIMIT` were looked at.

    `unread` is the resource of a public id that is not looked for here.
    """

    hits: Sequence[Hit]
    hint: str
    unread: str | None = None
    is_capped: bool = False
    has_more_cards: bool = False


async def find(connection: AsyncConnection, *, platform_id: Id, query: str) -> Found:
    """Return what `query` names of the platform."""
    text = query.strip()
    if not text or len(text) > _MAX_TEXT or "\x00" in text:
        return Found(hits=[], hint=NEEDS_MORE)
    named = _UUID.fullmatch(text)
    if named is not None:
        resource = named[1]
        hits = [hit async for hit in _by_id(connection, platform_id, resource, named[2])]
        is_read = resource is None or any(resource == name for name, _ in _TABLES)
        return Found(
            hits=hits,
            hint=NEEDS_KIND if resource is None else NOT_FOUND,
            unread=None if is_read else resource,
        )
    first, _, second = text.partition(" ")
    second = second.strip()
    hits = [hit async for hit in _by_platform(connection, platform_id, text)]
    has_more_cards = False
    if second:
        hits += [hit async for hit in _by_event(connection, platform_id, first, second)]
        within, has_more_cards = await _within(connection, platform_id, first, second)
        hits += within
    return Found(
        hits=hits[:HIT_LIMIT],
        hint=NOT_FOUND if second else f"{NOT_FOUND} {NEEDS_MORE}",
        is_capped=len(hits) > HIT_LIMIT,
        has_more_cards=has_more_cards,
    )


async def _by_id(
    connection: AsyncConnection, platform_id: Id, resource: str | None, uuid: str
) -> AsyncIterator[Hit]:
    key = Id.parse(uuid)
    for name, table in _TABLES:
        if resource not in {None, name}:
            continue
        columns = table.c
        found = await connection.scalar(
            select(columns.id).where(columns.id == key, columns.platform_id == platform_id).limit(1)
        )
        if found is not None:
            yield Hit(resource=name, key=found, by="id")
    # A platform may choose UUIDs as its own identifiers, and issuers as their tokens.
    if resource is None:
        async for hit in _by_platform(connection, platform_id, uuid):
            yield hit


async def _by_platform(
    connection: AsyncConnection, platform_id: Id, text: str
) -> AsyncIterator[Hit]:
    cards, customers = tables.cards.c, tables.customers.c
    for resource, key, column, owner, by in (
        ("Card", cards.id, cards.platform_card_id, cards.platform_id, "platformCardId"),
        (
            "Customer",
            customers.id,
            customers.platform_customer_id,
            customers.platform_id,
            "platformCustomerId",
        ),
    ):
        rows = await connection.scalars(
            select(key)
            .where(owner == platform_id, column == text)
            .order_by(key)
            .limit(HIT_LIMIT + 1)
        )
        for found in rows:
            yield Hit(resource=resource, key=found, by=by)


async def _by_event(
    connection: AsyncConnection, platform_id: Id, source: str, reference: str
) -> AsyncIterator[Hit]:
    columns, purchases = tables.outcomes.c, tables.card_transactions.c
    rows = await connection.scalars(
        select(purchases.id)
        .join_from(
            tables.outcomes,
            tables.card_transactions,
            (purchases.id == columns.subject_id) & (purchases.customer_id == columns.customer_id),
        )
        .where(
            columns.reference == reference,
            columns.source == source,
            columns.platform_id == platform_id,
        )
        .limit(HIT_LIMIT + 1)
    )
    for found in rows:
        yield Hit(resource="CardTransaction", key=found, by="event")
    rejected = tables.rejections.c
    rows = await connection.scalars(
        select(rejected.id)
        .where(
            rejected.platform_id == platform_id,
            # By the hash, which has the index; the reference itself decides.
            func.md5(rejected.reference) == func.md5(reference),
            rejected.reference == reference,
            rejected.source == source,
        )
        .order_by(rejected.id.desc())
        .limit(HIT_LIMIT + 1)
    )
    for found in rows:
        yield Hit(resource="Rejection", key=found, by="event, which was rejected")


async def _within(
    connection: AsyncConnection, platform_id: Id, text: str, owner: str
) -> tuple[list[Hit], bool]:
    """Return the cards of a customer that end in `text`, and purchases with this token.

    And whether the customer has more cards than were looked at.
    """
    named = _UUID.fullmatch(owner)
    if named is None or named[1] not in {"Card", "Customer"}:
        return [], False
    key = Id.parse(named[2])
    cards = tables.cards.c
    is_owner = (cards.id if named[1] == "Card" else cards.customer_id) == key
    own = await connection.execute(
        select(cards.id, cards.customer_id, cards.last4)
        .where(is_owner, cards.platform_id == platform_id)
        .order_by(cards.id)
        .limit(CARD_LIMIT + 1)
    )
    rows = own.all()
    of_owner, has_more = rows[:CARD_LIMIT], len(rows) > CARD_LIMIT
    if not of_owner:
        return [], False
    hits = [
        Hit(resource="Card", key=card.id, by="last four digits")
        for card in of_owner
        if _LAST4.fullmatch(text) and card.last4 == text
    ]
    purchases = tables.card_transactions.c
    conditions: list[ColumnElement[bool]] = [
        purchases.customer_id == of_owner[0].customer_id,
        purchases.card_id.in_([card.id for card in of_owner]),
        purchases.issuer_transaction_token == text,
    ]
    with_token = await connection.scalars(
        select(purchases.id).where(*conditions).limit(HIT_LIMIT + 1)
    )
    hits += [Hit(resource="CardTransaction", key=key, by="issuer's token") for key in with_token]
    return hits, has_more
