"""What a batch of the hot path reads: its queues in order, everything else by key.

Every function is one statement, whether a batch has one message or five hundred. Connections are
psycopg's, inside a database transaction of the caller (`commit`), and come from
`batch_connections.batch_engine`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from json import loads
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from psycopg import Connection
from pydantic_core import from_json

from cardledger.ledger.core.card import CardState
from cardledger.ledger.engine.records import (
    Card,
    CardTransactionKey,
    Closing,
    ClosingPage,
    Key,
    LockedAccount,
    OutcomeRow,
    Parked,
)
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.queue_positions import BEGINNING
from cardledger.ledger.projections import card_transaction_rows, transfers
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

DEBTS_LIMIT: Final = 100
"""Debts of one account that a batch loads; a follow-up message recovers the rest."""

CLOSING_LIMIT: Final = 500
"""Card transactions of closed cards that a batch loads; follow-up messages release the rest."""

_LEAST_CLOSING_LIMIT: Final = 10  # Of each card, however many cards are closed in one batch.


# --- the queue ---------------------------------------------------------------------------------


_QUEUES_PER_BATCH: Final = 4  # A batch takes at most this part of its messages from one queue.


NO_POSITIONS: Final[Mapping[int, Id]] = MappingProxyType({})
"""A claim from the beginning of its queues."""


class Claim(NamedTuple):
    """Messages to be decided, and the queues they came from that may hold more."""

    messages: list[Message]
    unfinished: list[int]


_LOCK_QUEUES: Final = """
    SELECT shard FROM inbox_shards WHERE lane = %s AND shard = ANY(%s) ORDER BY shard FOR UPDATE
"""
_LOCK_FREE_QUEUES: Final = f"{_LOCK_QUEUES} SKIP LOCKED"

# Queue by queue, so that every row that is read is also claimed.
_CLAIM: Final = """
    SELECT c.* FROM (
        SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference, i.body::text,
            i.body_hash, i.reply_to, i.received_at
        FROM (
            SELECT s.shard, s.position FROM unnest(%s, %s) AS s (shard, position)
            CROSS JOIN LATERAL (
                SELECT id FROM inbox
                WHERE lane = %s AND shard = s.shard AND id >= s.position
                    AND customer_id <> ALL(%s)
                ORDER BY id LIMIT 1
            ) oldest
            ORDER BY oldest.id
        ) q
        CROSS JOIN LATERAL (
            SELECT * FROM inbox
            WHERE lane = %s AND shard = q.shard AND id >= q.position AND customer_id <> ALL(%s)
            ORDER BY id LIMIT %s
        ) i
        LIMIT %s
    ) c ORDER BY c.id
"""


def claim(  # noqa: PLR0913 - what it leaves out, by name
    connection: Connection[Any],
    lane: Lane,
    shards: Sequence[int],
    limit: int,
    *,
    without: Sequence[Id] = (),
    positions: Mapping[int, Id] = NO_POSITIONS,
) -> Claim:
    """Lock queues until the commit and return their oldest messages, at most `limit`.

    A queue that another worker drains is left to it, and named among the unfinished: its messages
    are decided in order. When all are, waits for one as long as the connection may wait for a lock.
    Messages of the cardholders `without` stay where they are; those before the `positions` of their
    queues are not read.
    Shape: by age; from the queues with the oldest messages first, at most a share of each.
    Raises: psycopg.errors.LockNotAvailable.
    """
    # The oldest messages of all queues together would take reading a batch from each.
    share = max(-(-limit // len(shards)), limit // _QUEUES_PER_BATCH)
    left_out = pg_arrays.uuids(without)

    def attempt(statement: str, queues: Sequence[int]) -> tuple[list[int], list[Any]]:
        wanted = pg_arrays.integers(queues)
        begin = pg_arrays.uuids([positions.get(shard, BEGINNING) for shard in queues])
        with connection.pipeline():
            locks = connection.execute(statement, [lane, wanted])
            cursor = connection.cursor(binary=True).execute(
                _CLAIM, [wanted, begin, lane, left_out, lane, left_out, share, limit]
            )
        return [shard for (shard,) in locks.fetchall()], cursor.fetchall()

    owned, rows = attempt(_LOCK_FREE_QUEUES, shards)
    if not owned:
        owned, rows = attempt(_LOCK_QUEUES, shards)
    elif len(owned) < len(shards):
        # What was read of the others' queues is theirs to decide.
        owned, rows = attempt(_LOCK_FREE_QUEUES, owned)
    held = sorted({*shards} - {*owned})
    messages = _messages(lane, rows)
    if len(messages) == limit:
        return Claim(messages, list(shards))
    taken = Counter([message.shard for message in messages])
    return Claim(messages, [shard for shard, count in taken.items() if count == share] + held)


def _messages(lane: Lane, rows: list[Any]) -> list[Message]:
    return [
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


_WAITING: Final = """
    SELECT s.lane, s.shard, i.id FROM inbox_shards s
    CROSS JOIN LATERAL (
        SELECT id FROM inbox WHERE lane = s.lane AND shard = s.shard ORDER BY id LIMIT 1
    ) i
    ORDER BY 1, 2
"""


def waiting(connection: Connection[Any]) -> list[tuple[Lane, int, Id]]:
    """Return the queues that have messages, each with the oldest, read from its beginning."""
    return [(Lane(lane), shard, key) for lane, shard, key in connection.execute(_WAITING)]


# --- keyed reads -------------------------------------------------------------------------------

# Statements that every batch needs are sent together, in a pipeline: these functions return a
# callable that reads the result, for after the pipeline.


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


_AMOUNTS_SINCE: Final = """
    SELECT o.message_id, e.kind, least(sum(e.amount), 9223372036854775807)::bigint
    FROM unnest(%s, %s) AS o (subject_id, message_id)
    CROSS JOIN LATERAL (
        SELECT min(sequence) AS sequence FROM card_transaction_events
        WHERE card_transaction_id = o.subject_id AND message_id = o.message_id
    ) own
    JOIN card_transaction_events e
        ON e.card_transaction_id = o.subject_id AND e.sequence > own.sequence
    GROUP BY o.message_id, e.kind
"""


def amounts_since(
    connection: Connection[Any], outcomes: Iterable[OutcomeRow]
) -> dict[Id, list[tuple[str, int]]]:
    """Return the totals of the events after the first of each of `outcomes`, in minor units.

    Not after the sequence of an outcome: parked messages that its event has freed come before that.
    Shape: by message; one row a kind, however many events.
    """
    messages = [(row.subject_id, row.message_id) for row in outcomes if row.subject_id]
    totals: dict[Id, list[tuple[str, int]]] = {}
    for message_id, kind, amount in connection.execute(
        _AMOUNTS_SINCE, pg_arrays.columns(messages, "uuid", "uuid")
    ):
        totals.setdefault(message_id, []).append((kind, amount))
    return totals


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


_ROLL_UPS: Final = f"""
    SELECT {_ROLL_UP}, u.platform_customer_id
    FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)
    JOIN card_transactions t ON t.customer_id = k.customer_id AND t.card_id = k.card_id
        AND t.issuer_transaction_token = k.token
    JOIN customers u ON u.id = t.customer_id
"""


def roll_ups(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], list[RollUp]]:
    """Request the card transactions of `keys` (`columns`) that exist."""
    cursor = connection.cursor(binary=True).execute(_ROLL_UPS, keys)
    return lambda: [card_transaction_rows.from_row(row) for row in cursor.fetchall()]


_DEBTS: Final = f"""
    SELECT {_ROLL_UP}, u.platform_customer_id
    FROM internal_accounts a
    CROSS JOIN LATERAL (
        SELECT * FROM card_transactions WHERE account_id = a.id AND debt_id IS NOT NULL
        ORDER BY debt_since, debt_id LIMIT %s
    ) t
    JOIN customers u ON u.id = t.customer_id
    WHERE a.customer_id = ANY(%s) ORDER BY t.account_id, t.debt_since, t.debt_id
"""


def debts(connection: Connection[Any], customer_ids: Sequence[Id]) -> Callable[[], list[RollUp]]:
    """Request the card transactions that have something to pay from accounts of `customer_ids`.

    Shape: by account, the oldest `DEBTS_LIMIT` of each in the order of their queue.
    """
    cursor = connection.cursor(binary=True).execute(
        _DEBTS, [DEBTS_LIMIT, pg_arrays.uuids(customer_ids)]
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


_PARKED: Final = """
    SELECT p.id, p.customer_id, p.card_id, p.issuer_transaction_token, p.body, p.received_at
    FROM unnest(%s, %s, %s) AS k (customer_id, card_id, issuer_transaction_token)
    JOIN parked p USING (customer_id, card_id, issuer_transaction_token) ORDER BY p.id
"""


def parked(
    connection: Connection[Any], keys: Sequence[pg_arrays.Array]
) -> Callable[[], dict[CardTransactionKey, list[Parked]]]:
    """Request the messages parked for `keys` (`columns`), in their order of arrival."""
    cursor = connection.cursor(binary=True).execute(_PARKED, keys)

    def answer() -> dict[CardTransactionKey, list[Parked]]:
        records: dict[CardTransactionKey, list[Parked]] = {}
        for row in cursor.fetchall():
            record = Parked(*row)
            records.setdefault(record.key, []).append(record)
        return records

    return answer


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


def closing_pages(
    connection: Connection[Any], closings: Collection[Closing]
) -> dict[Closing, ClosingPage]:
    """Return the next page of each of `closings`.

    Shape: by token; about `CLOSING_LIMIT` card transactions in all, and a few of each.
    """
    limit = max(CLOSING_LIMIT // len(closings), _LEAST_CLOSING_LIMIT)
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
