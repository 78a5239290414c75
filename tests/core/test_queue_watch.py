"""Which queues need a canary, and which are stuck: by observation, without a database."""

from datetime import UTC, datetime

from cardledger.ledger.messaging.canaries import (
    INTERVAL_S,
    STUCK_AFTER_S,
    Observation,
    Queue,
    QueueWatch,
    canary,
)
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUEUE: Queue = (Lane.LIVE, 3)


def observation(head: Id | None, *waiting: Message) -> Observation:
    return Observation(
        at=NOON, heads={QUEUE: head}, waiting=frozenset(message.id for message in waiting)
    )


def watched(*, canary_at: float) -> tuple[QueueWatch, Message]:
    """Return a watch of an empty queue that got a canary."""
    watch, message = QueueWatch(), canary(QUEUE, NOON)
    watch.observe(observation(None), canary_at)
    watch.sent([message], canary_at)
    return watch, message


def test_an_empty_queue_gets_a_canary() -> None:
    watch = QueueWatch()

    watch.observe(observation(None), 10.0)

    assert watch.due(10.0) == [QUEUE]


def test_a_queue_with_traffic_gets_none() -> None:
    watch = QueueWatch()

    for moment in range(5):
        watch.observe(observation(new_id()), float(moment))

        assert watch.due(float(moment)) == []


def test_a_queue_whose_oldest_message_stays_gets_a_canary() -> None:
    watch, head = QueueWatch(), new_id()

    watch.observe(observation(head), 10.0)
    watch.observe(observation(head), 10.5)

    assert watch.due(10.5) == [QUEUE]


def test_a_watch_of_queues_with_messages_leaves_empty_ones_alone() -> None:
    watch, head = QueueWatch(probes_empty=False), new_id()

    watch.observe(observation(None), 10.0)
    empty = watch.due(10.0)
    watch.observe(observation(head), 10.5)
    watch.observe(observation(head), 11.0)

    assert empty == []
    assert watch.due(11.0) == [QUEUE]


def test_one_canary_is_outstanding_at_most() -> None:
    watch, message = watched(canary_at=10.0)

    watch.observe(observation(message.id, message), 10.0 + INTERVAL_S + 1)

    assert watch.due(10.0 + INTERVAL_S + 1) == []


def test_the_next_canary_comes_after_the_interval() -> None:
    watch, _ = watched(canary_at=10.0)
    watch.observe(observation(None), 10.5)

    assert watch.due(10.5) == []
    assert watch.due(10.0 + INTERVAL_S) == [QUEUE]


def test_a_queue_whose_canary_waits_is_stuck() -> None:
    watch, message = watched(canary_at=10.0)
    watch.observe(observation(message.id, message), 10.5)
    now = 10.5 + STUCK_AFTER_S
    watch.observe(observation(message.id, message), now)

    assert watch.stuck(now) == {QUEUE: STUCK_AFTER_S}


def test_a_canary_behind_a_file_that_is_being_decided_is_not_stuck() -> None:
    watch, message = watched(canary_at=10.0)

    for moment in range(11, 60):
        watch.observe(observation(new_id(), message), float(moment))

        assert watch.stuck(float(moment)) == {}


def test_a_queue_in_which_one_cardholder_waits_is_not_stuck() -> None:
    watch, message, head = QueueWatch(), canary(QUEUE, NOON), new_id()
    watch.observe(observation(head), 10.0)
    watch.observe(observation(head), 10.5)
    watch.sent([message], 10.5)

    watch.observe(observation(head), 60.0)  # The canary was decided, past the head.

    assert watch.stuck(60.0) == {}


def test_a_queue_has_moved_while_it_is_observed_to_and_for_a_moment_after() -> None:
    watch, _ = watched(canary_at=10.0)
    idle = watch.has_moved(10.0)

    watch.observe(observation(None), 10.5)  # Its canary was decided, after 10.0.

    assert not idle
    assert watch.has_moved(10.0 + STUCK_AFTER_S * 0.9)
    assert not watch.has_moved(10.0 + STUCK_AFTER_S * 1.1)


def test_what_was_decided_long_ago_is_no_movement_at_the_first_observation_after_it() -> None:
    watch, _ = watched(canary_at=10.0)

    watch.observe(observation(None), 30_000.0)

    assert not watch.has_moved(30_000.0)


def test_messages_that_follow_each_other_are_a_movement() -> None:
    watch = QueueWatch()
    for moment in (10.0, 10.5):
        watch.observe(observation(new_id()), moment)

    assert watch.has_moved(10.5)
