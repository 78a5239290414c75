"""The answers of the funding rail, or the defaults where no rail is connected.

The only place where the engine calls a port. Without a rail nothing is called: an internal account
pays at once, and the ledger's own rules decide alone.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.engine.parsing import merchant_of
from cardledger.ledger.ports import FundingRail, RailPayment, RailStep
from cardledger.ledger.projections.card_transaction import Identity


class RailAnswers:
    """Answers for one batch."""

    def __init__(self, rail: FundingRail | None) -> None:
        self._rail: Final = rail

    @property
    def is_connected(self) -> bool:
        """Whether there is a rail."""
        return self._rail is not None

    def accepts_deposits(self) -> bool:
        """Return whether deposits are simulated: by the rail of a sandbox."""
        return self._rail is not None and self._rail.accepts_deposits()

    def descriptor(self, identity: Identity, body: Mapping[str, Any]) -> str:
        """Return the merchant descriptor for the rail; empty where no rail is connected."""
        if self._rail is None:
            return ""
        return identity.descriptor or merchant_of(body)[0] or ""

    def issuer_decline(self, descriptor: str) -> DeclineReason | None:
        """Return the decline of the issuer's processor; None: decide by the rules."""
        return None if self._rail is None else self._rail.issuer_decline(descriptor)

    def refuses_pull(self, identity: Identity) -> bool:
        """Return whether a pull after a clearing fails, as if without funds."""
        return self._rail is not None and self._rail.refuses_pull(identity.descriptor or "")

    def confirms_later(self, descriptor: str) -> bool:
        """Return whether the pull of an authorization stays pending for a while."""
        return self._rail is not None and self._rail.confirms_later(descriptor)

    def confirms(self, descriptor: str) -> bool:
        """Return whether the confirmation of a pending pull will succeed."""
        assert self._rail is not None, "only a rail confirms later"
        return self._rail.confirms(descriptor)

    def confirmation_due_at(self, now: datetime) -> datetime:
        """Return when a pull that is pending since `now` gets its confirmation."""
        assert self._rail is not None, "only a rail confirms later"
        return self._rail.confirmation_due_at(now)

    def payment_step(self, payment: RailPayment) -> RailStep | None:
        """Return what the rail does next with `payment`; None: nothing that is known."""
        return None if self._rail is None else self._rail.payment_step(payment)
