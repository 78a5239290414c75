"""Values of a sandbox that choose what issuer and funding rail answer (docs/sandbox.md)."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxValue:
    """The last three characters of a value, and what they lead to."""

    ending: str
    effect: str


MERCHANTS: Final = (
    SandboxValue(ending="002", effect="Declined: INSUFFICIENT_FUNDS."),
    SandboxValue(ending="003", effect="Declined: CARD_PAUSED."),
    SandboxValue(ending="005", effect="Approved; the pull is confirmed after the sandbox delay."),
    SandboxValue(ending="006", effect="Approved; the pull fails after the delay: EXCEPTION."),
)
"""Endings of the merchant's descriptor, of an authorization."""

CARDS: Final = (
    SandboxValue(ending="001", effect="The issuer never answers: the card stays PROCESSING."),
    SandboxValue(ending="002", effect="The issuer rejects the card: CLOSED."),
    SandboxValue(ending="005", effect="The card is ACTIVE after the sandbox delay."),
)
"""Endings of `platformCardId`."""

CUSTOMERS: Final = (
    SandboxValue(ending="001", effect="The customer is PENDING and gets no card; it is shown."),
    SandboxValue(ending="002", effect="The customer is REJECTED and gets no card; it is shown."),
    SandboxValue(ending="003", effect="The customer is UNVERIFIED and gets no card; it is shown."),
)
"""Endings of a customer's `fullName`."""
