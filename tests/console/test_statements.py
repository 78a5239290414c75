"""Every statement of a page reads by an index: none scans a table that grows."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.projections import accounts
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import (
    platform_figures,
    purchase_history,
    purchase_messages,
    search,
)
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.paging import Wanted
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections
from cardledger.ledger.webhooks import deliveries, endpoints
from cardledger.ledger.webhooks.deliveries import DeliveryFilters
from cardledger.schema.ids import Id
from tests.api.support import Api
from tests.console.stories import Stories, play

NOW: Final = datetime.now(UTC)
PAGE: Final = Wanted(limit=50, newest_first=True)

GROWING: Final = frozenset(
    {
        "card_transaction_events",
        "card_transactions",
        "cards",
        "conversion_details",
        "customers",
        "inbox",
        "internal_accounts",
        "outbox",
        "outcomes",
        "parked",
        "rejections",
        "transfers",
        "webhook_attempts",
        "webhook_deliveries",
    }
)

WHOLE: Final = frozenset({"card_transactions_debt_idx", "inbox_pkey", "outbox_pkey"})
"""Indexes of what waits and of what is owed, which a page may read from one end up to a limit."""

Reader = Callable[[AsyncConnection, Id, Id], Awaitable[object]]


async def _messages(connection: AsyncConnection, platform: Id, purchase: Id) -> object:
    resource = await card_transactions.get(
        connection, platform_id=platform, card_transaction_id=purchase
    )
    assert resource is not None
    return await purchase_messages.read(connection, platform_id=platform, resource=resource)


async def _webhooks(connection: AsyncConnection, platform: Id, purchase: Id) -> object:
    page = await deliveries.page(
        connection,
        platform_id=platform,
        filters=DeliveryFilters(subject_ids=(purchase,)),
        wanted=PAGE,
        count_limit=0,
    )
    return await deliveries.latest_attempts(connection, [each.id for each in page.items], limit=10)


def _list(**filters: Any) -> Reader:  # noqa: ANN401 - of any type
    return lambda connection, platform, _: card_transactions.page(
        connection,
        platform_id=platform,
        filters=CardTransactionFilters(**filters),
        wanted=PAGE,
        count_limit=0,
    )


def _deliveries(**filters: Any) -> Reader:  # noqa: ANN401 - of any type
    return lambda connection, platform, _: deliveries.page(
        connection,
        platform_id=platform,
        filters=DeliveryFilters(**filters),
        wanted=PAGE,
        count_limit=0,
    )


def _search(text: str) -> Reader:
    return lambda connection, platform, _: search.find(connection, platform_id=platform, query=text)


KEY: Final = Id(bytes(15) + b"\x07")

READERS: Final[dict[str, Reader]] = {
    "overview": lambda connection, platform, _: platform_figures.read(
        connection, platform_id=platform, now=NOW
    ),
    "rates": lambda connection, platform, _: platform_figures.counts(
        connection, platform_id=platform, since=NOW - timedelta(minutes=15)
    ),
    "purchase": lambda connection, platform, purchase: purchase_history.read(
        connection, platform_id=platform, card_transaction_id=purchase
    ),
    "messages": _messages,
    "webhooks": _webhooks,
    "list": _list(),
    "list by status": _list(status="EXCEPTION"),
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
    "funding account": lambda connection, platform, _: accounts.get(
        connection, platform_id=platform, account_id=KEY
    ),
    "deliveries": _deliveries(),
    "deliveries by state": _deliveries(state="FAILED"),
    "deliveries by endpoint": _deliveries(endpoint_id=KEY),
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
    "search by last four": _search(f"4242 Customer:{KEY}"),
    "search by token": _search(f"token Card:{KEY}"),
}


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    return play(api)


@pytest.mark.parametrize("name", READERS)
def test_a_page_reads_by_indexes(name: str, config: ApiConfig, api: Api, stories: Stories) -> None:
    purchase = Id.parse(stories.tip.partition(":")[2])

    plans = asyncio.run(_plans(config.database_url, api.tenant.platform_id, purchase, name))

    assert plans
    assert not [scan for plan in plans for scan in _scans(plan)]


@pytest.mark.usefixtures("stories")
def test_the_check_finds_a_scan(config: ApiConfig, api: Api) -> None:
    async def plan() -> Any:  # noqa: ANN401 - JSON
        snapshots = SnapshotConnections(config.database_url)
        try:
            async with snapshots.snapshot(api.tenant.platform_id) as connection:
                return await _plan(connection, _WITHOUT_INDEX, {})
        finally:
            await snapshots.dispose()

    assert _scans(asyncio.run(plan())) == ["conversion_details"]


_WITHOUT_INDEX: Final = "SELECT 1 FROM conversion_details WHERE merchant_currency = 'EUR'"


_BOUNDED: Final = frozenset({"Bitmap Heap Scan", "Tid Range Scan"})


def _scans(plan: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return the growing tables that `plan` reads without a condition on an index.

    A range of places in a table is its end: decisions are read there.
    """
    own = []
    if plan.get("Relation Name") in GROWING and plan["Node Type"] not in _BOUNDED:
        is_by_key = "Index Cond" in plan or plan.get("Index Name") in WHOLE
        own = [] if is_by_key else [plan["Relation Name"]]
    return own + [scan for inner in plan.get("Plans", ()) for scan in _scans(inner)]


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
