"""Look-ups for an operator, of all platforms: what an event became, and the webhooks about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row

from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id

WEBHOOK_LIMIT: Final = 1_000
"""Webhooks of one card transaction that are listed, the oldest first."""

OUTCOME_LIMIT: Final = 10
"""Outcomes with one source and reference that are listed; each platform may have one."""

_OUTBOX_SCAN_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow:
    """The outcome of a network event."""

    platform_id: Id
    outcome: str
    reason: str | None
    subject_id: Id | None  # The card transaction, deposit or transfer.
    sequence: int | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRow:
    """A webhook to one endpoint; the delivery is None while the webhook is in the outbox."""

    webhook_id: Id
    delivery_id: Id | None
    endpoint_id: Id | None
    type: str
    sequence: int | None
    state: str
    attempts: int
    last_status: int | None
    created_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None


_OUTCOMES: Final = """
    SELECT platform_id, outcome, reason, subject_id, sequence, recorded_at
    FROM outcomes
    WHERE reference = %(reference)s AND source = %(source)s
        AND (%(platform)s::uuid IS NULL OR platform_id = %(platform)s)
    ORDER BY platform_id, customer_id LIMIT %(limit)s
"""


async def outcomes(
    connection: AsyncConnection[Any], source: str, reference: str, *, platform_id: Id | None
) -> list[OutcomeRow]:
    """Return the outcomes of the events with this source and reference."""
    named = {
        "source": source,
        "reference": reference,
        "platform": platform_id,
        "limit": OUTCOME_LIMIT,
    }
    async with connection.cursor(row_factory=class_row(OutcomeRow)) as cursor:
        return await (await cursor.execute(_OUTCOMES, named)).fetchall()


_PLATFORM: Final = "SELECT platform_id FROM card_transactions WHERE id = %s"


async def platform_of(connection: AsyncConnection[Any], card_transaction_id: Id) -> Id | None:
    """Return the platform of a card transaction; None when there is no such card transaction."""
    cursor = await connection.execute(_PLATFORM, [card_transaction_id])
    row = await cursor.fetchone()
    return None if row is None else row[0]


_DELIVERIES: Final = """
    SELECT webhook_id, id AS delivery_id, endpoint_id, type, sequence, state, attempts,
        last_status, created_at, delivered_at, next_attempt_at
    FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND subject_id = %(subject)s
    ORDER BY id LIMIT %(limit)s
"""

# Nothing in the outbox is older than the card transaction, and its ids begin with their time.
_OUTBOX: Final = """
    SELECT id AS webhook_id, NULL::uuid AS delivery_id, NULL::uuid AS endpoint_id, type, sequence,
        'NOT_DISPATCHED' AS state, 0 AS attempts, NULL::int AS last_status,
        recorded_at AS created_at, NULL::timestamptz AS delivered_at, retry_at AS next_attempt_at
    FROM (SELECT * FROM outbox WHERE id >= %(first)s ORDER BY id LIMIT %(scan)s) waiting
    WHERE subject_id = %(subject)s AND platform_id = %(platform)s
    ORDER BY id LIMIT %(limit)s
"""


async def webhooks(
    connection: AsyncConnection[Any], *, platform_id: Id, subject_id: Id, since: datetime
) -> Sequence[WebhookRow]:
    """Return the webhooks about a resource that exists `since` a time, those in the outbox last.

    Of the outbox, the oldest 10,000 webhooks since then are searched.
    """
    named = {
        "platform": platform_id,
        "subject": subject_id,
        "first": first_id_at(since),
        "scan": _OUTBOX_SCAN_LIMIT,
        "limit": WEBHOOK_LIMIT,
    }
    async with connection.cursor(row_factory=class_row(WebhookRow)) as cursor:
        # The outbox first: dispatched meanwhile, a webhook is listed twice rather than not at all.
        waiting = await (await cursor.execute(_OUTBOX, named)).fetchall()
        sent = await (await cursor.execute(_DELIVERIES, named)).fetchall()
    dispatched = {webhook.webhook_id for webhook in sent}
    return [*sent, *(webhook for webhook in waiting if webhook.webhook_id not in dispatched)]
