"""The lists of an operator read what they show, not the other card transactions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.status import Status
from cardledger.ledger.queries import operator_lists
from cardledger.ledger.queries.operator_lists import ListFilters
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id
from tests.world import World, open_world

ROWS = 4_000
"""Card transactions, one a minute, of 400 cardholders; every 200th is an exception."""

FEW = 200
"""Rows that a page of ten may read, those of joined tables included."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

_FILL = """
    CREATE TEMP TABLE n AS
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
            || '7000' || '8000' || lpad(to_hex(i), 12, '0'))::uuid AS id,
        ('01900000-0000-7000-8000-' || lpad(to_hex(i %% 400), 12, '0'))::uuid AS customer_id,
        i %% 200 = 0 AS is_rare, at, i
    FROM (
        SELECT i, %(noon)s::timestamptz + i * interval '1 minute' AS at
        FROM generate_series(1, %(rows)s) i
    ) m;

    INSERT INTO customers (id, platform_id, platform_customer_id, customer_type, kyc_status,
        uma_address, currencies, created_at, updated_at)
    SELECT DISTINCT ON (customer_id) customer_id, %(platform)s::uuid, 'C' || i, 'INDIVIDUAL',
        'APPROVED', '$' || i || '@x.test', '{USD}'::text[], at, at
    FROM n;

    INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form, currency,
        funding_sources, processor_ref, issuer_ref, created_at, updated_at)
    SELECT id, id, platform_id, 'K' || id, 'ACTIVE', 'VIRTUAL', 'USD', ARRAY[id], 'p', 'i',
        created_at, created_at
    FROM customers;

    INSERT INTO card_transactions (id, customer_id, platform_id, card_id, account_id,
        issuer_transaction_token, currency, status, settled, debt_since, debt_id, created_at,
        updated_at)
    SELECT id, customer_id, %(platform)s::uuid, customer_id, customer_id, 'T' || i, 'USD',
        CASE WHEN is_rare THEN 'EXCEPTION' ELSE 'SETTLED' END, 100, CASE WHEN is_rare THEN at END,
        CASE WHEN is_rare THEN id END, at, at
    FROM n
"""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        with psycopg.connect(made.url, cursor_factory=psycopg.ClientCursor) as connection:
            values = {"platform": made.platform(), "noon": NOON, "rows": ROWS}
            connection.execute(_FILL, values)
        made.connection.execute("ANALYZE")
        yield made


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows the scans of `plan` have read, those removed by filters included."""
    own = 0
    if "Relation Name" in plan:
        read = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        own = round((read + plan.get("Rows Removed by Index Recheck", 0)) * plan["Actual Loops"])
    return own + sum(map(rows_read, plan.get("Plans", [])))


def explained(world: World, statement: bytes, values: dict[str, object]) -> dict[str, Any]:
    with psycopg.connect(world.app_url) as connection:
        cursor = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + statement, values)
        row = cursor.fetchone()
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan


CARDHOLDER = Id.parse("01900000-0000-7000-8000-000000000007")
LATE = NOON + timedelta(minutes=ROWS - 20)


@pytest.mark.parametrize(
    "filters",
    [
        ListFilters(),
        ListFilters(after=first_id_at(NOON + timedelta(minutes=100))),
        ListFilters(card_id=CARDHOLDER),
        ListFilters(customer_id=CARDHOLDER),
        ListFilters(since=LATE),
        ListFilters(since=LATE, status=Status.VOIDED),
        ListFilters(status=Status.EXCEPTION),
        ListFilters(status=Status.SETTLED),
    ],
    ids=str,
)
def test_a_page_reads_few_rows(world: World, filters: ListFilters) -> None:
    plan = explained(world, *operator_lists.query(filters, limit=11))

    assert rows_read(plan) <= FEW, plan


def test_a_page_of_a_platform_reads_few_rows(world: World) -> None:
    [(platform,)] = world.rows("SELECT DISTINCT platform_id FROM card_transactions")

    plan = explained(world, *operator_lists.query(ListFilters(platform_id=platform), limit=11))

    assert rows_read(plan) <= FEW, plan


def test_a_rare_status_without_an_index_reads_the_table(world: World) -> None:
    filters = ListFilters(status=Status.VOIDED)

    plan = explained(world, *operator_lists.query(filters, limit=11))

    assert rows_read(plan) >= ROWS, "the test above can fail"
