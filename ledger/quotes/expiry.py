"""Quotes that end by themselves: they expire, and expired ones are deleted after some time."""

from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import Connection
from pydantic_core import to_json

from cardledger.ledger.messaging import outbox
from cardledger.ledger.quotes import promises
from cardledger.ledger.quotes.records import COLUMNS, Shown, from_row
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.wire.webhooks.envelope import WebhookType

PAGE_LIMIT: Final = 500
"""Quotes that one statement expires, or deletes, at most."""

_EXPIRE: Final = f"""
    WITH due AS (
        SELECT id FROM quotes
        WHERE status IN ('PENDING', 'PENDING_AUTHORIZATION') AND expires_at <= %s
        ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
    )
    UPDATE quotes q SET status = 'EXPIRED', updated_at = %s FROM due WHERE q.id = due.id
    RETURNING {", ".join(f"q.{name}" for name in COLUMNS)}, coalesce(
        (SELECT c.platform_customer_id FROM customers c WHERE c.id = q.customer_id),
        q.customer_id::text
    )
"""
_ANNOUNCE: Final = f"""
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at)
    VALUES ({outbox.NEW_ID}, %s, %s, %s, %s, %s, %s)
"""
_DELETE: Final = """
    DELETE FROM quotes WHERE id IN (
        SELECT id FROM quotes WHERE status = 'EXPIRED' AND id < %s
        ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


class Expiry:
    """Expires what is due and deletes what was kept long enough, a bounded number at a time.

    A quote that is being executed is locked, and skipped: what is decided first counts.
    """

    is_due: Final = """EXISTS (
        SELECT FROM quotes
        WHERE status IN ('PENDING', 'PENDING_AUTHORIZATION') AND expires_at <= now()
    )"""
    """The condition, in SQL, that a quote has to expire; deletions are not urgent."""

    def __init__(self, *, kept: timedelta) -> None:
        """Delete expired quotes that are older than `kept`."""
        self._kept: Final = kept

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int:
        """Expire quotes, with a webhook for each; nothing is put into the inbox."""
        expired = connection.execute(_EXPIRE, [now, PAGE_LIMIT, now]).fetchall()
        announced = []
        for *columns, platform_customer_id in expired:
            quote = from_row(columns)
            shown = Shown(quote=quote, platform_customer_id=platform_customer_id)
            announced.append(
                (
                    quote.customer_id,
                    quote.platform_id,
                    WebhookType.OUTGOING_PAYMENT_EXPIRED.value,
                    quote.transaction_id,
                    to_json(promises.promised(shown, at=now).wire()).decode(),
                    now,
                )
            )
        if announced:
            connection.cursor().executemany(_ANNOUNCE, announced)
        connection.execute(_DELETE, [first_id_at(now - self._kept), PAGE_LIMIT])
        return 0
