"""Pages whose JSON would be long: it is written in turns, as far as it is shown."""

import gc
from collections.abc import Iterator

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.config import gc_tuning
from cardledger.embedded.servers import DatabaseUrl
from tests.api.protocol.test_many_owners import PAGE, with_many_owners
from tests.api.support import Api, LoopWatch, new_tenant, server
from tests.console.person import Person, shown
from tests.waiting import eventually

_ONE = """
    SELECT id FROM webhook_deliveries WHERE subject_id = %s
"""
_DELIVERIES = """
    INSERT INTO webhook_deliveries SELECT (jsonb_populate_record(d, jsonb_build_object(
        'id', gen_random_uuid()))).*
    FROM webhook_deliveries d, generate_series(2, 10) WHERE d.id = %s
"""
_ATTEMPTS = """
    INSERT INTO webhook_attempts
    SELECT id, number, customer_id, now(), 1, 500, NULL, repeat(chr(133), 4096)
    FROM webhook_deliveries, generate_series(1, 10) AS number WHERE subject_id = %s
"""


@pytest.fixture
def watch() -> Iterator[LoopWatch]:
    gc_tuning.freeze(for_latency=True)
    yield LoopWatch()
    gc.unfreeze()
    gc_tuning.relax()


@pytest.fixture
def api(root: str, config: ApiConfig, watch: LoopWatch) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone; `root` has the workers."""
    assert root
    with (
        server(config, watch=watch) as watched,
        Api(watched, new_tenant(config.database_url)) as client,
    ):
        yield client


@pytest.fixture
def person(api: Api) -> Iterator[Person]:
    """A person who has logged in there."""
    with Person(api.root) as visitor:
        visitor.log_in(api.tenant)
        yield visitor


def test_customers_with_many_owners_do_not_block_the_event_loop(
    person: Person, api: Api, watch: LoopWatch, database_url: DatabaseUrl
) -> None:
    with_many_owners(api, database_url)

    def request() -> None:
        page = shown(person.get("/customers", limit=PAGE))
        assert "its first 200,000 characters" in page

    request()
    watch.assert_not_blocked_by(request)


def test_many_attempts_with_long_answers_do_not_block_the_event_loop(
    person: Person, api: Api, watch: LoopWatch, database_url: DatabaseUrl
) -> None:
    purchase = api.authorize(api.active_card()["id"], 100)["id"]
    key = purchase.partition(":")[2]
    with psycopg.connect(database_url, autocommit=True) as owner:
        [one] = eventually(lambda: owner.execute(_ONE, [key]).fetchone())
        owner.execute(_DELIVERIES, [one])
        owner.execute(_ATTEMPTS, [key])

    def request() -> None:
        page = shown(person.get(f"/card-transactions/{purchase}"))
        assert page.count('class="attempt"') == 100
        assert "its first 200,000 characters" in page
        page = shown(person.get(f"/webhooks/deliveries/WebhookDelivery:{one}"))
        assert page.count("⟨U+0085⟩" * 500) == 10
        assert "its first 200,000 characters" in page

    request()
    watch.assert_not_blocked_by(request)
