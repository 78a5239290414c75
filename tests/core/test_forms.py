"""Forms are parsed between the turns of other requests."""

import asyncio

import pytest

from cardledger.api.uploads.forms import LoopTurn


@pytest.mark.parametrize(("piece_ms", "turns"), [(0.25, 25), (1, 100), (3, 100)])
def test_other_requests_have_their_turn_after_a_millisecond(piece_ms: float, turns: int) -> None:
    now_ms = others = 0.0

    async def parse() -> None:
        nonlocal now_ms
        turn = LoopTurn(lambda: now_ms / 1_000)
        for _ in range(100):
            now_ms += piece_ms
            await turn.end_if_long()

    async def run() -> None:
        nonlocal others
        parsing = asyncio.create_task(parse())
        await asyncio.sleep(0)
        while not parsing.done():
            others += 1
            await asyncio.sleep(0)

    asyncio.run(run())

    # The clock is one of floats.
    assert others == pytest.approx(turns, rel=0.3)
