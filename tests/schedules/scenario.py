"""What a scenario is: messages about a cardholder, and what is decided about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cardledger.ledger.messaging.inbox import Lane
from tests.world import Cardholder, World

Message = dict[str, Any]
MakeMessage = Callable[[World, Cardholder], Message]
"""Makes a message about a cardholder, and the rows that it names."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`history` is decided undisturbed; the decision of `messages` is disturbed."""

    name: str
    messages: Sequence[MakeMessage]
    history: Sequence[MakeMessage] = ()
    balance: int = 50_000
    follow_ups: Sequence[str] = ()  # The types of the messages that the engine sends.
    outcomes: Sequence[str] = ("APPLIED",)  # Of all of these messages, as they are decided.
    lane: Lane = Lane.LIVE
    is_of_platform: bool = False  # The messages are no cardholder's.
    every: int = 2  # Of so many boundaries one is struck, but all nightly.
