"""Every statement of a page reads by an index: none scans a table that grows."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.projections import accounts
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import (
    journal,
    platform_figures,
    platform_rates,
    purchase_history,
    purchase_messages,
    search,
    statements,
)
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.paging import Wanted
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections
from cardledger.ledger.webhooks import deliveries, endpoints
from cardledger.ledger.webhooks.deliveries import DeliveryFilters
from cardledger.schema.ids import Id
from tests.api.support import Api
from tests.console.plans import seem_large, unbounded
from tests.console.stories import Stories, play

NOW: Final = datetime.now(UTC)
PAGE: Final = Wanted(limit=50, newest_first=True)

Reader = Callable[[AsyncConnection, Id, Id], Awaitable[object]]


async def _messages(connection: AsyncConnection, platform: Id, purchase: Id) -> object:
    resource = await card_transactions.get(
        connection, platform_id=platform, card_transaction_id=purchase
    )
    assert resource is not None
    return await purchase_messages.read(connection, platform_id=platform, resource=resource)


def _list(**filters: Any) -> Reader:  # noqa: ANN401 - of any type
    return lambda connection, platform, _: card_transactions.page(
        connection,
        platform_id=platform,
        filters=CardTransactionFilters(**filters),
        wanted=PAGE,
        count_limit=0,
        distance=20_000,
    )


def _deliveries(**filters: Any) -> Reader:  # noqa: ANN401 - of any type
    return lambda connection, platform, _: deliveries.page(
        connection,
        platform_id=platform,
        filters=DeliveryFilters(**filters),
        wanted=PAGE,
        count_limit=0,
        distance=20_000,
    )


def _search(text: str) -> Reader:
    return lambda connection, platform, _: search.find(connection, platform_id=platform, query=text)


KEY: Final = Id(bytes(15) + b"\x07")

READERS: Final[dict[str, Reader]] = {
    "overview": lambda connection, platform, _: platform_figures.read(
        connection, platform_id=platform, now=NOW
    ),
    "decisions": lambda connection, platform, _: platform_rates.decisions(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15)
    ),
    "earlier decisions": lambda connection, platform, _: platform_rates.decisions(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15), before=9
    ),
    "rejections": lambda connection, platform, _: platform_rates.rejections(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15)
    ),
    "earlier rejections": lambda connection, platform, _: platform_rates.rejections(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15), before=KEY
    ),
    "delivered earlier": lambda connection, platform, _: platform_rates.deliveries(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15), before=KEY
    ),
    "delivered": lambda connection, platform, _: platform_rates.deliveries(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15)
    ),
    "backlog": lambda connection, platform, _: connection.execute(
        text(platform_figures.OLDEST),
        {"platform": platform, "lane": 0, "canaries": KEY, "rows": 100},
    ),
    "purchase": lambda connection, platform, purchase: purchase_history.read(
        connection, platform_id=platform, card_transaction_id=purchase
    ),
    "messages": _messages,
    "webhooks": lambda connection, platform, purchase: deliveries.newest_about(
        connection, platform_id=platform, subject_id=purchase, limit=10, attempts=10
    ),
    "list": _list(),
    "list of exceptions": _list(status="EXCEPTION"),
    "list by status": _list(status="VOIDED"),
    "list by card and status": _list(card_id=KEY, status="VOIDED"),
    "list by card": _list(card_id=KEY),
    "list by customer": _list(customer_id=KEY),
    "list by account": _list(account_id=KEY),
    "list by amount and time": _list(
        currency="USD", min_amount=1, created_from=NOW, created_to=NOW
    ),
    "cards": lambda connection, platform, _: cards.page(
        connection,
        platform_id=platform,
        filters=cards.CardFilters(),
        wanted=PAGE,
        count_limit=0,
    ),
    "card": lambda connection, platform, _: cards.get(
        connection, platform_id=platform, card_id=KEY
    ),
    "statement": lambda connection, _, __: statements.page(
        connection, account_id=KEY, before=9, until=NOW, limit=50
    ),
    "journal": lambda connection, platform, _: journal.page(
        connection,
        platform_id=platform,
        filters=journal.JournalFilters(since=NOW - timedelta(minutes=15), until=NOW),
        limit=50,
    ),
    "funding account": lambda connection, platform, _: accounts.get(
        connection, platform_id=platform, account_id=KEY
    ),
    "deliveries": _deliveries(),
    "deliveries by state": _deliveries(state="FAILED"),
    "deliveries by endpoint": _deliveries(endpoint_id=KEY),
    "deliveries by endpoint and state": _deliveries(endpoint_id=KEY, state="FAILED"),
    "deliveries by type and time": _deliveries(type="TEST", since=NOW, until=NOW),
    "delivery": lambda connection, platform, _: deliveries.get(
        connection, platform_id=platform, delivery_id=KEY
    ),
    "endpoints": lambda connection, platform, _: endpoints.page(
        connection, platform_id=platform, wanted=PAGE
    ),
    "endpoint": lambda connection, platform, _: endpoints.get(
        connection, platform_id=platform, endpoint_id=KEY
    ),
    "search by id": _search(str(KEY)),
    "search by event": _search("visa 8123"),
    "search by words": _search("a b c d e f g h i j"),
    "search by last four": _search(f"4242 Customer:{KEY}"),
    "search by last four and a bare id": _search(f"{KEY} 4242"),
    "search by token": _search(f"token Card:{KEY}"),
}


@pytest.fixture(scope="module")
def stories(api: Api, database_url: DatabaseUrl) -> Stories:
    played = play(api)
    seem_large(database_url)
    return played


@pytest.mark.parametrize("name", READERS)
def test_a_page_reads_by_indexes(name: str, config: ApiConfig, api: Api, stories: Stories) -> None:
    purchase = Id.parse(stories.tip.partition(":")[2])

    plans = asyncio.run(_plans(config.database_url, api.tenant.platform_id, purchase, name))

    assert plans
    assert not [name for plan in plans for name in unbounded(plan)]


_OF_PLATFORM: Final = "SELECT id FROM card_transactions WHERE platform_id = {platform}"
_SOME_OF_PLATFORM: Final = """
    (SELECT id, authorized FROM card_transactions WHERE platform_id = {platform}
    ORDER BY id LIMIT 99)
"""
CHECKED: Final[dict[str, tuple[str, list[str]]]] = {
    "a table without an index": (
        "SELECT 1 FROM conversion_details WHERE merchant_currency = 'EUR'",
        ["conversion_details"],
    ),
    "a page of a platform": (f"{_OF_PLATFORM} ORDER BY id LIMIT 9", []),
    "all of a platform": (f"{_OF_PLATFORM} ORDER BY id", ["card_transactions"]),
    "the largest of a platform": (
        f"{_OF_PLATFORM} ORDER BY authorized DESC LIMIT 9",
        ["card_transactions"],
    ),
    "the largest of some of a platform": (
        f"SELECT id FROM {_SOME_OF_PLATFORM} t ORDER BY authorized DESC LIMIT 9",
        [],
    ),
    "how many a platform has": (
        f"SELECT count(*) FROM ({_OF_PLATFORM}) t LIMIT 9",
        ["card_transactions"],
    ),
    "one by its key": (f"{_OF_PLATFORM} AND id = {{platform}}", []),
}


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", CHECKED)
def test_the_check_finds_what_is_read_without_a_bound(
    name: str, config: ApiConfig, api: Api
) -> None:
    statement, expected = CHECKED[name]

    async def plan() -> Any:  # noqa: ANN401 - JSON
        snapshots = SnapshotConnections(config.database_url)
        try:
            async with snapshots.snapshot(api.tenant.platform_id) as connection:
                own = f"'{api.tenant.platform_id}'"
                return await _plan(connection, statement.format(platform=own), {})
        finally:
            await snapshots.dispose()

    assert unbounded(asyncio.run(plan())) == expected


async def _plans(url: str, platform: Id, purchase: Id, name: str) -> list[Any]:
    snapshots = SnapshotConnections(url)
    try:
        async with snapshots.snapshot(platform) as connection:
            read: list[tuple[str, Any]] = []
            engine = connection.sync_engine

            def note(*arguments: Any) -> None:  # noqa: ANN401 - of SQLAlchemy
                if "SAVEPOINT" not in arguments[2]:  # It has no plan.
                    read.append((arguments[2], arguments[3]))

            event.listen(engine, "before_cursor_execute", note)
            await READERS[name](connection, platform, purchase)
            event.remove(engine, "before_cursor_execute", note)
            return [await _plan(connection, statement, values) for statement, values in read]
    finally:
        await snapshots.dispose()


async def _plan(connection: AsyncConnection, statement: str, values: Any) -> Any:  # noqa: ANN401
    driver = await driver_async(connection)
    explained = await driver.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), values)
    row = await explained.fetchone()
    assert row is not None
    return row[0][0]["Plan"]
