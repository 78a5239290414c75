"""Every code that is returned today can be reproduced, as docs/errors.md describes."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.error_specs import ERROR_SPECS
from cardledger.schema.wire.errors import Code
from tests.api.payments.support import OUT, payer
from tests.api.support import (
    Api,
    authorization,
    closed_port,
    made,
    new_tenant,
    ok,
    refused,
    server,
)
from tests.api.test_quotes import payer_of, set_rate
from tests.api.test_transfers import scene_of
from tests.files import PDF, form, png
from tests.passkeys import ORIGIN, Passkey

API = Path(__file__).parents[2] / "api"
Provoke = Callable[[Api], httpx2.Response]

# Need a database that is broken, or a server with a limit: see tests/api/test_database.py,
# test_health.py and test_rate_limits.py.
ELSEWHERE = {
    Code.INTERNAL_ERROR,
    Code.SERVICE_UNAVAILABLE,
    Code.RATE_LIMITED,
    Code.INVITATIONS_NOT_CONFIGURED,  # Outside a sandbox: test_invitations.py.
}


def individual(api: Api, **fields: object) -> httpx2.Response:
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    return api.post("/customers", person | fields)


def card_of(api: Api, customer_id: str, account_id: str) -> httpx2.Response:
    body = {"cardholderId": customer_id, "form": "VIRTUAL", "fundingSources": [account_id]}
    return api.post("/cards", body)


def invites(api: Api) -> str:
    inviter = api.customer()["umaAddress"]
    return str(made(api.post("/invitations", {"inviterUma": inviter}))["code"])


def claims(api: Api, code: str) -> httpx2.Response:
    return api.post(f"/invitations/{code}/claim", {"inviteeUma": api.customer()["umaAddress"]})


def claimed_twice(api: Api) -> httpx2.Response:
    code = invites(api)
    ok(claims(api, code))
    return claims(api, code)


def cancelled_invitation(api: Api) -> httpx2.Response:
    code = invites(api)
    ok(api.http.post(f"/invitations/{code}/cancel"))
    return claims(api, code)


def unknown_iban(api: Api) -> httpx2.Response:
    owner = {"beneficiaryType": "INDIVIDUAL", "fullName": "Ada", "countryOfResidence": "DE"}
    iban = "DE89370400440532013105"
    info = {"accountType": "EUR_ACCOUNT", "iban": iban, "beneficiary": owner}
    return api.post("/platform/external-accounts", {"currency": "EUR", "accountInfo": info})


def too_much(api: Api) -> httpx2.Response:
    card = api.active_card(0)
    ok(api.simulate(card["id"], "financial_credit_authorization", authorization(2**63 - 1)))
    return api.post(f"/sandbox/internal-accounts/{card['fundingSources'][0]}/fund", {"amount": 1})


def other_currency(api: Api) -> httpx2.Response:
    unknown = authorization() | {"currency": {"code": "ZZZ"}}
    return api.simulate(api.active_card(0)["id"], "authorization", unknown)


def not_approved(api: Api) -> httpx2.Response:
    customer = api.customer(fullName="Ada 001")
    return card_of(api, customer["id"], api.account(customer["id"])["id"])


def not_mine(api: Api) -> httpx2.Response:
    customer, other = api.customer(), api.customer()
    return card_of(api, customer["id"], api.account(other["id"])["id"])


def processing(api: Api) -> httpx2.Response:
    customer = api.customer()
    account = api.account(customer["id"])
    card = api.card(customer["id"], [account["id"]], platformCardId=f"{new_id()}-001")
    return api.patch(f"/cards/{card['id']}", {"state": "FROZEN"})


def closed(api: Api, change: dict[str, object]) -> httpx2.Response:
    card = api.active_card(0)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))
    return api.patch(f"/cards/{card['id']}", change)


def deleted(api: Api) -> httpx2.Response:
    customer = api.customer()
    ok(api.delete(f"/customers/{customer['id']}"))
    return api.delete(f"/customers/{customer['id']}")


def twice(api: Api, field: str, value: str) -> httpx2.Response:
    individual(api, **{field: value})
    return individual(api, **{field: value})


def only_view(api: Api) -> httpx2.Response:
    made = ok(api.post("/tokens", {"name": "looks", "permissions": ["VIEW"]}), 201)
    who = (made["clientId"], made["clientSecret"])
    return httpx2.post(api.root + BASE_PATH + "/customers", auth=who, json={})


def unreachable_person(api: Api) -> httpx2.Response:
    return individual(api, region="DE")


def without_amount(api: Api) -> httpx2.Response:
    scene = scene_of(api)
    wish = {name: value for name, value in scene.body().items() if name != "amount"}
    with scene.agent:
        return scene.agent.post("/agents/me/transfer-out", wish)


def to_itself(api: Api) -> httpx2.Response:
    scene = scene_of(api)
    wish = scene.body() | {"destination": {"accountId": scene.source}}
    with scene.agent:
        return scene.agent.post("/agents/me/transfer-out", wish)


def without_endpoint(api: Api) -> httpx2.Response:
    ok(api.patch("/config", {"webhookEndpoint": None}))
    return api.post("/sandbox/webhooks/test", None)


def to_a_closed_port(api: Api) -> httpx2.Response:
    ok(api.patch("/config", {"webhookEndpoint": f"http://127.0.0.1:{closed_port()}/"}))
    return api.post("/sandbox/webhooks/test", None)


def locked(api: Api) -> httpx2.Response:
    contacts = {"region": "DE", "email": "ada@example.com", "phoneNumber": "+4915112345678"}
    customer_id = ok(individual(api, **contacts), 201)["id"]
    wrong = {"eventType": "FAILED_LOGIN_ATTEMPT"}
    path = f"/sca/record-event?customerId={customer_id}"
    for _ in range(5):
        ok(api.post(path, wrong))
    return api.post(path, wrong)


def second_passkey(api: Api) -> httpx2.Response:
    contacts = {"region": "DE", "email": "ada@example.com", "phoneNumber": "+4915112345678"}
    customer_id = ok(individual(api, **contacts), 201)["id"]
    path = f"/sca/factors{{}}?customerId={customer_id}"
    options = ok(api.post(path.format(""), {"type": "PASSKEY"}))["options"]
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": Passkey().create(options)}
    ok(api.post(path.format("/confirm"), proof))
    return api.post(path.format(""), {"type": "PASSKEY"})


def past_its_rail(api: Api) -> httpx2.Response:
    ada = payer(api)
    paid = ada.pays(ada.bank())
    return api.post(f"/transactions/{paid['id']}/cancel", None)


def unproved(api: Api) -> httpx2.Response:
    ada = payer(api)
    return api.post(OUT, ada.out(ada.bank("108")))


def unknown_payer(api: Api) -> httpx2.Response:
    ada = payer(api, fullName="Ada 001")
    return api.post(OUT, ada.out(ada.bank()))


def not_authenticated(api: Api) -> httpx2.Response:
    contacts: dict[str, Any] = {
        "region": "DE",
        "email": "ada@example.com",
        "phoneNumber": "+4915112345678",
    }
    ada = payer(api, **contacts)
    return api.post(OUT, ada.out(ada.bank()))


def look_up(address: str) -> Provoke:
    return lambda api: api.get(f"/receiver/uma/{address}")


def quote_to(address: str) -> Provoke:
    def ask(api: Api) -> httpx2.Response:
        lookup = ok(api.get(f"/receiver/uma/{address}"))["lookupId"]
        where = {"destinationType": "UMA_ADDRESS", "umaAddress": address}
        return payer_of(api).asks(where, lookupId=lookup)

    return ask


def unknown_lookup(api: Api) -> httpx2.Response:
    address = "$success.usd@sandbox.uma.money"
    where = {"destinationType": "UMA_ADDRESS", "umaAddress": address}
    return payer_of(api).asks(where, lookupId=f"Lookup:{new_id()}")


def without_rate(api: Api) -> httpx2.Response:
    payer = payer_of(api)
    set_rate(api, "USD", "EUR", 1e-9)
    set_rate(api, "USD", "USDC", 1e9)
    source = {"sourceType": "ACCOUNT", "accountId": payer.eur}
    answer = payer.asks(str(api.account(payer.id, "USDC")["id"]), source=source)
    set_rate(api, "USD", "EUR", 1.25)
    return answer


def not_waiting(api: Api) -> httpx2.Response:
    bought = api.authorize(api.active_card()["id"], 100)
    return api.post(f"/transactions/{bought['id']}/approve", None)


def upload(api: Api, content: bytes = PDF, **fields: str) -> httpx2.Response:
    return api.http.post("/documents", **form(api.customer()["id"], content, **fields))


PROVOKE: dict[Code, Provoke] = {
    Code.INVALID_INPUT: lambda api: api.get("/cards", limit=0),
    Code.MISSING_MANDATORY_USER_INFO: unreachable_person,
    Code.INVALID_UMA_ADDRESS: lambda api: individual(api, umaAddress="ada"),
    Code.AMOUNT_OUT_OF_RANGE: too_much,
    Code.INVALID_CURRENCY: other_currency,
    Code.INVALID_BANK_ACCOUNT: unknown_iban,
    Code.SELF_PAYMENT: to_itself,
    Code.INVALID_AMOUNT: without_amount,
    Code.WEBHOOK_ENDPOINT_NOT_SET: without_endpoint,
    Code.WEBHOOK_DELIVERY_ERROR: to_a_closed_port,
    Code.LOW_QUALITY: lambda api: upload(api, png(100, 100)),
    Code.DATA_MISMATCH: lambda api: upload(api, documentNumber="X202"),
    Code.EXPIRED: lambda api: upload(api, documentNumber="X203"),
    Code.SUSPECTED_FRAUD: lambda api: upload(api, documentNumber="X204"),
    Code.UNSUITABLE_DOCUMENT: lambda api: upload(api, b"MZ" + bytes(100)),
    Code.INCOMPLETE: lambda api: upload(api, PDF[:100]),
    Code.CARDHOLDER_KYC_NOT_APPROVED: not_approved,
    Code.FUNDING_SOURCE_INELIGIBLE: not_mine,
    Code.UNAUTHORIZED: lambda api: httpx2.get(api.root + BASE_PATH + "/config"),
    Code.FORBIDDEN: only_view,
    Code.TRANSACTION_NOT_FOUND: lambda api: api.get(f"/transactions/CardTransaction:{new_id()}"),
    Code.USER_NOT_FOUND: lambda api: api.get(f"/customers/Customer:{new_id()}"),
    Code.QUOTE_REQUEST_FAILED: without_rate,
    Code.MISSING_REQUIRED_UMA_PARAMETERS: quote_to("$asks.usd@sandbox.uma.money"),
    Code.COUNTERPARTY_NOT_ALLOWED: look_up("$ada@blocked.example"),
    Code.QUOTE_NOT_FOUND: lambda api: api.get(f"/quotes/Quote:{new_id()}"),
    Code.LOOKUP_REQUEST_NOT_FOUND: unknown_lookup,
    Code.UMA_NOT_FOUND: look_up("$ada@sandbox.uma.money"),
    Code.UNSUPPORTED_UMA_VERSION: look_up("$fail.version.usd@sandbox.uma.money"),
    Code.PAYREQ_REQUEST_FAILED: quote_to("$fail.payreq.usd@sandbox.uma.money"),
    Code.COUNTERPARTY_PUBKEY_FETCH_ERROR: look_up("$fail.keys.usd@sandbox.uma.money"),
    Code.NO_COMPATIBLE_UMA_VERSION: look_up("$fail.negotiation.usd@sandbox.uma.money"),
    Code.LNURLP_REQUEST_FAILED: look_up("$fail.lookup.usd@sandbox.uma.money"),
    Code.INVITATION_NOT_FOUND: lambda api: api.get(f"/invitations/{'0' * 16}"),
    Code.INVITATION_ALREADY_CLAIMED: claimed_twice,
    Code.INVITATION_CANCELLED: cancelled_invitation,
    Code.TOKEN_NOT_FOUND: lambda api: api.get(f"/tokens/Token:{new_id()}"),
    Code.BULK_UPLOAD_JOB_NOT_FOUND: lambda api: api.get(f"/customers/bulk/jobs/Job:{new_id()}"),
    Code.REFERENCE_NOT_FOUND: lambda api: api.get(f"/cards/Card:{new_id()}"),
    Code.METHOD_NOT_ALLOWED: lambda api: api.http.put("/customers"),
    Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL: not_waiting,
    Code.TRANSACTION_NOT_CANCELLABLE: past_its_rail,
    Code.EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED: unproved,
    Code.USER_NOT_READY: unknown_payer,
    Code.SCA_SESSION_REQUIRED: not_authenticated,
    Code.UMA_ADDRESS_EXISTS: lambda api: twice(api, "umaAddress", f"$ada@{api.uma_domain()}"),
    Code.CONFLICT: lambda api: twice(api, "platformCustomerId", "one-of-a-kind"),
    Code.INVALID_STATE_TRANSITION: processing,
    Code.CARD_ALREADY_CLOSED: lambda api: closed(api, {"state": "CLOSED"}),
    Code.CARD_NOT_MUTABLE: lambda api: closed(api, {"maxSpendPerTransaction": 1}),
    Code.CUSTOMER_DELETED: deleted,
    Code.PASSKEY_ALREADY_ENROLLED: second_passkey,
    Code.ACCOUNT_LOCKED: locked,
    Code.NOT_IMPLEMENTED: lambda api: api.get("/stablecoins"),
}


def test_every_returned_code_has_a_reproduction() -> None:
    built = {code for code, spec in ERROR_SPECS.items() if spec.is_returned}

    assert set(ERROR_SPECS) == set(Code)
    assert built - ELSEWHERE <= set(PROVOKE)
    assert set(PROVOKE) <= built


@pytest.mark.parametrize("code", PROVOKE)
def test_a_code_can_be_reproduced(api: Api, code: Code) -> None:
    refused(PROVOKE[code](api), ERROR_SPECS[code].status, code)


def test_the_codes_that_are_raised_are_those_marked_as_returned() -> None:
    # Not the document, which names codes that all routes share.
    document = {API / "openapi" / "document.py", API / "openapi" / "errors.py"}
    sources = set(API.rglob("*.py")) - document
    raised = {
        Code(name)
        for source in sources
        for name in re.findall(r"\bCode\.([A-Z_]+)", source.read_text(encoding="utf-8"))
    }

    built = {code for code, spec in ERROR_SPECS.items() if spec.is_returned}
    assert raised <= built
    assert built <= raised


@pytest.fixture(scope="module")
def broken(api_config: ApiConfig, database_url: str) -> Iterator[Api]:
    """The interface of a server whose database is unavailable."""
    away = f"postgresql://unknown@127.0.0.1:{closed_port()}/nothing"
    config = replace(api_config, database_url=away)
    with server(config) as url, Api(url, new_tenant(database_url)) as client:
        yield client


def test_without_a_database_every_request_is_503_with_retry_after(broken: Api) -> None:
    answer = broken.get("/config")

    refused(answer, 503, "SERVICE_UNAVAILABLE")
    assert int(answer.headers["retry-after"]) >= 1
