"""Which debts a batch reads: the oldest of each account, and about `BATCH_LIMIT` in all.

Most cardholders owe nothing, and few owe much. So each has a share of the limit first; what the
others do not need of it goes to those who owe more than their share. A follow-up message recovers
what is left.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.engine.records import DebtPage
from cardledger.ledger.projections import card_transaction_rows
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

DEBTS_LIMIT: Final = 100
"""Debts of one account that a batch loads at most."""

BATCH_LIMIT: Final = 1_000
"""Debts that a batch loads, but for a few of each account however many cardholders it has."""

_LEAST: Final = 10  # Of each account: hardly anybody owes more.

_DEBTS: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)},
        u.platform_customer_id
    FROM internal_accounts a
    CROSS JOIN LATERAL (
        SELECT * FROM card_transactions WHERE account_id = a.id AND debt_id IS NOT NULL
        ORDER BY debt_since, debt_id LIMIT %s
    ) t
    JOIN customers u ON u.id = t.customer_id
    WHERE a.customer_id = ANY(%s) ORDER BY t.account_id, t.debt_since, t.debt_id
"""


def limit_of(customers: int) -> int:
    """Return how many debts of each account a batch of so many `customers` reads first."""
    return min(max(BATCH_LIMIT // max(customers, 1), _LEAST), DEBTS_LIMIT)


def read(
    connection: Connection[Any], customer_ids: Collection[Id], limit: int
) -> Callable[[], dict[Id, DebtPage]]:
    """Request the card transactions that have something to pay from accounts of `customer_ids`.

    Shape: by account, the oldest `limit` in the order of their queue; without accounts that owe
    nothing.
    """
    cursor = connection.cursor(binary=True).execute(
        _DEBTS, [limit, pg_arrays.uuids(list(customer_ids))]
    )

    def answer() -> dict[Id, DebtPage]:
        queues: dict[Id, list[RollUp]] = {}
        for row in cursor.fetchall():
            roll_up = card_transaction_rows.from_row(row)
            queues.setdefault(roll_up.identity.account_id, []).append(roll_up)
        return {
            account: DebtPage(queue, is_whole=len(queue) < limit)
            for account, queue in queues.items()
        }

    return answer


def read_on(
    connection: Connection[Any], pages: Mapping[Id, DebtPage], limit: int
) -> Mapping[Id, DebtPage]:
    """Return `pages`, longer where one of `limit` debts is not whole and others leave room."""
    customers = {
        page.roll_ups[0].identity.customer_id for page in pages.values() if not page.is_whole
    }
    if not customers or limit >= DEBTS_LIMIT:
        return pages
    taken = sum(len(page.roll_ups) for page in pages.values() if page.is_whole)
    longer = min(max(BATCH_LIMIT - taken, 0) // len(customers), DEBTS_LIMIT)
    if longer <= limit:
        return pages
    return {**pages, **read(connection, customers, longer)()}
