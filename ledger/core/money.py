"""Amounts: integers of minor units, as a PostgreSQL `bigint` holds them. Never a float."""

from typing import Final

MAX_AMOUNT: Final = 2**63 - 1
"""The largest amount, and the largest total, that a `bigint` column keeps."""


class AmountOutOfRangeError(ValueError):
    """A total would not fit a `bigint`; nothing was decided."""


def checked(total: int) -> int:
    """Return `total` if a `bigint` column can hold it.

    Raises: AmountOutOfRangeError when it is negative or above `MAX_AMOUNT`.
    """
    if 0 <= total <= MAX_AMOUNT:
        return total
    raise AmountOutOfRangeError(
        f"Amount out of range: a total of {total} minor units is not between 0 and {MAX_AMOUNT}."
    )
