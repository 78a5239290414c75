"""A card transaction with any number of events: each request about it takes a bounded time."""

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.ingestion.bodies import NDJSON
from cardledger.config import gc_tuning
from cardledger.ledger.core.card_transaction import fold
from cardledger.ledger.core.events import Authorized, Cleared, Credited, DeclineReason, Pulled
from cardledger.ledger.core.state import CardTransaction
from cardledger.ledger.core.status import Closure
from cardledger.ledger.queries.event_pages import packed, unpacked
from tests.api.support import Api, LoopWatch, new_tenant, ok, refused, server, worker

CLEARINGS = 2_000


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    gc_tuning.freeze(for_latency=True)
    yield LoopWatch()
    gc.unfreeze()
    gc_tuning.relax()


@pytest.fixture(scope="module")
def watched(api_config: ApiConfig, watch: LoopWatch) -> Iterator[Api]:
    with (
        worker(api_config.database_url, api_config.redis_url),
        server(api_config, watch=watch) as root,
        Api(root, new_tenant(api_config.database_url)) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def long_one(watched: Api) -> str:
    """The path of a card transaction with that many clearings."""
    card = watched.active_card(balance=1_000_000)
    lines = [
        json.dumps(
            {
                "type": "CLEARING",
                "source": "visa",
                "reference": f"c{number}",
                "issuerTransactionToken": "T1",
                "cardId": card["id"],
                "amount": 1,
                "currency": "USD",
            }
        )
        for number in range(CLEARINGS)
    ]
    answer = watched.http.post(
        f"{watched.root}/network-events",
        content="\n".join(lines).encode(),
        headers={"content-type": NDJSON},
        timeout=300,
    )
    outcomes = [json.loads(line) for line in answer.content.splitlines()]
    assert len(outcomes) == CLEARINGS
    return f"/transactions/{outcomes[-1]['cardTransaction']['id']}"


def test_the_pages_of_its_events_are_all_of_its_events(watched: Api, long_one: str) -> None:
    last = ok(watched.get(long_one))
    cursor: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    while cursor is not None:
        page = ok(watched.get(f"{long_one}/events", **cursor))
        listed += page["data"]
        assert len(page["data"]) <= 100
        assert page["totalCount"] == last["sequence"]
        assert page["hasMore"] == ("nextCursor" in page)
        if not page["hasMore"]:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert [event["sequence"] for event in listed] == [*range(1, last["sequence"] + 1)]
    settled = [
        (change["before"], change["after"])
        for event in listed
        for change in event["changes"]
        if change["field"] == "settledAmount"
    ]
    assert settled == [(number, number + 1) for number in range(CLEARINGS)]


def test_a_cursor_is_of_one_card_transaction(watched: Api, long_one: str) -> None:
    cursor = ok(watched.get(f"{long_one}/events", limit=7))["nextCursor"]
    bought = watched.authorize(watched.active_card()["id"], 5)

    answer = watched.get(f"/transactions/{bought['id']}/events", cursor=cursor)

    refused(answer, 400, "INVALID_INPUT")


def test_a_page_of_its_events_does_not_block_the_event_loop(
    watched: Api, watch: LoopWatch, long_one: str
) -> None:
    def request() -> None:
        answer = watched.get(f"{long_one}/events")
        assert len(answer.content) <= 200_000

    request()
    watch.assert_not_blocked_by(request)


@pytest.mark.parametrize("clearing", [CLEARINGS - 2, CLEARINGS - 1])
def test_an_outcome_of_its_past_does_not_block_the_event_loop(
    watched: Api, watch: LoopWatch, long_one: str, clearing: int
) -> None:
    path = f"{watched.root}/network-events/visa/c{clearing}"

    def request() -> None:
        outcome = ok(watched.http.get(path))
        assert outcome["cardTransaction"]["settledAmount"]["amount"] == clearing + 1

    assert long_one
    request()
    watch.assert_not_blocked_by(request)


@pytest.mark.parametrize(
    "state",
    [
        CardTransaction(),
        fold([Authorized(amount=5), Pulled(amount=5), Cleared(amount=9, unfunded=4, final=True)]),
        fold([Credited(amount=2**63 - 1)]),
        CardTransaction(credit_authorized=0, open_pull=-1, written_off=3, debits_written_off=2),
        *(CardTransaction(closed_by=closure) for closure in Closure),
        *(CardTransaction(decline_reason=reason) for reason in DeclineReason),
    ],
)
def test_a_cursor_keeps_a_state_whole(state: CardTransaction) -> None:
    assert unpacked(packed(state)) == state
