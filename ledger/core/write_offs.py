"""What comes back of a write-off: money of the network makes good the loss, then is the customer's.

Source: docs/decisions/0068-write-offs.md
"""

from cardledger.ledger.core import events
from cardledger.ledger.core.state import CardTransaction


def clearing_reversed(state: CardTransaction, amount: int) -> list[events.Event]:
    """Return the reversal of `amount` of the clearings, then what makes good a loss with it."""
    unfunded = min(amount, state.overdrawn)
    final = not state.closed and not state.authorized and amount == state.settled
    reversed_ = events.ClearingReversed(amount=amount, unfunded=unfunded, final=final)
    if not state.written_off:
        return [reversed_]
    back = from_holds(amount - unfunded, state.clearings_written_off, state.debits_written_off)
    return [reversed_, *back]


def from_holds(back: int, clearings: int, debits: int) -> list[events.Event]:
    """Return the events by which money that a reversed clearing gave back makes good a loss.

    Units: `back` is in the card holds now; `clearings` and `debits` are what is written off of
    clearings and of refund reversals. All in minor units.
    """
    facts: list[events.Event] = []
    of_clearings = min(back, clearings)
    if of_clearings:
        facts.append(events.WriteOffReversed(amount=of_clearings))
    of_debits = min(back - of_clearings, debits)
    if of_debits:
        # The customer has paid this hold, and kept the refund that was reversed.
        facts.append(events.Released(amount=of_debits))
        facts.append(events.WriteOffRecovered(amount=of_debits, unfunded=0))
    return facts


def from_refund(refunded: int, clearings: int, debits: int) -> events.Event:
    """Return the event by which a refund of `refunded` makes good a loss; arguments as above."""
    amount = min(refunded, clearings + debits)
    return events.WriteOffRecovered(amount=amount, unfunded=min(amount, clearings))
