"""What a statement of the bank consists of: balances and lines."""

from typing import Final, NamedTuple

FORMAT: Final = "cardledger-bank-1"
"""The name of the canonical form."""

REQUIRED: Final = (
    "booking_date",
    "value_date",
    "amount",
    "currency",
    "bank_reference",
    "description",
    "opening",
    "closing",
)
"""The columns that each file of the canonical form has, in any order."""

OPTIONAL: Final = ("account", "statement_id")
"""Columns that a file may have beside them."""

COLUMNS: Final = (*REQUIRED, *OPTIONAL)
"""The order in which rows are passed on; an optional column that is absent is empty."""

PLACE: Final = {name: place for place, name in enumerate(COLUMNS)}
"""The place of each column in a row."""

DEFAULT_ACCOUNT: Final = "SETTLEMENT"
"""The account of a statement that does not say one."""


class Line(NamedTuple):
    """A movement on the account. Empty text fields are None; dates are YYYY-MM-DD.

    Units: `amount` minor units of the currency of the account, positive: it arrived.
    `line` is the line of the file on which the row begins.
    """

    line: int
    booking_date: str
    value_date: str | None
    amount: int
    bank_reference: str | None
    description: str | None


class Summary(NamedTuple):
    """What a statement is as a whole, once all of it was read and checked.

    Units: balances in minor units of `currency`; `digest` is the SHA-256 of what was parsed.
    """

    account: str
    statement_id: str
    currency: str
    first_day: str
    last_day: str
    opening: int
    closing: int
    lines: int
    digest: str
