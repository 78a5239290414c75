"""Timeout reversals: settle an authorization that was not reported as approved by `decideBy`.

The network gets its answer by `decideBy`. A caller that has no approval to report by then answers
"declined" and enqueues a timeout reversal, which settles the authorization permanently: one that
was approved is reversed, one that is not decided yet is declined. So neither the order in which the
two messages are decided nor the clock of any process matters (docs/decisions/0036).
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

Key = tuple[str, str, Id, Id]
"""The idempotency key of a timeout reversal: reference, source, platform and customer."""

TIMEOUT_REVERSAL: Final = "TIMEOUT_REVERSAL"
"""Type of the message; the ledger sends it to itself, it is not a network event."""

SOURCE: Final = "decision-timeout"

DETAIL: Final = (
    "Not approved before decideBy. An approval that was recorded all the same is reversed; send the"
    " same reference again to read the result."
)
"""Detail of the outcome that the caller of the authorization receives."""

DETAIL_AGAIN: Final = (
    "The authorization was approved, and reversed because the approval could not be reported"
    " before decideBy."
)
"""Detail of the outcome of a repetition, when the authorization had been approved."""

_COPIED: Final = ("issuerTransactionToken", "cardId", "currency")


def reversal_of(authorization: Message, *, at: datetime) -> Message:
    """Return the message that settles `authorization`, in the queue of its cardholder.

    All submissions of one authorization have the same reversal: its idempotency key and its hash
    derive from theirs, so it is applied once.
    """
    body = authorization.body
    return Message(
        lane=authorization.lane,
        shard=authorization.shard,
        id=new_id(),
        customer_id=authorization.customer_id,
        platform_id=authorization.platform_id,
        source=SOURCE,
        reference=reference_of(authorization),
        body={
            "type": TIMEOUT_REVERSAL,
            "source": SOURCE,
            "reference": reference_of(authorization),
            **{name: body[name] for name in _COPIED},
            "authorization": body,
        },
        body_hash=authorization.body_hash,
        reply_to=None,
        received_at=at,
    )


def reference_of(authorization: Message) -> str:
    """Return the reference of the timeout reversal of `authorization`.

    It is the hash of the event, which includes its source and reference.
    """
    return authorization.body_hash.hex()


# By their own index, whose condition is written as there.
_WAITING: Final = f"""
    SELECT i.lane, i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference,
        i.body::text, i.body_hash, i.reply_to, i.received_at, i.mac
    FROM unnest(%s::uuid[], %s::text[]) AS k (customer_id, reference)
    JOIN inbox i ON i.source = '{SOURCE}' AND i.customer_id = k.customer_id
        AND i.reference = k.reference
"""

ANY_WAITS: Final = f"EXISTS (SELECT FROM inbox WHERE source = '{SOURCE}')"
"""The condition that a timeout reversal waits to be decided; mostly none does."""


def waiting(connection: Connection[Any], keys: Collection[Key], key: InboxKey) -> set[Key]:
    """Return those of `keys` whose timeout reversals wait to be decided.

    Only those that `key` verifies: another row of the inbox is never decided.
    """
    if not keys:
        return set()
    return _verified(connection.execute(_WAITING, _columns_of(keys)).fetchall(), key) & {*keys}


async def waiting_async(
    connection: AsyncConnection[Any], keys: Collection[Key], key: InboxKey
) -> set[Key]:
    """Do as `waiting` does, for an event loop."""
    if not keys:
        return set()
    cursor = await connection.execute(_WAITING, _columns_of(keys))
    return _verified(await cursor.fetchall(), key) & {*keys}


def _columns_of(keys: Collection[Key]) -> list[list[Any]]:
    """Return the parameters of `_WAITING`: the customer and the reference of each key."""
    return [[customer_id for *_, customer_id in keys], [reference for reference, *_ in keys]]


def _verified(rows: Iterable[tuple[Any, ...]], key: InboxKey) -> set[Key]:
    found = set()
    for lane, *columns in rows:
        [is_verified] = key.verify_all(lane, [tuple(columns)])
        if is_verified:
            _, _, customer_id, platform_id, source, reference, *_ = columns
            found.add((reference, source, platform_id, customer_id))
    return found
