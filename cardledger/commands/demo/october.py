"""The events of October 2026 for `demo --finance`: the same every time, each with its dates.

Three cardholders: Ada buys groceries on every business day, Grace has dinner three times a week and
leaves a tip, Charles buys a tool that costs more than he has. The network settles each purchase on
the next business day.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

FIRST_DAY: Final = date(2026, 10, 1)
LAST_DAY: Final = date(2026, 10, 31)
DAY: Final = timedelta(days=1)

NETWORK: Final = "VISA"
SOURCE: Final = "processor"

LATE_SETTLEMENT_DATE: Final = date(2026, 10, 30)
FUNDED_AT: Final = "2026-10-01T09:00:00Z"

_INTERCHANGE_PER_MILLE: Final = 15
_DINNER_WEEKDAYS: Final = {1, 3, 5}
_TOOL_BOUGHT_ON: Final = date(2026, 10, 20)
_MALFORMED_ON: Final = date(2026, 10, 22)
_REFUNDED_ON: Final = date(2026, 10, 15)

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardholder:
    """A customer to create; `funds` arrive on the first day, in minor units."""

    name: str
    funds: int


ADA: Final = Cardholder(name="Ada Lovelace", funds=300_000)
GRACE: Final = Cardholder(name="Grace Hopper", funds=150_000)
CHARLES: Final = Cardholder(name="Charles Babbage", funds=6_000)
CARDHOLDERS: Final = (ADA, GRACE, CHARLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The public ids of the cards, one for each cardholder."""

    ada: str
    grace: str
    charles: str


def business_days(first: date, last: date) -> list[date]:
    """Return the days from Monday to Friday between two dates, both included."""
    days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
    return [day for day in days if day.isoweekday() <= 5]  # noqa: PLR2004 - Friday


def events(cards: Cards) -> list[Event]:
    """Return the purchases of October in the order of their days, without the malformed event."""
    days = business_days(FIRST_DAY, LAST_DAY + 2 * DAY)
    found = [event for day, then in pairwise(days) for event in _of_day(cards, day, then)]
    return sorted(found, key=itemgetter("occurredAt"))


def malformed(cards: Cards) -> Event:
    """Return a clearing of Ada's groceries with the name of a category in place of its code."""
    return {
        **corrected(cards),
        "merchant": {"descriptor": "GREEN GROCER", "mcc": "food", "country": "US"},
    }


def corrected(cards: Cards) -> Event:
    """Return the same clearing as its sender repeats it."""
    return clearing(cards.ada, "grocer-late-slip", 4_250, _MALFORMED_ON, "GREEN GROCER")


def late_fact(cards: Cards) -> Event:
    """Return a clearing of a day in October, for after the close."""
    return clearing(cards.ada, "fuel", 2_500, LATE_SETTLEMENT_DATE, "FILL AND GO")


def _of_day(cards: Cards, day: date, next_day: date) -> Iterator[Event]:
    yield from _purchase(
        cards.ada, f"groceries-{day}", 2_310 + 10 * day.day, 0, day, next_day, "GREEN GROCER"
    )
    if day.isoweekday() in _DINNER_WEEKDAYS:
        yield from _purchase(cards.grace, f"dinner-{day}", 4_000, 600, day, next_day, "CHEZ ROUX")
    if day == _REFUNDED_ON:
        refunded = business_days(FIRST_DAY, day)[-2]
        yield _settled("RETURN", cards.grace, f"dinner-{refunded}", 4_600, day, "CHEZ ROUX")
    if day == _TOOL_BOUGHT_ON:
        yield from _purchase(cards.charles, "tool", 5_500, 3_400, day, next_day, "TOOLS AND SONS")


def _purchase(  # noqa: PLR0913, PLR0917 - a purchase
    card: str, token: str, amount: int, tip: int, day: date, next_day: date, merchant: str
) -> Iterator[Event]:
    """Yield an authorization and its clearing, which is `tip` more than was authorized."""
    yield {
        **_event("AUTHORIZATION", card, token, amount, merchant),
        "occurredAt": _at(day, time(18, 30)),
    }
    yield clearing(card, token, amount + tip, next_day, merchant)


def clearing(card: str, token: str, amount: int, day: date, merchant: str) -> Event:
    """Return a clearing that the network settles on `day`, with its interchange."""
    event = _settled("CLEARING", card, token, amount, day, merchant)
    # Per mille of minor units, written in major units: exact in five places.
    earned = amount * _INTERCHANGE_PER_MILLE
    event["settlement"]["interchange"] = f"{earned // 100_000}.{earned % 100_000:05}"
    return event


def _settled(  # noqa: PLR0913, PLR0917 - an event that the network settles
    kind: str, card: str, token: str, amount: int, day: date, merchant: str
) -> Event:
    return {
        **_event(kind, card, token, amount, merchant),
        "occurredAt": _at(day, time(6)),
        "settlement": {"network": NETWORK, "settlementDate": str(day)},
    }


def _event(kind: str, card: str, token: str, amount: int, merchant: str) -> Event:
    return {
        "type": kind,
        "source": SOURCE,
        "reference": f"{token}-{kind.lower()}",
        "issuerTransactionToken": token,
        "cardId": card,
        "amount": amount,
        "currency": "USD",
        "merchant": {"descriptor": merchant, "mcc": "5411", "country": "US"},
    }


def _at(day: date, moment: time) -> str:
    return datetime.combine(day, moment, UTC).isoformat().replace("+00:00", "Z")


def of_cards(public_ids: Sequence[str]) -> Cards:
    """Return `public_ids`, in the order of `CARDHOLDERS`, by their owners."""
    ada, grace, charles = public_ids
    return Cards(ada=ada, grace=grace, charles=charles)
