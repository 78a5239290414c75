"""The sandbox's issuer: suffixes of `platformCardId` and of funding sources choose its answers."""

from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from typing_extensions import override

from cardledger.ledger.ports import CardNumber, IssuedCard, Issuer
from cardledger.ledger.sandbox import card_numbers
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id

_VALID_YEARS: Final = 4


class CardSuffix(StrEnum):
    """Endings of `platformCardId`."""

    NEVER_ISSUED = "001"
    REJECTED = "002"
    ISSUED_LATE = "005"


class FundingSourceSuffix(StrEnum):
    """Endings of a funding source's account id."""

    INSUFFICIENT_BALANCE = "002"
    ACCOUNT_CLOSED = "003"


class SandboxIssuer(Issuer):
    """Issues VISA test cards at once, unless a suffix says otherwise."""

    def __init__(self, keys: KeyRing, *, delay: timedelta) -> None:
        """Derive card numbers from `keys`; answer `delay` later where the suffix is 005."""
        self._keys: Final = keys
        self._delay: Final = delay

    @override
    def default_platform_card_id(self, card_id: Id, cardholder_id: Id) -> str:
        # It ends as the cardholder's id, which then chooses the answer.
        return f"{str(card_id)[:-3]}{str(cardholder_id)[-3:]}"

    @override
    def answer_due_at(self, platform_card_id: str, *, requested_at: datetime) -> datetime | None:
        match platform_card_id[-3:]:
            case CardSuffix.NEVER_ISSUED:
                return None
            case CardSuffix.ISSUED_LATE:
                return requested_at + self._delay
            case _:
                return requested_at

    @override
    def issue(self, card_id: Id, platform_card_id: str, *, at: datetime) -> IssuedCard | None:
        if platform_card_id.endswith(CardSuffix.REJECTED):
            return None
        return IssuedCard(
            brand="VISA",
            last4=f"{int.from_bytes(sha256(card_id).digest()) % 10_000:04}",
            exp_month=at.month,
            exp_year=at.year + _VALID_YEARS,
        )

    @override
    def funding_source_objection(self, account_id: Id) -> str | None:
        match str(account_id)[-3:]:
            case FundingSourceSuffix.INSUFFICIENT_BALANCE:
                return "does not have enough money to fund a card; fund the account first"
            case FundingSourceSuffix.ACCOUNT_CLOSED:
                return "is closed at its bank; use another account"
            case _:
                return None

    @override
    def card_number(self, card_id: Id, last4: str) -> CardNumber:
        return card_numbers.number_of(self._keys, card_id, last4)
