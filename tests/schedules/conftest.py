from collections.abc import Iterator
from contextlib import closing

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from tests.schedules.driver import Driver, stepped_database
from tests.schedules.stage import Theatre
from tests.world import World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def driver(database_url: DatabaseUrl) -> Iterator[Driver]:
    with closing(Driver(database_url)) as made:
        yield made


@pytest.fixture(scope="module")
def theatre(world: World, platform: Id, driver: Driver) -> Iterator[Theatre]:
    databases = stepped_database(world.app_url), stepped_database(world.app_url)
    yield Theatre(world, platform, driver, databases)
    for database in databases:
        database.dispose()
