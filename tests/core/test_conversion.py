"""Conversions: the amounts of a rate and its fees, and that no conversion creates money."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.payments.conversion import (
    BASIS_POINTS,
    NO_FEES,
    PRICE_DIGITS,
    SAME,
    Conversion,
    ConversionRangeError,
    Fees,
    LockedSide,
    Rate,
    RateOutOfRangeError,
    compared,
    converted,
    received_for,
    sent_for,
)

SENDING, RECEIVING = LockedSide.SENDING, LockedSide.RECEIVING
DECIMALS = (0, 2, 3, 6, 8)

amounts = st.one_of(st.integers(1, 10_000), st.integers(1, MAX_AMOUNT))
sides = st.sampled_from(LockedSide)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    """A rate between currencies of any numbers of decimals, from a price in major units."""
    price = Fraction(draw(st.integers(1, 10**9)), draw(st.integers(1, 10**6)))
    sent, received = draw(st.sampled_from(DECIMALS)), draw(st.sampled_from(DECIMALS))
    in_minor_units = price * Fraction(10**sent, 10**received)
    assume(Fraction(1, 10**9) <= in_minor_units <= 10**9)
    return Rate.at(in_minor_units)


@st.composite
def charges(draw: st.DrawFn) -> Fees:
    platform_bps = draw(st.integers(0, BASIS_POINTS - 1))
    return Fees(
        platform_fixed=draw(st.integers(0, 500)),
        platform_bps=platform_bps,
        service_fixed=draw(st.integers(0, 500)),
        service_bps=draw(st.integers(0, BASIS_POINTS - 1 - platform_bps)),
    )


def attempt(side: LockedSide, amount: int, rate: Rate, fees: Fees = NO_FEES) -> Conversion:
    """Return a conversion; give up on examples whose amount cannot be converted."""
    try:
        return converted(side, amount, rate, fees)
    except ConversionRangeError:
        assume(condition=False)
        raise


@given(sides, amounts, rates(), charges())
def test_what_is_sent_is_fees_and_what_is_converted(
    side: LockedSide, amount: int, rate: Rate, fees: Fees
) -> None:
    made = attempt(side, amount, rate, fees)

    assert amount == (made.sent if side is SENDING else made.received)
    assert 1 <= made.received <= MAX_AMOUNT
    assert made.sent <= MAX_AMOUNT
    assert min(made.platform_fee, made.service_fee) >= 0
    rest = made.sent - made.fee
    if side is SENDING:
        assert made.received == received_for(rest, rate)
    else:
        assert rest == sent_for(made.received, rate)
        assert made.received <= received_for(rest, rate)


@given(st.lists(st.tuples(sides, amounts), max_size=30), rates())
def test_no_sum_of_conversions_creates_money(
    steps: list[tuple[LockedSide, int]], rate: Rate
) -> None:
    sent = received = 0

    for side, amount in steps:
        try:
            made = converted(side, amount, rate)
        except ConversionRangeError:
            continue
        sent += made.sent
        received += made.received

    # Whatever is split into however many conversions, all at once would give as much or more.
    assert received <= received_for(sent, rate)


@given(amounts, rates())
def test_there_and_back_at_the_inverse_rate_never_gives_more(amount: int, there: Rate) -> None:
    back = Rate.at(1 / Fraction(there.price))

    received = received_for(amount, there)

    assert received_for(received, back) <= amount


@given(amounts, rates(), charges())
def test_the_least_is_sent_for_what_is_received(received: int, rate: Rate, fees: Fees) -> None:
    made = attempt(RECEIVING, received, rate, fees)

    try:
        with_less = converted(SENDING, made.sent - 1, rate, fees)
    except ConversionRangeError:
        return
    assert with_less.received < received


@given(st.integers(1, 10**12), charges())
def test_the_fees_together_are_the_rounded_sum_of_both_parts(sent: int, fees: Fees) -> None:
    made = attempt(SENDING, sent, SAME, fees)

    base = sent - fees.fixed
    exact = Fraction(base * fees.bps, BASIS_POINTS)
    assert fees.fixed + exact <= made.fee < fees.fixed + exact + 1
    assert made.service_fee == fees.service_fixed + base * fees.service_bps // BASIS_POINTS


@given(st.integers(1, 10**18), st.integers(1, 10**18))
def test_a_price_is_rounded_up_to_its_digits_and_applied_as_it_is_shown(
    numerator: int, denominator: int
) -> None:
    price = Fraction(numerator, denominator)
    assume(Fraction(1, 10**9) <= price <= 10**9)

    rate = Rate.at(price)

    assert max(rate.numerator, rate.denominator) <= MAX_AMOUNT
    assert price <= Fraction(rate.price) < price * (1 + Fraction(10) ** (1 - PRICE_DIGITS) * 1000)
    assert Decimal(repr(float(rate.price))) == rate.price, "JSON shows it exactly"
    assert Fraction(rate.price) == Fraction(rate.denominator, rate.numerator)


@given(amounts, rates())
def test_what_is_compared_with_a_limit_is_never_less_than_the_amount(
    amount: int, rate: Rate
) -> None:
    assert compared(amount, rate) >= received_for(amount, rate)
    assert Fraction(compared(amount, rate)) >= amount / Fraction(rate.price)


@pytest.mark.parametrize(
    ("side", "amount", "price", "fees", "sent", "received", "platform_fee"),
    [
        # 100.00 USD at 1.09 USD for a euro: 91.743… EUR.
        (SENDING, 10_000, "1.09", NO_FEES, 10_000, 9_174, 0),
        (RECEIVING, 9_174, "1.09", NO_FEES, 10_000, 9_174, 0),
        # 0.50 USD and 1 %: of 99.50 USD it is 0.995, rounded up.
        (SENDING, 10_000, "1", Fees(platform_fixed=50, platform_bps=100), 10_000, 9_850, 150),
        (RECEIVING, 9_850, "1", Fees(platform_fixed=50, platform_bps=100), 10_000, 9_850, 150),
        # One dinar, of three decimals, for 3.25 USD; one yen, without decimals, for 0.67 cents.
        (SENDING, 325, "0.325", NO_FEES, 325, 1_000, 0),
        (SENDING, 10_000, "0.67", NO_FEES, 10_000, 14_925, 0),
        # The largest amount, and the smallest.
        (SENDING, MAX_AMOUNT, "1", NO_FEES, MAX_AMOUNT, MAX_AMOUNT, 0),
        (RECEIVING, 1, "1000000000", NO_FEES, 1_000_000_000, 1, 0),
    ],
)
def test_amounts_of_a_conversion(  # noqa: PLR0913, PLR0917 - a table
    side: LockedSide,
    amount: int,
    price: str,
    fees: Fees,
    sent: int,
    received: int,
    platform_fee: int,
) -> None:
    made = converted(side, amount, Rate.at(Fraction(price)), fees)

    assert (made.sent, made.received, made.platform_fee) == (sent, received, platform_fee)


@pytest.mark.parametrize(
    ("side", "amount", "price", "fees"),
    [
        (SENDING, 0, "1", NO_FEES),
        (SENDING, -1, "1", NO_FEES),
        (SENDING, MAX_AMOUNT + 1, "1", NO_FEES),
        (RECEIVING, 0, "1", NO_FEES),
        (RECEIVING, MAX_AMOUNT, "2", NO_FEES),
        (SENDING, MAX_AMOUNT, "0.5", NO_FEES),
        (SENDING, 99, "100", NO_FEES),
        (SENDING, 50, "1", Fees(platform_fixed=50)),
        (SENDING, 100, "1", Fees(platform_bps=BASIS_POINTS)),
        (RECEIVING, 100, "1", Fees(platform_bps=BASIS_POINTS)),
    ],
)
def test_an_amount_that_cannot_be_converted_is_refused(
    side: LockedSide, amount: int, price: str, fees: Fees
) -> None:
    with pytest.raises(ConversionRangeError):
        converted(side, amount, Rate.at(Fraction(price)), fees)


@pytest.mark.parametrize(
    "price", [Fraction(0), Fraction(-1), Fraction(1, 10**10), Fraction(10**10)]
)
def test_a_rate_of_zero_a_negative_and_an_absurd_one_are_refused(price: Fraction) -> None:
    with pytest.raises(RateOutOfRangeError):
        Rate.at(price)


@pytest.mark.parametrize("parts", [(0, 1), (1, 0), (-1, 1), (1, -1), (MAX_AMOUNT + 1, 1)])
def test_a_rate_has_two_positive_parts(parts: tuple[int, int]) -> None:
    with pytest.raises(RateOutOfRangeError):
        Rate(*parts)
