"""The sandbox's funding rail: the end of the merchant descriptor chooses its answers."""

from datetime import datetime, timedelta
from typing import Final, final

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.ports import RailPayment, RailStep
from cardledger.ledger.sandbox.payment_rail import payment_step

_ISSUER_DECLINES: Final = {
    "002": DeclineReason.INSUFFICIENT_FUNDS,
    "003": DeclineReason.CARD_PAUSED,
}
_REFUSED_PULL: Final = "002"
_CONFIRMED_LATER: Final = "005"
_FAILED_LATER: Final = "006"


# The engine calls it for every authorization, so it is compiled: plain and final, without bases.
@final
class SandboxFundingRail:
    """Pays every pull at once, unless a suffix says otherwise (`ports.FundingRail`)."""

    def __init__(self, *, delay: timedelta) -> None:
        """Confirm pending pulls after `delay`."""
        self._delay: Final = delay

    def accepts_deposits(self) -> bool:
        return True

    def issuer_decline(self, descriptor: str) -> DeclineReason | None:
        return _ISSUER_DECLINES.get(descriptor[-3:])

    def refuses_pull(self, descriptor: str) -> bool:
        return descriptor.endswith(_REFUSED_PULL)

    def confirms_later(self, descriptor: str) -> bool:
        return descriptor.endswith((_CONFIRMED_LATER, _FAILED_LATER))

    def confirms(self, descriptor: str) -> bool:
        return not descriptor.endswith(_FAILED_LATER)

    def confirmation_due_at(self, requested_at: datetime) -> datetime:
        return requested_at + self._delay

    def payment_step(self, payment: RailPayment) -> RailStep | None:
        return payment_step(payment, self._delay)
