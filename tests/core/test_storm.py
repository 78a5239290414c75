"""The checks of the storm find what they are for: each is shown a broken promise."""

from dataclasses import replace
from typing import Any, Final

import pytest

from cardledger.ledger.messaging import canaries, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from storm import page
from storm.checks import promises, recovery
from storm.checks.record import Accepted, Decision, Record, Rejection
from storm.faults.arena import Strike
from storm.load.journal import Answer, Journal, Sent
from storm.report import Report

CUSTOMER: Final = new_id()


def sent(reference: str, *, began: float, acknowledged: float | None, **fields: Any) -> Sent:  # noqa: ANN401 - of `Sent`
    key = ("storm", reference)
    made = Sent(key, "live", CUSTOMER, Lane.LIVE, {"type": "AUTHORIZATION"}, began, **fields)
    made.acknowledged = acknowledged
    return made


def journal_of(*events: Sent) -> Journal:
    journal = Journal()
    for event in events:
        journal.add(event)
    return journal


def decision(reference: str, *, at: float, outcome: str = "APPLIED") -> Decision:
    return Decision(
        message_id=new_id(),
        customer_id=CUSTOMER,
        key=("storm", reference),
        body_hash=b"",
        outcome=outcome,
        reason=None,
        subject_id=None,
        at=at,
    )


def record_of(*decisions: Decision, rejections: tuple[Rejection, ...] = ()) -> Record:
    return Record(
        accepted={one.message_id: accepted(one) for one in decisions},
        decisions={one.key: one for one in decisions},
        rejections=list(rejections),
    )


def accepted(one: Decision) -> Accepted:
    return Accepted(
        id=one.message_id,
        lane=0,
        shard=0,
        customer_id=one.customer_id,
        key=one.key,
        body={},
        body_hash=b"",
        at=one.at,
    )


def answer(outcome: str, *, at: float = 1, first: str | None = None, **fields: Any) -> Answer:  # noqa: ANN401 - of `Answer`
    usual = {"reason": None, "decide_by": None} | fields
    return Answer(outcome=outcome, first_outcome=first, at=at, **usual)


def test_an_acknowledged_event_without_a_decision_is_lost() -> None:
    journal = journal_of(sent("a", began=0, acknowledged=1), sent("b", began=0, acknowledged=None))

    assert promises.lost(journal, record_of()).broken == 1
    assert promises.lost(journal, record_of(decision("a", at=1))).broken == 0


def test_a_message_of_the_inbox_that_was_not_decided_is_lost() -> None:
    record = record_of(decision("a", at=1))
    record.decisions.clear()

    assert promises.lost(Journal(), record).broken == 1


def test_a_canary_that_has_left_its_queue_is_not_lost() -> None:
    canary = replace(accepted(decision("a", at=1)), key=(canaries.SOURCE, "a"))
    record = Record(accepted={canary.id: canary}, decisions={}, rejections=[])

    assert promises.lost(Journal(), record).broken == 0


@pytest.mark.parametrize(
    ("one", "is_late"),
    [
        (answer("APPLIED", at=2.1, decide_by=2), True),
        (answer("DUPLICATE", at=2.1, first="APPLIED", decide_by=2), True),
        (answer("APPLIED", at=1.9, decide_by=2), False),
        (answer("DECLINED", at=2.1, decide_by=2), False),
        (answer("APPLIED", at=2.1), False),
    ],
)
def test_an_approval_reported_after_its_deadline_is_late(one: Answer, *, is_late: bool) -> None:
    event = sent("a", began=0, acknowledged=1)
    event.answers.append(one)

    assert promises.told_late(journal_of(event)).broken == is_late


def test_a_caller_that_stood_still_itself_received_no_late_answer() -> None:
    event = sent("a", began=0, acknowledged=1)
    event.answers.append(answer("APPLIED", at=3, decide_by=2))
    journal = journal_of(event)

    journal.stalls.append((2.5, 3.5))
    assert promises.told_late(journal).broken == 1

    journal.stalls.append((1.0, 2.5))
    assert promises.told_late(journal).broken == 0


@pytest.mark.parametrize(
    ("one", "is_wrong"),
    [
        (answer("APPLIED"), False),
        (answer("DUPLICATE", first="APPLIED"), False),
        (answer("DUPLICATE", first="DECLINED"), True),
        (answer("DECLINED"), True),
        (answer("REJECTED", reason="MALFORMED"), True),
    ],
)
def test_an_answer_that_contradicts_the_record_is_wrong(one: Answer, *, is_wrong: bool) -> None:
    event = sent("a", began=0, acknowledged=1)
    event.answers.append(one)

    promise = promises.wrongly_rejected(journal_of(event), record_of(decision("a", at=1)))

    assert promise.broken == is_wrong


@pytest.mark.parametrize(
    ("one", "is_wrong"),
    [
        (answer("APPLIED"), True),
        (answer("DUPLICATE", first="APPLIED"), True),
        (answer("DECLINED", reason="DECISION_TIMEOUT"), False),
        (answer("DUPLICATE", first="DECLINED"), False),
    ],
)
def test_an_approval_that_was_reversed_must_not_be_the_last_answer(
    one: Answer, *, is_wrong: bool
) -> None:
    event = sent("a", began=0, acknowledged=1)
    event.answers.append(one)
    reversal = replace(decision("a", at=2), key=(timeout_reversals.SOURCE, "hash"))
    body = {
        "type": timeout_reversals.TIMEOUT_REVERSAL,
        "authorization": {"source": "storm", "reference": "a"},
    }
    record = record_of(decision("a", at=1), reversal)
    record.accepted[reversal.message_id] = replace(accepted(reversal), body=body)

    assert promises.wrongly_rejected(journal_of(event), record).broken == is_wrong
    assert promises.lost(journal_of(event), record).broken == 0


def test_a_reused_key_that_is_answered_as_a_duplicate_is_wrong() -> None:
    reuse = sent("a", began=0, acknowledged=1, is_reuse=True)
    reuse.answers.append(answer("DUPLICATE", first="APPLIED"))
    refused = sent("a", began=0, acknowledged=1, is_reuse=True)
    refused.answers.append(answer("REJECTED", reason="KEY_REUSED"))
    record = record_of(decision("a", at=1))

    assert promises.wrongly_rejected(journal_of(reuse), record).broken == 1
    assert promises.wrongly_rejected(journal_of(refused), record).broken == 0


@pytest.mark.parametrize("reason", ["INTERNAL_ERROR", "MALFORMED", "KEY_REUSED"])
def test_a_rejection_that_no_fault_provoked_is_wrong(reason: str) -> None:
    rejection = Rejection(message_id=new_id(), key=("storm", "a"), reason=reason, detail=None)

    promise = promises.wrongly_rejected(Journal(), record_of(rejections=(rejection,)))

    assert promise.broken == 1


def test_an_event_decided_before_one_acknowledged_before_it_began_is_out_of_order() -> None:
    journal = journal_of(sent("a", began=0, acknowledged=1), sent("b", began=2, acknowledged=3))
    in_order = record_of(decision("a", at=1), decision("b", at=2))
    overtaken = record_of(decision("a", at=2), decision("b", at=1))

    assert promises.ordered(journal, in_order).broken == 0
    assert promises.ordered(journal, overtaken).broken == 1


def test_events_that_overlap_may_be_decided_in_any_order() -> None:
    journal = journal_of(sent("a", began=0, acknowledged=3), sent("b", began=2, acknowledged=4))

    promise = promises.ordered(journal, record_of(decision("a", at=2), decision("b", at=1)))

    assert promise.broken == 0
    assert promise.checked == 2


def test_recovery_counts_from_the_end_of_a_silence_and_from_the_strike_of_a_crash() -> None:
    silence = Strike(kind="frozen", began=10, ended=15, proof="", is_crash=False)
    crash = replace(silence, kind="killed", is_crash=True)
    waiting = sent("a", began=9, acknowledged=17)
    record = record_of(decision("a", at=17))

    for strike, seconds in ((silence, 2), (crash, 7)):
        [found], waits = recovery.recoveries([strike], journal_of(waiting), record)
        assert found.longest_s == seconds
        assert waits == [seconds]


def test_recovery_leaves_out_the_time_in_which_a_queue_had_no_work() -> None:
    crash = Strike(kind="killed", began=10, ended=10, proof="", is_crash=True)
    late = sent("a", began=40, acknowledged=41)

    [found], _ = recovery.recoveries([crash], journal_of(late), record_of(decision("a", at=41)))

    assert found.longest_s == 1


def report(**fields: Any) -> Report:  # noqa: ANN401 - of `Report`
    usual: dict[str, Any] = {
        "command": "make storm SEED=1 MINUTES=5",
        "about": "a machine",
        "seconds": 300.0,
        "acknowledged": 10,
        "decided": 9,
        "retried": {"HTTP: 503": 2},
        "skipped_sends": 0,
        "strikes": [Strike(kind="killed", began=1, ended=2, proof="it was 7", is_crash=True)],
    }
    return Report(**usual | fields)


def test_a_report_holds_unless_a_promise_is_broken_or_a_kind_did_not_strike() -> None:
    broken = promises.Promise("lost", checked=1).fail_all(["an event"])

    assert report().holds
    assert not report(promises=[broken]).holds
    assert not report(not_struck={"frozen": "no session waited"}).holds
    assert "BROKEN lost" in report(promises=[broken]).text()
    assert "again: make storm SEED=1 MINUTES=5" in report().text()


def test_the_page_adds_up_its_runs_in_the_place_of_the_former_ones() -> None:
    run = report(promises=[promises.Promise("lost", checked=4)]).json()
    before = f"text\n{page._BEGIN}former\n{page._END}more\n"

    after = page.renewed(before, [run, run])

    assert "| lost | 0 | 8 |" in after
    assert "| killed | 2 |" in after
    quantiles = f"| {run['recovery_p50_s']:.2f} | {run['recovery_p99_s']:.2f} | holds |"
    assert after.count(quantiles) == 2
    assert "former" not in after
    assert after.startswith("text\n")
    assert after.endswith("more\n")
    assert page.renewed(after, [run, run]) == after
