"""Which failures stop a queue, and which only a cardholder."""

from datetime import UTC, datetime

from cardledger.ledger.engine.failures import FailedError
from cardledger.ledger.engine.parsing import UnknownTypeError
from cardledger.ledger.engine.stalls import HELD_LIMIT, LAPSE_S, SAMPLE, Stalls
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

DENIED = "42501: permission denied for table outbox"


def failure(error: str, *, lane: Lane = Lane.LIVE, customer_id: Id | None = None) -> FailedError:
    message = Message(
        lane=lane,
        shard=1,
        id=new_id(),
        customer_id=customer_id or new_id(),
        platform_id=new_id(),
        source="test",
        reference="1",
        body={},
        body_hash=b"",
        reply_to=None,
        received_at=datetime.now(UTC),
    )
    return FailedError(message, error)


def test_one_error_of_postgresql_is_systemic_wherever_a_pipeline_raised_it() -> None:
    failures = [failure(f"{DENIED} (writes.py:82)"), failure(f"{DENIED} (claims.py:206)")]

    assert Stalls().are_systemic(failures)


def test_different_errors_and_defects_at_different_places_are_not_systemic() -> None:
    assert not Stalls().are_systemic([failure(DENIED), failure("23502: a null value")])
    assert not Stalls().are_systemic(
        [failure("AssertionError: (a.py:1)"), failure("AssertionError: (b.py:2)")]
    )


def test_one_cardholder_who_fails_again_and_again_is_not_systemic() -> None:
    stalls, customer_id = Stalls(), new_id()
    stalls.hold(failure(DENIED, customer_id=customer_id))

    assert not stalls.are_systemic([failure(DENIED, customer_id=customer_id)])


def test_an_error_that_another_cardholder_had_in_an_earlier_batch_is_systemic() -> None:
    stalls = Stalls()
    stalls.hold(failure(DENIED))

    assert stalls.are_systemic([failure(DENIED)])
    assert not stalls.are_systemic([failure("23502: a null value")])
    assert not stalls.are_systemic([failure(DENIED, lane=Lane.BULK)])


def test_an_error_is_not_systemic_when_others_have_succeeded_since() -> None:
    stalls = Stalls()
    stalls.hold(failure(DENIED))
    stalls.note_success(Lane.LIVE)

    assert not stalls.are_systemic([failure(DENIED)])


def test_types_of_a_newer_release_are_not_systemic() -> None:
    failures = [failure("UnknownTypeError: messages of type NEW"), failure("UnknownTypeError: NEW")]
    for each in failures:
        each.__cause__ = UnknownTypeError("messages of type NEW")

    assert not Stalls().are_systemic(failures)


def test_a_queue_that_could_not_be_read_goes_on_once_it_can_be() -> None:
    stalls = Stalls()
    stalls.stop(Lane.LIVE, [1, 2], FailedError(None, "42703: no such column"))
    stalls.stop(Lane.LIVE, [3], failure(DENIED))

    stalls.note_readable(Lane.LIVE, [1, 3])

    assert stalls.stopped_queues() == 2
    assert not stalls.are_stopped(Lane.LIVE, [1])


def test_a_queue_with_nothing_new_to_try_does_not_stay_stopped_without_end() -> None:
    seconds = [0.0]
    stalls = Stalls(lambda: seconds[0])
    stalls.stop(Lane.LIVE, [1], failure(DENIED))

    seconds[0] = LAPSE_S - 1
    stalls.lapse(Lane.LIVE, [1])
    before = stalls.stopped_queues()
    seconds[0] = LAPSE_S + 1
    stalls.lapse(Lane.LIVE, [1])

    assert (before, stalls.stopped_queues()) == (1, 0)


def test_a_queue_in_which_many_have_failed_alike_stays_stopped() -> None:
    seconds = [0.0]
    stalls = Stalls(lambda: seconds[0])
    for _ in range(SAMPLE):
        stalls.hold(failure(DENIED))
    stalls.stop(Lane.LIVE, [1], failure(DENIED))

    seconds[0] = LAPSE_S + 1
    stalls.lapse(Lane.LIVE, [1])

    assert stalls.stopped_queues() == 1


def test_what_another_worker_has_found_is_no_failure_of_this_one() -> None:
    mine, theirs = Stalls(), Stalls()
    theirs.hold(failure(DENIED))
    [found] = theirs._stalls.values()

    mine.adopt([found], [(Lane.LIVE, 1)])

    assert not mine.are_systemic([failure(DENIED)])
    assert not found.others_succeed
    mine.hold_again(found, DENIED)
    assert mine.are_systemic([failure(DENIED)])


def test_the_cardholders_of_each_lane_that_wait_are_limited() -> None:
    stalls = Stalls()
    stalls.stop(Lane.LIVE, range(50), failure(DENIED))

    held = [stalls.hold(failure(DENIED)) for _ in range(HELD_LIMIT + 1)]

    assert held == [True] * HELD_LIMIT + [False]
    assert stalls.hold(failure(DENIED, lane=Lane.BULK))
