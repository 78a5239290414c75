"""The network's messages about one card transaction, those that wait, and those that were rejected.

Which message caused which event, the events say. A message that was rejected belongs to no card
transaction: it is found by the reference of a message that was applied, and one that waits by the
issuer's token. Each look-up has an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource

MESSAGE_LIMIT: Final = 50
"""Messages of each kind that are returned, the newest."""

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
    """A message with the key of one that was applied, and why it was rejected."""

    id: Id
    source: str | None
    reference: str | None
    reason: str
    detail: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedMessage:
    """A message that waits for an earlier one of the same purchase."""

    id: Id
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseMessages:
    """The messages about a purchase; of each kind the newest, at most `MESSAGE_LIMIT`."""

    applied: Sequence[AppliedMessage]
    rejected: Sequence[RejectedMessage]
    parked: Sequence[ParkedMessage]


async def read(
    connection: AsyncConnection, *, platform_id: Id, resource: CardTransactionResource
) -> PurchaseMessages:
    """Return the messages about the platform's card transaction `resource`."""
    applied = await _applied(connection, resource.id)
    return PurchaseMessages(
        applied=applied,
        rejected=await _rejected(
            connection, platform_id, {(each.source, each.reference) for each in applied}
        ),
        parked=await _parked(connection, resource),
    )


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


async def _rejected(
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
        .limit(MESSAGE_LIMIT)
    )
    return [RejectedMessage(**row) for row in rows.mappings()]


async def _parked(
    connection: AsyncConnection, resource: CardTransactionResource
) -> Sequence[ParkedMessage]:
    rows = await connection.execute(
        select(_PARKED.id, _PARKED.received_at)
        .where(
            _PARKED.customer_id == resource.customer_id,
            _PARKED.card_id == resource.card_id,
            _PARKED.issuer_transaction_token == resource.issuer_transaction_token,
        )
        .order_by(_PARKED.id.desc())
        .limit(MESSAGE_LIMIT)
    )
    return [ParkedMessage(**row) for row in rows.mappings()]
