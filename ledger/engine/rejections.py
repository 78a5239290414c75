"""Messages that were rejected when they were submitted, or quarantined, kept with their reason."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import psycopg
import structlog
from psycopg import AsyncConnection, Connection

from cardledger.ledger.books import calendars
from cardledger.ledger.books.suspense import NetworkMoney, event_in, money_of_rejected
from cardledger.ledger.books.system_accounts import SystemAccounts
from cardledger.ledger.engine import reads, writes
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.decisions.payments import messages as payment_messages
from cardledger.ledger.engine.decisions.recovery import ENGINE
from cardledger.ledger.engine.failures import open_days, repeated
from cardledger.ledger.engine.parsing import (
    RejectedError,
    card_transaction_keys_of,
    cards_of_money,
    key_of,
    rejection_of,
    text_of,
    transfers_of,
)
from cardledger.ledger.engine.records import Decided, RejectionRecord
from cardledger.ledger.messaging import claims, inbox
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.ids import ids_from
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

_QUARANTINED: Final = "Internal processing error; event quarantined. Resubmit after the fix."

_NAMED: Final = 5  # Messages that a line of the log names.
_SHORT: Final = 64  # Characters of a time, a date or the name of a network.
_LONGEST_TOKEN: Final = 255  # Characters; an event with a longer one is never accepted.
_FORGED: Final = "Not accepted by a process of this installation."

_log = structlog.get_logger()


class UnverifiedError(Exception):
    """No message in the inbox has a MAC by the key of this process, which may be the wrong one."""

    def __init__(self) -> None:
        super().__init__(
            "no message that waits was accepted with this key; check that CARDLEDGER_SECRET_KEY is"
            " the same in every process"
        )


async def keep(
    connection: AsyncConnection[Any], records: Sequence[RejectionRecord], key: InboxKey
) -> list[Message]:
    """Write `records`, signed with `key`; they are kept once the caller has committed.

    Returns the messages that were put into the inbox, for what `records` have moved.
    """
    if not records:
        return []
    rows = [(*record, key.mac_of_rejection(record)) for record in records]
    await writes.REJECTIONS.write_async(connection, rows)
    moved = money_of(records)
    if not moved:
        return []
    routes = await inbox.routes_of(connection, {money.card_id for money in moved.values()})
    owners = {card: route.owner for card, route in routes.items()}
    messages = suspensions(records, moved, owners)
    if messages:
        await inbox.accept_async(connection, messages, key)
    return messages


def money_of(records: Sequence[RejectionRecord]) -> dict[Id, NetworkMoney]:
    """Return what those of `records` have moved, by their ids, of which it can be read.

    Shape: of records with one key and card, the first: it is one movement.
    """
    moved: dict[Id, NetworkMoney] = {}
    known: set[tuple[object, ...]] = set()
    for record in records:
        sent = event_in(record.body) or {}
        money = money_of_rejected(sent, record.reason)
        if money is None:
            continue
        sender = _sender(record, sent)
        movement = (record.platform_id, sender, money.card_id)
        if sender is None or movement not in known:
            moved[record.id] = money
            known.add(movement)
    return moved


def _sender(record: RejectionRecord, sent: Mapping[str, object]) -> tuple[str, str] | None:
    """Return source and reference of the event `sent`, which `record` keeps.

    None where one of them is missing, or was too long and is cut: other events may have the same
    beginning.
    """
    if not record.source or not record.reference:
        return None
    for name, kept in (("source", record.source), ("reference", record.reference)):
        text = sent.get(name)
        if isinstance(text, str) and text != kept:
            return None
    return record.source, record.reference


def suspensions(
    records: Sequence[RejectionRecord],
    moved: Mapping[Id, NetworkMoney],
    owners: Mapping[Id, Owner],
) -> list[Message]:
    """Return the messages by which the engine books what `records` have `moved`.

    `owners` are those of the cards that exist. A card of another platform than the sender's is like
    one that does not exist.
    """
    messages = []
    for record in records:
        money = moved.get(record.id)
        owner = owners.get(money.card_id) if money else None
        if money and owner and record.platform_id in {UNROUTED.platform_id, owner.platform_id}:
            messages.append(_suspension(record, money, owner))
    return messages


def _suspension(record: RejectionRecord, money: NetworkMoney, owner: Owner) -> Message:
    body = {
        "type": inbox.SUSPENSE,
        "source": ENGINE,
        "reference": f"{record.id}/suspense",
        "cardId": f"Card:{money.card_id}",
        "rejectionId": str(record.id),
        "reason": record.reason,
        "event": _event(record, money),
    }
    return inbox.address(body, owner, lane=Lane.BULK, reply_to=None, at=record.recorded_at)


def _event(record: RejectionRecord, money: NetworkMoney) -> dict[str, object]:
    """Return of the rejected event what is booked, and its dates: nothing else of what was sent."""
    sent = event_in(record.body) or {}
    settlement = sent.get("settlement")
    named = settlement if isinstance(settlement, dict) else {}
    texts: dict[str, object] = {}
    if sender := _sender(record, sent):
        texts["source"], texts["reference"] = sender
    if occurred_at := _short(sent.get("occurredAt")):
        texts["occurredAt"] = occurred_at
    # By it the engine finds out whether the event is about a credit.
    if token := _short(sent.get("issuerTransactionToken"), _LONGEST_TOKEN):
        texts["issuerTransactionToken"] = token
    dates = {name: _short(named.get(name)) for name in ("network", "settlementDate")}
    if all(dates.values()):
        texts["settlement"] = dates
    return {
        "type": money.type,
        "cardId": f"Card:{money.card_id}",
        "amount": money.amount,
        **texts,
    }


def _short(value: object, limit: int = _SHORT) -> str | None:
    """Return `value` if it is a text of at most `limit` characters that PostgreSQL can keep."""
    if not isinstance(value, str) or len(value) > limit:
        return None
    with suppress(RejectedError):
        return text_of(value)
    return None


def quarantine(
    connection: Connection[Any], messages: Sequence[Message], now: datetime, key: InboxKey
) -> list[Decided]:
    """Reject `messages`, which fail inside the ledger, at `now`, and keep their bodies.

    `key` signs the rejections.

    Shape: all from one lane.
    """
    reason = RejectionReason.INTERNAL_ERROR
    rejected = [rejection_of(message, reason, _QUARANTINED, now) for message in messages]
    writes.append_rejections(connection, rejected, key)
    claims.remove(connection, messages)
    _fail_transfers(connection, messages, now)
    # The sender of a payment that cannot arrive gets its money back.
    returned = [payment_messages.returned(message, now) for message in messages]
    inbox.accept(connection, [message for message in returned if message is not None], key)
    _suspend(connection, messages, now)
    return [
        Decided(message, OutcomeType.REJECTED, reason=reason, detail=_QUARANTINED)
        for message in messages
    ]


def refuse(connection: Connection[Any], forged: Sequence[Message], now: datetime) -> list[Decided]:
    """Move `forged` messages, which this installation has not accepted, to their table at `now`.

    None has an outcome: the key, and the id, may be those of a message that was accepted. For the
    same reason no caller gets a reply, and the transfers that they name stay as they are.
    Shape: all from one lane.
    """
    reason = RejectionReason.INTERNAL_ERROR
    writes.append_forged(connection, forged, now)
    claims.remove(connection, forged)
    _log.error(
        "forged messages refused",
        count=len(forged),
        message_ids=[str(message.id) for message in forged[:_NAMED]],
    )
    return [
        Decided(
            replace(message, reply_to=None),
            OutcomeType.REJECTED,
            reason,
            _FORGED,
            is_forged=True,
        )
        for message in forged
    ]


def _fail_transfers(
    connection: Connection[Any], messages: Sequence[Message], now: datetime
) -> None:
    """Fail the transfers that quarantined `messages` were to carry out.

    When that fails as well, it is logged and the queue goes on.
    """
    transfers = transfers_of(messages)
    if not transfers:
        return
    try:
        with connection.transaction():
            snapshot = BatchSnapshot(transfers=reads.lock_transfers(connection, transfers))
            webhook_id = ids_from(database_clock.read(connection))  # Behind the locks.
            batch = Batch(snapshot, now=now, rail=None, webhook_id=webhook_id)
            batch.fail_transfers(messages)
            for update in writes.change(connection, batch.writes, now):
                update.check()
            writes.append_outbox(connection, batch.writes.outbox)
    except psycopg.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - a defect of ours must not stop the queue
        _log.exception(
            "quarantined transfer stays PROCESSING",
            transfers=[str(key) for key, _ in transfers],
        )


def _suspend(connection: Connection[Any], messages: Sequence[Message], now: datetime) -> None:
    """Book what quarantined `messages` have moved at the network.

    When that fails as well, it is logged and the queue goes on; `verify` reports it.
    """
    cards = cards_of_money(messages)
    if not cards:
        return
    try:
        repeated(partial(_book, connection, messages, cards, now))
    except psycopg.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - a defect of ours must not stop the queue
        _log.exception(
            "quarantined event not booked in suspense; see finance.unapplied",
            message_ids=[str(message.id) for message in messages[:_NAMED]],
        )


def _book(
    connection: Connection[Any], messages: Sequence[Message], cards: Collection[Id], now: datetime
) -> None:
    """Book in a savepoint what quarantined `messages` have moved, of `cards`.

    Raises: StaleSnapshotError when the books were closed for its day meanwhile.
    """
    with connection.transaction():
        accounts = reads.lock_accounts(connection, list({each.customer_id for each in messages}))()
        books = reads.state_of_books(connection)()
        charts = {(account.platform_id, account.currency) for account in accounts.values()}
        snapshot = BatchSnapshot(
            cards=reads.cards(connection, cards)(),
            accounts=accounts,
            roll_ups=_roll_ups(connection, messages),
            system_accounts=SystemAccounts().of(connection, charts),
            suspense_items=reads.suspense_items(connection, [], map(key_of, messages)),
            calendars=calendars.rules(calendars.read(connection)),
            first_open_day=books.first_open_day,
        )
        # Not before a closing that has moved the first open day.
        batch = Batch(snapshot, now=max(now, books.reading.at), rail=None)
        batch.suspend(messages, RejectionReason.INTERNAL_ERROR)
        batch.leave_out(reads.resolved_by_people(connection, batch.writes.suspended))
        with open_days():
            writes.append_entries(connection, batch.writes.entries)
        writes.append_suspense(connection, batch.writes.suspended)


def _roll_ups(connection: Connection[Any], messages: Sequence[Message]) -> Sequence[RollUp]:
    """Return the card transactions of `messages`, which tell whether they are about credits.

    None when they cannot be read, which may be why `messages` were quarantined: what has moved is
    booked all the same.
    """
    try:
        with connection.transaction():
            return _card_transactions(connection, messages)
    except psycopg.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - a defect of ours must not stop the queue
        _log.exception("quarantined clearings of credits, if any, booked as those of purchases")
        return ()


def _card_transactions(
    connection: Connection[Any], messages: Sequence[Message]
) -> Sequence[RollUp]:
    keys = card_transaction_keys_of(messages)
    return reads.roll_ups(connection, reads.columns(keys))() if keys else ()
