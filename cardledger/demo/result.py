"""What a run of the demo is asked for, and what it has to show."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cardledger.demo.crowd import Counts
from cardledger.demo.proof import Proof
from cardledger.demo.story import Story
from cardledger.install.ready_file import Running
from cardledger.supervisor.system import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for on the command line."""

    events: int
    seed: int
    as_json: bool
    check: bool
    keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A customer to be; amounts in minor units."""

    name: str
    cards: int
    use: int  # How often a card is used, compared with the others.
    funds: int
    top_up: int = 0  # What arrives after every round.


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    account_id: str
    cards: tuple[str, ...]
    role: Role


@dataclass(slots=True, kw_only=True)
class Played:
    """How the crowd went."""

    counts: Counts
    customers: int
    cards: int
    top_ups: int = 0
    topped_up: int = 0
    seconds: float = 0.0
    cast: Sequence[Customer] = ()


@dataclass(slots=True, kw_only=True)
class Result:
    """Everything that a run has to show."""

    options: Options
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    port_was_taken: bool = False
    running: Running | None = None
    story: Story | None = None
    played: Played | None = None
    proof: Proof | None = None
    seconds: float = 0.0

    @property
    def surprises(self) -> list[str]:
        """What the story does not do as it must; looked at with --check."""
        return self.story.surprises() if self.story and self.options.check else []

    @property
    def holds(self) -> bool:
        """Whether the run proves what it is meant to prove."""
        return bool(self.proof and self.proof.holds and not self.surprises)
