"""What a settlement file consists of: a header, lines and totals; and why one is refused."""

from enum import StrEnum
from typing import Final, NamedTuple

FORMAT: Final = "cardledger-settlement-1"
"""The name of the canonical form."""

COLUMNS: Final = (
    "record",
    "file_id",
    "network",
    "settlement_date",
    "cycle",
    "type",
    "reference",
    "network_reference",
    "token",
    "card_id",
    "amount",
    "currency",
    "merchant_amount",
    "merchant_currency",
    "interchange",
    "transaction_date",
    "merchant",
    "mcc",
    "count",
)
"""The columns of the canonical form; a file has them in any order."""

PLACE: Final = {name: place for place, name in enumerate(COLUMNS)}
"""The place of each column in a row, as rows are passed on."""


class LineType(StrEnum):
    """What a line is about."""

    PRESENTMENT = "PRESENTMENT"
    PRESENTMENT_REVERSAL = "PRESENTMENT_REVERSAL"
    CREDIT = "CREDIT"
    CREDIT_REVERSAL = "CREDIT_REVERSAL"
    FEE = "FEE"
    FEE_REVERSAL = "FEE_REVERSAL"


SIGNS: Final = {
    LineType.PRESENTMENT.value: 1,
    LineType.PRESENTMENT_REVERSAL.value: -1,
    LineType.CREDIT.value: -1,
    LineType.CREDIT_REVERSAL.value: 1,
    LineType.FEE.value: 1,
    LineType.FEE_REVERSAL.value: -1,
}
"""The sign of a line in totals: + is due to the network, - is due from it."""


class Code(StrEnum):
    """Why a file is refused."""

    EMPTY_FILE = "EMPTY_FILE"
    BAD_HEADER = "BAD_HEADER"
    NO_HEADER = "NO_HEADER"
    NO_TRAILER = "NO_TRAILER"
    TRUNCATED = "TRUNCATED"
    CONTROL_COUNT = "CONTROL_COUNT"
    CONTROL_TOTAL = "CONTROL_TOTAL"
    NOT_UTF8 = "NOT_UTF8"
    BAD_AMOUNT = "BAD_AMOUNT"
    BAD_DATE = "BAD_DATE"
    BAD_TYPE = "BAD_TYPE"
    UNKNOWN_CURRENCY = "UNKNOWN_CURRENCY"
    UNKNOWN_NETWORK = "UNKNOWN_NETWORK"
    FILE_ID_REUSED = "FILE_ID_REUSED"
    FILE_REPEATED = "FILE_REPEATED"
    PAN_FOUND = "PAN_FOUND"
    # Of statements of the bank only.
    MIXED_ACCOUNTS = "MIXED_ACCOUNTS"
    TOO_LARGE = "TOO_LARGE"
    STATEMENT_OVERLAPS = "STATEMENT_OVERLAPS"


class RefusedError(Exception):
    """A file is refused as a whole.

    `line`: the line of the file, from 1 on, on which the row begins; None: the file as a whole.
    `column`: the column of the canonical form; None: the row as a whole. The message never quotes
    a card number.
    """

    def __init__(
        self, code: Code, message: str, *, line: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.line: Final = line
        self.column: Final = column


# Named tuples, because a file has millions of lines and these are made four times as fast as
# dataclasses.


class Header(NamedTuple):
    """Which file it is; `settlement_date` is YYYY-MM-DD, the network's business date."""

    file_id: str
    network: str
    settlement_date: str
    cycle: str | None


class Line(NamedTuple):
    """A movement of money. Empty text fields are None.

    Units: `amount` minor units of `currency`, always positive; `merchant_amount` minor units of
    `merchant_currency`; `interchange` millionths of a unit of `currency`, + is earned.
    `line` is the line of the file on which the row begins.
    """

    line: int
    type: str
    reference: str | None
    network_reference: str | None
    token: str | None
    card_id: str | None
    amount: int
    currency: str
    merchant_amount: int | None
    merchant_currency: str | None
    interchange: int | None
    transaction_date: str | None
    merchant: str | None
    mcc: str | None


class Totals(NamedTuple):
    """What the lines of a currency add up to: their number, and their signed `amount`.

    Units: as of `Line`.
    """

    lines: int
    amount: int
    interchange: int
