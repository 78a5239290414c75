"""What a batch of the hot path reads: its queues in order, everything else by key.

Every function is one statement, whether a batch has one message or five hundred. Connections are
psycopg's, inside a database transaction of the caller (`commit`), and come from
`engines.sync_engine(keyed=True)`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from json import loads
from typing import Any, Final, NamedTuple

from psycopg import Connection
from pydantic_core import from_json

from cardledger.ledger.core.card import CardState
from cardledger.ledger.engine.records import (
    Card,
    CardTransactionKey,
    Key,
    LockedAccount,
    OutcomeRow,
    Parked,
)
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.projections import card_transaction_rows, transfers
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

DEBTS_LIMIT: Final = 100
"""Debts of one account that a batch loads; a follow-up message recovers the rest."""


# --- the queue ---------------------------------------------------------------------------------


_QUEUES_PER_BATCH: Final = 4  # A batch takes at most this part of its messages from one queue.


class Claim(NamedTuple):
    """Messages to be decided, and the queues they came from that may hold more."""

    messages: list[Message]
    unfinished: list[int]


def claim(connection: Connection[Any], lane: Lane, shards: Sequence[int], limit: int) -> Claim:
    """Lock queues until the commit and return their oldest messages, at most `limit`.

    Waits until no other worker drains them: the messages of each are decided in order.
    Shape: by age; from the queues with the oldest messages first, at most a share of each.
    """
    queues = pg_arrays.integers(shards)
    # The oldest messages of all queues together would take reading a batch from each.
    share = max(-(-limit // len(shards)), limit // _QUEUES_PER_BATCH)
    with connection.pipeline():
        connection.execute(
            "SELECT 1 FROM inbox_shards WHERE lane = %s AND shard = ANY(%s)"
            " ORDER BY shard FOR UPDATE",
            [lane, queues],
        )
        # Queue by queue, so that every row that is read is also claimed.
        cursor = connection.cursor(binary=True).execute(
            "SELECT c.* FROM ("
            "SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference,"
            " i.body::text, i.body_hash, i.reply_to, i.received_at FROM ("
            "SELECT s.shard FROM unnest(%s) AS s (shard) CROSS JOIN LATERAL ("
            "SELECT id FROM inbox WHERE lane = %s AND shard = s.shard ORDER BY id LIMIT 1) oldest"
            " ORDER BY oldest.id) q CROSS JOIN LATERAL ("
            "SELECT * FROM inbox WHERE lane = %s AND shard = q.shard ORDER BY id LIMIT %s) i"
            " LIMIT %s) c ORDER BY c.id",
            [queues, lane, lane, share, limit],
        )
    rows = cursor.fetchall()
    messages = [
        Message(
            lane,
            shard,
            key,
            customer_id,
            platform_id,
            source,
            reference,
            _parsed(body),
            body_hash,
            reply_to,
            received_at,
        )
        for (
            shard,
            key,
            customer_id,
            platform_id,
            source,
            reference,
            body,
            body_hash,
            reply_to,
            received_at,
        ) in rows
    ]
    if len(messages) == limit:
        return Claim(messages, list(shards))
    taken = Counter([message.shard for message in messages])
    return Claim(messages, [shard for shard, count in taken.items() if count == share])


def _parsed(body: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return from_json(body)
    except ValueError:
        pass  # Cheaper than `suppress`: this is for every message.
    try:
        return loads(body)  # Slower, but accepts halves of surrogate pairs.
    except (ValueError, RecursionError):
        # PostgreSQL accepts numbers and depths that Python does not. A string is rejected when it
        # is decided; an error here would stop the whole queue.
        return body


def remove(connection: Connection[Any], lane: Lane, messages: Sequence[Message]) -> None:
    """Delete decided messages of `lane` from their queues."""
    # Not a join with the keys: the planner expects an empty inbox, which it mostly is, and would
    # compare every message with every key.
    connection.execute(
        "DELETE FROM inbox WHERE lane = %s AND shard = ANY(%s) AND id = ANY(%s)",
        [
            lane,
            pg_arrays.integers(sorted({message.shard for message in messages})),
            pg_arrays.uuids([message.id for message in messages]),
        ],
    )


def waiting(connection: Connection[Any]) -> list[tuple[Lane, int]]:
    """Return the queues that have messages, reading at most one message of each."""
    cursor = connection.execute(
        "SELECT s.lane, s.shard FROM inbox_shards s WHERE EXISTS ("
        "SELECT FROM inbox i WHERE i.lane = s.lane AND i.shard = s.shard) ORDER BY 1, 2"
    )
    return [(Lane(lane), shard) for lane, shard in cursor]


# --- keyed reads -------------------------------------------------------------------------------

# Statements that every batch needs are sent together, in a pipeline: these functions return a
# callable that reads the result, for after the pipeline.


def outcomes(
    connection: Connection[Any], keys: Iterable[Key]
) -> Callable[[], dict[Key, OutcomeRow]]:
    """Request the outcomes of earlier messages with `keys`."""
    references, sources, platforms, customers = pg_arrays.columns(
        keys, "text", "text", "uuid", "uuid"
    )
    cursor = connection.cursor(binary=True).execute(
        "SELECT o.reference, o.source, o.platform_id, o.customer_id, o.body_hash, o.message_id,"
        " o.outcome, o.reason, o.subject_id, o.sequence"
        " FROM unnest(%s, %s, %s, %s)"
        " AS k (reference, source, platform_id, customer_id)"
        " JOIN outcomes o USING (reference, source, platform_id, customer_id)",
        [references, sources, platforms, customers],
    )

    def answer() -> dict[Key, OutcomeRow]:
        rows: list[tuple[Key, Any]] = [(row[:4], row[4:]) for row in cursor.fetchall()]
        return {key: OutcomeRow(key, *rest) for key, rest in rows}

    return answer


_CARD_STATES: Final = {state.value: state for state in CardState}


def cards(connection: Connection[Any], ids: Iterable[Id]) -> Callable[[], dict[Id, Card]]:
    """Request the cards with `ids` that exist."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT c.id, c.customer_id, c.platform_id, u.platform_customer_id, c.funding_sources[1],"
        " c.currency, c.state, c.max_spend_per_transaction"
        " FROM cards c JOIN customers u ON u.id = c.customer_id WHERE c.id = ANY(%s)",
        [pg_arrays.uuids(list(ids))],
    )
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


def lock_accounts(
    connection: Connection[Any], customer_ids: Sequence[Id]
) -> Callable[[], dict[Id, LockedAccount]]:
    """Lock every account of `customer_ids`, in the order of their ids, until the commit.

    All accounts of a cardholder, not only the current funding account of a card: a card transaction
    may have been opened on another.
    """
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, customer_id, platform_id, currency, status, balance, held, owed, pending,"
        " version FROM internal_accounts WHERE customer_id = ANY(%s) ORDER BY id FOR UPDATE",
        [pg_arrays.uuids(customer_ids)],
    )
    return lambda: {row[0]: LockedAccount(*row) for row in cursor.fetchall()}


_ROLL_UP: Final = ", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)


def columns(keys: Iterable[CardTransactionKey]) -> list[pg_arrays.Array]:
    """Return `keys` as the arrays that `roll_ups` and `parked` take."""
    return pg_arrays.columns(keys, "uuid", "uuid", "text")


def roll_ups(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], list[RollUp]]:
    """Request the card transactions of `keys` (`columns`) that exist."""
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)"
        " JOIN card_transactions t ON t.customer_id = k.customer_id AND t.card_id = k.card_id"
        " AND t.issuer_transaction_token = k.token"
        " JOIN customers u ON u.id = t.customer_id",
        keys,
    )
    return lambda: [card_transaction_rows.from_row(row) for row in cursor.fetchall()]


def debts(connection: Connection[Any], customer_ids: Sequence[Id]) -> Callable[[], list[RollUp]]:
    """Request the card transactions that have something to pay from accounts of `customer_ids`.

    Shape: by account, the oldest `DEBTS_LIMIT` of each in the order of their queue.
    """
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM internal_accounts a"
        " CROSS JOIN LATERAL (SELECT * FROM card_transactions"
        " WHERE account_id = a.id AND debt_id IS NOT NULL"
        " ORDER BY debt_since, debt_id LIMIT %s) t"
        " JOIN customers u ON u.id = t.customer_id WHERE a.customer_id = ANY(%s)"
        " ORDER BY t.account_id, t.debt_since, t.debt_id",
        [DEBTS_LIMIT, pg_arrays.uuids(customer_ids)],
    )
    return lambda: [card_transaction_rows.from_row(row) for row in cursor.fetchall()]


def system_accounts(
    connection: Connection[Any], platform_ids: Iterable[Id]
) -> dict[tuple[Id, str, str], Id]:
    """Return the system accounts of `platform_ids` by platform, currency and kind."""
    cursor = connection.execute(
        "SELECT platform_id, currency, kind, id FROM system_accounts WHERE platform_id = ANY(%s)",
        [list(platform_ids)],
    )
    return {(platform, currency, kind): key for platform, currency, kind, key in cursor}


def parked(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], dict[CardTransactionKey, list[Parked]]]:
    """Request the messages parked for `keys` (`columns`), in their order of arrival."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT p.id, p.customer_id, p.card_id, p.issuer_transaction_token, p.body, p.received_at"
        " FROM unnest(%s, %s, %s)"
        " AS k (customer_id, card_id, issuer_transaction_token)"
        " JOIN parked p USING (customer_id, card_id, issuer_transaction_token) ORDER BY p.id",
        keys,
    )

    def answer() -> dict[CardTransactionKey, list[Parked]]:
        records: dict[CardTransactionKey, list[Parked]] = {}
        for row in cursor.fetchall():
            record = Parked(*row)
            records.setdefault(record.key, []).append(record)
        return records

    return answer


def open_on_cards(connection: Connection[Any], cards: Iterable[tuple[Id, Id]]) -> list[RollUp]:
    """Return the card transactions of `cards`, each with its customer, that expect clearings."""
    card_ids, customers = pg_arrays.columns(cards, "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM unnest(%s, %s) AS k (card_id, customer_id)"
        " JOIN card_transactions t ON t.customer_id = k.customer_id AND t.card_id = k.card_id"
        " JOIN customers u ON u.id = t.customer_id"
        " WHERE t.closed_by IS NULL AND (t.authorized > 0 OR t.settled > 0)",
        [card_ids, customers],
    )
    return [card_transaction_rows.from_row(row) for row in cursor.fetchall()]


def platform_customer_ids(connection: Connection[Any], customer_ids: Iterable[Id]) -> dict[Id, str]:
    """Return the platforms' own ids of `customer_ids`, by id."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, platform_customer_id FROM customers WHERE id = ANY(%s)", [list(customer_ids)]
    )
    return dict(cursor)


def lock_transfers(
    connection: Connection[Any], keys: Iterable[tuple[Id, Id]]
) -> dict[Id, Transfer]:
    """Lock and return the transfers with `keys`, each with its customer, that exist."""
    return transfers.lock(connection, keys)
