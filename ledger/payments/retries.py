"""Another attempt for payments that stopped (`projections.unfinished_payments`)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from cardledger.ledger.engine.decisions.payments.messages import returned
from cardledger.ledger.messaging import inbox, rejections
from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments import messages
from cardledger.ledger.projections.unfinished_payments import REFUND_FAILED, Unfinished
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id


async def retry(
    connection: AsyncConnection[Any], found: Sequence[Unfinished], key: InboxKey, *, now: datetime
) -> dict[Id, str]:
    """Enqueue another attempt for each of `found`, signed with `key`.

    Returns why others cannot be attempted again, by their ids. A refund to an account that is
    closed or full fails again: the payment then stays as it is. Of one whose arrival was rejected
    the sender is told, and gets the money back.
    """
    refunds = [
        messages.refund(
            payment.id, Owner(payment.customer_id, payment.platform_id), new_id(), at=now
        )
        for payment in found
        if payment.problem == REFUND_FAILED
    ]
    await inbox.accept_async(connection, refunds, key)
    rejected = {
        payment.rejection_id: payment.id for payment in found if payment.rejection_id is not None
    }
    if not rejected:
        return {}
    which = rejections.Filter(ids=list(rejected))
    kept = await rejections.find(connection, which, limit=len(rejected))
    retries = await rejections.retry(connection, kept, key, now=now, returned=returned)
    return {rejected[each]: why for each, why in retries.refused.items()}
