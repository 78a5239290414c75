"""Codes on their way: nothing that ends a request ends them, and they are bounded in number."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from structlog.testing import capture_logs

from cardledger.api.http import code_deliveries
from cardledger.api.http.code_deliveries import CodeDeliveries
from cardledger.api.http.errors import ApiError
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code
from tests.waiting import limit_s

ADA, BOB = new_id(), new_id()


class Provider:
    """A provider of messages that takes codes once it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.sent: list[str] = []

    def sender(self, code: str) -> Callable[[], None]:
        def send() -> None:
            assert self.may_answer.wait(limit_s())
            self.sent.append(code)

        return send


def run(
    play: Callable[[CodeDeliveries, Provider], Awaitable[None]], *, end_s: float | None = None
) -> Provider:
    provider = Provider()

    async def act() -> None:
        deliveries = CodeDeliveries(end_s=limit_s() if end_s is None else end_s)
        try:
            await play(deliveries, provider)
        finally:
            await deliveries.close()
            provider.may_answer.set()

    asyncio.run(act())
    return provider


def is_full(deliveries: CodeDeliveries, platform_id: Id) -> bool:
    try:
        deliveries.check(platform_id)
    except ApiError as error:
        return error.code is Code.SERVICE_UNAVAILABLE
    return False


def test_a_platform_and_all_together_have_so_many_codes_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(code_deliveries, "WAITING_OF_PLATFORM", 3)
    monkeypatch.setattr(code_deliveries, "WAITING", 5)
    monkeypatch.setattr(code_deliveries, "FEW", 2)

    async def play(deliveries: CodeDeliveries, provider: Provider) -> None:
        codes = count()
        for platform_id in (ADA, ADA, ADA, BOB):
            assert not is_full(deliveries, platform_id)
            deliveries.start(platform_id, provider.sender(str(next(codes))))
        assert is_full(deliveries, ADA)
        assert not is_full(deliveries, BOB)
        deliveries.start(BOB, provider.sender(str(next(codes))))
        assert is_full(deliveries, BOB)
        assert not is_full(deliveries, new_id()), "it is not refused because of the others"

        provider.may_answer.set()
        await deliveries.close()
        assert not deliveries._waiting

    assert sorted(run(play).sent) == ["0", "1", "2", "3", "4"]


def test_a_request_that_is_given_up_loses_no_code() -> None:
    async def play(deliveries: CodeDeliveries, provider: Provider) -> None:
        async def request() -> None:
            deliveries.start(ADA, provider.sender("code"))
            await asyncio.Event().wait()

        given_up = asyncio.create_task(request())
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        provider.may_answer.set()

    assert run(play).sent == ["code"]


def test_a_provider_that_fails_stops_no_other_code_and_its_address_is_not_logged() -> None:
    def fail() -> None:
        raise ValueError("+4915112345678")

    async def play(deliveries: CodeDeliveries, provider: Provider) -> None:
        provider.may_answer.set()
        deliveries.start(ADA, fail)
        deliveries.start(ADA, provider.sender("code"))

    with capture_logs() as lines:
        assert run(play).sent == ["code"]
    [line] = [line for line in lines if line["event"] == "code not sent"]
    assert line["error"] == "ValueError"
    assert "+49" not in str(line)


def test_the_end_does_not_wait_for_a_provider_that_hangs() -> None:
    async def play(deliveries: CodeDeliveries, provider: Provider) -> None:
        deliveries.start(ADA, provider.sender("code"))

    with capture_logs() as lines:
        run(play, end_s=0.01)
    [line] = [line for line in lines if line["event"] == "codes are not sent: the process ends"]
    assert line["count"] == 1
