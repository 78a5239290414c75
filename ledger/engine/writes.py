"""What a commit of the hot path writes: one insert and one update a table.

Below `write`, every function is one statement, whether a batch has one message or five hundred.
Nothing is decided here; one webhook is emitted here, in `update_accounts`. Connections are those of
`reads`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from datetime import datetime
from json import dumps
from operator import itemgetter
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.engine.change_set import PendingWrites
from cardledger.ledger.engine.records import (
    CardTransactionKey,
    ConversionRecord,
    DepositRecord,
    EntryRecord,
    EventRecord,
    LockedAccount,
    OutboxRecord,
    OutcomeRow,
    Parked,
    PendingPull,
    RejectionRecord,
    SettlementRecord,
    SuspenseItem,
)
from cardledger.ledger.messaging import claims, inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.projections import (
    accounts,
    adjustments,
    card_transaction_rows,
    settlement_bookings,
    transfers,
)
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import FEW_ROWS, BulkInsert, BulkUpdate, SentUpdate
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

_EVENTS: Final = BulkInsert(tables.card_transaction_events)
_ENTRIES: Final = BulkInsert(tables.entries)
_SETTLEMENTS: Final = BulkInsert(tables.settlement_details)
_CONVERSIONS: Final = BulkInsert(tables.conversion_details)
_SUSPENSE: Final = BulkInsert(tables.suspense_items)
_DEPOSITS: Final = BulkInsert(tables.deposits)
_PAYMENT_EVENTS: Final = BulkInsert(tables.transfer_events)
_OUTCOMES: Final = BulkInsert(tables.outcomes)
REJECTIONS: Final = BulkInsert(tables.rejections)
_PARKED: Final = BulkInsert(tables.parked, without={"platform_id"})  # A trigger writes it.
_PENDING_PULLS: Final = BulkInsert(tables.pending_pulls)
_OUTBOX: Final = BulkInsert(tables.outbox, without={"retry_at"})
_ROLL_UPS: Final = BulkInsert(
    tables.card_transactions, without=set(card_transaction_rows.RARE_COLUMNS)
)


def write(
    connection: Connection[Any],
    pending: PendingWrites,
    now: datetime,
    key: InboxKey,
    *,
    decided: Sequence[Message],
) -> None:
    """Write what a commit appends and changes, and remove the messages `decided` from the inbox.

    A small batch does all of it in one pipeline, which takes one round trip: without load, that is
    most of the time of a decision.
    """
    is_small = _most_rows(pending, decided) <= FEW_ROWS
    if not is_small:
        append(connection, pending, now, key)
    with connection.pipeline():
        if is_small:
            append(connection, pending, now, key)
        updates = list(change(connection, pending, now))
        claims.remove(connection, decided)
    for update in updates:
        update.check()


def _most_rows(pending: PendingWrites, decided: Sequence[Message]) -> int:
    """Return how many rows the table gets that gets most of them.

    One message can have hundreds: the closure of a card, a deposit that pays many debts.
    """
    return max(map(len, (decided, pending.events, pending.entries, pending.outbox)))


def append(
    connection: Connection[Any], pending: PendingWrites, now: datetime, key: InboxKey
) -> None:
    """Insert what a commit adds, one statement a table; `key` signs messages and rejections."""
    append_events(connection, pending.events)
    append_entries(connection, pending.entries)
    append_settlements(connection, pending.settlements)
    append_conversions(connection, pending.conversions)
    append_suspense(connection, pending.suspended)
    append_deposits(connection, pending.deposits)
    append_payments(connection, pending)
    append_outcomes(connection, pending.outcomes, now)
    append_rejections(connection, pending.rejections, key)
    append_outbox(connection, pending.outbox)
    park(connection, pending.parked)
    await_confirmations(connection, pending.pending_pulls)
    insert_roll_ups(
        connection,
        [context.roll_up for context in pending.card_transactions if context.is_new],
    )
    inbox.accept(connection, pending.follow_ups, key)


def change(  # noqa: C901 - one branch a table
    connection: Connection[Any], pending: PendingWrites, now: datetime
) -> Iterator[SentUpdate]:
    """Send the updates of a commit, for a pipeline; the results are checked after it."""
    unpark(connection, pending.unparked)
    append_duplicates(connection, pending.duplicates, now)
    changed = [context.roll_up for context in pending.card_transactions if not context.is_new]
    if changed:
        yield update_roll_ups(connection, changed)
    if pending.written_off:
        yield update_write_offs(connection, [context.roll_up for context in pending.written_off])
    if pending.credits:
        yield update_credits(connection, [context.roll_up for context in pending.credits])
    if pending.converted:
        yield update_conversions(connection, [context.roll_up for context in pending.converted])
    if pending.accounts:
        yield update_accounts(connection, pending.accounts, now, pending.webhook_id)
    if pending.resolved:
        yield resolve_suspense(connection, pending.resolved)
    if pending.transfers:
        yield transfers.end(connection, list(pending.transfers.values()))
    if pending.payments:
        yield transfers.advance(connection, list(pending.payments.values()))
    if pending.adjustments:
        yield adjustments.end(connection, list(pending.adjustments.values()))
    if pending.settlement_bookings:
        yield settlement_bookings.end(connection, list(pending.settlement_bookings.values()))


def append_events(connection: Connection[Any], records: Sequence[EventRecord]) -> None:
    """Append to `card_transaction_events`."""
    _EVENTS.write(connection, records)


def append_entries(connection: Connection[Any], records: Sequence[EntryRecord]) -> None:
    """Append to `entries`."""
    _ENTRIES.write(connection, records)


def append_settlements(connection: Connection[Any], records: Sequence[SettlementRecord]) -> None:
    """Append to `settlement_details`."""
    _SETTLEMENTS.write(connection, records)


def append_conversions(connection: Connection[Any], records: Sequence[ConversionRecord]) -> None:
    """Append to `conversion_details`."""
    _CONVERSIONS.write(connection, records)


def append_suspense(connection: Connection[Any], items: Sequence[SuspenseItem]) -> None:
    """Append to `suspense_items`; some may have been resolved by the batch that made them."""
    _SUSPENSE.write(connection, [astuple(item) for item in items])


_RESOLUTION: Final = BulkUpdate(
    tables.suspense_items, ("resolved_at", "resolved_by"), only="t.resolved_at IS NULL"
)


def resolve_suspense(connection: Connection[Any], items: Sequence[SuspenseItem]) -> SentUpdate:
    """Write that `items`, which were open, are resolved."""
    return _RESOLUTION.send(
        connection,
        [(item.id, item.customer_id, item.resolved_at, item.resolved_by) for item in items],
    )


def append_deposits(connection: Connection[Any], records: Sequence[DepositRecord]) -> None:
    """Append to `deposits`."""
    _DEPOSITS.write(connection, records)


def append_payments(connection: Connection[Any], pending: PendingWrites) -> None:
    """Append payments that have arrived to `transfers`, and what happened to `transfer_events`."""
    if pending.payment_events:
        transfers.append(connection, list(pending.arrived.values()))
        _PAYMENT_EVENTS.write(connection, pending.payment_events)


def append_outcomes(
    connection: Connection[Any], rows: Iterable[OutcomeRow], recorded_at: datetime
) -> None:
    """Append to `outcomes`."""
    values = []
    for row in rows:
        reference, source, platform_id, customer_id = row.key
        values.append(
            (
                customer_id,
                platform_id,
                source,
                reference,
                row.body_hash,
                row.message_id,
                row.outcome,
                row.reason,
                row.subject_id,
                row.sequence,
                recorded_at,
            )
        )
    _OUTCOMES.write(connection, values)


def append_rejections(
    connection: Connection[Any], records: Sequence[RejectionRecord], key: InboxKey
) -> None:
    """Append to `rejections`, signed with `key`."""
    REJECTIONS.write(connection, [(*record, key.mac_of_rejection(record)) for record in records])


# The rows as they are, so that one that was refused by mistake can be accepted again.
_APPEND_FORGED: Final = """
    INSERT INTO forged_messages (id, lane, shard, message_id, customer_id, platform_id, source,
        reference, body, body_hash, reply_to, received_at, mac, refused_at)
    SELECT k.id, i.lane, i.shard, i.id, i.customer_id, i.platform_id, i.source,
        i.reference, i.body::text, i.body_hash, i.reply_to, i.received_at, i.mac, %s
    FROM unnest(%s, %s, %s) AS k (id, shard, message_id)
    JOIN inbox i ON i.lane = %s AND i.shard = k.shard AND i.id = k.message_id
"""


def append_forged(connection: Connection[Any], messages: Sequence[Message], now: datetime) -> None:
    """Append rows of the inbox to `forged_messages`, each under a new id.

    Its own may be that of another message. Shape: all from one lane.
    """
    connection.execute(
        _APPEND_FORGED,
        [
            now,
            pg_arrays.uuids([new_id() for _ in messages]),
            pg_arrays.integers([message.shard for message in messages]),
            pg_arrays.uuids([message.id for message in messages]),
            messages[0].lane,
        ],
    )


_DUPLICATES: Final = "INSERT INTO duplicates (ids, recorded_at) VALUES (%s, %s)"


def append_duplicates(
    connection: Connection[Any], ids: Sequence[Id], recorded_at: datetime
) -> None:
    """Append to `duplicates`, in one row; most batches have none.

    Not as a row each: one row for a batch is enough, and joins the pipeline of the changes.
    """
    if ids:
        connection.execute(_DUPLICATES, [pg_arrays.uuids(ids), recorded_at])


def park(connection: Connection[Any], records: Sequence[Parked]) -> None:
    """Keep messages that wait for the events that they take back."""
    rows = [(*record[:4], dumps(record.body), record.received_at) for record in records]
    _PARKED.write(connection, rows)


_UNPARK: Final = """
    DELETE FROM parked p USING unnest(%s, %s, %s, %s) AS k (customer_id, card_id, token, id)
    WHERE p.customer_id = k.customer_id AND p.card_id = k.card_id
        AND p.issuer_transaction_token = k.token AND p.id = k.id
"""


def unpark(connection: Connection[Any], ids: Sequence[tuple[CardTransactionKey, Id]]) -> None:
    """Remove messages that wait no longer."""
    if ids:
        keys = [key for key, _ in ids]
        customers, cards, tokens = pg_arrays.columns(keys, "uuid", "uuid", "text")
        connection.execute(
            _UNPARK,
            [customers, cards, tokens, pg_arrays.uuids([parked_id for _, parked_id in ids])],
        )


def await_confirmations(connection: Connection[Any], records: Sequence[PendingPull]) -> None:
    """Keep pulls that are not confirmed yet."""
    _PENDING_PULLS.write(connection, records)


def append_outbox(connection: Connection[Any], records: Sequence[OutboxRecord]) -> None:
    """Append to `outbox`."""
    _OUTBOX.write(connection, records)


def insert_roll_ups(connection: Connection[Any], new: Sequence[RollUp]) -> None:
    """Write the roll-ups of card transactions that did not exist."""
    _ROLL_UPS.write(connection, [card_transaction_rows.common_row(roll_up) for roll_up in new])


_FIXED: Final = {"id", "customer_id", "platform_id", "card_id", "account_id", "currency",
    "issuer_transaction_token", "created_at"}  # fmt: skip
"""What a card transaction concerns is decided by its first event and never changes."""

_MOVING: Final = [
    column
    for column in card_transaction_rows.COLUMNS
    if column not in _FIXED and column not in card_transaction_rows.RARE_COLUMNS
]
_values_of: Final = itemgetter(
    *map(card_transaction_rows.COLUMNS.index, ("id", "customer_id", *_MOVING))
)
_ROLL_UP_UPDATE: Final = BulkUpdate(tables.card_transactions, _MOVING)
_WRITE_OFF_UPDATE: Final = BulkUpdate(
    tables.card_transactions, card_transaction_rows.WRITE_OFF_COLUMNS
)

_CREDIT_UPDATE: Final = BulkUpdate(tables.card_transactions, ("credit_authorized",))

_CONVERSION_UPDATE: Final = BulkUpdate(
    tables.card_transactions, card_transaction_rows.CONVERSION_COLUMNS
)

_KEPT: Final = ", ".join(f"'{column}', {column}" for column in accounts.SNAPSHOT_COLUMNS)
_EMITTING: Final = f"""
    WITH changed AS ({{}} RETURNING t.*, u.webhook_id), emitted AS (
        INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, sequence, data,
            recorded_at)
        SELECT webhook_id, customer_id, platform_id, 'INTERNAL_ACCOUNT.BALANCE_UPDATED', id,
            version, json_build_object({_KEPT}), updated_at
        FROM changed WHERE webhook_id IS NOT NULL
    )
    SELECT FROM changed
"""
_ACCOUNT_UPDATE: Final = BulkUpdate(
    tables.internal_accounts,
    ("balance", "held", "owed", "pending", "version", "updated_at"),
    extra=[("webhook_id", "uuid")],
    within=_EMITTING,
)


def update_roll_ups(connection: Connection[Any], changed: Sequence[RollUp]) -> SentUpdate:
    """Write the roll-ups of card transactions that existed before."""
    rows = [_values_of(card_transaction_rows.common_row(roll_up)) for roll_up in changed]
    return _ROLL_UP_UPDATE.send(connection, rows)


def update_write_offs(connection: Connection[Any], changed: Sequence[RollUp]) -> SentUpdate:
    """Write what is written off of card transactions, also of those that did not exist.

    By a statement of its own, so that other messages do not carry two more columns.
    """
    rows = [
        (
            roll_up.identity.id,
            roll_up.identity.customer_id,
            roll_up.state.written_off,
            roll_up.state.debits_written_off,
        )
        for roll_up in changed
    ]
    return _WRITE_OFF_UPDATE.send(connection, rows)


def update_credits(connection: Connection[Any], changed: Sequence[RollUp]) -> SentUpdate:
    """Write the authorized credits, also of card transactions that did not exist."""
    rows = [
        (roll_up.identity.id, roll_up.identity.customer_id, roll_up.state.credit_authorized)
        for roll_up in changed
    ]
    return _CREDIT_UPDATE.send(connection, rows)


def update_conversions(connection: Connection[Any], changed: Sequence[RollUp]) -> SentUpdate:
    """Write the last conversions, also of card transactions that did not exist."""
    rows = [
        (
            roll_up.identity.id,
            roll_up.identity.customer_id,
            *card_transaction_rows.conversion_row(roll_up),
        )
        for roll_up in changed
    ]
    return _CONVERSION_UPDATE.send(connection, rows)


def update_accounts(
    connection: Connection[Any],
    changed: Sequence[LockedAccount],
    updated_at: datetime,
    webhook_id: Callable[[], Id],
) -> SentUpdate:
    """Write the amounts of accounts, once each however many entries they have.

    For each account whose balance has moved, the same statement appends its BALANCE_UPDATED webhook
    to `outbox`. To append it like the other webhooks, a batch would have to load two more columns
    of every account, and to write JSON and a row of COPY for each: measured at 7 % more
    instructions per authorization, and no less work for PostgreSQL.
    """
    return _ACCOUNT_UPDATE.send(
        connection,
        [
            (
                account.id,
                account.customer_id,
                account.balance,
                account.held,
                account.owed,
                account.pending,
                account.version,
                updated_at,
                webhook_id() if account.has_moved else None,
            )
            for account in changed
        ],
    )
