"""A canary moves through its queue and leaves nothing behind."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging import canaries, inbox
from cardledger.ledger.messaging.canaries import Observation, Queue
from cardledger.ledger.messaging.inbox import SHARDS, Lane, Message
from cardledger.schema.ids import Id
from cardledger.schema.tables import metadata
from tests.world import INBOX_KEY, World, open_world

QUEUES: list[Queue] = [(lane, shard) for lane in Lane for shard in range(SHARDS)]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def observe(world: World, outstanding: list[tuple[Queue, Id]]) -> Observation:
    """Observe the queues in both ways, which must agree."""

    async def read() -> Observation:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await canaries.observe_async(connection, outstanding)

    observed = asyncio.run(read())
    with psycopg.connect(world.app_url) as connection:
        again = canaries.observe(connection, outstanding)
    assert replace(again, at=observed.at) == observed
    return observed


def send(world: World) -> dict[Queue, Message]:
    at = observe(world, []).at
    sent = {queue: canaries.canary(queue, at) for queue in QUEUES}
    with psycopg.connect(world.app_url) as connection:
        inbox.accept(connection, list(sent.values()), INBOX_KEY)
    return sent


def rows_by_table(world: World) -> dict[str, int]:
    return {table.name: world.count(table.name) for table in metadata.sorted_tables}


def test_a_canary_of_every_queue_is_decided_and_leaves_no_row(world: World) -> None:
    before = rows_by_table(world)
    sent = send(world)
    outstanding = [(queue, message.id) for queue, message in sent.items()]
    waiting = observe(world, outstanding)

    decided = [decision for lane in Lane for decision in world.drain(world.engine(), lane)]

    assert waiting.waiting == {message.id for message in sent.values()}
    assert waiting.heads == {queue: message.id for queue, message in sent.items()}
    assert {decision.message.id for decision in decided} == waiting.waiting
    assert {decision.outcome for decision in decided} == {"IGNORED"}
    assert observe(world, outstanding).waiting == frozenset()
    assert rows_by_table(world) == before


_RECORD_COMMITS = """
    CREATE TABLE IF NOT EXISTS commits (synchronous text);
    GRANT INSERT ON commits TO PUBLIC;
    CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO commits VALUES (current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER note_commit AFTER DELETE ON inbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()
"""
_FORGET_COMMITS = "DROP TRIGGER note_commit ON inbox; DROP FUNCTION note_commit; DROP TABLE commits"


def test_only_a_batch_of_canaries_is_committed_without_waiting_for_the_disk(world: World) -> None:
    engine, owner = world.engine(), world.connection
    cardholder = world.cardholder(world.platform(), 100)
    owner.execute(_RECORD_COMMITS)
    try:
        send(world)
        world.drain(engine)
        of_canaries = set(owner.execute("DELETE FROM commits RETURNING *").fetchall())
        send(world)
        world.process(engine, [(cardholder, world.deposit(cardholder, 100))])
        of_all = owner.execute("TABLE commits").fetchall()
    finally:
        owner.execute(_FORGET_COMMITS)

    assert of_canaries == {("off",)}
    # One commit took the deposit and the canary of its queue, and those of no other queue.
    assert of_all.count(("on",)) == 2


def test_a_canary_that_waits_is_no_difference_to_the_audit(world: World) -> None:
    send(world)

    report = world.verify()

    assert report.holds, report.differences
    assert report.messages.waiting == 0
