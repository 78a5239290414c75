"""The proofs of the storm's faults: what struck nothing proves nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

import psycopg
import pytest
from redis import Redis

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.signals.doorbell import QUEUES, keys_of
from storm.faults.arena import Arena, DidNotStrikeError
from storm.faults.crashes import terminated
from storm.faults.errors import failures_in
from storm.faults.silences import _flood_doorbells
from storm.system import System

BATCH: Final = "cardledger batch 0123456789ab.1.2"
WATCH: Final = "cardledger watch 0123456789ab.1.2"


def is_alive(session: psycopg.Connection[tuple[object, ...]]) -> bool:
    try:
        session.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_sessions_are_terminated_only_while_a_batch_is_in_a_transaction(
    database_url: DatabaseUrl,
) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as outsider,
        psycopg.connect(database_url, autocommit=True, application_name=BATCH) as batch,
        psycopg.connect(database_url, autocommit=True, application_name=WATCH) as watch,
    ):
        assert terminated(outsider) == (0, 0)
        assert is_alive(batch)

        batch.execute("BEGIN")

        assert terminated(outsider) == (2, 1)
        assert not is_alive(batch)
        assert not is_alive(watch)


def test_only_the_error_of_the_fault_in_a_session_of_ours_is_a_failure() -> None:
    log = b"""\
2026-11-26 03:38:36.101 UTC [17] 42501 cardledger batch a.1.2 ERROR:  permission denied for table
2026-11-26 03:38:36.101 UTC [17] 42501 cardledger batch a.1.2 STATEMENT:  COPY entries FROM STDIN
2026-11-26 03:38:36.102 UTC [17] 42501 cardledger ERROR:  permission denied for table entries
2026-11-26 03:38:36.103 UTC [18] 57014 cardledger batch a.1.2 ERROR:  canceling statement
2026-11-26 03:38:36.104 UTC [19] 42501 storm ERROR:  permission denied for table entries
2026-11-26 03:38:36.105 UTC [20] 00000 cardledger LOG:  42501 cardledger ERROR: of this line
"""

    assert failures_in(log, "42501") == 2
    assert failures_in(log, "57014") == 1
    assert failures_in(log, "53100") == 0


class WithRedis:
    """As much of a system as the flood of doorbells uses."""

    def __init__(self, url: str) -> None:
        self._url = url

    def redis_client(self) -> Redis:
        return Redis.from_url(self._url)


@contextmanager
def consumers(redis: Redis) -> Iterator[None]:
    """Take doorbells as workers do: what they announce may be announced again."""
    stopping = threading.Event()

    def take() -> None:
        while not stopping.wait(0.005):
            for queue in QUEUES.values():
                announced, _, messages, _ = keys_of(queue)
                redis.delete(announced, messages)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def test_doorbells_that_no_worker_takes_flood_nothing(redis_url: str) -> None:
    arena = Arena(cast("System", WithRedis(redis_url)), seed=1)

    for _ in range(2):  # Those of the first flood wait before the second.
        with pytest.raises(DidNotStrikeError, match=" 0 taken by workers"):
            _flood_doorbells(arena)

    with Redis.from_url(redis_url) as redis, consumers(redis):
        assert "taken by workers" in _flood_doorbells(arena)
