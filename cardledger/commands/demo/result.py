"""The options of a run of the demo, and its result."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cardledger.commands.demo.office import Month
from cardledger.commands.demo.restaurant_tip import Tip
from cardledger.commands.demo.traffic import Counts
from cardledger.commands.demo.verification import Verification
from cardledger.install.ready_file import Running
from cardledger.supervisor.plan import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line."""

    events: int
    seed: int
    as_json: bool
    check: bool
    keep: bool
    finance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A customer to create; amounts in minor units."""

    name: str
    cards: int
    weight: int  # How often a card is used, relative to the others.
    funds: int
    top_up: int = 0  # Deposited after every round.


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    account_id: str
    cards: tuple[str, ...]
    role: Role


@dataclass(slots=True, kw_only=True)
class Played:
    """The simulated traffic and its outcomes."""

    counts: Counts
    customers: int
    cards: int
    top_ups: int = 0
    topped_up: int = 0
    seconds: float = 0.0
    participants: Sequence[Customer] = ()


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a run."""

    options: Options
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    port_was_taken: bool = False
    running: Running | None = None
    tip: Tip | None = None
    played: Played | None = None
    verification: Verification | None = None
    month: Month | None = None
    seconds: float = 0.0

    @property
    def deviations(self) -> list[str]:
        """Differences of the tip from its expected result; only with --check."""
        return self.tip.deviations() if self.tip and self.options.check else []

    @property
    def holds(self) -> bool:
        """Whether the verification passed, or every finding of the month holds."""
        if self.month is not None:
            return self.month.holds
        return bool(self.verification and self.verification.holds and not self.deviations)
