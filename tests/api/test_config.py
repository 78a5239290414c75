"""The platform's settings: what is kept, what it changes, what it cannot be."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.schema.wire import iso4217
from cardledger.schema.wire.common import CRYPTO
from cardledger.schema.wire.config import MAX_CURRENCIES
from cardledger.schema.wire.customers.account_variants import VARIANTS
from tests.api.support import Api, Tenant, made, new_tenant, ok, refused

USD = {
    "currencyCode": "USD",
    "minAmount": 100,
    "maxAmount": 1_000_000,
    "requiredCounterpartyFields": [{"name": "FULL_NAME", "mandatory": True}],
    "enabledTransactionTypes": ["INCOMING", "OUTGOING"],
}
WALLET = {
    "appName": "Acme",
    "otpLength": 8,
    "alphanumeric": True,
    "expirationSeconds": 600,
    "sendFromEmailAddress": "codes@example.com",
    "sendFromEmailSenderName": "Acme Codes",
    "replyToEmailAddress": "help@example.com",
    "logoUrl": "https://example.com/logo.png",
}
TOKENIZATION = {
    "displayName": "Acme Card",
    "logoUrl": "https://example.com/card.png",
    "email": {
        "fromAddress": "codes@example.com",
        "fromName": "Acme",
        "replyToAddress": "help@example.com",
        "subject": "Your code",
        "bodyText": "It is {code}.",
    },
    "sms": {"templateSid": "T1", "bodyText": "Your code is {code}."},
}
FEE = {
    "feeType": "CROSS_CURRENCY_TRANSACTION",
    "sourceCurrency": "USD",
    "variableFeeBps": 50,
    "fixedFee": {"amount": 25, "currency": {"code": "USD"}},
}


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone, which has dollars."""
    with Api(root, new_tenant(api_config.database_url, currencies=("USD",))) as client:
        yield client


def configure(api: Api, **fields: object) -> httpx2.Response:
    return api.patch("/config", fields)


def in_currency(code: str, **fields: object) -> dict[str, object]:
    return USD | {"currencyCode": code} | fields


def codes(config: dict[str, Any]) -> list[str]:
    return [one["currencyCode"] for one in config["supportedCurrencies"]]


def test_a_setting_changes_what_it_names_and_nothing_else(own: Api, other_platform: Api) -> None:
    before, theirs = ok(own.get("/config")), ok(other_platform.get("/config"))

    after = ok(configure(own, umaDomain="setting.example.com"))

    assert after == before | {"umaDomain": "setting.example.com", "updatedAt": after["updatedAt"]}
    assert ok(own.get("/config")) == after
    assert ok(other_platform.get("/config")) == theirs
    assert ok(configure(own, umaDomain=None))["umaDomain"] == before["umaDomain"]
    assert ok(configure(own, umaDomain=before["umaDomain"]))["umaDomain"] == before["umaDomain"]


def test_a_uma_domain_belongs_to_one_platform(own: Api, other_platform: Api) -> None:
    ok(configure(own, umaDomain="one.example.com"))
    before = ok(other_platform.get("/config"))

    taken = refused(configure(other_platform, umaDomain="one.example.com"), 409, "CONFLICT")

    assert taken["details"] == {"reason": "UMA_DOMAIN_TAKEN", "field": "umaDomain"}
    assert ok(other_platform.get("/config")) == before
    ok(configure(own, umaDomain="one.example.com"))
    ok(configure(own, umaDomain=None))
    ok(configure(other_platform, umaDomain="one.example.com"))
    ok(configure(other_platform, umaDomain=None))


def test_of_platforms_that_claim_a_domain_at_once_one_has_it(
    root: str, api_config: ApiConfig
) -> None:
    tenants = [new_tenant(api_config.database_url) for _ in range(6)]

    def claim(tenant: Tenant) -> int:
        with Api(root, tenant) as client:
            return configure(client, umaDomain="race.example.com").status_code

    with ThreadPoolExecutor(len(tenants)) as pool:
        statuses = list(pool.map(claim, tenants))

    assert sorted(statuses) == [200] + [409] * 5


def test_a_uma_address_is_chosen_in_the_platforms_own_domain_only(
    own: Api, other_platform: Api
) -> None:
    shared = ok(own.get("/config"))["umaDomain"]
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada"}
    customer = own.customer()
    for domain in (shared, "bank.example.com"):  # It has no domain of its own yet.
        address = {"umaAddress": f"$ada@{domain}"}
        refused(own.post("/customers", person | address), 400, "INVALID_UMA_ADDRESS")

    ok(configure(own, umaDomain="bank.example.com"))

    for domain in (shared, "a.bank.example.com", "example.com", "bank.example.com:8080"):
        address = {"umaAddress": f"$ada@{domain}"}
        body = refused(own.post("/customers", person | address), 400, "INVALID_UMA_ADDRESS")
        assert body["details"]["errors"][0]["field"] == "umaAddress"
        path = f"/customers/{customer['id']}"
        change = {"customerType": "INDIVIDUAL"} | address
        refused(own.patch(path, change), 400, "INVALID_UMA_ADDRESS")
    address = {"umaAddress": "$ada@bank.example.com"}
    refused(other_platform.post("/customers", person | address), 400, "INVALID_UMA_ADDRESS")
    assert own.customer(**address)["umaAddress"] == "$ada@bank.example.com"
    # What the customer has already may be sent again.
    kept = {"customerType": "INDIVIDUAL", "umaAddress": customer["umaAddress"]}
    assert ok(own.patch(f"/customers/{customer['id']}", kept))["umaAddress"].endswith(shared)


@pytest.mark.parametrize("other", [None, "next.example.com"])
def test_a_platform_keeps_a_domain_in_which_its_customers_have_names(
    own: Api, other_platform: Api, other: str | None
) -> None:
    """Another platform would claim it, and not get what is paid to a name there."""
    ok(configure(own, umaDomain="kept.example.com"))
    generated = own.customer()["umaAddress"]
    chosen = own.customer(umaAddress="$ceo@kept.example.com")

    refusal = refused(configure(own, umaDomain=other), 409, "CONFLICT")

    assert refusal["details"] == {"reason": "UMA_DOMAIN_IN_USE", "field": "umaDomain"}
    refused(configure(other_platform, umaDomain="kept.example.com"), 409, "CONFLICT")
    ok(configure(own, umaDomain="kept.example.com"))
    assert own.delete(f"/customers/{chosen['id']}").is_success
    assert ok(configure(own, umaDomain=other))["umaDomain"] != "kept.example.com"
    assert generated in {one["umaAddress"] for one in ok(own.get("/customers"))["data"]}


def test_new_customers_live_in_the_platforms_domain(own: Api) -> None:
    ok(configure(own, umaDomain="new.example.com"))

    assert own.customer()["umaAddress"].endswith("@new.example.com")


def test_currencies_are_replaced_as_a_whole(own: Api) -> None:
    shown: dict[str, object] = {
        "providerRequiredCustomerFields": [],
        "providerRequiredCounterpartyCustomerFields": [],
    }

    several = ok(configure(own, supportedCurrencies=[in_currency("EUR"), USD]))
    echoed = ok(configure(own, supportedCurrencies=several["supportedCurrencies"]))
    one = ok(configure(own, supportedCurrencies=[USD | {"minAmount": 0}]))

    assert several["supportedCurrencies"] == [in_currency("EUR") | shown, USD | shown]
    assert echoed["supportedCurrencies"] == several["supportedCurrencies"]
    assert one["supportedCurrencies"] == [USD | shown | {"minAmount": 0}]


def test_money_moves_in_a_currency_that_came_later(own: Api) -> None:
    dollars = own.account(own.customer()["id"])
    own.fund(dollars["id"], 100)  # So the worker has read the platform's books before.
    ok(configure(own, supportedCurrencies=[USD, in_currency("EUR"), in_currency("USDC")]))

    customer = own.customer()
    funded = own.fund(own.account(customer["id"], "EUR")["id"], 500)

    assert customer["currencies"] == ["USD", "EUR", "USDC"]
    assert funded["balance"]["amount"] == 500
    assert funded["balance"]["currency"]["code"] == "EUR"


def test_a_currency_with_accounts_cannot_be_removed(own: Api) -> None:
    ok(configure(own, supportedCurrencies=[USD, in_currency("EUR")]))
    customer = own.customer(currencies=["EUR"])
    before = ok(own.get("/config"))

    body = refused(
        configure(own, supportedCurrencies=[USD], umaDomain="pay.example.com"), 409, "CONFLICT"
    )

    assert body["details"] == {"reason": "CURRENCY_IN_USE", "currency": "EUR"}
    assert ok(own.get("/config")) == before
    ok(own.delete(f"/customers/{customer['id']}"))
    assert codes(ok(configure(own, supportedCurrencies=[USD]))) == ["USD"]
    assert codes(ok(configure(own, supportedCurrencies=[USD, in_currency("EUR")]))) == [
        "USD",
        "EUR",
    ]


def test_no_account_is_opened_in_a_currency_that_goes_at_the_same_time(own: Api) -> None:
    for _ in range(10):
        ok(configure(own, supportedCurrencies=[USD, in_currency("EUR")]))
        sent_body = {"customerType": "INDIVIDUAL", "currencies": ["EUR"]}
        with ThreadPoolExecutor(2) as pool:
            opened = pool.submit(own.post, "/customers", sent_body)
            taken = pool.submit(configure, own, supportedCurrencies=[USD])

        statuses = (opened.result().status_code, taken.result().status_code)
        assert statuses in {(201, 409), (400, 200)}
        if statuses[0] == 201:
            ok(own.delete(f"/customers/{made(opened.result())['id']}"))


def test_how_wallets_appear_is_changed_field_by_field(own: Api) -> None:
    short = ok(configure(own, embeddedWalletConfig={"appName": "Acme"}))
    whole = ok(configure(own, embeddedWalletConfig=WALLET))
    less = ok(configure(own, embeddedWalletConfig={"otpLength": None, "logoUrl": None}))
    none = ok(configure(own, embeddedWalletConfig=None))

    assert short["embeddedWalletConfig"] == {
        "appName": "Acme",
        "otpLength": 6,
        "alphanumeric": False,
        "expirationSeconds": 300,
        "sendFromEmailSenderName": "Notifications",
    }
    assert whole["embeddedWalletConfig"] == WALLET
    kept = {name: sent_body for name, sent_body in WALLET.items() if name != "logoUrl"}
    assert less["embeddedWalletConfig"] == kept | {"otpLength": 6}
    assert "embeddedWalletConfig" not in none


def test_how_codes_appear_is_changed_field_by_field(own: Api) -> None:
    whole = ok(configure(own, cardTokenization2faConfig=TOKENIZATION))
    less = ok(
        configure(own, cardTokenization2faConfig={"sms": None, "email": {"subject": "A code"}})
    )
    none = ok(configure(own, cardTokenization2faConfig=None))

    assert whole["cardTokenization2faConfig"] == TOKENIZATION
    assert less["cardTokenization2faConfig"] == {
        "displayName": "Acme Card",
        "logoUrl": "https://example.com/card.png",
        "email": TOKENIZATION["email"] | {"subject": "A code"},  # type: ignore[operator] # an object
    }
    assert "cardTokenization2faConfig" not in none


def test_a_fee_replaces_the_fee_for_the_same_currencies(own: Api) -> None:
    assert ok(own.get("/config"))["feeConfigs"] == []

    ok(configure(own, feeConfigs=[FEE]))
    changed = ok(configure(own, feeConfigs=[FEE | {"variableFeeBps": 0}]))
    echoed = ok(configure(own, feeConfigs=changed["feeConfigs"]))

    [fee] = changed["feeConfigs"]
    assert fee["variableFeeBps"] == 0
    assert fee["fixedFee"]["amount"] == 25
    assert fee["fixedFee"]["currency"]["code"] == "USD"
    assert echoed["feeConfigs"] == changed["feeConfigs"]
    assert ok(configure(own, feeConfigs=[]))["feeConfigs"] == changed["feeConfigs"]


def test_fees_in_other_currencies_are_not_implemented(own: Api) -> None:
    refused(configure(own, feeConfigs=[FEE | {"sourceCurrency": "EUR"}]), 501, "NOT_IMPLEMENTED")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "INVALID_INPUT"),
        ({"umaDomain": "Example.com"}, "INVALID_INPUT"),
        ({"umaDomain": "localhost"}, "INVALID_INPUT"),
        ({"umaDomain": "example.com\n"}, "INVALID_INPUT"),
        ({"umaDomain": "-a.com"}, "INVALID_INPUT"),
        ({"proxyUmaSubdomain": "acme"}, "INVALID_INPUT"),
        ({"isRegulatedFinancialInstitution": True}, "INVALID_INPUT"),
        ({"supportedCurrencies": []}, "INVALID_INPUT"),
        ({"supportedCurrencies": None}, "INVALID_INPUT"),
        ({"supportedCurrencies": [USD, USD]}, "INVALID_INPUT"),
        ({"supportedCurrencies": [in_currency("XXX")]}, "INVALID_CURRENCY"),
        ({"supportedCurrencies": [USD | {"minAmount": -1}]}, "INVALID_INPUT"),
        ({"supportedCurrencies": [USD | {"maxAmount": 99}]}, "INVALID_INPUT"),
        ({"supportedCurrencies": [USD | {"maxAmount": 1.5}]}, "INVALID_INPUT"),
        ({"supportedCurrencies": [USD | {"enabledTransactionTypes": ["ALL"]}]}, "INVALID_INPUT"),
        (
            {
                "supportedCurrencies": [
                    USD | {"requiredCounterpartyFields": [{"name": "SHOE", "mandatory": True}]}
                ]
            },
            "INVALID_INPUT",
        ),
        ({"supportedCurrencies": [{"currencyCode": "USD"}]}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"otpLength": 3}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"otpLength": 13}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"expirationSeconds": 0}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"expirationSeconds": 86_401}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"appName": "a" * 256}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"logoUrl": "http://127.0.0.1/logo.png"}}, "INVALID_INPUT"),
        ({"embeddedWalletConfig": {"alphanumeric": "yes"}}, "INVALID_INPUT"),
        ({"cardTokenization2faConfig": {"sms": {"bodyText": "a" * 481}}}, "INVALID_INPUT"),
        ({"cardTokenization2faConfig": {"email": {"subject": "a" * 256}}}, "INVALID_INPUT"),
        ({"cardTokenization2faConfig": {"email": {"fromAddress": "me"}}}, "INVALID_INPUT"),
        ({"feeConfigs": None}, "INVALID_INPUT"),
        ({"feeConfigs": [FEE | {"feeType": "TIP"}]}, "INVALID_INPUT"),
        ({"feeConfigs": [FEE | {"variableFeeBps": 10_001}]}, "INVALID_INPUT"),
        (
            {"feeConfigs": [FEE | {"fixedFee": {"amount": -1, "currency": {"code": "USD"}}}]},
            "INVALID_INPUT",
        ),
        (
            {"feeConfigs": [FEE | {"fixedFee": {"amount": 1, "currency": {"code": "EUR"}}}]},
            "INVALID_INPUT",
        ),
    ],
)
def test_an_invalid_configuration_is_refused_as_a_whole(
    api: Api, fields: dict[str, object], code: str
) -> None:
    before = ok(api.get("/config"))

    refused(configure(api, **fields), 400, code)

    assert ok(api.get("/config")) == before


# --- every currency ------------------------------------------------------------------------------


def test_every_currency_that_external_accounts_know_can_be_enabled(own: Api) -> None:
    known = [*sorted(iso4217.CODES), *sorted(CRYPTO)]
    before = ok(own.get("/config"))["supportedCurrencies"]
    named = {name for variant in VARIANTS.values() for name in variant.currencies or ()}

    assert named - {"SLV"} <= set(known), "SLV names a country"
    for some in (known[:MAX_CURRENCIES], known[MAX_CURRENCIES:]):
        after = ok(configure(own, supportedCurrencies=[in_currency(code) for code in some]))
        assert codes(after) == some
    ok(configure(own, supportedCurrencies=before))


def test_a_platform_enables_a_hundred_currencies_at_most(own: Api) -> None:
    some = sorted(iso4217.CODES)[: MAX_CURRENCIES + 1]

    answer = configure(own, supportedCurrencies=[in_currency(code) for code in some])

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert error == {"field": "supportedCurrencies", "message": "must have at most 100 items"}


def test_the_fields_of_all_currencies_are_counted_together(own: Api) -> None:
    names = [{"name": "FULL_NAME", "mandatory": True}] * 20
    some = [in_currency(code, requiredCounterpartyFields=names) for code in ("USD", "EUR", "GBP")]
    some += [in_currency(code, requiredCounterpartyFields=names) for code in ("CHF", "SEK", "NOK")]

    answer = configure(own, supportedCurrencies=some)

    [error] = refused(answer, 400, "INVALID_INPUT")["details"]["errors"]
    assert error["message"] == "has 120 fields of counterparties and customers; send 100 at most"


@pytest.mark.parametrize(("code", "decimals"), [("JPY", 0), ("KWD", 3), ("CLF", 4), ("BTC", 8)])
def test_an_account_in_a_new_currency_holds_its_minor_units(
    own: Api, code: str, decimals: int
) -> None:
    before = ok(own.get("/config"))["supportedCurrencies"]
    ok(configure(own, supportedCurrencies=[*before, in_currency(code)]))

    customer = own.customer(currencies=[code])

    [account] = ok(own.get("/customers/internal-accounts", customerId=customer["id"]))["data"]
    paid = ok(own.post(f"/sandbox/internal-accounts/{account['id']}/fund", {"amount": 12_345}))
    assert paid["balance"]["amount"] == 12_345
    assert paid["balance"]["currency"]["decimals"] == decimals


def test_an_unknown_currency_is_named_and_the_error_is_short(own: Api) -> None:
    answer = configure(own, supportedCurrencies=[in_currency("ZZZ")])

    [error] = refused(answer, 400, "INVALID_CURRENCY")["details"]["errors"]
    assert error["message"] == (
        "contains ZZZ, which is not an active code of ISO 4217, nor one of BTC, USDB, USDC"
    )
