"""What a few processes do at once, and what must hold wherever one of them is preempted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from typing import Any, Final

from cardledger.ledger.cards.lifecycle import CardChange
from cardledger.ledger.core.card import CardState
from cardledger.ledger.messaging import timeout_reversals
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.wire.outcomes import OutcomeType
from tests.schedules.actors import (
    Act,
    LookingUp,
    addressed,
    changing,
    moving_to_a_new_account,
)
from tests.schedules.driver import with_preemptions
from tests.schedules.scenarios import AUTHORIZED, event, timeout_reversal
from tests.schedules.stage import Stage, Theatre, far_ahead

Play = Callable[[Stage], Sequence[Act]]
"""Sets a stage and returns what the processes on it do."""

Check = Callable[[Mapping[int, int]], Sequence[int]]
"""Plays a schedule (`with_preemptions`) and asserts what must hold after it.

Returns the number of boundaries of each process.
"""

UNINTERRUPTED: Final = dict[int, int]()


def two_workers(stage: Stage) -> Sequence[Act]:
    stage.accept(event("CLEARING", 1500), event("CLEARING", 100, "T2"))
    return stage.draining(0), stage.draining(1)


def two_lanes(stage: Stage) -> Sequence[Act]:
    stage.accept(event("AUTHORIZATION", 49_000, "T2"))
    stage.accept(event("CLEARING", 1500), lane=Lane.BULK)
    return stage.draining(0), stage.draining(1, Lane.BULK)


def new_funding_source(stage: Stage) -> Sequence[Act]:
    stage.accept(event("CLEARING", 1500, "T2"))
    return stage.draining(0), moving_to_a_new_account(stage.world, stage.cardholder)


def closed_card(stage: Stage) -> Sequence[Act]:
    stage.accept(event("AUTHORIZATION", 700, "T2"))
    close = CardChange(state=CardState.CLOSED)
    return stage.draining(0), changing(stage.world, stage.cardholder, close), stage.draining(1)


def two_sweepers(stage: Stage) -> Sequence[Act]:
    return stage.sweeping(0), stage.sweeping(1)


def sweeper_and_clearing(stage: Stage) -> Sequence[Act]:
    stage.accept(event("CLEARING", 1250))
    return stage.draining(0), stage.sweeping(1)


def timed_out_authorization(stage: Stage) -> Sequence[Act]:
    """A caller submits, has no answer in time, reverses, and submits once more."""
    asked = event("AUTHORIZATION", 700, "T2", reference="timed out")
    submission, reversal, again = (
        addressed(stage.cardholder, stage.messages([make]))
        for make in (asked, timeout_reversal(asked), asked)
    )
    stage.accept_messages(submission)
    steps = stage.accepting(1, reversal), stage.accepting(1, again), stage.draining(1)

    def reverse_and_repeat() -> None:
        for step in steps:
            step()

    return stage.draining(0), reverse_and_repeat


PLAYS: Final[Sequence[Play]] = [
    two_workers,
    two_lanes,
    new_funding_source,
    closed_card,
    two_sweepers,
    sweeper_and_clearing,
    timed_out_authorization,
]


def single_preemptions(check: Check) -> Iterator[dict[int, int]]:
    """Yield a preemption at each step of the schedule without any, which is played first."""
    boundaries = check(UNINTERRUPTED)
    assert all(boundaries), "every process talks to PostgreSQL"
    for step in range(sum(boundaries)):
        yield {step: 1 + step % (len(boundaries) - 1)}


def leaves_what_one_after_the_other_would(theatre: Theatre, play: Play) -> Check:
    """Return the check that the processes of `play` leave the books of a serial execution."""

    def books_in(order: Sequence[int]) -> dict[str, Any]:
        stage = theatre.stage(AUTHORIZED)
        acts = play(stage)
        theatre.play([acts[place] for place in order], with_preemptions(UNINTERRUPTED))
        return stage.books()

    processes = len(play(theatre.stage(AUTHORIZED)))
    serial = [books_in(order) for order in permutations(range(processes))]

    def check(preemptions: Mapping[int, int]) -> Sequence[int]:
        stage = theatre.stage(AUTHORIZED)
        actors = theatre.play(play(stage), with_preemptions(preemptions))
        assert stage.books() in serial, f"preempted at {preemptions}"
        return [actor.boundaries for actor in actors]

    return check


def looks_up_no_answer_to_another_body(theatre: Theatre) -> Check:
    """Return the check that a client never receives the outcome of another body under its key."""

    def check(preemptions: Mapping[int, int]) -> Sequence[int]:
        stage = theatre.stage([event("AUTHORIZATION", 10, reference="r")])
        [other] = addressed(
            stage.cardholder, stage.messages([event("AUTHORIZATION", 20, reference="r")])
        )
        looking_up = LookingUp(stage.world, other)

        actors = theatre.play(
            [stage.accepting(1, [other]), stage.draining(0), looking_up],
            with_preemptions(preemptions),
        )

        answer = looking_up.answer
        assert answer is None or answer.outcome is OutcomeType.REJECTED, preemptions
        return [actor.boundaries for actor in actors]

    return check


def looks_up_no_approval_that_is_reversed(theatre: Theatre) -> Check:
    """Return the check that a client which repeats a reversed authorization reads no approval.

    The reversal is durable before the repetition, and has a later id. A batch has two messages:
    another one is between them.
    """
    authorization = event("AUTHORIZATION", 10, reference="r")

    def check(preemptions: Mapping[int, int]) -> Sequence[int]:
        stage = theatre.stage([authorization])
        events = stage.messages([authorization, event("CLEARING", 5, "T2")])
        repeated, between = addressed(stage.cardholder, events)
        reversal = timeout_reversals.reversal_of(repeated, at=datetime.now(UTC))
        reversal = replace(reversal, id=first_id_at(far_ahead()))
        stage.world.accept_messages([reversal, repeated, between])
        looking_up = LookingUp(stage.world, repeated)

        actors = theatre.play([stage.draining(0), looking_up], with_preemptions(preemptions))

        answer = looking_up.answer
        assert answer is None or answer.first_outcome is OutcomeType.DECLINED, preemptions
        return [actor.boundaries for actor in actors]

    return check
