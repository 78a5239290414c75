"""Requests in progress: those of one platform do not set the latency of another's."""

import asyncio
import json
import time
from asyncio import Task
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks import load
from cardledger.api import BASE_PATH
from cardledger.api.fair_slots import FairSlots, TooManyInProgressError, Work
from cardledger.schema.ids import Id
from tests.api.support import Api, Tenant
from tests.waiting import eventually, limit_s

A, B = (Id(bytes([number] * 16)) for number in range(2))
EVENTS, READS = Work.EVENT.shares, Work.READ.shares
ALONE, SHARED, TOTAL = EVENTS.alone, EVENTS.shared, EVENTS.total
NEVER_S = 3600.0

CONNECTIONS = 256
MEASURED = 15


class StoppedError(Exception):
    """The load has ended."""


@dataclass
class Flood:
    """Authorizations of one platform on many connections, as fast as they are answered."""

    root: str
    tenant: Tenant
    card_id: str
    sent: int = 0
    is_stopped: bool = False

    def run(self) -> None:
        url = urlsplit(self.root)
        assert url.hostname is not None
        assert url.port is not None
        whole = self._request(url.netloc)

        def next_request() -> bytes:
            if self.is_stopped:
                raise StoppedError
            self.sent += 1
            return whole

        with suppress(StoppedError):
            asyncio.run(
                load.closed(
                    url.hostname, url.port, next_request, connections=CONNECTIONS, seconds=3600
                )
            )

    def _request(self, host: str) -> bytes:
        pair = f"{self.tenant.client_id}:{self.tenant.client_secret}"
        body = {"amount": 1, "currency": {"code": "USD"}, "merchant": {"descriptor": "A"}}
        return load.request(
            host,
            f"{BASE_PATH}/sandbox/cards/{self.card_id}/simulate/authorization",
            "Basic " + b64encode(pair.encode()).decode(),
            json.dumps(body).encode(),
        )


@contextmanager
def flood(api: Api, card_id: str) -> Iterator[Flood]:
    """Run a flood of the platform of `api`, with all of its connections."""
    made = Flood(api.root, api.tenant, card_id)
    thread = Thread(target=made.run)
    thread.start()
    try:
        eventually(lambda: made.sent > 2 * CONNECTIONS)
        yield made
    finally:
        made.is_stopped = True
        thread.join()


def test_256_connections_of_one_platform_leave_another_its_latency(
    api: Api, other_platform: Api
) -> None:
    card_id = api.active_card(balance=1_000_000)["id"]
    own = other_platform.active_card()["id"]
    waited_for: list[int] = []

    with flood(api, card_id) as others:
        other_platform.authorize(own, 1)
        for _ in range(MEASURED):
            before = others.sent
            other_platform.authorize(own, 1)
            waited_for.append(others.sent - before)

    # Without shares an authorization waits for as many answers as the other has connections.
    assert median(waited_for) < CONNECTIONS / 4, waited_for


# --- without a server ----------------------------------------------------------------------------


class Stage:
    """Requests that begin when they get a slot and end when they are told to."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.begun: list[tuple[Id, int]] = []
        self.tasks: dict[tuple[Id, int], Task[None]] = {}
        self._ends: dict[tuple[Id, int], asyncio.Event] = {}
        self._begins: dict[tuple[Id, int], asyncio.Event] = {}

    async def send(
        self,
        platform_id: Id,
        numbers: range,
        work: Work = Work.EVENT,
        *,
        what: str = "platform",
    ) -> None:
        """Send requests with `numbers`, and return when each has begun or waits."""
        for number in numbers:
            self._begins[platform_id, number] = asyncio.Event()
            self._ends[platform_id, number] = asyncio.Event()
            request = self._request(platform_id, number, what, work)
            self.tasks[platform_id, number] = asyncio.create_task(request)
        await settled()

    async def end(self, platform_id: Id, number: int) -> None:
        self._ends[platform_id, number].set()
        await settled()

    async def _request(self, platform_id: Id, number: int, what: str, work: Work) -> None:
        async with self.slots.take(platform_id, what, work):
            self.begun.append((platform_id, number))
            self._begins[platform_id, number].set()
            await self._ends[platform_id, number].wait()

    async def wait_for(self, platform_id: Id, number: int) -> None:
        """Return when the request has begun."""
        await asyncio.wait_for(self._begins[platform_id, number].wait(), limit_s())

    def count(self, platform_id: Id) -> int:
        """Return how many requests of the platform have begun."""
        return sum(each == platform_id for each, _ in self.begun)

    async def close(self) -> None:
        """End all, and check that nothing is kept of them."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        slots = self.slots
        kept = [slots._requests, *slots._leaving.values()]
        kept += [*slots._waiting.values(), *slots._total.values()]
        assert not any(kept), kept
        if slots._taken:
            await asyncio.sleep(slots._longest_rest_s)
        assert not slots._taken, slots._taken


async def settled() -> None:
    """Return when every task has run as far as it can without time."""
    for _ in range(3):
        await asyncio.sleep(0)


def on_a_stage(slots: FairSlots, act: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        stage = Stage(slots)
        try:
            await act(stage)
        finally:
            await stage.close()

    asyncio.run(run())


def test_a_platform_alone_has_many_slots_and_beside_others_its_share() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(ALONE + 1))
        assert stage.count(A) == ALONE

        await stage.send(B, range(SHARED + 1))

        assert stage.count(B) == SHARED, "it need not wait for the other"
        for number in range(ALONE - SHARED):
            await stage.end(A, number)
        assert stage.count(A) == ALONE, "more than its share until now"
        await stage.end(A, ALONE - 1)
        assert stage.begun[-1] == (A, ALONE)

    on_a_stage(FairSlots(patience_s=NEVER_S, wait_s=NEVER_S), act)


def test_slots_are_shared_once_a_second_platform_sends() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(2))
        assert not slots.is_shared
        await stage.send(B, range(1))
        assert slots.is_shared

    slots = FairSlots(patience_s=NEVER_S, wait_s=NEVER_S)
    on_a_stage(slots, act)


def test_platforms_that_wait_take_turns() -> None:
    platforms = [Id(bytes([number] * 16)) for number in range(TOTAL // SHARED + 3)]

    async def act(stage: Stage) -> None:
        for platform_id in platforms:
            await stage.send(platform_id, range(2 * SHARED))
        assert len(stage.begun) == TOTAL
        waiting = platforms[-4:]  # The others have their share.

        for number in range(9):
            await stage.end(platforms[0], number)

        turns = Counter(platform_id for platform_id, _ in stage.begun[TOTAL:])
        assert all(turns[platform_id] >= 9 // len(waiting) for platform_id in waiting), turns
        for platform_id in platforms:
            numbers = [number for each, number in stage.begun if each == platform_id]
            assert numbers == sorted(numbers), "those of one platform in their order"

    on_a_stage(FairSlots(patience_s=NEVER_S, wait_s=NEVER_S), act)


@pytest.mark.parametrize("work", [Work.EVENT, Work.WRITE])
def test_a_request_that_waits_leaves_its_slot_and_a_read_keeps_it(work: Work) -> None:
    alone = work.shares.alone

    async def act(stage: Stage) -> None:
        await stage.send(A, range(alone + 3), work)
        await stage.send(B, range(1000, 1000 + READS.shared + 1), Work.READ)

        await stage.wait_for(A, alone + 2)

        assert stage.count(B) == READS.shared
        await stage.end(B, 1000)
        assert stage.count(B) == READS.shared + 1

    on_a_stage(FairSlots(patience_s=0.01, wait_s=NEVER_S, longest_rest_s=0.0), act)


def test_events_writes_and_reads_have_slots_of_their_own() -> None:
    async def act(stage: Stage) -> None:
        for place, work in enumerate(Work):
            numbers = range(1000 * place, 1000 * place + 2 * work.shares.alone)
            await stage.send(A, numbers, work)

        assert stage.count(A) == sum(work.shares.alone for work in Work)

    on_a_stage(FairSlots(patience_s=NEVER_S, wait_s=NEVER_S), act)


def test_reads_that_hang_leave_slots_to_writes_and_to_reads_of_others() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(2 * READS.alone), Work.READ)
        await stage.send(A, range(1000, 1000 + 2 * READS.alone), Work.READ, what="agents")
        assert stage.count(A) == 2 * READS.alone

        await stage.send(B, range(1), Work.READ)
        await stage.send(B, range(1, 2))

        assert stage.begun[-2:] == [(B, 0), (B, 1)]

    on_a_stage(FairSlots(wait_s=NEVER_S), act)


class SlowReads(FairSlots):
    """Slots of which every request seems to have had its one for a second when it ends."""

    later_s = 0.0

    def _now(self) -> float:
        return super()._now() + self.later_s

    def leave(self, request: Any) -> None:  # noqa: ANN401 - private there
        self.later_s += 1.0
        super().leave(request)


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "shared"])
def test_the_slot_of_a_slow_read_rests_while_others_send(*, is_shared: bool) -> None:
    """Reads of one platform kept as many processors of PostgreSQL busy as they have slots."""

    async def act(stage: Stage) -> None:
        if is_shared:
            await stage.send(B, range(1))
        slots = READS.shared if is_shared else READS.alone
        await stage.send(A, range(slots + 1), Work.READ)

        await stage.end(A, 0)

        assert stage.count(A) == slots + (not is_shared)
        await stage.send(B, range(1, 1 + READS.shared), Work.READ)
        assert stage.count(B) == is_shared + READS.shared, "another platform waits for no rest"
        await stage.wait_for(A, slots)

    on_a_stage(SlowReads(patience_s=NEVER_S, wait_s=NEVER_S, longest_rest_s=0.5), act)


def test_a_caller_that_sends_one_read_after_another_has_a_slot_at_once() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(B, range(1))
        await stage.send(A, range(1), Work.READ)
        await stage.end(A, 0)

        await stage.send(A, range(1, 2), Work.READ)

        assert stage.begun[-1] == (A, 1)

    on_a_stage(SlowReads(patience_s=NEVER_S, wait_s=NEVER_S), act)


def test_a_request_that_waits_too_long_for_a_slot_is_refused() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(READS.alone + 1), Work.READ)

        with pytest.raises(TooManyInProgressError):
            await stage.tasks[A, READS.alone]

        await stage.end(A, 0)
        await stage.send(A, range(1000, 1001), Work.READ)
        assert stage.begun[-1] == (A, 1000)

    on_a_stage(FairSlots(wait_s=0.01), act)


def test_requests_that_arrive_together_are_not_refused_together() -> None:
    async def act(stage: Stage) -> None:
        began, refused_at = time.monotonic(), []
        await stage.send(A, range(READS.alone + 20), Work.READ)

        for number in range(READS.alone, READS.alone + 20):
            stage.tasks[A, number].add_done_callback(lambda _: refused_at.append(time.monotonic()))
        await asyncio.wait([stage.tasks[A, READS.alone + number] for number in range(20)])

        waited = sorted(at - began for at in refused_at)
        assert waited[0] >= 0.5  # Half of the limit at least,
        assert waited[-1] - waited[0] >= 0.1  # and all between half of it and the whole.
        for number in range(20):
            stage.tasks[A, READS.alone + number].exception()

    on_a_stage(FairSlots(wait_s=1.0), act)


def test_requests_that_are_cancelled_while_they_wait_take_no_slot() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(ALONE + 3))
        stage.tasks[A, ALONE].cancel()
        await settled()
        stage.tasks[A, 0].cancel()
        stage.tasks[A, ALONE + 1].cancel()  # Before it knows of its slot.
        await settled()

        assert stage.begun[-1] == (A, ALONE + 2)
        assert stage.count(A) == ALONE + 1

    on_a_stage(FairSlots(patience_s=NEVER_S, wait_s=NEVER_S), act)


def test_a_caller_with_too_many_requests_is_refused_and_others_are_not() -> None:
    async def act(stage: Stage) -> None:
        await stage.send(A, range(3))

        assert stage.count(A) == 2
        with pytest.raises(TooManyInProgressError):
            await stage.tasks[A, 2]
        await stage.send(A, range(3, 4), Work.READ)
        await stage.send(B, range(1))
        assert stage.begun[-2:] == [(A, 3), (B, 0)]

    on_a_stage(FairSlots(limit=2), act)
