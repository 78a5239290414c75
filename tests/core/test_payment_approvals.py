"""What the response to a request for approval decides."""

from datetime import UTC, datetime, timedelta

import pytest

from cardledger.ledger.payments.approvals import DECISION_TIME, Answer, Verdict, verdict
from cardledger.ledger.payments.messages import Decision

ENDED = datetime(2026, 11, 25, 12, tzinfo=UTC)


def answer(status: int | None, body: str | None = None, error: str | None = None) -> Answer:
    return Answer(status=status, error=error, body=body, ended_at=ENDED)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_success_approves_what_needs_no_data(status: int) -> None:
    assert verdict(answer(status), (), now=ENDED) == Verdict(decision=Decision.APPROVE)


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "[]",
        "{",
        '{"receiverCustomerInfo": 7}',
        '{"receiverCustomerInfo": {"FULL_NAME": ""}}',
        '{"receiverCustomerInfo": {"FULL_NAME": null}}',
        "[" * 4_000,
    ],
)
def test_success_without_what_was_requested_fails(body: str | None) -> None:
    decided = verdict(answer(200, body), ["FULL_NAME"], now=ENDED)

    assert decided == Verdict(decision=Decision.FAIL, reason="MISSING_MANDATORY_PAYEE_DATA")


def test_202_waits_for_five_seconds_then_rejects() -> None:
    waiting = answer(202)

    assert verdict(waiting, (), now=ENDED + DECISION_TIME - timedelta(microseconds=1)) is None
    late = verdict(waiting, (), now=ENDED + DECISION_TIME)
    assert late is not None
    assert late.decision is Decision.REJECT


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"reason": "no", "message": "other"}', "no"),
        ('{"message": "other"}', "other"),
        ('{"reason": 7}', None),
        ('{"reason": "\\ud800\\u0000x"}', "?x"),
        ("no", None),
        (None, None),
    ],
)
def test_a_rejection_has_the_words_of_the_platform(body: str | None, reason: str | None) -> None:
    assert verdict(answer(403, body), (), now=ENDED) == Verdict(
        decision=Decision.REJECT, reason=reason
    )


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (None, "no response within 5 s", "PAYMENT_APPROVAL_TIMED_OUT"),
        (None, "no connection in time", "PAYMENT_APPROVAL_TIMED_OUT"),
        (None, "cannot connect: refused", "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (100, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (302, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (409, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (410, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
        (422, None, "MISSING_MANDATORY_PAYEE_DATA"),
        (500, None, "PAYMENT_APPROVAL_WEBHOOK_ERROR"),
    ],
)
def test_anything_else_fails_with_a_reason(
    status: int | None, error: str | None, reason: str
) -> None:
    decided = verdict(answer(status, error=error), (), now=ENDED)

    assert decided == Verdict(decision=Decision.FAIL, reason=reason)
