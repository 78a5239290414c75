"""Timeout reversals: settle an authorization that was not reported as approved by `decideBy`.

The network gets its answer by `decideBy`. A caller that has no approval to report by then answers
"declined" and enqueues a timeout reversal, which settles the authorization permanently: one that
was approved is reversed, one that is not decided yet is declined. So neither the order in which the
two messages are decided nor the clock of any process matters (docs/decisions/0036).
"""

from datetime import datetime
from typing import Final

from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.storage.ids import new_id

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
