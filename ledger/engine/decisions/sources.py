"""Which messages there are, and which source may send which of them.

Those of the ledger itself come from its own parts only.

The MAC of a row shows that a process of this installation has accepted it; this shows that no
process has accepted in the name of another.
Source: docs/decisions/0049-macs-of-the-inbox.md
"""

import re
from collections.abc import Mapping
from typing import Final

from cardledger.ledger.engine.decisions.recovery import ENGINE
from cardledger.ledger.engine.parsing import RejectedError, UnknownTypeError
from cardledger.ledger.messaging import inbox, settlement_bookings, timeout_reversals
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import adjustments
from cardledger.schema.wire.network_events import RESERVED_SOURCES, EventType
from cardledger.schema.wire.outcomes import RejectionReason

# What a type of any release looks like.
_is_type: Final = re.compile(r"[A-Z][A-Z_]{0,63}").fullmatch

_SCHEDULE: Final = frozenset({"schedule"})

_OF_THE_LEDGER: Final[Mapping[str, frozenset[str]]] = {
    inbox.ADJUSTMENT: frozenset({adjustments.SOURCE}),
    inbox.SETTLEMENT_BOOKING: frozenset({settlement_bookings.SOURCE}),
    inbox.TRANSFER: frozenset({"transfers"}),
    inbox.TRANSFER_CANCELLATION: frozenset({"transfers"}),
    inbox.TRANSFER_APPROVAL: frozenset({"transfers"}),
    inbox.TRANSFER_REFUND: frozenset({"transfers"}),
    inbox.TRANSFER_ARRIVAL: frozenset({"transfers", ENGINE}),
    inbox.TRANSFER_RECEIPT: frozenset({ENGINE}),
    inbox.TRANSFER_FEE: frozenset({ENGINE}),
    inbox.TRANSFER_DUE: _SCHEDULE,
    inbox.RAIL_ANSWER: frozenset({"rail"}),
    inbox.CARD_CLOSED: frozenset({"cards", ENGINE}),
    inbox.RECOVERY: frozenset({ENGINE}),
    inbox.SUSPENSE: frozenset({ENGINE}),
    inbox.PULL_CONFIRMATION: _SCHEDULE,
    timeout_reversals.TIMEOUT_REVERSAL: frozenset({timeout_reversals.SOURCE}),
}
"""The sources of the messages that the ledger sends to itself, by type."""

_KNOWN: Final = frozenset({*EventType, *_OF_THE_LEDGER, inbox.DEPOSIT})


def check(message: Message, kind: str) -> None:
    """Check that the source of `message` may send a message of type `kind`.

    Any other type comes from the network, or is a deposit: under a name that is not reserved.
    Raises: RejectedError; UnknownTypeError, after which the cardholder waits for a worker of the
    newer release.
    """
    if kind not in _KNOWN:
        if not _is_type(kind):
            raise RejectedError(RejectionReason.MALFORMED, "Unknown event type.")
        raise UnknownTypeError(f"messages of type {kind} are of a newer release")
    allowed = _OF_THE_LEDGER.get(kind)
    if allowed is None:
        if message.source not in RESERVED_SOURCES:
            return
        allowed = _SCHEDULE if kind == EventType.AUTHORIZATION_EXPIRY else frozenset()
    if message.source not in allowed:
        raise RejectedError(
            RejectionReason.SOURCE_NOT_ALLOWED,
            f"Source {message.source} may not send messages of this type.",
        )
