"""Stories of the simulator: what happens to one purchase, step by step, and the request of a step.

Amounts are minor units of the currency of the cardholder's account, also in texts: `{1250}`. Every
request of a run has an Idempotency-Key that the run and the number of the step make, so that no
step is applied twice.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardledger.api.console.simulator import operations
from cardledger.schema.wire.outcomes import OutcomeType

SOURCE: Final = "console"
"""The source of network events that a story sends itself."""

_NETWORK: Final = "network"
_RUN: Final = re.compile(r"console-[0-9a-f-]{36}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request: an operation of the simulator, `fund`, or an event of the network.

    `repeats` is the number of the step whose event is sent again. `outcome` is what an event of the
    network leads to.
    """

    title: str
    effect: str
    operation: str
    amount: int | None = None
    final: bool | None = None
    event_type: str | None = None
    repeats: int | None = None
    outcome: OutcomeType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A named life of one purchase of a new cardholder, whose account has `balance`."""

    name: str
    title: str
    summary: str
    merchant: str
    mcc: str
    steps: Sequence[Step]
    balance: int = 50_000

    @property
    def needs_ingest(self) -> bool:
        """Whether it sends events of the network, for which a token needs INGEST."""
        return any(step.operation == _NETWORK for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A story that is being played: its cardholder's card and account, and the purchase."""

    id: str
    card: str
    account: str
    purchase: str | None
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A request of the API; `key` is its Idempotency-Key, None when it is not known any more."""

    path: str
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    key: str | None


def _authorize(amount: int, effect: str) -> Step:
    return Step(title="Authorize", effect=effect, operation="authorization", amount=amount)


def _clear(amount: int, effect: str, *, final: bool | None = None) -> Step:
    return Step(title="Clear", effect=effect, operation="clearing", amount=amount, final=final)


STORIES: Final = (
    Story(
        name="tip",
        title="Restaurant tip",
        summary="Authorized for {1250}, cleared for {1500}: the tip is pulled afterwards.",
        merchant="BISTRO AU COIN",
        mcc="5812",
        steps=(
            _authorize(1_250, "The restaurant asks for the bill."),
            _clear(1_500, "The guest has left a tip: {250} more than was held."),
        ),
    ),
    Story(
        name="hotel",
        title="Hotel",
        summary="The stay gets longer, then costs less than was held: the rest goes back.",
        merchant="GRAND HOTEL LYON",
        mcc="7011",
        steps=(
            _authorize(20_000, "Check-in: two nights."),
            Step(
                title="Advise",
                effect="One night more: the authorized total is raised.",
                operation="authorization_advice",
                amount=26_000,
            ),
            _clear(24_500, "Check-out: the final amount is lower.", final=True),
        ),
    ),
    Story(
        name="fuel",
        title="Fuel pump",
        summary="The pump holds a round amount, then advises what was pumped.",
        merchant="FUEL PUMP A6",
        mcc="5542",
        steps=(
            _authorize(7_500, "The pump opens for up to {7500}."),
            Step(
                title="Advise",
                effect="{4800} was pumped: {2700} goes back.",
                operation="authorization_advice",
                amount=4_800,
            ),
            _clear(4_800, "The network moves what was pumped."),
        ),
    ),
    Story(
        name="split-shipment",
        title="Split shipment",
        summary="One order in three parcels: each is cleared when it ships.",
        merchant="PARTS AND MORE",
        mcc="5732",
        steps=(
            _authorize(9_000, "The whole order."),
            _clear(4_000, "The first parcel."),
            _clear(3_000, "The second parcel."),
            _clear(2_000, "The last parcel: nothing is held any more."),
        ),
    ),
    Story(
        name="refund",
        title="Refund",
        summary="A coat goes back in two parts, and so does its price.",
        merchant="COATS AND HATS",
        mcc="5651",
        steps=(
            _authorize(10_000, "The coat and a hat."),
            _clear(10_000, "Both were sold."),
            Step(
                title="Refund",
                effect="The hat goes back.",
                operation="return",
                amount=4_000,
            ),
            Step(
                title="Refund",
                effect="The coat goes back, too.",
                operation="return",
                amount=6_000,
            ),
        ),
    ),
    Story(
        name="late-clearing",
        title="Late clearing",
        summary="The hold expires; the clearing comes all the same, and is recorded.",
        merchant="FERRY LINES",
        mcc="4411",
        steps=(
            _authorize(3_000, "A crossing is booked."),
            Step(
                title="Expire",
                effect="No clearing came in time: the hold is released.",
                operation="authorization_expiry",
            ),
            _clear(3_000, "It has happened at the network: the amount is pulled again."),
        ),
    ),
    Story(
        name="duplicate",
        title="Duplicate",
        summary="The network sends its clearing twice; it is applied once.",
        merchant="CORNER SHOP",
        mcc="5411",
        steps=(
            Step(
                title="Authorize",
                effect="Sent as the network does, with a source and a reference.",
                operation=_NETWORK,
                event_type="AUTHORIZATION",
                amount=2_500,
                outcome=OutcomeType.APPLIED,
            ),
            Step(
                title="Clear",
                effect="The network moves the amount.",
                operation=_NETWORK,
                event_type="CLEARING",
                amount=2_500,
                outcome=OutcomeType.APPLIED,
            ),
            Step(
                title="Clear again",
                effect="The same source and reference: DUPLICATE, and nothing moves.",
                operation=_NETWORK,
                event_type="CLEARING",
                amount=2_500,
                repeats=2,
                outcome=OutcomeType.DUPLICATE,
            ),
        ),
    ),
    Story(
        name="expiry",
        title="Expiry",
        summary="A hold that is never cleared goes back to the account.",
        merchant="CAR RENTAL NORD",
        mcc="7512",
        steps=(
            _authorize(6_000, "The deposit for a car is held."),
            Step(
                title="Expire",
                effect="It was never cleared: all of it is released.",
                operation="authorization_expiry",
            ),
        ),
    ),
    Story(
        name="rescue",
        title="Insufficient funds, then rescue",
        summary="The network takes more than the account has; new money pays what is owed.",
        merchant="TOOLS AND SONS",
        mcc="5251",
        balance=3_000,
        steps=(
            _authorize(2_000, "The account has {3000} and can pay."),
            _clear(4_500, "{2500} more than was held, and {1000} is left: EXCEPTION."),
            Step(
                title="Fund",
                effect="The account is credited, and what is owed is collected at once.",
                operation=operations.FUND,
                amount=2_000,
            ),
        ),
    ),
)
"""The stories, in the order in which they are offered."""

BY_NAME: Final[Mapping[str, Story]] = {story.name: story for story in STORIES}


def is_run(text: str) -> bool:
    """Return whether `text` may be the id of a run: the Idempotency-Key of a form."""
    return bool(_RUN.fullmatch(text))


def key_of(run_id: str, name: str | int) -> str:
    """Return the Idempotency-Key of a request of a run, by the number of its step or its name."""
    return f"{run_id}.{name}"


def request_of(story: Story, number: int, run: Run) -> StepRequest:
    """Return the request of the step `number`, from 1, of a run."""
    step = story.steps[number - 1]
    key = key_of(run.id, number)
    if step.operation == _NETWORK:
        event = _event(story, step, run, step.repeats or number)
        return StepRequest(path="/network-events", body=[event], key=key)
    if step.operation == operations.FUND:
        path, body = operations.fund_path(run.account), {"amount": step.amount}
        return StepRequest(path=path, body=body, key=key)
    return StepRequest(
        path=operations.path_of(run.card, step.operation), body=_body(story, step, run), key=key
    )


def is_as_expected(step: Step, outcome: Mapping[str, Any]) -> bool:
    """Return whether `outcome`, of an event of the network, is that of the step.

    A step that is sent again is a DUPLICATE of its first outcome, which counts.
    """
    found = outcome["outcome"]
    if found == OutcomeType.DUPLICATE != step.outcome:
        found = outcome.get("firstOutcome")
    return bool(found == step.outcome)


def _body(story: Story, step: Step, run: Run) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if operations.BY_NAME[step.operation].is_follow_up:
        body["cardTransactionId"] = run.purchase
    else:
        body["currency"] = {"code": run.currency}
        body["merchant"] = {"descriptor": story.merchant, "mcc": story.mcc}
    if step.amount is not None:
        body["amount"] = step.amount
    if step.final is not None:
        body["final"] = step.final
    return body


def _event(story: Story, step: Step, run: Run, number: int) -> dict[str, Any]:
    return {
        "type": step.event_type,
        "source": SOURCE,
        "reference": f"{run.id}-{number}",
        "issuerTransactionToken": run.id,
        "cardId": run.card,
        "amount": step.amount,
        "currency": run.currency,
        "merchant": {"descriptor": story.merchant, "mcc": story.mcc},
    }
