"""Late financial authorizations: after the timeout reversal all is as if they had been declined."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing import strategies
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import Story
from cardledger.schema.ids import Id
from tests.integration.test_timeout_reversals import DEADLINE, NOON, process, reversal_of
from tests.world import Cardholder, World, open_world, outcomes_of

Event = dict[str, Any]
Step = tuple[str, int | None] | tuple[str, int | None, Event]
Play = Callable[[World, Cardholder, Sequence[Event | Message]], None]
SHOWN = ("status", "authorized", "settled", "refunded")


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def cardholder(world: World, platform: Id) -> Cardholder:
    return world.cardholder(platform, 200)


def in_one_batch(world: World, cardholder: Cardholder, steps: Sequence[Event | Message]) -> None:
    for step in steps:
        if isinstance(step, Message):
            world.accept_messages([replace(step, id=new_id())])
        else:
            world.accept([(cardholder, step)])
    world.drain(world.engine(clock=lambda: NOON))


def in_many_batches(world: World, cardholder: Cardholder, steps: Sequence[Event | Message]) -> None:
    process(world, cardholder, *steps)


@pytest.fixture(params=[in_one_batch, in_many_batches], ids=["one batch", "many batches"])
def play(request: pytest.FixtureRequest) -> Play:
    return request.param  # type: ignore[no-any-return]


def asked(world: World, cardholder: Cardholder, kind: str, amount: int, **fields: Any) -> Event:  # noqa: ANN401 - JSON
    return world.event(kind, cardholder, "T1", amount, decideBy=DEADLINE.isoformat(), **fields)


def financial(world: World, cardholder: Cardholder, amount: int = 50, **fields: Any) -> Event:  # noqa: ANN401 - JSON
    return asked(world, cardholder, "FINANCIAL_AUTHORIZATION", amount, **fields)


def seen(world: World, cardholder: Cardholder) -> Event:
    """Return what readers see of the account and of T1, but for the way in which it got there."""
    world.check_books(cardholder)
    account = world.account(cardholder)
    shown = account["transactions"]["T1"]
    return {name: account[name] for name in ("balance", "held", "owed")} | {
        name: shown[name] for name in SHOWN
    }


def test_the_hold_of_an_authorization_comes_back_that_it_had_closed(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    """It stayed closed: the clearing that the merchant still had was a late one."""
    first, late = world.authorization(cardholder, "T1", 100), financial(world, cardholder)

    play(world, cardholder, [first, late, reversal_of(cardholder, late)])

    assert seen(world, cardholder) == {
        "balance": 100,
        "held": 100,
        "owed": 0,
        "status": "AUTHORIZED",
        "authorized": 100,
        "settled": 0,
        "refunded": 0,
    }
    [(expires_at,)] = world.rows(
        "SELECT expires_at FROM card_transactions WHERE account_id = %s", cardholder.account_id
    )
    assert expires_at is not None
    [cleared] = process(world, cardholder, world.clearing(cardholder, "T1", 100))
    assert (cleared.outcome, cleared.reason) == ("APPLIED", None)
    assert seen(world, cardholder) | {"status": "SETTLED"} == seen(world, cardholder)
    assert world.balance(cardholder) == 100


# What comes after the authorization and the late financial one.
BETWEEN: dict[str, list[Step]] = {
    "nothing": [],
    "clearing": [("CLEARING", 100)],
    "partial clearing": [("CLEARING", 60)],
    "clearing and another to come": [("CLEARING", 60, {"final": False})],
    "final clearing": [("CLEARING", 60, {"final": True})],
    "increment": [("AUTHORIZATION_INCREMENT", 30)],
    "increment and clearing": [("AUTHORIZATION_INCREMENT", 30), ("CLEARING", 60)],
    "stand-in": [("STAND_IN_AUTHORIZATION", 20)],
    "another in time": [("FINANCIAL_AUTHORIZATION", 40)],
    "advice": [("AUTHORIZATION_ADVICE", 120)],
    "small advice": [("AUTHORIZATION_ADVICE", 40)],
    "closed card": [("CARD_CLOSED", None)],
    "partial clearing and closed card": [("CLEARING", 60), ("CARD_CLOSED", None)],
}


@pytest.mark.parametrize("between", BETWEEN)
def test_all_is_as_if_it_had_been_declined(
    world: World, platform: Id, between: str, play: Play
) -> None:
    found = []
    for is_late in (True, False):
        cardholder = world.cardholder(platform, 200)
        first, late = world.authorization(cardholder, "T1", 100), financial(world, cardholder)
        back = reversal_of(cardholder, late)
        start: list[Event | Message] = [first, late] if is_late else [first, back]
        end = [back] if is_late else []
        after = [event_of(world, cardholder, step) for step in BETWEEN[between]]
        if ("CARD_CLOSED", None) in BETWEEN[between]:
            in_many_batches(world, cardholder, start)
            start = []
            world.connection.execute(
                "UPDATE cards SET state = 'CLOSED' WHERE id = %s", [cardholder.card_id]
            )
        play(world, cardholder, [*start, *after, *end])
        found.append(seen(world, cardholder))

    assert found[0] == found[1]


def event_of(world: World, cardholder: Cardholder, step: Step) -> Event:
    kind, amount, *fields = step
    if kind == "CARD_CLOSED":
        return world.card_closed(cardholder)
    return world.event(kind, cardholder, "T1", amount, **(fields[0] if fields else {}))


@pytest.mark.parametrize("kind", ["CLEARING_REVERSAL", "RETURN"])
def test_the_hold_comes_back_when_the_network_has_given_the_clearing_back(
    world: World, cardholder: Cardholder, kind: str, play: Play
) -> None:
    first, late = world.authorization(cardholder, "T1", 100), financial(world, cardholder)
    back = world.event(kind, cardholder, "T1", 50)

    play(world, cardholder, [first, late, back, reversal_of(cardholder, late)])

    account = seen(world, cardholder)
    assert (account["balance"], account["held"], account["owed"]) == (100, 100, 0)


def test_a_hold_that_was_spent_meanwhile_is_an_open_pull(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    first, late = world.authorization(cardholder, "T1", 100), financial(world, cardholder)
    other = world.authorization(cardholder, "T2", 120)

    play(world, cardholder, [first, late, other, reversal_of(cardholder, late)])
    account = seen(world, cardholder)
    process(world, cardholder, world.deposit(cardholder, 20))

    assert (account["balance"], account["held"], account["owed"]) == (30, 170, 0)
    assert account["status"] == "EXCEPTION"
    account = seen(world, cardholder)
    assert (account["balance"], account["held"], account["status"]) == (0, 220, "AUTHORIZED")


ALL_LATE = [
    ("AUTHORIZATION", "AUTHORIZATION_INCREMENT"),
    ("AUTHORIZATION", "FINANCIAL_AUTHORIZATION"),
    ("FINANCIAL_AUTHORIZATION", "FINANCIAL_AUTHORIZATION"),
    ("AUTHORIZATION", "FINANCIAL_AUTHORIZATION", "FINANCIAL_AUTHORIZATION"),
    ("FINANCIAL_AUTHORIZATION", "AUTHORIZATION"),
]


@pytest.mark.parametrize("kinds", ALL_LATE, ids="+".join)
def test_of_several_that_are_late_nothing_is_left_in_any_order_of_their_reversals(
    world: World, platform: Id, kinds: tuple[str, ...], play: Play
) -> None:
    """What the reversal of one took back counted as taken back of the other."""
    for order in permutations(range(len(kinds))):
        cardholder = world.cardholder(platform, 200)
        late = [asked(world, cardholder, kind, 30 + place) for place, kind in enumerate(kinds)]
        back = [reversal_of(cardholder, late[place]) for place in order]

        play(world, cardholder, [*late, *back])

        account = seen(world, cardholder)
        assert (account["balance"], account["held"], account["owed"]) == (200, 0, 0), order
        assert (account["authorized"], account["settled"]) == (0, 0), order
        assert account["status"] == "VOIDED", order


def test_the_hold_comes_back_after_the_last_of_several_reversals(
    world: World, platform: Id, play: Play
) -> None:
    for order in permutations(range(3)):
        cardholder = world.cardholder(platform, 200)
        first = world.authorization(cardholder, "T1", 100)
        late = [financial(world, cardholder, 20 + place) for place in range(3)]
        back = [reversal_of(cardholder, late[place]) for place in order]

        play(world, cardholder, [first, *late, *back])

        account = seen(world, cardholder)
        assert (account["balance"], account["held"], account["owed"]) == (100, 100, 0), order
        assert (account["status"], account["authorized"]) == ("AUTHORIZED", 100), order


# Late authorizations of 50 and 60, and what the network takes back between them or after them.
REVERSED: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "clearing": (
        "FINANCIAL_AUTHORIZATION",
        [("late", 50), ("late", 60), ("CLEARING_REVERSAL", 50)],
    ),
    "clearings": (
        "FINANCIAL_AUTHORIZATION",
        [("late", 50), ("CLEARING_REVERSAL", 50), ("late", 60), ("CLEARING_REVERSAL", 10)],
    ),
    "refund": ("FINANCIAL_AUTHORIZATION", [("late", 50), ("late", 60), ("RETURN", 50)]),
    "refunds": (
        "FINANCIAL_AUTHORIZATION",
        [("late", 50), ("RETURN", 40), ("late", 60), ("RETURN", 30), ("RETURN_REVERSAL", 50)],
    ),
    "hold": ("AUTHORIZATION", [("late", 50), ("late", 60), ("AUTHORIZATION_REVERSAL", 50)]),
    "holds": (
        "AUTHORIZATION",
        [("late", 50), ("AUTHORIZATION_REVERSAL", 30), ("late", 60), ("AUTHORIZATION_REVERSAL", 5)],
    ),
}


@pytest.mark.parametrize("name", REVERSED)
def test_a_reversal_of_the_network_counts_for_one_of_several_that_are_late(
    world: World, platform: Id, name: str, play: Play
) -> None:
    """It counted for each, so the customer went on paying what it had left of the others."""
    kind, steps = REVERSED[name]
    for order in permutations(range(2)):
        cardholder = world.cardholder(platform, 200)
        story = [
            asked(world, cardholder, kind, amount)
            if step == "late"
            else world.event(step, cardholder, "T1", amount)
            for step, amount in steps
        ]
        late = [event for event in story if event["type"] == kind]
        back = [reversal_of(cardholder, late[place]) for place in order]

        play(world, cardholder, [*story, *back])

        account = seen(world, cardholder)
        assert (account["balance"], account["held"], account["owed"]) == (200, 0, 0), order
        assert account["settled"] == account["refunded"], order


@pytest.mark.parametrize("place", range(2))
def test_a_reversal_after_the_first_timeout_reversal_is_of_the_other_authorization(
    world: World, platform: Id, place: int, play: Play
) -> None:
    cardholder = world.cardholder(platform, 200)
    late = [financial(world, cardholder, 50), financial(world, cardholder, 60)]
    first, second = late[place], late[1 - place]
    of_network = world.event("CLEARING_REVERSAL", cardholder, "T1", second["amount"])
    back = [reversal_of(cardholder, event) for event in (first, second)]

    play(world, cardholder, [*late, back[0], of_network, back[1]])

    account = seen(world, cardholder)
    assert (account["balance"], account["held"], account["owed"]) == (200, 0, 0)


def test_what_cleared_of_one_that_is_late_takes_no_hold_of_another(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    """The timeout reversal of the first finds nothing to take back, and leaves no claim behind."""
    late = [asked(world, cardholder, "AUTHORIZATION", amount) for amount in (50, 60)]
    back = [reversal_of(cardholder, event) for event in late]
    steps: list[Event | Message] = [
        late[0],
        world.clearing(cardholder, "T1", 50, final=False),
        back[0],
        late[1],
        world.event("AUTHORIZATION_REVERSAL", cardholder, "T1", 60),
        world.authorization(cardholder, "T1", 30),
        back[1],
    ]

    play(world, cardholder, steps)

    account = seen(world, cardholder)
    assert (account["balance"], account["held"], account["settled"]) == (120, 30, 50)


def test_what_another_clearing_had_closed_stays_closed(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    late = financial(world, cardholder)
    before = [
        world.authorization(cardholder, "T1", 100),
        world.clearing(cardholder, "T1", 60, final=True),
    ]

    play(world, cardholder, [*before, late, reversal_of(cardholder, late)])

    account = seen(world, cardholder)
    assert (account["balance"], account["held"]) == (140, 0)
    assert (account["status"], account["authorized"]) == ("SETTLED", 100)


def test_what_an_earlier_batch_had_closed_stays_closed(
    world: World, cardholder: Cardholder
) -> None:
    """Only clearings before authorizations of earlier batches were looked for."""
    late = financial(world, cardholder)
    clearing = world.clearing(cardholder, "T1", 60, final=True)

    in_many_batches(world, cardholder, [world.authorization(cardholder, "T1", 100), clearing])
    in_one_batch(world, cardholder, [late, reversal_of(cardholder, late)])

    account = seen(world, cardholder)
    assert (account["balance"], account["held"]) == (140, 0)
    assert (account["status"], account["authorized"]) == ("SETTLED", 100)


def test_another_authorization_of_the_purchase_is_held_after_the_reversal(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    """The card transaction stayed closed by the clearing that was reversed."""
    late = financial(world, cardholder)
    again = world.authorization(cardholder, "T1", 70)

    play(world, cardholder, [late, reversal_of(cardholder, late), again])

    account = seen(world, cardholder)
    assert (account["held"], account["status"], account["authorized"]) == (70, "AUTHORIZED", 70)


def test_the_reversal_is_applied_once_also_after_a_clearing_of_the_hold(
    world: World, cardholder: Cardholder
) -> None:
    first, late = world.authorization(cardholder, "T1", 100), financial(world, cardholder)
    clearing = world.clearing(cardholder, "T1", 100)
    back = [reversal_of(cardholder, late) for _ in range(2)]

    decided = process(world, cardholder, first, late, back[0], clearing, back[1])

    assert outcomes_of(decided[2:]) == ["APPLIED", "APPLIED", "DUPLICATE"]
    assert seen(world, cardholder)["settled"] == 100


# --- the network's day ---------------------------------------------------------------------------

DAY = date(2025, 12, 30)


def network_days(world: World, cardholder: Cardholder) -> list[tuple[Any, ...]]:
    """Return the days of the networks of the platform: day, network, cycle, net, interchange."""
    return world.rows(
        "SELECT settlement_date, network, cycle, net, interchange FROM finance.network_days"
        " WHERE platform_id = %s ORDER BY settlement_date",
        cardholder.owner.platform_id,
    )


@pytest.mark.parametrize("given_back", [0, 20, 100])
def test_the_day_of_the_network_has_nothing_of_it(
    world: World, play: Play, given_back: int
) -> None:
    """The reversal stood under no network, on the business day of its recording."""
    cardholder = world.cardholder(world.platform(), 200)
    settlement = {"network": "VISA", "settlementDate": str(DAY), "cycle": "2"}
    late = financial(world, cardholder, 100, settlement=settlement | {"interchange": "0.200001"})
    share = str(Decimal("-0.200001") * given_back / 100)
    back = world.event(
        "CLEARING_REVERSAL",
        cardholder,
        "T1",
        given_back,
        settlement=settlement | {"interchange": f"{Decimal(share):.6f}"},
    )
    steps: list[Event | Message] = [
        late,
        *([back] if given_back else []),
        reversal_of(cardholder, late),
    ]

    play(world, cardholder, steps)

    assert network_days(world, cardholder) == [(DAY, "VISA", "2", 0, Decimal(0))]
    assert world.balance(cardholder) == 200


def test_a_reversal_without_settlement_details_has_none(
    world: World, cardholder: Cardholder, play: Play
) -> None:
    before = world.count("settlement_details")
    late = financial(world, cardholder)

    play(world, cardholder, [late, reversal_of(cardholder, late)])

    assert world.count("settlement_details") == before


# --- all the rest --------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.data())
def test_after_any_story_of_late_authorizations_all_books_are_those_of_the_model(
    world: World, platform: Id, data: st.DataObject
) -> None:
    """One by one, as one batch, and in batches of any size."""
    one_by_one, at_once, in_parts = (world.cardholder(platform, 0) for _ in range(3))
    model = Model()
    story = data.draw(strategies.late())
    expected = [model.submit(event) for event in story]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(story)), max_size=4)))

    decided = process(world, one_by_one, *messages_of(one_by_one, story))
    in_one_batch(world, at_once, messages_of(at_once, story))
    messages = messages_of(in_parts, story)
    for start, end in zip([0, *cuts], [*cuts, len(story)], strict=True):
        in_one_batch(world, in_parts, messages[start:end])

    assert outcomes_of(decided) == expected
    for cardholder in (one_by_one, at_once, in_parts):
        world.check_books(cardholder, model)


def messages_of(cardholder: Cardholder, story: Story) -> list[Event | Message]:
    """Return the events of `story` as events of `cardholder`, its timeout reversals as messages."""
    own = {"cardId": cardholder.scene.card_id, "accountId": cardholder.scene.account_id}
    found: list[Event | Message] = []
    for event in story:
        of_cardholder = {name: own.get(name, value) for name, value in event.items()}
        if event["type"] == "TIMEOUT_REVERSAL":
            authorization = event["authorization"] | {"cardId": own["cardId"]}
            found.append(reversal_of(cardholder, authorization))
        else:
            found.append(of_cardholder)
    return found
