"""What docs/network-events.md says, tried on a real engine."""

from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_event_schema import EXAMPLES
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client
from tests.integration.workers import outcome_types, with_client, working
from tests.world import Cardholder, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(autouse=True, scope="module")
def worker(world: World, redis_url: str) -> Iterator[None]:
    with working(world, redis_url):
        yield


def examples_of(cardholder: Cardholder) -> list[dict[str, Any]]:
    """Return the examples of the page, of the card of `cardholder` and without a deadline."""
    return [
        {name: value for name, value in event.items() if name != "decideBy"}
        | {"cardId": f"Card:{cardholder.card_id}"}
        for event in EXAMPLES.values()
    ]


def test_the_examples_are_applied_in_their_order(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    events = examples_of(cardholder)

    outcomes = with_client(world, redis_url, lambda client: client.submit(events))

    assert outcome_types(outcomes) == ["APPLIED"] * len(EXAMPLES)
    assert [outcome.reason for outcome in outcomes] == [None] * len(EXAMPLES)
    world.check_books(cardholder)


def test_no_example_is_rejected_in_any_order(world: World, platform: Id, redis_url: str) -> None:
    cardholder = world.cardholder(platform, 50_000)
    events = examples_of(cardholder)[::-1]

    outcomes = with_client(world, redis_url, lambda client: client.submit(events))

    assert "REJECTED" not in outcome_types(outcomes)
    assert "PARKED" in outcome_types(outcomes)


def test_a_corrected_event_is_applied_under_the_reference_of_its_rejection(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    right = world.authorization(cardholder, "T-corrected", 1_000)
    malformed = right | {"amount": "10.00", "currency": "usd"}
    other_currency = right | {"currency": "EUR"}

    async def corrected(client: Client) -> list[Outcome]:
        return await client.submit([malformed, other_currency, right, right])

    first, second, third, fourth = with_client(world, redis_url, corrected)

    assert first.reason == "MALFORMED"
    assert first.detail == (
        "currency must match ^[A-Z]{3,8}$;"
        " amount must be a JSON integer, without quotes, decimal point or exponent"
    )
    assert second.reason == "INVALID_CURRENCY"
    assert outcome_types([third, fourth]) == ["APPLIED", "DUPLICATE"]


def test_a_reversal_that_was_parked_is_applied_once_its_corrected_authorization_arrives(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    authorization = world.authorization(cardholder, "T-parked", 1_000)
    reversal = world.event("AUTHORIZATION_REVERSAL", cardholder, "T-parked", 1_000)

    async def story(client: Client) -> list[Outcome]:
        events = [authorization | {"amount": 0}, reversal, authorization, reversal]
        return await client.submit(events)

    outcomes = with_client(world, redis_url, story)

    assert outcome_types(outcomes) == ["REJECTED", "PARKED", "APPLIED", "DUPLICATE"]
    assert outcomes[-1].first_outcome == "PARKED"
    assert outcomes[-1].card_transaction is not None
    assert outcomes[-1].card_transaction.status == "VOIDED"
