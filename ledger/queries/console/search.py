"""Find what a text names: an id, the key of an event, a platform's own identifier, a card's end.

Each form has an index that leads to a few rows; a text of no such form gets a hint what to add,
never by reading through a table.
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Table, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.outcomes import OutcomeType

HIT_LIMIT: Final = 20
"""What one search returns at most."""

CARD_LIMIT: Final = 200
"""How many cards of a customer are looked at for last four digits and an issuer's token."""

SPLIT_LIMIT: Final = 8
"""At how many blanks a text is split: names on both sides of one may have blanks themselves."""

_OWNER_LIMIT: Final = 4  # Customers, and cards, that parts of a text name.

_UUID: Final = re.compile(
    r"(?:([A-Za-z]{1,40}):)?([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})", re.ASCII
)
_LAST4: Final = re.compile(r"[0-9]{4}", re.ASCII)
_BLANKS: Final = re.compile(r"\s+")
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
RESOURCES: Final = frozenset(name for name, _ in _TABLES)
"""What is found by its public id."""

NOT_FOUND: Final = "Nothing of this platform has this id or name."
NEEDS_KIND: Final = (
    "No card transaction, card, customer, account, transfer, deposit, rejection, webhook endpoint"
    " or delivery of this platform has this id. Of another kind, write the whole id: `Quote:…`."
    " An issuer's token needs the card or the customer: `token Card:…`; the reference of an event"
    " needs its source: `visa 8123`."
)
NEEDS_MORE: Final = (
    "An issuer's token has no index of its own: add the card or the customer, as in"
    " `token Card:…`. The last four digits of a card need their customer: `4242 Customer:…`. An"
    " event is found by its source and reference: `visa 8123`."
)
_WAS_PARKED: Final = (
    "event, which was parked before its card transaction existed, and is applied by now: see the"
    " card transactions of the customer"
)
NOT_ALL_TRIED: Final = (
    f"A text with more than {SPLIT_LIMIT} blanks is split at the first and last ones only: for an"
    " event, search for its `CardTransaction:…` instead."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A resource of the platform, by its public id; `by` says what the text named.

    `is_owner`: it is the owner of what the text named, which itself has no page or is not known.
    """

    resource: str
    key: Id
    by: str
    is_owner: bool = False

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
        # A platform may choose UUIDs as its own identifiers, also with a word before them.
        hits += [hit async for hit in _by_platform(connection, platform_id, text)]
        is_read = resource is None or resource in RESOURCES
        return Found(
            hits=hits,
            hint=NEEDS_KIND if resource is None else NOT_FOUND,
            unread=None if is_read else resource,
        )
    splits, is_cut = _splits(text)
    hits = [hit async for hit in _by_platform(connection, platform_id, text)]
    has_more_cards = False
    if splits:
        hits += [hit async for hit in _by_event(connection, platform_id, splits)]
        hits += [hit async for hit in _by_parked_event(connection, platform_id, splits)]
        within, has_more_cards = await _within(connection, platform_id, splits)
        hits += within
    hits = list({(hit.resource, hit.key): hit for hit in hits}.values())
    more = NOT_ALL_TRIED if is_cut else "" if splits else NEEDS_MORE
    return Found(
        hits=hits[:HIT_LIMIT],
        hint=f"{NOT_FOUND} {more}".rstrip(),
        is_capped=len(hits) > HIT_LIMIT,
        has_more_cards=has_more_cards,
    )


def _splits(text: str) -> tuple[list[tuple[str, str]], bool]:
    """Return the parts before and after each run of blanks, and whether some runs are left out.

    Sources, references and the names that a platform gives may have blanks, so that none of them
    says where the first part ends.
    """
    blanks = list(_BLANKS.finditer(text))
    half = SPLIT_LIMIT // 2
    is_cut = len(blanks) > SPLIT_LIMIT
    tried = [*blanks[:half], *blanks[-half:]] if is_cut else blanks
    return [(text[: blank.start()], text[blank.end() :]) for blank in tried], is_cut


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
    connection: AsyncConnection, platform_id: Id, keys: Sequence[tuple[str, str]]
) -> AsyncIterator[Hit]:
    """Yield what the events with one of `keys`, each a source and a reference, are about."""
    columns, purchases = tables.outcomes.c, tables.card_transactions.c
    rows = await connection.scalars(
        select(purchases.id)
        .join_from(
            tables.outcomes,
            tables.card_transactions,
            (purchases.id == columns.subject_id) & (purchases.customer_id == columns.customer_id),
        )
        .where(
            tuple_(columns.source, columns.reference).in_(keys),
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
            func.md5(rejected.reference).in_([func.md5(reference) for _, reference in keys]),
            tuple_(rejected.source, rejected.reference).in_(keys),
        )
        .order_by(rejected.id.desc())
        .limit(HIT_LIMIT + 1)
    )
    for found in rows:
        yield Hit(resource="Rejection", key=found, by="event, which was rejected")


async def _by_parked_event(
    connection: AsyncConnection, platform_id: Id, keys: Sequence[tuple[str, str]]
) -> AsyncIterator[Hit]:
    """Yield the events with one of `keys` that were parked before their purchase existed.

    The outcome of such an event names no purchase, and no index leads from the event to the one
    that it was applied to: then its customer is found.
    """
    columns, parked = tables.outcomes.c, tables.parked.c
    waiting = (  # Not a join, which might read all parked events of the platform.
        select(parked.id)
        .where(parked.platform_id == columns.platform_id, parked.id == columns.message_id)
        .limit(1)
        .scalar_subquery()
    )
    rows = await connection.execute(
        select(columns.customer_id, waiting)
        .where(
            tuple_(columns.source, columns.reference).in_(keys),
            columns.platform_id == platform_id,
            columns.subject_id.is_(None),
            columns.outcome == OutcomeType.PARKED.value,
        )
        .limit(HIT_LIMIT + 1)
    )
    for customer_id, parked_id in rows:
        if parked_id is not None:
            yield Hit(resource="ParkedEvent", key=parked_id, by="event, which is parked")
        else:
            yield Hit(resource="Customer", key=customer_id, by=_WAS_PARKED, is_owner=True)


async def _within(
    connection: AsyncConnection, platform_id: Id, splits: Sequence[tuple[str, str]]
) -> tuple[list[Hit], bool]:
    """Return what one part of the text names among the cards that the other part names.

    These are cards of a customer by their last four digits, and purchases by the issuer's token.
    And return whether more cards are named than were looked at.
    """
    pairs = [*splits, *((after, before) for before, after in splits)]
    owners, has_more = await _owners(connection, platform_id, [owner for _, owner in pairs])
    hits: list[Hit] = []
    for text, owner in pairs:
        for is_owned in owners.get(owner, ()):
            found, has_more_cards = await _of_cards(connection, platform_id, text, is_owned)
            hits += found
            has_more = has_more or has_more_cards
    return hits, has_more


_Owners = dict[str, list[ColumnElement[bool]]]
"""Conditions on cards, by the name of the card or the customer that they belong to."""


async def _owners(
    connection: AsyncConnection, platform_id: Id, names: Sequence[str]
) -> tuple[_Owners, bool]:
    """Return the cards that `names` name, and whether more customers have these names."""
    owners = {name: list(_by_owner(name)) for name in names}
    cards, customers = tables.cards.c, tables.customers.c
    has_more = False
    for key, column, owner, card_column in (
        (cards.id, cards.platform_card_id, cards.platform_id, cards.id),
        (
            customers.id,
            customers.platform_customer_id,
            customers.platform_id,
            cards.customer_id,
        ),
    ):
        rows = await connection.execute(
            select(column, key)
            .where(owner == platform_id, column.in_(names))
            # By name first, which only the index of names can be read for. A name is free again
            # when its customer was deleted.
            .order_by(column, key.desc())
            .limit(_OWNER_LIMIT + 1)
        )
        found = rows.all()
        has_more = has_more or len(found) > _OWNER_LIMIT
        for name, named in found[:_OWNER_LIMIT]:
            owners[name].append(card_column == named)
    return owners, has_more


def _by_owner(name: str) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions on the cards of the owner whose id `name` is; none: it is no id."""
    named = _UUID.fullmatch(name)
    if named is None:
        return
    for resource, column in (
        ("Card", tables.cards.c.id),
        ("Customer", tables.cards.c.customer_id),
    ):
        if named[1] in {None, resource}:
            yield column == Id.parse(named[2])


async def _of_cards(
    connection: AsyncConnection, platform_id: Id, text: str, is_owned: ColumnElement[bool]
) -> tuple[list[Hit], bool]:
    """Return the cards of one owner that end in `text`, and their purchases with this token.

    And whether the owner has more cards than were looked at.
    """
    cards = tables.cards.c
    own = await connection.execute(
        select(cards.id, cards.customer_id, cards.last4)
        .where(is_owned, cards.platform_id == platform_id)
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
