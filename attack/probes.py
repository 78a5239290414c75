"""What a stranger sees of the API meanwhile: whether, and how soon, it answers health checks."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from attack.arena import Arena
from attack.judge import Measure
from attack.wire import Connection
from benchmarks.results.figures import quantile

WAIT_LIMIT_MS: Final = 500.0
"""What 99 of 100 health checks take at most: they wait for the event loop, and for nothing else."""

_INTERVAL_S: Final = 0.25
_TIMEOUT_S: Final = 5.0
_CHECK: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Probe:
    """The answer to a health check, and the seconds that it took."""

    status: int
    seconds: float


async def probes(
    arena: Arena, *, kept: bool = False, interval_s: float = _INTERVAL_S
) -> list[Probe]:
    """Ask whether the API is healthy, until the attack is over.

    On a connection of its own each time, or on one that is `kept`.
    """
    answers = []
    connection = Connection(arena.address, timeout_s=_TIMEOUT_S)
    try:
        while arena.is_on:
            began = time.perf_counter()
            answer = await connection.exchange(_CHECK)
            answers.append(Probe(answer.status, time.perf_counter() - began))
            if not kept:
                connection.close()
            await asyncio.sleep(interval_s)
    finally:
        connection.abort()
    return answers


def answered(found: Sequence[Probe]) -> list[Measure]:
    """Return the measures of health checks that have to be answered."""
    unhealthy = sum(probe.status != 200 for probe in found)
    return [
        Measure(name="health checks not answered", value=unhealthy, limit=0),
        Measure(name="times without health checks", value=0 if found else 1, limit=0),
    ]


def prompt(found: Sequence[Probe]) -> list[Measure]:
    """Return the measures of health checks that no other request may delay for long."""
    waits = [probe.seconds * 1000 for probe in found]
    slow = quantile(waits, 0.99) if waits else 0.0
    return [
        *answered(found),
        Measure(name="health checks, p99", value=slow, limit=WAIT_LIMIT_MS, unit="ms"),
    ]
