"""Exchange rates: listed with fees, rails and limits; set in a sandbox, for one platform."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from cardledger.api import loop_turns
from cardledger.api.app import ApiConfig
from cardledger.api.routes.exchange import exchange_rates as routes
from cardledger.config import gc_tuning
from cardledger.ledger.quotes import exchange_rates
from tests.api.support import TIMEOUT_S, Api, LoopWatch, new_tenant, ok, refused, server

Json = dict[str, Any]


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform that no other test uses, with USD and EUR."""
    with Api(root, new_tenant(api_config.database_url, currencies=("USD", "EUR"))) as client:
        yield client


@pytest.fixture
def at_one_moment(api_config: ApiConfig) -> Iterator[Api]:
    """The same, of a server whose clock stands still: all rates change every five minutes."""
    now = datetime.now(UTC)
    with (
        server(api_config, clock=lambda: now) as url,
        Api(url, new_tenant(api_config.database_url, currencies=("USD", "EUR"))) as client,
    ):
        yield client


def listed(api: Api, **query: str | int | list[str]) -> list[Json]:
    found = api.http.get("/exchange-rates", params=query)
    rates: list[Json] = ok(found)["data"]
    return rates


def set_rate(api: Api, source: str, destination: str, rate: object) -> httpx2.Response:
    body = {"sourceCurrency": source, "destinationCurrency": destination, "exchangeRate": rate}
    return api.post("/sandbox/exchange-rates", body)


def codes(rates: list[Json]) -> set[tuple[str, str]]:
    return {(rate["sourceCurrency"]["code"], rate["destinationCurrency"]["code"]) for rate in rates}


def test_a_rate_has_currencies_amounts_fees_rail_and_limits(own: Api) -> None:
    ok(set_rate(own, "USD", "EUR", 1.25))

    slow, fast = listed(own, sourceCurrency="USD", destinationCurrency="EUR", sendingAmount=10_001)

    assert {slow["destinationPaymentRail"], fast["destinationPaymentRail"]} == {
        "SEPA",
        "SEPA_INSTANT",
    }
    assert slow["sourceCurrency"]["decimals"] == 2
    assert slow["destinationCurrency"]["name"] == "Euro"
    assert slow["exchangeRate"] == 1.25
    assert slow["sendingAmount"] == 10_001
    assert slow["receivingAmount"] == 8_000, "8000.8 euro cents, rounded down"
    assert slow["fees"] == {"fixed": 0, "total": 0}
    assert slow["minSendingAmount"] == 2, "for which one euro cent is received"
    assert slow["maxSendingAmount"] == 9_000_000_000_000_000
    assert slow["updatedAt"].endswith("Z")


def test_without_filters_every_supported_currency_is_converted_into_every_other(own: Api) -> None:
    rates = listed(own)

    assert {source for source, _ in codes(rates)} == {"USD", "EUR"}
    assert {("USD", "EUR"), ("EUR", "USD"), ("USD", "JPY"), ("USD", "BTC")} <= codes(rates)
    assert all(source != destination for source, destination in codes(rates))
    assert {rate["sendingAmount"] for rate in rates} == {10_000}


def test_a_destination_may_be_sent_several_times(own: Api) -> None:
    rates = listed(own, sourceCurrency="USD", destinationCurrency=["GBP", "EUR", "GBP"])

    assert codes(rates) == {("USD", "GBP"), ("USD", "EUR")}
    refused(
        own.http.get("/exchange-rates", params={"sourceCurrency": ["USD", "EUR"]}),
        400,
        "INVALID_INPUT",
    )


def test_a_response_may_be_cached_until_rates_are_refreshed(own: Api) -> None:
    found = own.get("/exchange-rates", sourceCurrency="USD", destinationCurrency="EUR")

    expires = parsedate_to_datetime(found.headers["expires"])
    assert found.headers["cache-control"] == "private"
    assert 0 <= (expires - datetime.now(UTC)).total_seconds() + TIMEOUT_S <= 300 + 2 * TIMEOUT_S
    assert expires.minute % 5 == expires.second == 0


def test_the_platforms_fees_and_limits_count(own: Api) -> None:
    ok(set_rate(own, "USD", "EUR", 2))
    fee = {
        "feeType": "CROSS_CURRENCY_TRANSACTION",
        "sourceCurrency": "USD",
        "variableFeeBps": 100,
        "fixedFee": {"amount": 50, "currency": {"code": "USD"}},
    }
    limits = {
        "currencyCode": "USD",
        "minAmount": 500,
        "maxAmount": 20_000,
        "requiredCounterpartyFields": [],
        "enabledTransactionTypes": ["OUTGOING"],
    }
    other = limits | {"currencyCode": "EUR"}
    ok(own.patch("/config", {"feeConfigs": [fee], "supportedCurrencies": [limits, other]}))

    rate, *_ = listed(own, sourceCurrency="USD", destinationCurrency="EUR")
    tiny, *_ = listed(own, sourceCurrency="USD", destinationCurrency="EUR", sendingAmount=50)

    # 1 % of 99.50 USD is 0.995 USD, rounded up.
    assert rate["fees"] == {"fixed": 50, "total": 150}
    assert rate["receivingAmount"] == (10_000 - 150) // 2
    assert (rate["minSendingAmount"], rate["maxSendingAmount"]) == (500, 20_000)
    assert tiny["receivingAmount"] == 0


def test_a_rate_that_is_set_counts_in_both_directions_for_its_platform_alone(
    own: Api, other_platform: Api
) -> None:
    query = {"sourceCurrency": "EUR", "destinationCurrency": "USD"}
    [before, *_] = listed(other_platform, **query)

    [answer, *_] = ok(set_rate(own, "USD", "EUR", 4))["data"]
    [there, *_] = listed(own, sourceCurrency="USD", destinationCurrency="EUR")
    [back, *_] = listed(own, **query)

    assert answer["exchangeRate"] == there["exchangeRate"] == 4
    assert isinstance(answer["exchangeRate"], int)
    assert back["exchangeRate"] == 0.25
    [elsewhere, *_] = listed(other_platform, **query)
    assert elsewhere["exchangeRate"] == before["exchangeRate"]


def test_the_newest_rate_of_a_pair_counts_whatever_its_direction(own: Api) -> None:
    ok(set_rate(own, "USD", "EUR", 4))
    ok(set_rate(own, "EUR", "USD", 0.5))

    [rate, *_] = listed(own, sourceCurrency="USD", destinationCurrency="EUR")

    assert rate["exchangeRate"] == 2


def test_a_rate_is_set_without_a_rest_in_its_database_transaction(
    own: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the turns of a list take: the guard of connections looks at this request."""
    monkeypatch.setattr(loop_turns, "_FIRST_TURN_S", 0.0)
    body = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": 0.5}

    ok(own.http.post("/sandbox/exchange-rates", json=body, headers={"Idempotency-Key": "rate"}))


def test_a_rate_is_kept_to_its_last_digit(own: Api) -> None:
    ok(set_rate(own, "USD", "BTC", 0.123456789012))

    [rate, *_] = listed(own, sourceCurrency="USD", destinationCurrency="BTC")

    assert rate["exchangeRate"] == 0.123456789012
    assert '"exchangeRate":0.123456789012' in own.get(
        "/exchange-rates", sourceCurrency="USD", destinationCurrency="BTC"
    ).text.replace(" ", "")


@pytest.mark.parametrize("rate", [0, -1, -0.5, 1e-10, 1e10, 1e300, 0.1234567890123])
def test_a_rate_of_zero_a_negative_and_an_absurd_one_are_refused(own: Api, rate: float) -> None:
    error = refused(set_rate(own, "USD", "EUR", rate), 400, "INVALID_INPUT")

    assert error["details"]["errors"][0]["field"] == "exchangeRate"


@pytest.mark.parametrize("rate", ["1.5", True, None, [1.5], {}])
def test_a_rate_that_is_no_number_is_refused(own: Api, rate: object) -> None:
    refused(set_rate(own, "USD", "EUR", rate), 400, "INVALID_INPUT")


@pytest.mark.parametrize("rate", [b"NaN", b"Infinity", b"1e999", b"-1e999"])
def test_a_rate_that_json_does_not_have_is_refused(own: Api, rate: bytes) -> None:
    body = b'{"sourceCurrency": "USD", "destinationCurrency": "EUR", "exchangeRate": %s}' % rate

    refused(own.raw("POST", "/sandbox/exchange-rates", body), 400, "INVALID_INPUT")


def test_a_rate_is_of_two_known_currencies(own: Api) -> None:
    refused(set_rate(own, "USD", "USD", 1), 400, "INVALID_INPUT")
    refused(set_rate(own, "USD", "XXX", 1), 400, "INVALID_CURRENCY")
    refused(set_rate(own, "XXX", "USD", 1), 400, "INVALID_CURRENCY")
    refused(set_rate(own, "usd", "EUR", 1), 400, "INVALID_INPUT")


def test_a_query_that_is_not_understood_is_refused(own: Api) -> None:
    for amount in ("0", "-1", "1.5", "x", "9000000000000001", "9" * 30):
        query = {"sourceCurrency": "USD", "destinationCurrency": "EUR", "sendingAmount": amount}
        refused(own.http.get("/exchange-rates", params=query), 400, "INVALID_INPUT")
    refused(own.get("/exchange-rates", sourceCurrency="XXX"), 400, "INVALID_CURRENCY")
    refused(own.get("/exchange-rates", destinationCurrency="XXX"), 400, "INVALID_CURRENCY")
    many = {"destinationCurrency": ["EUR"] * 41}
    refused(own.http.get("/exchange-rates", params=many), 400, "INVALID_INPUT")


def test_an_amount_that_is_beyond_64_bits_elsewhere_is_out_of_range(own: Api) -> None:
    ok(set_rate(own, "USD", "EUR", 1e-9))

    error = refused(
        own.get(
            "/exchange-rates",
            sourceCurrency="USD",
            destinationCurrency="EUR",
            sendingAmount=9_000_000_000_000_000,
        ),
        400,
        "AMOUNT_OUT_OF_RANGE",
    )

    assert error["details"]["errors"][0]["field"] == "sendingAmount"


def test_outside_a_sandbox_there_are_the_rates_of_the_installation_alone(
    api_config: ApiConfig, own: Api
) -> None:
    ok(set_rate(own, "USD", "EUR", 4))

    with (
        server(replace(api_config, sandbox=False)) as url,
        Api(url, own.tenant) as production,
    ):
        assert listed(production, sourceCurrency="USD") == []


def test_a_list_of_all_pairs_does_not_block_the_event_loop(api_config: ApiConfig) -> None:
    currencies = ("USD", "EUR", "GBP", "JPY", "CHF")
    watch = LoopWatch()
    gc_tuning.freeze(for_latency=True)  # As in an API process.
    amounts = iter(range(10_000, 20_000))  # None of them was listed before.
    with (
        server(api_config, watch=watch) as root,
        Api(root, new_tenant(api_config.database_url, currencies=currencies)) as client,
    ):

        def request() -> None:
            assert len(listed(client, sendingAmount=next(amounts))) > 500

        request()
        watch.assert_not_blocked_by(request)
    gc.unfreeze()
    gc_tuning.relax()


def test_a_list_that_was_computed_is_shown_until_a_rate_or_a_fee_changes(
    at_one_moment: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(set_rate(at_one_moment, "USD", "EUR", 1.25))
    computed: list[int] = []

    def offers(*given: Any, sending_amount: int) -> Any:  # noqa: ANN401 - as the function
        computed.append(sending_amount)
        return exchange_rates.offers(*given, sending_amount=sending_amount)

    monkeypatch.setattr(routes, "exchange_rates", SimpleNamespace(offers=offers))
    query: dict[str, str | int | list[str]] = {"sourceCurrency": "USD", "sendingAmount": 12_300}

    first, again = listed(at_one_moment, **query), listed(at_one_moment, **query)
    ok(set_rate(at_one_moment, "USD", "EUR", 1.5))
    changed = listed(at_one_moment, **query)

    assert first == again
    assert computed.count(12_300) == 2, "before and after the change"
    assert [rate["exchangeRate"] for rate in euros(first)] == [1.25, 1.25]
    assert [rate["exchangeRate"] for rate in euros(changed)] == [1.5, 1.5]


def euros(rates: list[Json]) -> list[Json]:
    return [rate for rate in rates if rate["destinationCurrency"]["code"] == "EUR"]
