"""Amounts on the command line: in units of their currency, exact, or refused."""

import pytest

from cardledger.commands.daily.arguments import amount_of
from cardledger.config.errors import USAGE, CommandError


@pytest.mark.parametrize(
    ("text", "currency", "decimals", "expected"),
    [
        ("12.34", "USD", 2, 1234),
        ("12.3", "USD", 2, 1230),
        ("12", "USD", 2, 1200),
        ("0.01", "USD", 2, 1),
        ("007.10", "USD", 2, 710),
        ("1.234", "KWD", 3, 1234),
        ("1250", "JPY", 0, 1250),
        ("92233720368547758.07", "USD", 2, 2**63 - 1),
        ("9223372036854775807", "JPY", 0, 2**63 - 1),
    ],
)
def test_an_amount_is_read_to_the_last_decimal(
    text: str, currency: str, decimals: int, expected: int
) -> None:
    assert amount_of(text, currency, decimals, "--amount") == expected


@pytest.mark.parametrize(
    ("text", "currency", "decimals", "message"),
    [
        ("12.345", "USD", 2, "USD has 2 decimals"),
        ("12.340", "USD", 2, "USD has 2 decimals"),
        ("1.2345", "KWD", 3, "KWD has 3 decimals"),
        ("1250.0", "JPY", 0, "JPY has no decimals"),
        ("0", "USD", 2, "more than 0"),
        ("0.00", "USD", 2, "more than 0"),
        ("92233720368547758.08", "USD", 2, "at most 9223372036854775807"),
        ("9" * 40, "JPY", 0, "at most 9223372036854775807"),
        ("9" * 41, "JPY", 0, "not an amount"),
        ("-1", "USD", 2, "not an amount"),
        ("+1", "USD", 2, "not an amount"),
        ("1,234.50", "USD", 2, "not an amount"),
        ("1e3", "USD", 2, "not an amount"),
        (".5", "USD", 2, "not an amount"),
        ("5.", "USD", 2, "not an amount"),
        ("", "USD", 2, "not an amount"),
        (" 1", "USD", 2, "not an amount"),
        ("NaN", "USD", 2, "not an amount"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "USD", 2, "not an amount"),
        ("1\n", "USD", 2, "not an amount"),
    ],
)
def test_what_is_no_amount_of_the_currency_is_a_usage_error(
    text: str, currency: str, decimals: int, message: str
) -> None:
    with pytest.raises(CommandError, match=message) as refused:
        amount_of(text, currency, decimals, "--amount")

    assert refused.value.code == USAGE
