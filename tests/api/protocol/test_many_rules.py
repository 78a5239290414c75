"""A page of agents has the policy of each, with all of its rules: 100 times 100 of them."""

import gc
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cardledger.api.app import ApiConfig
from cardledger.config import gc_tuning
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.agents.agents import MAX_ACCOUNTS
from tests.api.support import AGENT_POLICY, Api, LoopWatch, new_tenant, ok, server

PAGE = 100

_POLICY = "UPDATE agents SET policy = policy || %s WHERE platform_id = %s"
_AGENTS = """
    INSERT INTO agents SELECT (jsonb_populate_record(a, jsonb_build_object(
        'id', gen_random_uuid()))).*
    FROM agents a, generate_series(2, %s) WHERE platform_id = %s
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


def test_a_page_of_agents_with_many_rules_does_not_block_the_event_loop(
    own: Api, watch: LoopWatch, database_url: str
) -> None:
    accounts = [f"InternalAccount:{new_id()}" for _ in range(MAX_ACCOUNTS)]
    restrictions = {
        "allowedAccountIds": accounts,
        "accountRules": [
            {
                "accountId": account,
                "executionMode": "APPROVAL_REQUIRED",
                "perTransactionLimit": 2**53 - 1,
            }
            for account in accounts
        ],
    }
    own.agent(own.customer()["id"])
    with psycopg.connect(database_url) as connection:
        policy = Jsonb({"accountRestrictions": restrictions})
        connection.execute(_POLICY, [policy, own.tenant.platform_id])
        connection.execute(_AGENTS, [PAGE, own.tenant.platform_id])

    def request() -> None:
        page = ok(own.get("/agents", limit=PAGE))
        policies = [agent["policy"] for agent in page["data"]]
        assert policies == [AGENT_POLICY | {"accountRestrictions": restrictions}] * PAGE

    request()
    watch.assert_not_blocked_by(request)
