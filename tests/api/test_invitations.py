"""Invitations: made for a customer, claimed once by a customer of any platform, or cancelled."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import (
    Api,
    at_once,
    logged,
    made,
    new_tenant,
    ok,
    refused,
    server,
    webhooks,
)
from tests.waiting import eventually

UNKNOWN = "0" * 16


@dataclass(frozen=True)
class Customer:
    """A customer, with the interface as its platform sees it."""

    api: Api
    id: str
    address: str

    def invites(self, **fields: object) -> dict[str, Any]:
        return made(self.asks(**fields))

    def asks(self, **fields: object) -> httpx2.Response:
        return self.api.post("/invitations", {"inviterUma": self.address} | fields)

    def claims(self, code: str) -> httpx2.Response:
        return self.api.post(f"/invitations/{code}/claim", {"inviteeUma": self.address})


def customer_of(api: Api) -> Customer:
    created = api.customer()
    return Customer(api, created["id"], created["umaAddress"])


@pytest.fixture
def inviter(api: Api) -> Customer:
    return customer_of(api)


@pytest.fixture
def invitee(other_platform: Api) -> Customer:
    return customer_of(other_platform)


def key_of(database_url: str, code: str) -> str:
    with psycopg.connect(database_url) as connection:
        query = "SELECT id FROM invitations WHERE code = %s"
        [(key,)] = connection.execute(query, [code]).fetchall()
    return f"Invitation:{key}"


def test_an_invitation_is_shown_by_its_code(inviter: Customer, invitee: Customer) -> None:
    created = inviter.invites(firstName="Ada", amountToSend=1_250)

    assert created["status"] == "PENDING"
    assert created["inviterUma"] == inviter.address
    assert created["firstName"] == "Ada"
    assert (created["amountToSend"]["amount"], created["amountToSend"]["currency"]["code"]) == (
        1_250,
        "USD",
    )
    assert created["url"].endswith(created["code"])
    for api in (inviter.api, invitee.api):
        assert ok(api.get(f"/invitations/{created['code']}")) == created


def test_a_customer_of_another_platform_claims_it_and_the_inviter_is_told(
    inviter: Customer, invitee: Customer, database_url: DatabaseUrl
) -> None:
    code = inviter.invites()["code"]

    claimed = ok(invitee.claims(code))

    assert (claimed["status"], claimed["inviteeUma"]) == ("CLAIMED", invitee.address)
    assert ok(inviter.api.get(f"/invitations/{code}")) == claimed
    [(kind, sent)] = webhooks(database_url, key_of(database_url, code), 1)
    assert (kind, sent) == ("INVITATION.CLAIMED", claimed)
    with psycopg.connect(database_url) as connection:
        query = "SELECT platform_id FROM webhook_deliveries WHERE type = 'INVITATION.CLAIMED'"
        owners = {row[0] for row in connection.execute(query)}
    assert inviter.api.tenant.platform_id in owners
    assert invitee.api.tenant.platform_id not in owners


def test_it_is_claimed_once(inviter: Customer, invitee: Customer) -> None:
    code = inviter.invites()["code"]

    answers = at_once(12, lambda: invitee.claims(code))

    assert sorted(one.status_code for one in answers) == [200] + 11 * [400]
    for one in answers:
        if one.status_code == 400:
            refused(one, 400, "INVITATION_ALREADY_CLAIMED")
    refused(inviter.api.http.post(f"/invitations/{code}/cancel"), 400, "INVITATION_ALREADY_CLAIMED")


def test_its_platform_alone_cancels_it(inviter: Customer, invitee: Customer) -> None:
    code = inviter.invites()["code"]
    path = f"/invitations/{code}/cancel"

    refused(invitee.api.http.post(path), 403, "FORBIDDEN")
    assert ok(inviter.api.get(f"/invitations/{code}"))["status"] == "PENDING"
    cancelled = ok(inviter.api.http.post(path))

    assert cancelled["status"] == "CANCELLED"
    refused(invitee.claims(code), 400, "INVITATION_CANCELLED")
    refused(inviter.api.http.post(path), 400, "INVITATION_CANCELLED")


def test_of_claims_and_a_cancellation_at_once_one_counts(
    inviter: Customer, invitee: Customer
) -> None:
    for _ in range(5):
        code = inviter.invites()["code"]
        steps = iter(["claim", "cancel"] * 4)

        def step(code: str = code, steps: Iterator[str] = steps) -> httpx2.Response:
            if next(steps) == "claim":
                return invitee.claims(code)
            return inviter.api.http.post(f"/invitations/{code}/cancel")

        answers = at_once(8, step)

        assert [one.status_code for one in answers].count(200) == 1
        [done] = [one.json()["status"] for one in answers if one.status_code == 200]
        assert ok(inviter.api.get(f"/invitations/{code}"))["status"] == done


def test_it_expires(inviter: Customer, invitee: Customer, api_config: ApiConfig) -> None:
    code = inviter.invites()["code"]
    later = replace(api_config)

    with (
        server(later, clock=lambda: datetime.now(UTC) + timedelta(days=31)) as url,
        Api(url, invitee.api.tenant) as at_their_end,
        Api(url, inviter.api.tenant) as at_ours,
    ):
        assert ok(at_their_end.get(f"/invitations/{code}"))["status"] == "EXPIRED"
        error = refused(replace(invitee, api=at_their_end).claims(code), 400, "INVALID_INPUT")
        refused(at_ours.http.post(f"/invitations/{code}/cancel"), 400, "INVALID_INPUT")
    assert error["details"]["reason"] == "INVITATION_EXPIRED"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"inviterUma": "ada"}, "INVALID_UMA_ADDRESS"),
        ({"inviterUma": "$nobody@uma.cardledger.example"}, "INVALID_UMA_ADDRESS"),
        ({"amountToSend": 0}, "INVALID_INPUT"),
        ({"amountToSend": 9_000_000_000_000_001}, "INVALID_INPUT"),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, "INVALID_INPUT"),
        ({"expiresAt": "9999-01-01T00:00:00Z"}, "INVALID_INPUT"),
        ({"firstName": ""}, "INVALID_INPUT"),
        ({"firstName": "A\u0000"}, "INVALID_INPUT"),
    ],
)
def test_what_cannot_be_an_invitation_is_refused(
    inviter: Customer, fields: dict[str, object], code: str
) -> None:
    refused(inviter.asks(**fields), 400, code)


def test_a_customer_of_another_platform_does_not_invite_for_ours(
    inviter: Customer, invitee: Customer
) -> None:
    refused(inviter.asks(inviterUma=invitee.address), 400, "INVALID_UMA_ADDRESS")
    code = inviter.invites()["code"]
    theirs = replace(invitee, address=inviter.address)
    refused(theirs.claims(code), 400, "INVALID_UMA_ADDRESS")
    refused(inviter.claims(code), 400, "SELF_PAYMENT")
    assert ok(inviter.api.get(f"/invitations/{code}"))["status"] == "PENDING"


@pytest.mark.parametrize("code", [UNKNOWN, "x" * 64, "8J3"])
def test_an_unknown_code_is_not_found(inviter: Customer, code: str) -> None:
    refused(inviter.api.get(f"/invitations/{code}"), 404, "INVITATION_NOT_FOUND")
    refused(inviter.claims(code), 404, "INVITATION_NOT_FOUND")
    refused(inviter.api.http.post(f"/invitations/{code}/cancel"), 404, "INVITATION_NOT_FOUND")


def test_without_a_uma_network_no_invitation_is_made(
    api_config: ApiConfig, inviter: Customer
) -> None:
    with (
        server(replace(api_config, sandbox=False)) as url,
        Api(url, inviter.api.tenant) as elsewhere,
    ):
        asked = replace(inviter, api=elsewhere).asks()

    refused(asked, 400, "INVITATIONS_NOT_CONFIGURED")


def test_its_page_shows_it_until_it_is_claimed(inviter: Customer, invitee: Customer) -> None:
    created = inviter.invites(firstName="<b>Ada</b>", amountToSend=1_250)

    page = httpx2.get(created["url"])
    ok(invitee.claims(created["code"]))
    after = httpx2.get(created["url"])

    assert page.status_code == 200
    assert created["code"] in page.text
    assert "12.50 USD" in page.text
    assert "<b>" not in page.text
    assert "&lt;b&gt;Ada" in page.text
    assert after.status_code == 404
    assert httpx2.get(created["url"] + "0").status_code == 404


def test_no_code_is_in_the_log(inviter: Customer, invitee: Customer) -> None:
    claimed, cancelled = (inviter.invites() for _ in range(2))
    code = claimed["code"]

    with logged() as lines:
        httpx2.get(claimed["url"])
        ok(invitee.api.get(f"/invitations/{code}"))
        ok(invitee.claims(code))
        ok(inviter.api.http.post(f"/invitations/{cancelled['code']}/cancel"))
        # A request is logged after its response.
        eventually(lambda: [line["event"] for line in lines].count("request") == 4)

    paths = [line["path"] for line in lines if line["event"] == "request"]
    assert [path.removeprefix(BASE_PATH) for path in paths] == [
        "/embed/invitations/…",
        "/invitations/…",
        "/invitations/…/claim",
        "/invitations/…/cancel",
    ]
    for one in (claimed, cancelled):
        assert one["code"] not in str(lines)


def test_invitations_of_a_platform_have_a_quota(
    root: str, api_config: ApiConfig, database_url: DatabaseUrl
) -> None:
    with Api(root, new_tenant(api_config.database_url)) as own:
        inviter = customer_of(own)
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "INSERT INTO row_quotas (platform_id, resource, rows)"
                " VALUES (%s, 'invitations', 1)",
                [own.tenant.platform_id],
            )
        inviter.invites()

        refused(inviter.asks(), 409, "CONFLICT")
