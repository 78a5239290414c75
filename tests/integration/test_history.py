"""Card transactions at every version, folded from the events alone."""

import asyncio
import random
from collections.abc import Iterator

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.projections import card_transaction, history, past_versions
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.history import Version
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
def decided(world: World, cardholder: Cardholder) -> dict[Version, RollUp]:
    """Play many events; return the roll-up that the engine returned for each, by version."""
    chance = random.Random(5)  # noqa: S311 - no secret
    events = []
    for _ in range(400):
        token, amount = f"T{chance.randint(1, 25)}", chance.randint(1, 200)
        merchant = {"merchant": {"descriptor": "CAFE", "mcc": "5814", "country": "IT"}}
        event = chance.choice(
            [
                world.authorization(cardholder, token, amount, **merchant),
                world.clearing(cardholder, token, amount, final=chance.random() < 0.4, **merchant),
                world.deposit(cardholder, amount // 2 + 1),
            ]
        )
        events.append((cardholder, event))
    outcomes = world.process(world.engine(batch_size=37), events)
    return {
        (outcome.roll_up.identity.id, outcome.roll_up.state.sequence): outcome.roll_up
        for outcome in outcomes
        if outcome.roll_up
    }


def at(world: World, versions: list[Version]) -> dict[Version, RollUp]:
    with psycopg.connect(world.app_url) as connection:
        return history.at(connection, versions)


def test_a_past_version_is_the_one_the_engine_returned(
    world: World, decided: dict[Version, RollUp]
) -> None:
    # Recoveries change card transactions without an outcome of their own; these have one each.
    assert len(decided) > 100
    assert at(world, list(decided)) == decided


def test_a_past_version_renders_the_same_resource(
    world: World, decided: dict[Version, RollUp]
) -> None:
    past = at(world, list(decided))

    for version, roll_up in decided.items():
        expected = card_transaction.render(roll_up).wire()
        assert card_transaction.render(past[version]).wire() == expected


def test_the_current_roll_up_is_the_one_at_the_last_version(
    world: World, cardholder: Cardholder, decided: dict[Version, RollUp]
) -> None:
    assert decided
    versions: list[Version] = world.rows(
        "SELECT id, sequence FROM card_transactions WHERE account_id = %s", cardholder.account_id
    )

    async def current() -> dict[Id, RollUp]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await history.current_async(connection, [key for key, _ in versions])

    with psycopg.connect(world.app_url) as connection:
        current_in_thread = history.current(connection, [key for key, _ in versions])

    by_id = {key: roll_up for (key, _), roll_up in at(world, versions).items()}
    assert by_id == current_in_thread == asyncio.run(current())


def test_every_version_in_between_can_be_read(
    world: World, cardholder: Cardholder, decided: dict[Version, RollUp]
) -> None:
    assert decided
    [(key, last)] = world.rows(
        "SELECT id, sequence FROM card_transactions WHERE account_id = %s"
        " ORDER BY sequence DESC LIMIT 1",
        cardholder.account_id,
    )

    roll_ups = at(world, [(key, sequence) for sequence in range(1, last + 1)])

    assert [roll_ups[key, sequence].state.sequence for sequence in range(1, last + 1)] == list(
        range(1, last + 1)
    )


def test_a_version_that_does_not_exist_is_left_out(
    world: World, decided: dict[Version, RollUp]
) -> None:
    (key, sequence), roll_up = next(iter(decided.items()))

    roll_ups = at(world, [(key, sequence), (key, 0), (key, 10_000), (new_id(), 1)])

    assert roll_ups == {(key, sequence): roll_up}
    assert at(world, []) == {}


def test_an_asynchronous_connection_reads_the_same_versions(
    world: World, decided: dict[Version, RollUp]
) -> None:
    async def read() -> dict[Version, RollUp]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await past_versions.at(connection, list(decided))

    assert asyncio.run(read()) == decided


def test_every_webhook_of_a_card_transaction_can_be_rendered_from_its_version(
    world: World, cardholder: Cardholder, decided: dict[Version, RollUp]
) -> None:
    assert decided
    outbox = world.rows(
        "SELECT subject_id, sequence, type FROM outbox WHERE customer_id = %s"
        " AND type LIKE 'CARD_TRANSACTION.%%'",
        cardholder.owner.customer_id,
    )

    roll_ups = at(world, [(key, sequence) for key, sequence, _ in outbox])

    assert len(outbox) >= len(decided)
    for key, sequence, kind in outbox:
        assert kind == f"CARD_TRANSACTION.{roll_ups[key, sequence].state.status}"
