"""SQL of the hot path: keyed reads out, binary COPY in. No rules.

No function takes more statements for five hundred messages than for one. Connections are
psycopg's, inside a database transaction of the caller (`engine`), and come from
`database.sync_engine(keyed=True)`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from json import loads
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Connection, Cursor, adapters
from pydantic_core import from_json

from ledger import arrays, roll_up_rows
from ledger.core.card import CardState
from ledger.inbox import Lane, Message
from ledger.payments import TRANSFER_COLUMNS, Transfer
from ledger.roll_up import RollUp


class Card(NamedTuple):
    """What a decision reads of a card."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    platform_customer_id: str
    account_id: UUID
    currency: str
    state: CardState
    max_spend: int | None


@dataclass(slots=True)
class Account:
    """An internal account while a batch holds its lock."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    currency: str
    type: str
    status: str
    balance: int
    held: int
    owed: int
    pending: int
    version: int
    created_at: datetime
    updated_at: datetime
    has_moved: bool = False  # Its balance, since it was loaded.


MANY_DEBTS: Final = 100
"""Debts of one account that a batch looks at; what is left is for a message of its own."""


class Key(NamedTuple):
    """What makes two messages the same message."""

    reference: str
    source: str
    platform_id: UUID
    customer_id: UUID


class Purchase(NamedTuple):
    """What ties the events of one card transaction together."""

    customer_id: UUID
    card_id: UUID
    token: str


class OutcomeRow(NamedTuple):
    """A row of `outcomes`."""

    key: Key
    body_hash: bytes
    message_id: UUID
    outcome: str
    reason: str | None
    subject_id: UUID | None
    sequence: int | None


EventRecord = tuple[
    UUID,  # card_transaction_id
    int,  # sequence
    UUID,  # customer_id
    str,  # kind
    int,  # amount
    int | None,  # unfunded
    bool | None,  # final
    str | None,  # reason
    UUID,  # message_id
    datetime,  # occurred_at
    datetime,  # recorded_at
]
"""A row of `card_transaction_events`."""


EntryRecord = tuple[
    UUID,  # subject_id
    int,  # sequence
    int,  # line
    UUID,  # customer_id
    UUID,  # debit_account_id
    UUID,  # credit_account_id
    int,  # amount
    UUID | None,  # account_id
    int | None,  # account_version
    int | None,  # balance_after
    datetime,  # recorded_at
]
"""A row of `entries`; without an account where no customer's account moves."""


class DepositRecord(NamedTuple):
    """A row of `deposits`."""

    id: UUID
    customer_id: UUID
    account_id: UUID
    amount: int
    message_id: UUID
    recorded_at: datetime
    platform_id: UUID


class Parked(NamedTuple):
    """A row of `parked`."""

    id: UUID
    customer_id: UUID
    card_id: UUID
    token: str
    body: Mapping[str, Any]
    received_at: datetime

    @property
    def purchase(self) -> Purchase:
        """What it waits for."""
        return Purchase(self.customer_id, self.card_id, self.token)


class PendingPull(NamedTuple):
    """A row of `pending_pulls`."""

    card_transaction_id: UUID
    sequence: int
    customer_id: UUID
    card_id: UUID
    token: str
    amount: int
    succeeds: bool
    due_at: datetime


class RejectionRecord(NamedTuple):
    """A row of `rejections`."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    source: str | None
    reference: str | None
    body: str
    reason: str
    detail: str | None
    recorded_at: datetime


OutboxRecord = tuple[
    UUID,  # id
    UUID,  # customer_id
    UUID,  # platform_id
    str,  # type
    UUID,  # subject_id
    int | None,  # sequence
    str | None,  # data: JSON
    datetime,  # recorded_at
]
"""A row of `outbox`."""


# --- the queue ---------------------------------------------------------------------------------


_LEAST_QUEUES: Final = 4  # It takes the messages of so many to fill a batch, if there are as many.


class Claim(NamedTuple):
    """Messages to be decided, and the queues they came from that may hold more."""

    messages: list[Message]
    unfinished: list[int]


def claim(connection: Connection[Any], lane: Lane, shards: Sequence[int], limit: int) -> Claim:
    """Lock queues until the commit and return their oldest messages, at most `limit`.

    Waits until nobody else drains them: the messages of each are decided in order.
    Shape: the oldest of each, at most its share; by age over all of them.
    """
    queues = arrays.integers(shards)
    # A whole batch of each, to find the oldest of all, would cost as much as deciding them.
    share = max(-(-limit // len(shards)), limit // _LEAST_QUEUES)
    with connection.pipeline():
        connection.execute(
            "SELECT 1 FROM inbox_shards WHERE lane = %s AND shard = ANY(%s)"
            " ORDER BY shard FOR UPDATE",
            [lane, queues],
        )
        # First which, by the index alone; then only their rows. The LIMITs keep the planner, who
        # believes the inbox to be empty, from beginning at the other end.
        cursor = connection.cursor(binary=True).execute(
            "SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference,"
            " i.body::text, i.body_hash, i.reply_to, i.received_at FROM ("
            "SELECT s.shard, k.id FROM unnest(%s) AS s (shard) CROSS JOIN LATERAL ("
            "SELECT id FROM inbox WHERE lane = %s AND shard = s.shard ORDER BY id LIMIT %s) k"
            " ORDER BY k.id LIMIT %s) c CROSS JOIN LATERAL ("
            "SELECT * FROM inbox WHERE lane = %s AND shard = c.shard AND id = c.id LIMIT 1) i"
            " ORDER BY i.id",
            [queues, lane, share, limit, lane],
        )
    rows = cursor.fetchall()
    messages = [Message._make((lane, *row[:6], _parsed(row[6]), *row[7:])) for row in rows]
    if len(messages) == limit:
        return Claim(messages, list(shards))
    taken = Counter([message.shard for message in messages])
    return Claim(messages, [shard for shard, count in taken.items() if count == share])


def _parsed(body: str) -> Any:  # noqa: ANN401 - any JSON
    with suppress(ValueError):
        return from_json(body)
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
            arrays.integers(sorted({message.shard for message in messages})),
            arrays.uuids([message.id for message in messages]),
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
    references, sources, platforms, customers = _columns(keys, "text", "text", "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(
        "SELECT o.reference, o.source, o.platform_id, o.customer_id, o.body_hash, o.message_id,"
        " o.outcome, o.reason, o.subject_id, o.sequence"
        " FROM unnest(%s, %s, %s, %s)"
        " AS k (reference, source, platform_id, customer_id)"
        " JOIN outcomes o USING (reference, source, platform_id, customer_id)",
        [references, sources, platforms, customers],
    )

    def answer() -> dict[Key, OutcomeRow]:
        rows = [(Key(*row[:4]), row[4:]) for row in cursor.fetchall()]
        return {key: OutcomeRow(key, *rest) for key, rest in rows}

    return answer


def cards(connection: Connection[Any], ids: Iterable[UUID]) -> Callable[[], dict[UUID, Card]]:
    """Ask for the cards with `ids` that exist."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT c.id, c.customer_id, c.platform_id, u.platform_customer_id, c.funding_sources[1],"
        " c.currency, c.state, c.max_spend_per_transaction"
        " FROM cards c JOIN customers u ON u.id = c.customer_id WHERE c.id = ANY(%s)",
        [arrays.uuids(list(ids))],
    )
    return lambda: {
        row[0]: Card._make((*row[:6], CardState(row[6]), row[7])) for row in cursor.fetchall()
    }


def lock_accounts(
    connection: Connection[Any], customer_ids: Sequence[UUID]
) -> Callable[[], dict[UUID, Account]]:
    """Lock every account of `customer_ids`, in the order of their ids, until the commit.

    All of a cardholder's accounts, not only the one a card names today: a card transaction may
    have been opened on another.
    """
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, customer_id, platform_id, currency, type, status, balance, held, owed,"
        " pending, version, created_at, updated_at FROM internal_accounts"
        " WHERE customer_id = ANY(%s) ORDER BY id FOR UPDATE",
        [arrays.uuids(customer_ids)],
    )
    return lambda: {row[0]: Account(*row) for row in cursor.fetchall()}


_ROLL_UP: Final = ", ".join(f"t.{column}" for column in roll_up_rows.COLUMNS)


def roll_ups(
    connection: Connection[Any], purchases: Iterable[Purchase]
) -> Callable[[], list[RollUp]]:
    """Ask for the card transactions of `purchases` that exist."""
    customers, card_ids, tokens = _columns(purchases, "uuid", "uuid", "text")
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)"
        " JOIN card_transactions t ON t.customer_id = k.customer_id AND t.card_id = k.card_id"
        " AND t.issuer_transaction_token = k.token"
        " JOIN customers u ON u.id = t.customer_id",
        [customers, card_ids, tokens],
    )
    return lambda: [roll_up_rows.from_row(row) for row in cursor.fetchall()]


def debts(connection: Connection[Any], customer_ids: Sequence[UUID]) -> Callable[[], list[RollUp]]:
    """Ask for the card transactions that wait for money on accounts of `customer_ids`.

    Shape: by account, the oldest `MANY_DEBTS` of each in the order of their queue.
    """
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM internal_accounts a"
        " CROSS JOIN LATERAL (SELECT * FROM card_transactions"
        " WHERE account_id = a.id AND debt_id IS NOT NULL"
        " ORDER BY debt_since, debt_id LIMIT %s) t"
        " JOIN customers u ON u.id = t.customer_id WHERE a.customer_id = ANY(%s)"
        " ORDER BY t.account_id, t.debt_since, t.debt_id",
        [MANY_DEBTS, arrays.uuids(customer_ids)],
    )
    return lambda: [roll_up_rows.from_row(row) for row in cursor.fetchall()]


def system_accounts(
    connection: Connection[Any], platform_ids: Iterable[UUID]
) -> dict[tuple[UUID, str, str], UUID]:
    """Return the system accounts of `platform_ids` by platform, currency and kind."""
    cursor = connection.execute(
        "SELECT platform_id, currency, kind, id FROM system_accounts WHERE platform_id = ANY(%s)",
        [list(platform_ids)],
    )
    return {(platform, currency, kind): key for platform, currency, kind, key in cursor}


def parked(
    connection: Connection[Any], purchases: Iterable[Purchase]
) -> Callable[[], dict[Purchase, list[Parked]]]:
    """Ask for the messages that wait for events of `purchases`, in their order of arrival."""
    customers, card_ids, tokens = _columns(purchases, "uuid", "uuid", "text")
    cursor = connection.cursor(binary=True).execute(
        "SELECT p.id, p.customer_id, p.card_id, p.issuer_transaction_token, p.body, p.received_at"
        " FROM unnest(%s, %s, %s)"
        " AS k (customer_id, card_id, issuer_transaction_token)"
        " JOIN parked p USING (customer_id, card_id, issuer_transaction_token) ORDER BY p.id",
        [customers, card_ids, tokens],
    )

    def answer() -> dict[Purchase, list[Parked]]:
        found: dict[Purchase, list[Parked]] = {}
        for row in cursor.fetchall():
            record = Parked(*row)
            found.setdefault(record.purchase, []).append(record)
        return found

    return answer


def open_on_cards(connection: Connection[Any], cards: Iterable[tuple[UUID, UUID]]) -> list[RollUp]:
    """Return the card transactions of `cards`, each with its customer, that expect clearings."""
    card_ids, customers = _columns(cards, "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {_ROLL_UP}, u.platform_customer_id"
        " FROM unnest(%s, %s) AS k (card_id, customer_id)"
        " JOIN card_transactions t ON t.customer_id = k.customer_id AND t.card_id = k.card_id"
        " JOIN customers u ON u.id = t.customer_id"
        " WHERE t.closed_by IS NULL AND (t.authorized > 0 OR t.settled > 0)",
        [card_ids, customers],
    )
    return [roll_up_rows.from_row(row) for row in cursor.fetchall()]


def platform_customer_ids(
    connection: Connection[Any], customer_ids: Iterable[UUID]
) -> dict[UUID, str]:
    """Return what their platforms call `customer_ids`, by id."""
    cursor = connection.cursor(binary=True).execute(
        "SELECT id, platform_customer_id FROM customers WHERE id = ANY(%s)", [list(customer_ids)]
    )
    return dict(cursor)


def lock_transfers(
    connection: Connection[Any], keys: Iterable[tuple[UUID, UUID]]
) -> dict[UUID, Transfer]:
    """Lock and return the transfers with `keys`, each with its customer, that exist."""
    ids, customers = _columns(sorted(keys), "uuid", "uuid")
    cursor = connection.cursor(binary=True).execute(
        f"SELECT {', '.join(f't.{column}' for column in TRANSFER_COLUMNS)}, u.platform_customer_id"
        " FROM unnest(%s, %s) AS k (id, customer_id)"
        " JOIN transfers t USING (id, customer_id) JOIN customers u ON u.id = t.customer_id"
        " ORDER BY t.id FOR UPDATE OF t",
        [ids, customers],
    )
    return {row[0]: Transfer(*row) for row in cursor}


# --- writes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Update:
    """An update that was asked for, in a pipeline perhaps, and how many rows it has to find."""

    cursor: Cursor[Any]
    rows: int

    def check(self) -> None:
        """Make sure that all were there; after the pipeline."""
        assert self.cursor.rowcount == self.rows, (
            f"{self.cursor.rowcount} of {self.rows} were there"
        )


class _Copy:
    """COPY into a table; a batch of one has as many of them as a batch of five hundred."""

    def __init__(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        """Write `columns` of `table`, each a name and a type."""
        names = ", ".join(name for name, _ in columns)
        self._statement: Final = f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)".encode()
        # By number: by name psycopg would look each of them up every time.
        self._types: Final = [adapters.types.get_oid(kind) for _, kind in columns]

    def write(self, connection: Connection[Any], rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            return
        with connection.cursor() as cursor, cursor.copy(self._statement) as copy:
            copy.set_types(self._types)
            write_row = copy.write_row
            for row in rows:
                write_row(row)


_EVENTS: Final = _Copy(
    "card_transaction_events",
    (
        ("card_transaction_id", "uuid"),
        ("sequence", "int4"),
        ("customer_id", "uuid"),
        ("kind", "text"),
        ("amount", "int8"),
        ("unfunded", "int8"),
        ("final", "bool"),
        ("reason", "text"),
        ("message_id", "uuid"),
        ("occurred_at", "timestamptz"),
        ("recorded_at", "timestamptz"),
    ),
)

_ENTRIES: Final = _Copy(
    "entries",
    (
        ("subject_id", "uuid"),
        ("sequence", "int4"),
        ("line", "int2"),
        ("customer_id", "uuid"),
        ("debit_account_id", "uuid"),
        ("credit_account_id", "uuid"),
        ("amount", "int8"),
        ("account_id", "uuid"),
        ("account_version", "int8"),
        ("balance_after", "int8"),
        ("recorded_at", "timestamptz"),
    ),
)

_DEPOSITS: Final = _Copy(
    "deposits",
    (
        ("id", "uuid"),
        ("customer_id", "uuid"),
        ("account_id", "uuid"),
        ("amount", "int8"),
        ("message_id", "uuid"),
        ("recorded_at", "timestamptz"),
        ("platform_id", "uuid"),
    ),
)

_OUTCOMES: Final = _Copy(
    "outcomes",
    (
        ("reference", "text"),
        ("source", "text"),
        ("platform_id", "uuid"),
        ("customer_id", "uuid"),
        ("body_hash", "bytea"),
        ("message_id", "uuid"),
        ("outcome", "text"),
        ("reason", "text"),
        ("subject_id", "uuid"),
        ("sequence", "int4"),
        ("recorded_at", "timestamptz"),
    ),
)

_REJECTIONS: Final = _Copy(
    "rejections",
    (
        ("id", "uuid"),
        ("customer_id", "uuid"),
        ("platform_id", "uuid"),
        ("source", "text"),
        ("reference", "text"),
        ("body", "text"),
        ("reason", "text"),
        ("detail", "text"),
        ("recorded_at", "timestamptz"),
    ),
)

_PARKED: Final = _Copy(
    "parked",
    (
        ("id", "uuid"),
        ("customer_id", "uuid"),
        ("card_id", "uuid"),
        ("issuer_transaction_token", "text"),
        ("body", "json"),
        ("received_at", "timestamptz"),
    ),
)

_PENDING_PULLS: Final = _Copy(
    "pending_pulls",
    (
        ("card_transaction_id", "uuid"),
        ("sequence", "int4"),
        ("customer_id", "uuid"),
        ("card_id", "uuid"),
        ("issuer_transaction_token", "text"),
        ("amount", "int8"),
        ("succeeds", "bool"),
        ("due_at", "timestamptz"),
    ),
)

_OUTBOX: Final = _Copy(
    "outbox",
    (
        ("id", "uuid"),
        ("customer_id", "uuid"),
        ("platform_id", "uuid"),
        ("type", "text"),
        ("subject_id", "uuid"),
        ("sequence", "int8"),
        ("data", "text"),  # As which JSON travels.
        ("recorded_at", "timestamptz"),
    ),
)

_ROLL_UP_TYPES: Final = {
    "id": "uuid",
    "customer_id": "uuid",
    "platform_id": "uuid",
    "card_id": "uuid",
    "account_id": "uuid",
    "issuer_transaction_token": "text",
    "currency": "text",
    "descriptor": "text",
    "mcc": "text",
    "country": "text",
    "status": "text",
    "sequence": "int4",
    "authorizations": "int4",
    "authorized": "int8",
    "settled": "int8",
    "settlement_count": "int4",
    "refunded": "int8",
    "refund_count": "int4",
    "pulled": "int8",
    "pull_count": "int4",
    "pending": "int8",
    "pending_count": "int4",
    "open_pull": "int8",
    "unpaid": "int8",
    "debt_since": "timestamptz",
    "debt_id": "uuid",
    "released": "int8",
    "release_count": "int4",
    "closed_by": "text",
    "declined": "int8",
    "decline_reason": "text",
    "expires_at": "timestamptz",
    "created_at": "timestamptz",
    "last_event_at": "timestamptz",
    "updated_at": "timestamptz",
}
_ROLL_UPS: Final = _Copy(
    "card_transactions",
    tuple((column, _ROLL_UP_TYPES[column]) for column in roll_up_rows.COLUMNS),
)


def append_events(connection: Connection[Any], records: Sequence[EventRecord]) -> None:
    """Append to `card_transaction_events`."""
    _EVENTS.write(connection, records)


def append_entries(connection: Connection[Any], records: Sequence[EntryRecord]) -> None:
    """Append to `entries`."""
    _ENTRIES.write(connection, records)


def append_deposits(connection: Connection[Any], records: Sequence[DepositRecord]) -> None:
    """Append to `deposits`."""
    _DEPOSITS.write(connection, records)


def append_outcomes(
    connection: Connection[Any], rows: Iterable[OutcomeRow], recorded_at: datetime
) -> None:
    """Append to `outcomes`."""
    _OUTCOMES.write(connection, [(*key, *rest, recorded_at) for key, *rest in rows])


def append_rejections(connection: Connection[Any], records: Sequence[RejectionRecord]) -> None:
    """Append to `rejections`."""
    _REJECTIONS.write(connection, records)


def park(connection: Connection[Any], records: Sequence[Parked]) -> None:
    """Keep messages that wait for what they take back."""
    _PARKED.write(connection, records)


def unpark(connection: Connection[Any], ids: Sequence[tuple[Purchase, UUID]]) -> None:
    """Remove messages that have found what they take back."""
    if ids:
        purchases = [purchase for purchase, _ in ids]
        customers, cards_, tokens = _columns(purchases, "uuid", "uuid", "text")
        connection.execute(
            "DELETE FROM parked p USING unnest(%s, %s, %s, %s)"
            " AS k (customer_id, card_id, token, id) WHERE p.customer_id = k.customer_id"
            " AND p.card_id = k.card_id AND p.issuer_transaction_token = k.token AND p.id = k.id",
            [customers, cards_, tokens, arrays.uuids([key for _, key in ids])],
        )


def await_confirmations(connection: Connection[Any], records: Sequence[PendingPull]) -> None:
    """Keep pulls whose confirmation is out."""
    _PENDING_PULLS.write(connection, records)


def append_outbox(connection: Connection[Any], records: Sequence[OutboxRecord]) -> None:
    """Append to `outbox`."""
    _OUTBOX.write(connection, records)


def insert_roll_ups(connection: Connection[Any], new: Sequence[RollUp]) -> None:
    """Write the roll-ups of card transactions that did not exist."""
    _ROLL_UPS.write(connection, [roll_up_rows.to_row(roll_up) for roll_up in new])


# Who and what a card transaction concerns is decided by its first event and never rewritten.
_FIXED: Final = {"id", "customer_id", "platform_id", "card_id", "account_id", "currency",
    "issuer_transaction_token", "created_at"}  # fmt: skip
_MOVING: Final = tuple(column for column in roll_up_rows.COLUMNS if column not in _FIXED)
_UPDATED: Final = ("id", "customer_id", *_MOVING)
_UPDATED_AT: Final = [
    (roll_up_rows.COLUMNS.index(column), arrays.OF_TYPE[_ROLL_UP_TYPES[column]])
    for column in _UPDATED
]
_UPDATE_ROLL_UPS: Final = (
    "UPDATE card_transactions t SET "
    + ", ".join(f"{column} = u.{column}" for column in _MOVING)
    + " FROM unnest("
    + ", ".join("%s" for _ in _UPDATED)
    + f") AS u ({', '.join(_UPDATED)}) WHERE t.id = u.id AND t.customer_id = u.customer_id"
)


def update_roll_ups(connection: Connection[Any], changed: Sequence[RollUp]) -> Update:
    """Write the roll-ups of card transactions that existed before."""
    rows = [roll_up_rows.to_row(roll_up) for roll_up in changed]
    columns = [_array([row[index] for row in rows]) for index, _array in _UPDATED_AT]
    return Update(connection.execute(_UPDATE_ROLL_UPS, columns), len(rows))


def end_transfers(connection: Connection[Any], ended: Sequence[Transfer]) -> Update:
    """Write what became of transfers that were being carried out."""
    cursor = connection.execute(
        "UPDATE transfers t SET status = u.status, failure_reason = u.failure_reason,"
        " settled_at = u.settled_at, updated_at = u.updated_at"
        " FROM unnest(%s, %s, %s, %s, %s, %s)"
        " AS u (id, customer_id, status, failure_reason, settled_at, updated_at)"
        " WHERE t.id = u.id AND t.customer_id = u.customer_id AND t.status = 'PROCESSING'",
        [
            arrays.uuids([t.id for t in ended]),
            arrays.uuids([t.customer_id for t in ended]),
            arrays.texts([t.status for t in ended]),
            arrays.texts([t.failure_reason for t in ended]),
            arrays.times([t.settled_at for t in ended]),
            arrays.times([t.updated_at for t in ended]),
        ],
    )
    return Update(cursor, len(ended))


def update_accounts(connection: Connection[Any], changed: Sequence[Account]) -> Update:
    """Write the amounts of accounts, once each however many entries they got."""
    cursor = connection.execute(
        "UPDATE internal_accounts a SET balance = u.balance, held = u.held, owed = u.owed,"
        " pending = u.pending, version = u.version, updated_at = u.updated_at"
        " FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s)"
        " AS u (id, customer_id, balance, held, owed, pending, version, updated_at)"
        " WHERE a.id = u.id AND a.customer_id = u.customer_id",
        [
            arrays.uuids([a.id for a in changed]),
            arrays.uuids([a.customer_id for a in changed]),
            arrays.bigints([a.balance for a in changed]),
            arrays.bigints([a.held for a in changed]),
            arrays.bigints([a.owed for a in changed]),
            arrays.bigints([a.pending for a in changed]),
            arrays.bigints([a.version for a in changed]),
            arrays.times([a.updated_at for a in changed]),
        ],
    )
    return Update(cursor, len(changed))


def _columns(rows: Iterable[tuple[Any, ...]], *types: str) -> list[arrays.Array]:
    """Return `rows` as one array of each of `types`, also when there are none."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return [arrays.OF_TYPE[kind](column) for kind, column in zip(types, columns, strict=True)]
