"""What viewers of a platform share: one computation, which is not kept for long."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cardledger.api.console import shared_results
from cardledger.api.console.shared_results import KEPT_S, SharedResults
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reading:
    """Counts how often something is computed, which ends when it may."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.fails = False

    async def __call__(self) -> int:
        self.count += 1
        count = self.count
        await self.may_end.wait()
        if self.fails:
            raise OSError
        return count


def run(scenario: Callable[[SharedResults[int], Reading, Clock], Awaitable[None]]) -> None:
    async def ran() -> None:
        clock = Clock()
        results = SharedResults[int](clock=clock)
        await scenario(results, Reading(), clock)
        await results.close()

    asyncio.run(ran())


def test_those_who_ask_at_once_and_soon_after_have_the_same_result() -> None:
    platform = new_id()

    async def scenario(results: SharedResults[int], reading: Reading, clock: Clock) -> None:
        viewers = [asyncio.ensure_future(results.of(platform, reading)) for _ in range(3)]
        await asyncio.sleep(0)
        viewers[0].cancel()  # Its tab was closed.
        reading.may_end.set()
        at_once = await asyncio.gather(*viewers, return_exceptions=True)
        clock.now += KEPT_S * 0.9
        soon = await results.of(platform, reading)
        clock.now += KEPT_S * 0.2
        later = await results.of(platform, reading)

        assert isinstance(at_once[0], asyncio.CancelledError)
        assert [*at_once[1:], soon, later] == [1, 1, 1, 2]

    run(scenario)


def test_a_slow_result_is_that_of_those_who_waited() -> None:
    platform = new_id()

    async def scenario(results: SharedResults[int], reading: Reading, clock: Clock) -> None:
        first = asyncio.ensure_future(results.of(platform, reading))
        await asyncio.sleep(0)
        clock.now += KEPT_S * 2
        second = asyncio.ensure_future(results.of(platform, reading))
        await asyncio.sleep(0)
        reading.may_end.set()

        assert list(await asyncio.gather(first, second)) == [1, 1]
        assert await results.of(platform, reading) == 2

    run(scenario)


def test_a_failure_is_not_kept() -> None:
    platform = new_id()

    async def scenario(results: SharedResults[int], reading: Reading, _: Clock) -> None:
        reading.fails = True
        reading.may_end.set()
        failed = await asyncio.gather(
            *(results.of(platform, reading) for _ in range(2)), return_exceptions=True
        )
        reading.fails = False

        assert [type(each) for each in failed] == [OSError, OSError]
        assert await results.of(platform, reading) == 2

    run(scenario)


def test_a_platform_has_results_of_its_own_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_results, "_PLATFORMS", 2)
    platforms: list[Id] = [new_id() for _ in range(3)]

    async def scenario(results: SharedResults[int], reading: Reading, _: Clock) -> None:
        reading.may_end.set()

        assert [await results.of(each, reading) for each in platforms] == [1, 2, 3]
        assert await results.of(platforms[2], reading) == 3
        assert await results.of(platforms[0], reading) == 4  # Forgotten meanwhile.

    run(scenario)


def test_what_runs_is_ended_with_the_process() -> None:
    async def scenario(results: SharedResults[int], reading: Reading, _: Clock) -> None:
        viewer = asyncio.ensure_future(results.of(new_id(), reading))
        await asyncio.sleep(0)
        await results.close()

        with pytest.raises(asyncio.CancelledError):
            await viewer

    run(scenario)
