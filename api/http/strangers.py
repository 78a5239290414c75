"""Callers without credentials: few are served at a time, and those of one address take turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from cardledger.api.addresses import counted_as
from cardledger.api.http.in_flight import Turn, Turns

AT_ONCE: Final = 4
"""Strangers who look something up at a time in this process: each holds a connection."""

AT_AN_ADDRESS: Final = 2

MISS_S: Final = 0.05
"""How much longer an address keeps its turn after a miss.

Guesses would otherwise come as fast as their connections allow, and each takes time of the event
loop.
"""


@dataclass(slots=True)
class LookUp:
    """What a stranger looks up, and whether there was nothing."""

    is_miss: bool = False


def turns_of(what: str, address: str) -> tuple[Turn, ...]:
    """Return the turns that a stranger at `address` waits for, the last of which is everyone's.

    Behind a Unix socket no address is known: all of them share one turn.
    """
    counted, everyone = counted_as(address), Turn(what, AT_ONCE)
    return (Turn(f"{what} at {counted}", AT_AN_ADDRESS), everyone) if counted else (everyone,)


@asynccontextmanager
async def looking_up(turns: Turns, what: str, address: str) -> AsyncIterator[LookUp]:
    """Have the block take the turns of a stranger; as many wait as have a connection.

    After a miss only their address waits: others have the common turn at once.
    """
    look_up = LookUp()
    *own, everyone = turns_of(what, address)
    async with AsyncExitStack() as held:
        for turn in own:
            await held.enter_async_context(turns.take(turn, may_refuse=False))
        async with turns.take(everyone, may_refuse=False):
            yield look_up
        if look_up.is_miss:
            await asyncio.sleep(MISS_S)
