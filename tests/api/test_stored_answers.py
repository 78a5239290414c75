"""What is stored with an idempotency key: permanent, so little of a large response."""

import json
from typing import Any, Final
from uuid import uuid4

import psycopg
from fastapi import Response
from hypothesis import given
from hypothesis import strategies as st

from cardledger.api.http.in_flight import ANSWER_LIMIT, stored_response
from tests.api.support import Api, closed_port, made, ok
from tests.api.test_beneficial_owners import INFO, add
from tests.api.test_contact_verification import EUROPEAN, RIGHT, path_of, start

BUSINESS: Final = {"customerType": "BUSINESS", "businessInfo": INFO}


def stored(body: dict[str, Any], *unstored: str) -> dict[str, Any]:
    answer = stored_response(Response(json.dumps(body), 201), unstored)
    assert answer.status == 201
    assert len(answer.body) <= ANSWER_LIMIT
    kept: dict[str, Any] = json.loads(answer.body)
    return kept


def bytes_stored(database_url: str, key: str) -> int:
    with psycopg.connect(database_url) as owner:
        [row] = owner.execute(
            "SELECT octet_length(answer) FROM idempotency_keys WHERE key = %s", [key]
        ).fetchall()
    return int(row[0])


def test_a_response_that_is_not_large_is_stored_whole() -> None:
    card = {"id": "Card:1", "fundingSources": ["a" * (ANSWER_LIMIT - 100)]}

    assert stored(card) == card


def test_of_a_large_response_the_largest_fields_are_not_stored() -> None:
    owners, note = ["o" * 40_000], "n" * 9_000
    customer = {"id": "Customer:1", "note": note, "owners": owners, "state": "ACTIVE"}

    assert stored(customer) == {"id": "Customer:1", "note": note, "state": "ACTIVE"}


def test_the_ids_in_a_large_response_are_stored() -> None:
    agent = {"id": "Agent:1", "name": "x", "policy": {"rules": ["r" * 40_000]}}
    created = {"agent": agent, "deviceCode": {"code": "c", "expiresAt": "t"}}

    kept = stored(created, "deviceCode.code")

    assert kept == {"agent": {"id": "Agent:1", "name": "x"}, "deviceCode": {"expiresAt": "t"}}


texts = st.integers(0, ANSWER_LIMIT).map(lambda count: "x" * count)
fields = st.dictionaries(st.sampled_from("abcde"), texts | st.lists(texts, max_size=2), max_size=5)


@given(outer=fields, inner=fields)
def test_of_any_response_at_most_the_limit_is_stored(
    outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    body = {"id": "Agent:1", **outer, "agent": {"id": "Agent:2", **inner}}

    kept = stored(body, "agent.a", "missing.code")

    assert kept["id"] == "Agent:1"
    assert kept["agent"]["id"] == "Agent:2"
    assert all(outer[name] == value for name, value in kept.items() if name in outer)


def test_a_retried_delivery_is_stored_without_its_payload(api: Api, database_url: str) -> None:
    nowhere = {"url": f"http://127.0.0.1:{closed_port()}/", "state": "DISABLED"}
    endpoint = made(api.post("/webhooks/endpoints", nowhere))["id"]
    delivery = ok(api.post("/webhooks/test", {"endpointId": endpoint}))["deliveryId"]
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "UPDATE webhook_deliveries SET body = %s WHERE id = %s",
            [json.dumps({"data": "x" * 500_000}), delivery.partition(":")[2]],
        )
    path, key = f"/webhooks/deliveries/{delivery}/retry", str(uuid4())

    first = ok(api.http.post(path, headers={"Idempotency-Key": key}))
    again = ok(api.http.post(path, headers={"Idempotency-Key": key}))

    assert len(first.pop("payload")["data"]) == 500_000
    assert len(first.pop("attemptList")) == 1
    assert again == first
    assert bytes_stored(database_url, key) < 1024
    assert "payload" in ok(api.get(f"/webhooks/deliveries/{delivery}"))


def test_a_business_with_many_owners_is_stored_without_them(api: Api, database_url: str) -> None:
    """Any number of times a platform changes the address of a customer and verifies it again."""
    customer = made(api.post("/customers", {**EUROPEAN, **BUSINESS}))
    for _ in range(80):
        made(add(api, customer, 1))
    start(api, customer, "email")
    path, key = path_of(customer, "email") + "/confirm", {"Idempotency-Key": str(uuid4())}

    first = ok(api.http.post(path, json=RIGHT, headers=key))
    again = ok(api.http.post(path, json=RIGHT, headers=key))

    assert len(first.pop("beneficialOwners")) == 80
    assert again == first
    assert bytes_stored(database_url, key["Idempotency-Key"]) < ANSWER_LIMIT
