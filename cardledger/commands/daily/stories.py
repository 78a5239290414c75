"""The stories of `cardledger trigger`: steps with amounts, and the figures after each step.

Each is a life cycle of tests/fixtures/lifecycles.json, on an account with `START_BALANCE`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

START_BALANCE: Final = 50_000
"""Minor units of USD that the account has before a story."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The account and the card transaction after a step; amounts in minor units."""

    balance: int
    held: int
    owed: int = 0
    status: str
    authorized: int
    pull_count: int
    pulled: int
    released: int = 0
    settled: int = 0
    refunded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A simulated network event, and the figures that it leads to."""

    type: str
    amount: int | None = None
    expected: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A named life cycle of one card transaction; the first step authorizes.

    Some stories authorize more than the account has: `exceeds_balance`.
    """

    name: str
    life_cycle: str
    summary: str
    descriptor: str
    mcc: str
    steps: Sequence[Step]
    exceeds_balance: bool = False


_ALL: Final = (
    Story(
        name="tip",
        life_cycle="S02",
        summary="A restaurant clears more than it authorized; the tip is pulled afterwards.",
        descriptor="CHEZ ROUX PARIS",
        mcc="5812",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=1_250,
                expected=Figures(
                    balance=48_750,
                    held=1_250,
                    status="AUTHORIZED",
                    authorized=1_250,
                    pull_count=1,
                    pulled=1_250,
                ),
            ),
            Step(
                type="CLEARING",
                amount=1_500,
                expected=Figures(
                    balance=48_500,
                    held=0,
                    status="SETTLED",
                    authorized=1_250,
                    pull_count=2,
                    pulled=1_500,
                    settled=1_500,
                ),
            ),
        ),
    ),
    Story(
        name="hotel",
        life_cycle="S46",
        summary="A hotel clears 15 % more than it authorized.",
        descriptor="GRAND HOTEL LYON",
        mcc="7011",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=20_000,
                expected=Figures(
                    balance=30_000,
                    held=20_000,
                    status="AUTHORIZED",
                    authorized=20_000,
                    pull_count=1,
                    pulled=20_000,
                ),
            ),
            Step(
                type="CLEARING",
                amount=23_000,
                expected=Figures(
                    balance=27_000,
                    held=0,
                    status="SETTLED",
                    authorized=20_000,
                    pull_count=2,
                    pulled=23_000,
                    settled=23_000,
                ),
            ),
        ),
    ),
    Story(
        name="fuel",
        life_cycle="S48",
        summary="A fuel pump authorizes a padded amount, then advises what was pumped.",
        descriptor="FUEL PUMP A6",
        mcc="5542",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=7_500,
                expected=Figures(
                    balance=42_500,
                    held=7_500,
                    status="AUTHORIZED",
                    authorized=7_500,
                    pull_count=1,
                    pulled=7_500,
                ),
            ),
            Step(
                type="AUTHORIZATION_ADVICE",
                amount=4_800,
                expected=Figures(
                    balance=45_200,
                    held=4_800,
                    status="AUTHORIZED",
                    authorized=4_800,
                    pull_count=1,
                    pulled=7_500,
                    released=2_700,
                ),
            ),
            Step(
                type="CLEARING",
                amount=4_800,
                expected=Figures(
                    balance=45_200,
                    held=0,
                    status="SETTLED",
                    authorized=4_800,
                    pull_count=1,
                    pulled=7_500,
                    released=2_700,
                    settled=4_800,
                ),
            ),
        ),
    ),
    Story(
        name="split-shipment",
        life_cycle="S09",
        summary="A shop ships an order in three parts and clears each.",
        descriptor="PARTS AND MORE",
        mcc="5732",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=9_000,
                expected=Figures(
                    balance=41_000,
                    held=9_000,
                    status="AUTHORIZED",
                    authorized=9_000,
                    pull_count=1,
                    pulled=9_000,
                ),
            ),
            Step(
                type="CLEARING",
                amount=4_000,
                expected=Figures(
                    balance=41_000,
                    held=5_000,
                    status="PARTIALLY_SETTLED",
                    authorized=9_000,
                    pull_count=1,
                    pulled=9_000,
                    settled=4_000,
                ),
            ),
            Step(
                type="CLEARING",
                amount=3_000,
                expected=Figures(
                    balance=41_000,
                    held=2_000,
                    status="PARTIALLY_SETTLED",
                    authorized=9_000,
                    pull_count=1,
                    pulled=9_000,
                    settled=7_000,
                ),
            ),
            Step(
                type="CLEARING",
                amount=2_000,
                expected=Figures(
                    balance=41_000,
                    held=0,
                    status="SETTLED",
                    authorized=9_000,
                    pull_count=1,
                    pulled=9_000,
                    settled=9_000,
                ),
            ),
        ),
    ),
    Story(
        name="refund",
        life_cycle="S59",
        summary="A shop refunds a purchase in two parts.",
        descriptor="COATS AND HATS",
        mcc="5651",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=10_000,
                expected=Figures(
                    balance=40_000,
                    held=10_000,
                    status="AUTHORIZED",
                    authorized=10_000,
                    pull_count=1,
                    pulled=10_000,
                ),
            ),
            Step(
                type="CLEARING",
                amount=10_000,
                expected=Figures(
                    balance=40_000,
                    held=0,
                    status="SETTLED",
                    authorized=10_000,
                    pull_count=1,
                    pulled=10_000,
                    settled=10_000,
                ),
            ),
            Step(
                type="RETURN",
                amount=4_000,
                expected=Figures(
                    balance=44_000,
                    held=0,
                    status="SETTLED",
                    authorized=10_000,
                    pull_count=1,
                    pulled=10_000,
                    settled=10_000,
                    refunded=4_000,
                ),
            ),
            Step(
                type="RETURN",
                amount=6_000,
                expected=Figures(
                    balance=50_000,
                    held=0,
                    status="REFUNDED",
                    authorized=10_000,
                    pull_count=1,
                    pulled=10_000,
                    settled=10_000,
                    refunded=10_000,
                ),
            ),
        ),
    ),
    Story(
        name="late-clearing",
        life_cycle="S24",
        summary="A clearing arrives after its authorization has expired.",
        descriptor="SLOW MERCHANT",
        mcc="5999",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=3_500,
                expected=Figures(
                    balance=46_500,
                    held=3_500,
                    status="AUTHORIZED",
                    authorized=3_500,
                    pull_count=1,
                    pulled=3_500,
                ),
            ),
            Step(
                type="AUTHORIZATION_EXPIRY",
                expected=Figures(
                    balance=50_000,
                    held=0,
                    status="VOIDED",
                    authorized=0,
                    pull_count=1,
                    pulled=3_500,
                    released=3_500,
                ),
            ),
            Step(
                type="CLEARING",
                amount=3_500,
                expected=Figures(
                    balance=46_500,
                    held=0,
                    status="SETTLED",
                    authorized=0,
                    pull_count=2,
                    pulled=7_000,
                    released=3_500,
                    settled=3_500,
                ),
            ),
        ),
    ),
    Story(
        name="expiry",
        life_cycle="S23",
        summary="An authorization expires without a clearing.",
        descriptor="NEVER SHIPPED",
        mcc="5999",
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=3_500,
                expected=Figures(
                    balance=46_500,
                    held=3_500,
                    status="AUTHORIZED",
                    authorized=3_500,
                    pull_count=1,
                    pulled=3_500,
                ),
            ),
            Step(
                type="AUTHORIZATION_EXPIRY",
                expected=Figures(
                    balance=50_000,
                    held=0,
                    status="VOIDED",
                    authorized=0,
                    pull_count=1,
                    pulled=3_500,
                    released=3_500,
                ),
            ),
        ),
    ),
    Story(
        name="insufficient-funds",
        life_cycle="S35",
        summary="An authorization is above the balance and is declined.",
        descriptor="BIG SCREENS",
        mcc="5732",
        exceeds_balance=True,
        steps=(
            Step(
                type="AUTHORIZATION",
                amount=50_001,
                expected=Figures(
                    balance=50_000,
                    held=0,
                    status="DECLINED",
                    authorized=50_001,
                    pull_count=0,
                    pulled=0,
                ),
            ),
        ),
    ),
)

STORIES: Final = {story.name: story for story in _ALL}
"""All stories, by name."""
