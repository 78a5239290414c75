"""Threads in which systems outside are called: a platform for which they hang has some of them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from cardledger.api.http.errors import ApiError
from cardledger.api.http.outside_calls import THREADS, THREADS_OF_PLATFORM, OutsideCalls
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code
from tests.waiting import limit_s

ADA, BOB = new_id(), new_id()


class HangingSystem:
    """A system outside that answers once it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self._lock = threading.Lock()
        self._asked = 0

    def ask(self) -> str:
        with self._lock:
            self._asked += 1
        assert self.may_answer.wait(limit_s())
        return "answered"

    async def is_asked(self, times: int) -> None:
        """Wait until so many calls hang."""
        async with asyncio.timeout(limit_s()):
            while self._asked < times:  # noqa: ASYNC110 - a thread does not tell
                await asyncio.sleep(0.001)
        assert self._asked == times


def run(play: Callable[[OutsideCalls, HangingSystem], Awaitable[None]], wait_s: float) -> None:
    async def act() -> None:
        calls, system = OutsideCalls(wait_s=wait_s), HangingSystem()
        try:
            await play(calls, system)
        finally:
            system.may_answer.set()
            calls.close()

    asyncio.run(act())


def hang(calls: OutsideCalls, system: HangingSystem, platform_id: Id) -> list[asyncio.Task[str]]:
    """Let a platform use all threads that it may have."""
    return [
        asyncio.create_task(calls.run(platform_id, system.ask)) for _ in range(THREADS_OF_PLATFORM)
    ]


async def refused(call: Awaitable[object]) -> None:
    with pytest.raises(ApiError) as error:
        await call
    assert error.value.code is Code.SERVICE_UNAVAILABLE


def test_calls_of_a_platform_that_hang_leave_those_of_another_alone() -> None:
    async def play(calls: OutsideCalls, system: HangingSystem) -> None:
        hanging = hang(calls, system, ADA)
        await system.is_asked(THREADS_OF_PLATFORM)

        await refused(calls.run(ADA, lambda: "more"))
        assert await calls.run(BOB, lambda: "others") == "others"

        system.may_answer.set()
        assert await asyncio.gather(*hanging) == ["answered"] * THREADS_OF_PLATFORM
        assert await calls.run(ADA, lambda: "again") == "again"
        assert not calls._platforms

    run(play, wait_s=0.05)


def test_a_request_that_is_given_up_frees_no_thread_that_hangs() -> None:
    async def play(calls: OutsideCalls, system: HangingSystem) -> None:
        hanging = hang(calls, system, ADA)
        await system.is_asked(THREADS_OF_PLATFORM)
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

        await refused(calls.run(ADA, lambda: "more"))

    run(play, wait_s=0.05)


def test_some_platforms_together_have_all_threads() -> None:
    async def play(calls: OutsideCalls, system: HangingSystem) -> None:
        hanging = [
            call
            for _ in range(THREADS // THREADS_OF_PLATFORM)
            for call in hang(calls, system, new_id())
        ]
        await system.is_asked(THREADS)

        await refused(calls.run(BOB, lambda: "others"))

        system.may_answer.set()
        await asyncio.gather(*hanging)

    run(play, wait_s=0.05)


def test_a_call_has_the_context_of_its_request() -> None:
    request = ContextVar("request", default="none")

    async def play(calls: OutsideCalls, _: HangingSystem) -> None:
        request.set("r-1")
        assert await calls.run(ADA, request.get) == "r-1"

    run(play, wait_s=limit_s())
