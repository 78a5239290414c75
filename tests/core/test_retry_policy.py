"""When a webhook is retried."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from cardledger.ledger.webhooks.retry_policy import Attempt, next_attempt_at, not_before

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_schedule_is_the_one_of_standard_webhooks() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    pauses = []
    for failed in range(1, 10):
        due = next_attempt_at(failed, at=at, scale=1, jitter=1)
        assert due is not None
        pauses.append((due - at).total_seconds())

    assert pauses == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert next_attempt_at(10, at=at, scale=1, jitter=1) is None
    assert next_attempt_at(1, at=at, scale=0.1, jitter=1.2) == at + timedelta(seconds=0.6)


def answered(status: int, retry_after: str | None) -> Attempt:
    return Attempt(
        at=NOW,
        ended_at=NOW,
        duration_ms=1,
        status=status,
        error=None,
        response_head=None,
        retry_after=retry_after,
    )


@pytest.mark.parametrize(
    ("status", "retry_after", "pause_s"),
    [
        (429, "120", 120),
        (503, " 7 ", 7),
        (503, format_datetime(NOW + timedelta(minutes=5), usegmt=True), 300),
        (429, "999999999999999999999999", 3600),
        (429, "86400", 3600),
        (500, "120", None),
        (429, None, None),
        (429, "", None),
        (429, "-5", None),
        (429, "0", None),
        (429, "soon", None),
        (429, "١٢", None),
        (429, format_datetime(NOW - timedelta(minutes=5), usegmt=True), None),
        (429, "Mon, 99 Foo 99999999999999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_respected_up_to_an_hour(
    status: int, retry_after: str | None, pause_s: int | None
) -> None:
    due = not_before(answered(status, retry_after), scale=1)

    assert due == (None if pause_s is None else NOW + timedelta(seconds=pause_s))
