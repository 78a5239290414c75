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

_ATTEMPTS: Final = 10_000  # Of the deliveries that one statement deletes, or of a single one.
_OCTETS: Final = 64 * 1024 * 1024  # Of their bodies: large ones are kept in many rows each.

FIRST: Final = Id(bytes(16))
"""Before the id of every delivery."""


# Ids of deliveries begin with their time. Those that are still to be sent stay, however many: what
# limits the statement is the number that it looks at, that of their attempts (one that was replayed
# has a hundred and more) and the size of their bodies, which is known without reading them. A
# delivery that is being requested again is locked, and skipped; so are those that another process
# deletes.
_DELETE: Final = text(
    """
    WITH looked_at AS MATERIALIZED (
        SELECT id, customer_id, attempts, octet_length(body) AS octets FROM webhook_deliveries
        WHERE id > :after AND id < :before ORDER BY id LIMIT :page
    ), page AS MATERIALIZED (
        SELECT id, customer_id FROM (
            SELECT id, customer_id, sum(attempts) OVER (ORDER BY id) - attempts AS attempts_before,
                sum(octets) OVER (ORDER BY id) - octets AS octets_before
            FROM looked_at
        ) summed WHERE attempts_before < :attempts AND octets_before < :octets
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
    SELECT id, (SELECT count(*) FROM looked_at) FROM page ORDER BY id
    """
)

_DELETE_CREDENTIALS: Final = text("SELECT delete_expired_credentials(:page)")


def delete_old(
    connection: Connection, *, before: datetime, after: Id = FIRST, page: int = PAGE
) -> Id | None:
    """Delete deliveries from before a time that are over, with their attempts.

    Of a `page` of deliveries, the next ones `after` an id: those before it are not read again. Of
    fewer where they have many attempts or large bodies. Returns the last id; None: there are no
    more.
    """
    values = {
        "before": first_id_at(before),
        "after": after,
        "page": page,
        "attempts": _ATTEMPTS,
        "octets": _OCTETS,
    }
    rows = connection.execute(_DELETE, values).all()
    if not rows:
        return None
    last: Id = rows[-1][0]
    looked_at: int = rows[-1][1]
    return last if looked_at == page or len(rows) < looked_at else None


def delete_expired_credentials(connection: Connection, *, page: int = PAGE) -> int:
    """Delete pages of card numbers and device codes that expired long ago; return how many.

    A function of the database says how long they are kept (revision 0142), and its caller may
    delete nothing else of these tables. At most a `page` of each.
    """
    count: int = connection.execute(_DELETE_CREDENTIALS, {"page": page}).scalar_one()
    return count
