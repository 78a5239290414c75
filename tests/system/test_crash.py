"""kill -9 in the middle of the work: nothing is lost, nothing happens twice."""

import asyncio
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.testing.model import Model
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import Client
from cardledger.workers.process.config import WorkerConfig
from tests.waiting import eventually, limit_s
from tests.worker_process import WorkerChild
from tests.world import SECRET_KEY, Cardholder, World, open_world

KILLS: Final = 5

Event = dict[str, Any]


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@contextmanager
def worker(world: World, redis_url: str) -> Iterator[WorkerChild]:
    """Run a worker process that is killed at the end, if it has not been before."""
    process = WorkerChild(
        WorkerConfig(
            database_url=world.app_url,
            redis_url=redis_url,
            secret_key=SECRET_KEY,
            threads=4,
            batch_size=50,
            sweep_interval_s=0.05,
        )
    )
    try:
        yield process
    finally:
        process.kill()


def at_most(world: World, table: str, rows: int) -> bool:
    return world.count(table) <= rows


def at_least(world: World, table: str, rows: int) -> bool:
    return world.count(table) >= rows


def traffic(
    world: World, cardholders: list[Cardholder], size: int
) -> list[tuple[Cardholder, Event]]:
    """Return random purchases and deposits, 1 % of them twice; the same for the same ids."""
    chance = random.Random(size)  # noqa: S311 - no secret
    events: list[tuple[Cardholder, Event]] = []
    for _ in range(size):
        cardholder = chance.choice(cardholders)
        token, amount = f"T{chance.randint(1, 60)}", chance.randint(1, 300)
        if events and chance.random() < 0.01:
            events.append(chance.choice(events))
        elif chance.random() < 0.6:
            events.append((cardholder, world.authorization(cardholder, token, amount)))
        elif chance.random() < 0.8:
            final = chance.choice([True, False])
            events.append((cardholder, world.clearing(cardholder, token, amount, final=final)))
        else:
            events.append((cardholder, world.deposit(cardholder, amount)))
    return events


def models_of(
    cardholders: list[Cardholder], events: list[tuple[Cardholder, Event]]
) -> tuple[dict[Cardholder, Model], list[str]]:
    """Return the expected books at the end, and the expected outcomes."""
    models = {cardholder: Model() for cardholder in cardholders}
    for cardholder, model in models.items():
        model.submit(
            {"type": "DEPOSIT", "source": "start", "reference": str(cardholder), "amount": 2000}
        )
    return models, [models[cardholder].submit(event) for cardholder, event in events]


def test_a_worker_killed_repeatedly_loses_no_event_and_applies_none_twice(
    world: World, redis_url: str
) -> None:
    platform = world.platform()
    cardholders = [world.cardholder(platform, 2000) for _ in range(24)]
    events = traffic(world, cardholders, 6000)
    models, expected = models_of(cardholders, events)
    # A cardholder's events stay in one lane, in which their order is kept.
    for lane in Lane:
        in_lane = [
            (cardholder, event)
            for cardholder, event in events
            if cardholder in cardholders[lane::2]
        ]
        world.accept(in_lane, lane)
    assert world.count("inbox") == len(events)

    for number in range(1, KILLS + 1):
        goal = len(events) * (KILLS + 1 - number) // (KILLS + 1)
        with worker(world, redis_url) as process:
            eventually(partial(at_most, world, "inbox", goal), poll_s=0.001, process=process)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert world.count("inbox") > 0, "the worker was killed in the middle of its work"
    with worker(world, redis_url) as process:
        eventually(lambda: world.count("inbox") == 0, poll_s=0.001, process=process)

    for cardholder, model in models.items():
        world.check_books(cardholder, model)
    deposits = len(cardholders)  # Their first ones.
    assert world.count("outcomes") == len(expected) - expected.count("DUPLICATE") + deposits
    [(facts, messages)] = world.rows(
        "SELECT count(*), count(DISTINCT message_id) FROM card_transaction_events"
        " WHERE kind IN ('AUTHORIZED', 'DECLINED', 'CLEARED')"
    )
    assert facts == messages, "no message was applied twice"


def test_a_pending_submission_survives_workers_that_are_killed(
    world: World, redis_url: str
) -> None:
    platform = world.platform()
    cardholders = [world.cardholder(platform, 2000) for _ in range(8)]
    events = [
        (cardholder, event)
        for cardholder, event in traffic(world, cardholders, 3000)
        if event["type"] != "DEPOSIT"
    ]
    models, expected = models_of(cardholders, events)
    before = world.count("outcomes")

    async def submit() -> list[Outcome]:
        engine = async_engine(world.app_url, keyed=True)
        try:
            async with Client(
                engine, redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
            ) as client:
                return await client.submit([event for _, event in events], lane=Lane.BULK)
        finally:
            await engine.dispose()

    with ThreadPoolExecutor(1) as thread:
        submission = thread.submit(asyncio.run, submit())
        for number in range(1, 4):
            with worker(world, redis_url) as process:
                goal = before + len(events) * number // 5
                eventually(
                    partial(at_least, world, "outcomes", goal), poll_s=0.001, process=process
                )
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert not submission.done()
        with worker(world, redis_url):
            outcomes = submission.result(limit_s())

    assert [outcome.reference for outcome in outcomes] == [
        event["reference"] for _, event in events
    ]
    assert [outcome.outcome.value for outcome in outcomes] == expected
    for cardholder, model in models.items():
        world.check_books(cardholder, model)


def test_a_worker_finishes_its_batch_on_sigterm_and_exits_with_0(
    world: World, redis_url: str
) -> None:
    cardholder = world.cardholder(world.platform(), 1_000_000)
    events = [(cardholder, world.authorization(cardholder, f"T{n}", 1)) for n in range(4000)]
    world.accept(events, Lane.BULK)

    with worker(world, redis_url) as process:
        eventually(lambda: world.count("inbox") < 3500, poll_s=0.001, process=process)
        process.send_signal(signal.SIGTERM)

        assert process.wait() == 0

    world.check_books(cardholder)
    decided = world.account(cardholder)["transactions"]
    assert len(decided) + world.count_waiting() == 4000
    with worker(world, redis_url) as process:
        eventually(lambda: world.count("inbox") == 0, poll_s=0.001, process=process)
    assert world.account(cardholder)["balance"] == 996_000
