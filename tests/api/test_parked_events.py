"""Parked events over HTTP: a platform sees its own, until they are applied."""

from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from cardledger.workers.client import submit
from tests.api.support import SECRET_KEY, Api, new_tenant, ok, parked, refused
from tests.api.test_rejections import clearing


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def listed(api: Api, **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - parameters of a query
    return list(ok(api.get("/parked-events", **query))["data"])


def test_a_parked_event_is_listed_and_shown_with_its_event(own: Api, api_config: ApiConfig) -> None:
    card = own.active_card()
    key = parked(api_config.database_url, card["id"], "r1")

    [in_list] = listed(own)
    shown = ok(own.get(f"/parked-events/{key}"))

    assert (in_list["id"], in_list["type"]) == (key, "CLEARING_REVERSAL")
    assert (in_list["source"], in_list["reference"]) == ("visa", "r1")
    assert (in_list["cardId"], in_list["issuerTransactionToken"]) == (card["id"], "r1")
    assert "event" not in in_list
    assert shown == in_list | {"event": shown["event"]}
    assert shown["event"]["amount"] == 500


def test_a_list_of_parked_events_has_pages(own: Api, api_config: ApiConfig) -> None:
    card = own.active_card()
    keys = [parked(api_config.database_url, card["id"], f"p{number}") for number in range(3)]

    page = ok(own.get("/parked-events", limit=2))
    rest = ok(own.get("/parked-events", limit=2, cursor=page["nextCursor"]))

    assert [each["id"] for each in page["data"] + rest["data"]] == keys[::-1]
    assert (page["hasMore"], rest["hasMore"]) == (True, False)


def test_parked_events_of_another_platform_are_not_found(
    own: Api, api: Api, api_config: ApiConfig
) -> None:
    key = parked(api_config.database_url, own.active_card()["id"], "r2")

    refused(api.get(f"/parked-events/{key}"), 404, "REFERENCE_NOT_FOUND")
    assert key not in {each["id"] for each in listed(api, limit=100)}


def test_an_applied_event_is_not_found_any_more(own: Api, api_config: ApiConfig) -> None:
    card = own.active_card()
    key = parked(api_config.database_url, card["id"], "r3")

    [applied] = submit(
        [clearing(card["id"], "r3")],
        database_url=api_config.database_url,
        redis_url=api_config.redis_url,
        secret_key=SECRET_KEY,
    )

    assert applied.outcome == "APPLIED"
    assert listed(own) == []
    refused(own.get(f"/parked-events/{key}"), 404, "REFERENCE_NOT_FOUND")
