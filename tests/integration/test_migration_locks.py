"""A migration beside others: it waits shortly for locks, tries again, gives up, and goes on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import migrate
from tests.databases import fresh_database
from tests.waiting import limit_s

BEFORE = "0009"  # Revision 0010 adds a column to `card_reveals`.
NEXT = "0010"


@pytest.fixture
def url(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url, BEFORE)
        yield url
        migrate.downgrade(url, "base")  # The role belongs to the server and would stay.


@contextmanager
def long_report(url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    """Read `card_reveals` in a transaction that stays open."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT FROM card_reveals")
        yield connection


def test_a_migration_gives_up_on_a_table_in_use_keeps_what_is_complete_and_goes_on(
    url: DatabaseUrl,
) -> None:
    migrate.downgrade(url, "0008")
    with long_report(url) as report:
        with pytest.raises(migrate.BusyError) as refused:
            migrate.upgrade(url, give_up_after_s=0)

        left = migrate.current(url)
        pid = report.info.backend_pid
        assert f"session {pid}" in str(refused.value)
        assert "idle in transaction" in str(refused.value)
        assert "card_reveals" in str(refused.value)

    migrate.upgrade(url)
    assert left == BEFORE
    assert migrate.current(url) == migrate.head()


def test_those_who_queue_behind_a_migration_wait_shortly(url: DatabaseUrl) -> None:
    with long_report(url), ThreadPoolExecutor(1) as threads:
        migration = threads.submit(migrate.upgrade, url, NEXT, give_up_after_s=3)
        reads = 0

        with psycopg.connect(url, autocommit=True) as live:
            live.execute("SET lock_timeout = '2s'")
            while not migration.done():
                live.execute("SELECT FROM card_reveals")
                reads += 1

        assert reads > 0
        with pytest.raises(migrate.BusyError):
            migration.result(limit_s())


def test_a_migration_tries_again_until_the_table_is_free(url: DatabaseUrl) -> None:
    lines: list[str] = []
    with long_report(url) as report:

        def say(line: str) -> None:
            lines.append(line)
            if "trying again" in line:
                report.rollback()

        migrate.upgrade(url, NEXT, progress=say)

    assert migrate.current(url) == NEXT
    assert ["tables are in use by session" in lines[0], f"up {NEXT} in" in lines[-1]] == [True] * 2


def test_of_two_migrations_one_waits_its_turn_and_gives_up_in_time(url: DatabaseUrl) -> None:
    is_waiting, go_on = Event(), Event()

    def say(_line: str) -> None:
        is_waiting.set()
        assert go_on.wait(limit_s())

    with ThreadPoolExecutor(1) as threads:
        with long_report(url):
            first = threads.submit(migrate.upgrade, url, progress=say)
            assert is_waiting.wait(limit_s())

            with pytest.raises(migrate.BusyError, match="another migration of this database"):
                migrate.upgrade(url, give_up_after_s=0)

        go_on.set()
        migrate.upgrade(url)
        first.result(limit_s())
    assert migrate.current(url) == migrate.head()


def test_who_waits_for_its_turn_is_not_waited_for_by_an_index_that_is_built(
    url: DatabaseUrl,
) -> None:
    is_waiting = Event()
    with psycopg.connect(url, autocommit=True) as other, ThreadPoolExecutor(1) as threads:
        other.execute("SELECT pg_advisory_lock(%s)", [migrate._LOCK])
        second = threads.submit(migrate.upgrade, url, progress=lambda _line: is_waiting.set())
        assert is_waiting.wait(limit_s())

        # It waits for all older transactions: a deadlock, if one of them waited for us.
        other.execute("CREATE INDEX CONCURRENTLY opened ON card_reveals (opened_at)")

        other.execute("SELECT pg_advisory_unlock(%s)", [migrate._LOCK])
        second.result(limit_s())
    assert migrate.current(url) == migrate.head()
