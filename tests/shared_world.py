"""A world and a cardholder for all tests of a module: fixtures to import."""

from collections.abc import Iterator

import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.world import Cardholder, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 50_000)
