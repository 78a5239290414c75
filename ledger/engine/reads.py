"""What a batch of the hot path reads: its queues, and all else by key. `recording` writes.

No function takes more statements for five hundred messages than for one. Connections are
psycopg's, inside a database transaction of the caller (`engine`), and come from
`database.sync_engine(keyed=True)`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from json import loads
from typing import Any, Final, NamedTuple

from psycopg import Connection
from pydantic_core import from_json

from cardledger.ledger.core.card import CardState
from cardledger.ledger.engine.records import (
    Account,
    Card,
    CardTransactionKey,
    Key,
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
"""Debts of one account that a batch looks at; what is left is for a message of its own."""


# --- the queue ---------------------------------------------------------------------------------


_LEAST_QUEUES: Final = 4  # It takes the messages of so many to fill a batch, if there are as many.


class Claim(NamedTuple):
    """Messages to be decided, and the queues they came from that may hold more."""

    messages: list[Message]
    unfinished: list[int]


def claim(connection: Connection[Any], lane: Lane, shards: Sequence[int], limit: int) -> Claim:
    """Lock queues until the commit and return their oldest messages, at most `limit`.

    Waits until nobody else drains them: the messages of each are decided in order.
    Shape: of the queues that have waited longest their oldest, at most its share of each; by age.
    """
    queues = pg_arrays.integers(shards)
    # To find the oldest of all one would have to read a batch of each.
    share = max(-(-limit // len(shards)), limit // _LEAST_QUEUES)
    with connection.pipeline():
        connection.execute(
            "SELECT 1 FROM inbox_shards WHERE lane = %s AND shard = ANY(%s)"
            " ORDER BY shard FOR UPDATE",
            [lane, queues],
        )
        # Queue after queue, so that no row is read that is not taken.
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
        return loads(body)  # It takes more than the fast one: halves of surrogate pairs.
    except (ValueError, RecursionError):
        # PostgreSQL takes numbers and depths that Python does not. A text is no event: it is
        # rejected when its turn comes, where an error here would stop its whole queue.
        return body


def remove(connection: Connection[Any], lane: Lane, messages: Sequence[Message]) -> None:
    """Take decided messages of `lane` off their queues."""
    # No join with the keys: the planner believes the inbox to be empty, which it mostly is, and
    # would compare every message in it with every key.
    connection.execute(
        "DELETE FROM inbox WHERE lane = %s AND shard = ANY(%s) AND id = ANY(%s)",
        [
            lane,
            pg_arrays.integers(sorted({message.shard for message in messages})),
            pg_arrays.uuids([message.id for message in messages]),
        ],
    )


def waiting(connection: Connection[Any]) -> list[tuple[Lane, int]]:
    """Return the queues that have messages, without reading more than one of each."""
    cursor = connection.execute(
        "SELECT s.lane, s.shard FROM inbox_shards s WHERE EXISTS ("
        "SELECT FROM inbox i WHERE i.lane = s.lane AND i.shard = s.shard) ORDER BY 1, 2"
    )
    return [(Lane(lane), shard) for lane, shard in cursor]


# --- keyed reads -------------------------------------------------------------------------------

# What a batch asks for in every case is asked for together, in a pipeline: these return what reads
# the answer, for when all has been asked.


def outcomes(
    connection: Connection[Any], keys: Iterable[Key]
) -> Callable[[], dict[Key, OutcomeRow]]:
    """Ask what became of earlier messages with `keys`."""
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
    """Ask for the cards with `ids` that exist."""
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
) -> Callable[[], dict[Id, Account]]:
    """Lock every account of `customer_ids`, in the order of their ids, until the commit.

    All of a cardholder's accounts, not only the one a card names today: a card transaction may
    have been opened on another.
    """
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, customer_id, platform_id, currency, status, balance, held, owed, pending,"
        " version FROM internal_accounts WHERE customer_id = ANY(%s) ORDER BY id FOR UPDATE",
        [pg_arrays.uuids(customer_ids)],
    )
    return lambda: {row[0]: Account(*row) for row in cursor.fetchall()}


_ROLL_UP: Final = ", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)


def columns(keys: Iterable[CardTransactionKey]) -> list[pg_arrays.Array]:
    """Return `keys` as more than one statement asks for them."""
    return pg_arrays.columns(keys, "uuid", "uuid", "text")


def roll_ups(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], list[RollUp]]:
    """Ask for the card transactions of `keys` (`columns`) that exist."""
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
    """Ask for the card transactions that wait for money on accounts of `customer_ids`.

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
    """Ask for what waits for events of `keys` (`columns`), in its order of arrival."""
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
    """Return what their platforms call `customer_ids`, by id."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, platform_customer_id FROM customers WHERE id = ANY(%s)", [list(customer_ids)]
    )
    return dict(cursor)


def lock_transfers(
    connection: Connection[Any], keys: Iterable[tuple[Id, Id]]
) -> dict[Id, Transfer]:
    """Lock and return the transfers with `keys`, each with its customer, that exist."""
    return transfers.lock(connection, keys)
