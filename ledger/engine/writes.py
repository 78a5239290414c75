"""What a commit of the hot path writes: binary COPY, and one update of each table. No rules.

Every function is one statement, whether a batch has one message or five hundred. Connections are
those of `store`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, Final

from psycopg import Connection, Cursor, adapters

from cardledger.ledger.engine.records import (
    Account,
    CardTransactionKey,
    DepositRecord,
    EntryRecord,
    EventRecord,
    OutboxRecord,
    OutcomeRow,
    Parked,
    PendingPull,
    RejectionRecord,
)
from cardledger.ledger.projections import accounts, card_transaction_rows
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import COPIED_AS, Id


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
        self._types: Final = [
            adapters.types.get_oid(COPIED_AS if kind == "uuid" else kind) for _, kind in columns
        ]

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
    tuple((column, _ROLL_UP_TYPES[column]) for column in card_transaction_rows.COLUMNS),
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
    written = []
    for row in rows:
        reference, source, platform_id, customer_id = row.key
        written.append(
            (
                reference,
                source,
                platform_id,
                customer_id,
                row.body_hash,
                row.message_id,
                row.outcome,
                row.reason,
                row.subject_id,
                row.sequence,
                recorded_at,
            )
        )
    _OUTCOMES.write(connection, written)


def append_rejections(connection: Connection[Any], records: Sequence[RejectionRecord]) -> None:
    """Append to `rejections`."""
    _REJECTIONS.write(connection, records)


def park(connection: Connection[Any], records: Sequence[Parked]) -> None:
    """Keep messages that wait for what they take back."""
    _PARKED.write(connection, records)


def unpark(connection: Connection[Any], ids: Sequence[tuple[CardTransactionKey, Id]]) -> None:
    """Remove messages that have found what they take back."""
    if ids:
        keys = [key for key, _ in ids]
        customers, cards, tokens = pg_arrays.columns(keys, "uuid", "uuid", "text")
        connection.execute(
            "DELETE FROM parked p USING unnest(%s, %s, %s, %s)"
            " AS k (customer_id, card_id, token, id) WHERE p.customer_id = k.customer_id"
            " AND p.card_id = k.card_id AND p.issuer_transaction_token = k.token AND p.id = k.id",
            [customers, cards, tokens, pg_arrays.uuids([parked_id for _, parked_id in ids])],
        )


def await_confirmations(connection: Connection[Any], records: Sequence[PendingPull]) -> None:
    """Keep pulls whose confirmation is out."""
    _PENDING_PULLS.write(connection, records)


def append_outbox(connection: Connection[Any], records: Sequence[OutboxRecord]) -> None:
    """Append to `outbox`."""
    _OUTBOX.write(connection, records)


def insert_roll_ups(connection: Connection[Any], new: Sequence[RollUp]) -> None:
    """Write the roll-ups of card transactions that did not exist."""
    _ROLL_UPS.write(connection, [card_transaction_rows.to_row(roll_up) for roll_up in new])


_KEYS: Final = ("id", "customer_id")


class _Change:
    """An update of many rows of a table, each found by its id and its customer."""

    def __init__(
        self,
        table: str,
        types: Mapping[str, str],
        *,
        only: str = "true",
        beside: Mapping[str, str] | None = None,
        within: str = "{}",
    ) -> None:
        """Set the columns of `types`, keys included, where `only` is true.

        `beside` are values that the statement around it, `within`, wants of every row.
        """
        given = {**types, **(beside or {})}
        self._types: Final = list(given.values())
        update = (
            f"UPDATE {table} t SET {', '.join(f'{n} = u.{n}' for n in types if n not in _KEYS)}"
            f" FROM unnest({', '.join('%s' for _ in given)}) AS u ({', '.join(given)})"
            f" WHERE {' AND '.join(f't.{key} = u.{key}' for key in _KEYS)} AND {only}"
        )
        self._statement: Final = within.format(update).encode()

    def write(self, connection: Connection[Any], rows: Sequence[tuple[Any, ...]]) -> Update:
        """Write `rows`, which have the values in their order."""
        values = pg_arrays.columns(rows, *self._types)
        return Update(connection.execute(self._statement, values), len(rows))


# Who and what a card transaction concerns is decided by its first event and never rewritten.
_FIXED: Final = {"id", "customer_id", "platform_id", "card_id", "account_id", "currency",
    "issuer_transaction_token", "created_at"}  # fmt: skip
_MOVING: Final = [column for column in card_transaction_rows.COLUMNS if column not in _FIXED]
_UPDATED: Final = {column: _ROLL_UP_TYPES[column] for column in ("id", "customer_id", *_MOVING)}
_updated_of: Final = itemgetter(*map(card_transaction_rows.COLUMNS.index, _UPDATED))
_ROLL_UP_CHANGES: Final = _Change("card_transactions", _UPDATED)

_ENDED: Final = {
    "id": "uuid",
    "customer_id": "uuid",
    "status": "text",
    "failure_reason": "text",
    "settled_at": "timestamptz",
    "updated_at": "timestamptz",
}
_end_of: Final = attrgetter(*_ENDED)
_TRANSFER_ENDS: Final = _Change("transfers", _ENDED, only="t.status = 'PROCESSING'")

_AMOUNTS: Final = {
    "id": "uuid",
    "customer_id": "uuid",
    "balance": "int8",
    "held": "int8",
    "owed": "int8",
    "pending": "int8",
    "version": "int8",
}
_KEPT: Final = ", ".join(f"'{column}', {column}" for column in accounts.KEPT)
# Whoever is told of a balance is told of the row that the update has left: once a commit.
_ACCOUNT_CHANGES: Final = _Change(
    "internal_accounts",
    {**_AMOUNTS, "updated_at": "timestamptz"},
    beside={"webhook_id": "uuid"},
    within="WITH changed AS ({} RETURNING t.*, u.webhook_id), told AS ("
    "INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, sequence, data,"
    " recorded_at)"
    " SELECT webhook_id, customer_id, platform_id, 'INTERNAL_ACCOUNT.BALANCE_UPDATED', id,"
    f" version, json_build_object({_KEPT}), updated_at FROM changed WHERE webhook_id IS NOT NULL)"
    " SELECT FROM changed",
)


def update_roll_ups(connection: Connection[Any], changed: Sequence[RollUp]) -> Update:
    """Write the roll-ups of card transactions that existed before."""
    rows = [_updated_of(card_transaction_rows.to_row(roll_up)) for roll_up in changed]
    return _ROLL_UP_CHANGES.write(connection, rows)


def end_transfers(connection: Connection[Any], ended: Sequence[Transfer]) -> Update:
    """Write what became of transfers that were being carried out."""
    return _TRANSFER_ENDS.write(connection, list(map(_end_of, ended)))


def update_accounts(
    connection: Connection[Any], changed: Sequence[Account], updated_at: datetime
) -> Update:
    """Write the amounts of accounts, once each however many entries they got.

    Where a balance has moved, a webhook is in `outbox` afterwards.
    """
    return _ACCOUNT_CHANGES.write(
        connection,
        [
            (
                one.id,
                one.customer_id,
                one.balance,
                one.held,
                one.owed,
                one.pending,
                one.version,
                updated_at,
                new_id() if one.has_moved else None,
            )
            for one in changed
        ],
    )
