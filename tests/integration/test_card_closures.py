"""A closed card releases what it holds, in pages that other cardholders do not wait for."""

from collections.abc import Iterator, Sequence

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.reads import CLOSING_LIMIT
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.schema.ids import Id
from tests.world import Cardholder, World, open_world, outcomes_of


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def engine(world: World) -> Engine:
    return world.engine()


def authorized(world: World, platform: Id, count: int) -> Cardholder:
    """Return a cardholder with `count` open authorizations, who has nothing left."""
    cardholder = world.cardholder(platform, count)
    events = [world.authorization(cardholder, f"T{n}", 1) for n in range(count)]
    world.process(world.engine(), [(cardholder, event) for event in events])
    return cardholder


def close(world: World, engine: Engine, cardholder: Cardholder) -> list[Decided]:
    """Close the card as the API does; return what the first message has decided."""
    closed = "UPDATE cards SET state = 'CLOSED' WHERE id = %s"
    world.connection.execute(closed, [cardholder.card_id])
    return world.process(engine, [(cardholder, world.card_closed(cardholder))])


def held(world: World, cardholder: Cardholder) -> int:
    return int(world.account(cardholder)["held"])


def test_a_card_is_closed_page_by_page(world: World, platform: Id, engine: Engine) -> None:
    count = 2 * CLOSING_LIMIT + 1
    cardholder = authorized(world, platform, count)

    outcomes = outcomes_of(close(world, engine, cardholder))

    assert outcomes == ["APPLIED"]
    assert held(world, cardholder) == count - CLOSING_LIMIT
    batches: list[Sequence[Decided]] = []
    engine.drain(Lane.BULK, [cardholder.shard], batches.append)
    assert [outcomes_of(batch) for batch in batches] == [["APPLIED"], ["APPLIED"]]
    assert (held(world, cardholder), world.balance(cardholder)) == (0, count)
    world.check_books(cardholder)


def test_a_page_reads_closed_card_transactions_and_goes_on(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = authorized(world, platform, CLOSING_LIMIT)
    settled = [
        (cardholder, world.clearing(cardholder, f"T{n}", 1, final=True))
        for n in range(CLOSING_LIMIT)
    ]
    world.process(engine, settled)
    world.process(engine, [(cardholder, world.deposit(cardholder, 1))])
    world.process(engine, [(cardholder, world.authorization(cardholder, "ZULU", 1))])

    close(world, engine, cardholder)
    world.drain(engine, Lane.BULK)

    assert held(world, cardholder) == 0
    world.check_books(cardholder)


def test_between_two_pages_events_of_the_card_are_decided_as_ever(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = authorized(world, platform, CLOSING_LIMIT + 2)
    close(world, engine, cardholder)
    decided = world.process(
        engine,
        [
            (cardholder, world.authorization(cardholder, "T-new", 1)),
            (cardholder, world.clearing(cardholder, "T99", 1, final=True)),  # On the last page.
            (cardholder, world.clearing(cardholder, "T1", 1)),
        ],
    )
    world.drain(engine, Lane.BULK)

    assert [(each.outcome.value, each.reason) for each in decided] == [
        ("DECLINED", "CARD_NOT_ACTIVE"),
        ("APPLIED", None),
        ("APPLIED", "LATE_CLEARING"),
    ]
    account = world.account(cardholder)
    assert (account["held"], account["balance"]) == (0, CLOSING_LIMIT)
    world.check_books(cardholder)


def test_many_cards_closed_in_one_batch_share_a_page(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholders = [authorized(world, platform, 12) for _ in range(60)]
    world.accept([(one, world.card_closed(one)) for one in cardholders])

    engine.drain(Lane.LIVE, range(SHARDS), lambda _: None)

    assert [held(world, one) for one in cardholders] == [2] * 60
    world.drain(engine, Lane.BULK)
    assert [held(world, one) for one in cardholders] == [0] * 60


def test_a_page_that_comes_twice_is_decided_once(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = authorized(world, platform, CLOSING_LIMIT + 1)
    close(world, engine, cardholder)
    [(body,)] = world.rows("SELECT body FROM inbox WHERE lane = 1")
    world.drain(engine, Lane.BULK)

    repeated = world.process(engine, [(cardholder, body)], Lane.BULK)

    assert outcomes_of(repeated) == ["DUPLICATE"]
    assert world.count("inbox") == 0
