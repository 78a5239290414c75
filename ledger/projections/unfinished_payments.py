"""Payments that stopped before their end, for the operator: what is wrong with them.

A refund can fail, and a message between two owners can be rejected: the fee of a payment, the
receipt that tells its sender what became of it, or, by earlier releases, its arrival. Until then
the money stands on OUTBOUND_CLEARING or TRANSFERS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row

from cardledger.schema.ids import Id

REFUND_FAILED: Final = "REFUND_FAILED"
FEE_REJECTED: Final = "FEE_REJECTED"
RECEIPT_REJECTED: Final = "RECEIPT_REJECTED"
ARRIVAL_REJECTED: Final = "ARRIVAL_REJECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A payment that stopped; `amount` in minor units of `currency` stands on a system account.

    `rejection_id` is that of the rejected message, where one was.
    """

    id: Id
    customer_id: Id
    platform_id: Id
    problem: str
    amount: int
    currency: str
    account: str
    detail: str | None
    rejection_id: Id | None
    since: datetime

    def sentence(self) -> str:
        """Return what is wrong with it, for a report."""
        return (
            f"Payment {self.id}: {self.problem} ({self.detail}); {self.amount} minor units of"
            f" {self.currency} stand on {self.account}"
        )


_REFUNDS: Final = """
    SELECT f.id, f.customer_id, f.platform_id, 'REFUND_FAILED' AS problem,
        CASE WHEN f.kind = 'OUT'
            THEN coalesce(f.received_amount, f.amount - f.fee_amount) ELSE f.amount END AS amount,
        CASE WHEN f.kind = 'OUT'
            THEN coalesce(f.received_currency, f.currency) ELSE f.currency END AS currency,
        CASE WHEN f.kind = 'OUT' THEN 'OUTBOUND_CLEARING' ELSE 'INBOUND_CLEARING' END AS account,
        coalesce(f.failure_reason, 'rejected by the platform')
            || CASE a.status WHEN 'CLOSED' THEN ', its account is CLOSED' ELSE '' END AS detail,
        NULL::uuid AS rejection_id, f.updated_at AS since
    FROM transfers f
    LEFT JOIN internal_accounts a ON a.id = f.source_account_id AND a.customer_id = f.customer_id
    WHERE f.refund_status = 'FAILED' AND (%(ids)s::uuid[] IS NULL OR f.id = ANY(%(ids)s))
        AND NOT EXISTS (
            -- It stands in SUSPENSE, or did until people resolved it.
            SELECT FROM suspense_items i
            WHERE i.cause = 'CLOSED' AND i.customer_id = f.customer_id
                AND i.reference = f.id || '/return'
        )
    ORDER BY f.id LIMIT %(limit)s
"""

# A rejection that was retried is followed by its outcome, or by another rejection. Who submits an
# event chooses its source and reference, and its rejection has no customer: a message of the ledger
# was rejected in the queue of the platform, for a fee, of the receiver, for an arrival, or of the
# sender.
_REJECTED: Final = """
    SELECT f.id, f.customer_id, f.platform_id,
        upper(k.kind) || '_REJECTED' AS problem,
        CASE k.kind WHEN 'fee' THEN f.fee_amount
            ELSE coalesce(f.received_amount, f.amount - f.fee_amount) END AS amount,
        CASE k.kind WHEN 'fee' THEN f.currency
            ELSE coalesce(f.received_currency, f.currency) END AS currency,
        CASE k.kind WHEN 'fee' THEN 'TRANSFERS' ELSE 'OUTBOUND_CLEARING' END AS account,
        r.reason AS detail, r.id AS rejection_id, r.recorded_at AS since
    FROM rejections r
    CROSS JOIN LATERAL (
        SELECT split_part(r.reference, '/', 2) AS kind, CASE
            WHEN r.reference
                ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/(fee|receipt|arrival)$'
            THEN left(r.reference, 36)::uuid END AS id
    ) k
    JOIN transfers f ON f.id = k.id AND (r.customer_id, r.platform_id) = (
        CASE k.kind WHEN 'fee' THEN f.platform_id WHEN 'arrival' THEN f.peer_id
            ELSE f.customer_id END,
        CASE k.kind WHEN 'arrival' THEN f.peer_platform_id ELSE f.platform_id END)
    LEFT JOIN rejection_retries t ON t.rejection_id = r.id
    WHERE r.source = 'engine' AND t.rejection_id IS NULL
        AND (%(ids)s::uuid[] IS NULL OR f.id = ANY(%(ids)s))
        AND (k.kind = 'fee' OR f.status = 'PROCESSING')
        AND (k.kind = 'receipt' OR NOT EXISTS (
            SELECT FROM outcomes o WHERE (o.reference, o.source, o.platform_id, o.customer_id)
                = (r.reference, r.source, r.platform_id, r.customer_id)))
    ORDER BY r.id LIMIT %(limit)s
"""


async def find(
    connection: AsyncConnection[Any], *, limit: int, ids: Sequence[Id] | None = None
) -> list[Unfinished]:
    """Return at most `limit` payments that stopped, of those with `ids` if given."""
    found: list[Unfinished] = []
    for statement in (_REFUNDS, _REJECTED):
        async with connection.cursor(row_factory=class_row(Unfinished)) as cursor:
            await cursor.execute(statement, _parameters(limit - len(found), ids))
            found += await cursor.fetchall()
    return found


def find_sync(connection: Connection[Any], *, limit: int) -> list[Unfinished]:
    """Do as `find` does, for a thread."""
    found: list[Unfinished] = []
    for statement in (_REFUNDS, _REJECTED):
        with connection.cursor(row_factory=class_row(Unfinished)) as cursor:
            cursor.execute(statement, _parameters(limit - len(found), None))
            found += cursor.fetchall()
    return found


def _parameters(limit: int, ids: Sequence[Id] | None) -> dict[str, Any]:
    return {"limit": limit, "ids": None if ids is None else list(ids)}
