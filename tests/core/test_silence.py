"""When a child process counts as frozen."""

from cardledger.supervisor.silence import LIMIT_S, LOOK_EVERY_S, START_LIMIT_S, Silence

LOOKS = round(LIMIT_S / LOOK_EVERY_S)


class Clock:
    """Seconds, as a test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def looks(silence: Silence, clock: Clock, times: int) -> list[bool]:
    """Look `times` times, at the usual interval."""
    found = []
    for _ in range(times):
        clock.now += LOOK_EVERY_S
        found.append(silence.has_lasted())
    return found


def test_a_process_that_stops_to_report_is_frozen_after_the_limit() -> None:
    clock = Clock()
    silence = Silence(clock)

    silence.end()

    assert looks(silence, clock, LOOKS) == [False] * (LOOKS - 1) + [True]


def test_a_process_that_is_starting_has_more_time() -> None:
    clock = Clock()
    times = round(START_LIMIT_S / LOOK_EVERY_S)

    assert looks(Silence(clock), clock, times) == [False] * (times - 1) + [True]


def test_a_heartbeat_ends_the_silence() -> None:
    clock = Clock()
    silence = Silence(clock)

    silence.end()
    before = looks(silence, clock, LOOKS - 1)
    silence.end()

    assert not any(before + looks(silence, clock, LOOKS - 1))


def test_a_parent_that_was_suspended_does_not_blame_its_child() -> None:
    clock = Clock()
    silence = Silence(clock)

    silence.end()
    clock.now += 3_600

    assert not silence.has_lasted()
