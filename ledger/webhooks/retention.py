"""Deletion of deliveries, and of expired credentials, that were kept long enough.

Source: docs/decisions/0053-retention.md
"""

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id

PAGE: Final = 1_000
"""Deliveries that one statement looks at."""

FIRST: Final = Id(bytes(16))
"""Before the id of every delivery."""


# Ids of deliveries begin with their time. Those that are still to be sent stay, however many: what
# limits the statement is the number that it looks at. A delivery that is being requested again is
# locked, and skipped; so are those that another process deletes.
_DELETE: Final = text(
    """
    WITH page AS MATERIALIZED (
        SELECT id, customer_id FROM webhook_deliveries
        WHERE id > :after AND id < :before ORDER BY id LIMIT :page
    ), old AS (
        SELECT w.id, w.customer_id
        FROM page JOIN webhook_deliveries w ON w.id = page.id AND w.customer_id = page.customer_id
        WHERE w.state <> 'PENDING' FOR UPDATE OF w SKIP LOCKED
    ), deleted AS (
        DELETE FROM webhook_deliveries w USING old
        WHERE w.id = old.id AND w.customer_id = old.customer_id
        RETURNING w.id, w.customer_id
    ), attempts AS (
        DELETE FROM webhook_attempts a USING deleted d
        WHERE a.delivery_id = d.id AND a.customer_id = d.customer_id
    )
    SELECT id FROM page ORDER BY id
    """
)

_DELETE_CREDENTIALS: Final = text("SELECT delete_expired_credentials(:page)")


def delete_old(
    connection: Connection, *, before: datetime, after: Id = FIRST, page: int = PAGE
) -> Id | None:
    """Delete deliveries from before a time that are over, with their attempts.

    Of a `page` of deliveries, the next ones `after` an id: those before it are not read again.
    Returns the last id of a whole page; None: there are no more.
    """
    values = {"before": first_id_at(before), "after": after, "page": page}
    read: list[Id] = [key for (key,) in connection.execute(_DELETE, values)]
    return read[-1] if len(read) == page else None


def delete_expired_credentials(connection: Connection, *, page: int = PAGE) -> int:
    """Delete pages of card numbers and device codes that expired long ago; return how many.

    A function of the database says how long they are kept (revision 0142), and its caller may
    delete nothing else of these tables. At most a `page` of each.
    """
    count: int = connection.execute(_DELETE_CREDENTIALS, {"page": page}).scalar_one()
    return count
