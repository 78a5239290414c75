"""Quotes: promised amounts, executed once, followed to their end; and what is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.exchange.rates import window_start
from cardledger.ledger.storage.ids import derived_id, new_id
from cardledger.schema.ids import Id
from tests.api.support import Api, at_once, made, new_tenant, ok, refused, server, webhooks
from tests.external_accounts import body as external_account
from tests.waiting import eventually

Json = dict[str, Any]

AT_ONCE = 50
MAX_QUOTED = 9_000_000_000_000_000


@pytest.fixture(scope="module")
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform with USD and EUR, at 1.25 dollars for a euro without a spread."""
    tenant = new_tenant(api_config.database_url, currencies=("USD", "EUR", "JPY"))
    with Api(root, tenant) as client:
        set_rate(client, "USD", "EUR", 1.25)
        set_rate(client, "USD", "JPY", 0.625)
        yield client


def set_rate(api: Api, source: str, destination: str, rate: float) -> None:
    body = {"sourceCurrency": source, "destinationCurrency": destination, "exchangeRate": rate}
    ok(api.post("/sandbox/exchange-rates", body))


@dataclass
class Payer:
    """A customer with 500.00 USD on its account."""

    api: Api
    id: str
    usd: str
    eur: str

    def balance(self, account_id: str) -> int:
        listed = ok(self.api.get("/customers/internal-accounts", customerId=self.id))["data"]
        [balance] = [one["balance"]["amount"] for one in listed if one["id"] == account_id]
        return int(balance)

    def iban(self, ending: str = "000") -> str:
        """Return a new external account in EUR whose IBAN has an ending."""
        wish = external_account("EUR_ACCOUNT", customerId=self.id)
        wish["accountInfo"]["iban"] = iban(f"{uuid4().int % 10**15:015d}{ending}")
        return str(made(self.api.post("/customers/external-accounts", wish))["id"])

    def asks(self, destination: str | Json, /, **fields: object) -> httpx2.Response:
        """Request a quote of 100.00 USD, unless `fields` say otherwise."""
        where = (
            {"destinationType": "ACCOUNT", "accountId": destination}
            if isinstance(destination, str)
            else destination
        )
        body: Json = {
            "source": {"sourceType": "ACCOUNT", "accountId": self.usd},
            "destination": where,
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 10_000,
        }
        return self.api.post("/quotes", body | fields)

    def quote(self, destination: str | Json, /, **fields: object) -> Json:
        return made(self.asks(destination, **fields))

    def execute(self, quote: Json) -> httpx2.Response:
        return self.api.http.post(f"/quotes/{quote['id']}/execute")

    def get(self, quote: Json) -> Json:
        return ok(self.api.get(f"/quotes/{quote['id']}"))

    def ends(self, quote: Json, status: str) -> Json:
        """Wait until the quote has a status."""

        def look() -> Json | None:
            found = self.get(quote)
            return found if found["status"] == status else None

        return eventually(look)

    def transaction(self, quote: Json) -> Json:
        return ok(self.api.get(f"/transactions/{quote['transactionId']}"))


def iban(number: str) -> str:
    """Return a German IBAN with its check digits (ISO 13616)."""
    return f"DE{98 - int(number + '131400') % 97:02d}{number}"


def payer_of(api: Api, balance: int = 50_000, **fields: object) -> Payer:
    customer = api.customer(**fields)
    usd, eur = (str(api.account(customer["id"], code)["id"]) for code in ("USD", "EUR"))
    if balance:
        api.fund(usd, balance)
    return Payer(api, str(customer["id"]), usd, eur)


@pytest.fixture
def payer(own: Api) -> Payer:
    return payer_of(own)


# --- what is promised, and kept ------------------------------------------------------------------


def test_a_quote_promises_both_amounts_and_debits_nothing(payer: Payer) -> None:
    before = datetime.now(UTC)

    quote = payer.quote(payer.eur, description="Rent")

    assert quote["status"] == "PENDING"
    assert (quote["totalSendingAmount"], quote["totalReceivingAmount"]) == (10_000, 8_000)
    assert quote["exchangeRate"] == 1.25
    assert quote["feesIncluded"] == quote["platformFeesIncluded"] == 0
    assert quote["sendingCurrency"]["code"] == "USD"
    assert quote["receivingCurrency"]["code"] == "EUR"
    assert quote["source"] == {
        "sourceType": "ACCOUNT",
        "accountId": payer.usd,
        "customerId": payer.id,
    }
    assert quote["destination"] == {"destinationType": "ACCOUNT", "accountId": payer.eur}
    lasts = datetime.fromisoformat(quote["expiresAt"]) - datetime.fromisoformat(quote["createdAt"])
    assert lasts == timedelta(minutes=5)
    assert datetime.fromisoformat(quote["createdAt"]) >= before - timedelta(seconds=1)
    assert payer.get(quote) == quote
    assert payer.balance(payer.usd) == 50_000
    promised = payer.transaction(quote)
    assert (promised["id"], promised["status"]) == (quote["transactionId"], "PENDING")
    assert promised["quoteId"] == quote["id"]
    assert promised["description"] == "Rent"


def test_an_executed_quote_converts_between_two_accounts(payer: Payer) -> None:
    quote = payer.quote(payer.eur)

    done = ok(payer.execute(quote))

    assert done["status"] == "COMPLETED"
    assert payer.balance(payer.usd) == 40_000
    assert payer.balance(payer.eur) == 8_000
    paid = payer.transaction(quote)
    assert paid["sentAmount"]["amount"] == 10_000
    assert paid["receivedAmount"] == {
        "amount": 8_000,
        "currency": quote["receivingCurrency"],
    }
    assert paid["exchangeRate"] == 1.25


def test_an_executed_quote_pays_out_in_another_currency(payer: Payer, database_url: str) -> None:
    bank = payer.iban()
    quote = payer.quote(bank, remittanceInformation="Invoice 7", purposeOfPayment="GIFT")

    ok(payer.execute(quote))
    payer.ends(quote, "COMPLETED")

    assert payer.balance(payer.usd) == 40_000
    assert quote["destination"]["paymentRail"] == "SEPA_INSTANT"
    paid = payer.transaction(quote)
    assert paid["destination"] == {
        "destinationType": "ACCOUNT",
        "accountId": bank,
        "currency": "EUR",
    }
    assert paid["remittanceInformation"] == "Invoice 7"
    sent = [kind for kind, _ in webhooks(database_url, quote["transactionId"], 3)]
    assert sent == [
        "OUTGOING_PAYMENT.PENDING",
        "OUTGOING_PAYMENT.PROCESSING",
        "OUTGOING_PAYMENT.COMPLETED",
    ]


def test_the_amount_received_can_be_locked(payer: Payer) -> None:
    quote = payer.quote(payer.eur, lockedCurrencySide="RECEIVING", lockedCurrencyAmount=8_001)

    assert (quote["totalSendingAmount"], quote["totalReceivingAmount"]) == (10_002, 8_001)
    ok(payer.execute(quote))
    assert payer.balance(payer.eur) == 8_001
    assert payer.balance(payer.usd) == 50_000 - 10_002


def test_currencies_without_decimals_are_quoted_in_their_own_units(payer: Payer) -> None:
    yen = str(payer.api.account(payer.id, "JPY")["id"])

    quote = payer.quote(yen)

    assert (quote["totalSendingAmount"], quote["totalReceivingAmount"]) == (10_000, 16_000)
    assert quote["receivingCurrency"]["decimals"] == 0


def test_a_quote_can_be_executed_at_once(payer: Payer) -> None:
    done = payer.quote(payer.eur, immediatelyExecute=True)

    assert done["status"] == "COMPLETED"
    assert payer.balance(payer.eur) == 8_000


def test_the_platforms_fee_is_part_of_what_is_sent_and_arrives_on_its_account(own: Api) -> None:
    payer = payer_of(own)

    quote = payer.quote(payer.eur, **fee(50, bps=100))
    ok(payer.execute(quote))

    # 1 % of 99.50 USD is 0.995 USD, rounded up to 1.00.
    assert quote["feesIncluded"] == quote["platformFeesIncluded"] == 150
    assert quote["totalReceivingAmount"] == 9_850 * 100 // 125
    assert quote["rateDetails"]["gridApiFixedFee"] == 50
    assert quote["rateDetails"]["gridApiVariableFeeAmount"] == 100
    assert payer.balance(payer.eur) == quote["totalReceivingAmount"]
    eventually(lambda: platform_balance(own) >= 150)


def platform_balance(api: Api) -> int:
    listed = ok(api.get("/platform/internal-accounts"))["data"]
    return sum(
        one["balance"]["amount"] for one in listed if one["balance"]["currency"]["code"] == "USD"
    )


def test_a_quote_with_a_key_is_executed_once(payer: Payer) -> None:
    quote = payer.quote(payer.eur)
    key = {"Idempotency-Key": str(uuid4())}
    path = f"/quotes/{quote['id']}/execute"

    first = payer.api.http.post(path, headers=key)
    again = payer.api.http.post(path, headers=key)

    assert ok(first)["status"] == ok(again)["status"] == "PROCESSING"
    assert again.headers["idempotent-replayed"] == "true"
    payer.ends(quote, "COMPLETED")
    assert payer.balance(payer.eur) == 8_000


def test_a_quote_that_is_executed_from_fifty_connections_at_once_is_executed_once(
    payer: Payer,
) -> None:
    quote = payer.quote(payer.eur)

    answers = at_once(AT_ONCE, lambda: payer.execute(quote))

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * (AT_ONCE - 1)
    for answer in answers:
        if answer.status_code == 409:
            assert refused(answer, 409, "CONFLICT")["details"] == {
                "reason": "QUOTE_ALREADY_EXECUTED"
            }
    payer.ends(quote, "COMPLETED")
    assert payer.balance(payer.usd) == 40_000
    assert payer.balance(payer.eur) == 8_000


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("002", "QUOTE_EXECUTION_FAILED"),
        ("004", "COUNTERPARTY_POST_TX_FAILED"),
        ("005", "PAYOUT_RETURNED"),
        ("006", "CANCELLED"),
    ],
)
def test_a_quote_that_fails_is_refunded_in_the_currency_that_was_sent(
    payer: Payer, ending: str, reason: str
) -> None:
    quote = payer.quote(payer.iban(ending))

    ok(payer.execute(quote))
    payer.ends(quote, "FAILED")

    eventually(lambda: payer.balance(payer.usd) == 50_000)
    failed = payer.transaction(quote)
    assert failed["failureReason"] == reason
    assert failed["refund"]["status"] == "COMPLETED"


def test_a_refund_that_fails_gives_nothing_back(payer: Payer) -> None:
    quote = payer.quote(payer.iban("007"))

    ok(payer.execute(quote))
    payer.ends(quote, "FAILED")

    eventually(lambda: payer.transaction(quote)["refund"]["status"] == "FAILED")
    assert payer.balance(payer.usd) == 40_000


# --- expiry --------------------------------------------------------------------------------------


@pytest.fixture
def later(api_config: ApiConfig, own: Api) -> Iterator[Api]:
    """The same platform at a server whose clock is five minutes ahead."""
    ahead = timedelta(minutes=5)
    with (
        server(api_config, clock=lambda: datetime.now(UTC) + ahead) as url,
        Api(url, own.tenant) as client,
    ):
        yield client


def test_an_expired_quote_cannot_be_executed(payer: Payer, later: Api) -> None:
    quote = payer.quote(payer.eur)

    error = refused(later.http.post(f"/quotes/{quote['id']}/execute"), 409, "CONFLICT")

    assert error["details"] == {"reason": "QUOTE_EXPIRED"}
    assert ok(later.get(f"/quotes/{quote['id']}"))["status"] == "EXPIRED"
    assert ok(later.get(f"/transactions/{quote['transactionId']}"))["status"] == "EXPIRED"
    assert payer.balance(payer.usd) == 50_000


def test_the_schedule_expires_quotes_with_a_webhook(
    payer: Payer, api_config: ApiConfig, database_url: str
) -> None:
    earlier = timedelta(minutes=10)
    with (
        server(api_config, clock=lambda: datetime.now(UTC) - earlier) as url,
        Api(url, payer.api.tenant) as client,
    ):
        quote = replace(payer, api=client).quote(payer.eur)

    [(kind, data)] = webhooks(database_url, quote["transactionId"], 1)

    assert kind == "OUTGOING_PAYMENT.EXPIRED"
    assert (data["status"], data["quoteId"]) == ("EXPIRED", quote["id"])
    assert payer.get(quote)["status"] == "EXPIRED"
    assert payer.transaction(quote) == data


# --- what is refused -----------------------------------------------------------------------------


def test_a_quote_above_the_balance_is_promised_and_not_executed(payer: Payer) -> None:
    quote = payer.quote(payer.eur, lockedCurrencyAmount=50_001)

    error = refused(payer.execute(quote), 400, "INVALID_AMOUNT")

    assert error["details"]["reason"] == "INSUFFICIENT_FUNDS"
    assert payer.get(quote)["status"] == "PENDING"
    payer.api.fund(payer.usd, 1)
    assert ok(payer.execute(quote))["status"] == "COMPLETED"


@pytest.mark.parametrize("amount", [0, -1, MAX_QUOTED + 1, 2**63 - 1, 2**63])
@pytest.mark.parametrize("side", ["SENDING", "RECEIVING"])
def test_an_amount_beyond_what_can_be_quoted_is_out_of_range(
    payer: Payer, side: str, amount: int
) -> None:
    answer = payer.asks(payer.eur, lockedCurrencySide=side, lockedCurrencyAmount=amount)

    error = refused(answer, 400, "AMOUNT_OUT_OF_RANGE")

    assert error["details"]["errors"][0]["field"] == "lockedCurrencyAmount"


def test_an_amount_for_which_nothing_arrives_is_out_of_range(payer: Payer) -> None:
    refused(payer.asks(payer.eur, lockedCurrencyAmount=1), 400, "AMOUNT_OUT_OF_RANGE")


def fee(amount: int, currency: str = "USD", *, bps: int = 0) -> Json:
    fixed = {"amount": amount, "currency": {"code": currency}}
    return {
        "platformFeeOverride": {"platformFixedFee": fixed, "platformVariableFeeBps": bps},
    }


def source(account_id: str) -> Json:
    return {"source": {"sourceType": "ACCOUNT", "accountId": account_id}}


def destination(account_id: str, **fields: str) -> Json:
    return {"destination": {"destinationType": "ACCOUNT", "accountId": account_id, **fields}}


@pytest.mark.parametrize("amount", [None, "10", 1.5, True])
def test_an_amount_is_an_integer(payer: Payer, amount: object) -> None:
    refused(payer.asks(payer.eur, lockedCurrencyAmount=amount), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        (source("InternalAccount:{new}"), 400, "INVALID_INPUT"),
        (source("ExternalAccount:{new}"), 501, "NOT_IMPLEMENTED"),
        ({"source": {"sourceType": "CARD"}}, 400, "INVALID_INPUT"),
        (destination("ExternalAccount:{new}"), 400, "INVALID_INPUT"),
        (destination("{usd}"), 400, "SELF_PAYMENT"),
        (destination("{eur}", paymentRail="SEPA"), 400, "INVALID_INPUT"),
        ({"lockedCurrencySide": "BOTH"}, 400, "INVALID_INPUT"),
        ({"lookupId": "Lookup:{new}"}, 404, "LOOKUP_REQUEST_NOT_FOUND"),
        ({"remittanceInformation": "x" * 81}, 400, "INVALID_INPUT"),
        ({"surprise": 1}, 400, "INVALID_INPUT"),
        (fee(1, "EUR"), 400, "INVALID_CURRENCY"),
        (fee(10_000), 400, "AMOUNT_OUT_OF_RANGE"),
        (fee(0, bps=10_000), 400, "AMOUNT_OUT_OF_RANGE"),
        ({"senderCustomerInfo": {"FULL_NAME": "A\x00"}}, 400, "INVALID_INPUT"),
    ],
)
def test_a_quote_that_cannot_be_made_is_refused(
    payer: Payer, fields: Json, status: int, code: str
) -> None:
    known = {"{new}": str(new_id()), "{usd}": payer.usd, "{eur}": payer.eur}

    refused(payer.asks(payer.eur, **filled(fields, known)), status, code)


def filled(value: Any, known: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    match value:
        case dict():
            return {name: filled(part, known) for name, part in value.items()}
        case str():
            for name, text in known.items():
                value = value.replace(name, text)
    return value


def test_two_accounts_of_a_customer_in_one_currency_have_nothing_to_quote(payer: Payer) -> None:
    wish = {"customerId": payer.id, "currency": "USD"}
    other = made(payer.api.post("/customers/internal-accounts", wish))

    refused(payer.asks(str(other["id"])), 400, "INVALID_CURRENCY")


def test_a_customer_whose_identity_is_not_approved_gets_no_quote(own: Api) -> None:
    customer = own.customer(fullName="Ada 001")
    usd, eur = (str(own.account(customer["id"], code)["id"]) for code in ("USD", "EUR"))
    waits = Payer(own, str(customer["id"]), usd, eur)

    refused(waits.asks(eur), 403, "USER_NOT_READY")


def test_an_account_of_another_customer_is_not_the_named_ones(own: Api, payer: Payer) -> None:
    stranger = own.customer()["id"]
    source = {"sourceType": "ACCOUNT", "accountId": payer.usd, "customerId": stranger}

    refused(payer.asks(payer.eur, source=source), 400, "INVALID_INPUT")


def test_without_a_rate_the_quote_request_has_failed(api_config: ApiConfig, payer: Payer) -> None:
    with (
        server(replace(api_config, sandbox=False)) as url,
        Api(url, payer.api.tenant) as production,
    ):
        error = refused(replace(payer, api=production).asks(payer.eur), 400, "QUOTE_REQUEST_FAILED")

    assert error["details"] == {"reason": "QUOTE_RATE_UNAVAILABLE"}


def test_a_token_that_may_only_view_is_forbidden(
    api_config: ApiConfig, payer: Payer, root: str
) -> None:
    quote = payer.quote(payer.eur)
    viewer = new_tenant(api_config.database_url, permissions=("VIEW",), of=payer.api.tenant)

    with Api(root, viewer) as client:
        seen = replace(payer, api=client)
        assert seen.get(quote) == quote
        refused(seen.asks(payer.eur), 403, "FORBIDDEN")
        refused(seen.execute(quote), 403, "FORBIDDEN")


def test_an_unknown_quote_is_not_found(own: Api, payer: Payer, other_platform: Api) -> None:
    unknown = f"/quotes/Quote:{new_id()}"
    theirs = f"/quotes/{payer.quote(payer.eur)['id']}"

    for api, path in ((own, unknown), (other_platform, theirs)):
        refused(api.get(path), 404, "QUOTE_NOT_FOUND")
        refused(api.http.post(f"{path}/execute"), 404, "QUOTE_NOT_FOUND")
    refused(own.get("/quotes/x"), 404, "QUOTE_NOT_FOUND")


# --- paid from outside ---------------------------------------------------------------------------


def funded(payer: Payer, currency: str = "USD", **source: object) -> Json:
    wish = {"sourceType": "REALTIME_FUNDING", "currency": currency, "customerId": payer.id}
    return payer.quote(payer.iban(), source=wish | source)


def test_a_quote_is_paid_from_outside_by_its_instructions(payer: Payer) -> None:
    quote = funded(payer)
    [way] = quote["paymentInstructions"]

    paid = ok(payer.api.post("/sandbox/send", {"quoteId": quote["id"], "currencyCode": "USD"}))

    assert way["accountOrWalletInfo"]["accountType"] == "USD_ACCOUNT"
    assert way["accountOrWalletInfo"]["reference"].startswith("Q")
    assert paid["id"] == quote["transactionId"]
    done = payer.ends(quote, "COMPLETED")
    assert "paymentInstructions" not in done
    assert payer.balance(payer.usd) == 50_000, "what has arrived has left"


def test_a_payment_from_outside_is_what_the_quote_needs(payer: Payer) -> None:
    quote = funded(payer)

    def send(currency: str, amount: int | None = None) -> httpx2.Response:
        body = {"quoteId": quote["id"], "currencyCode": currency}
        return payer.api.post(
            "/sandbox/send", body if amount is None else body | {"currencyAmount": amount}
        )

    refused(send("EUR"), 400, "INVALID_CURRENCY")
    wrong = refused(send("USD", 9_999), 400, "INVALID_AMOUNT")
    assert wrong["details"]["reason"] == "FUNDING_AMOUNT_MISMATCH"
    refused(payer.execute(quote), 409, "CONFLICT")
    ok(send("USD", 10_000))
    refused(send("USD", 10_000), 409, "CONFLICT")
    unknown = {"quoteId": f"Quote:{new_id()}", "currencyCode": "USD"}
    refused(payer.api.post("/sandbox/send", unknown), 404, "QUOTE_NOT_FOUND")
    of_account = {"quoteId": payer.quote(payer.eur)["id"], "currencyCode": "USD"}
    refused(payer.api.post("/sandbox/send", of_account), 409, "CONFLICT")


@pytest.mark.parametrize(
    ("source", "status", "code"),
    [
        ({"currency": "JPY"}, 501, "NOT_IMPLEMENTED"),
        ({"currency": "GBP"}, 400, "INVALID_CURRENCY"),
        ({"currency": "USDC"}, 400, "INVALID_INPUT"),
        ({"currency": "USD", "cryptoNetwork": "SPARK"}, 400, "INVALID_INPUT"),
        ({"currency": "BTC", "cryptoNetwork": "SOLANA_MAINNET"}, 501, "NOT_IMPLEMENTED"),
        ({"currency": "XXX"}, 400, "INVALID_CURRENCY"),
    ],
)
def test_a_way_to_pay_that_is_not_connected_is_refused(
    payer: Payer, source: Json, status: int, code: str
) -> None:
    wish = {"sourceType": "REALTIME_FUNDING", "customerId": payer.id, **source}

    refused(payer.asks(payer.eur, source=wish), status, code)


# --- receivers -----------------------------------------------------------------------------------


def look_up(api: Api, address: str, **query: object) -> httpx2.Response:
    return api.get(f"/receiver/uma/{address}", **query)


def test_a_customer_whose_payout_will_be_returned_is_not_deleted(payer: Payer) -> None:
    quote = payer.quote(payer.iban("005"), lockedCurrencyAmount=50_000)
    assert ok(payer.api.http.post(f"/quotes/{quote['id']}/execute"))["status"] == "COMPLETED"

    error = refused(payer.api.delete(f"/customers/{payer.id}"), 409, "CONFLICT")

    assert error["details"] == {"reason": "OPEN_PAYMENTS"}
    eventually(lambda: payer.transaction(quote)["status"] == "FAILED")
    assert payer.balance(payer.usd) == 50_000


def test_a_customer_whose_refund_has_failed_is_not_deleted(payer: Payer) -> None:
    quote = payer.quote(payer.iban("007"), lockedCurrencyAmount=50_000)
    ok(payer.execute(quote))
    payer.ends(quote, "FAILED")
    eventually(lambda: payer.transaction(quote)["refund"]["status"] == "FAILED")

    error = refused(payer.api.delete(f"/customers/{payer.id}"), 409, "CONFLICT")

    assert payer.balance(payer.usd) == 0
    assert error["details"] == {"reason": "OPEN_PAYMENTS"}
    assert "refund" in error["message"]
    assert payer.transaction(quote)["id"] in error["message"]


def test_a_payee_that_was_deleted_after_the_quote_is_not_paid(payer: Payer) -> None:
    bank = payer.iban()
    quote = payer.quote(bank)
    assert payer.api.http.delete(f"/customers/external-accounts/{bank}").status_code == 204

    error = refused(payer.api.http.post(f"/quotes/{quote['id']}/execute"), 409, "CONFLICT")

    assert error["details"] == {"reason": "ACCOUNT_NOT_ACTIVE"}
    assert payer.get(quote)["status"] == "PENDING"
    assert payer.balance(payer.usd) == 50_000


def test_an_external_account_is_looked_up_and_quoted(payer: Payer) -> None:
    bank = payer.iban()

    found = ok(payer.api.get(f"/receiver/external-account/{bank}", customerId=payer.id))
    quote = payer.quote(bank, lookupId=found["lookupId"])

    [taken] = found["supportedCurrencies"]
    assert found["accountId"] == bank
    assert (taken["currency"]["code"], taken["estimatedExchangeRate"]) == ("EUR", 1.25)
    assert 0 < taken["min"] < taken["max"]
    assert found["requiredPayerDataFields"] == []
    assert quote["status"] == "PENDING"
    unknown = f"/receiver/external-account/ExternalAccount:{new_id()}"
    refused(payer.api.get(unknown), 404, "REFERENCE_NOT_FOUND")
    refused(payer.asks(payer.iban(), lookupId=found["lookupId"]), 404, "LOOKUP_REQUEST_NOT_FOUND")


def to(address: str, **fields: object) -> Json:
    return {"destinationType": "UMA_ADDRESS", "umaAddress": address, **fields}


def test_a_uma_address_elsewhere_is_looked_up_and_paid(payer: Payer) -> None:
    address = "$success.eur@sandbox.uma.money"

    found = ok(look_up(payer.api, address))
    quote = payer.quote(to(address), lookupId=found["lookupId"])
    ok(payer.execute(quote))

    assert found["receiverUmaAddress"] == address
    assert [one["currency"]["code"] for one in found["supportedCurrencies"]] == ["EUR"]
    assert quote["destination"] == to(address, currency="EUR")
    payer.ends(quote, "COMPLETED")
    assert payer.balance(payer.usd) == 40_000


@pytest.mark.parametrize("same_platform", [True, False])
def test_a_customer_of_this_installation_is_paid_by_its_address(
    payer: Payer, api_config: ApiConfig, root: str, *, same_platform: bool
) -> None:
    tenant = payer.api.tenant if same_platform else new_tenant(api_config.database_url)
    with Api(root, tenant) as receivers_platform:
        receiver = receivers_platform.customer()
        address = receiver["umaAddress"]

        found = ok(look_up(payer.api, address))
        quote = payer.quote(to(address, currency="EUR"), lookupId=found["lookupId"])
        ok(payer.execute(quote))
        payer.ends(quote, "COMPLETED")

        assert {one["currency"]["code"] for one in found["supportedCurrencies"]} >= {"USD", "EUR"}
        eventually(
            lambda: receivers_platform.account(receiver["id"], "EUR")["balance"]["amount"] == 8_000
        )


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        ("$ada@sandbox.uma.money", 404, "UMA_NOT_FOUND"),
        ("ada", 404, "UMA_NOT_FOUND"),
        ("$ada@blocked.example", 403, "COUNTERPARTY_NOT_ALLOWED"),
        ("$fail.version.usd@sandbox.uma.money", 412, "UNSUPPORTED_UMA_VERSION"),
        ("$fail.negotiation.usd@sandbox.uma.money", 424, "NO_COMPATIBLE_UMA_VERSION"),
        ("$fail.lookup.usd@sandbox.uma.money", 424, "LNURLP_REQUEST_FAILED"),
        ("$fail.keys.usd@sandbox.uma.money", 424, "COUNTERPARTY_PUBKEY_FETCH_ERROR"),
    ],
)
def test_an_address_that_cannot_be_looked_up_has_its_code(
    own: Api, address: str, status: int, code: str
) -> None:
    refused(look_up(own, address), status, code)


def test_an_institution_can_refuse_the_payment_request(payer: Payer) -> None:
    address = "$fail.payreq.usd@sandbox.uma.money"
    found = ok(look_up(payer.api, address))

    refused(payer.asks(to(address), lookupId=found["lookupId"]), 424, "PAYREQ_REQUEST_FAILED")


def test_a_uma_address_needs_its_look_up(payer: Payer, other_platform: Api) -> None:
    address = "$success.eur@sandbox.uma.money"
    theirs = ok(look_up(other_platform, address))["lookupId"]
    mine = ok(look_up(payer.api, address))["lookupId"]

    refused(payer.asks(to(address)), 400, "INVALID_INPUT")
    for other in (theirs, f"Lookup:{_computed(payer, address)}"):
        refused(payer.asks(to(address), lookupId=other), 404, "LOOKUP_REQUEST_NOT_FOUND")
    refused(payer.asks(to(address, currency="USD"), lookupId=mine), 400, "INVALID_CURRENCY")


def _computed(payer: Payer, address: str) -> Id:
    """Return what a look-up of `address` would be called if that took no key."""
    name = f"lookup {payer.api.tenant.platform_id} {address}"
    return derived_id(name, at=window_start(datetime.now(UTC)))


def test_what_the_institution_asks_about_the_sender_must_be_sent(payer: Payer) -> None:
    address = "$asks.eur@sandbox.uma.money"
    found = ok(look_up(payer.api, address))
    lookup = {"lookupId": found["lookupId"]}

    assert {"name": "FULL_NAME", "mandatory": True} in found["requiredPayerDataFields"]
    refused(payer.asks(to(address), **lookup), 400, "MISSING_REQUIRED_UMA_PARAMETERS")
    payer.quote(to(address), senderCustomerInfo={"FULL_NAME": "Ada"}, **lookup)
