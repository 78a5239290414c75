"""Why a card is not issued, or its funding sources are not changed."""

from enum import StrEnum
from typing import Final


class CardRefusal(StrEnum):
    """The rule that was broken, in the order in which the rules are checked."""

    DUPLICATE_FUNDING_SOURCE = "DUPLICATE_FUNDING_SOURCE"
    UNKNOWN_CARDHOLDER = "UNKNOWN_CARDHOLDER"
    KYC_NOT_APPROVED = "KYC_NOT_APPROVED"
    FUNDING_SOURCE_INELIGIBLE = "FUNDING_SOURCE_INELIGIBLE"
    PLATFORM_CARD_ID_TAKEN = "PLATFORM_CARD_ID_TAKEN"


class CardRefusedError(Exception):
    """Nothing is changed: `field` of the request is wrong, and the message says how."""

    def __init__(self, refusal: CardRefusal, field: str, message: str) -> None:
        super().__init__(message)
        self.refusal: Final = refusal
        self.field: Final = field
