"""Simulated network traffic, the same for the same seed: purchases and everything that goes wrong.

Events are submitted in rounds. A declined purchase is mostly not cleared, so the next events
depend on the outcomes; the outcomes depend only on the order of events, because deposits arrive
between rounds. So the seed determines everything but the identifiers.
"""

import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, assert_never

from cardledger.schema.wire.outcomes import Outcome, OutcomeType

_RESENT: Final = 0.05  # Fraction of events that the network sends twice.
_AMOUNT_MIN: Final = 250
_AMOUNT_MAX: Final = 12_000
_FORCE_POST_AFTER_DECLINE: Final = 0.15

_MERCHANTS: Final = (
    ("BLUE BOTTLE OAKLAND", "5814", "US"),
    ("CHEZ ROUX PARIS", "5812", "FR"),
    ("TRADER JOES 541", "5411", "US"),
    ("SHELL OIL 5744", "5541", "US"),
    ("KINOKUNIYA BOOKS", "5942", "US"),
    ("HOTEL ADLON BERLIN", "7011", "DE"),
    ("CITY TAXI 88", "4121", "US"),
    ("LUFTHANSA WEB", "4511", "DE"),
)
# The last three characters make the sandbox decline.
_DECLINING: Final = (("CORNER SHOP-002", "5411", "US"), ("CORNER SHOP-003", "5411", "US"))


class Kind(Enum):
    """The course of a purchase."""

    EXACT = "cleared as authorized"
    TIP = "cleared above"
    SHORT = "cleared below"
    PARTIAL = "cleared in parts"
    OPEN = "not cleared yet"
    FORCED = "force-posted"
    EARLY = "cleared before its authorization"
    LARGE = "above the balance"
    DECLINED = "declined by suffix"


_WEIGHTS: Final = {
    Kind.EXACT: 36,
    Kind.TIP: 24,
    Kind.SHORT: 8,
    Kind.PARTIAL: 12,
    Kind.OPEN: 6,
    Kind.FORCED: 5,
    Kind.EARLY: 3,
    Kind.LARGE: 3,
    Kind.DECLINED: 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardInUse:
    """A card that makes purchases."""

    card_id: str
    weight: int  # How often it is used, relative to the others.


@dataclass(slots=True)
class _Purchase:
    token: str
    card_id: str
    kind: Kind
    merchant: tuple[str, str, str]
    upcoming: deque[dict[str, Any]] = field(default_factory=deque)
    was_declined: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """An event of a round, and whether the network sends it for the second time."""

    event: dict[str, Any]
    is_resent: bool
    purchase: _Purchase


@dataclass(slots=True)
class Counts:
    """The outcomes so far."""

    sent: int = 0
    sent_again: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    declined: Counter[str] = field(default_factory=Counter)
    exceptions: set[str] = field(default_factory=set)  # Card transactions with this status ever.
    post_hoc: set[str] = field(default_factory=set)  # Those with more than one pull.
    force_posted: int = 0
    duplicates_ignored: int = 0


class Traffic:
    """Generates rounds of events for cards, and counts their outcomes."""

    def __init__(self, seed: int, events: int, cards: Sequence[CardInUse], *, run_id: str) -> None:
        """`run_id` keeps the references of two runs in one database apart."""
        self.counts: Final = Counts()
        self._random: Final = random.Random(seed)  # noqa: S311 - the same traffic for the same seed.
        self._remaining = events
        self._cards: Final = cards
        self._weights: Final = [card.weight for card in cards]
        self._run_id: Final = run_id
        self._purchases = 0
        self._references = 0
        self._open: list[_Purchase] = []
        self._to_resend: deque[Sent] = deque()

    def next_round(self, size: int) -> list[Sent]:
        """Return about `size` events in the order to submit them; none at the end."""
        events: list[Sent] = []
        while self._remaining and len(events) < size:
            purchase = self._pick()
            events.append(Sent(purchase.upcoming.popleft(), is_resent=False, purchase=purchase))
            if not purchase.upcoming:
                self._open.remove(purchase)
            self._remaining -= 1
            if self._random.random() < _RESENT:
                self._to_resend.append(Sent(events[-1].event, is_resent=True, purchase=purchase))
            if self._to_resend and self._random.random() < 2 * _RESENT:
                events.append(self._to_resend.popleft())
        if not self._remaining:
            events += self._to_resend
            self._to_resend.clear()
        return events

    def record_outcomes(self, sent: Iterable[Sent], outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes of a round; drop what a merchant does not clear after a decline."""
        for event, outcome in zip(sent, outcomes, strict=True):
            self._count(event, outcome)
            if outcome.outcome is OutcomeType.DECLINED:
                self._after_decline(event.purchase)

    def _pick(self) -> _Purchase:
        if self._open and (len(self._open) > 60 or self._random.random() < 0.5):  # noqa: PLR2004
            # An older one more often: clearings come later than authorizations.
            return self._open[int(self._random.random() ** 2 * len(self._open))]
        purchase = self._new_purchase()
        self._open.append(purchase)
        return purchase

    def _new_purchase(self) -> _Purchase:
        self._purchases += 1
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        merchants = _DECLINING if kind is Kind.DECLINED else _MERCHANTS
        purchase = _Purchase(
            token=f"demo-{self._run_id}-{self._purchases}",
            card_id=self._random.choices(self._cards, self._weights)[0].card_id,
            kind=kind,
            merchant=self._random.choice(merchants),
        )
        amount = int(_AMOUNT_MIN * (_AMOUNT_MAX / _AMOUNT_MIN) ** self._random.random())
        purchase.upcoming.extend(self._events(purchase, amount))
        return purchase

    def _events(self, purchase: _Purchase, amount: int) -> Iterable[dict[str, Any]]:
        authorization = {"type": "AUTHORIZATION", "amount": amount}
        match purchase.kind:
            case Kind.EXACT:
                steps = [authorization, _clearing(amount)]
            case Kind.TIP:
                steps = [
                    authorization,
                    _clearing(amount + amount * self._random.randint(5, 25) // 100),
                ]
            case Kind.SHORT:
                steps = [authorization, _clearing(amount * 7 // 10, final=True)]
            case Kind.PARTIAL:
                first = amount * self._random.randint(20, 60) // 100
                rest = amount - first
                steps = [
                    authorization,
                    _clearing(first, final=False),
                    _clearing(rest, final=self._random.random() < 0.8),  # noqa: PLR2004
                ]
            case Kind.OPEN | Kind.DECLINED:
                steps = [authorization]
            case Kind.FORCED:
                steps = [_clearing(amount, final=True)]
            case Kind.EARLY:
                steps = [_clearing(amount, final=True), authorization]
            case Kind.LARGE:
                steps = [{"type": "AUTHORIZATION", "amount": amount * 100_000}]
            case _:
                assert_never(purchase.kind)
        for event in steps:
            yield self._addressed(purchase, event)

    def _addressed(self, purchase: _Purchase, event: dict[str, Any]) -> dict[str, Any]:
        self._references += 1
        descriptor, mcc, country = purchase.merchant
        return {
            "source": "demo-network",
            "reference": f"{self._run_id}-{self._references}",
            "issuerTransactionToken": purchase.token,
            "cardId": purchase.card_id,
            "currency": "USD",
            "merchant": {"descriptor": descriptor, "mcc": mcc, "country": country},
            **event,
        }

    def _after_decline(self, purchase: _Purchase) -> None:
        purchase.was_declined = True
        if purchase in self._open and self._random.random() > _FORCE_POST_AFTER_DECLINE:
            purchase.upcoming.clear()
            self._open.remove(purchase)

    def _count(self, sent: Sent, outcome: Outcome) -> None:
        counts, card_transaction = self.counts, outcome.card_transaction
        counts.outcomes[outcome.outcome] += 1
        if sent.is_resent:
            counts.sent_again += 1
            counts.duplicates_ignored += outcome.outcome is OutcomeType.DUPLICATE
            return
        counts.sent += 1
        if outcome.outcome is OutcomeType.DECLINED:
            counts.declined[str(outcome.reason)] += 1
        if card_transaction is None:
            return
        public_id = str(card_transaction.id)
        if card_transaction.status == "EXCEPTION":
            counts.exceptions.add(public_id)
        if card_transaction.pull_summary.count > 1:
            counts.post_hoc.add(public_id)
        is_unapproved = sent.purchase.kind is Kind.FORCED or sent.purchase.was_declined
        counts.force_posted += is_unapproved and sent.event["type"] == "CLEARING"


def _clearing(amount: int, *, final: bool | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "CLEARING", "amount": max(amount, 1)}
    return event if final is None else event | {"final": final}
