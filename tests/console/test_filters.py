"""Fields of filters and forms: what is read as an amount, and what is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError

from cardledger.api.console.lists.filters import Amount, NamedAmount
from tests.console.person import Person, shown

AMOUNTS: TypeAdapter[NamedAmount] = TypeAdapter(Amount)


@pytest.mark.parametrize(
    ("text", "minor_units", "currency"),
    [
        ("12.50 USD", 1_250, "USD"),
        ("12.5usd", 1_250, "USD"),
        ("1,234.5 USD", 123_450, "USD"),
        ("1,234,567.89 USD", 123_456_789, "USD"),
        ("1234567.89 USD", 123_456_789, "USD"),
        ("0.01 USD", 1, "USD"),
        ("1,500 EUR", 150_000, "EUR"),
        ("1,500 JPY", 1_500, "JPY"),
        ("1500 JPY", 1_500, "JPY"),
        ("1.500 KWD", 1_500, "KWD"),
        ("1,500 KWD", 1_500_000, "KWD"),
        ("1,234.567 KWD", 1_234_567, "KWD"),
        ("92,233,720,368,547,758.07 USD", 2**63 - 1, "USD"),
    ],
)
def test_a_comma_separates_groups_of_three_digits(
    text: str, minor_units: int, currency: str
) -> None:
    read = AMOUNTS.validate_python(text)

    assert (read.minor_units, read.currency) == (minor_units, currency)


@pytest.mark.parametrize(
    "text",
    [
        "1,50 EUR",
        "1,5 EUR",
        "1,5000 EUR",
        "12,34,567 EUR",
        "1234,567 EUR",
        "0,500 EUR",
        "1,,234 EUR",
        "1,234, EUR",
        ",234 EUR",
        "1.234,50 EUR",
        "1.234.567 EUR",
        "1.50,000 EUR",
        "1,50 JPY",
        "1,50 KWD",
    ],
)
def test_another_comma_is_refused_with_how_amounts_are_written(text: str) -> None:
    with pytest.raises(ValidationError, match="decimals follow a point, and a comma only"):
        AMOUNTS.validate_python(text)


@pytest.mark.parametrize("text", ["1.5 JPY", "1,234.5 JPY", "1.2345 KWD", "1.505 EUR"])
def test_more_decimals_than_the_currency_has_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must have at most [0-3] decimals"):
        AMOUNTS.validate_python(text)


def test_a_filter_says_how_amounts_are_written(person: Person) -> None:
    page = shown(person.get("/card-transactions", minAmount="1,50 EUR"), 400)

    assert "such as 1,234.50 USD: decimals follow a point" in page
    shown(person.get("/card-transactions", minAmount="1,500.00 EUR"))
