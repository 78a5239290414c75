"""Rejected events over HTTP: a platform sees and retries its own."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from tests.api.support import Api, new_tenant, ok, refused, rejected
from tests.waiting import eventually


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def clearing(card_id: str, reference: str) -> dict[str, Any]:
    return {
        "type": "CLEARING",
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": reference,
        "cardId": card_id,
        "amount": 500,
        "currency": "USD",
    }


def test_a_rejection_is_listed_with_its_reason_and_shown_with_its_event(
    own: Api, api_config: ApiConfig
) -> None:
    event = {"type": "DANCE", "source": "visa", "reference": "r1"}
    key = rejected(api_config.database_url, own, event, reason="MALFORMED")

    [listed] = ok(own.get("/rejections", reason="MALFORMED"))["data"]
    shown = ok(own.get(f"/rejections/{key}"))
    of_another_reason = ok(own.get("/rejections", reason="UNKNOWN_CARD"))["data"]
    later = ok(own.get("/rejections", since="2099-01-01T00:00:00Z"))["data"]

    assert (listed["id"], listed["reason"], listed["reference"]) == (key, "MALFORMED", "r1")
    assert "event" not in listed
    assert json.loads(shown["event"]) == event
    assert (of_another_reason, later) == ([], [])
    refused(own.post(f"/rejections/{key}/retry", None), 409, "CONFLICT")


def test_a_list_of_rejections_has_pages(own: Api, api_config: ApiConfig) -> None:
    keys = [rejected(api_config.database_url, own, {}) for _ in range(3)]

    page = ok(own.get("/rejections", limit=2))
    rest = ok(own.get("/rejections", limit=2, cursor=page["nextCursor"]))

    assert [each["id"] for each in page["data"] + rest["data"]] == keys[::-1]
    assert (page["hasMore"], rest["hasMore"]) == (True, False)


def test_a_retry_applies_the_event_once(own: Api, api_config: ApiConfig) -> None:
    card = own.active_card()
    key = rejected(
        api_config.database_url, own, clearing(card["id"], "r2"), reason="INTERNAL_ERROR"
    )

    retried = ok(own.post(f"/rejections/{key}/retry", None))
    refused(own.post(f"/rejections/{key}/retry", None), 409, "CONFLICT")

    assert retried["retriedAt"]
    [applied] = eventually(lambda: ok(own.get("/transactions", cardId=card["id"]))["data"])
    assert applied["settledAmount"]["amount"] == 500
    assert applied["settlementSummary"]["count"] == 1


def test_a_rejected_authorization_is_not_retried(own: Api, api_config: ApiConfig) -> None:
    event = clearing(own.active_card()["id"], "r3") | {"type": "FINANCIAL_AUTHORIZATION"}
    key = rejected(api_config.database_url, own, event, reason="UNKNOWN_CARD")

    refused(own.post(f"/rejections/{key}/retry", None), 409, "CONFLICT")

    assert "retriedAt" not in ok(own.get(f"/rejections/{key}"))


def test_rejections_of_another_platform_are_not_found(
    own: Api, api: Api, api_config: ApiConfig
) -> None:
    key = rejected(api_config.database_url, own, {})

    refused(api.get(f"/rejections/{key}"), 404, "REFERENCE_NOT_FOUND")
    refused(api.post(f"/rejections/{key}/retry", None), 404, "REFERENCE_NOT_FOUND")


def test_a_token_that_may_only_view_cannot_retry(own: Api, api_config: ApiConfig) -> None:
    key = rejected(api_config.database_url, own, {})
    viewer = new_tenant(api_config.database_url, permissions=("VIEW",), of=own.tenant)

    with Api(own.root, viewer) as reader:
        ok(reader.get(f"/rejections/{key}"))
        refused(reader.post(f"/rejections/{key}/retry", None), 403, "FORBIDDEN")
