"""Hypothesis strategies for life cycles: lists of events as JSON.

A story is about one cardholder with one card on one account and a few purchases. Its first event
deposits the opening balance.

- `valid`: what a correct network sends, in order.
- `arbitrary`: any event after any other; few amounts, so that they match.
- `duplicated`: a story with repeated events.
- `shuffled`: a story in another order of arrival.
- `credited`: a credit is authorized, then anything follows.
- `written_off`: an amount that is owed is written off, then anything follows.
- `late`: authorizations that were not reported as approved in time, and anything else.
- `hostile`: contradictions, amounts at the limit, repeated events and reused references.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'cardledger.ledger.testing.strategies needs Hypothesis: pip install "cardledger[testing]"',
        name=error.name,
    ) from error

Event = dict[str, Any]
Story = list[Event]

MAX_AMOUNT: Final = 2**63 - 1
NETWORK_TYPES: Final = (
    "AUTHORIZATION",
    "AUTHORIZATION_INCREMENT",
    "AUTHORIZATION_ADVICE",
    "AUTHORIZATION_REVERSAL",
    "AUTHORIZATION_EXPIRY",
    "STAND_IN_AUTHORIZATION",
    "FINANCIAL_AUTHORIZATION",
    "CLEARING",
    "CLEARING_REVERSAL",
    "CREDIT_AUTHORIZATION",
    "CREDIT_AUTHORIZATION_ADVICE",
    "FINANCIAL_CREDIT_AUTHORIZATION",
    "RETURN",
    "RETURN_REVERSAL",
)

_ASKED: Final = (
    "AUTHORIZATION",
    "AUTHORIZATION_INCREMENT",
    "FINANCIAL_AUTHORIZATION",
    "CREDIT_AUTHORIZATION",
)

# Few values, so that amounts match: exact clearings, holds that just fit, sums that cancel.
SMALL: Final = st.sampled_from([1, 2, 3, 5, 10, 50, 99, 100])
AMOUNTS: Final = SMALL | st.integers(1, 1_000) | st.integers(1, 2**40)
HUGE: Final = AMOUNTS | st.sampled_from([2**62, 2**62 + 1, MAX_AMOUNT - 1, MAX_AMOUNT])

SHOPS: Final[Mapping[str, str]] = {
    "T1": "SHOP",
    "T2": "SHOP",
    "T3": "CAFE ROMA",
    "T4": "REFUSED 002",
    "T5": "PAUSED 003",
    "T6": "SLOW 005",
    "T7": "FAILS 006",
}
"""Merchant descriptors by token; the sandbox gives a meaning to their last three characters."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The card, account and currency of a story; `shops` has the merchant of each token."""

    card_id: str = "Card:00000000-0000-7000-8000-000000000001"
    account_id: str = "00000000-0000-7000-8000-000000000002"
    currency: str = "USD"
    source: str = "network"
    shops: Mapping[str, str] = field(default_factory=lambda: dict(SHOPS))

    def event(self, kind: str, token: str, **fields: Any) -> Event:  # noqa: ANN401 - JSON
        """Return a network event without a reference; `numbered` adds one."""
        body = {
            "type": kind,
            "source": self.source,
            "issuerTransactionToken": token,
            "cardId": self.card_id,
            "currency": self.currency,
            "merchant": {"descriptor": self.shops.get(token, "SHOP")},
        }
        return body | {name: value for name, value in fields.items() if value is not None}

    def deposit(self, amount: int) -> Event:
        """Return the message that deposits `amount` on the account."""
        return {
            "type": "DEPOSIT",
            "source": self.source,
            "accountId": self.account_id,
            "amount": amount,
        }

    def confirmation(self, token: str, amount: int, *, succeeded: bool) -> Event:
        """Return the confirmation or the failure of a pending pull."""
        message = self.event("PULL_CONFIRMATION", token, amount=amount, succeeded=succeeded)
        message["source"] = "schedule"
        return {name: value for name, value in message.items() if name != "merchant"}

    def write_off(self, token: str, amount: int) -> Event:
        """Return the operator's decision to give up `amount` of what is owed for a purchase."""
        message = self.event("WRITE_OFF", token, amount=amount)
        message["source"] = "adjustments"
        return {name: value for name, value in message.items() if name != "merchant"}

    def timeout_reversal(self, authorization: Event) -> Event:
        """Return the message that settles an authorization not reported as approved in time."""
        names = ("issuerTransactionToken", "cardId", "currency")
        return {
            "type": "TIMEOUT_REVERSAL",
            "source": "decision-timeout",
            "reference": f"{authorization['source']}/{authorization['reference']}",
            **{name: authorization[name] for name in names},
            "authorization": authorization,
        }

    def card_closed(self) -> Event:
        """Return the message that releases all holds of the card."""
        return {"type": "CARD_CLOSED", "source": "cards", "cardId": self.card_id}


SCENE: Final = Scene()


def numbered(story: Sequence[Event]) -> Story:
    """Return `story` with a unique reference for every event."""
    return [{**event, "reference": f"r{place}"} for place, event in enumerate(story)]


def events(
    scene: Scene = SCENE,
    amounts: st.SearchStrategy[int] = AMOUNTS,
    *,
    inside: bool = True,
    write_offs: bool = False,
) -> st.SearchStrategy[Event]:
    """Return one event of any type, without a reference.

    With `inside`, also the messages that no network sends: a closed card and the confirmation of
    a pending pull. With `write_offs`, also those of the operator.
    """
    tokens = st.sampled_from(sorted(scene.shops))
    final = st.sampled_from([None, True, False])

    def of(kind: str, amount: st.SearchStrategy[int | None]) -> st.SearchStrategy[Event]:
        return st.builds(scene.event, st.just(kind), tokens, amount=amount)

    clearings = st.builds(scene.event, st.just("CLEARING"), tokens, amount=amounts, final=final)
    kinds = [
        of("AUTHORIZATION", amounts),
        of("AUTHORIZATION", amounts),
        of("AUTHORIZATION_INCREMENT", amounts),
        of("AUTHORIZATION_ADVICE", st.just(0) | amounts),
        of("AUTHORIZATION_REVERSAL", st.none() | amounts),
        of("AUTHORIZATION_EXPIRY", st.none()),
        of("STAND_IN_AUTHORIZATION", amounts),
        of("FINANCIAL_AUTHORIZATION", amounts),
        clearings,
        clearings,
        of("CLEARING_REVERSAL", amounts),
        of("RETURN", amounts),
        of("CREDIT_AUTHORIZATION", amounts),
        of("CREDIT_AUTHORIZATION_ADVICE", st.just(0) | amounts),
        of("FINANCIAL_CREDIT_AUTHORIZATION", amounts),
        of("RETURN_REVERSAL", amounts),
        st.builds(scene.deposit, amounts),
    ]
    if inside:
        kinds.append(st.builds(scene.confirmation, tokens, amounts, succeeded=st.booleans()))
        kinds.append(st.just(scene.card_closed()))
    if write_offs:
        kinds += [st.builds(scene.write_off, tokens, amounts)] * 2
    return st.one_of(kinds)


def arbitrary(  # noqa: PLR0913 - what a story is made of
    scene: Scene = SCENE,
    amounts: st.SearchStrategy[int] = AMOUNTS,
    *,
    start: st.SearchStrategy[int] | None = None,
    max_size: int = 14,
    inside: bool = True,
    write_offs: bool = False,
) -> st.SearchStrategy[Story]:
    """Return stories of any events after a deposit of `start`."""
    return st.builds(
        lambda first, rest: numbered([scene.deposit(first), *rest]),
        st.integers(1, 300) | st.integers(1, 2**42) if start is None else start,
        st.lists(events(scene, amounts, inside=inside, write_offs=write_offs), max_size=max_size),
    )


def tight(
    scene: Scene = SCENE, max_size: int = 14, *, write_offs: bool = False
) -> st.SearchStrategy[Story]:
    """Return stories with a low balance and small amounts, in which debts are common."""
    few = Scene(scene.card_id, scene.account_id, scene.currency, scene.source,
                {name: scene.shops[name] for name in sorted(scene.shops)[:2]})  # fmt: skip
    return arbitrary(
        few, SMALL, start=st.integers(1, 150), max_size=max_size, write_offs=write_offs
    )


@st.composite
def written_off(draw: st.DrawFn, scene: Scene = SCENE, max_size: int = 14) -> Story:
    """Return a story in which an amount that is owed is written off before other events follow.

    It is of a clearing, of a reversed refund that was spent, or of both.
    """
    spent, owed = draw(SMALL), draw(SMALL)
    story = [scene.deposit(spent)]
    if draw(st.booleans()):
        story += [
            scene.event("CLEARING", "T1", amount=spent, final=draw(st.booleans())),
            scene.event("RETURN", "T1", amount=spent),
            scene.event("CLEARING", "T2", amount=spent, final=True),
            scene.event("RETURN_REVERSAL", "T1", amount=spent),
        ]
    if draw(st.booleans()):
        story.append(scene.event("STAND_IN_AUTHORIZATION", "T1", amount=draw(SMALL)))
    story.append(scene.event("CLEARING", "T1", amount=spent + owed))
    story.append(scene.write_off("T1", draw(st.integers(1, owed))))
    shops = {name: scene.shops[name] for name in sorted(scene.shops)[: draw(st.integers(1, 2))]}
    few = Scene(scene.card_id, scene.account_id, scene.currency, scene.source, shops)
    rest = st.lists(events(few, SMALL, write_offs=True), max_size=max_size)
    return numbered([*story, *draw(rest)])


@st.composite
def late(draw: st.DrawFn, scene: Scene = SCENE, max_size: int = 14) -> Story:
    """Return a story of authorizations some of which are late, in any order with all that follows.

    A timeout reversal may also come before its authorization.
    """
    shops = {name: scene.shops[name] for name in sorted(scene.shops)[: draw(st.integers(1, 2))]}
    few = Scene(scene.card_id, scene.account_id, scene.currency, scene.source, shops)
    kinds = st.sampled_from([*_ASKED, "FINANCIAL_AUTHORIZATION", "CLEARING", "CLEARING_REVERSAL"])
    about = st.builds(few.event, kinds, st.sampled_from(sorted(shops)), amount=SMALL)
    rest = draw(st.lists(about | about | events(few, SMALL), min_size=1, max_size=max_size))
    story = numbered([scene.deposit(draw(SMALL | st.integers(100, 1_000))), *rest])
    asked = [event for event in story if event["type"] in _ASKED]
    for event in draw(st.lists(st.sampled_from(asked), max_size=5)) if asked else []:
        place = draw(st.just(len(story)) | st.integers(1, len(story)))
        story.insert(place, few.timeout_reversal(event))
    return story


def credited(scene: Scene = SCENE, max_size: int = 14) -> st.SearchStrategy[Story]:
    """Return a story of an authorized credit, and of anything that follows or repeats it."""
    few = Scene(scene.card_id, scene.account_id, scene.currency, scene.source,
                {name: scene.shops[name] for name in sorted(scene.shops)[:1]})  # fmt: skip
    [token] = few.shops
    kinds = ["CREDIT_AUTHORIZATION", "CREDIT_AUTHORIZATION_ADVICE"]
    first = st.builds(few.event, st.sampled_from(kinds), st.just(token), amount=SMALL)
    about = [
        st.builds(few.event, st.just(kind), st.just(token), amount=SMALL)
        for kind in ("CLEARING", "CLEARING", "CLEARING_REVERSAL", "AUTHORIZATION_REVERSAL",
                     "AUTHORIZATION_ADVICE", "RETURN", "RETURN_REVERSAL", *kinds)
    ]  # fmt: skip
    partly = st.builds(few.event, st.just("CLEARING"), st.just(token), amount=SMALL,
                       final=st.booleans())  # fmt: skip
    expiry = st.builds(few.event, st.just("AUTHORIZATION_EXPIRY"), st.just(token))
    rest = st.lists(st.one_of(*about, partly, expiry, events(few, SMALL)), max_size=max_size)
    return st.builds(
        lambda opening, credit, after: numbered([scene.deposit(opening), credit, *after]),
        st.integers(1, 150),
        first,
        rest,
    )


@st.composite
def valid(draw: st.DrawFn, scene: Scene = SCENE, max_size: int = 14) -> Story:
    """Return a story that a correct network could send: nothing is reversed twice."""
    story = [scene.deposit(draw(st.integers(1, 1_000) | st.just(10**6)))]
    tokens = sorted(scene.shops)
    totals = {token: dict.fromkeys(("left", "settled", "refunded"), 0) for token in tokens}
    for _ in range(draw(st.integers(0, max_size))):
        token = draw(st.sampled_from(tokens))
        story.append(_next(draw, scene, token, totals[token]))
    return numbered(story)


def _next(draw: st.DrawFn, scene: Scene, token: str, total: dict[str, int]) -> Event:
    """Return a possible next event of a purchase; `total` has the network's own totals."""

    def up_to(name: str) -> int:
        return draw(st.integers(1, total[name]) | st.just(total[name]))

    possible: list[str] = ["DEPOSIT"]
    possible += ["AUTHORIZATION_INCREMENT"] if total["left"] else ["AUTHORIZATION"]
    possible += ["AUTHORIZATION_REVERSAL", "CLEARING", "CLEARING"] if total["left"] else []
    possible += ["CLEARING_REVERSAL", "RETURN"] if total["settled"] > total["refunded"] else []
    possible += ["RETURN_REVERSAL"] if total["refunded"] else []
    kind = draw(st.sampled_from(possible))
    final = None
    match kind:
        case "DEPOSIT":
            return scene.deposit(draw(SMALL))
        case "AUTHORIZATION" | "AUTHORIZATION_INCREMENT":
            amount = draw(SMALL | st.integers(1, 1_000))
            total["left"] += amount
        case "AUTHORIZATION_REVERSAL":
            amount = up_to("left")
            total["left"] -= amount
        case "CLEARING":
            amount = up_to("left")
            final = draw(st.booleans())
            total["left"] = 0 if final else total["left"] - amount
            total["settled"] += amount
        case "CLEARING_REVERSAL":
            amount = draw(st.integers(1, total["settled"] - total["refunded"]))
            total["settled"] -= amount
        case "RETURN":
            amount = draw(st.integers(1, total["settled"] - total["refunded"]))
            total["refunded"] += amount
        case _:
            amount = up_to("refunded")
            total["refunded"] -= amount
    return scene.event(kind, token, amount=amount, final=final)


@st.composite
def duplicated(draw: st.DrawFn, stories: st.SearchStrategy[Story]) -> Story:
    """Return one of `stories` with some events repeated, anywhere after their first time."""
    story = list(draw(stories))
    for _ in range(draw(st.integers(1, 4)) if story else 0):
        first = draw(st.integers(0, len(story) - 1))
        story.insert(draw(st.integers(first + 1, len(story))), story[first])
    return story


def shuffled(stories: st.SearchStrategy[Story]) -> st.SearchStrategy[Story]:
    """Return one of `stories` in any order of arrival."""
    return stories.flatmap(lambda story: st.permutations(story).map(list))


@st.composite
def hostile(draw: st.DrawFn, scene: Scene = SCENE, max_size: int = 14) -> Story:
    """Return a story that no network should send: contradictions, duplicates, huge amounts."""
    story = draw(duplicated(arbitrary(scene, HUGE, max_size=max_size)))
    with_amount = [event for event in story if "amount" in event]
    for event in draw(st.lists(st.sampled_from(with_amount), max_size=2)) if with_amount else []:
        story.append(
            {**event, "amount": 1 + event["amount"] % 7}
        )  # The same reference, another body.
    return draw(st.permutations(story).map(list))
