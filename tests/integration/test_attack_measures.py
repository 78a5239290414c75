"""What an attack is measured by is counted in the tables themselves."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from attack import measures
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.platforms.quotas import EVERY_PLATFORM
from cardledger.ledger.webhooks.endpoints import ENDPOINT_LIMIT
from cardledger.schema.ids import Id
from tests.world import World, open_world


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def broken(world: World, platform: Id) -> set[str]:
    return {
        measure.name for measure in measures.rows(world.connection, platform) if not measure.holds
    }


def test_rows_above_a_quota_of_the_database_are_found(world: World) -> None:
    platform, other = world.platform(), world.platform()
    world.cardholder(platform, 0)
    world.cardholder(other, 0)
    before = broken(world, platform)

    world.connection.execute(
        "INSERT INTO row_quotas (platform_id, resource, rows) VALUES (%s, 'cards', 0)", [platform]
    )

    assert before == set()
    assert broken(world, platform) == {"rows: all cards"}
    assert broken(world, other) == set()


def test_every_resource_with_a_quota_is_measured(world: World) -> None:
    resources = world.rows("SELECT resource FROM row_quotas WHERE platform_id = %s", EVERY_PLATFORM)

    names = {measure.name for measure in measures.rows(world.connection, world.platform())}

    assert len(resources) >= 12
    assert {f"rows: all {resource.replace('_', ' ')}" for (resource,) in resources} < names


def test_large_rejections_and_too_many_deliveries_of_an_event_are_found(world: World) -> None:
    platform, at = world.platform(), datetime.now(UTC)
    world.connection.execute(
        "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
        " VALUES (%s, %s, %s, %s, 'MALFORMED', %s)",
        [uuid4(), uuid4(), platform, "x" * (measures.REJECTED_BYTES + 1), at],
    )
    event = uuid4()
    for _ in range(ENDPOINT_LIMIT + 1):
        world.connection.execute(
            "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body,"
            " state, attempts, created_at, webhook_id, endpoint_id)"
            " VALUES (%s, %s, %s, 'X', %s, '{}', 'DELIVERED', 1, %s, %s, %s)",
            [uuid4(), event, platform, event, at, event, uuid4()],
        )

    assert broken(world, platform) == {
        "rows: bytes of a rejected event",
        "rows: deliveries of an event",
    }
