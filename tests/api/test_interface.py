"""What the interface shows, from outside and as it shows it: most of what docs/interface.md names.

Names, types and values come from `tests/fixtures/interface.txt`, which holds every name that the
interface knows, section by section.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.schema.ids import Id
from cardledger.schema.platform_views import schema_beside
from cardledger.schema.wire.error_specs import ERROR_SPECS
from cardledger.schema.wire.errors import Code
from cardledger.webhooks.receiver import Arrival, Reply
from tests.api.documents import document, resolved
from tests.api.support import (
    TIMEOUT_S,
    AgentApi,
    Api,
    closed_port,
    made,
    new_tenant,
    ok,
    refused,
    server,
)
from tests.api.test_beneficial_owners import PERSON as OWNER
from tests.api.test_beneficial_owners import add, business
from tests.external_accounts import body, info
from tests.interface import NAMES
from tests.receiver import Receiver

EXTERNAL: Final = "/agents/me/external-accounts"


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


@pytest.fixture
def agent(api: Api) -> Iterator[AgentApi]:
    """The interface as seen by an agent of a new customer."""
    with AgentApi(api.root, api.agent_token(api.customer()["id"])) as client:
        yield client


def arrival(receiver: Receiver, kind: str, **sent_body: object) -> dict[str, Any]:
    """Return the first webhook of a type whose data says so, as soon as it is there."""

    def is_it(one: Arrival) -> bool:
        data = one.content["data"]
        return one.type == kind and all(data[name] == value for name, value in sent_body.items())

    arrivals = receiver.wait_for(lambda all_: any(is_it(one) for one in all_))
    return next(one.content for one in arrivals if is_it(one))


def fields(section: str) -> set[str]:
    """Return the names of a section that fields can have."""
    return {name for name in NAMES[section] if re.fullmatch(r"[a-z]\w*", name, re.ASCII)}


def properties(model: str) -> dict[str, Any]:
    """Return the fields of a model of the served document."""
    found: dict[str, Any] = document()["components"]["schemas"][model]["properties"]
    return found


def is_time(text: str) -> bool:
    return text.endswith("Z") and datetime.fromisoformat(text).utcoffset() is not None


# --- the card, from its money to its tip -------------------------------------------------------


def test_the_life_of_a_card_follows_the_interface(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    customer = own.customer()
    account = own.account(customer["id"])

    funded = ok(own.post(f"/sandbox/internal-accounts/{account['id']}/fund", {"amount": 50_000}))
    wanted = {
        "cardholderId": customer["id"],
        "platformCardId": "card-of-ada",
        "form": "VIRTUAL",
        "fundingSources": [account["id"]],
    }
    card = made(own.post("/cards", wanted))
    active = arrival(receiver, "CARD.STATE_CHANGE", id=card["id"], state="ACTIVE")
    asked = {
        "amount": 1250,
        "currency": {"code": "USD"},
        "merchant": {"descriptor": "BLUE BOTTLE COFFEE", "mcc": "5814", "country": "US"},
    }
    authorized = ok(own.simulate(card["id"], "authorization", asked))
    sent = arrival(receiver, "CARD_TRANSACTION.AUTHORIZED", id=authorized["id"])
    moved = {"cardTransactionId": authorized["id"], "amount": 1500}
    cleared = ok(own.simulate(card["id"], "clearing", moved))
    told_again = arrival(receiver, "CARD_TRANSACTION.SETTLED", id=authorized["id"])

    assert customer["kycStatus"] == "APPROVED"
    assert funded["balance"]["amount"] == 50_000
    assert {name: card[name] for name in wanted} == wanted
    assert card["state"] == "PROCESSING"
    assert active["data"] == ok(own.get(f"/cards/{card['id']}"))
    assert authorized["status"] == "AUTHORIZED"
    assert authorized["pullSummary"]["count"] == 1
    assert sent["data"] == authorized
    assert cleared["status"] == "SETTLED"
    assert cleared["pullSummary"]["count"] == 2
    assert cleared["settlementSummary"]["totalAmount"] == 1500
    assert cleared["refundSummary"]["count"] == 0
    assert told_again["data"] == cleared
    assert own.account(customer["id"])["balance"]["amount"] == 48_500


def test_a_card_has_the_fields_of_the_interface(api: Api) -> None:
    card = api.active_card(balance=0)

    assert fields("Card") <= set(card)
    assert (card["state"], card["brand"], card["form"]) == ("ACTIVE", "VISA", "VIRTUAL")
    assert card["last4"].isdecimal()
    assert len(card["last4"]) == 4
    assert card["expMonth"] in range(1, 13)
    assert card["expYear"] >= 2026
    assert (card["currency"], len(card["fundingSources"])) == ("USD", 1)
    assert is_time(card["createdAt"])
    assert is_time(card["updatedAt"])
    for name in ("platformCardId", "processorRef", "issuerRef"):
        assert isinstance(card[name], str)


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("002", "DECLINED", "INSUFFICIENT_FUNDS"),
        ("003", "DECLINED", "CARD_PAUSED"),
        ("001", "AUTHORIZED", None),
        ("004", "AUTHORIZED", None),
        ("999", "AUTHORIZED", None),
        ("fee", "AUTHORIZED", None),
    ],
)
def test_the_end_of_the_merchants_name_decides(
    api: Api, end: str, status: str, reason: str | None
) -> None:
    card = api.active_card()

    decided = api.authorize(card["id"], 100, descriptor=f"COFFEE {end}")

    assert (decided["status"], decided.get("declineReason")) == (status, reason)
    assert decided["pullSummary"]["count"] == (status == "AUTHORIZED")


def test_a_card_transaction_has_the_fields_of_the_interface(api: Api) -> None:
    purchase = api.authorize(api.active_card()["id"], 100)

    summaries = {name for name in purchase if name.endswith("Summary")}
    assert fields("CardTransaction") - {"count", "totalAmount"} <= set(purchase)
    assert purchase["id"].startswith("CardTransaction:")
    for name in summaries:
        assert type(purchase[name]["count"]) is type(purchase[name]["totalAmount"]) is int


def test_what_a_refund_gives_back_is_rolled_up_too(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    card = own.active_card()
    purchase = own.authorize(card["id"], 1250)
    own.clear(card["id"], purchase["id"], 1250)

    given = {"cardTransactionId": purchase["id"], "amount": 1250}
    returned = ok(own.simulate(card["id"], "return", given))

    assert returned["refundSummary"] == {"count": 1, "totalAmount": 1250}
    assert (returned["pullSummary"]["count"], returned["settlementSummary"]["count"]) == (1, 1)
    assert arrival(receiver, "CARD_TRANSACTION.REFUNDED", id=purchase["id"])["data"] == returned


def test_a_clearing_of_zero_expires_an_authorization(api: Api) -> None:
    card = api.active_card(balance=1000)
    purchase = api.authorize(card["id"], 400)

    expired = api.clear(card["id"], purchase["id"], 0)

    assert (expired["status"], expired["settlementSummary"]["count"]) == ("VOIDED", 0)
    assert api.account(card["cardholderId"])["balance"]["amount"] == 1000


def test_in_production_no_number_can_be_shown(api: Api, api_config: ApiConfig) -> None:
    card = api.active_card(balance=0)

    with (
        server(replace(api_config, sandbox=False)) as root,
        Api(root, api.tenant) as production,
    ):
        sent_body = production.http.post(f"/cards/{card['id']}/reveal")

    refused(sent_body, 501, "NOT_IMPLEMENTED")


def test_a_webhook_comes_in_the_envelope_of_the_interface(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    card = own.active_card(balance=0)

    envelope = arrival(receiver, "CARD.STATE_CHANGE", id=card["id"])

    assert {"id", "type", "timestamp", "data"} <= set(envelope)
    kind, _, key = envelope["id"].partition(":")
    assert (kind, str(Id.parse(key))) == ("Webhook", key)
    assert is_time(envelope["timestamp"])


def test_the_number_of_a_card_is_in_no_answer_and_no_webhook(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    card = own.active_card()
    purchase = own.authorize(card["id"], 100)

    revealed = ok(own.http.post(f"/cards/{card['id']}/reveal"))
    page = httpx2.get(revealed["panEmbedUrl"], headers={"sec-fetch-dest": "iframe"})

    number = "".join(part[:4] for part in page.text.split("<span>")[1:5])
    assert number.isdecimal()
    assert number.endswith(card["last4"])
    arrival(receiver, "CARD_TRANSACTION.AUTHORIZED", id=purchase["id"])
    sent = [one.body.decode() for one in receiver.received]
    read = [own.get(path).text for path in ("/cards", f"/cards/{card['id']}", "/transactions")]
    for text in (*sent, *read, str(revealed)):
        assert number not in text
        assert "cvv" not in text.lower()


# --- identifiers -------------------------------------------------------------------------------


def test_identifiers_name_the_type_of_their_resource(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    card = own.active_card()
    ids = [
        card["id"],
        card["cardholderId"],
        card["fundingSources"][0],
        own.authorize(card["id"], 1)["id"],
        made(add(own, business(own)))["id"],
        made(own.post("/platform/external-accounts", body("USD_ACCOUNT")))["id"],
        arrival(receiver, "CARD.STATE_CHANGE", id=card["id"])["id"],
    ]

    kinds = {one.partition(":")[0] for one in ids}
    assert kinds == NAMES["Identifier shape"] - {"<ResourceType>:<uuid>"}
    assert all(str(Id.parse(one.partition(":")[2])) == one.partition(":")[2] for one in ids)


# --- external accounts -------------------------------------------------------------------------

PERSON: Final = {
    "beneficiaryType": "INDIVIDUAL",
    "fullName": "Ada Lovelace",
    "birthDate": "1990-12-10",
    "nationality": "US",
    "countryOfResidence": "US",
    "email": "ada@example.com",
    "phoneNumber": "+14155550123",
    "address": {
        "line1": "123 Main Street",
        "line2": "Unit 4",
        "city": "San Francisco",
        "state": "CA",
        "postalCode": "94105",
        "country": "US",
    },
}
USD: Final = {
    "accountType": "USD_ACCOUNT",
    "accountNumber": "12345678901",
    "routingNumber": "021000021",
    "bankAccountType": "CHECKING",
    "bankName": "Chase Bank",
    "beneficiary": PERSON,
}
AED: Final = {
    "accountType": "AED_ACCOUNT",
    "iban": "AE070331234567890123456",
    "beneficiary": PERSON,
}
SPARK: Final = {
    "accountType": "SPARK_WALLET",
    "address": "spark1pgss9z2gpzrnhztwy8ffs44x67angma38sqewwddhxlsk65t0c5d5576quly2j",
}


@pytest.mark.parametrize(
    ("currency", "account"),
    [
        ("USD", USD),
        ("AED", AED),
        ("AED", AED | {"swiftCode": "EBILAEAD"}),
        ("USDC", SPARK),
        ("USD", USD | {"beneficiary": {"beneficiaryType": "INDIVIDUAL", "fullName": "Ada"}}),
        ("USD", USD | {"beneficiary": {"beneficiaryType": "BUSINESS", "legalName": "Engines"}}),
    ],
)
def test_an_agent_registers_what_the_interface_shows(
    agent: AgentApi, currency: str, account: dict[str, Any]
) -> None:
    created = made(agent.post(EXTERNAL, {"currency": currency, "accountInfo": account}))

    shown = {name: created["accountInfo"][name] for name in account}
    assert shown == account
    assert created["customerId"] == ok(agent.get("/agents/me"))["customerId"]
    assert created["status"] in NAMES["External account status"]
    assert created["currency"] == currency
    assert created["defaultUmaDepositAccount"] is False
    assert "platformAccountId" not in created
    assert ok(agent.get(f"{EXTERNAL}/{created['id']}")) == created


def test_a_default_that_an_agent_sets_replaces_the_one_before(api: Api, agent: AgentApi) -> None:
    def register(number: str) -> dict[str, Any]:
        sent_body = {
            "currency": "USD",
            "platformAccountId": f"ext-{number}",
            "defaultUmaDepositAccount": True,
            "accountInfo": USD | {"accountNumber": number},
        }
        return made(agent.post(EXTERNAL, sent_body))

    first, second = register("1000000001"), register("1000000009")

    assert (first["defaultUmaDepositAccount"], first["platformAccountId"]) == (
        True,
        "ext-1000000001",
    )
    listed = ok(agent.get(EXTERNAL))["data"]
    assert {one["id"]: one["defaultUmaDepositAccount"] for one in listed} == {
        first["id"]: False,
        second["id"]: True,
    }
    of_platform = api.get(f"/customers/external-accounts/{first['id']}")
    assert ok(of_platform)["defaultUmaDepositAccount"] is False


@pytest.mark.parametrize("missing", ["currency", "accountInfo"])
def test_an_external_account_needs_currency_and_details(agent: AgentApi, missing: str) -> None:
    sent_body = body("USD_ACCOUNT")
    del sent_body[missing]

    [error] = refused(agent.post(EXTERNAL, sent_body), 400, "INVALID_INPUT")["details"]["errors"]

    assert (error["field"], error["message"]) == (missing, "is required")


def test_external_accounts_of_agents_are_for_agents_only(api: Api, root: str) -> None:
    sent_body = body("USD_ACCOUNT")

    refused(api.post(EXTERNAL, sent_body), 401, "UNAUTHORIZED")
    refused(httpx2.post(root + BASE_PATH + EXTERNAL, json=sent_body), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("number", "status", "name"),
    [
        ("1234567890", "MATCHED", "Ada Lovelace"),
        ("1234567103", "PARTIAL_MATCH", "A. Lovelace"),
        ("1234567102", "NOT_MATCHED", None),
        ("1234567106", "UNSUPPORTED", None),
        ("1234567107", "CHECKED_BY_RECEIVING_FI", None),
        ("1234567104", "PENDING", None),
    ],
)
def test_the_name_match_of_the_rail_is_returned(
    agent: AgentApi, number: str, status: str, name: str | None
) -> None:
    account = USD | {"accountNumber": number}

    created = made(agent.post(EXTERNAL, {"currency": "USD", "accountInfo": account}))

    assert created["beneficiaryVerificationStatus"] == status
    assert created.get("beneficiaryVerifiedData") == (None if name is None else {"fullName": name})


def account_types(model: str) -> set[str]:
    """Return which account types the served document lets pass in the `accountInfo` of a model."""
    return set(resolved(properties(model)["accountInfo"])["discriminator"]["mapping"])


def test_account_types_are_those_of_the_interface_and_no_others() -> None:
    listed = {
        name
        for name in NAMES["accountInfo variants"]
        if name == "LIGHTNING" or name.endswith(("_ACCOUNT", "_WALLET"))
    }

    created = account_types("ExternalAccountCreate")
    shown = account_types("ExternalAccount")

    assert len(created) == 45
    assert created == listed - {"LIGHTNING_ACCOUNT"}
    assert shown == listed


def test_statuses_of_an_external_account_are_those_of_the_interface() -> None:
    shown = properties("ExternalAccount")

    assert set(shown) == fields("ExternalAccount") - {"fullName"}
    assert set(resolved(shown["status"])["enum"]) == NAMES["External account status"]
    assert set(resolved(shown["beneficiaryVerificationStatus"])["enum"]) == {
        "MATCHED",
        "PARTIAL_MATCH",
        "NOT_MATCHED",
        "UNSUPPORTED",
        "CHECKED_BY_RECEIVING_FI",
        "PENDING",
    }


# --- beneficial owners -------------------------------------------------------------------------


def test_owners_are_listed_as_the_interface_shows_them(api: Api) -> None:
    customer = business(api)
    owner = made(add(api, customer, 51.5, roles=["UBO", "DIRECTOR"]))

    listed = ok(api.get("/beneficial-owners", customerId=customer["id"], limit=100))

    assert (listed["hasMore"], listed["totalCount"]) == (False, 1)
    assert "nextCursor" not in listed
    [shown] = listed["data"]
    assert set(shown) | set(shown["personalInfo"]) == fields("BeneficialOwner")
    assert (shown["id"], shown["customerId"]) == (owner["id"], customer["id"])
    assert (shown["roles"], shown["ownershipPercentage"]) == (["UBO", "DIRECTOR"], 51.5)
    assert shown["personalInfo"] == OWNER
    assert is_time(shown["createdAt"])
    assert is_time(shown["updatedAt"])


# --- who calls ---------------------------------------------------------------------------------


def test_a_token_is_the_user_and_its_secret_the_password(api: Api) -> None:
    pair = f"{api.tenant.client_id}:{api.tenant.client_secret}"
    header = {"Authorization": "Basic " + b64encode(pair.encode()).decode()}
    account = api.account(api.customer()["id"])

    read = httpx2.get(api.root + BASE_PATH + "/config", headers=header)
    fund = f"{api.root}{BASE_PATH}/sandbox/internal-accounts/{account['id']}/fund"
    moved = httpx2.post(fund, headers=header, json={"amount": 5})

    ok(read)
    assert ok(moved)["balance"]["amount"] == 5


def test_a_wallet_signature_does_not_authorize_a_change(api: Api) -> None:
    account = api.account(api.customer()["id"])
    signed = {"Service-Wallet-Signature": "sandbox-valid-signature", "Request-Id": str(uuid4())}

    sent_body = api.http.patch(f"/internal-accounts/{account['id']}", json={}, headers=signed)

    refused(sent_body, 501, "NOT_IMPLEMENTED")


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 409, 500])
def test_codes_of_the_interface_are_known_by_its_words_and_statuses(status: int) -> None:
    own_words = {"stablecoinProviderAccountId", "platformCustomerId"}

    listed = NAMES[f"{status} codes"] - own_words

    assert {code for code in listed if ERROR_SPECS[Code(code)].status == status} == listed
    assert listed <= set(document()["components"]["schemas"]["ErrorCode"]["enum"])


def test_an_error_is_the_envelope_of_the_interface_whatever_went_wrong(
    api: Api, agent: AgentApi, root: str
) -> None:
    missing = f"Card:{uuid4()}"
    made(agent.post(EXTERNAL, body("USD_ACCOUNT")))
    answers = [
        api.get("/beneficial-owners"),
        httpx2.get(root + BASE_PATH + "/config"),
        api.get(f"/cards/{missing}"),
        api.http.put("/cards"),
        agent.post(EXTERNAL, body("USD_ACCOUNT")),
        api.get("/stablecoins"),
    ]

    assert [answer.status_code for answer in answers] == [400, 401, 404, 405, 409, 501]
    for answer in answers:
        sent_body = answer.json()
        assert {"status", "code", "message"} <= set(sent_body) <= NAMES["Errors"]
        assert (sent_body["status"], answer.headers["content-type"]) == (
            answer.status_code,
            "application/json",
        )
        assert isinstance(sent_body["message"], str)
        assert isinstance(sent_body.get("details", {}), dict)
        assert sent_body["code"] in set(Code)


@contextmanager
def lost(owner_url: str, table: str) -> Iterator[None]:
    """Take the view of a table away for the length of a block."""
    views = schema_beside("cardledger")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(f"ALTER VIEW {views}.{table} RENAME TO lost".encode())
        try:
            yield
        finally:
            connection.execute(f"ALTER VIEW {views}.lost RENAME TO {table}".encode())


def test_an_internal_error_is_500_without_details(
    api: Api, agent: AgentApi, database_url: str
) -> None:
    customer = business(api)

    with lost(database_url, "beneficial_owners"):
        unlisted = api.get("/beneficial-owners", customerId=customer["id"])
    with lost(database_url, "external_accounts"):
        unregistered = agent.post(EXTERNAL, body("USD_ACCOUNT"))

    for answer in (unlisted, unregistered):
        assert set(refused(answer, 500, "INTERNAL_ERROR")) == {"status", "code", "message"}
    ok(api.get("/beneficial-owners", customerId=customer["id"]))
    made(agent.post(EXTERNAL, body("USD_ACCOUNT")))


def test_a_test_webhook_says_what_is_wrong_with_the_endpoint(own: Api) -> None:
    unset = own.http.post("/sandbox/webhooks/test")
    ok(own.patch("/config", {"webhookEndpoint": f"http://127.0.0.1:{closed_port()}/"}))
    unreachable = own.http.post("/sandbox/webhooks/test")

    refused(unset, 400, "WEBHOOK_ENDPOINT_NOT_SET")
    refused(unreachable, 400, "WEBHOOK_DELIVERY_ERROR")


# --- the version -------------------------------------------------------------------------------


def test_the_base_address_ends_with_the_version(api: Api) -> None:
    [listed] = document()["servers"]

    assert {"/" + name.strip("/") for name in NAMES["Versioning"] if name != "{base_url}"} == {
        BASE_PATH
    }
    assert listed["url"].endswith(BASE_PATH)
    ok(api.get("/config"))
    who = (api.tenant.client_id, api.tenant.client_secret)
    for version in ("", "/2025-10-14", "/2025-10-13/2025-10-13"):
        refused(httpx2.get(f"{api.root}{version}/config", auth=who), 404, "REFERENCE_NOT_FOUND")


def test_production_documents_the_same_paths_except_those_of_the_sandbox(
    api: Api, api_config: ApiConfig
) -> None:
    with server(replace(api_config, sandbox=False)) as root:
        [production, sandbox] = [
            ok(httpx2.get(f"{where}/openapi.json", timeout=TIMEOUT_S)) for where in (root, api.root)
        ]

    left_out = {path for path in sandbox["paths"] if path.startswith("/sandbox/")}
    assert left_out
    assert set(production["paths"]) == set(sandbox["paths"]) - left_out
    assert production["servers"] == sandbox["servers"]


def test_names_and_details_stay_as_they_were_sent(agent: AgentApi) -> None:
    sent_body = info("USD_ACCOUNT", accountNumber="00012345678", bankName="Bänk & Söhne")

    created = made(agent.post(EXTERNAL, {"currency": "USD", "accountInfo": sent_body}))

    assert {name: created["accountInfo"][name] for name in sent_body} == sent_body
