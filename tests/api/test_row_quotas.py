"""How many rows of a resource a platform may have, kept by the database at every door."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.ledger.quotes.expiry import Expiry
from cardledger.schema.ids import Id
from cardledger.schema.roles import WRITERS, Role
from tests.api.support import Api, made, new_tenant, refused
from tests.api.test_beneficial_owners import PERSON as OWNER
from tests.api.test_beneficial_owners import business
from tests.api.test_quotes import payer_of
from tests.api.test_transfers import scene_of
from tests.databases import as_role
from tests.due import is_due
from tests.external_accounts import body as external_account

PERSON = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
TWO_MADE = 2
QUOTA = 5
AT_ONCE = 16
SLOTS = 16  # Among which sessions are spread by their process id.


@pytest.fixture
def own(root: str, app_database_url: str) -> Iterator[Api]:
    """A platform that no other test uses."""
    with Api(root, new_tenant(app_database_url)) as api:
        yield api


def bank_account(customer_id: str) -> dict[str, object]:
    return external_account("EUR_ACCOUNT", customerId=customer_id)


def limit(database_url: str, platform_id: Id, resource: str, rows: int) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO row_quotas VALUES (%s, %s, %s)"
            " ON CONFLICT (platform_id, resource) DO UPDATE SET rows = excluded.rows",
            [platform_id, resource, rows],
        )


def counted(database_url: str, platform_id: Id, resource: str) -> int:
    with psycopg.connect(database_url) as connection:
        [[rows]] = connection.execute(
            "SELECT coalesce(sum(rows), 0) FROM row_counts"
            " WHERE platform_id = %s AND resource = %s",
            [platform_id, resource],
        )
    return int(rows)


def rows_of(database_url: str, platform_id: Id, resource: str) -> int:
    with psycopg.connect(database_url) as connection:
        [[rows]] = connection.execute(
            f"SELECT count(*) FROM {resource} WHERE platform_id = %s".encode(), [platform_id]
        )
    return int(rows)


def test_at_its_quota_a_platform_gets_a_conflict_and_others_do_not(
    own: Api, api: Api, database_url: str
) -> None:
    limit(database_url, own.tenant.platform_id, "customers", TWO_MADE)
    for _ in range(TWO_MADE):
        own.customer()

    refusal = refused(own.post("/customers", PERSON), 409, "CONFLICT")

    assert refusal["details"] == {"limit": TWO_MADE}
    assert "2 customers" in refusal["message"]
    assert rows_of(database_url, own.tenant.platform_id, "customers") == TWO_MADE
    assert counted(database_url, own.tenant.platform_id, "customers") == TWO_MADE
    api.customer()


def test_a_request_that_was_refused_for_its_quota_succeeds_with_its_key_once_that_is_raised(
    own: Api, database_url: str
) -> None:
    limit(database_url, own.tenant.platform_id, "customers", 0)
    key = {"Idempotency-Key": str(uuid4())}
    refused(own.http.post("/customers", json=PERSON, headers=key), 409, "CONFLICT")

    limit(database_url, own.tenant.platform_id, "customers", 1)

    made(own.http.post("/customers", json=PERSON, headers=key))


def test_concurrent_requests_exceed_a_quota_by_their_own_number_at_most(
    own: Api, database_url: str
) -> None:
    limit(database_url, own.tenant.platform_id, "customers", QUOTA)

    def create(_: int) -> httpx2.Response:
        return own.post("/customers", PERSON)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = [response.status_code for response in pool.map(create, range(4 * AT_ONCE))]

    rows = rows_of(database_url, own.tenant.platform_id, "customers")
    assert set(statuses) == {201, 409}
    assert QUOTA <= statuses.count(201) == rows < QUOTA + AT_ONCE
    assert counted(database_url, own.tenant.platform_id, "customers") == rows


def test_deleted_resources_count(own: Api, database_url: str) -> None:
    limit(database_url, own.tenant.platform_id, "external_accounts", 1)
    customer = own.customer()["id"]
    account = made(own.post("/customers/external-accounts", bank_account(customer)))
    assert own.delete(f"/customers/external-accounts/{account['id']}").is_success

    again = own.post("/customers/external-accounts", bank_account(customer))

    refused(again, 409, "CONFLICT")


def test_tokens_that_are_made_and_deleted_in_turn_are_limited(own: Api, database_url: str) -> None:
    token = {"name": "till", "permissions": ["VIEW"]}
    first = counted(database_url, own.tenant.platform_id, "api_tokens")
    limit(database_url, own.tenant.platform_id, "api_tokens", first + TWO_MADE)

    for _ in range(TWO_MADE):
        made_token = made(own.post("/tokens", token))
        assert own.delete(f"/tokens/{made_token['id']}").is_success
    refusal = refused(own.post("/tokens", token), 409, "CONFLICT")

    assert first == 1  # That of `own`.
    assert refusal["details"] == {"limit": first + TWO_MADE}


def test_every_row_of_a_resource_with_a_quota_is_counted(own: Api, database_url: str) -> None:
    scene = scene_of(own)
    with scene.agent:
        scene.asks()
    card = own.active_card()
    made(own.post("/customers/external-accounts", bank_account(str(card["cardholderId"]))))
    made(own.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/", "state": "DISABLED"}))
    owner = {"roles": ["UBO"], "ownershipPercentage": 1, "personalInfo": OWNER}
    company = str(business(own)["id"])
    made(own.post("/beneficial-owners", owner | {"customerId": company}))
    assert own.post("/verifications", {"customerId": company}).is_success
    rate = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": 1.25}
    assert own.post("/sandbox/exchange-rates", rate).is_success
    payer = payer_of(own)
    payer.quote(payer.eur)
    made(own.post("/invitations", {"inviterUma": own.customer()["umaAddress"]}))

    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT DISTINCT resource FROM row_quotas").fetchall()
    platform_id = own.tenant.platform_id
    rows = {resource: rows_of(database_url, platform_id, resource) for (resource,) in found}

    assert min(rows.values()) >= 1, rows
    assert {name: counted(database_url, platform_id, name) for name in rows} == rows


# --- rows that are deleted ------------------------------------------------------------------------


def delete_expired_quotes(connection: psycopg.Connection) -> None:
    """Do what the schedule of a worker does some months later."""
    later = datetime.now(UTC) + timedelta(days=90)
    expiry = Expiry(kept=timedelta(days=30))
    assert is_due(connection, expiry.is_due, later)
    expiry.enqueue_due(connection, later)


def test_quotes_that_expired_and_were_deleted_make_room_for_others(
    own: Api, app_database_url: str, database_url: str
) -> None:
    platform_id = own.tenant.platform_id
    limit(database_url, platform_id, "quotes", TWO_MADE)
    payer = payer_of(own)
    for _ in range(TWO_MADE):
        payer.quote(payer.eur)
    refused(payer.asks(payer.eur), 409, "CONFLICT")

    with psycopg.connect(as_role(app_database_url, Role.WORKER)) as worker:
        delete_expired_quotes(worker)

    assert counted(database_url, platform_id, "quotes") == 0
    for _ in range(TWO_MADE):
        payer.quote(payer.eur)
    refused(payer.asks(payer.eur), 409, "CONFLICT")
    assert counted(database_url, platform_id, "quotes") == TWO_MADE


_COPY = """
    INSERT INTO quotes SELECT (jsonb_populate_record(q, jsonb_build_object(
        'id', gen_random_uuid(), 'transaction_id', gen_random_uuid()))).*
    FROM quotes q WHERE q.platform_id = %s LIMIT 1
"""


def test_no_quote_waits_for_those_that_are_being_deleted(
    own: Api, app_database_url: str, database_url: str
) -> None:
    platform_id = own.tenant.platform_id
    payer = payer_of(own)
    payer.quote(payer.eur)

    with psycopg.connect(as_role(app_database_url, Role.WORKER)) as worker, ExitStack() as open_:
        delete_expired_quotes(worker)
        slot = worker.info.backend_pid % SLOTS
        while True:  # Until a session shares the slot of the worker.
            other = open_.enter_context(psycopg.connect(database_url))
            if other.info.backend_pid % SLOTS == slot:
                break
        other.execute("SET lock_timeout = '2s'")
        other.execute(_COPY, [platform_id])
        other.commit()

    assert counted(database_url, platform_id, "quotes") == 1


def test_rows_of_a_resource_with_a_quota_are_deleted_only_where_that_is_counted(
    database_url: str,
) -> None:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE t.tgname IN ('row_count', 'deleted_row_count')"
        ).fetchall()
    counted_tables = {table for trigger, table in found if trigger == "row_count"}
    subtracting = {table for trigger, table in found if trigger == "deleted_row_count"}

    deleted = {name for name in counted_tables if any("d" in w for w in WRITERS[name].values())}
    assert deleted - subtracting == {"api_tokens"}  # Their client ids are kept.
    assert subtracting == {"quotes"}
