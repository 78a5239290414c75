"""A connection whose request was refused is read until its client is silent, and then closed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cardledger.api.connections.lingering import Lingering

LIMIT = 1_000
LONGEST_S = 30.0


@dataclass
class World:
    """A connection, its registry and the clock of its event loop."""

    discard_s: float = 0.04
    now: float = 0.0
    is_closed: bool = False
    is_paused: bool = False
    timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = SimpleNamespace(
            discarding=0,
            discard_s=self.discard_s,
            is_ending=False,
            limits=SimpleNamespace(body_timeout_s=LONGEST_S),
        )
        self.lingering = Lingering(
            cast("Any", self), cast("Any", self), cast("Any", self.registry), cast("Any", self),
            size_limit=LIMIT,
        )  # fmt: skip

    # --- as its transport, its flow and its loop ---------------------------------------------

    def is_closing(self) -> bool:
        return self.is_closed

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    @property
    def read_paused(self) -> bool:
        return self.is_paused

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., None], *values: object) -> None:
        self.timers.append((self.now + seconds, call, values))

    # --- what happens ------------------------------------------------------------------------

    def pass_until(self, end: float, *, sends: bool = False) -> None:
        """Let time pass; a client that `sends` has more bytes whenever it is read."""
        while True:
            if sends and not self.is_paused and not self.is_closed:
                self.lingering.discard(1)
            self.timers.sort(key=lambda timer: timer[0])
            if not self.timers or self.timers[0][0] > end:
                break
            self.now, call, values = self.timers.pop(0)
            call(*values)
        self.now = end


def test_a_silent_client_is_given_a_second() -> None:
    world = World()

    world.pass_until(0.9)
    assert not world.is_closed
    world.pass_until(1.0)

    assert world.is_closed


@pytest.mark.parametrize("discard_s", [0.04, 2.5])
def test_a_client_that_sends_is_read_for_as_long_as_a_body_may_take(discard_s: float) -> None:
    world = World(discard_s)

    world.pass_until(LONGEST_S - 1, sends=True)
    assert not world.is_closed, "what is read seldom is not silent"
    world.pass_until(LONGEST_S + 1, sends=True)

    assert world.is_closed


def test_a_client_that_stops_sending_is_closed_soon() -> None:
    world = World()

    world.pass_until(5.0, sends=True)
    world.pass_until(7.5)

    assert world.is_closed


def test_more_than_the_limit_is_not_read() -> None:
    world = World()

    world.lingering.discard(LIMIT + 1)
    world.pass_until(0.9)
    assert world.is_paused
    world.pass_until(1.0)

    assert world.is_closed


def test_a_server_that_ends_waits_for_no_client_that_sends() -> None:
    world = World()

    world.registry.is_ending = True
    world.pass_until(1.0, sends=True)

    assert world.is_closed


def test_it_counts_until_the_connection_is_lost() -> None:
    world = World()
    assert world.registry.discarding == 1

    world.lingering.end()
    world.lingering.end()

    assert world.registry.discarding == 0
