"""The thread that sends to Redis goes on, whatever a command or the library raises."""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import pytest
import redis
import structlog
from redis.client import Pipeline
from structlog.testing import capture_logs

from cardledger.workers.signals import best_effort_redis, outage_log
from cardledger.workers.signals.best_effort_redis import BestEffort
from tests.waiting import eventually


class Server:
    """Takes commands as a client and a pipeline of it do, and may raise what neither should."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.errors: list[Exception] = []
        self._commands: list[str] = []

    def pipeline(self, *, transaction: bool) -> "Server":
        assert not transaction
        self._commands = []
        return self

    def __len__(self) -> int:
        return len(self._commands)

    def ping(self, name: str) -> None:
        self._commands.append(name)

    def execute(self, *, raise_on_error: bool) -> list[bool]:
        assert not raise_on_error
        if self.errors:
            raise self.errors.pop()
        self.sent += self._commands
        return [True for _ in self._commands]


def ping(name: str) -> Callable[[Pipeline], object]:
    return lambda pipeline: cast(Server, pipeline).ping(name)


def broken(_: Pipeline) -> None:
    raise KeyError("a defect")


@contextmanager
def sending(server: Server, *first: Callable[[Pipeline], object]) -> Iterator[BestEffort]:
    """Yield a sender on `server` that sends `first` together."""
    sender = BestEffort(cast(redis.Redis, server))
    for fill in first:
        sender.send(fill)
    sender.start()
    try:
        yield sender
    finally:
        sender.stop()


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as captured:
        yield captured
    structlog.configure(**before)


def test_a_command_that_cannot_be_made_costs_no_other_and_is_logged_once(
    logs: list[MutableMapping[str, Any]],
) -> None:
    server = Server()

    with sending(server, ping("before"), broken, ping("behind")) as sender:
        eventually(lambda: len(server.sent) == 2)
        sender.send(broken)
        sender.send(ping("later"))
        eventually(lambda: len(server.sent) == 3)
        is_running = sender.is_running

    assert server.sent == ["before", "behind", "later"]
    assert is_running
    assert not sender.is_running
    assert [line["event"] for line in logs] == ["commands not sent to Redis"]


def test_an_error_of_the_library_is_a_failure_of_redis_and_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, logs: list[MutableMapping[str, Any]]
) -> None:
    failures: list[BaseException] = []
    monkeypatch.setattr(outage_log.REDIS, "failed", failures.append)
    monkeypatch.setattr(best_effort_redis, "_UNAVAILABLE_S", 0.0)
    server, defect = Server(), ValueError("a defect")
    server.errors.append(defect)

    with sending(server, ping("lost")) as sender:
        eventually(lambda: failures)
        sender.send(ping("later"))
        eventually(lambda: server.sent)

    assert server.sent == ["later"]
    assert failures == [defect]
    assert [line["event"] for line in logs] == ["commands not sent to Redis"]
