"""Several late authorizations of one purchase, and late financial authorizations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from tests.integration.test_timeout_reversals import DEADLINE, NOON, process, reversal_of
from tests.world import Cardholder, World, open_world

Event = dict[str, Any]
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


def seen(world: World, cardholder: Cardholder) -> Event:
    """Return what readers see of the account and of T1, but for the way in which it got there."""
    world.check_books(cardholder)
    account = world.account(cardholder)
    shown = account["transactions"]["T1"]
    return {name: account[name] for name in ("balance", "held", "owed")} | {
        name: shown[name] for name in SHOWN
    }


ALL_LATE = [
    ("AUTHORIZATION", "AUTHORIZATION_INCREMENT"),
    ("FINANCIAL_AUTHORIZATION", "FINANCIAL_AUTHORIZATION"),
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
        assert account["settled"] == 0, order
        assert account["status"] == "VOIDED", order
