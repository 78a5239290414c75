"""One run from its beginning to its report."""

import asyncio
import platform
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from redis import RedisError

from attack import judge
from attack.arena import Arena, Attack, Party, Stage, admit, new_party, yield_processor
from attack.attacks import (
    connections,
    console,
    credentials,
    database,
    exposure,
    floods,
    guesses,
    logins,
    pages,
    promises,
    reach,
    store,
    unfinished,
    uploads,
    webhooks,
)
from attack.judge import Figures, Finding, Measure, Strike
from attack.measures import Memory, rows
from attack.report import Report
from attack.victim import Plan, Victim
from cardledger.api import BASE_PATH
from cardledger.config import open_files
from cardledger.embedded import directories
from cardledger.embedded.child_server import ServerError
from storm.run import logs_in
from storm.system import wait_until

_MODULES: Final = (
    webhooks,
    floods,
    uploads,
    console,
    promises,
    connections,
    unfinished,
    guesses,
    credentials,
    reach,
    pages,
    exposure,
    database,
    logins,
    store,
)

ATTACKS: Final = {attack.name: attack for module in _MODULES for attack in module.ATTACKS}
"""By name, in the order in which they are played."""

RATE: Final = 20.0
"""Authorizations of the other platform a second."""

_CARDHOLDERS: Final = 16
_WARM_UP_S: Final = 3.0
_PREPARE_S: Final = 120.0
"""How long an attack may take beyond its time, to prepare itself and to get its last answers."""

_COMPLETE_S: Final = 25.0
_SETTLE_S: Final = 60.0
_POLL_S: Final = 0.2
_FAILURES: Final = (
    psycopg.Error,
    RedisError,
    ServerError,
    TimeoutError,
    OSError,
    RuntimeError,
    LookupError,  # A resource without the field that the attack needs.
)
"""What keeps an attack from being played to its end, and not those after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a run is made of."""

    seconds: float = 60.0  # Of each attack.
    redis_seconds: float = 300.0  # Of those that end the system.
    quiet_seconds: float = 10.0  # Before each attack.
    rate: float = RATE
    names: Sequence[str] = tuple(ATTACKS)
    home: Path | None = None  # Kept; else a temporary directory.

    @property
    def command(self) -> str:
        """The command that does the same again."""
        words = [f"--seconds {self.seconds:g}", f"--redis-seconds {self.redis_seconds:g}"]
        if self.rate != RATE:
            words.append(f"--rate {self.rate:g}")
        if len(self.names) < len(ATTACKS):
            words += [f'--only "{name}"' for name in self.names]
        return f"make attack ARGS='{' '.join(words)}'"


def run(options: Options, *, progress: bool = False) -> Report:
    """Play the attacks and return the report.

    Raises: CommandError, ServerError, TimeoutError when the system does not start.
    """
    home = options.home or directories.temporary("cardledger-attack-")
    open_files.raise_limit()
    try:
        with logs_in(home / "attack.log"), Stage(home) as stage:
            stage.start_and_wait()
            assert stage.sandbox is not None
            party = admit(stage, stage.sandbox.access, _CARDHOLDERS)
            plan = Plan(
                host="127.0.0.1",
                port=stage.port,
                base=BASE_PATH,
                authorization=party.authorization,
                cards=party.cards,
                rate=options.rate,
            )
            with Victim(plan) as victim, Memory() as memory:
                return _Run(options, stage, party, victim, memory, progress=progress).report()
    finally:
        if options.home is None:
            shutil.rmtree(home, ignore_errors=True)


class _Run:
    def __init__(  # noqa: PLR0913 - the parts of a run
        self,
        options: Options,
        stage: Stage,
        party: Party,
        victim: Victim,
        memory: Memory,
        *,
        progress: bool,
    ) -> None:
        self._options: Final = options
        self._stage: Final = stage
        self._party: Final = party
        self._victim: Final = victim
        self._memory: Final = memory
        self._progress: Final = progress
        self._pause: Final = threading.Event()
        self._quiet: Final[list[Figures]] = []
        self._played: Final[list[_Played]] = []

    def report(self) -> Report:
        attacks = sorted(
            (ATTACKS[name] for name in self._options.names), key=lambda one: one.ends_system
        )
        wait_until(lambda: self._victim.samples, "the other platform has an answer")
        self._pause.wait(_WARM_UP_S)
        for attack in attacks:
            self._settle()
            self._be_quiet()
            self._played.append(self._play(attack))
        quiet_ms = judge.quiet_p99_ms(self._quiet)
        return Report(
            command=self._options.command,
            about=f"{platform.machine()}, Python {platform.python_version()},"
            f" {self._stage.postgres.origin}, {self._stage.redis.origin}",
            quiet_p50_ms=sorted(window.p50_ms for window in self._quiet)[len(self._quiet) // 2],
            quiet_p99_ms=quiet_ms,
            findings=[played.finding(quiet_ms) for played in self._played],
        )

    # --- one attack ------------------------------------------------------------------------------

    def _be_quiet(self) -> None:
        """Take the figures of a time without an attack."""
        began = time.time()
        self._pause.wait(self._options.quiet_seconds)
        ended = time.time()
        window = self._figures(began, ended)
        self._quiet.append(window)
        self._tell(f"quiet: p50 {window.p50_ms:.1f} ms, p99 {window.p99_ms:.1f} ms")

    def _play(self, attack: Attack) -> "_Played":
        self._tell(f"{attack.name}: {attack.aim}")
        pids = self._stage.pids_without_redis if attack.ends_system else self._stage.pids
        before_mb = self._memory.restart(pids)
        lives = self._stage.lives()
        strike, error = Strike(struck=0, proof="it did not begin"), None
        try:
            attacker = new_party(self._stage, attack.name, _CARDHOLDERS)
        except _FAILURES as failure:
            return _not_played(attack, f"{type(failure).__name__}: {failure}")
        seconds = self._options.redis_seconds if attack.ends_system else self._options.seconds
        arena = Arena(self._stage, attacker, self._party, seconds)
        try:
            strike = _in_thread(attack, arena)
        except _FAILURES as failure:
            error = f"{type(failure).__name__}: {failure}"
        if not arena.ended:
            arena.end()
        during_mb = self._memory.largest_mb()
        victim = self._figures(arena.began, arena.ended)
        self._tell(f"{attack.name}: the other platform got {victim.answers}")
        ended = judge.of_processes(lives, self._stage.lives())
        measures = [*strike.measures, judge.of_memory(before_mb, during_mb), ended]
        with self._stage.connect() as connection:
            measures += rows(connection, attacker.platform_id)
        if attack.ends_system:
            measures.append(self._compared())
        return _Played(
            attack=attack,
            seconds=arena.ended - arena.began if arena.began else 0.0,
            strike=strike,
            victim=victim,
            measures=measures,
            error=error,
        )

    def _compared(self) -> Measure:
        """Compare every answer of the whole run with the record."""
        differing = store.differing(self._stage, self._victim.samples)
        for line in differing[:5]:
            self._tell(line)
        return Measure(name="answers that differ from the record", value=len(differing), limit=0)

    def _figures(self, began: float, ended: float) -> Figures:
        """Return the figures of the samples that were due in this time, answered or given up."""
        wanted = judge.due(self._options.rate, began, ended)
        deadline = time.monotonic() + _COMPLETE_S
        while len(self._victim.between(began, ended)) < wanted and time.monotonic() < deadline:
            self._pause.wait(_POLL_S)
        return judge.figures(self._victim.between(began, ended), wanted=wanted)

    def _settle(self) -> None:
        """Wait, for some time at most, until what an attack has left behind is worked off."""
        deadline = time.monotonic() + _SETTLE_S
        with self._stage.connect() as connection:
            while time.monotonic() < deadline:
                found = connection.execute(
                    "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM inbox)"
                ).fetchone()
                if found is not None and found[0] < self._options.rate:
                    return
                self._pause.wait(_POLL_S)

    def _tell(self, line: str) -> None:
        if self._progress:
            print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """An attack after it, before the quiet times of the whole run are known."""

    attack: Attack
    seconds: float
    strike: Strike
    victim: Figures
    measures: Sequence[Measure]
    error: str | None

    def finding(self, quiet_ms: float) -> Finding:
        of_victim = (
            judge.of_victim(self.victim, quiet_ms, longest_ms=self.attack.longest_ms)
            if self.seconds  # Else it did not begin.
            else []
        )
        return Finding(
            item=self.attack.item,
            name=self.attack.name,
            aim=self.attack.aim,
            seconds=self.seconds,
            struck=self.strike.struck,
            proof=self.strike.proof,
            measures=[*of_victim, *self.measures],
            error=self.error,
        )


def _not_played(attack: Attack, error: str) -> _Played:
    return _Played(
        attack=attack,
        seconds=0.0,
        strike=Strike(struck=0, proof="it did not begin"),
        victim=judge.figures([]),
        measures=[],
        error=error,
    )


def _in_thread(attack: Attack, arena: Arena) -> Strike:
    """Play `attack` in a thread of low priority.

    Raises: TimeoutError when it takes much longer than it should; what it raises.
    """

    async def play() -> Strike:
        try:
            async with asyncio.timeout(arena.seconds + _PREPARE_S):
                return await attack.run(arena)
        finally:
            arena.close()

    def in_thread() -> Strike:
        yield_processor()
        return asyncio.run(play())

    with ThreadPoolExecutor(1, thread_name_prefix="attack") as pool:
        return pool.submit(in_thread).result()
