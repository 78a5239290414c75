"""A worker with nothing to do stops at once: it waits for no time-out of a sleeping thread."""

import socket
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Final

import pytest
from redis import Redis

from cardledger.workers.process.actors import Handlers, declare
from cardledger.workers.process.doorbell_worker import DoorbellWorker
from cardledger.workers.signals import broker as broker_module
from cardledger.workers.signals import webhook_signals
from cardledger.workers.signals.broker import WakingBroker
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.signals.webhook_signals import WebhookWakeupListener
from tests.integration.workers import dead_redis
from tests.waiting import eventually, limit_s

__all__ = ["dead_redis"]  # A fixture.

HOUR_S: Final = 3600


@pytest.fixture(autouse=True)
def sleeps_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every sleep last an hour, so that a stop that waits for one never ends."""
    monkeypatch.setattr(broker_module, "_IDLE_MS", HOUR_S * 1000)
    monkeypatch.setattr(broker_module, "_RETRY_S", HOUR_S)
    monkeypatch.setattr(webhook_signals, "_LISTEN_S", HOUR_S)


@pytest.fixture
def silent_redis() -> Iterator[str]:
    """The URL of a port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


@pytest.fixture(params=["redis_url", "dead_redis", "silent_redis"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def patient(client: Redis) -> Redis:
    """Return `client` without a time-out."""
    client.connection_pool.connection_kwargs["socket_timeout"] = None
    return client


def ends(stop: Callable[[], object]) -> bool:
    """Call `stop` and return whether it ended."""
    thread = Thread(target=stop, daemon=True)
    thread.start()
    thread.join(limit_s())
    return not thread.is_alive()


def is_waiting(client: Redis, count: int) -> bool:
    """Whether `count` threads wait for an answer on connections of `client`."""
    return len(client.connection_pool._in_use_connections) == count


def test_a_worker_stops_while_its_threads_sleep(url: str) -> None:
    broker = WakingBroker(url)
    patient(broker.client)
    declare(broker, Handlers(lambda *_: None, lambda: None, lambda: None))
    worker = DoorbellWorker(broker, threads=2)
    worker.worker_timeout = HOUR_S * 1000
    failures = REDIS.failures
    worker.start()
    try:
        eventually(lambda: is_waiting(broker.client, 3) or REDIS.failures >= failures + 3)
    finally:
        is_ended = ends(worker.stop)

    assert is_ended


def test_a_listener_stops_while_it_sleeps(url: str) -> None:
    client = patient(connect(url))

    class Webhooks:
        def wake(self) -> None: ...
        def wake_dispatch(self) -> None: ...

    listener = WebhookWakeupListener(client, Webhooks(), every_s=HOUR_S)
    failures = REDIS.failures
    listener.start()
    eventually(lambda: is_waiting(client, 1) or REDIS.failures > failures)

    assert ends(lambda: listener.stop(HOUR_S))
    assert not is_waiting(client, 1)
    client.close()
