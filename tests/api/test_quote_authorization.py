"""Quotes of customers who have to authenticate: authorized with a code before they are executed."""

from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from tests.api.support import Api, new_tenant, ok, refused
from tests.api.test_quotes import Payer, payer_of, set_rate
from tests.api.test_sca import CODE, EUROPEAN, WRONG
from tests.passkeys import ORIGIN, Passkey

Json = dict[str, Any]

ADA: Json = {**EUROPEAN}
"""Fields of a customer who has to authenticate."""


@pytest.fixture(scope="module")
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform with USD and EUR, at 1.25 dollars for a euro without a spread."""
    with Api(root, new_tenant(api_config.database_url, currencies=("USD", "EUR"))) as client:
        set_rate(client, "USD", "EUR", 1.25)
        yield client


@pytest.fixture
def payer(own: Api) -> Payer:
    """A customer of the European Economic Area with 500.00 USD and verified contacts."""
    made = payer_of(own, **ADA)
    for channel in ("email", "phone"):
        path = f"/customers/{made.id}/verify-{channel}"
        assert own.post(path, None).status_code == 204
        ok(own.post(path + "/confirm", {"code": CODE}))
    return made


def authorize(payer: Payer, quote: Json, code: str = CODE, **fields: object) -> httpx2.Response:
    return payer.api.post(f"/quotes/{quote['id']}/authorize", {"code": code, **fields})


def test_a_payment_to_an_untrusted_account_waits_for_the_code_of_its_customer(
    payer: Payer,
) -> None:
    quote = payer.quote(payer.iban())

    assert quote["status"] == "PENDING_AUTHORIZATION"
    assert quote["scaChallenge"]["factor"] == "SMS_OTP"
    assert quote["scaChallenge"]["purpose"] == "PAYOUT"
    assert payer.get(quote) == quote
    error = refused(payer.execute(quote), 409, "CONFLICT")
    assert error["details"] == {"reason": "PENDING_AUTHORIZATION"}

    nothing = payer.api.post(f"/quotes/{quote['id']}/authorize", {})
    wrong = authorize(payer, quote, WRONG)
    right = ok(authorize(payer, quote, challengeId=quote["scaChallenge"]["id"]))

    refused(nothing, 400, "INVALID_INPUT")
    refused(wrong, 400, "INVALID_INPUT")
    assert right["status"] == "PENDING"
    assert "scaChallenge" not in right
    ok(payer.execute(quote))
    payer.ends(quote, "COMPLETED")
    assert payer.balance(payer.usd) == 40_000


def test_a_passkey_authorizes_the_quote_that_it_was_asked_for_and_no_other(
    payer: Payer, database_url: str
) -> None:
    path, passkey = f"/sca/factors{{}}?customerId={payer.id}", Passkey()
    options = ok(payer.api.post(path.format(""), {"type": "PASSKEY"}))["options"]
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": passkey.create(options)}
    ok(payer.api.post(path.format("/confirm"), proof))
    bank = payer.iban()
    other, quote = payer.quote(bank), payer.quote(bank)

    def answer(to: Json, by: Json) -> httpx2.Response:
        used = passkey.use(by["scaChallenge"]["passkeyAssertionOptions"])
        body = {"passkeyAssertion": used, "origin": ORIGIN}
        return payer.api.post(f"/quotes/{to['id']}/authorize", body)

    refused(answer(other, quote), 400, "INVALID_INPUT")
    assert ok(answer(quote, quote))["status"] == "PENDING"
    assert payer.get(other)["status"] == "PENDING_AUTHORIZATION"
    with psycopg.connect(database_url) as connection:
        query = (
            "SELECT subject FROM authentication_challenges"
            " WHERE ended_at IS NULL AND subject = ANY(%s)"
        )
        still_open = connection.execute(query, [[quote["id"], other["id"]]]).fetchall()
    assert still_open == [(other["id"],)], "the code beside the passkey is void, too"


def test_an_authorized_quote_is_executed_if_that_was_wanted_at_once(payer: Payer) -> None:
    quote = payer.quote(payer.iban(), immediatelyExecute=True)

    assert quote["status"] == "PENDING_AUTHORIZATION"
    assert payer.balance(payer.usd) == 50_000
    ok(authorize(payer, quote))
    payer.ends(quote, "COMPLETED")


def test_a_trusted_account_and_an_own_one_need_no_code(payer: Payer) -> None:
    bank = payer.iban()
    path = f"/customers/external-accounts/{bank}/trust"
    ok(payer.api.post(path, None))
    ok(payer.api.post(path + "/confirm", {"code": CODE}))

    assert payer.quote(bank)["status"] == "PENDING"
    assert payer.quote(payer.eur)["status"] == "PENDING"


def test_a_code_is_of_one_quote(payer: Payer) -> None:
    first, second = payer.quote(payer.iban()), payer.quote(payer.iban())

    other = authorize(payer, second, challengeId=first["scaChallenge"]["id"])

    refused(other, 400, "INVALID_INPUT")
    assert payer.get(second)["status"] == "PENDING_AUTHORIZATION"


def test_another_code_is_sent_on_request(payer: Payer) -> None:
    quote = payer.quote(payer.iban())
    path = f"/quotes/{quote['id']}/authorize/resend"

    assert payer.api.post(path, None).status_code == 204
    again = payer.get(quote)["scaChallenge"]

    assert again["id"] != quote["scaChallenge"]["id"]
    ok(authorize(payer, quote, challengeId=again["id"]))
    refused(payer.api.post(path, None), 409, "CONFLICT")


def test_payment_instructions_are_withheld_until_the_customer_has_authorized_them(
    payer: Payer,
) -> None:
    source = {"sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": payer.id}

    quote = ok(payer.asks(payer.iban(), source=source), 202)
    sent = payer.api.post("/sandbox/send", {"quoteId": quote["id"], "currencyCode": "USD"})
    authorized = ok(authorize(payer, quote))

    assert "paymentInstructions" not in quote
    refused(sent, 409, "CONFLICT")
    assert authorized["paymentInstructions"]


def test_without_a_verified_phone_nothing_can_be_authorized(own: Api) -> None:
    payer = payer_of(own, **ADA)

    refused(payer.asks(payer.iban()), 409, "CONFLICT")


def test_a_code_that_is_guessed_locks_the_customer_and_no_other(payer: Payer, own: Api) -> None:
    quote = payer.quote(payer.iban())

    answers = [authorize(payer, quote, WRONG) for _ in range(7)]

    assert [answer.status_code for answer in answers[-2:]] == [423, 423]
    refused(authorize(payer, quote), 423, "ACCOUNT_LOCKED")
    other = payer_of(own)
    assert other.quote(other.eur)["status"] == "PENDING"


def test_a_quote_that_needs_no_authorization_is_a_conflict(own: Api) -> None:
    payer = payer_of(own)
    quote = payer.quote(payer.eur)

    for answer in (
        authorize(payer, quote),
        own.post(f"/quotes/{quote['id']}/authorize/resend", None),
    ):
        error = refused(answer, 409, "CONFLICT")
        assert error["details"] == {"reason": "NO_AUTHORIZATION_DUE"}
