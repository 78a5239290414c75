"""The connections that pages read on: read-only, limited in time, and one snapshot a page."""

import asyncio
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.http.request_context import PlatformContext
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import purchase_history, purchase_messages
from cardledger.ledger.queries.console.purchase_history import UnfoldedHistory
from cardledger.ledger.queries.console.purchase_messages import UnparsedMessages
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.paging import Wanted
from cardledger.ledger.storage.snapshot_connections import (
    SnapshotConnections,
    SnapshotError,
    SnapshotProblem,
    limited,
)
from cardledger.schema.wire.common import parse_id
from tests.api.support import Api, made, ok
from tests.console.addresses import addresses_of
from tests.console.person import Person, shown
from tests.console.snapshots import in_snapshot, look_at_snapshots, note_statements
from tests.console.stories import play

SETTINGS: Final = {
    "statement_timeout": "2s",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
    "transaction_isolation": "repeatable read",
}

_WRITE: Final = "UPDATE webhook_endpoints SET state = state"  # The role may.


async def settings_of(connection: AsyncConnection) -> dict[str, Any]:
    return {name: await connection.scalar(text(f"SHOW {name}")) for name in SETTINGS}


def test_every_page_is_read_in_one_snapshot_with_these_settings(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/refused"}))
    addresses = addresses_of(api, person, play(api))
    found: list[dict[str, Any] | str] = []

    async def look(connection: AsyncConnection) -> None:
        found.append(await settings_of(connection))

    def of_the_api(_: object) -> NoReturn:
        found.append("a connection of the API")
        raise AssertionError(found[-1])

    look_at_snapshots(monkeypatch, look)
    monkeypatch.setattr(PlatformContext, "reading", of_the_api)
    monkeypatch.setattr(PlatformContext, "writing", of_the_api)
    read = {}
    for path, address in addresses.items():
        found.clear()
        shown(person.http.get(address))
        read[path] = list(found)

    assert {path: each for path, each in read.items() if each != [SETTINGS]} == {}


def test_a_snapshot_begins_in_one_round_trip(config: ApiConfig, api: Api, tmp_path: Path) -> None:
    platform, path = api.tenant.platform_id, tmp_path / "messages"

    async def run() -> None:
        snapshots = SnapshotConnections(config.database_url)
        try:
            async with snapshots.snapshot(platform) as connection:
                messages = (await driver_async(connection)).pgconn
            with path.open("w") as trace:
                messages.trace(trace.fileno())
                async with snapshots.snapshot(platform):
                    messages.untrace()
        finally:
            await snapshots.dispose()

    asyncio.run(run())

    assert path.read_text().count("ReadyForQuery") == 1


def test_what_takes_longer_is_stopped(config: ApiConfig, api: Api) -> None:
    with pytest.raises(SnapshotError) as stopped:
        in_snapshot(
            config,
            api.tenant.platform_id,
            lambda connection: connection.execute(text("SELECT pg_sleep(600)")),
        )

    assert stopped.value.problem is SnapshotProblem.SLOW


def test_a_limited_look_keeps_the_prepared_statements_and_takes_its_limit_back(
    config: ApiConfig, api: Api
) -> None:
    async def read(connection: AsyncConnection) -> tuple[list[str], list[str]]:
        prepared = text("SELECT statement FROM pg_prepared_statements")
        for _ in range(5):  # It is prepared when it is executed again.
            await connection.scalar(text("SELECT 'often'"))
        async with limited(connection, 300):
            inside = await connection.scalar(text("SHOW statement_timeout"))
        statements = (await connection.scalars(prepared)).all()
        with pytest.raises(OperationalError):
            async with limited(connection, 1):
                await connection.execute(text("SELECT pg_sleep(60)"))
        limits = [inside, await connection.scalar(text("SHOW statement_timeout"))]
        return limits, list(statements)

    limits, statements = in_snapshot(config, api.tenant.platform_id, read)

    assert limits == ["300ms", "2s"]
    assert "SELECT 'often'" in statements


def test_the_statements_of_all_pages_stay_prepared(config: ApiConfig, api: Api) -> None:
    count = 300  # Three times as many as psycopg keeps by itself.

    async def read(connection: AsyncConnection) -> int | None:
        for number in range(count):
            for _ in range(3):  # It is prepared when it is executed again.
                await connection.scalar(text(f"SELECT {number} AS one_of_many"))
        prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'AS one_of_many$'"
        kept: int | None = await connection.scalar(text(prepared))
        return kept

    assert in_snapshot(config, api.tenant.platform_id, read) == count


def test_a_page_with_an_unknown_id_keeps_the_prepared_statements(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[set[tuple[int, str]]] = []

    async def look(connection: AsyncConnection) -> None:
        rows = await connection.execute(
            text("SELECT pg_backend_pid(), statement FROM pg_prepared_statements")
        )
        found.append({(pid, statement) for pid, statement in rows})

    look_at_snapshots(monkeypatch, look)
    path = f"/cards/{api.active_card()['id']}"
    for _ in range(3):
        shown(person.get(path))
    shown(person.get(f"/cards/Card:{new_id()}"), 404)
    shown(person.get(path))

    assert len(found) == 5
    assert any("funding_sources" in statement for _, statement in found[3])
    assert found[3] <= found[4]


def test_pages_of_one_list_are_one_statement_however_many_rows_they_have(
    config: ApiConfig, api: Api
) -> None:
    card = api.active_card()["id"]
    for _ in range(4):
        api.authorize(card, 100)
    platform, key = api.tenant.platform_id, parse_id("Card", card)

    async def read(connection: AsyncConnection) -> list[tuple[int, list[str]]]:
        found, statements = [], note_statements(connection)
        for limit in (1, 3):
            statements.clear()
            page = await card_transactions.page(
                connection,
                platform_id=platform,
                filters=CardTransactionFilters(card_id=key),
                wanted=Wanted(limit=limit, newest_first=True),
                count_limit=0,
            )
            found.append((len(page.items), list(statements)))
        return found

    (few, first), (more, second) = in_snapshot(config, platform, read)

    assert (few, more) == (1, 3)
    assert first == second


MOST_STATEMENTS: Final = {
    "/card-transactions/{purchase}": 4,
    "/customers/{customer}": 5,
    "/cards/{card}": 3,
    "/simulator/cards/{card}?purchase={purchase}": 6,
}
"""Each costs a round trip; besides them a page has one for its snapshot, and one for its end."""


@pytest.fixture(scope="module")
def names(api: Api) -> dict[str, str]:
    tip = ok(api.get(f"/transactions/{play(api).tip}"))
    return {"purchase": tip["id"], "customer": tip["customerId"], "card": tip["cardId"]}


@pytest.mark.parametrize("path", MOST_STATEMENTS)
def test_a_page_by_key_has_few_statements(
    person: Person, names: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    found: list[list[str]] = []

    async def look(connection: AsyncConnection) -> None:
        found.append(note_statements(connection))

    look_at_snapshots(monkeypatch, look)
    shown(person.http.get(f"{ROOT}{path.format(**names)}"))

    [statements] = found
    assert len(statements) <= MOST_STATEMENTS[path], statements
    assert not [each for each in statements if "beneficial_owners" in each]  # An individual's.


def test_nothing_can_be_written(config: ApiConfig, api: Api) -> None:
    with pytest.raises(InternalError, match="read-only transaction"):
        in_snapshot(
            config,
            api.tenant.platform_id,
            lambda connection: connection.execute(
                text("UPDATE webhook_endpoints SET state = state")
            ),
        )


def test_a_purchase_that_changes_while_it_is_read_is_that_of_the_beginning(
    config: ApiConfig, api: Api
) -> None:
    card = api.active_card()["id"]
    purchase = str(api.authorize(card, 1_250)["id"])
    platform, key = api.tenant.platform_id, parse_id("CardTransaction", purchase)

    async def read(connection: AsyncConnection) -> tuple[str, int]:
        resource = await card_transactions.get(
            connection, platform_id=platform, card_transaction_id=key
        )
        assert resource is not None
        # Between the two statements of one page.
        if resource.status == "AUTHORIZED":
            await asyncio.to_thread(api.clear, card, purchase, 1_500)
        history = await purchase_history.read(
            connection, platform_id=platform, card_transaction_id=key
        )
        assert history is not None
        return resource.status, len(history.rows)

    assert in_snapshot(config, platform, read) == ("AUTHORIZED", 2)
    assert in_snapshot(config, platform, read) == ("SETTLED", 4)


@pytest.mark.parametrize("events_of_a_page", [3, 4, 50])
def test_a_purchase_is_the_same_however_many_events_a_page_has(
    config: ApiConfig,
    api: Api,
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    events_of_a_page: int,
) -> None:
    platform, key = api.tenant.platform_id, parse_id("CardTransaction", names["purchase"])

    async def read(connection: AsyncConnection) -> tuple[UnfoldedHistory, UnparsedMessages]:
        history = await purchase_history.read(
            connection, platform_id=platform, card_transaction_id=key
        )
        assert history is not None
        messages = await purchase_messages.read(
            connection, platform_id=platform, resource=history.resource, events=history.every
        )
        return history, messages

    whole, messages = in_snapshot(config, platform, read)
    monkeypatch.setattr(purchase_history, "PAGE_EVENTS", events_of_a_page)
    history, same = in_snapshot(config, platform, read)

    assert whole.every is not None
    assert len(messages.applied) == 2
    assert same == messages
    assert history.rows == whole.rows
    assert history.stored == (whole.every if events_of_a_page > 3 else whole.every[3:])
    assert (history.every is None) == (events_of_a_page == 3)
