"""What a fault is: it strikes, lasts, ends, and proves that it struck."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from storm.system import WORKERS, System

_SAMPLE_S: Final = 0.03


class DidNotStrikeError(Exception):
    """The fault ran, and nothing shows that anything noticed it."""


class SkippedError(Exception):
    """The fault cannot be made on this machine; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault that struck: when, and what proves it."""

    kind: str
    began: float
    ended: float
    proof: str
    is_crash: bool  # What is down from the first moment on recovers from that moment on.

    @property
    def recovers_from(self) -> float:
        """The moment from which recovery counts."""
        return self.began if self.is_crash else self.ended


class Arena:
    """What a fault may use."""

    def __init__(self, system: System, seed: int) -> None:
        """Choose targets and durations by `seed`."""
        self.system: Final = system
        self.chance: Final = random.Random(seed)
        self._stopping: Final = threading.Event()
        self.struck_at = 0.0

    def worker(self) -> str:
        """Choose a worker that decides events."""
        return self.chance.choice(WORKERS)

    def pause(self, least_s: float, most_s: float | None = None) -> float:
        """Let the fault last; return for how long."""
        seconds = least_s if most_s is None else self.chance.uniform(least_s, most_s)
        self._stopping.wait(seconds)
        return seconds

    def struck(self) -> None:
        """Note the moment of the strike, which may be later than the start of the fault."""
        self.struck_at = time.time()

    def watch(
        self, connection: psycopg.Connection[Any], query: str, seconds: float, *parameters: object
    ) -> int:
        """Ask `query` for a number again and again for `seconds`; return the largest."""
        most = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            row = connection.execute(query.encode(), parameters or None).fetchone()
            most = max(most, int(row[0]) if row else 0)
            self._stopping.wait(_SAMPLE_S)
        return most

    def wait_for(self, condition: Callable[[], object], seconds: float) -> bool:
        """Return whether `condition` became true within `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._stopping.wait(_SAMPLE_S)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A kind of fault; `strike` runs it from its beginning to its end and returns the proof.

    Raises: DidNotStrikeError, SkippedError.
    """

    kind: str
    strike: Callable[[Arena], str]
    is_crash: bool = False


def struck_if(condition: object, proof: str) -> str:
    """Return `proof`.

    Raises: DidNotStrikeError unless `condition` holds.
    """
    if not condition:
        raise DidNotStrikeError(proof)
    return proof
