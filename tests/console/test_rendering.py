"""A page is rendered between the turns of other requests."""

import asyncio
from collections.abc import Iterator
from itertools import count
from time import perf_counter

from cardledger.api.console.html import rendering

PARTS = 5


def slow_parts() -> Iterator[str]:
    for number in range(PARTS):
        end = perf_counter() + 2 * rendering._TURN_S
        while perf_counter() < end:
            pass
        yield str(number)


def test_other_requests_go_on_while_a_long_page_is_rendered() -> None:
    async def render() -> tuple[str, int]:
        turns = count()

        async def others() -> None:
            while True:
                next(turns)
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        text = await rendering._in_turns(slow_parts())
        other.cancel()
        return text, next(turns)

    text, turns = asyncio.run(render())

    assert text == "01234"
    assert turns >= PARTS
