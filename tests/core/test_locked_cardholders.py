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
