"""How long a batch leaves out a cardholder whose rows another session has locked."""

import pytest

from cardledger.ledger.engine.locked_cardholders import LockedCardholders
from cardledger.ledger.storage.ids import new_id


class Clock:
    """Seconds, as a test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_locked_cardholder_is_left_out_for_a_time_that_doubles_up_to_a_second() -> None:
    clock, key = Clock(), new_id()
    memory = LockedCardholders(clock)
    delays = []

    for _ in range(7):
        memory.note([key], {key})
        began = clock.now
        while memory.left_out():
            clock.now += 0.0125
        delays.append(clock.now - began)

    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0], abs=0.02)


def test_a_cardholder_who_is_left_out_no_more_is_tried_without_waiting() -> None:
    clock = Clock()
    memory, key, other = LockedCardholders(clock), new_id(), new_id()

    memory.note([key], {key})
    clock.now = 0.06

    assert memory.left_out() == []
    assert memory.suspects([key, other]) == {key}


def test_a_cardholder_found_free_is_forgotten() -> None:
    memory, key = LockedCardholders(Clock()), new_id()

    found = memory.note([key], {key})
    found_again = memory.note([key], {key})
    memory.note([key], set())

    assert (found, found_again) == ({key}, set())
    assert memory.left_out() == []
    assert memory.suspects([key]) == set()


def test_what_is_known_is_bounded_and_the_latest_of_it_is_kept() -> None:
    memory, keys = LockedCardholders(Clock()), [new_id() for _ in range(1_500)]

    for key in keys:
        memory.note([key], {key})

    assert memory.left_out() == keys[-1_000:]


def test_a_cardholder_without_messages_is_forgotten_in_time() -> None:
    clock = Clock()
    memory, key, other = LockedCardholders(clock), new_id(), new_id()

    memory.note([key], {key})
    clock.now = 11
    memory.note([other], {other})

    assert memory.suspects([key, other]) == {other}


def test_who_is_slow_again_is_left_out_for_twice_as_long() -> None:
    clock = Clock()
    memory, key = LockedCardholders(clock), new_id()
    memory.blame_slow(key)
    assert not memory.blame_slow_again(), "it is left out"

    delays = []
    for _ in range(9):
        began = clock.now
        while memory.left_out():
            clock.now += 1
        delays.append(clock.now - began)
        clock.now += 60  # Until its message is tried again, and its batch is cancelled.
        assert memory.blame_slow_again()

    assert delays == [5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_who_was_slow_is_forgotten_in_time() -> None:
    clock = Clock()
    memory, key = LockedCardholders(clock), new_id()
    memory.blame_slow(key)

    clock.now += 606
    assert not memory.blame_slow_again()


def test_one_that_was_locked_is_no_suspect_of_being_slow() -> None:
    clock = Clock()
    memory, key = LockedCardholders(clock), new_id()
    memory.blame(key)
    clock.now += 1

    assert not memory.blame_slow_again()


def test_many_who_were_slow_do_not_keep_one_that_is_locked_out_for_longer() -> None:
    clock = Clock()
    memory, key = LockedCardholders(clock), new_id()
    for _ in range(100):
        memory.blame_slow(new_id())
    clock.now = 6.0  # They are remembered, and left out no more.

    delays = []
    for _ in range(10):
        memory.blame(key)
        began = clock.now
        while memory.left_out():
            clock.now += 0.25
        delays.append(clock.now - began)

    assert delays[-1] == 5
