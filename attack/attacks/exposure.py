"""Processes that would be unsafe on a network, started all the same."""

import asyncio
import itertools
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from attack.arena import Arena, Attack
from attack.judge import Measure, Strike
from storm.proxy import free_port
from storm.system import API, WEBHOOKS, WORKERS

_REFUSED: Final = 2
_ENDS_S: Final = 10.0
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - to be refused
_NAMED: Final = {"CARDLEDGER_FORWARDED_ALLOW_IPS": "192.0.2.1", "CARDLEDGER_SANDBOX": "false"}


@dataclass(frozen=True, slots=True)
class _Start:
    """A process with unsafe settings, and the name of what is unsafe in its refusal."""

    name: str  # Whose environment it has.
    arguments: Sequence[str]
    settings: Mapping[str, str]
    hazard: str


def _unsafe(arena: Arena) -> list[_Start]:
    remote = "postgresql://app:word@192.0.2.9:1/x"
    without = {"REDIS_URL": f"redis://{arena.stage.redis.url.rpartition('@')[2]}"}
    elsewhere = {"REDIS_URL": "redis://192.0.2.9:1/0"}
    events = ["worker", "--only", "events"]
    api = ["api", "--host", _EVERYWHERE]
    return [
        _Start(API, api, {}, "sandbox"),
        _Start(API, api, {"CARDLEDGER_SANDBOX": "false"}, "plaintext"),
        _Start(API, ["api"], {"CARDLEDGER_HOST": _EVERYWHERE}, "sandbox"),
        _Start(API, ["api", "--host", "::"], {}, "plaintext"),
        _Start(API, api, _NAMED | without, "redis-without-password"),
        _Start(API, ["api"], {"DATABASE_URL": remote}, "postgresql-unverified"),
        _Start(WORKERS[0], events, {"DATABASE_URL": remote}, "postgresql-unverified"),
        _Start(WORKERS[0], events, elsewhere, "redis-without-password"),
        _Start(WEBHOOKS, ["worker", "--only", "webhooks"], elsewhere, "redis-without-password"),
    ]


async def _unsafe_starts(arena: Arena) -> Strike:
    """Start processes with settings that are unsafe on a network; none may run or listen."""
    starts = _unsafe(arena)
    started, listening, shown = 0, 0, 0
    wrong: set[str] = set()
    arena.begin()
    for number, start in enumerate(itertools.cycle(starts)):
        # Each of them once, whatever the time is.
        if number >= len(starts) and not arena.is_on:
            break
        port = free_port()
        code, said = await _ended(arena, start, port)
        started += 1
        listening += _listens(port)
        shown += arena.stage.secret_key in said or "word@" in said
        if code != _REFUSED or f"  {start.hazard}: " not in said:
            wrong.add(f"{' '.join(start.arguments)}: {code} {said[:120]!r}")
    arena.end()
    return Strike(
        struck=started,
        proof="; ".join([f"{started} processes of {len(starts)} kinds", *sorted(wrong)[:1]]),
        measures=[
            Measure(name="kinds that were not refused", value=len(wrong), limit=0),
            Measure(name="ports that were opened", value=listening, limit=0),
            Measure(name="refusals with a secret", value=shown, limit=0),
        ],
    )


async def _ended(arena: Arena, start: _Start, port: int) -> tuple[int | None, str]:
    """Run a process; return its exit code and its messages. None: it has not ended by itself."""
    environment = arena.stage.environment(start.name) | {
        "CARDLEDGER_PORT": str(port),
        "CARDLEDGER_DATA_DIR": str(arena.stage.home / "unsafe"),
        "CARDLEDGER_ACCEPT_UNSAFE": "",
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cardledger",
        *start.arguments,
        env={**environment, **start.settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(running.communicate(), _ENDS_S)
    except TimeoutError:
        running.kill()
        await running.wait()
        return None, ""
    return running.returncode, said.decode(errors="replace")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


ATTACKS: Final = (
    Attack(
        item="B11",
        name="unsafe starts",
        aim="a process that is unsafe on a network starts, and listens or connects",
        run=_unsafe_starts,
    ),
)
