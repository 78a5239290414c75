"""What the sandbox answers in place of an issuer and of the funding account's bank.

The engine's only door to the sandbox: every answer depends on the merchant descriptor alone, and
outside the sandbox there is none.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cardledger.ledger.core import sandbox
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.projections.card_transaction import Identity


class SandboxAnswers:
    """Answers for one batch."""

    def __init__(self, delay: timedelta | None) -> None:
        """Answer late confirmations after `delay`; None: not in the sandbox."""
        self._delay: Final = delay

    def descriptor(self, identity: Identity, body: Mapping[str, Any]) -> str:
        """Return the descriptor whose suffix selects the answers; empty outside the sandbox."""
        if self._delay is None:
            return ""
        merchant = body.get("merchant") or {}
        return identity.descriptor or merchant.get("descriptor") or ""

    def forced_decline(self, descriptor: str) -> DeclineReason | None:
        """Return the decline that `descriptor` requests; None: decide by the rules."""
        return sandbox.forced_decline(descriptor)

    def refuses_pull(self, identity: Identity) -> bool:
        """Return whether a pull after a clearing fails, as if without funds."""
        return self._delay is not None and sandbox.refuses_pull(identity.descriptor or "")

    def confirms_later(self, descriptor: str) -> bool:
        """Return whether the pull of an authorization stays pending for a while."""
        return sandbox.confirms_later(descriptor)

    def confirms(self, descriptor: str) -> bool:
        """Return whether the confirmation of a pending pull will succeed."""
        return sandbox.confirms(descriptor)

    def confirmation_due_at(self, now: datetime) -> datetime:
        """Return when a pull that is pending since `now` gets its confirmation."""
        assert self._delay is not None, "only the sandbox confirms later"
        return now + self._delay
