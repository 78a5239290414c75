"""What a batch reads for its timeout reversals: what has become of the approvals since.

Read only by the batches that have such reversals; mostly none does.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.core import events
from cardledger.ledger.core.late_approvals import ApprovalKind, LateApproval
from cardledger.ledger.engine.records import EventAmount, LateHistory, OutcomeRow
from cardledger.ledger.messaging import timeout_reversals
from cardledger.ledger.projections.event_rows import KINDS
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

_EVENTS_BEFORE: Final = 1_000
"""How far before the oldest approval of a batch other late approvals are looked for, in events."""

# What takes an authorization back, undoes that, or states the total anew.
_KINDS: Final = [
    KINDS[event]
    for event in (
        events.AuthorizationAdjusted,
        events.AuthorizationCancelled,
        events.AuthorizationExpired,
        events.AuthorizationReversed,
        events.ClearingReversed,
        events.CreditAdjusted,
        events.Refunded,
        events.RefundReversed,
    )
]

_APPROVED_AT: Final = """
    SELECT e.card_transaction_id, e.message_id, min(e.sequence)
    FROM unnest(%s, %s) AS o (subject_id, message_id)
    JOIN card_transaction_events e
        ON e.card_transaction_id = o.subject_id AND e.message_id = o.message_id
    GROUP BY e.card_transaction_id, e.message_id
"""

# The key of a timeout reversal derives from the hash of its authorization.
_REVERSED: Final = f"""
    SELECT e.card_transaction_id, e.kind, e.amount, e.sequence, r.sequence, EXISTS (
        SELECT FROM card_transaction_events c
        WHERE c.card_transaction_id = e.card_transaction_id
            AND c.sequence BETWEEN e.sequence AND r.sequence
            AND c.message_id = e.message_id AND c.kind = 'CLEARED'
    )
    FROM unnest(%s, %s) AS o (subject_id, since)
    JOIN card_transaction_events e ON e.card_transaction_id = o.subject_id
        AND e.sequence > o.since AND e.kind IN ('AUTHORIZED', 'CREDIT_AUTHORIZED')
    JOIN outcomes f ON f.message_id = e.message_id AND f.customer_id = e.customer_id
    JOIN outcomes r ON r.reference = encode(f.body_hash, 'hex')
        AND r.source = '{timeout_reversals.SOURCE}' AND r.platform_id = f.platform_id
        AND r.customer_id = f.customer_id
    ORDER BY r.sequence, e.sequence
"""

# What a timeout reversal took back is of its own authorization.
_EVENTS: Final = f"""
    SELECT e.card_transaction_id, e.sequence, e.kind, e.amount
    FROM unnest(%s, %s) AS o (subject_id, since)
    JOIN card_transaction_events e ON e.card_transaction_id = o.subject_id
        AND e.sequence > o.since AND e.kind = ANY (%s)
    WHERE NOT EXISTS (
        SELECT FROM outcomes r WHERE r.message_id = e.message_id
            AND r.customer_id = e.customer_id AND r.source = '{timeout_reversals.SOURCE}'
    )
    ORDER BY e.sequence
"""

# The timeout reversal of a financial authorization takes back its clearing, whatever it finds left
# of it.
_FINAL_CLEARINGS: Final = f"""
    SELECT o.subject_id, c.message_id
    FROM unnest(%s) AS o (subject_id)
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM card_transaction_events e
        WHERE e.card_transaction_id = o.subject_id AND e.kind = 'CLEARED' AND e.final
            AND NOT EXISTS (
                SELECT FROM outcomes f JOIN outcomes r ON r.reference = encode(f.body_hash, 'hex')
                    AND r.source = '{timeout_reversals.SOURCE}' AND r.platform_id = f.platform_id
                    AND r.customer_id = f.customer_id
                WHERE f.message_id = e.message_id AND f.customer_id = e.customer_id
            )
        LIMIT %s
    ) c
"""


def late_histories(
    connection: Connection[Any],
    approved: Collection[OutcomeRow],
    cleared: Collection[Id],
) -> dict[Id, LateHistory]:
    """Return what has become of late approvals, by card transaction.

    `approved` are the outcomes of those that the batch reverses, where an earlier batch made them;
    `cleared` are the card transactions of financial ones. An approval begins with its first event,
    not after the sequence of its outcome: parked messages that its event has freed come before
    that. Of final clearings, there is one more than the batch reverses, so that one is left when it
    takes back all of the others.
    """
    found: dict[Id, LateHistory] = defaultdict(LateHistory)
    if approved:
        _read_reversals(connection, approved, found)
    if cleared:
        rows = connection.execute(_FINAL_CLEARINGS, [pg_arrays.uuids(cleared), len(approved) + 1])
        for card_transaction_id, message_id in rows:
            found[card_transaction_id].clearings.add(message_id)
    return found


def _read_reversals(
    connection: Connection[Any], approved: Collection[OutcomeRow], found: dict[Id, LateHistory]
) -> None:
    keys = [(row.subject_id, row.message_id) for row in approved]
    for key, message_id, approved_at in connection.execute(
        _APPROVED_AT, pg_arrays.columns(keys, "uuid", "uuid")
    ):
        found[key].approved_at[message_id] = approved_at
    since = [
        (key, min(history.approved_at.values()) - _EVENTS_BEFORE) for key, history in found.items()
    ]
    places = pg_arrays.columns(since, "uuid", "int4")
    for key, kind, amount, approved_at, reversed_at, has_cleared in connection.execute(
        _REVERSED, places
    ):
        late = LateApproval(_kind(kind, has_cleared=has_cleared), amount, approved_at, reversed_at)
        found[key].reversed.append(late)
    for key, *event in connection.execute(_EVENTS, [*places, pg_arrays.texts(_KINDS)]):
        found[key].events.append(EventAmount(*event))


def _kind(event: str, *, has_cleared: bool) -> ApprovalKind:
    if has_cleared:
        return ApprovalKind.FINANCIAL
    return ApprovalKind.CREDIT if event == "CREDIT_AUTHORIZED" else ApprovalKind.HOLD
