"""Lists read what they show: no filter scans the other rows of a platform, nor other platforms."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.registry import CardFilters
from cardledger.ledger.customers import external_accounts, verifications
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.external_accounts import ExternalAccountFilters
from cardledger.ledger.customers.registry import CustomerFilters
from cardledger.ledger.customers.verifications import VerificationFilters
from cardledger.ledger.messaging import parked_events, rejections
from cardledger.ledger.projections import accounts
from cardledger.ledger.projections.accounts import AccountFilters
from cardledger.ledger.queries import card_transactions, transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.transactions import TransactionFilters
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.ledger.storage.paging import Wanted
from cardledger.ledger.webhooks import deliveries
from cardledger.ledger.webhooks.deliveries import DeliveryFilters
from cardledger.schema.ids import Id
from tests.external_accounts import info
from tests.world import World, open_world

ROWS = 2_000
"""Of each platform in each table; every hundredth has the rare value of its columns."""

FEW = 150
"""Rows that a list with a rare value may read: for its page, and again for its total."""

INFO = info("USD_ACCOUNT")
PAGE = Wanted(limit=10)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Ids rise with the time, and belong to the platforms in turn.
_FILL = """
    CREATE TEMP TABLE n AS
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
            || '70008000' || lpad(to_hex(i), 12, '0'))::uuid AS id,
        CASE WHEN i %% 2 = 0 THEN %(large)s::uuid ELSE %(other)s::uuid END AS platform,
        i %% 200 = 0 AS is_rare, at, i
    FROM generate_series(1, 2 * %(rows)s) i,
        LATERAL (SELECT %(noon)s::timestamptz + i * interval '1 hour' AS at) t;

    INSERT INTO customers (id, platform_id, platform_customer_id, customer_type, kyc_status,
        uma_address, region, currencies, created_at, updated_at)
    SELECT id, platform, 'C' || i, CASE WHEN is_rare THEN 'BUSINESS' ELSE 'INDIVIDUAL' END,
        'APPROVED', '$' || i || '@x.test', CASE WHEN is_rare THEN 'FR' ELSE 'US' END,
        '{USD}', at, at
    FROM n;

    INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,
        created_at, updated_at)
    SELECT id, id, platform, CASE WHEN is_rare THEN 'EUR' ELSE 'USD' END,
        CASE WHEN is_rare THEN 'INTERNAL_CRYPTO' ELSE 'INTERNAL_FIAT' END, 'ACTIVE', at, at
    FROM n;

    INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form, currency,
        funding_sources, processor_ref, issuer_ref, created_at, updated_at)
    SELECT id, id, platform, 'K' || i, CASE WHEN is_rare THEN 'FROZEN' ELSE 'ACTIVE' END,
        'VIRTUAL', 'USD', ARRAY[id], 'p', 'i', at, at
    FROM n;

    INSERT INTO verifications (id, platform_id, customer_id, status, errors, created_at, updated_at)
    SELECT id, platform, id, CASE WHEN is_rare THEN 'REJECTED' ELSE 'APPROVED' END, '[]', at, at
    FROM n;

    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        created_at, webhook_id, endpoint_id)
    SELECT id, id, platform, 'CARD', id, '{}',
        CASE WHEN NOT is_rare THEN 'NO_ENDPOINT' WHEN i %% 400 = 0 THEN 'FAILED'
            ELSE 'DELIVERED' END,
        at, id, CASE WHEN is_rare THEN %(other)s::uuid ELSE %(large)s::uuid END
    FROM n;

    INSERT INTO external_accounts (id, platform_id, customer_id, currency, account_type, status,
        default_uma_deposit_account, fingerprint, account_info, created_at, updated_at)
    SELECT id, platform, CASE WHEN NOT is_rare THEN id END,
        CASE WHEN i %% 200 = 2 THEN 'EUR' ELSE 'USD' END, 'USD_ACCOUNT', 'ACTIVE', false,
        uuid_send(id), %(info)s, at, at
    FROM n;

    INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)
    SELECT id, id, %(other)s, '{}', 'MALFORMED', at FROM n;

    INSERT INTO card_transactions (id, customer_id, platform_id, card_id, account_id,
        issuer_transaction_token, currency, status, sequence, authorizations, authorized, settled,
        settlement_count, refunded, refund_count, pulled, pull_count, pending, pending_count,
        open_pull, unpaid, released, release_count, declined, created_at, updated_at, written_off,
        debits_written_off)
    SELECT id, owner, platform, owner, owner, 'T' || i, 'USD', 'AUTHORIZED', 1, 1, 100, 0, 0, 0, 0,
        100, 1, 0, 0, 0, 0, 0, 0, 0, at, at, 0, 0
    FROM n JOIN (SELECT platform, min(id::text)::uuid AS busy FROM n GROUP BY 1) b USING (platform),
        LATERAL (SELECT CASE WHEN i %% 4 < 2 THEN busy ELSE id END AS owner) o;

    INSERT INTO parked (id, customer_id, card_id, issuer_transaction_token, body, received_at)
    SELECT id, id, id, 'T', '{}', at FROM n
"""

Page = Callable[[AsyncConnection], Awaitable[object]]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform_id(world: World) -> Id:
    """A platform with many rows, beside another one with as many."""
    large, other = world.platform(), world.platform()
    values = {"large": large, "other": other, "noon": NOON, "rows": ROWS, "info": json.dumps(INFO)}
    with psycopg.connect(world.url, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(_FILL, values)
    world.connection.execute("ANALYZE")
    return large


def rows_of_plan(plan: dict[str, Any]) -> int:
    """Return how many rows the scans of `plan` have read, those removed by filters included."""
    own = 0
    if "Relation Name" in plan:
        read = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        own = round((read + plan.get("Rows Removed by Index Recheck", 0)) * plan["Actual Loops"])
    return own + sum(map(rows_of_plan, plan.get("Plans", [])))


def rows_read(world: World, page: Page) -> int:
    """Return how many rows the statements of `page` read, as the API executes them."""

    async def run() -> int:
        engine = async_engine(world.app_url, keyed=True)
        statements: list[tuple[str, Any]] = []

        def note(*call: Any) -> None:  # noqa: ANN401 - SQLAlchemy's arguments
            statements.append((call[2], call[3]))

        try:
            async with engine.connect() as connection:
                event.listen(engine.sync_engine, "before_cursor_execute", note)
                await page(connection)
                event.remove(engine.sync_engine, "before_cursor_execute", note)
                raw = await driver_async(connection)
                read = 0
                for statement, parameters in statements:
                    cursor = await raw.execute(
                        f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
                    )
                    row = await cursor.fetchone()
                    assert row is not None
                    read += rows_of_plan(row[0][0]["Plan"])
                return read
        finally:
            await engine.dispose()

    return asyncio.run(run())


_LATE = NOON + timedelta(hours=2 * ROWS - 20)
_EARLY = NOON + timedelta(hours=20)

LISTS: dict[str, tuple[Callable[..., Awaitable[object]], object]] = {
    f"{name} {filters}": (page, filters)
    for name, page, of in (
        (
            "customers",
            customers.page,
            (
                CustomerFilters(platform_customer_id="C200"),
                CustomerFilters(platform_customer_id="C200", with_deleted=True),
                CustomerFilters(customer_type="BUSINESS"),
                CustomerFilters(region="FR"),
                CustomerFilters(uma_address="$200@x.test"),
                CustomerFilters(created_from=_LATE),
                CustomerFilters(updated_from=_LATE),
            ),
        ),
        (
            "accounts",
            accounts.page,
            (AccountFilters(currency="EUR"), AccountFilters(type="INTERNAL_CRYPTO")),
        ),
        ("cards", cards.page, (CardFilters(platform_card_id="K200"), CardFilters(state="FROZEN"))),
        ("verifications", verifications.page, (VerificationFilters(status="REJECTED"),)),
        (
            "external accounts",
            external_accounts.page,
            (ExternalAccountFilters(currency="EUR"), ExternalAccountFilters(of_platform=True)),
        ),
        (
            "deliveries",
            deliveries.page,
            (
                *(DeliveryFilters(state=state) for state in ("FAILED", "DELIVERED", "PENDING")),
                DeliveryFilters(since=_LATE),
                DeliveryFilters(until=_EARLY),
            ),
        ),
        (
            "card transactions",
            card_transactions.page,
            (
                CardTransactionFilters(created_from=_LATE),
                CardTransactionFilters(created_to=_EARLY),
            ),
        ),
        ("transactions", transactions.page, (TransactionFilters(platform_customer_id="C200"),)),
    )
    for filters in of
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_with_a_rare_value_reads_the_rows_that_have_it(
    world: World, platform_id: Id, name: str
) -> None:
    page, filters = LISTS[name]

    read = rows_read(
        world,
        lambda connection: page(connection, platform_id=platform_id, filters=filters, wanted=PAGE),
    )

    assert read <= FEW


def test_deliveries_to_an_endpoint_are_found_by_it(world: World, platform_id: Id) -> None:
    [(endpoint_id,), *_] = world.rows(
        "SELECT endpoint_id FROM webhook_deliveries WHERE state = 'FAILED'"
    )
    filters = DeliveryFilters(endpoint_id=endpoint_id)

    read = rows_read(
        world,
        lambda connection: deliveries.page(
            connection, platform_id=platform_id, filters=filters, wanted=PAGE
        ),
    )

    assert read <= FEW


def test_customers_until_a_time_are_looked_for_from_that_time_on(
    world: World, platform_id: Id
) -> None:
    filters = CustomerFilters(created_to=NOON + timedelta(hours=ROWS), with_deleted=True)

    read = rows_read(
        world,
        lambda connection: customers.page(
            connection,
            platform_id=platform_id,
            filters=filters,
            wanted=Wanted(limit=10, newest_first=True),
            count_limit=0,
        ),
    )

    assert read <= FEW


@pytest.mark.parametrize(
    ("filters", "is_complete"),
    [
        ({"type": "TEST"}, False),
        ({"type": "TEST", "state": "NO_ENDPOINT"}, False),
        ({"type": "CARD", "state": "FAILED"}, True),
        ({"endpoint": "FAILED", "state": "NO_ENDPOINT"}, False),
        ({"endpoint": "FAILED", "state": "FAILED"}, True),
    ],
)
def test_deliveries_without_an_index_are_looked_for_among_the_next_ones(
    world: World, platform_id: Id, filters: dict[str, Any], *, is_complete: bool
) -> None:
    distance = 50
    chosen = filters.copy()
    of_state = chosen.pop("endpoint", None)
    endpoint_id = None
    if of_state is not None:
        [(endpoint_id,), *_] = world.rows(
            "SELECT endpoint_id FROM webhook_deliveries WHERE state = %s", of_state
        )
    pages = list[paging.Page[Any]]()

    async def page(connection: AsyncConnection) -> object:
        pages.append(
            await deliveries.page(
                connection,
                platform_id=platform_id,
                filters=DeliveryFilters(endpoint_id=endpoint_id, **chosen),
                wanted=Wanted(limit=5, newest_first=True),
                count_limit=0,
                distance=distance,
            )
        )
        return pages

    read = rows_read(world, page)

    assert len(pages[0].items) == (5 if is_complete else 0)
    assert (pages[0].reached is None) is is_complete
    # For the end and for the page, beside as many of the other platform.
    assert read <= 2 * 2 * distance + 20


# Of a busy cardholder, who has half of the purchases of the platform.
@pytest.mark.parametrize(
    ("near", "most"),
    [
        pytest.param([(2_000, 0)], ROWS // 2, id="few enough to be sorted"),
        pytest.param([(99, 200)], 100 + 200, id="found among the next ones of the platform"),
        pytest.param([(99, 20)], 100 + 20 + ROWS // 2, id="not found there"),
        pytest.param([(99, 20), (299, 200)], 100 + 20 + 300 + 200, id="found farther away"),
    ],
)
@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_page_of_a_busy_cardholder_reads_few_purchases_of_others(  # noqa: PLR0913 - a case
    world: World,
    platform_id: Id,
    monkeypatch: pytest.MonkeyPatch,
    *,
    near: list[tuple[int, int]],
    most: int,
    is_newest_first: bool,
) -> None:
    monkeypatch.setattr(card_transactions, "_NEAR", near)
    [(account_id, key)] = world.rows(
        "SELECT account_id, id FROM card_transactions WHERE platform_id = %s"
        " AND account_id <> id ORDER BY id OFFSET 500 LIMIT 1",
        platform_id,
    )
    pages = list[paging.Page[Any]]()

    async def page(connection: AsyncConnection) -> object:
        pages.append(
            await card_transactions.page(
                connection,
                platform_id=platform_id,
                filters=CardTransactionFilters(account_id=account_id),
                wanted=Wanted(limit=10, after=key, newest_first=is_newest_first),
                count_limit=0,
            )
        )
        return pages

    read = rows_read(world, page)

    order = "DESC" if is_newest_first else "ASC"
    compared = "<" if is_newest_first else ">"
    expected = world.rows(
        f"SELECT id FROM card_transactions WHERE account_id = %s AND id {compared} %s"
        f" ORDER BY id {order} LIMIT 10",
        account_id,
        key,
    )
    assert read <= most + 50  # With the rows of the page, and look-ups of the account in each part.
    assert [item.id for item in pages[0].items] == [found for (found,) in expected]
    assert pages[0].last == expected[-1][0]


def test_a_page_of_a_busy_cardholder_and_a_time_is_looked_for_at_that_time(
    world: World, platform_id: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_transactions, "_NEAR", [(9, 50)])
    [(account_id,)] = world.rows(
        "SELECT account_id FROM card_transactions WHERE platform_id = %s AND account_id <> id"
        " LIMIT 1",
        platform_id,
    )
    filters = CardTransactionFilters(account_id=account_id, created_to=NOON + timedelta(hours=200))

    async def page(connection: AsyncConnection) -> object:
        return await card_transactions.page(
            connection,
            platform_id=platform_id,
            filters=filters,
            wanted=Wanted(limit=10, newest_first=True),
            count_limit=0,
        )

    assert rows_read(world, page) <= ROWS // 4


def test_the_rejections_of_other_platforms_are_not_read(world: World, platform_id: Id) -> None:
    asked = rejections.Filter(platform_id=platform_id)

    async def statement(connection: AsyncConnection) -> object:
        # Through SQLAlchemy, whose statements are noted.
        return await connection.exec_driver_sql(*rejections.query(asked, limit=10))

    assert rows_read(world, statement) == 0


def test_the_parked_events_of_other_platforms_are_not_read(world: World, platform_id: Id) -> None:
    asked = parked_events.Filter(platform_id=platform_id)

    async def statement(connection: AsyncConnection) -> object:
        return await connection.exec_driver_sql(*parked_events.query(asked, limit=10))

    assert rows_read(world, statement) == 10
