"""The checks of the storm find what they are for: each is shown a broken promise."""

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NoReturn, cast

import pytest

from cardledger.ledger.messaging import canaries, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from storm import page, run
from storm.checks import promises, recovery
from storm.checks.record import Accepted, Decision, Reader, Record, Rejection
from storm.checks.recovery import Recovery
from storm.faults.arena import Arena, Fault, SkippedError, Strike, struck_if
from storm.faults.campaign import NOT_REACHED, Campaign, minutes_for, round_of
from storm.load.bodies import REQUIRED
from storm.load.journal import ENQUEUED, Answer, Journal, Sent
from storm.report import Report
from storm.system import System
from tests.waiting import eventually

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

    assert promises.approval_reported_late(journal_of(event)).broken == is_late


def test_a_caller_that_stood_still_itself_received_no_late_answer() -> None:
    event = sent("a", began=0, acknowledged=1)
    event.answers.append(answer("APPLIED", at=3, decide_by=2))
    journal = journal_of(event)

    journal.stalls.append((2.5, 3.5))
    assert promises.approval_reported_late(journal).broken == 1

    journal.stalls.append((1.0, 2.5))
    assert promises.approval_reported_late(journal).broken == 0


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


def test_an_enqueued_event_is_compared_with_other_enqueued_ones() -> None:
    enqueued = sent("a", began=0, acknowledged=1, queue=ENQUEUED)
    overtaken = record_of(decision("a", at=2), decision("b", at=1))

    for queue, broken in (("inbox", 0), (ENQUEUED, 1)):
        journal = journal_of(enqueued, sent("b", began=2, acknowledged=3, queue=queue))
        assert promises.ordered(journal, overtaken).broken == broken


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
        found = recovery.recoveries([strike], journal_of(waiting), record)
        assert [one.longest_s for one in found.by_kind] == [seconds]
        assert found.of_queues == found.of_faults == [seconds]


def test_recovery_leaves_out_the_time_in_which_a_queue_had_no_work() -> None:
    crash = Strike(kind="killed", began=10, ended=10, proof="", is_crash=True)
    late = sent("a", began=40, acknowledged=41)

    found = recovery.recoveries([crash], journal_of(late), record_of(decision("a", at=41)))

    assert found.of_faults == [1]


def test_what_a_file_sends_waits_from_its_acceptance_on() -> None:
    crash = Strike(kind="killed", began=10, ended=10, proof="", is_crash=True)
    line = sent("a", began=11, acknowledged=20)
    line.lane = Lane.BULK

    found = recovery.recoveries([crash], journal_of(line), record_of(decision("a", at=19)))

    assert found.of_faults == [0], "the process that sent it was started first"


def fault(kind: str, *proofs: str | None) -> Fault:
    """Return a fault that strikes with each of `proofs` in turn; None: it does not strike."""
    left = list(proofs)

    def strike(_: Arena) -> str:
        proof = left.pop(0) if left else "struck"
        return struck_if(proof is not None, str(proof))

    return Fault(kind=kind, strike=strike)


def skipped(kind: str) -> Fault:
    def strike(_: Arena) -> str:
        raise SkippedError("not here")

    return Fault(kind=kind, strike=strike)


def campaign_of(*faults: Fault, struck: list[str] | None = None) -> Campaign:
    arena = Arena(cast("System", None), seed=1)
    report = (struck if struck is not None else []).append
    return Campaign(faults, arena, seed=1, report=report, calm_s=(0, 0), again_s=0)


class EnoughError(Exception):
    """Ends a campaign after some faults."""


def strike(campaign: Campaign, faults: int) -> None:
    """Strike until so many faults have had their turn."""
    turns = iter(range(faults))

    def check() -> None:
        if next(turns, None) is None:
            raise EnoughError

    with suppress(EnoughError):
        campaign.strike_for(60, check)


def test_every_wanted_kind_has_not_struck_until_it_does() -> None:
    campaign = campaign_of(fault("a"), fault("b"))
    assert campaign.not_struck == {"a": NOT_REACHED, "b": NOT_REACHED}

    strike(campaign, 1)

    [first] = campaign.strikes
    assert campaign.not_struck.keys() == {"a", "b"} - {first.kind}

    strike(campaign, 2)

    assert not campaign.not_struck


def test_a_kind_that_did_not_strike_comes_first_in_the_next_round() -> None:
    struck: list[str] = []
    others = [fault(f"other {number}") for number in range(9)]
    campaign = campaign_of(fault("late", None, None, None), *others, struck=struck)

    strike(campaign, 10)
    assert campaign.not_struck == {"late": "None"}
    strike(campaign, 1)

    assert struck[-1] == "late: struck"


def test_a_kind_that_cannot_be_made_here_is_skipped() -> None:
    campaign = campaign_of(skipped("a"))

    strike(campaign, 5)

    assert campaign.skipped == {"a": "not here"}
    assert not campaign.not_struck


def test_ten_consecutive_seeds_begin_with_every_kind() -> None:
    kinds = list(run.KINDS)
    few = len(kinds) // 10 + 1

    orders = {seed: round_of(kinds, seed, random.Random(seed)) for seed in range(701, 711)}  # noqa: S311 - chance, not secrecy

    assert {kind for order in orders.values() for kind in order[:few]} == set(kinds)
    assert all(sorted(order) == sorted(kinds) for order in orders.values())


def test_a_run_that_is_too_short_for_its_kinds_says_how_many_minutes_they_need() -> None:
    [warning] = run.Options(seed=1, seconds=60).warnings

    assert (
        f"{len(run.KINDS)} kinds of faults need about {minutes_for(len(run.KINDS)):.1f}" in warning
    )
    assert not list(run.Options(seed=1, seconds=300).warnings)


def test_a_reader_that_ends_by_an_error_breaks_a_promise() -> None:
    class Broken:
        def connect(self) -> NoReturn:
            raise TypeError("of this test")

    reader = Reader(cast("System", Broken()))
    reader.start()
    eventually(lambda: reader.violations)
    reader.stop()

    assert promises.conserved(1, reader.violations).examples == [
        "the reader has ended: TypeError: of this test"
    ]


def test_without_a_snapshot_nothing_was_conserved() -> None:
    assert promises.conserved(0, []).broken
    assert not promises.conserved(1, []).broken


KEPT: Final = promises.Promise("lost", checked=4)
FAST: Final = Recovery(kind="killed", queues=9, p50_s=0.1, p99_s=1.0, longest_s=1.0)


def report(**fields: Any) -> Report:  # noqa: ANN401 - of `Report`
    usual: dict[str, Any] = {
        "command": "make storm SEED=1 MINUTES=5",
        "about": "a machine",
        "schema": "0148",
        "seconds": 300.0,
        "acknowledged": 10,
        "decided": 9,
        "interfaces": dict.fromkeys(REQUIRED, 1),
        "retried": {"HTTP: 503": 2},
        "skipped_sends": 0,
        "wanted": ["killed"],
        "strikes": [Strike(kind="killed", began=1, ended=2, proof="it was 7", is_crash=True)],
        "promises": [KEPT],
        "recoveries": [FAST],
    }
    return Report(**usual | fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"promises": [promises.Promise("lost", checked=1).fail_all(["a"])]}, "broken: lost"),
        ({"promises": [promises.Promise("lost")]}, "nothing to check: lost"),
        ({"promises": []}, "no promise was checked"),
        (
            {"interfaces": dict.fromkeys(REQUIRED, 1) | {"enqueue": 0}},
            "no event has an outcome that was sent by: enqueue",
        ),
        ({"not_struck": {"frozen": "no session waited"}}, "did not strike: frozen"),
        ({"wanted": ["killed", "frozen"]}, "did not strike: frozen"),
        ({"wanted": ["frozen"], "strikes": [], "skipped": {"frozen": "?"}}, "no fault struck"),
        ({"recoveries": []}, "no recovery was measured"),
        (
            {"recovery_p99_s": 5.0, "recoveries": [FAST, replace(FAST, kind="slow", p99_s=5.0)]},
            "recovery p99 5.00 s, limit 5 s; slow",
        ),
    ],
)
def test_a_report_does_not_hold_and_says_why(fields: dict[str, Any], problem: str) -> None:
    made = report(**fields)

    assert made.problems == [problem]
    assert not made.holds
    assert f"DOES NOT HOLD  {problem}" in made.text()


def test_a_report_holds_when_all_was_struck_and_kept() -> None:
    kept = report(recovery_p99_s=4.99, skipped={"frozen": "?"}, wanted=["killed", "frozen"])

    assert kept.holds
    assert "again: make storm SEED=1 MINUTES=5" in kept.text()


def test_the_page_names_kinds_with_which_no_run_struck() -> None:
    of_one = report(wanted=["killed", "frozen", "full"]).json()
    of_another = report(wanted=["killed", "frozen", "full"], skipped={"full": "no disk"}).json()

    after = page.renewed(f"{page._BEGIN}{page._END}", [of_one, of_another])

    assert page.never_struck([of_one, of_another]) == ["frozen"]
    assert "| frozen | **0** |" in after
    assert "| full | skipped | | | no disk |" in after


def test_the_page_adds_up_its_runs_in_the_place_of_the_former_ones() -> None:
    made = report().json()
    before = f"text\n{page._BEGIN}former\n{page._END}more\n"

    after = page.renewed(before, [made, made])

    assert "| lost | 0 | 8 |" in after
    assert "| killed | 2 |" in after
    quantiles = f"| {made['recovery_p50_s']:.2f} | {made['recovery_p99_s']:.2f} | holds |"
    assert after.count(quantiles) == 2
    assert "former" not in after
    assert after.startswith("text\n")
    assert after.endswith("more\n")
    assert page.renewed(after, [made, made]) == after
