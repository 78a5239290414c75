"""Approvals that could not be reported in time: what takes them back, also after a clearing.

Source: docs/decisions/0036-timeout-reversals.md
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import NamedTuple

from cardledger.ledger.core import commands, events, write_offs
from cardledger.ledger.core.money import checked
from cardledger.ledger.core.state import CardTransaction
from cardledger.ledger.core.status import Closure


class ApprovalKind(Enum):
    """What was approved; it decides which network reversals can belong to it."""

    HOLD = auto()
    FINANCIAL = auto()
    CREDIT = auto()


@dataclass(frozen=True, slots=True)
class LateApproval:
    """An approval that a timeout reversal takes back.

    `amount`, in minor units, was approved by the event with the sequence `approved_at`; the timeout
    reversal was decided after the event with the sequence `reversed_at`.
    """

    kind: ApprovalKind
    amount: int
    approved_at: int
    reversed_at: int


class NetworkReversal(NamedTuple):
    """What an event took back; the amount is negative where it reversed a refund."""

    sequence: int
    amount: int  # Minor units.
    is_refund: bool = False


class Claim(NamedTuple):
    """What of a late approval the network has taken back, in minor units."""

    refunded: int
    reversed: int  # By anything but refunds.


def claims(
    late: Iterable[LateApproval], reversals: Iterable[NetworkReversal]
) -> list[tuple[LateApproval, Claim]]:
    """Return what `reversals` take back of each of `late`, in the order of their timeout reversals.

    A network reversal names no authorization. It belongs to one of the approvals that it follows
    and that had no timeout reversal before it; each minor unit belongs to one of them only, so that
    none stays because another one was reversed. Each claims the oldest first: these follow the
    fewest approvals. The reversal of a refund takes away the latest refunds that are not claimed.
    """
    waiting = sorted(late, key=attrgetter("reversed_at"))[::-1]  # The next one is the last.
    unclaimed = _Unclaimed()
    found = []
    for reversal in sorted(reversals):
        while waiting and waiting[-1].reversed_at < reversal.sequence:
            found.append((waiting[-1], unclaimed.claim(waiting.pop())))
        unclaimed.add(reversal)
    while waiting:
        found.append((waiting[-1], unclaimed.claim(waiting.pop())))
    return found


class _Unclaimed:
    """Network reversals, the oldest first, that belong to no approval yet."""

    def __init__(self) -> None:
        self._sequences: list[int] = []
        self._amounts: list[int] = []
        self._are_refunds: list[bool] = []

    def add(self, reversal: NetworkReversal) -> None:
        """Add `reversal`, the latest so far; the reversal of a refund takes refunds away."""
        if reversal.amount > 0:
            self._sequences.append(reversal.sequence)
            self._amounts.append(reversal.amount)
            self._are_refunds.append(reversal.is_refund)
            return
        left, place = -reversal.amount, len(self._amounts) - 1
        while left and place >= 0:
            if self._are_refunds[place]:
                left -= self._take(place, left)
            place -= 1

    def claim(self, approval: LateApproval) -> Claim:
        """Take up to the amount of `approval` of what came after it."""
        refunded = returned = 0
        place = bisect_right(self._sequences, approval.approved_at)
        while (left := approval.amount - refunded - returned) and place < len(self._amounts):
            if self._are_refunds[place]:
                refunded += self._take(place, left)
            else:
                returned += self._take(place, left)
        return Claim(refunded, returned)

    def _take(self, place: int, most: int) -> int:
        amount = min(most, self._amounts[place])
        self._amounts[place] -= amount
        if not self._amounts[place]:
            del self._sequences[place], self._amounts[place], self._are_refunds[place]
        return amount


def taken_back(state: CardTransaction, command: commands.TakeBack) -> list[events.Event]:
    """Return the events by which the approval of `command` counts as never given."""
    cleared = min(command.cleared, state.settled)
    authorized = min(command.authorized, state.authorized)
    facts = write_offs.clearing_reversed(state, cleared) if cleared else []
    is_cleared = state.closed_by is Closure.CLEARED
    reopens = is_cleared and command.reopens
    if not authorized and not reopens:
        return facts
    left = max(state.authorized - authorized - (state.settled - cleared), 0)
    final = not reopens if is_cleared else not left
    facts.append(events.AuthorizationReversed(amount=authorized, final=final))
    if reopens and left and command.is_closed:
        # Closing the card found it closed: what was to be released then is released now.
        facts.append(events.AuthorizationCancelled(amount=left))
    return facts


def reopen(draft: CardTransaction, amount: int, *, stays_closed: bool) -> None:
    """Reverse `amount` of a card transaction that a clearing had closed.

    Without that clearing it is open, or voided when nothing is left to clear: a new authorization
    opens it again then, as after any other reversal.
    """
    draft.authorized = checked(draft.authorized - amount)
    if not stays_closed:
        draft.closed_by = None if draft.outstanding else Closure.REVERSED
