"""A clock that is wrong breaks a promise, though the replay takes its decisions over."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.storage.ids import new_id
from storm.checks.clocks import not_wrongly_declined
from storm.checks.record import Accepted, Decision, Record
from storm.load.journal import Called, Journal

CARD: Final = f"Card:{new_id()}"
AT: Final = 1_700_000_000.0
"""When the decisions of these tests were committed, in seconds since the epoch."""


def wire(seconds: float) -> str:
    return datetime.fromtimestamp(AT + seconds, UTC).isoformat()


def decided(body: dict[str, Any], outcome: str, reason: str | None = None) -> Record:
    """Return a record of one decision, committed at `AT`."""
    message_id, customer_id, key = new_id(), new_id(), ("storm", "a")
    accepted = Accepted(
        id=message_id,
        lane=0,
        shard=0,
        customer_id=customer_id,
        key=key,
        body={"cardId": CARD, **body},
        body_hash=b"",
        at=AT - 1,
    )
    decision = Decision(
        message_id=message_id,
        customer_id=customer_id,
        key=key,
        body_hash=b"",
        outcome=outcome,
        reason=reason,
        subject_id=None,
        at=AT,
    )
    return Record(accepted={message_id: accepted}, decisions={key: decision}, rejections=[])


def closing(began: float, card: str = CARD, state: str = "CLOSED") -> Journal:
    journal = Journal()
    journal.add_call(Called("PATCH", f"/cards/{card}", {"state": state}, AT + began))
    return journal


@pytest.mark.parametrize(
    ("body", "broken"),
    [
        ({"decideBy": wire(2)}, True),
        ({"decideBy": wire(-0.01)}, False),
        ({}, True),
        # A clock 20 s ahead.
        ({"decideBy": wire(19)}, True),
    ],
)
def test_a_deadline_that_had_not_passed_declines_nothing(
    body: dict[str, Any], *, broken: bool
) -> None:
    record = decided({"type": "AUTHORIZATION", **body}, "DECLINED", "DECISION_TIMEOUT")

    assert not_wrongly_declined(Journal(), record).broken == broken


def test_a_timeout_reversal_may_decline_before_the_deadline() -> None:
    authorization = {"source": "storm", "reference": "a", "decideBy": wire(0)}
    body = {"type": TIMEOUT_REVERSAL, "authorization": authorization}

    promise = not_wrongly_declined(Journal(), decided(body, "DECLINED", "DECISION_TIMEOUT"))

    assert not promise.broken


@pytest.mark.parametrize(
    ("expires", "outcome", "broken"),
    [
        (8 * 86_400, "APPLIED", True),
        (0.5, "APPLIED", True),
        (-0.5, "APPLIED", False),
        (8 * 86_400, "IGNORED", False),
    ],
)
def test_nothing_expires_before_its_time(expires: float, outcome: str, *, broken: bool) -> None:
    record = decided({"type": "AUTHORIZATION_EXPIRY", "expiresAt": wire(expires)}, outcome)

    promise = not_wrongly_declined(Journal(), record)

    assert promise.checked == 1
    assert promise.broken == broken


@pytest.mark.parametrize(
    ("journal", "broken"),
    [
        (closing(-1), False),
        (closing(-1, state="FROZEN"), False),
        (closing(1), True),
        (closing(-1, card=f"Card:{new_id()}"), True),
        (closing(-1, state="ACTIVE"), True),
        (Journal(), True),
    ],
)
def test_a_card_is_not_inactive_before_its_closure_was_sent(
    journal: Journal, *, broken: bool
) -> None:
    record = decided({"type": "AUTHORIZATION"}, "DECLINED", "CARD_NOT_ACTIVE")

    assert not_wrongly_declined(journal, record).broken == broken


def test_an_approval_before_its_deadline_is_checked_and_right() -> None:
    record = decided({"type": "AUTHORIZATION", "decideBy": wire(2)}, "APPLIED")

    promise = not_wrongly_declined(Journal(), record)

    assert (promise.checked, promise.broken) == (1, 0)


@pytest.mark.parametrize(("decide_by", "broken"), [(0.1, False), (1.5, True)])
def test_a_client_that_gives_up_long_before_a_deadline_breaks_the_promise(
    decide_by: float,
    broken: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    body = {"type": TIMEOUT_REVERSAL, "authorization": {"decideBy": wire(decide_by - 1)}}

    promise = not_wrongly_declined(Journal(), decided(body, "APPLIED"))

    assert bool(promise.broken) == broken
    assert promise.checked == 1
