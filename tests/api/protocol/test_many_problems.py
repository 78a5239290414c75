"""A page of verifications has all problems of each: those of a hundred persons in each business."""

import gc
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cardledger.api.app import ApiConfig
from cardledger.config import gc_tuning
from cardledger.ledger.customers.beneficial_owners import OWNER_LIMIT
from cardledger.ledger.customers.documents.requirements import IDENTITY
from cardledger.ledger.storage.ids import new_id
from tests.api.protocol.test_many_owners import PAGE, with_many_owners
from tests.api.support import Api, LoopWatch, new_tenant, ok, server

_VERIFICATIONS = """
    INSERT INTO verifications (id, platform_id, customer_id, status, errors, created_at, updated_at)
    SELECT gen_random_uuid(), platform_id, id, 'RESOLVE_ERRORS', %s, now(), now()
    FROM customers WHERE platform_id = %s
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


def test_a_page_of_verifications_with_many_problems_does_not_block_the_event_loop(
    own: Api, watch: LoopWatch, database_url: str
) -> None:
    with_many_owners(own, database_url)
    problems = [
        {
            "resourceId": f"BeneficialOwner:{new_id()}",
            "type": "MISSING_IDENTITY_DOCUMENT",
            "acceptedDocumentTypes": list(IDENTITY),
            "reason": "a document that proves who the owner or control person is is required",
        }
        for _ in range(OWNER_LIMIT)
    ]
    with psycopg.connect(database_url) as connection:
        connection.execute(_VERIFICATIONS, [Jsonb(problems), own.tenant.platform_id])

    def request() -> None:
        page = ok(own.get("/verifications", limit=PAGE))
        assert [each["errors"] for each in page["data"]] == [problems] * PAGE

    request()
    watch.assert_not_blocked_by(request)
