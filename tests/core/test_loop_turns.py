"""Long computations take turns with requests, and with each other."""

import asyncio
from collections.abc import Generator

import pytest

from cardledger.api.loop_turns import LoopTurns

STEPS = 100


class Clock:
    """A clock that only the steps move."""

    def __init__(self) -> None:
        self.ms = 0.0

    def seconds(self) -> float:
        return self.ms / 1_000

    def steps(self, each_ms: float) -> Generator[None, None, str]:
        for _ in range(STEPS):
            self.ms += each_ms
            yield
        return "whole"


async def waits_beside(computation: asyncio.Task[str], clock: Clock) -> list[float]:
    """Return how long each round of the event loop takes until `computation` ends."""
    waits: list[float] = []
    while not computation.done():
        before = clock.ms
        await asyncio.sleep(0)
        waits.append(clock.ms - before)
    return waits


@pytest.mark.parametrize("step_ms", [0.05, 0.25, 1, 3])
def test_a_request_waits_for_a_turn_of_a_quarter_of_a_millisecond(step_ms: float) -> None:
    async def run() -> tuple[str, list[float]]:
        clock = Clock()
        turns = LoopTurns(clock.seconds)
        computation = asyncio.create_task(turns.run(clock.steps(step_ms), at_once=False))
        waits = await waits_beside(computation, clock)
        return await computation, waits

    result, waits = asyncio.run(run())

    assert result == "whole"
    assert max(waits) <= 0.25 + step_ms
    assert sum(waits) == pytest.approx(STEPS * step_ms)


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_works_without_turns_rests_three_times_as_long_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    slept: list[float] = []

    async def counted(seconds: float) -> None:
        slept.append(seconds)

    async def run() -> None:
        turns = LoopTurns(is_shared=lambda: is_shared)
        for worked_s in (0.003, 1.0):
            await turns.rest(worked_s)

    monkeypatch.setattr(asyncio, "sleep", counted)
    asyncio.run(run())

    assert slept == (pytest.approx([0.009, 0.3]) if is_shared else [])


@pytest.mark.parametrize("is_shared", [True, False])
def test_computations_leave_half_of_the_time_to_the_requests_of_several_platforms(
    monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    async def run() -> None:
        clock = Clock()
        turns = LoopTurns(clock.seconds, is_shared=lambda: is_shared)
        await asyncio.gather(*(turns.run(clock.steps(0.25)) for _ in range(4)))

    monkeypatch.setattr(asyncio, "sleep", counted)
    asyncio.run(run())

    computed = 4 * STEPS * 0.25 / 1_000
    assert sum(slept) == pytest.approx(computed if is_shared else 0, rel=0.05)


def test_a_request_waits_for_one_of_many_computations() -> None:
    async def run() -> list[float]:
        clock = Clock()
        turns = LoopTurns(clock.seconds)
        others = [asyncio.create_task(turns.run(clock.steps(2))) for _ in range(20)]
        last = asyncio.create_task(turns.run(clock.steps(2)))
        await asyncio.sleep(0)  # The first turn of each is at once.
        waits = await waits_beside(last, clock)
        assert all(other.done() for other in others[:-1]), "in the order in which they came"
        await asyncio.gather(*others)
        return waits

    assert max(asyncio.run(run())) <= 2.001


def test_a_short_computation_waits_for_no_long_one() -> None:
    async def run() -> None:
        clock = Clock()
        turns = LoopTurns(clock.seconds)
        long = asyncio.create_task(turns.run(clock.steps(5)))
        await asyncio.sleep(0)
        short = asyncio.create_task(turns.run(clock.steps(0.001)))
        await asyncio.sleep(0)

        assert short.done()
        assert not long.done()
        await long

    asyncio.run(run())


def test_the_parts_of_long_computations_wait_for_their_turns() -> None:
    async def parts(turns: LoopTurns, clock: Clock) -> str:
        await turns.run(clock.steps(0.001))
        return await turns.run(clock.steps(2), at_once=False)

    async def run() -> list[float]:
        clock = Clock()
        turns = LoopTurns(clock.seconds)
        all_parts = [asyncio.create_task(parts(turns, clock)) for _ in range(20)]
        await asyncio.sleep(0)
        waits = await waits_beside(all_parts[-1], clock)
        await asyncio.gather(*all_parts)
        return waits

    assert max(asyncio.run(run())) <= 2.001


def test_a_computation_that_fails_or_is_given_up_keeps_no_other_waiting() -> None:
    def failing(clock: Clock) -> Generator[None, None, str]:
        yield from (None for _ in clock.steps(1))
        raise LookupError

    async def run() -> str:
        clock = Clock()
        turns = LoopTurns(clock.seconds)
        computations = [asyncio.create_task(turns.run(failing(clock))) for _ in range(3)]
        await asyncio.sleep(0)
        computations[1].cancel()
        ended = await asyncio.gather(*computations, return_exceptions=True)
        assert [type(end) for end in ended] == [
            LookupError,
            asyncio.CancelledError,
            LookupError,
        ]
        return await turns.run(clock.steps(1))

    assert asyncio.run(run()) == "whole"
