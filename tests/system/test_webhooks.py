"""The webhook sender is killed repeatedly while it sends to a receiver that fails at random.

The same at full size, with figures: benchmarks/webhook_faults.py.
"""

from collections.abc import Iterator

import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests import storm
from tests.world import World, open_world


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def test_a_killed_sender_loses_nothing_and_keeps_the_order(world: World, redis_url: str) -> None:
    report = storm.storm(world, redis_url, events=600, kills=3)

    assert report.webhooks == report.events
    assert report.not_delivered == 0
    assert report.out_of_order == 0
    assert report.with_two_bodies == 0
    assert report.unproven == 0
    assert report.requests > report.events * 1.2, "some requests did fail"


def test_first_attempts_are_made_soon_after_the_commit(world: World, redis_url: str) -> None:
    report = storm.latency(world, redis_url, rate=100, seconds=3)

    # The machine may have other work; the benchmark holds the sender to 100 ms and 1 s.
    assert report.p50_ms < 1_000, report
    assert report.p99_ms < 5_000, report
