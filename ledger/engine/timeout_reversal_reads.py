"""What a batch reads for its timeout reversals: what has become of the approvals since.

Read only by the batches that have such reversals; mostly none does.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.engine.records import OutcomeRow
from cardledger.ledger.messaging import timeout_reversals
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

# What another timeout reversal took back is of its own authorization, and not of this one.
_AMOUNTS_SINCE: Final = f"""
    SELECT o.message_id, e.kind, least(sum(e.amount), 9223372036854775807)::bigint
    FROM unnest(%s, %s) AS o (subject_id, message_id)
    CROSS JOIN LATERAL (
        SELECT min(sequence) AS sequence FROM card_transaction_events
        WHERE card_transaction_id = o.subject_id AND message_id = o.message_id
    ) own
    JOIN card_transaction_events e
        ON e.card_transaction_id = o.subject_id AND e.sequence > own.sequence
    WHERE NOT EXISTS (
        SELECT FROM outcomes r WHERE r.message_id = e.message_id
            AND r.customer_id = e.customer_id AND r.source = '{timeout_reversals.SOURCE}'
    )
    GROUP BY o.message_id, e.kind
"""


def amounts_since(
    connection: Connection[Any], outcomes: Iterable[OutcomeRow]
) -> dict[Id, list[tuple[str, int]]]:
    """Return the totals of the events after the first of each of `outcomes`, in minor units.

    Not after the sequence of an outcome: parked messages that its event has freed come before that.
    Without the events of timeout reversals.
    Shape: by message; one row a kind, however many events.
    """
    messages = [(row.subject_id, row.message_id) for row in outcomes if row.subject_id]
    if not messages:
        return {}
    totals: dict[Id, list[tuple[str, int]]] = {}
    for message_id, kind, amount in connection.execute(
        _AMOUNTS_SINCE, pg_arrays.columns(messages, "uuid", "uuid")
    ):
        totals.setdefault(message_id, []).append((kind, amount))
    return totals


# The timeout reversal of a financial authorization takes back its clearing, whatever it finds left
# of it. Its key derives from the hash of the authorization.
_OTHER_CLEARINGS: Final = f"""
    SELECT o.message_id, c.message_id
    FROM unnest(%s, %s) AS o (subject_id, message_id)
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM card_transaction_events e
        WHERE e.card_transaction_id = o.subject_id AND e.kind = 'CLEARED' AND e.final
            AND e.message_id <> o.message_id AND NOT EXISTS (
                SELECT FROM outcomes f JOIN outcomes r ON r.reference = encode(f.body_hash, 'hex')
                    AND r.source = '{timeout_reversals.SOURCE}' AND r.platform_id = f.platform_id
                    AND r.customer_id = f.customer_id
                WHERE f.message_id = e.message_id AND f.customer_id = e.customer_id
            )
        LIMIT %s
    ) c
"""


def other_clearings(
    connection: Connection[Any], outcomes: Collection[OutcomeRow]
) -> dict[Id, set[Id]]:
    """Return the messages of other clearings that keep the card transactions of `outcomes` closed.

    Shape: by message; of each at most one more than there are `outcomes`, so that one is left
    when this batch takes back the clearings of all of them.
    """
    messages = [(row.subject_id, row.message_id) for row in outcomes if row.subject_id]
    if not messages:
        return {}
    found: dict[Id, set[Id]] = {}
    for message_id, other in connection.execute(
        _OTHER_CLEARINGS, [*pg_arrays.columns(messages, "uuid", "uuid"), len(outcomes) + 1]
    ):
        found.setdefault(message_id, set()).add(other)
    return found
