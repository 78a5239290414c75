"""Cardholders whose rows another session has locked: batches leave them out for a while.

A batch that waits for a lock keeps every cardholder in it waiting. So a cardholder who was found
locked is left out of the next batches, and tried again, without waiting, after a delay that grows.
Meanwhile the messages stay in the inbox, in their order.

Tried are the rows that workers may lock. A lock on another row, of a parked message for example,
shows only when a message is decided alone: its cardholder is blamed. So is one whose message alone
takes longer than a statement may: batches with it are cancelled, so each further time it is left
out for longer, up to minutes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.engine import debts, reads
from cardledger.ledger.engine.parsing import (
    adjustments_of,
    card_transaction_keys_of,
    closings_of,
    settlement_bookings_of,
    transfers_of,
)
from cardledger.ledger.engine.records import Closing
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import adjustments, settlement_bookings, transfers
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

_FIRST_DELAY_S: Final = 0.05
_LONGEST_DELAY_S: Final = 1.0
_FIRST_BLAME_S: Final = 0.25
_LONGEST_BLAME_S: Final = 5.0  # To find one locked again, the batch has to wait for it.
_FIRST_SLOW_S: Final = 5.0  # To find one slow again, a batch is cancelled after some seconds.
_LONGEST_SLOW_S: Final = 600.0
_MEMORY_S: Final = 10.0  # Then a cardholder counts as free, and one batch may wait again.
_SIZE_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Delay:
    seconds: float
    ends_at: float  # On the clock of `monotonic`.
    is_slow: bool = False  # And not locked.

    @property
    def forgotten_at(self) -> float:
        return self.ends_at + (_LONGEST_SLOW_S if self.is_slow else _MEMORY_S)


class LockedCardholders:
    """What the batches of one process know about locks of others; for several threads."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Know of no lock. `clock` counts seconds."""
        self._clock: Final = clock
        self._lock: Final = Lock()
        # By when they were found, at most `_SIZE_LIMIT` of each.
        self._delays: dict[Id, _Delay] = {}
        self._blamed: dict[Id, _Delay] = {}

    def left_out(self) -> list[Id]:
        """Return the cardholders that a batch must not claim messages of now."""
        if not (self._delays or self._blamed):
            return []
        now = self._clock()
        with self._lock:
            known = *self._delays.items(), *self._blamed.items()
        return list(dict.fromkeys(key for key, delay in known if now < delay.ends_at))

    def suspects(self, cardholders: Iterable[Id]) -> set[Id]:
        """Return those of `cardholders` that were locked lately: a batch must not wait for them."""
        delays = self._delays
        return {key for key in cardholders if key in delays} if delays else set()

    def note(self, tried: Iterable[Id], locked: Collection[Id]) -> set[Id]:
        """Note that of the cardholders `tried` some were `locked`; return who was not before."""
        now = self._clock()
        with self._lock:
            known = _remembered(self._delays, now)
            before = {key: delay for key in tried if (delay := known.pop(key, None))}
            known.update((key, _next(before.get(key), now)) for key in locked)
            self._delays = _newest(known)
        return {key for key in locked if key not in before}

    def blame(self, cardholder: Id) -> None:
        """Note that a message of `cardholder`, decided alone, has waited for a lock in vain."""
        # Each costs a batch three waits: with many, batches without them must come between.
        known = _remembered(self._blamed, self._clock()).values()
        longest = max(_LONGEST_BLAME_S, sum(not delay.is_slow for delay in known) + 1.0)
        self._leave_out(cardholder, _FIRST_BLAME_S, longest, is_slow=False)

    def blame_slow(self, cardholder: Id) -> None:
        """Note that a message of `cardholder`, alone, took longer than a statement may."""
        self._leave_out(cardholder, _FIRST_SLOW_S, _LONGEST_SLOW_S, is_slow=True)

    def blame_slow_again(self) -> bool:
        """Leave out who was slow before and is tried again; return whether there is one.

        For when a batch was cancelled, which no cardholder was left out of for being slow.
        """
        now = self._clock()
        suspects = [
            key
            for key, delay in self._blamed.items()
            if delay.is_slow and delay.ends_at <= now < delay.forgotten_at
        ]
        for cardholder in suspects:
            self.blame_slow(cardholder)
        return bool(suspects)

    def _leave_out(
        self, cardholder: Id, first_s: float, longest_s: float, *, is_slow: bool
    ) -> None:
        now = self._clock()
        with self._lock:
            known = _remembered(self._blamed, now)
            last = known.pop(cardholder, None)
            seconds = min(max(2 * last.seconds, first_s), longest_s) if last else first_s
            delay = _Delay(seconds, now + seconds, is_slow)
            self._blamed = _newest({**known, cardholder: delay})


def _remembered(delays: Mapping[Id, _Delay], now: float) -> dict[Id, _Delay]:
    return {key: delay for key, delay in delays.items() if now < delay.forgotten_at}


def _newest(delays: Mapping[Id, _Delay]) -> dict[Id, _Delay]:
    return dict(list(delays.items())[-_SIZE_LIMIT:])


def _next(last: _Delay | None, now: float) -> _Delay:
    seconds = min(2 * last.seconds, _LONGEST_DELAY_S) if last else _FIRST_DELAY_S
    return _Delay(seconds, now + seconds)


_FREE_ACCOUNTS: Final = """
    SELECT id FROM internal_accounts WHERE customer_id = ANY(%s)
    ORDER BY id FOR UPDATE SKIP LOCKED
"""
_ACCOUNTS: Final = "SELECT id, customer_id FROM internal_accounts WHERE customer_id = ANY(%s)"

# Those of the messages, and those that the money which they free may pay.
_CARD_TRANSACTIONS: Final = """
    SELECT t.id, t.customer_id FROM card_transactions t WHERE t.id IN (
        SELECT c.id FROM unnest(%s, %s, %s) AS k (customer_id, card_id, token)
        JOIN card_transactions c ON c.customer_id = k.customer_id AND c.card_id = k.card_id
            AND c.issuer_transaction_token = k.token
        UNION ALL
        SELECT d.id FROM internal_accounts a CROSS JOIN LATERAL (
            SELECT id FROM card_transactions WHERE account_id = a.id AND debt_id IS NOT NULL
            ORDER BY debt_since, debt_id LIMIT %s
        ) d
        WHERE a.customer_id = ANY(%s)
    )
"""
_FREE_CARD_TRANSACTIONS: Final = f"{_CARD_TRANSACTIONS} FOR UPDATE OF t SKIP LOCKED"


def locked_by_others(connection: Connection[Any], messages: Sequence[Message]) -> set[Id]:
    """Lock what is free of what `messages` change, until the end of the database transaction.

    Returns the customers of whom another session has locked an account, a transfer, an adjustment,
    a card transaction (of `messages`, with a debt, or of a card that is closed), or an item of
    SUSPENSE that `messages` take back.
    """
    customers = pg_arrays.uuids(list({message.customer_id for message in messages}))
    keys = reads.columns(card_transaction_keys_of(messages))
    concerned = [*keys, debts.DEBTS_LIMIT, customers]
    with connection.pipeline():
        # The accounts first: while they are locked no batch opens a card transaction.
        cursors = [
            connection.cursor(binary=True).execute(statement, parameters)
            for statement, parameters in (
                (_FREE_ACCOUNTS, [customers]),
                (_FREE_CARD_TRANSACTIONS, concerned),
                (_ACCOUNTS, [customers]),
                (_CARD_TRANSACTIONS, concerned),
            )
        ]
    free, free_too, accounts, card_transactions = [cursor.fetchall() for cursor in cursors]
    locked = {row[0] for row in (*free, *free_too)}
    held = {customer for key, customer in (*accounts, *card_transactions) if key not in locked}
    held |= _suspense_locked_by_others(connection, messages)
    if closings := closings_of(messages):
        held |= _closing_locked_by_others(connection, closings)
    keys_of_transfers = transfers_of(messages)
    if keys_of_transfers:
        held |= transfers.locked_by_others(connection, keys_of_transfers)
    approved = adjustments_of(messages)
    if approved:
        taken = adjustments.locked_by_others(connection, approved)
        held |= {approved[key] for key in taken}
    due = settlement_bookings_of(messages)
    if due:
        taken = settlement_bookings.locked_by_others(connection, due)
        held |= {due[key] for key in taken}
    return held


# Open items of SUSPENSE with the keys of the messages, which take them back.
_ITEMS: Final = """
    SELECT i.id, i.customer_id FROM suspense_items i
    JOIN unnest(%s, %s, %s) AS k (platform_id, customer_id, reference)
        ON i.platform_id = k.platform_id AND i.customer_id = k.customer_id
        AND md5(i.reference) = md5(k.reference) AND i.reference = k.reference
    WHERE i.resolved_at IS NULL
"""
_FREE_ITEMS: Final = f"{_ITEMS} FOR UPDATE OF i SKIP LOCKED"


def _suspense_locked_by_others(connection: Connection[Any], messages: Sequence[Message]) -> set[Id]:
    """Do as `locked_by_others`, with the items of SUSPENSE."""
    keys = {(each.platform_id, each.customer_id, each.reference) for each in messages}
    concerned = pg_arrays.columns(list(keys), "uuid", "uuid", "text")
    with connection.pipeline():
        free, items = [
            connection.cursor(binary=True).execute(statement, concerned)
            for statement in (_FREE_ITEMS, _ITEMS)
        ]
    mine = {row[0] for row in free.fetchall()}
    return {customer for key, customer in items.fetchall() if key not in mine}


_CLOSING: Final = """
    SELECT t.id, t.customer_id FROM card_transactions t WHERE t.id IN (
        SELECT p.id FROM unnest(%s, %s, %s) AS k (card_id, customer_id, after)
        CROSS JOIN LATERAL (
            SELECT id FROM card_transactions
            WHERE customer_id = k.customer_id AND card_id = k.card_id
                AND issuer_transaction_token > k.after
            ORDER BY issuer_transaction_token LIMIT %s
        ) p
    )
"""
_FREE_CLOSING: Final = f"{_CLOSING} FOR UPDATE OF t SKIP LOCKED"


def _closing_locked_by_others(
    connection: Connection[Any], closings: Collection[Closing]
) -> set[Id]:
    """Do as `locked_by_others`, with the pages of closed cards that a batch is to release."""
    keys = pg_arrays.columns(closings, "uuid", "uuid", "text")
    concerned = [*keys, reads.closing_limit(closings)]
    with connection.pipeline():
        free, pages = [
            connection.cursor(binary=True).execute(statement, concerned)
            for statement in (_FREE_CLOSING, _CLOSING)
        ]
    mine = {row[0] for row in free.fetchall()}
    return {customer for key, customer in pages.fetchall() if key not in mine}
