"""Which fault strikes when, and which kinds have struck so far."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import psycopg
from redis import RedisError

from cardledger.embedded.child_server import ServerError
from storm.faults.arena import Arena, DidNotStrikeError, Fault, SkippedError, Strike

FAULT_S: Final = 6.5
"""About how long a fault lasts, with the recovery after it, in seconds."""

NOT_REACHED: Final = "the run ended before its turn"

_SEEDS: Final = 10  # Runs of so many consecutive seeds begin with all kinds, some in each run.
_ATTEMPTS: Final = 3  # Of a fault to strike; between two of them the load has gone on.
_CALM_S: Final = (1.5, 3.0)  # Between two faults, for the recovery from the first.
_AGAIN_S: Final = 0.5  # Between two attempts.


def minutes_for(count: int) -> float:
    """Return how many minutes a run needs until each of `count` kinds has had its turn."""
    return count * FAULT_S / 60


def round_of(kinds: Sequence[str], seed: int, chance: random.Random) -> list[str]:
    """Return `kinds` in a random order, with a few first that depend on `seed`.

    Each kind is among the first ones of one of any ten consecutive seeds. So ten short runs strike
    with every kind together, though each has no time for all of them.
    """
    first = list(kinds[seed % _SEEDS :: _SEEDS])
    rest = [kind for kind in kinds if kind not in first]
    chance.shuffle(first)
    chance.shuffle(rest)
    return [*first, *rest]


class Campaign:
    """Strikes with one kind of fault after the other, in rounds."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        faults: Iterable[Fault],
        arena: Arena,
        *,
        seed: int,
        report: Callable[[str], None],
        calm_s: tuple[float, float] = _CALM_S,
        again_s: float = _AGAIN_S,
    ) -> None:
        """Strike in `arena`, in an order that `seed` gives; `report` is called for each strike."""
        self._faults: Final = {fault.kind: fault for fault in faults}
        self._arena: Final = arena
        self._seed: Final = seed
        self._chance: Final = random.Random(seed)
        self._report: Final = report
        self._calm_s: Final = calm_s
        self._again_s: Final = again_s
        self._pause: Final = threading.Event()
        self.strikes: Final[list[Strike]] = []
        self.not_struck: Final = dict.fromkeys(self._faults, NOT_REACHED)
        """Every kind that was wanted and has not struck, and why."""
        self.skipped: Final[dict[str, str]] = {}
        """Every kind that cannot be made on this machine, and why."""

    def strike_for(self, seconds: float, check: Callable[[], None]) -> None:
        """Strike until `seconds` are over; `check` is called before each fault."""
        deadline = time.monotonic() + seconds
        self._pause.wait(self._calm_s[0])
        while len(self.skipped) < len(self._faults):
            for kind in self._next_round():
                if time.monotonic() > deadline:
                    return
                check()
                self._strike(self._faults[kind])
                self._pause.wait(self._chance.uniform(*self._calm_s))

    def _next_round(self) -> list[str]:
        """Return the kinds of a round: those first that have not struck in an earlier one."""
        kinds = [kind for kind in self._faults if kind not in self.skipped]
        order = round_of(kinds, self._seed, self._chance)
        return sorted(order, key=lambda kind: kind not in self.not_struck)

    def _strike(self, fault: Fault) -> None:
        for _ in range(_ATTEMPTS):
            self._arena.struck()
            try:
                proof = fault.strike(self._arena)
            except SkippedError as reason:
                self.skipped[fault.kind] = str(reason)
                self.not_struck.pop(fault.kind, None)
                return
            except DidNotStrikeError as why:
                if not any(strike.kind == fault.kind for strike in self.strikes):
                    self.not_struck[fault.kind] = str(why)
                self._pause.wait(self._again_s)
                continue
            except (psycopg.Error, RedisError, ServerError, TimeoutError) as error:
                self.not_struck[fault.kind] = f"{type(error).__name__}: {error}"
                self._arena.system.restore_servers()
                continue
            self.not_struck.pop(fault.kind, None)
            self.strikes.append(
                Strike(
                    kind=fault.kind,
                    began=self._arena.struck_at,
                    ended=time.time(),
                    proof=proof,
                    is_crash=fault.is_crash,
                )
            )
            self._report(f"{fault.kind}: {proof}")
            return
