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
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Text, bindparam, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import UNROUTED
from cardledger.ledger.projections.event_rows import StoredEvent
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

    @property
    def has_bodies(self) -> bool:
        """Whether `parse` has anything to parse."""
        return bool(self.with_card) or any(body is not None for _, body in self.parked)


async def read(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    resource: CardTransactionResource,
    events: Sequence[StoredEvent] | None = None,
) -> UnparsedMessages:
    """Return what is stored of messages about the platform's card transaction `resource`.

    `events` are all of its events, where they have been read: their messages are with them.
    """
    applied = await _applied(connection, resource.id) if events is None else _causes(events)
    keys = sorted({(each.source, each.reference) for each in applied})
    rows = await connection.execute(
        _OTHERS,
        {
            "platform": platform_id,
            "sources": [source for source, _ in keys],
            "references": [reference for _, reference in keys],
            "first": first_id_at(resource.created_at - _BEFORE),
            "limit": REJECTIONS_READ,
            "customer": resource.customer_id,
            "unrouted": UNROUTED.customer_id,  # That of a message that could not be read.
            "largest": BODY_BYTES,
            "bytes": BODIES_BYTES,
            "card": public_id("Card", resource.card_id),
            "card_id": resource.card_id,
            "token": resource.issuer_transaction_token,
            "shown": MESSAGE_LIMIT,
        },
    )
    return _unparsed(rows.all(), applied, resource)


def _unparsed(
    rows: Sequence[Row[*tuple[Any, ...]]],
    applied: Sequence[AppliedMessage],
    resource: CardTransactionResource,
) -> UnparsedMessages:
    by_reference = list[RejectedMessage]()
    with_card = list[tuple[RejectedMessage, str]]()
    parked = list[tuple[ParkedMessage, str | None]]()
    is_capped = False
    for row in rows:
        match row.kind:
            case "REFERENCE":
                by_reference.append(_rejected(row, has_reference=True))
            case "CARD":
                with_card.append((_rejected(row), row.body))
            case "PARKED":
                parked.append((_parked(row), row.body))
            case _:
                is_capped = True
    return UnparsedMessages(
        applied=applied,
        by_reference=by_reference,
        with_card=with_card,
        parked=sorted(parked, key=lambda each: each[0].id, reverse=True),
        card=public_id("Card", resource.card_id),
        token=resource.issuer_transaction_token,
        is_capped=is_capped,
    )


def _rejected(row: Row[*tuple[Any, ...]], *, has_reference: bool = False) -> RejectedMessage:
    return RejectedMessage(
        id=row.id,
        source=row.source,
        reference=row.reference,
        reason=row.reason,
        detail=row.detail,
        recorded_at=row.recorded_at,
        has_reference=has_reference,
    )


def _parked(row: Row[*tuple[Any, ...]]) -> ParkedMessage:
    return ParkedMessage(
        id=row.id, source=row.source, reference=row.reference, received_at=row.recorded_at
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


def _causes(events: Sequence[StoredEvent]) -> Sequence[AppliedMessage]:
    """Return the messages that caused `events`, all those of a purchase, the newest first."""
    found: dict[tuple[str, ...], AppliedMessage] = {}
    for sequence, event in enumerate(events, start=1):
        if event.source is None or event.reference is None or event.outcome is None:
            continue  # No outcome has its message.
        key = event.source, event.reference
        known = found.get(key) or AppliedMessage(
            source=event.source,
            reference=event.reference,
            outcome=event.outcome,
            reason=event.outcome_reason,
            first_event=sequence,
            last_event=sequence,
            occurred_at=event.occurred_at,
            recorded_at=event.recorded_at,
        )
        found[key] = replace(
            known,
            last_event=sequence,
            occurred_at=min(known.occurred_at, event.occurred_at),
            recorded_at=min(known.recorded_at, event.recorded_at),
        )
    newest = sorted(found.values(), key=lambda each: each.last_event, reverse=True)
    return newest[:MESSAGE_LIMIT]


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


# Rejections with the reference of a message that was applied: by its hash, which has the index. The
# key itself decides: another sender's messages may have the same references.
#
# Rejections with the card, by the platform and the id, which begins with a time: the card is in the
# body, which is read where the cardholder matches.
#
# Keys are arrays, found first: with joins, a plan that was made while the table was small may read
# all rows of the platform.
#
# What waits, with its body as text: JSON would be parsed where it is received, in the event loop.
_OTHERS: Final = text(
    """
    WITH by_reference AS MATERIALIZED (
        SELECT id, source, reference, reason, detail, recorded_at FROM rejections r
        WHERE platform_id = :platform
            AND md5(reference) = ANY (ARRAY(
                SELECT md5(a) FROM unnest(CAST(:references AS text[])) AS a
            ))
            AND EXISTS (
                SELECT FROM unnest(CAST(:sources AS text[]), CAST(:references AS text[]))
                    AS a (source, reference)
                WHERE a.source = r.source AND a.reference = r.reference
                OFFSET 0
            )
    ), newest AS MATERIALIZED (
        SELECT id, customer_id FROM rejections WHERE platform_id = :platform AND id >= :first
        ORDER BY id DESC LIMIT :limit + 1
    ), of_customer AS MATERIALIZED (
        SELECT id, source, reference, reason, detail, recorded_at, body FROM rejections
        WHERE customer_id IN (:customer, :unrouted)
            AND id = ANY (ARRAY(
                SELECT id FROM newest WHERE customer_id IN (:customer, :unrouted)
            ))
    ), with_card AS MATERIALIZED (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY id DESC) AS bytes FROM of_customer
        WHERE octet_length(body) <= :largest AND strpos(body, :card) > 0
    ), waiting AS MATERIALIZED (
        SELECT id, customer_id, received_at,
            CASE WHEN octet_length(CAST(body AS text)) <= :largest THEN CAST(body AS text) END
                AS body
        FROM parked
        WHERE customer_id = :customer AND card_id = :card_id
            AND issuer_transaction_token = :token
        ORDER BY id DESC LIMIT :shown + 1
    )
    (
        SELECT 'REFERENCE' AS kind, id, source, reference, reason, detail, recorded_at,
            NULL AS body
        FROM by_reference ORDER BY id DESC LIMIT :shown + 1
    )
    UNION ALL (
        SELECT 'CARD', id, source, reference, reason, detail, recorded_at, body FROM with_card
        WHERE bytes <= :bytes ORDER BY id DESC LIMIT :limit
    )
    UNION ALL
    SELECT 'CAPPED', NULL, NULL, NULL, NULL, NULL, NULL, NULL
    WHERE (SELECT count(*) FROM newest) > :limit
        OR EXISTS (SELECT FROM of_customer WHERE octet_length(body) > :largest)
        OR EXISTS (SELECT FROM with_card WHERE bytes > :bytes)
    UNION ALL
    SELECT 'PARKED', w.id, o.source, o.reference, NULL, NULL, w.received_at, w.body
    FROM waiting w
    LEFT JOIN outcomes o ON o.message_id = w.id AND o.customer_id = w.customer_id
    """
).bindparams(
    *(
        bindparam(name, type_=_REJECTION.id.type)
        for name in ("platform", "first", "customer", "unrouted", "card_id")
    ),
    *(bindparam(name, type_=ARRAY(Text)) for name in ("sources", "references")),
)


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
