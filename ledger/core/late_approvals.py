"""Approvals that could not be reported in time: what takes them back, also after a clearing.

Source: docs/decisions/0036-timeout-reversals.md
"""

from cardledger.ledger.core import commands, events, write_offs
from cardledger.ledger.core.money import checked
from cardledger.ledger.core.state import CardTransaction
from cardledger.ledger.core.status import Closure


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
