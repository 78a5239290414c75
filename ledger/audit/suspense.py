"""The audit of suspense: items against their entries, and messages against items.

Which money a rejected text has moved is read by the rule of the engine; everything else is compared
in SQL. A rejection that is already decided, repeated or about to be booked needs no item, nor does
one that its sender accepts, which may have an item of an earlier release.
Source: docs/decisions/0067-suspense.md
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.books.suspense import (
    NetworkMoney,
    event_in,
    money_in_text,
    type_of_credit,
)
from cardledger.ledger.storage import cursors, pg_arrays
from cardledger.schema.ids import Id

_PAGE: Final = 1_000


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with items of suspense, and which movements have none."""
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)
    rows = cursors.stream(connection, "rejections", _WITHOUT_ITEM)
    while page := list(islice(rows, _PAGE)):
        yield from _without_item(connection, page)


def _without_item(connection: Connection[Any], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield which of `rows`, rejections without an item, have moved money of a known card."""
    moved: dict[Any, NetworkMoney] = {}
    booked_as_credit: list[tuple[Any, Id, str]] = []
    for key, _, _, body, reason, _, of_used_key in rows:
        money, booked = money_in_text(body, reason), of_used_key or ()
        if money is None or _movement(money.type, money) in booked:
            continue
        moved[key] = money
        if _movement(type_of_credit(money.type), money) in booked:
            booked_as_credit.append((key, money.card_id, _token_in(body)))
    for key in _of_credits(connection, booked_as_credit):
        del moved[key]
    if not moved:
        return
    ids = list({money.card_id for money in moved.values()})
    cards = {row[0]: row[1:] for row in connection.execute(_CARDS, [ids])}
    for key, customer, platform, _, _, recorded_at, _ in rows:
        money_of_row = moved.get(key)
        card = cards.get(money_of_row.card_id) if money_of_row else None
        if money_of_row is None or card is None:
            continue
        owner, home, created_at = card
        is_known = created_at <= recorded_at and customer in {None, owner}
        if is_known and platform in {None, home}:
            yield (
                f"Rejection {key}: a {money_of_row.type} of {money_of_row.amount} minor units has"
                " no item in suspense"
            )


def _movement(kind: str, money: NetworkMoney) -> str:
    """Return `money`, booked under the type `kind`, as `_WITHOUT_ITEM` returns movements."""
    return f"{kind} {money.card_id} {money.amount}"


def _token_in(body: str) -> str:
    """Return the token in `body`; empty where there is none that PostgreSQL can hold."""
    token = (event_in(body) or {}).get("issuerTransactionToken")
    if not isinstance(token, str) or any(_is_unstorable(each) for each in token):
        return ""
    return token


def _is_unstorable(character: str) -> bool:
    """Return whether PostgreSQL holds no text with `character`: U+0000, half of a surrogate."""
    return character == "\0" or "\ud800" <= character <= "\udfff"


def _of_credits(
    connection: Connection[Any], rejections: Sequence[tuple[Any, Id, str]]
) -> list[Any]:
    """Return which of `rejections`, each with card and token, have the token of a credit."""
    if not rejections:
        return []
    columns = pg_arrays.columns(rejections, "uuid", "uuid", "text")
    return [row[0] for row in connection.execute(_OF_CREDITS, columns)]


_OF_CREDITS: Final = """
    SELECT k.id FROM unnest(%s, %s, %s) AS k (id, card_id, token)
    JOIN cards c ON c.id = k.card_id
    JOIN card_transactions t ON t.customer_id = c.customer_id AND t.card_id = c.id
        AND t.issuer_transaction_token = k.token
    WHERE t.credit_authorized IS NOT NULL
"""
_CARDS: Final = "SELECT id, customer_id, platform_id, created_at FROM cards WHERE id = ANY(%s)"

# The nil UUID stands for what is not known. An unknown card was unknown then: it may exist by now.
# A rejection for a used key has the item of its own movement, which Python compares.
_WITHOUT_ITEM: Final = """
    WITH waiting AS (
        SELECT b.body ->> 'rejectionId' AS id, b.body -> 'event' ->> 'source' AS source,
            b.body -> 'event' ->> 'reference' AS reference
        FROM inbox b WHERE b.source = 'engine' AND b.reference LIKE '%/suspense'
    )
    SELECT r.id, nullif(r.customer_id, n.nil), nullif(r.platform_id, n.nil), r.body, r.reason,
        r.recorded_at, u.movements
    FROM rejections r
    CROSS JOIN (SELECT '00000000-0000-0000-0000-000000000000'::uuid) AS n (nil)
    LEFT JOIN LATERAL (
        SELECT array_agg(concat_ws(' ', i.type, i.card_id, i.amount)) AS movements
        FROM suspense_items i
        WHERE r.reason = 'KEY_REUSED' AND i.reason = 'KEY_REUSED'
            AND md5(i.reference) = md5(r.reference) AND i.reference = r.reference
            AND i.source = r.source AND r.platform_id IN (i.platform_id, n.nil)
            AND r.customer_id IN (i.customer_id, n.nil)
    ) u ON true
    WHERE r.recorded_at >= (SELECT suspense_since FROM books) AND r.reason <> 'UNKNOWN_CARD'
        AND NOT EXISTS (SELECT FROM suspense_items i WHERE i.id = r.id)
        AND (r.reason = 'KEY_REUSED' OR NOT EXISTS (
            SELECT FROM suspense_items i
            WHERE md5(i.reference) = md5(r.reference) AND i.reference = r.reference
                AND i.source = r.source AND r.platform_id IN (i.platform_id, n.nil)
                AND r.customer_id IN (i.customer_id, n.nil)
                AND i.reason IS DISTINCT FROM 'KEY_REUSED'
        ))
        AND (r.reason = 'KEY_REUSED' OR NOT EXISTS (
            SELECT FROM outcomes o
            WHERE o.reference = r.reference AND o.source = r.source
                AND r.platform_id IN (o.platform_id, n.nil)
                AND r.customer_id IN (o.customer_id, n.nil)
        ))
        AND NOT EXISTS (SELECT FROM waiting w WHERE w.id = r.id::text)
        AND NOT EXISTS (
            SELECT FROM waiting w WHERE (w.reference, w.source) = (r.reference, r.source)
        )
"""

_CHECKS: Final = (
    (
        """
        SELECT i.id, count(e.subject_id) FROM suspense_items i
        LEFT JOIN system_accounts s ON (s.platform_id, s.currency, s.kind)
            = (i.platform_id, i.currency, 'SUSPENSE')
        LEFT JOIN system_accounts n ON (n.platform_id, n.currency, n.kind)
            = (i.platform_id, i.currency, 'NETWORK_SETTLEMENT')
        LEFT JOIN system_accounts b ON (b.platform_id, b.currency, b.kind)
            = (i.platform_id, i.currency, 'OUTBOUND_CLEARING')
        LEFT JOIN system_accounts o ON (o.platform_id, o.currency, o.kind)
            = (i.platform_id, i.currency, 'SANDBOX_FUNDING')
        LEFT JOIN LATERAL (SELECT
            CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN s.id
                WHEN i.type = 'PAYOUT_RETURN' THEN b.id ELSE n.id END AS debit,
            CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN n.id ELSE s.id END AS credit,
            -- What was returned has left the ledger when it is resolved.
            CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN s.id
                WHEN i.type = 'PAYOUT_RETURN' THEN o.id ELSE n.id END AS afterwards
        ) a ON true
        LEFT JOIN entries e ON e.subject_id = i.id
        GROUP BY i.id, i.customer_id
        HAVING count(e.subject_id) <> CASE WHEN i.resolved_at IS NULL THEN 1 ELSE 2 END
            OR bool_or(
                (e.line, e.customer_id, e.amount) <> (0, i.customer_id, i.amount)
                OR e.account_id IS NOT NULL
                OR CASE e.sequence
                    WHEN 0 THEN (e.debit_account_id, e.credit_account_id, e.recorded_at)
                        IS DISTINCT FROM (a.debit, a.credit, i.recorded_at)
                        OR e.posted_on <> i.posted_on
                    WHEN 1 THEN (e.debit_account_id, e.credit_account_id, e.recorded_at)
                        IS DISTINCT FROM (a.credit, a.afterwards, i.resolved_at)
                        OR e.posted_on < i.posted_on
                    ELSE true END
            ) IS TRUE
        """,
        "Item of suspense {}: its {} entries do not match",
    ),
    (
        """
        SELECT i.id FROM suspense_items i LEFT JOIN cards c ON c.id = i.card_id
        WHERE i.cause <> 'CLOSED' AND (c.id IS NULL OR (c.customer_id, c.platform_id, c.currency)
            <> (i.customer_id, i.platform_id, i.currency))
        """,
        "Item of suspense {}: its card, cardholder, platform and currency do not belong together",
    ),
    (
        """
        SELECT i.id FROM suspense_items i
        LEFT JOIN rejections r ON r.id = i.id
        LEFT JOIN outcomes o ON o.message_id = i.id AND o.outcome = 'PARKED'
        WHERE CASE i.cause WHEN 'REJECTED' THEN r.reason IS DISTINCT FROM i.reason
            WHEN 'PARKED' THEN o.message_id IS NULL END
        """,
        "Item of suspense {}: its message was not rejected or parked for that reason",
    ),
    (
        """
        SELECT i.id FROM suspense_items i
        -- By its event, which no second item of the same payout can have.
        LEFT JOIN transfer_events e ON e.message_id = i.id AND e.kind = 'RETURNED'
            AND e.customer_id = i.customer_id
        LEFT JOIN transfers f ON f.id = e.transfer_id AND i.reference = f.id || '/return'
            AND (f.customer_id, f.platform_id) = (i.customer_id, i.platform_id)
            AND f.kind = 'OUT' AND f.failure_reason = 'PAYOUT_RETURNED'
            AND f.refund_status = 'FAILED'
        WHERE i.cause = 'CLOSED' AND (coalesce(f.received_amount, f.amount - f.fee_amount),
            coalesce(f.received_currency, f.currency)) IS DISTINCT FROM (i.amount, i.currency)
        """,
        "Item of suspense {}: no payout was returned whose account is closed",
    ),
    (
        """
        SELECT min(i.id::text), i.reference, count(*) FROM suspense_items i
        WHERE i.cause = 'CLOSED' GROUP BY i.platform_id, i.customer_id, i.reference
        HAVING count(*) > 1
        """,
        "Item of suspense {}: {} stands or stood in suspense {} times instead of once",
    ),
    (
        """
        SELECT min(i.id::text), i.reference, i.source, count(*) FROM suspense_items i
        WHERE i.resolved_at IS NULL
        GROUP BY i.platform_id, i.customer_id, i.reference, i.source,
            CASE i.reason WHEN 'KEY_REUSED' THEN (i.type, i.card_id, i.amount)::text ELSE '' END
        HAVING count(*) > 1 AND count(i.reference) > 1 AND count(i.source) > 1
        """,
        "Item of suspense {}: {} from {} is in suspense {} times instead of once",
    ),
    # By the message that decided its key, by itself once it was applied, or by an adjustment.
    (
        """
        SELECT i.id, i.resolved_by FROM suspense_items i
        LEFT JOIN outcomes o ON o.message_id = i.resolved_by AND o.customer_id = i.customer_id
        LEFT JOIN (
            SELECT f.message_id, f.customer_id, max(f.recorded_at) AS recorded_at
            FROM card_transaction_events f
            JOIN suspense_items s ON s.id = f.message_id AND s.customer_id = f.customer_id
            GROUP BY f.message_id, f.customer_id
        ) f ON f.message_id = i.id AND f.customer_id = i.customer_id
        LEFT JOIN adjustments j ON j.id = i.resolved_by AND j.suspense_id = i.id
            AND j.state = 'BOOKED' AND j.booked_at = i.resolved_at
        WHERE i.resolved_at IS NOT NULL AND j.id IS NULL AND CASE i.cause
            WHEN 'PARKED' THEN
                (i.resolved_by, i.resolved_at) IS DISTINCT FROM (i.id, f.recorded_at)
            ELSE i.reason = 'KEY_REUSED'
                OR (o.reference, o.source, o.platform_id, o.recorded_at)
                    IS DISTINCT FROM (i.reference, i.source, i.platform_id, i.resolved_at) END
        """,
        "Item of suspense {}: {} did not resolve it",
    ),
    (
        """
        SELECT i.id, i.reference, i.source FROM suspense_items i
        JOIN outcomes o USING (reference, source, platform_id, customer_id)
        WHERE i.resolved_at IS NULL AND i.cause = 'REJECTED' AND i.reason <> 'KEY_REUSED'
        """,
        "Item of suspense {}: is open, but {} from {} is decided",
    ),
    (
        """
        SELECT i.id FROM suspense_items i
        LEFT JOIN parked p ON p.id = i.id AND p.customer_id = i.customer_id
        WHERE i.cause = 'PARKED' AND i.resolved_at IS NULL AND p.id IS NULL
        """,
        "Item of suspense {}: is open, but its message is not parked any more",
    ),
    (
        """
        SELECT p.id, p.body ->> 'type' FROM parked p
        JOIN outcomes o ON o.message_id = p.id AND o.customer_id = p.customer_id
        LEFT JOIN suspense_items i ON i.id = p.id AND i.customer_id = p.customer_id
        WHERE o.recorded_at >= (SELECT suspense_since FROM books) AND i.id IS NULL
            AND p.body ->> 'type' IN ('CLEARING_REVERSAL', 'RETURN_REVERSAL')
        """,
        "Parked message {}: a {} that has no item in suspense",
    ),
)
