"""Doorbells wake an idle worker within milliseconds."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from redis import Redis, ResponseError

from cardledger.workers.signals import doorbell
from cardledger.workers.signals.broker import WakingBroker
from tests.waiting import eventually, limit_s, slowness


@contextmanager
def consuming(redis_url: str, work: Callable[[int], None]) -> Iterator[tuple[WakingBroker, Any]]:
    """Run one idle worker with one actor, on a queue of its own."""
    broker = WakingBroker(redis_url, middleware=[])
    declare = dramatiq.actor(actor_name="work", queue_name=f"test-{uuid4().hex}", broker=broker)
    actor = declare(work)
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    try:
        yield broker, actor
    finally:
        worker.stop()
        broker.client.close()


def is_asleep(redis: Redis, wake_list: str) -> bool:
    """Return whether a consumer sleeps on Redis, with no wake token left."""
    try:
        number = str(redis.connection_pool.connection_kwargs.get("db", 0))
        return any(
            client["cmd"] == "blpop" and client["db"] == number for client in redis.client_list()
        )
    except ResponseError:
        return not redis.llen(wake_list)  # The Redis in memory has no client list.


def test_an_idle_worker_starts_within_milliseconds(redis_url: str) -> None:
    started: list[float] = []
    woken = threading.Event()

    def work(_: int) -> None:
        started.append(time.perf_counter())
        woken.set()

    latencies = []
    with Redis.from_url(redis_url) as redis, consuming(redis_url, work) as (_, actor):
        for number in range(40):
            eventually(lambda: is_asleep(redis, doorbell.wake_list(actor.queue_name)))
            woken.clear()
            sent = time.perf_counter()
            actor.send(number)
            assert woken.wait(limit_s())
            latencies.append((started[-1] - sent) * 1000)

    p50 = statistics.median(latencies)
    # Measured on an idle machine: 0.6 ms; with Dramatiq's own consumer: 350 ms.
    assert p50 < 50 * slowness(), f"{p50:.2f} ms"


def test_a_lost_wake_token_delays_a_message_and_loses_none(redis_url: str) -> None:
    received: list[int] = []
    with (
        Redis.from_url(redis_url) as redis,
        consuming(redis_url, received.append) as (broker, actor),
    ):
        eventually(lambda: is_asleep(redis, doorbell.wake_list(actor.queue_name)))

        RedisBroker.enqueue(broker, actor.message(7))  # As Dramatiq itself would: no token.

        eventually(lambda: received == [7])


def test_unread_wake_tokens_do_not_accumulate(redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        for _ in range(200):
            pipeline = redis.pipeline(transaction=False)
            doorbell.wake(pipeline, "unread")
            pipeline.execute()

        assert redis.llen(doorbell.wake_list("unread")) <= 32
        redis.delete(doorbell.wake_list("unread"))


def test_doorbells_of_another_sender_are_received_once_each(redis_url: str) -> None:
    received: list[int] = []
    with Redis.from_url(redis_url) as redis, consuming(redis_url, received.append) as (_, actor):
        bells = [doorbell.Doorbell(actor.queue_name, "work", (n,)) for n in range(100)]
        pipeline = redis.pipeline(transaction=False)
        doorbell.notify(pipeline, bells)
        pipeline.execute()

        eventually(lambda: len(received) == 100)
        assert sorted(received) == list(range(100))


def test_a_busy_consumer_takes_every_waiting_message(redis_url: str) -> None:
    received: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        gate.wait(limit_s())
        received.append(number)

    with consuming(redis_url, work) as (_, actor):
        for number in range(200):
            actor.send(number)
        gate.set()
        eventually(lambda: len(received) == 200)
