"""The relay: rows of an outbox in another database are enqueued in the ledger's, and deleted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, create_mock_engine, text

from cardledger.commands.relay.ledger import Ledger
from cardledger.commands.relay.run import Relay
from cardledger.commands.relay.source import Source
from cardledger.config.errors import USAGE, CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import location
from cardledger.schema.roles import Role
from tests.databases import as_role, fresh_database

TABLE = "cardledger_outbox"


@pytest.fixture(params=["sqlite", "postgresql"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """The user's own database, with an empty outbox that the relay has created."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'shop.db'}"
        yield created(url)
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as database:
        yield created(location.without_options(database))


def created(url: str) -> Engine:
    for _ in range(2):
        Source(url, TABLE).create_table()
    return create_engine(url, poolclass=NullPool)


@pytest.fixture
def ledger_url(app_database_url: DatabaseUrl) -> DatabaseUrl:
    return as_role(app_database_url, Role.SUBMIT)


def relay_of(outbox: Engine, ledger_url: str, *, table: str = TABLE) -> tuple[Relay, Ledger]:
    source = Source(outbox.url.render_as_string(hide_password=False), table)
    ledger = Ledger(ledger_url, source.name, "LIVE")
    return Relay(source, ledger, create_table=False), ledger


def put(outbox: Engine, *events: str) -> None:
    with outbox.begin() as connection:
        for event in events:
            connection.execute(
                text(f"INSERT INTO {TABLE} (event) VALUES (:event)"), {"event": event}
            )


def left(outbox: Engine) -> list[tuple[Any, ...]]:
    with outbox.connect() as connection:
        rows = connection.execute(text(f"SELECT id, error FROM {TABLE} ORDER BY id"))
        return [tuple(row) for row in rows]


def event(reference: str, **more: object) -> str:
    return json.dumps({"type": "CLEARING", "source": "shop", "reference": reference, **more})


def enqueued(url: str) -> list[str]:
    with psycopg.connect(url) as owner:
        rows = owner.execute("SELECT reference FROM enqueued_events ORDER BY position").fetchall()
        owner.execute("ALTER TABLE enqueued_events DISABLE TRIGGER ALL")
        owner.execute("DELETE FROM enqueued_events")  # The next test begins with none.
        owner.execute("ALTER TABLE enqueued_events ENABLE ALWAYS TRIGGER append_only")
        owner.execute("ALTER TABLE enqueued_events ENABLE ALWAYS TRIGGER loss")
    return [reference for (reference,) in rows]


def test_rows_are_enqueued_in_order_and_deleted(
    outbox: Engine, ledger_url: DatabaseUrl, database_url: DatabaseUrl
) -> None:
    references = [f"r{number:04}" for number in range(1_100)]
    put(outbox, *map(event, references))
    relay, ledger = relay_of(outbox, ledger_url)

    relay.run_once()

    ledger.close()
    assert enqueued(database_url) == references
    assert left(outbox) == []


def test_a_row_that_cannot_be_enqueued_gets_an_error_and_the_others_go_on(
    outbox: Engine, ledger_url: DatabaseUrl, database_url: DatabaseUrl
) -> None:
    put(
        outbox,
        event("good-1"),
        json.dumps({"type": "CLEARING"}),
        event("good-2"),
        event("zero", note="\x00"),
        "[1]",
        event("long", note="x" * 70_000),
        event("good-3"),
    )
    relay, ledger = relay_of(outbox, ledger_url)

    with pytest.raises(CommandError, match=r"4 event\(s\) were refused"):
        relay.run_once()

    ledger.close()
    problems = dict(left(outbox))
    assert enqueued(database_url) == ["good-1", "good-2", "good-3"]
    assert list(problems) == [2, 4, 5, 6]
    assert problems[2] == "event 1 needs a non-empty string as source, reference"
    assert "Unicode" in problems[4]
    assert problems[5] == problems[6] == "needs a JSON object of at most 65536 bytes as event"


def plan(connection: Connection) -> str:
    """Return how the database finds the oldest rows that can be enqueued."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}[connection.dialect.name]
    look = f"{explain} SELECT id, event FROM {TABLE} WHERE error IS NULL ORDER BY id LIMIT 500"
    return str(connection.execute(text(look)).all())


def test_rows_with_an_error_are_not_read_by_every_look(outbox: Engine) -> None:
    refused = [{"event": event(f"r{number}"), "error": "wrong"} for number in range(2_000)]

    with outbox.begin() as connection:
        into = f"INSERT INTO {TABLE} (event, error) VALUES (:event, :error)"
        connection.execute(text(into), refused)
        connection.execute(text(f"ANALYZE {TABLE}"))
        found = plan(connection)

    assert f"{TABLE}_pending" in found


@pytest.mark.parametrize(
    ("url", "indexes"),
    [
        ("mysql://", [f"CREATE INDEX {TABLE}_pending ON {TABLE} (error(1), id)"]),
        ("mssql://", []),  # A text is no key there.
    ],
)
def test_other_databases_get_the_index_that_they_can_have(url: str, indexes: list[str]) -> None:
    made: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - of SQLAlchemy
        made.append(str(statement.compile(dialect=database.dialect)))

    database = create_mock_engine(url, note)

    Source("sqlite://", TABLE)._table.create(database, checkfirst=False)

    assert made[1:] == indexes


def test_a_table_of_the_longest_name_has_an_index(postgres_url: str) -> None:
    with fresh_database(postgres_url) as database:
        Source(location.without_options(database), "t" * 63).create_table()

        with psycopg.connect(database) as connection:
            names = connection.execute(
                "SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%WHERE (error IS NULL)'"
            ).fetchall()
    assert len(names) == 1


def test_one_relay_of_a_source_works_at_a_time(outbox: Engine, ledger_url: DatabaseUrl) -> None:
    (first, held), (second, waiting) = (relay_of(outbox, ledger_url) for _ in range(2))
    first.run_once()

    with pytest.raises(CommandError, match="another relay of this source runs"):
        second.run_once()

    held.close()
    second.run_once()
    waiting.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url", "--from is not a URL"),
        ("nosuch://host/database", "--from: no driver for this URL"),
    ],
)
def test_a_url_without_a_driver_is_refused(url: str, message: str) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        Source(url, TABLE)

    assert refused.value.code == USAGE


def test_a_source_or_a_ledger_that_is_away_is_said_at_once_by_once(
    tmp_path: Path, ledger_url: DatabaseUrl
) -> None:
    without_table = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    relay, ledger = relay_of(without_table, ledger_url)
    away, _ = relay_of(without_table, "postgresql://ada@127.0.0.1:1/nothing")

    with pytest.raises(CommandError, match="the source failed: no such table"):
        relay.run_once()
    with pytest.raises(CommandError, match="the ledger's database failed: connection"):
        away.run_once()

    ledger.close()
