"""`cardledger relay` as a process: killed again and again, with its databases lost."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg import sql

from cardledger.commands.relay.source import Source
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import location
from cardledger.schema.roles import Role
from tests.databases import as_role, fresh_database
from tests.integration.workers import working
from tests.shared_world import cardholder, world
from tests.system.support import COMMAND, environment, run, started
from tests.waiting import eventually, limit_s
from tests.world import Cardholder, World

__all__ = ["cardholder", "world"]  # Fixtures.

ROUNDS: Final = 10
EVENTS: Final = 52  # Of each round; a relay that starts reads 500, those of the last round too.


# The relay has enqueued what it has read, and waits here until the test has killed it.
DELETES_WAIT: Final = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(1);
        RETURN NULL;
    END $$;
    CREATE TRIGGER wait BEFORE DELETE ON cardledger_outbox
        FOR EACH STATEMENT EXECUTE FUNCTION wait();
"""


@pytest.fixture
def shop(postgres_url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    """The user's own database."""
    with (
        fresh_database(postgres_url) as url,
        psycopg.connect(location.without_options(url), autocommit=True) as connection,
    ):
        yield connection


def url_of(connection: psycopg.Connection) -> str:
    info = connection.info
    login = f"{info.user}:{info.password}" if info.password else info.user
    if info.host.startswith("/"):
        return f"postgresql://{login}@/{info.dbname}?host={info.host}&port={info.port}"
    return f"postgresql://{login}@{info.host}:{info.port}/{info.dbname}"


@contextmanager
def relaying(source: str, ledger: str, logs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a relay; its log is appended to `logs`."""
    command = [*COMMAND, "relay", "--from", source, "--create-table"]
    with (
        logs.open("ab") as log,
        started(
            command, env=environment(DATABASE_URL=ledger), stderr=log, stdin=subprocess.DEVNULL
        ) as process,
    ):
        yield process
        if process.poll() is None:
            process.kill()


def put(world: World, cardholder: Cardholder, shop: psycopg.Connection, name: str) -> list[str]:
    """Write the events of a round to the outbox; return their references."""
    events = [
        {**world.clearing(cardholder, f"{name}-{n}", 1), "reference": f"{name}-{n}"}
        for n in range(EVENTS)
    ]
    with shop.cursor() as cursor, shop.transaction():
        cursor.executemany(
            "INSERT INTO cardledger_outbox (event) VALUES (%s)",
            [[json.dumps(event)] for event in events],
        )
    return [event["reference"] for event in events]


def in_ledger(world: World, name: str) -> int:
    """Return how many events of a round were enqueued, or are decided."""
    pattern = f"{name}-%"
    [(count,)] = world.rows(
        "SELECT (SELECT count(*) FROM outcomes WHERE reference LIKE %s)"
        " + (SELECT count(*) FROM inbox WHERE reference LIKE %s)"
        " + (SELECT count(*) FROM enqueued_events WHERE reference LIKE %s)",
        pattern, pattern, pattern,
    )  # fmt: skip
    return int(count)


def has_table(shop: psycopg.Connection) -> bool:
    row = shop.execute("SELECT to_regclass('cardledger_outbox') IS NOT NULL").fetchone()
    return row == (True,)


def test_a_relay_that_is_killed_ten_times_loses_no_event_and_doubles_none(
    world: World, cardholder: Cardholder, shop: psycopg.Connection, redis_url: str, tmp_path: Path
) -> None:
    source, ledger = url_of(shop), str(as_role(world.app_url, Role.SUBMIT))
    Source(source, "cardledger_outbox").create_table()
    shop.execute(DELETES_WAIT.encode())
    logs, references = tmp_path / "logs", []

    with working(world, redis_url):
        for number in range(ROUNDS):
            name = f"round{number}"
            shop.execute("SELECT pg_advisory_lock(1)")
            references += put(world, cardholder, shop, name)
            with relaying(source, ledger, logs) as process:
                eventually(lambda name=name: in_ledger(world, name), process=process)  # type: ignore[misc]
                process.send_signal(signal.SIGKILL)
                process.wait(limit_s())
            shop.execute("SELECT pg_advisory_unlock(1)")
        last = run("relay", "--from", source, "--once", env=environment(DATABASE_URL=ledger))
        waiting = "SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM enqueued_events)"
        eventually(lambda: world.rows(waiting) == [(0,)])

    assert last.returncode == 0, last.stderr
    assert shop.execute("SELECT count(*) FROM cardledger_outbox").fetchone() == (0,)
    decided = world.rows("SELECT reference FROM outcomes WHERE reference LIKE 'round%%-%%'")
    assert sorted(reference for (reference,) in decided) == sorted(references)
    [(duplicates,)] = world.rows("SELECT coalesce(sum(cardinality(ids)), 0) FROM duplicates")
    assert duplicates > 0, "no event was enqueued again: the relay was not killed in between"
    assert world.account(cardholder)["balance"] == 50_000 - ROUNDS * EVENTS
    report = world.verify()
    assert report.holds, report.differences


def test_a_relay_survives_the_loss_of_both_databases_and_ends_with_sigterm(
    world: World,
    cardholder: Cardholder,
    shop: psycopg.Connection,
    postgres_url: DatabaseUrl,
    tmp_path: Path,
) -> None:
    source, ledger = url_of(shop), str(as_role(world.app_url, Role.SUBMIT))
    logs = tmp_path / "logs"

    with (
        psycopg.connect(postgres_url, autocommit=True) as server,
        relaying(source, ledger, logs) as process,
    ):
        eventually(lambda: has_table(shop), process=process)
        for name, lost in (("source", shop), ("ledger", world.connection)):
            with closed(server, lost.info.dbname):
                put(world, cardholder, shop, name)
                line = f"{name} database unavailable".encode()
                eventually(lambda line=line: line in logs.read_bytes(), process=process)  # type: ignore[misc]
            eventually(lambda name=name: in_ledger(world, name) == EVENTS, process=process)  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        code = process.wait(limit_s())

    text = logs.read_text()
    assert code == 0, text
    assert text.count("source database unavailable") == 1
    assert text.count("ledger database unavailable") == 1
    assert "relay stopped" in text


@contextmanager
def closed(server: psycopg.Connection, database: str) -> Iterator[None]:
    """End the sessions of the relay in a database of `server`, and let no new ones in."""
    name = sql.Identifier(database)
    server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = %s AND application_name = 'cardledger relay'",
        [database],
    )
    try:
        yield
    finally:
        server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
