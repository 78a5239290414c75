"""A message that alone takes longer than a statement may: its cardholder waits, others do not."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine import writes
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.failures import UnavailableError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.schema.ids import Id
from tests.world import Cardholder, World, open_world, outcomes_of


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@contextmanager
def cancelling(slow: Collection[Cardholder]) -> Iterator[None]:
    """Let PostgreSQL cancel each statement that writes what is decided for one of `slow`."""
    write, customers = writes.write, {one.owner.customer_id for one in slow}

    def cancelled(*arguments: Any, decided: Sequence[Message]) -> None:  # noqa: ANN401
        if not customers.isdisjoint(message.customer_id for message in decided):
            raise psycopg.errors.QueryCanceled
        write(*arguments, decided=decided)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writes, "write", cancelled)
        yield


def drained_past_cancellations(engine: Engine, queues: Sequence[int]) -> list[Decided]:
    """Drain `queues` as a worker does, which tries again after a failure."""
    decided: list[Decided] = []
    for _ in range(4):
        with suppress(UnavailableError):
            engine.drain(Lane.LIVE, queues, decided.extend)
    return decided


@pytest.mark.parametrize("batch_size", [2, 8])
def test_a_cardholder_whose_message_alone_is_too_slow_is_left_out(
    world: World, platform: Id, batch_size: int
) -> None:
    """Batches with that message were cancelled, and nothing in its lane was decided."""
    slow, other = (world.cardholder(platform, 10_000) for _ in range(2))
    engine = world.engine(batch_size=batch_size)
    world.accept([(slow, world.authorization(slow, "T0", 1))])
    world.accept([(other, world.authorization(other, f"T{n}", 1)) for n in range(10)])

    with cancelling([slow]):
        decided = drained_past_cancellations(engine, sorted({slow.shard, other.shard}))

    assert outcomes_of(decided) == ["APPLIED"] * 10
    assert engine.locked_cardholders() == [slow.owner.customer_id]


def test_nobody_is_left_out_while_the_whole_server_is_slow(world: World, platform: Id) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(3)]
    engine = world.engine(batch_size=8)
    world.accept([(one, world.authorization(one, "T0", 1)) for one in cardholders])
    queues = sorted({one.shard for one in cardholders})

    with cancelling(cardholders):
        assert drained_past_cancellations(engine, queues) == []

    assert engine.locked_cardholders() == []
    assert outcomes_of(drained_past_cancellations(engine, queues)) == ["APPLIED"] * 3


def test_a_slow_message_behind_one_that_stalls_stops_no_others(world: World, platform: Id) -> None:
    stalled, slow, other = (world.cardholder(platform, 10_000) for _ in range(3))
    engine = world.engine(batch_size=8)
    first = world.authorization(stalled, "T0", 1)
    world.connection.execute(
        sql.SQL("ALTER TABLE outcomes ADD CONSTRAINT curse CHECK (reference <> {})").format(
            first["reference"]
        )
    )
    try:
        world.accept([(stalled, first), (slow, world.authorization(slow, "T0", 1))])
        world.accept([(other, world.authorization(other, f"T{n}", 1)) for n in range(10)])
        with cancelling([slow]):
            queues = sorted({stalled.shard, slow.shard, other.shard})
            decided = drained_past_cancellations(engine, queues)
    finally:
        world.connection.execute("ALTER TABLE outcomes DROP CONSTRAINT curse")

    assert outcomes_of(decided) == ["APPLIED"] * 10
