"""What a batch of the hot path reads by key; its messages are claimed in `messaging/claims.py`.

Every function is one statement, whether a batch has one message or five hundred. Connections are
psycopg's, inside a database transaction of the caller (`commit`), and come from
`batch_connections.batch_engine`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import structlog
from psycopg import Connection

from cardledger.ledger.core.card import CardState
from cardledger.ledger.engine.parsing import (
    authorizations_in,
    repeated_approvals,
    reversal_key_of,
    reversals_in,
)
from cardledger.ledger.engine.records import (
    PARKED_LIMIT,
    Card,
    CardTransactionKey,
    Closing,
    ClosingPage,
    Key,
    LockedAccount,
    OutcomeRow,
    Parked,
    SuspenseItem,
)
from cardledger.ledger.messaging import signed_terms, timeout_reversals
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.ledger.projections import (
    adjustments,
    card_transaction_rows,
    settlement_bookings,
    transfers,
)
from cardledger.ledger.projections.adjustments import Adjustment
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.settlement_bookings import SettlementBooking
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.database_clock import Reading, elapsed_s
from cardledger.schema import tables
from cardledger.schema.ids import Id

_log = structlog.get_logger()

CLOSING_LIMIT: Final = 500
"""Card transactions of closed cards that a batch loads; follow-up messages release the rest."""

_LEAST_CLOSING_LIMIT: Final = 10  # Of each card, however many cards are closed in one batch.


# --- keyed reads -------------------------------------------------------------------------------

# Statements that every batch needs are sent together, in a pipeline: these functions return a
# callable that reads the result, for after the pipeline.


# A database transaction has an id before it reads the clock: totals are added up to a time when all
# with an id from before it have ended (`books.totals`). The lock of its queue gave it one already.
_STATE_OF_BOOKS: Final = f"""
    SELECT clock_timestamp(), b.first_open_day, (SELECT count(*) FROM calendars),
        EXISTS (SELECT FROM suspense_items WHERE resolved_at IS NULL),
        {timeout_reversals.ANY_WAITS}
    FROM books b WHERE b.is_only AND pg_current_xact_id() IS NOT NULL
"""


@dataclass(slots=True)
class StateOfBooks:
    """The time by PostgreSQL's clock, on which day entries are posted then, and what there is."""

    reading: Reading
    first_open_day: date
    calendar_versions: int  # Their number: a version is never changed.
    has_suspense: bool  # Whether SUSPENSE has any open item.
    has_reversals: bool  # Whether a timeout reversal waits in any queue.


def state_of_books(connection: Connection[Any]) -> Callable[[], StateOfBooks]:
    """Request the time and the state of the books."""
    cursor = connection.cursor(binary=True).execute(_STATE_OF_BOOKS)

    def answer() -> StateOfBooks:
        received_at = elapsed_s()
        row = cursor.fetchone()
        assert row is not None, "books has one row"
        at, *state = row
        return StateOfBooks(Reading(at, received_at), *state)

    return answer


_OUTCOMES: Final = """
    SELECT o.reference, o.source, o.platform_id, o.customer_id, o.body_hash, o.message_id,
        o.outcome, o.reason, o.subject_id, o.sequence
    FROM unnest(%s, %s, %s, %s) AS k (reference, source, platform_id, customer_id)
    JOIN outcomes o USING (reference, source, platform_id, customer_id)
"""


def outcomes(
    connection: Connection[Any], keys: Iterable[Key]
) -> Callable[[], dict[Key, OutcomeRow]]:
    """Request the outcomes of earlier messages with `keys`."""
    references, sources, platforms, customers = pg_arrays.columns(
        keys, "text", "text", "uuid", "uuid"
    )
    cursor = connection.cursor(binary=True).execute(
        _OUTCOMES, [references, sources, platforms, customers]
    )

    def answer() -> dict[Key, OutcomeRow]:
        rows: list[tuple[Key, Any]] = [(row[:4], row[4:]) for row in cursor.fetchall()]
        return {key: OutcomeRow(key, *rest) for key, rest in rows}

    return answer


def reversals(
    connection: Connection[Any],
    messages: Sequence[Message],
    decided: Mapping[Key, OutcomeRow],
    key: InboxKey,
    *,
    any_waits: bool,
) -> set[Key]:
    """Return the keys of timeout reversals that are known of the authorizations in `messages`.

    Those that wait in any queue, whatever their place there, and those that are decided of the
    authorizations that repeat an approval among the outcomes `decided`. What waits is read first:
    what has left the inbox by then has an outcome.
    """
    known = reversals_in(messages)
    if any_waits:
        wanted = set(map(reversal_key_of, authorizations_in(messages))) - known
        known |= timeout_reversals.waiting(connection, wanted, key)
    repeated = set(map(reversal_key_of, repeated_approvals(messages, decided))) - known
    return known | outcomes(connection, repeated)().keys() if repeated else known


_CARD_STATES: Final = {state.value: state for state in CardState}

_CARDS: Final = """
    SELECT c.id, c.customer_id, c.platform_id, u.platform_customer_id, c.funding_sources[1],
        c.currency, c.state, c.max_spend_per_transaction
    FROM cards c JOIN customers u ON u.id = c.customer_id WHERE c.id = ANY(%s)
"""


def cards(connection: Connection[Any], ids: Iterable[Id]) -> Callable[[], dict[Id, Card]]:
    """Request the cards with `ids` that exist."""
    cursor = connection.cursor(binary=True).execute(_CARDS, [pg_arrays.uuids(list(ids))])
    return lambda: {
        key: Card(
            key,
            customer_id,
            platform_id,
            platform_customer_id,
            account_id,
            currency,
            _CARD_STATES[state],
            max_spend,
        )
        for (
            key,
            customer_id,
            platform_id,
            platform_customer_id,
            account_id,
            currency,
            state,
            max_spend,
        ) in cursor.fetchall()
    }


_LOCK_ACCOUNTS: Final = """
    SELECT id, customer_id, platform_id, currency, status, balance, held, owed, pending, version
    FROM internal_accounts WHERE customer_id = ANY(%s) ORDER BY id FOR UPDATE
"""


def lock_accounts(
    connection: Connection[Any], customer_ids: Sequence[Id]
) -> Callable[[], dict[Id, LockedAccount]]:
    """Lock every account of `customer_ids`, in the order of their ids, until the commit.

    All accounts of a cardholder, not only the current funding account of a card: a card transaction
    may have been opened on another.
    """
    cursor = connection.cursor(binary=True).execute(_LOCK_ACCOUNTS, [pg_arrays.uuids(customer_ids)])
    return lambda: {row[0]: LockedAccount(*row) for row in cursor.fetchall()}


_ROLL_UP: Final = ", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)


def columns(keys: Iterable[CardTransactionKey]) -> list[pg_arrays.Array]:
    """Return `keys` as the arrays that `roll_ups` and `parked` take."""
    return pg_arrays.columns(keys, "uuid", "uuid", "text")


# By their unique key, one by one: as a join, PostgreSQL reads every card transaction of a customer
# for each key until it has statistics of the table.
_ROLL_UPS: Final = f"""
    SELECT {_ROLL_UP}, u.platform_customer_id
    FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)
    CROSS JOIN LATERAL (
        SELECT * FROM card_transactions
        WHERE customer_id = k.customer_id AND card_id = k.card_id
            AND issuer_transaction_token = k.token
        LIMIT 1
    ) t
    JOIN customers u ON u.id = t.customer_id
"""


def roll_ups(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], list[RollUp]]:
    """Request the card transactions of `keys` (`columns`) that exist."""
    cursor = connection.cursor(binary=True).execute(_ROLL_UPS, keys)
    return lambda: [card_transaction_rows.from_row(row) for row in cursor.fetchall()]


_PARKED: Final = """
    SELECT p.id, p.customer_id, p.card_id, p.issuer_transaction_token, p.body, p.received_at
    FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)
    CROSS JOIN LATERAL (
        SELECT * FROM parked
        WHERE customer_id = k.customer_id AND card_id = k.card_id
            AND issuer_transaction_token = k.token
        ORDER BY id LIMIT %s
    ) p
    ORDER BY p.id
"""


def parked(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], dict[CardTransactionKey, list[Parked]]]:
    """Request the messages parked for `keys` (`columns`), in their order of arrival.

    Shape: the oldest `PARKED_LIMIT` of each; an earlier release may have parked more.
    """
    cursor = connection.cursor(binary=True).execute(_PARKED, [*keys, PARKED_LIMIT])

    def answer() -> dict[CardTransactionKey, list[Parked]]:
        records: dict[CardTransactionKey, list[Parked]] = {}
        for row in cursor.fetchall():
            record = Parked(*row)
            records.setdefault(record.key, []).append(record)
        return records

    return answer


def ids_of(parked: Mapping[CardTransactionKey, Sequence[Parked]]) -> list[Id]:
    """Return the ids of messages that `parked` has found."""
    return [each.id for rows in parked.values() for each in rows]


def suspended_by(adjustments: Mapping[Id, Adjustment]) -> list[Id]:
    """Return the ids of the items of SUSPENSE that `adjustments` resolve."""
    return [each.suspense_id for each in adjustments.values() if each.suspense_id is not None]


_ITEM: Final = ", ".join(f"i.{column.name}" for column in tables.suspense_items.columns)

# Driven from the keys into the index of open items, of which there may be many.
_SUSPENSE_ITEMS: Final = f"""
    SELECT {_ITEM}
    FROM unnest(%s, %s, %s, %s) AS k (reference, source, platform_id, customer_id)
    JOIN suspense_items i ON i.platform_id = k.platform_id AND md5(i.reference) = md5(k.reference)
        AND i.reference = k.reference AND i.source = k.source AND i.customer_id = k.customer_id
    WHERE i.resolved_at IS NULL
    UNION
    SELECT {_ITEM} FROM unnest(%s) AS k (id) JOIN suspense_items i ON i.id = k.id
    WHERE i.resolved_at IS NULL
"""


def suspense_items(
    connection: Connection[Any], ids: Collection[Id], keys: Iterable[Key] = ()
) -> list[SuspenseItem]:
    """Return the open items of SUSPENSE with `ids`, and those of messages with `keys`."""
    of_keys = pg_arrays.columns(keys, "text", "text", "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(
        _SUSPENSE_ITEMS, [*of_keys, pg_arrays.uuids(ids)]
    )
    return [SuspenseItem(*row) for row in cursor.fetchall()]


_RESOLVED_BY_PEOPLE: Final = f"""
    SELECT {_ITEM}
    FROM unnest(%s, %s, %s, %s) AS k (reference, source, platform_id, customer_id)
    JOIN suspense_items i ON md5(i.reference) = md5(k.reference) AND i.reference = k.reference
        AND i.source = k.source AND i.platform_id = k.platform_id AND i.customer_id = k.customer_id
    JOIN adjustments j ON j.id = i.resolved_by
"""


def resolved_by_people(
    connection: Connection[Any], items: Sequence[SuspenseItem]
) -> list[SuspenseItem]:
    """Return the items with the keys of `items` that adjustments have resolved."""
    keys = {item.key for item in items if item.key}
    if not keys:
        return []
    of_keys = pg_arrays.columns(keys, "text", "text", "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(_RESOLVED_BY_PEOPLE, of_keys)
    return [SuspenseItem(*row) for row in cursor.fetchall()]


# By token, which is the index of a card's transactions: closed ones are read, too, so that a page
# is bounded whatever has become of them.
_CLOSING: Final = f"""
    SELECT k.after, {_ROLL_UP}, u.platform_customer_id
    FROM unnest(%s, %s, %s) AS k (card_id, customer_id, after)
    CROSS JOIN LATERAL (
        SELECT * FROM card_transactions
        WHERE customer_id = k.customer_id AND card_id = k.card_id
            AND issuer_transaction_token > k.after
        ORDER BY issuer_transaction_token LIMIT %s
    ) t
    JOIN customers u ON u.id = t.customer_id
    ORDER BY t.issuer_transaction_token
"""


def closing_limit(closings: Collection[Closing]) -> int:
    """Return how many card transactions of each of `closings` a batch reads."""
    return max(CLOSING_LIMIT // len(closings), _LEAST_CLOSING_LIMIT)


def closing_pages(
    connection: Connection[Any], closings: Collection[Closing]
) -> dict[Closing, ClosingPage]:
    """Return the next page of each of `closings`.

    Shape: by token; about `CLOSING_LIMIT` card transactions in all, and a few of each.
    """
    if not closings:
        return {}
    limit = closing_limit(closings)
    keys = pg_arrays.columns(closings, "uuid", "uuid", "text")
    cursor = connection.cursor(binary=True).execute(_CLOSING, [*keys, limit])
    read: dict[Closing, list[RollUp]] = {closing: [] for closing in closings}
    for after, *row in cursor.fetchall():
        roll_up = card_transaction_rows.from_row(row)
        identity = roll_up.identity
        read[Closing(identity.card_id, identity.customer_id, after)].append(roll_up)
    return {
        closing: ClosingPage(
            [roll_up for roll_up in page if roll_up.state.stands],
            page[-1].identity.issuer_transaction_token if len(page) == limit else None,
        )
        for closing, page in read.items()
    }


def platform_customer_ids(
    connection: Connection[Any], customer_ids: Collection[Id]
) -> dict[Id, str]:
    """Return the platforms' own ids of `customer_ids`, by id."""
    if not customer_ids:
        return {}
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, platform_customer_id FROM customers WHERE id = ANY(%s)", [list(customer_ids)]
    )
    return dict(cursor)


def lock_transfers(
    connection: Connection[Any], keys: Collection[tuple[Id, Id]]
) -> dict[Id, Transfer]:
    """Lock and return the transfers with `keys`, each with its customer, that exist."""
    return transfers.lock(connection, keys) if keys else {}


def lock_signed_transfers(
    connection: Connection[Any], keys: Collection[tuple[Id, Id]], key: InboxKey
) -> dict[Id, Transfer]:
    """Do as `lock_transfers` does, without those that no process with `key` has requested.

    What a message says of one of these is rejected, and its row stays as it is.
    """
    found = lock_transfers(connection, keys)
    waiting = [transfer for transfer in found.values() if not transfer.is_begun]
    for transfer in signed_terms.forged(connection, waiting, Signed.PAYMENT, key):
        _log.error("forged payment refused", transfer_id=str(transfer.id))
        del found[transfer.id]
    return found


def lock_adjustments(connection: Connection[Any], ids: Collection[Id]) -> dict[Id, Adjustment]:
    """Lock and return the adjustments with `ids` that exist."""
    return adjustments.lock(connection, ids) if ids else {}


def lock_settlement_bookings(
    connection: Connection[Any], ids: Collection[Id]
) -> dict[Id, SettlementBooking]:
    """Lock and return the settlement bookings with `ids` that exist."""
    return settlement_bookings.lock(connection, ids) if ids else {}
