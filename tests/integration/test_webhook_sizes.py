"""Large webhooks of one platform: every statement is bounded by bytes, and no other one waits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import replays, retention
from cardledger.ledger.webhooks.dispatch import Dispatched, dispatch
from cardledger.ledger.webhooks.outbox_claims import Turns
from cardledger.ledger.webhooks.replays import Replayed, Window
from cardledger.schema.ids import Id
from tests.integration.test_webhook_fairness import emit_many, platform_with
from tests.integration.test_webhooks import Platform, World, world_in

MEGABYTE = 1024 * 1024


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


def large(megabytes: int = 1) -> dict[str, str]:
    """Return data of that size, which takes little room once it is compressed."""
    return {"text": "x" * megabytes * MEGABYTE}


def dispatched(world: World, turns: Turns) -> Dispatched:
    with world.engine.begin() as connection:
        return dispatch(connection, limit=500, at=world.clock(), turns=turns)


def test_a_dispatch_has_fewer_deliveries_when_they_are_large(world: World) -> None:
    platform = platform_with(world, 10)  # Of one webhook: 10 MiB.
    keys = [world.emit(platform, data=large()) for _ in range(6)]
    turns = Turns()

    done = [dispatched(world, turns) for _ in keys]

    assert [(one.rows, one.deliveries) for one in done] == [(1, 10)] * len(keys)
    assert [one.has_more for one in done] == [True] * (len(keys) - 1) + [False]
    assert all(len(world.deliveries(key)) == 10 for key in keys)


def test_a_claim_reads_a_bounded_number_of_bytes(world: World) -> None:
    platform = world.platform("https://hooks.example.com/")
    for _ in range(3):
        world.emit(platform, data=large(megabytes=3))

    done = dispatched(world, Turns())

    assert (done.rows, done.has_more) == (2, True)


def test_large_webhooks_delay_no_other_platform(world: World) -> None:
    busy = platform_with(world, 10)
    other = world.platform("https://hooks.example.com/")
    for _ in range(8):
        world.emit(busy, data=large())
    keys = emit_many(world, other, 30)
    turns = Turns()

    for _ in range(2):
        dispatched(world, turns)

    assert all(world.deliveries(key) for key in keys)


def test_the_deliveries_of_one_large_webhook_are_due_in_every_queue(world: World) -> None:
    platform = platform_with(world, 20, mode="FIFO")  # Of one webhook: 20 MiB, in three statements.
    subject = new_id()
    keys = [
        world.emit(platform, subject_id=subject, sequence=number, data=large()) for number in (1, 2)
    ]
    turns = Turns()

    for _ in keys:
        dispatched(world, turns)

    first, second = (world.deliveries(key) for key in keys)
    assert [one.next_attempt_at for one in first] == [world.clock()] * 20
    assert len(second) == 20
    assert all(one.next_attempt_at > world.clock() for one in second)


@contextmanager
def failing_above(database_url: DatabaseUrl, limit: int) -> Iterator[None]:
    """Make PostgreSQL cancel statements that store more deliveries than `limit`."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION too_many_deliveries() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF (SELECT count(*) FROM stored) > {limit} THEN"
            " RAISE EXCEPTION 'it took too long' USING ERRCODE = 'query_canceled'; END IF;"
            " RETURN NULL; END $$"
        )
        owner.execute(
            "CREATE TRIGGER too_many_deliveries AFTER INSERT ON webhook_deliveries"
            " REFERENCING NEW TABLE AS stored EXECUTE FUNCTION too_many_deliveries()"
        )
        try:
            yield
        finally:
            owner.execute("DROP TRIGGER too_many_deliveries ON webhook_deliveries")
            owner.execute("DROP FUNCTION too_many_deliveries()")


def test_a_dispatch_that_fails_is_tried_with_half_as_many(
    world: World, database_url: DatabaseUrl
) -> None:
    emit_many(world, world.platform("https://hooks.example.com/"), 500)
    sender = world.sender()

    with failing_above(database_url, limit=100):
        for _ in range(3):
            with pytest.raises(psycopg.errors.QueryCanceled):
                sender.dispatch()
        rows = [sender.dispatch().rows]
    while world.waiting():
        rows.append(sender.dispatch().rows)

    assert rows == [62, 124, 248, 66]


def missed(world: World, platform: Platform, count: int, megabytes: int = 0) -> list[Id]:
    """Store webhooks that the endpoints of `platform` have missed."""
    keys = [world.emit(platform, data=large(megabytes)) for _ in range(count)]
    while world.dispatch():
        pass
    return keys


def replay(world: World, url: DatabaseUrl, platform: Platform, after: Id | None) -> Replayed:
    async def act() -> Replayed:
        engine = async_engine(url)
        window = Window(
            endpoint_id=None,
            since=world.clock() - timedelta(hours=1),
            until=None,
            only_failed=True,
        )
        async with engine.begin() as connection:
            done = await replays.replay(
                connection,
                platform_id=platform.id,
                window=window,
                after=after,
                at=world.clock(),
            )
        await engine.dispose()
        return done

    return asyncio.run(act())


def test_a_replay_copies_a_bounded_number_of_bytes(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("https://hooks.example.com/")
    world.change(platform.endpoint, state="DISABLED", disabled_reason="PLATFORM")
    missed(world, platform, count=5, megabytes=3)
    world.change(platform.endpoint, state="ENABLED", disabled_reason=None)

    counts, after = list[int](), None
    while not counts or after is not None:
        done = replay(world, app_database_url, platform, after)
        counts.append(done.count)
        after = done.after

    assert counts == [2, 2, 1]


def test_one_large_webhook_is_copied_for_all_endpoints_together(
    world: World, app_database_url: DatabaseUrl
) -> None:
    off = {"state": "DISABLED", "disabled_reason": "PLATFORM"}
    platform = platform_with(world, 7, **off)
    [key] = missed(world, platform, count=1, megabytes=3)
    copies = [one.endpoint_id for one in world.deliveries(key)]
    for endpoint in endpoints_of(world, platform):
        world.change(endpoint, state="ENABLED", disabled_reason=None)

    done = replay(world, app_database_url, platform, None)

    assert copies == [None]
    assert (done.count, done.after) == (7, None)
    assert sum(one.state == "PENDING" for one in world.deliveries(key)) == 7


def endpoints_of(world: World, platform: Platform) -> list[Id]:
    with world.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT id FROM webhook_endpoints WHERE platform_id = %s", (platform.id,)
        )
        return [key for (key,) in rows]


def test_large_deliveries_are_deleted_in_smaller_pages(world: World) -> None:
    platform = world.platform()
    ids = sorted(new_id() for _ in range(5))
    with world.engine.begin() as connection:
        for key in ids:
            connection.exec_driver_sql(_ADD_LARGE, (key, platform.id, world.clock()))
    before = world.clock() + timedelta(days=1)
    just_before = Id((int.from_bytes(ids[0]) - 1).to_bytes(16))

    with world.engine.begin() as connection:
        last = retention.delete_old(connection, before=before, after=just_before)

    assert last == ids[3], "the next one would make it 100 MiB"
    assert [len(world.deliveries(key)) for key in ids] == [0, 0, 0, 0, 1]


_ADD_LARGE = """
    INSERT INTO webhook_deliveries (id, webhook_id, platform_id, created_at, customer_id,
        subject_id, type, state, body)
    SELECT id, id, platform, at, gen_random_uuid(), gen_random_uuid(), 'CARD.STATE_CHANGE',
        'NO_ENDPOINT', repeat('x', 20 * 1024 * 1024)
    FROM (VALUES (%s::uuid, %s::uuid, %s::timestamptz)) AS added (id, platform, at)
"""
