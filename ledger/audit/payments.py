"""The audit of payments: status, entries and amounts follow from the row and its events.

It shares the rules with the engine (`core.payments`) and nothing else. What a payment adds to the
system accounts is derived once more from the row alone, without events (`SUB_LEDGER`).
Source: docs/decisions/0078-payments.md
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.audit.streams import Grouped, Row, SystemAccounts, system_accounts_of
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.core.payments import conversion, payment
from cardledger.ledger.core.payments.conversion import LockedSide, Rate
from cardledger.ledger.core.payments.payment import ImpossibleStepError, State, Status, Step
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage import cursors
from cardledger.schema.ids import Id

SUB_LEDGER: Final = """
    SELECT f.platform_id, k.currency, k.kind, k.amount
    FROM transfers f
    CROSS JOIN LATERAL (
        SELECT f.kind = 'OUT' AS is_out, f.kind IN ('IN', 'RECEIVED') AS is_in,
            coalesce(f.received_amount, f.amount - f.fee_amount)::numeric AS received,
            coalesce(f.received_currency, f.currency) AS arriving,
            f.amount::numeric AS amount, f.fee_amount::numeric AS fee,
            (f.refund_status = 'COMPLETED') IS TRUE AS is_refunded,
            (f.failure_reason = 'PAYOUT_RETURNED') IS TRUE AS is_returned,
            f.status IN ('PENDING', 'PROCESSING') AS is_open
    ) t
    CROSS JOIN LATERAL (
        -- What was debited and has not gone out; what has arrived and was not sent back.
        SELECT t.is_out AND NOT t.is_refunded AND f.status <> 'COMPLETED' AS is_out_held,
            t.is_in AND (f.status = 'COMPLETED' OR (f.kind = 'RECEIVED' AND t.is_open)
                OR (f.refund_status IS NOT NULL AND NOT t.is_refunded)) AS is_in_held
    ) h
    CROSS JOIN LATERAL (VALUES
        ('OUTBOUND_CLEARING', t.arriving, CASE WHEN h.is_out_held THEN t.received ELSE 0 END),
        ('OUTBOUND_CLEARING', f.currency,
            CASE WHEN h.is_out_held AND NOT t.is_returned THEN t.fee ELSE 0 END),
        ('SANDBOX_FUNDING', t.arriving,
            CASE WHEN t.is_out AND f.status = 'COMPLETED' THEN t.received ELSE 0 END),
        ('SANDBOX_FUNDING', f.currency,
            CASE WHEN h.is_in_held OR f.is_funded THEN -t.amount ELSE 0 END),
        ('INBOUND_CLEARING', f.currency,
            CASE WHEN h.is_in_held AND f.status <> 'COMPLETED' THEN t.amount ELSE 0 END),
        ('TRANSFERS', f.currency, CASE WHEN f.kind = 'FEE' THEN -t.amount
            WHEN f.status = 'COMPLETED' OR t.is_returned THEN t.fee ELSE 0 END),
        ('FX', f.currency, CASE WHEN f.received_currency IS NOT NULL AND NOT t.is_refunded
            THEN t.amount - t.fee ELSE 0 END),
        ('FX', t.arriving, CASE WHEN f.received_currency IS NOT NULL AND NOT t.is_refunded
            THEN -t.received ELSE 0 END)
    ) AS k (kind, currency, amount)
    WHERE f.sequence > 0
"""
"""What payments add to the balance of each system account: platform, currency, kind, amount."""


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with payments."""
    system_accounts = system_accounts_of(connection)
    events = Grouped(connection, "transfer_events", _EVENTS)
    entries = Grouped(connection, "transfer_entries", _ENTRIES)
    for row in cursors.stream(connection, "transfers", _PAYMENTS):
        stored = transfers.transfer_from_row(row)
        found = _differences_of(
            stored, events.of(stored.id), entries.of(stored.id), system_accounts
        )
        for problem in found:
            yield f"Payment {stored.id}: {problem}"
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)


_PAYMENTS: Final = f"""
    SELECT {transfers.LISTED} FROM transfers t LEFT JOIN customers u ON u.id = t.customer_id
    WHERE t.kind <> 'INTERNAL' ORDER BY t.id
"""
_EVENTS: Final = """
    SELECT transfer_id, sequence, customer_id, kind, reason, recorded_at
    FROM transfer_events ORDER BY transfer_id, sequence
"""
_ENTRIES: Final = """
    SELECT e.subject_id, e.sequence, e.line, e.customer_id, e.debit_account_id, e.credit_account_id,
        e.amount
    FROM entries e JOIN transfers f ON f.id = e.subject_id AND f.kind <> 'INTERNAL'
    ORDER BY e.subject_id, e.sequence, e.line
"""


def _differences_of(
    stored: Transfer,
    events: Sequence[Row],
    entries: Sequence[Row],
    system_accounts: SystemAccounts,
) -> Iterator[str]:
    try:
        state, expected = _folded(stored, events, system_accounts)
    except (ImpossibleStepError, KeyError, ValueError) as error:
        yield f"its events cannot be folded: {error!r}"
        return
    yield from _of_row(stored, state, events)
    for number, (actual, wanted) in enumerate(zip_longest(map(tuple, entries), expected), start=1):
        if actual != wanted:
            yield f"stored entry {number} is {actual}; its events give {wanted}"
    yield from _of_conversion(stored)


def _folded(
    stored: Transfer, events: Sequence[Row], system_accounts: SystemAccounts
) -> tuple[State, list[Row]]:
    """Return the state after `events`, and the entries that they give."""
    terms, state = stored.terms, State()
    rows: list[Row] = []
    for number, (sequence, owner, kind, *_) in enumerate(events, start=1):
        if (sequence, owner) != (number, stored.customer_id):
            raise ValueError(f"event {number} is number {sequence} of owner {owner}")
        step = Step(kind)
        for line, movement in enumerate(payment.entries(terms, state, step)):
            entry, is_received = movement.entry, movement.is_received
            debit, credit = (
                _account(stored, role, system_accounts, is_received=is_received)
                for role in (entry.debit, entry.credit)
            )
            rows.append((number, line, owner, debit, credit, entry.amount))
        state = payment.evolve(terms, state, step)
    return state, rows


def _account(
    stored: Transfer, role: ChartAccount, system_accounts: SystemAccounts, *, is_received: bool
) -> Id | None:
    if role is ChartAccount.CUSTOMER:
        if is_received or stored.is_incoming:
            return stored.destination_account_id
        return stored.source_account_id
    currency = stored.arriving_currency if is_received else stored.currency
    return system_accounts[stored.platform_id, currency, role]


def _of_row(stored: Transfer, state: State, events: Sequence[Row]) -> Iterator[str]:
    """Yield where the row is not what its events give."""
    if stored.sequence != state.steps:
        yield f"stored sequence is {stored.sequence}; it has {state.steps} events"
        return
    if not state.steps:
        if stored.status not in {Status.PENDING, Status.FAILED, Status.EXPIRED}:
            yield f"status is {stored.status}, and it has no event"
        if stored.refund_status is not None:
            yield "it has a refund, and no event"
        return
    if stored.status != state.status:
        yield f"status is {stored.status}; its events give {state.status}"
    if stored.refund_status != state.refund:
        yield f"refund is {stored.refund_status}; its events give {state.refund}"
    reasons = [reason for *_, reason, _ in events if reason is not None]
    if stored.status == Status.FAILED and reasons[-1:] != [stored.failure_reason]:
        yield f"failure_reason is {stored.failure_reason}; its events give {reasons}"
    if stored.status == Status.COMPLETED and stored.settled_at != events[-1][-1]:
        yield f"settled_at is {stored.settled_at}; its events give {events[-1][-1]}"


def _of_conversion(stored: Transfer) -> Iterator[str]:
    """Yield whether the amounts of both currencies do not agree with the rate."""
    if stored.received_amount is None:
        return
    assert stored.rate_numerator is not None
    assert stored.rate_denominator is not None
    rate = Rate(stored.rate_numerator, stored.rate_denominator)
    sent, received = stored.amount - stored.fee_amount, stored.received_amount
    if stored.locked_side == LockedSide.RECEIVING:
        agrees = sent == conversion.sent_for(received, rate)
    else:
        agrees = received == conversion.received_for(sent, rate)
    if not agrees:
        yield f"{sent} sent for {received} received is not the rate {rate}"


# Each statement returns the rows that are wrong, none when all is well; the text describes a row.
_CHECKS: Final = (
    (
        """
        SELECT e.transfer_id, e.sequence FROM transfer_events e
        LEFT JOIN transfers f ON f.id = e.transfer_id AND f.customer_id = e.customer_id
            AND f.kind <> 'INTERNAL'
        WHERE f.id IS NULL
        """,
        "Payment event {}/{}: its payment does not exist",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        JOIN transfer_events f ON f.transfer_id = e.subject_id AND f.sequence = e.sequence
            AND f.customer_id = e.customer_id
        WHERE (e.occurred_at, e.recorded_at) <> (f.occurred_at, f.recorded_at)
        """,
        "Entry {}/{}/{}: its times are not those of its payment event",
    ),
    (
        """
        SELECT f.id, f.status, f.failure_reason, o.outcome, o.reason
        FROM transfers f
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id, o.customer_id)
            = (f.id::text, 'transfers', f.platform_id, f.customer_id)
        WHERE f.kind IN ('EXCHANGE', 'OUT', 'IN') AND CASE
            WHEN f.sequence > 0 THEN o.outcome IS DISTINCT FROM 'APPLIED'
            WHEN f.status = 'FAILED' THEN
                o.outcome <> 'DECLINED' OR o.reason <> f.failure_reason
            ELSE o.outcome IS NOT NULL AND f.kind <> 'IN' END
        """,
        "Payment {}: status is {} ({}); its recorded outcome is {} ({})",
    ),
    # Between two owners; the second is told by a message, which may still wait.
    (
        """
        SELECT r.id, r.kind, r.amount, r.currency FROM transfers r
        LEFT JOIN transfers f ON f.id = r.origin_id AND f.customer_id = r.peer_id
        WHERE r.origin_id IS NOT NULL AND (
            f.id IS NULL OR f.platform_id <> r.peer_platform_id
            OR (r.amount, r.currency) IS DISTINCT FROM CASE r.kind
                WHEN 'FEE' THEN (f.fee_amount, f.currency)
                ELSE (coalesce(f.received_amount, f.amount - f.fee_amount),
                    coalesce(f.received_currency, f.currency)) END
            OR CASE r.kind WHEN 'FEE' THEN
                    f.status <> 'COMPLETED' AND f.failure_reason IS DISTINCT FROM 'PAYOUT_RETURNED'
                WHEN 'RECEIVED' THEN (f.kind, f.peer_id) IS DISTINCT FROM ('OUT', r.customer_id)
                    OR (r.status = 'COMPLETED' AND f.status NOT IN ('PROCESSING', 'COMPLETED'))
                    OR (f.status = 'COMPLETED' AND r.status <> 'COMPLETED')
                ELSE true END)
        """,
        "Payment {}: {} of {} {} does not match the payment that caused it",
    ),
    (
        """
        SELECT f.id, count(r.id) FROM transfers f
        JOIN transfers r ON r.origin_id = f.id
        GROUP BY f.id, r.kind HAVING count(r.id) > 1
        """,
        "Payment {}: has arrived {} times instead of once",
    ),
)
