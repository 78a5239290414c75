"""Card transactions as they were: every place of every one, from the events alone."""

import asyncio
import random
from collections.abc import Iterator

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.projections import card_transaction, history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.history import Place
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from tests.world import Cardholder, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 2000)


@pytest.fixture(scope="module")
def told(world: World, cardholder: Cardholder) -> dict[Place, RollUp]:
    """Live a busy day; return what the engine said after every message, by place."""
    chance = random.Random(5)  # noqa: S311 - no secret
    events = []
    for _ in range(400):
        token, amount = f"T{chance.randint(1, 25)}", chance.randint(1, 200)
        said = {"merchant": {"descriptor": "CAFE", "mcc": "5814", "country": "IT"}}
        event = chance.choice(
            [
                world.authorization(cardholder, token, amount, **said),
                world.clearing(cardholder, token, amount, final=chance.random() < 0.4, **said),
                world.deposit(cardholder, amount // 2 + 1),
            ]
        )
        events.append((cardholder, event))
    decided = world.process(world.engine(batch_size=37), events)
    return {
        (one.roll_up.identity.id, one.roll_up.state.sequence): one.roll_up
        for one in decided
        if one.roll_up
    }


def at(world: World, places: list[Place]) -> dict[Place, RollUp]:
    with psycopg.connect(world.app_url) as connection:
        return history.at(connection, places)


def test_the_past_is_what_was_said_at_the_time(world: World, told: dict[Place, RollUp]) -> None:
    # Recoveries move card transactions without an answer of their own; these have one each.
    assert len(told) > 100
    assert at(world, list(told)) == told


def test_the_past_looks_the_same_to_its_readers(world: World, told: dict[Place, RollUp]) -> None:
    then = at(world, list(told))

    for place, said in told.items():
        assert card_transaction.render(then[place]).wire() == card_transaction.render(said).wire()


def test_today_is_the_last_place(
    world: World, cardholder: Cardholder, told: dict[Place, RollUp]
) -> None:
    assert told
    places: list[Place] = world.rows(
        "SELECT id, sequence FROM card_transactions WHERE account_id = %s", cardholder.account_id
    )

    async def today() -> dict[Id, RollUp]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await history.today(connection, [key for key, _ in places])

    with psycopg.connect(world.app_url) as connection:
        now = history.now(connection, [key for key, _ in places])

    assert {key: said for (key, _), said in at(world, places).items()} == asyncio.run(today())
    assert now == asyncio.run(today())


def test_every_place_in_between_can_be_asked_for(
    world: World, cardholder: Cardholder, told: dict[Place, RollUp]
) -> None:
    assert told
    [(key, last)] = world.rows(
        "SELECT id, sequence FROM card_transactions WHERE account_id = %s"
        " ORDER BY sequence DESC LIMIT 1",
        cardholder.account_id,
    )

    found = at(world, [(key, sequence) for sequence in range(1, last + 1)])

    assert [found[key, sequence].state.sequence for sequence in range(1, last + 1)] == list(
        range(1, last + 1)
    )


def test_a_place_that_does_not_exist_is_left_out(world: World, told: dict[Place, RollUp]) -> None:
    (key, sequence), said = next(iter(told.items()))

    found = at(world, [(key, sequence), (key, 0), (key, 10_000), (new_id(), 1)])

    assert found == {(key, sequence): said}
    assert at(world, []) == {}


def test_an_event_loop_sees_the_same_past(world: World, told: dict[Place, RollUp]) -> None:
    async def look() -> dict[Place, RollUp]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await history.at_async(connection, list(told))

    assert asyncio.run(look()) == told


def test_every_webhook_of_a_card_transaction_can_be_rendered_from_its_place(
    world: World, cardholder: Cardholder, told: dict[Place, RollUp]
) -> None:
    assert told
    waiting = world.rows(
        "SELECT subject_id, sequence, type FROM outbox WHERE customer_id = %s"
        " AND type LIKE 'CARD_TRANSACTION.%%'",
        cardholder.owner.customer_id,
    )

    found = at(world, [(key, sequence) for key, sequence, _ in waiting])

    assert len(waiting) >= len(told)
    for key, sequence, kind in waiting:
        assert kind == f"CARD_TRANSACTION.{found[key, sequence].state.status}"
