"""Operations that need a customer, code, file or quote of their own: a key makes each once.

The operations of `test_idempotency.py` need none. Here, what a repetition must not do is look-ups
of its own effect: the response is the first one, and a used code or quote is no error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api import contract
from tests.api.payments.support import bank, settled
from tests.api.support import Api, made, new_tenant, ok
from tests.api.test_agent_quotes import Buyer
from tests.api.test_challenges import unproven
from tests.api.test_idempotency import ELSEWHERE
from tests.api.test_quotes import Payer, payer_of, set_rate
from tests.api.test_sca import ADDRESS, CODE, EUROPEAN, Person
from tests.files import form

Json = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A POST that succeeds once; `arguments` are those of the client."""

    caller: Api
    path: str
    arguments: Json = field(default_factory=dict)

    def send(self, key: str) -> httpx2.Response:
        headers = {"Idempotency-Key": key}
        return self.caller.http.post(self.path, headers=headers, **self.arguments)

    @property
    def operation(self) -> str:
        """The path with the names of its parameters."""
        found = contract.path_of(BASE_PATH + self.path.partition("?")[0])
        assert found is not None, self.path
        return found


def sent(caller: Api, path: str, body: object = None) -> Sent:
    return Sent(caller, path, {} if body is None else {"json": body})


@pytest.fixture(scope="module")
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    with Api(root, new_tenant(api_config.database_url, currencies=("USD", "EUR", "USDC"))) as api:
        set_rate(api, "USD", "EUR", 1.25)
        yield api


def of_quotes(api: Api) -> Iterator[Sent]:
    payer = payer_of(api)
    body: Json = {
        "source": {"sourceType": "ACCOUNT", "accountId": payer.usd},
        "destination": {"destinationType": "ACCOUNT", "accountId": payer.eur},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 100,
    }
    funded = {"sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": payer.id}
    yield sent(api, "/quotes", body)
    yield sent(api, f"/quotes/{payer.quote(payer.eur)['id']}/execute")
    quote = made(api.post("/quotes", body | {"source": funded}))
    yield sent(api, "/sandbox/send", {"quoteId": quote["id"], "currencyCode": "USD"})
    rate = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": 1.25}
    yield sent(api, "/sandbox/exchange-rates", rate)
    european = _verified_payer(api)
    yield sent(api, f"/quotes/{_waiting(european)}/authorize", {"code": CODE})
    yield sent(api, f"/quotes/{_waiting(european)}/authorize/resend")


def _verified_payer(api: Api) -> Payer:
    fields: Json = {**EUROPEAN}
    payer = payer_of(api, **fields)
    for channel in ("email", "phone"):
        path = f"/customers/{payer.id}/verify-{channel}"
        assert api.post(path, None).status_code == 204
        ok(api.post(path + "/confirm", {"code": CODE}))
    return payer


def _waiting(payer: Payer) -> str:
    quote = payer.quote(payer.iban())
    assert quote["status"] == "PENDING_AUTHORIZATION"
    return str(quote["id"])


def of_agents(api: Api) -> Iterator[Sent]:
    buyer = Buyer(api)
    with buyer.api as agent:
        yield sent(agent, "/agents/me/quotes", buyer.body())
        yield sent(agent, f"/agents/me/quotes/{buyer.quote()['id']}/execute")


def of_transfers(api: Api) -> Iterator[Sent]:
    payer = payer_of(api)

    def out(ending: str) -> Json:
        return {
            "source": {"accountId": payer.usd},
            "destination": {"accountId": bank(api, ending, customerId=payer.id)},
            "amount": 100,
        }

    yield sent(api, "/transfer-out", out("891"))
    yield sent(
        api,
        "/transfer-in",
        {
            "source": {"accountId": bank(api, "892", customerId=payer.id)},
            "destination": {"accountId": payer.usd},
            "amount": 100,
        },
    )
    waits = made(api.post("/transfer-out", out("005")))
    yield sent(api, f"/transactions/{waits['id']}/cancel")
    done = settled(api, made(api.post("/transfer-out", out("893"))), "COMPLETED")
    yield sent(api, f"/transactions/{done['id']}/confirm")
    account = api.account(payer.id, "USDC")
    fee = {
        "internalAccountId": account["id"],
        "currency": "USDC",
        "cryptoNetwork": "BASE",
        "amount": 10_000_000,
        "destinationAddress": "0x52908400098527886E0F7030069857D2E4169EE7",
    }
    yield sent(api, "/crypto/estimate-withdrawal-fee", fee)


def of_customers(api: Api) -> Iterator[Sent]:
    for channel in ("email", "phone"):
        path = f"/customers/{Person(api).id}/verify-{channel}"
        yield sent(api, path)
        yield sent(api, path + "/confirm", {"code": CODE})  # Of the code that was sent just now.
    yield sent(api, f"/customers/{api.customer(fullName='Ada 003')['id']}/kyc-link")
    yield Sent(api, "/documents", form(api.customer()["id"]))
    yield Sent(api, "/customers/bulk/csv", {"files": {"file": ("a.csv", b"a")}})


def of_external_accounts(api: Api) -> Iterator[Sent]:
    for owner in ("customers", "platform"):
        fields = {"customerId": api.customer()["id"]} if owner == "customers" else {}
        account = made(api.post(f"/{owner}/external-accounts", unproven(**fields)))
        path = f"/{owner}/external-accounts/{account['id']}"
        yield sent(api, f"{path}/challenge")
        yield sent(api, f"{path}/verify", {"amounts": [12, 34]})
    path = f"/customers/external-accounts/{Person(api).verify().account()}"
    for way in ("trust", "untrust"):
        yield sent(api, f"{path}/{way}")
        yield sent(api, f"{path}/{way}/confirm", {"code": CODE})


def of_authentication(api: Api) -> Iterator[Sent]:
    person = Person(api).verify()

    def at(path: str, body: object) -> Sent:
        return sent(api, f"/sca/{path}?customerId={person.id}", body)

    yield at("factors", {"type": "TOTP"})
    secret = ok(person.post("factors", {"type": "TOTP"}))["secret"]
    yield at("factors/confirm", {"type": "TOTP", "secret": secret, "code": CODE})
    yield at("login/start", {"factor": "SMS_OTP"})
    login = {"factor": "SMS_OTP", "code": CODE, "endUserIpAddress": ADDRESS}
    yield at("login/complete", login)
    yield at("record-event", {"eventType": "FAILED_LOGIN_ATTEMPT"})
    yield at("factors/reset", {"factor": "SMS_OTP"})
    reset = made(person.post("factors/reset", {"factor": "SMS_OTP"}))["resetId"]
    mobile = {"countryCode": "+49", "number": "15100000000"}
    yield at(f"factors/reset/{reset}/complete", {"mobile": mobile})


AREAS = (
    of_quotes,
    of_agents,
    of_transfers,
    of_customers,
    of_external_accounts,
    of_authentication,
)


def body_of(answer: httpx2.Response) -> Any:  # noqa: ANN401 - JSON
    return answer.json() if answer.content else None


def sums(url: str) -> dict[str, int]:
    """Return how many rows there are of what is made at once."""
    tables = ("quotes", "documents", "authentication_challenges", "kyc_links", "transfers")
    with psycopg.connect(url) as connection:
        return {
            table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
            for table in tables
        }


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__)
def test_a_repetition_has_the_first_response_and_no_effect(
    own: Api,
    database_url: DatabaseUrl,
    area: Any,  # noqa: ANN401 - a function
) -> None:
    for request in area(own):
        key = str(uuid4())
        first = request.send(key)
        assert first.is_success, (request.path, first.text)
        before = sums(database_url)

        again = request.send(key)

        assert again.status_code == first.status_code, request.path
        assert again.headers["idempotent-replayed"] == "true", request.path
        was, now = body_of(first), body_of(again)
        if isinstance(now, dict):  # Without what is secret.
            assert now.items() <= was.items() if _is_flat(now) else now == was, request.path
        else:
            assert now == was, request.path
        assert sums(database_url) == before, request.path


def _is_flat(body: Json) -> bool:
    return not any(isinstance(value, dict | list) for value in body.values())


def test_every_operation_that_is_left_to_this_module_is_tried(own: Api) -> None:
    tried: set[str] = set()
    for area in AREAS:
        for request in area(own):
            tried.add(request.operation)
            request.send(str(uuid4()))  # The next one may need its effect.

    assert tried == ELSEWHERE
