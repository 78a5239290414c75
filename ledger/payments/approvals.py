"""Approvals of payments that arrive, and what the response to `INCOMING_PAYMENT.PENDING` decides.

The platform's `webhookEndpoint` is asked, or its oldest endpoint where it has none; other endpoints
receive the webhook, too, and their responses decide nothing. The webhook is sent once.
Source: docs/decisions/0080-approval-by-the-response-to-a-webhook.md
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments import messages
from cardledger.ledger.payments.messages import Decision
from cardledger.ledger.storage.ids import derived_id
from cardledger.ledger.webhooks.retry_policy import NO_CONNECTION, NO_RESPONSE
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.envelope import WebhookType

DECISION_TIME: Final = timedelta(seconds=5)
"""How long a platform may take to decide after it has answered 202."""

PAGE_LIMIT: Final = 500
"""Payments that one statement reads."""

_ACCEPTED: Final = 202
_REJECTED: Final = 403
_UNDECIDED: Final = 422
_REASON_LENGTH: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response of a platform to a request for approval; without a `status` there was none."""

    status: int | None
    error: str | None
    body: str | None  # The first bytes of it.
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is decided about a payment; `reason` is a failure code of FAIL, and words of REJECT."""

    decision: Decision
    reason: str | None = None


def _failed(reason: FailureReason) -> Verdict:
    return Verdict(decision=Decision.FAIL, reason=reason.value)


_MISSING_DATA: Final = _failed(FailureReason.MISSING_MANDATORY_PAYEE_DATA)


def verdict(answer: Answer, required: Collection[str], *, now: datetime) -> Verdict | None:
    """Return what `answer` decides, at `now`; None: the platform decides within `DECISION_TIME`.

    `required` are the fields of the receiver that were requested.
    """
    match answer.status:
        case None:
            return _failed(_no_response(answer.error or ""))
        case status if status == _ACCEPTED:
            if now < answer.ended_at + DECISION_TIME:
                return None
            return Verdict(decision=Decision.REJECT, reason="no decision within 5 seconds")
        case status if 200 <= status < 300:  # noqa: PLR2004
            given = _object(_object(answer.body).get("receiverCustomerInfo"))
            if not_given(required, given):
                return _MISSING_DATA
            return Verdict(decision=Decision.APPROVE)
        case status if status == _REJECTED:
            return Verdict(decision=Decision.REJECT, reason=_reason(_object(answer.body)))
        case status if status == _UNDECIDED:
            return _MISSING_DATA
        case _:
            return _failed(FailureReason.PAYMENT_APPROVAL_WEBHOOK_ERROR)


def not_given(required: Collection[str], given: Mapping[str, Any]) -> list[str]:
    """Return which of the `required` fields of the receiver are missing or empty in `given`."""
    return [field for field in required if given.get(field) in (None, "")]


def _no_response(error: str) -> FailureReason:
    if error.startswith((NO_RESPONSE, NO_CONNECTION)):
        return FailureReason.PAYMENT_APPROVAL_TIMED_OUT
    return FailureReason.PAYMENT_APPROVAL_WEBHOOK_ERROR


def _object(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - what a platform has sent
    """Return `value`, or the JSON in it, if it is an object; an empty one otherwise."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _reason(error: Mapping[str, Any]) -> str | None:
    for name in ("reason", "message"):
        text = error.get(name)
        if isinstance(text, str) and text:
            # A lone surrogate or U+0000 cannot be stored.
            return text.encode(errors="replace").decode().replace("\0", "")[:_REASON_LENGTH]
    return None


# --- the record --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A payment that awaits approval, and the response to its webhook."""

    transfer_id: Id
    customer_id: Id
    platform_id: Id
    required: Collection[str]
    answer: Answer


_Place = tuple[datetime, Id]  # When the payment was requested, and its id.

_FIRST: Final[_Place] = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))

_ANSWERED: Final = """
    SELECT t.created_at, t.id, t.customer_id, t.platform_id, t.requested_fields, a.status, a.error,
        a.response_head, a.attempted_at + a.duration_ms * interval '1 millisecond'
    FROM transfers t
    CROSS JOIN LATERAL (
        SELECT w.id, w.customer_id
        FROM webhook_deliveries w JOIN webhook_endpoints e ON e.id = w.endpoint_id
        WHERE w.platform_id = t.platform_id AND w.subject_id = t.id AND w.type = %s
        ORDER BY e.is_default DESC, e.id LIMIT 1
    ) asked
    JOIN webhook_attempts a
        ON a.delivery_id = asked.id AND a.customer_id = asked.customer_id AND a.number = 1
    WHERE t.status = 'PENDING' AND t.needs_approval AND t.sequence > 0  -- It has arrived.
        AND (t.created_at, t.id) > (%s, %s)
    ORDER BY t.created_at, t.id LIMIT %s
"""


class ApprovalAnswers:
    """Enqueues what the responses to webhooks decide, a bounded number at a time.

    A payment awaits approval until the engine has decided it, so its message may be enqueued again:
    it is the same message, which is decided once. No database transaction waits for a receiver: the
    sender of webhooks has recorded the response, or will. A page is followed by the next one, so
    that payments whose messages wait in a queue that cannot move keep no others back.
    """

    is_due: Final = "EXISTS (SELECT FROM transfers WHERE status = 'PENDING' AND needs_approval)"
    """The condition, in SQL, that there may be something to enqueue: a payment awaits approval."""

    def __init__(self, key: InboxKey) -> None:
        """Begin with the oldest, and sign messages with `key`."""
        self._key: Final = key
        self._place: _Place = _FIRST

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int:
        """Enqueue the decisions of a page of answered webhooks; return how many were written."""
        connection.execute(inbox.BY_KEY)
        arguments = [WebhookType.INCOMING_PAYMENT_PENDING.value, *self._place, PAGE_LIMIT]
        rows = connection.execute(_ANSWERED, arguments).fetchall()
        self._place = (rows[-1][0], rows[-1][1]) if len(rows) == PAGE_LIMIT else _FIRST
        found = [_decided(_answered(row), now) for row in rows]
        decided = [message for message in found if message is not None]
        return inbox.accept_once(connection, decided, self._key) if decided else 0


def _decided(waiting: Answered, now: datetime) -> Message | None:
    decided = verdict(waiting.answer, waiting.required, now=now)
    if decided is None:
        return None
    message = messages.approval(
        waiting.transfer_id,
        Owner(waiting.customer_id, waiting.platform_id),
        decided.decision,
        reason=decided.reason,
        at=now,
    )
    message.id = derived_id(message.reference, at=waiting.answer.ended_at)
    return message


def _answered(row: Sequence[Any]) -> Answered:
    """Return the payment that awaits approval, and its answer, of `row`."""
    _, key, customer_id, platform_id, required, status, error, body, ended_at = row
    return Answered(
        transfer_id=key,
        customer_id=customer_id,
        platform_id=platform_id,
        required=required or (),
        answer=Answer(status=status, error=error, body=body, ended_at=ended_at),
    )
