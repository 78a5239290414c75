"""The network's messages about one card transaction, those that wait, and those that were rejected.

Which message caused which event, the events say. A message that was rejected belongs to no card
transaction: it is found by the reference of a message that was applied, or by card and issuer's
token among the newest rejections of the platform; one that waits has an index on both. Of a
duplicate the record keeps the id alone, in a table without an index: none is returned.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Text, bindparam, case, cast, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import UNROUTED
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.network_events import EventType

MESSAGE_LIMIT: Final = 50
"""Messages of each kind that are returned, the newest."""

REJECTIONS_READ = 1_000
"""Rejections of the platform in which those of a card and token are looked for, the newest."""

BODY_BYTES: Final = 4 * 1024
"""The largest body that is searched; an event has a few hundred bytes."""

BODIES_BYTES: Final = 1024 * 1024
"""Bytes of all bodies with the card that are searched, those of the newest rejections."""

_BEFORE: Final = timedelta(days=1)  # A first message may have been rejected, and sent again.

_EVENT: Final = tables.card_transaction_events.c
_OUTCOME: Final = tables.outcomes.c
_REJECTION: Final = tables.rejections.c
_PARKED: Final = tables.parked.c


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedMessage:
    """A message with its outcome, and the first and the last event that it caused."""

    source: str
    reference: str
    outcome: str
    reason: str | None
    first_event: int
    last_event: int
    occurred_at: datetime
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedMessage:
    """A message that was rejected, and why.

    `has_reference`: its key is that of a message that was applied; `has_token`: it names the card
    and the issuer's token of the purchase.
    """

    id: Id
    source: str | None
    reference: str | None
    reason: str
    detail: str | None
    recorded_at: datetime
    has_reference: bool = False
    has_token: bool = False


_WAITS_FOR: Final[Mapping[str, EventType]] = {
    EventType.AUTHORIZATION_ADVICE: EventType.AUTHORIZATION,
    EventType.AUTHORIZATION_EXPIRY: EventType.AUTHORIZATION,
    EventType.AUTHORIZATION_REVERSAL: EventType.AUTHORIZATION,
    EventType.CLEARING_REVERSAL: EventType.CLEARING,
    EventType.RETURN_REVERSAL: EventType.RETURN,
}
"""What a message waits for, by its type: the rule is `core.card_transaction.waits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedMessage:
    """A message that waits for an earlier one of the same purchase.

    `source` and `reference` are those of its outcome. `type` is None where its body is larger than
    `BODY_BYTES`, or is no event that the ledger parks.
    """

    id: Id
    source: str | None
    reference: str | None
    received_at: datetime
    type: str | None = None

    @property
    def waits_for(self) -> str | None:
        """The type of the earlier message; None: it is not known."""
        return _WAITS_FOR.get(self.type or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseMessages:
    """The messages about a purchase; of each kind the newest, at most `MESSAGE_LIMIT`.

    `is_capped`: the platform has more rejections since the purchase than `REJECTIONS_READ`, larger
    ones than `BODY_BYTES`, or more with the card than `BODIES_BYTES`; those with its token are not
    among `rejected`, unless they have a reference of the purchase.
    """

    applied: Sequence[AppliedMessage]
    rejected: Sequence[RejectedMessage]
    parked: Sequence[ParkedMessage]
    is_capped: bool = False
    has_more_rejected: bool = False
    has_more_parked: bool = False

    @property
    def has_earlier(self) -> bool:
        """Whether messages that caused earlier events are left out."""
        return bool(self.applied) and min(each.first_event for each in self.applied) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnparsedMessages:
    """What `parse` finds the messages about a purchase in: some have their bodies beside them."""

    applied: Sequence[AppliedMessage]
    by_reference: Sequence[RejectedMessage]
    with_card: Sequence[tuple[RejectedMessage, str]]
    parked: Sequence[tuple[ParkedMessage, str | None]]
    card: str
    token: str
    is_capped: bool


async def read(
    connection: AsyncConnection, *, platform_id: Id, resource: CardTransactionResource
) -> UnparsedMessages:
    """Return what is stored of messages about the platform's card transaction `resource`."""
    applied = await _applied(connection, resource.id)
    by_reference = await _with_reference(
        connection, platform_id, {(each.source, each.reference) for each in applied}
    )
    with_card, is_capped = await _with_card(connection, platform_id, resource)
    return UnparsedMessages(
        applied=applied,
        by_reference=by_reference,
        with_card=with_card,
        parked=await _parked(connection, resource),
        card=public_id("Card", resource.card_id),
        token=resource.issuer_transaction_token,
        is_capped=is_capped,
    )


def parse(unparsed: UnparsedMessages) -> PurchaseMessages:
    """Return the messages about a purchase.

    Many bodies are parsed: not in an event loop, and not while a connection is held.
    """
    by_token = [
        replace(message, has_token=True)
        for message, body in unparsed.with_card
        if _names(body, unparsed.card, unparsed.token)
    ]
    rejected = _merged(unparsed.by_reference, by_token)
    return PurchaseMessages(
        applied=unparsed.applied,
        rejected=rejected[:MESSAGE_LIMIT],
        parked=[
            replace(message, type=_parked_type(body))
            for message, body in unparsed.parked[:MESSAGE_LIMIT]
        ],
        is_capped=unparsed.is_capped,
        has_more_rejected=len(rejected) > MESSAGE_LIMIT,
        has_more_parked=len(unparsed.parked) > MESSAGE_LIMIT,
    )


def _merged(
    by_reference: Sequence[RejectedMessage], by_token: Sequence[RejectedMessage]
) -> Sequence[RejectedMessage]:
    """Return each message once, the newest first."""
    found = {each.id: each for each in by_reference}
    for each in by_token:
        found[each.id] = replace(each, has_reference=each.id in found)
    return sorted(found.values(), key=lambda each: each.id, reverse=True)


async def _applied(
    connection: AsyncConnection, card_transaction_id: Id
) -> Sequence[AppliedMessage]:
    # The events of the last messages, by their primary key: a message has a few events.
    newest = (
        select(
            _EVENT.message_id,
            _EVENT.customer_id,
            _EVENT.sequence,
            _EVENT.occurred_at,
            _EVENT.recorded_at,
        )
        .where(_EVENT.card_transaction_id == card_transaction_id)
        .order_by(_EVENT.sequence.desc())
        .limit(MESSAGE_LIMIT * 4)
        .subquery()
    )
    rows = await connection.execute(
        select(
            _OUTCOME.source,
            _OUTCOME.reference,
            _OUTCOME.outcome,
            _OUTCOME.reason,
            func.min(newest.c.sequence).label("first_event"),
            func.max(newest.c.sequence).label("last_event"),
            func.min(newest.c.occurred_at).label("occurred_at"),
            func.min(newest.c.recorded_at).label("recorded_at"),
        )
        .join_from(
            newest,
            tables.outcomes,
            (_OUTCOME.message_id == newest.c.message_id)
            & (_OUTCOME.customer_id == newest.c.customer_id),
        )
        .group_by(_OUTCOME.source, _OUTCOME.reference, _OUTCOME.outcome, _OUTCOME.reason)
        .order_by(func.max(newest.c.sequence).desc())
        .limit(MESSAGE_LIMIT)
    )
    return [AppliedMessage(**row) for row in rows.mappings()]


async def _with_reference(
    connection: AsyncConnection, platform_id: Id, keys: set[tuple[str, str]]
) -> Sequence[RejectedMessage]:
    if not keys:
        return []
    rows = await connection.execute(
        select(
            _REJECTION.id,
            _REJECTION.source,
            _REJECTION.reference,
            _REJECTION.reason,
            _REJECTION.detail,
            _REJECTION.recorded_at,
        )
        .where(
            _REJECTION.platform_id == platform_id,
            # By the hash, which has the index; the key itself decides: another sender's messages
            # may have the same references.
            func.md5(_REJECTION.reference).in_(
                [func.md5(each) for each in sorted({reference for _, reference in keys})]
            ),
            tuple_(_REJECTION.source, _REJECTION.reference).in_(sorted(keys)),
        )
        .order_by(_REJECTION.id.desc())
        .limit(MESSAGE_LIMIT + 1)
    )
    return [RejectedMessage(**row, has_reference=True) for row in rows.mappings()]


# By the platform and the id, which begins with a time; the card is in the body of a message of it.
_WITH_CARD: Final = text(
    """
    WITH newest AS MATERIALIZED (
        SELECT id, customer_id, source, reference, reason, detail, recorded_at, body
        FROM rejections WHERE platform_id = :platform AND id >= :first
        ORDER BY id DESC LIMIT :limit + 1
    ), with_card AS MATERIALIZED (
        SELECT id, source, reference, reason, detail, recorded_at, body,
            sum(octet_length(body)) OVER (ORDER BY id DESC) AS bytes
        FROM newest
        WHERE customer_id IN (:customer, :unrouted) AND octet_length(body) <= :largest
            AND strpos(body, :card) > 0
    )
    SELECT capped.*, r.*
    FROM (
        SELECT
            (SELECT count(*) FROM newest) > :limit
            OR EXISTS (
                SELECT FROM newest
                WHERE customer_id IN (:customer, :unrouted) AND octet_length(body) > :largest
            )
            OR EXISTS (SELECT FROM with_card WHERE bytes > :bytes) AS is_capped
    ) capped
    LEFT JOIN LATERAL (
        SELECT id, source, reference, reason, detail, recorded_at, body FROM with_card
        WHERE bytes <= :bytes ORDER BY id DESC LIMIT :limit
    ) r ON true
    """
).bindparams(
    *(
        bindparam(name, type_=_REJECTION.id.type)
        for name in ("platform", "first", "customer", "unrouted")
    )
)


async def _with_card(
    connection: AsyncConnection, platform_id: Id, resource: CardTransactionResource
) -> tuple[Sequence[tuple[RejectedMessage, str]], bool]:
    """Return rejections with the card of `resource`, and whether there may be others."""
    rows = await connection.execute(
        _WITH_CARD,
        {
            "platform": platform_id,
            "first": first_id_at(resource.created_at - _BEFORE),
            "limit": REJECTIONS_READ,
            "customer": resource.customer_id,
            "unrouted": UNROUTED.customer_id,  # That of a message that could not be read.
            "largest": BODY_BYTES,
            "bytes": BODIES_BYTES,
            "card": public_id("Card", resource.card_id),
        },
    )
    found, is_capped = list[tuple[RejectedMessage, str]](), False
    for row in rows.mappings():
        values = dict(row)
        is_capped, body = values.pop("is_capped"), values.pop("body")
        if body is not None:
            found.append((RejectedMessage(**values), body))
    return found, is_capped


def _names(body: str, card: str, token: str) -> bool:
    """Return whether the message `body`, of whatever form, names `card` and `token`."""
    sent = _parsed(body)
    return sent.get("cardId") == card and sent.get("issuerTransactionToken") == token


def _parked_type(body: str | None) -> str | None:
    """Return the type of the event `body`, if it is one that the ledger parks."""
    found = None if body is None else _parsed(body).get("type")
    return found if isinstance(found, str) and found in _WAITS_FOR else None


def _parsed(body: str) -> Mapping[str, object]:
    """Return the JSON object `body`; an empty one: it is something else."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return sent if isinstance(sent, dict) else {}


async def _parked(
    connection: AsyncConnection, resource: CardTransactionResource
) -> Sequence[tuple[ParkedMessage, str | None]]:
    """Return what waits, each with its body unless it is a large one."""
    body = cast(_PARKED.body, Text)  # JSON would be parsed where it is received, in the event loop.
    waiting = (
        select(
            _PARKED.id,
            _PARKED.customer_id,
            _PARKED.received_at,
            case((func.octet_length(body) <= BODY_BYTES, body)).label("body"),
        )
        .where(
            _PARKED.customer_id == resource.customer_id,
            _PARKED.card_id == resource.card_id,
            _PARKED.issuer_transaction_token == resource.issuer_transaction_token,
        )
        .order_by(_PARKED.id.desc())
        .limit(MESSAGE_LIMIT + 1)
        .subquery()
    )
    rows = await connection.execute(
        select(
            waiting.c.id, _OUTCOME.source, _OUTCOME.reference, waiting.c.received_at, waiting.c.body
        )
        .join_from(
            waiting,
            tables.outcomes,
            (_OUTCOME.message_id == waiting.c.id) & (_OUTCOME.customer_id == waiting.c.customer_id),
            isouter=True,
        )
        .order_by(waiting.c.id.desc())
    )
    found = list[tuple[ParkedMessage, str | None]]()
    for row in rows.mappings():
        values = dict(row)
        text_of_body = values.pop("body")
        found.append((ParkedMessage(**values), text_of_body))
    return found
