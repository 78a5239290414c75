"""A page of customers has all owners of each business: 100 times 100 of them."""

import gc
from collections.abc import Iterator

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.config import gc_tuning
from cardledger.ledger.customers.beneficial_owners import OWNER_LIMIT
from tests.api.support import Api, LoopWatch, made, new_tenant, ok, server
from tests.api.test_beneficial_owners import add, business

PAGE = 100

_BUSINESSES = """
    INSERT INTO customers SELECT (jsonb_populate_record(c, jsonb_build_object(
        'id', gen_random_uuid(), 'platform_customer_id', number,
        'uma_address', '$' || number || c.uma_address))).*
    FROM customers c, generate_series(2, %s) AS number WHERE c.platform_id = %s
"""
_OWNERS = """
    INSERT INTO beneficial_owners SELECT (jsonb_populate_record(o, jsonb_build_object(
        'id', gen_random_uuid(), 'customer_id', c.id))).*
    FROM beneficial_owners o JOIN customers c USING (platform_id),
        generate_series(1, %s) AS number
    WHERE o.platform_id = %s AND number > (c.id = o.customer_id)::integer
"""


@pytest.fixture
def watch() -> Iterator[LoopWatch]:
    gc_tuning.freeze(for_latency=True)
    yield LoopWatch()
    gc.unfreeze()
    gc_tuning.relax()


@pytest.fixture
def own(root: str, api_config: ApiConfig, watch: LoopWatch) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone; `root` has the workers."""
    assert root
    with (
        server(api_config, watch=watch) as watched,
        Api(watched, new_tenant(api_config.database_url)) as client,
    ):
        yield client


def with_many_owners(api: Api, database_url: str) -> None:
    """Give the platform of `api` a page of businesses, each with as many owners as it may have."""
    made(add(api, business(api)))
    with psycopg.connect(database_url) as connection:
        connection.execute(_BUSINESSES, [PAGE, api.tenant.platform_id])
        connection.execute(_OWNERS, [OWNER_LIMIT, api.tenant.platform_id])


def test_a_page_of_customers_with_many_owners_does_not_block_the_event_loop(
    own: Api, watch: LoopWatch, database_url: str
) -> None:
    with_many_owners(own, database_url)

    def request() -> None:
        page = ok(own.get("/customers", limit=PAGE))
        owners = [customer["beneficialOwners"] for customer in page["data"]]
        assert [len(those) for those in owners] == [OWNER_LIMIT] * PAGE
        assert all(
            [owner["id"] for owner in those] == sorted(owner["id"] for owner in those)
            for those in owners
        )

    request()
    watch.assert_not_blocked_by(request)
