"""Why a quote is not made, or not executed."""

from enum import Enum, auto
from typing import Final


class Refusal(Enum):
    """Why a quote is refused."""

    INPUT = auto()  # An account or a field that does not fit.
    CURRENCY = auto()
    RANGE = auto()  # An amount that cannot be converted, or is beyond a limit.
    FUNDS = auto()  # The source has less than the amount.
    SELF = auto()  # From an account to itself.
    RATE = auto()  # There is no rate.
    NOT_READY = auto()  # A customer whose identity is not approved.
    UNVERIFIED = auto()  # An external account whose verification is not finished.
    NOT_SUPPORTED = auto()  # A way to pay that is not connected.
    UNKNOWN_LOOKUP = auto()
    UNKNOWN_UMA = auto()
    NOT_ALLOWED = auto()  # An institution to which payments are not allowed.
    MISSING_INFO = auto()  # What the institution of the receiver asks about the sender.
    STATE = auto()  # Executed, expired, or not yet authorized.


class QuoteRefusedError(Exception):
    """Nothing was written; `field` of the request is the cause, `reason` a code for programs."""

    def __init__(
        self,
        refusal: Refusal,
        message: str,
        *,
        field: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.refusal: Final = refusal
        self.field: Final = field
        self.reason: Final = reason
