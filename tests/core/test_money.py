"""Amounts: what a `bigint` holds, and not one unit more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError, checked


def test_the_largest_amount_is_the_largest_bigint() -> None:
    assert MAX_AMOUNT == 9_223_372_036_854_775_807


@given(st.integers(0, MAX_AMOUNT))
def test_a_total_in_range_is_itself(total: int) -> None:
    assert checked(total) == total


@given(st.integers(max_value=-1) | st.integers(min_value=MAX_AMOUNT + 1))
def test_a_total_out_of_range_raises(total: int) -> None:
    with pytest.raises(AmountOutOfRangeError, match=str(total)):
        checked(total)
