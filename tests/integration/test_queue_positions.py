"""A claim begins where the last one left off, and nothing is overlooked for that."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging import claims, inbox
from cardledger.ledger.messaging.inbox import SHARDS, Lane, Message
from cardledger.ledger.messaging.queue_positions import BEGINNING, MARGIN, QueuePositions
from cardledger.ledger.storage.engines import driver
from cardledger.ledger.storage.ids import first_id_at, new_id
from cardledger.schema.ids import Id
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

DEAD = 80_000


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 1000)


def authorization(world: World, cardholder: Cardholder, token: str, *, age: timedelta) -> Message:
    """Commit an authorization whose id was made `age` ago; return its message."""
    body = world.authorization(cardholder, token, 1)
    now = datetime.now(UTC)
    message = inbox.address(body, cardholder.owner, lane=Lane.LIVE, reply_to=None, at=now)
    message.id = Id(first_id_at(now - age)[:6] + new_id()[6:])
    with psycopg.connect(world.app_url) as connection:
        inbox.accept(connection, [message], INBOX_KEY)
    return message


def test_deleted_messages_that_a_snapshot_still_sees_are_not_read_again(
    world: World, cardholder: Cardholder
) -> None:
    fill = (
        "INSERT INTO inbox SELECT 0, %s, (lpad(to_hex(n), 12, '0') || repeat('0', 20))::uuid,"
        " %s, %s, 'test', n::text, '{}', '', NULL, now() FROM generate_series(1, %s) n"
    )
    owner = cardholder.owner
    world.connection.execute(fill, [cardholder.shard, owner.customer_id, owner.platform_id, DEAD])
    with psycopg.connect(world.url) as backup:
        backup.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        backup.execute("SELECT FROM inbox LIMIT 1")
        world.connection.execute("DELETE FROM inbox")
        world.accept([(cardholder, world.authorization(cardholder, "T1", 1))])
        positions = QueuePositions()

        def claim_s(positions: QueuePositions) -> float:
            """Return how long a claim takes."""
            with world.database.begin() as connection:
                began = perf_counter()
                claim = claims.claim(
                    driver(connection),
                    Lane.LIVE,
                    list(range(SHARDS)),
                    500,
                    INBOX_KEY,
                    positions=positions,
                )
                seconds = perf_counter() - began
            assert len(claim.messages) == 1
            return seconds

        # The least of three each.
        from_the_beginning = min(claim_s(QueuePositions()) for _ in range(3))
        claim_s(positions)
        from_the_position = min(claim_s(positions) for _ in range(3))

    # Measured on an idle machine: 40 ms and 1 ms.
    assert from_the_position * 5 < from_the_beginning
    world.drain(world.engine())


def test_a_message_that_is_committed_far_behind_the_position_is_found_by_the_next_look(
    world: World, cardholder: Cardholder
) -> None:
    engine = world.engine()
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 1))])
    authorization(world, cardholder, "LATE", age=10 * MARGIN)
    decided: list[str] = []

    engine.drain(Lane.LIVE, [cardholder.shard], lambda batch: decided.extend(outcomes_of(batch)))
    assert decided == []
    assert engine.waiting() == [(Lane.LIVE, cardholder.shard)]
    engine.drain(Lane.LIVE, [cardholder.shard], lambda batch: decided.extend(outcomes_of(batch)))

    assert decided == ["APPLIED"]


def test_a_message_that_is_committed_a_little_late_is_claimed_next_and_in_order(
    world: World, cardholder: Cardholder
) -> None:
    engine = world.engine()
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 1))])
    late = authorization(world, cardholder, "LATE", age=MARGIN / 2)
    [new] = world.accept([(cardholder, world.authorization(cardholder, "T2", 1))])
    decided: list[Id] = []

    engine.drain(
        Lane.LIVE, [cardholder.shard], lambda batch: decided.extend(d.message.id for d in batch)
    )

    assert decided == [late.id, new.id]


def test_an_id_of_a_time_to_come_does_not_hide_what_comes_before(
    world: World, cardholder: Cardholder
) -> None:
    engine = world.engine()
    authorization(world, cardholder, "EARLY", age=timedelta(days=-7))
    decided = [*world.drain(engine)]
    world.accept([(cardholder, world.authorization(cardholder, "T1", 1))])

    engine.drain(Lane.LIVE, [cardholder.shard], decided.extend)

    assert outcomes_of(decided) == ["APPLIED", "APPLIED"]


def test_a_position_that_was_moved_back_is_not_moved_on_by_a_claim_that_began_before(
    world: World, cardholder: Cardholder
) -> None:
    positions, shard = QueuePositions(), cardholder.shard
    used = positions.of(Lane.LIVE, [shard])
    [message] = world.accept([(cardholder, world.authorization(cardholder, "T1", 1))])
    old = first_id_at(datetime.now(UTC) - 10 * MARGIN)

    positions.found([(Lane.LIVE, shard, old)])
    positions.advance(Lane.LIVE, used, [message])

    assert BEGINNING < positions.of(Lane.LIVE, [shard])[shard] < old
    world.drain(world.engine())
