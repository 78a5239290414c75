"""The quotas of rows by which `make attack` judges caps: each counts what a platform has."""

from uuid import uuid4

import psycopg
import pytest

from attack import measures
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from tests.api.support import Api, made, ok
from tests.api.test_beneficial_owners import PERSON, business
from tests.api.test_documents import upload
from tests.api.test_kyc_links import unverified
from tests.external_accounts import body as external_account

_UPLOAD = """
    INSERT INTO customer_uploads (id, platform_id, status, columns, total, processed, successful,
        failed, created_at, updated_at)
    VALUES (%s, %s, 'PROCESSING', '{}', 0, 0, 0, 0, now(), now())
"""

_REJECTION = """
    INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)
    VALUES (%s, %s, %s, '{}', 'MALFORMED', now())
"""

NAMES = [quota.name for quota in measures.QUOTAS]


@pytest.fixture(scope="module")
def one_of_each(api: Api, database_url: str) -> dict[str, float]:
    """The rows of a platform that has something of every kind with a quota."""
    customer = str(api.active_card()["cardholderId"])
    made(
        api.post(
            "/customers/external-accounts", external_account("EUR_ACCOUNT", customerId=customer)
        )
    )
    api.agent(customer)
    made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/", "state": "DISABLED"}))
    owner = {"roles": ["UBO"], "ownershipPercentage": 1, "personalInfo": PERSON}
    made(api.post("/beneficial-owners", owner | {"customerId": business(api)["id"]}))
    made(api.post(f"/customers/{unverified(api)['id']}/kyc-link", {}))
    upload(api, customer)
    ok(api.post("/webhooks/signing-keys/rotate", {"overlapHours": 24}))
    with psycopg.connect(database_url) as connection:
        connection.execute(_UPLOAD, [new_id(), api.tenant.platform_id])  # One would soon end.
        connection.execute(_REJECTION, [new_id(), new_id(), api.tenant.platform_id])
        found = measures.rows(connection, api.tenant.platform_id)
    return {one.name.removeprefix("rows: "): one.value for one in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_quota_counts_what_a_platform_has(one_of_each: dict[str, float], name: str) -> None:
    assert one_of_each[name] >= 1


def test_each_cap_has_a_quota() -> None:
    assert sorted(NAMES) == [
        "accounts of a customer",
        "agents",
        "bytes of a rejected event",
        "bytes of documents",
        "cards of a cardholder",
        "deliveries of an event",
        "device codes of an agent",
        "external accounts of a customer",
        "links of a customer",
        "owners of a business",
        "published signing keys",
        "signing keys",
        "tokens",
        "uploads of customers in progress",
        "webhook endpoints",
    ]


def test_of_another_platform_nothing_is_counted(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        found = measures.rows(connection, Id(uuid4().bytes))

    assert {one.value for one in found} == {0}
