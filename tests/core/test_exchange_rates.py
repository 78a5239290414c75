"""Files of rates, and which rate applies to a pair of currencies."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.exchange import rate_file
from cardledger.ledger.exchange.rate_file import RateFileError
from cardledger.ledger.exchange.rates import (
    VALIDITY,
    MarketRate,
    Pair,
    Pricing,
    Rates,
    window_start,
)
from cardledger.ledger.quotes import corridors
from cardledger.ledger.sandbox.exchange_rates import SandboxExchangeRates
from cardledger.schema.wire.common import CURRENCIES

NOW = datetime(2026, 3, 1, 12, 3, 20, tzinfo=UTC)

FILE = """
source = "Our bank, 2026-03-01"
base = "USD"
[rates]
EUR = 0.92
JPY = 150
"""


def known(
    own: dict[Pair, MarketRate] | None = None,
    installation: dict[Pair, MarketRate] | None = None,
    *,
    sandbox: bool = True,
    spread_bps: int = 0,
) -> Rates:
    pricing = Pricing(
        reference=SandboxExchangeRates() if sandbox else None,
        spread_bps=spread_bps,
        with_own=sandbox,
    )
    return Rates(own=own or {}, installation=installation or {}, pricing=pricing, at=NOW)


def stored(
    source: str, destination: str, value: str, *, is_own: bool = False
) -> dict[Pair, MarketRate]:
    """Return a rate of the record, as it is read: in both directions."""
    rate = MarketRate(value=Fraction(value), updated_at=NOW, is_own=is_own)
    return {Pair(source, destination): rate, Pair(destination, source): rate.inverse()}


# --- files ---------------------------------------------------------------------------------------


def test_a_file_is_read_as_the_decimals_that_are_written() -> None:
    read = rate_file.parse(FILE.encode())

    assert read.source == "Our bank, 2026-03-01"
    assert read.base == "USD"
    assert read.rates == {"EUR": Fraction(92, 100), "JPY": Fraction(150)}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FILE.replace("0.92", "0"), "rates.EUR must be from"),
        (FILE.replace("0.92", "-0.92"), "rates.EUR must be from"),
        (FILE.replace("0.92", "nan"), "rates.EUR must be from"),
        (FILE.replace("0.92", "inf"), "rates.EUR must be from"),
        (FILE.replace("0.92", "1e13"), "rates.EUR must be from"),
        (FILE.replace("0.92", "1e-13"), "rates.EUR must be from"),
        (FILE.replace("0.92", "0.1234567890123456789"), "at most 18 digits"),
        (FILE.replace("0.92", '"0.92"'), "rates.EUR must be a number"),
        (FILE.replace("0.92", "true"), "rates.EUR must be a number"),
        (FILE.replace("EUR", "eur"), "rates.eur must be a currency code"),
        (FILE.replace("EUR", "USD"), "rates.USD is a rate of the base itself"),
        (FILE.replace('base = "USD"', ""), "base must be a currency code"),
        (FILE.replace("Our bank, 2026-03-01", " "), "source must say where"),
        (FILE.replace("[rates]", "[rate]"), "'rate' is not a known name"),
        (FILE.split("EUR", maxsplit=1)[0], "at least one currency"),
        (FILE.replace("=", "", 1), "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_what_to_change(
    content: str, words: str
) -> None:
    with pytest.raises(RateFileError, match=words):
        rate_file.parse(content.encode())


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"#" * (rate_file.MAX_SIZE + 1), b"a=" + b"[" * 9000]
)
def test_a_file_that_is_not_text_too_large_or_too_deep_is_refused(content: bytes) -> None:
    with pytest.raises(RateFileError):
        rate_file.parse(content)


@given(st.binary(max_size=200))
def test_any_other_content_is_refused_as_well(content: bytes) -> None:
    with pytest.raises(RateFileError):
        rate_file.parse(content)


# --- look-ups ------------------------------------------------------------------------------------


def test_the_sandbox_has_a_rate_between_any_two_currencies() -> None:
    rates = known(spread_bps=50)

    for source in ("USD", "EUR", "JPY", "BTC"):
        for destination in CURRENCIES:
            assert rates.rate(source, destination), (source, destination)


def test_without_a_source_there_is_no_rate() -> None:
    rates = known(sandbox=False)

    assert rates.rate("USD", "EUR") is None
    assert rates.rate("EUR", "GBP") is None


def test_a_currency_is_itself_without_a_source_or_a_spread() -> None:
    rate = known(sandbox=False, spread_bps=50).rate("USD", "USD")

    assert rate is not None
    assert rate.price == 1


def test_a_rate_is_sent_units_for_one_received_with_the_spread_on_top() -> None:
    eur = stored("USD", "EUR", "0.8")

    market = known(installation=eur).rate("USD", "EUR")
    sold = known(installation=eur, spread_bps=100).rate("USD", "EUR")
    back = known(installation=eur, spread_bps=100).rate("EUR", "USD")

    assert market is not None
    assert sold is not None
    assert back is not None
    assert market.price == Decimal("1.25")
    assert sold.price == Decimal("1.2625")
    assert back.price == Decimal("0.808")
    assert sold.price * back.price > 1, "there and back costs twice the spread"


@pytest.mark.parametrize(
    ("source", "destination", "value", "price"),
    [
        ("USD", "JPY", "150", "0.666666666667"),  # Cents for a yen.
        ("JPY", "USD", "0.01", "1"),  # Yen for a cent: 100 of them are a dollar.
        ("USD", "BTC", "0.00001", "0.1"),  # Cents for a satoshi.
        ("USD", "USDC", "1", "0.0001"),  # Cents for a millionth.
    ],
)
def test_prices_are_in_minor_units_of_currencies_with_other_decimals(
    source: str, destination: str, value: str, price: str
) -> None:
    rate = known(installation=stored(source, destination, value)).rate(source, destination)

    assert rate is not None
    assert rate.price == Decimal(price)


def test_what_the_platform_has_set_comes_first_and_has_no_spread() -> None:
    rates = known(
        own=stored("USD", "EUR", "0.5", is_own=True),
        installation=stored("USD", "EUR", "0.8"),
        spread_bps=100,
    )

    there = rates.rate("USD", "EUR")
    back = rates.rate("EUR", "USD")

    assert there is not None
    assert back is not None
    assert (there.price, back.price) == (Decimal(2), Decimal("0.5"))


def test_two_currencies_without_a_rate_of_their_own_are_converted_over_dollars() -> None:
    rates = known(installation=stored("USD", "EUR", "0.8") | stored("USD", "GBP", "0.4"))

    rate = rates.rate("EUR", "GBP")
    direct = known(
        installation=stored("USD", "EUR", "0.8")
        | stored("USD", "GBP", "0.4")
        | stored("EUR", "GBP", "0.625")
    ).rate("EUR", "GBP")

    assert rate is not None
    assert direct is not None
    assert (rate.price, direct.price) == (Decimal(2), Decimal("1.6"))


def test_a_rate_beyond_what_an_amount_can_be_of_is_none() -> None:
    rates = known(installation=stored("USD", "EUR", "1e-12"))

    assert rates.rate("USD", "EUR") is None


def test_rates_are_refreshed_every_five_minutes() -> None:
    later = NOW + timedelta(minutes=1)
    newer = stored("USD", "EUR", "0.8")
    newer = {pair: MarketRate(value=rate.value, updated_at=later) for pair, rate in newer.items()}

    assert window_start(NOW) == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert window_start(NOW + VALIDITY) == datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    assert known().updated_at("USD", "EUR") == window_start(NOW)
    assert known(installation=newer).updated_at("USD", "EUR") == later


def test_every_currency_that_an_external_account_can_have_has_a_rail_or_a_network() -> None:
    assert set(corridors.currencies()) == set(CURRENCIES)
    assert corridors.rails_of("EUR") == ("SEPA", "SEPA_INSTANT")
    assert corridors.rails_of("USD") == ("ACH", "WIRE", "RTP", "FEDNOW")
    assert corridors.rails_of("JPY") == ("SWIFT",)
    assert corridors.rails_of("BTC") == ("LIGHTNING", "SPARK")
