"""Credits that the network authorizes before it moves them: nothing is booked until it does.

While a card transaction has such a credit and no purchase, messages that name no direction are
about the credit: its clearing, its advice, the reversal of either.

Source: docs/decisions/0075-credit-authorizations.md
"""

from cardledger.ledger.core import commands, events
from cardledger.ledger.core.authorization import credit_decline_reason
from cardledger.ledger.core.state import CardTransaction
from cardledger.ledger.core.status import Closure


def meant(command: commands.Command) -> commands.Command:
    """Return what `command` means for a card transaction that `is_credit`."""
    match command:
        case commands.Clear(amount=amount, final=final):
            return commands.SettleCredit(amount=amount, final=final)
        case commands.Refund(amount=amount):
            return commands.SettleCredit(amount=amount, final=None)
        case commands.Credit(amount=amount):
            return commands.SettleCredit(amount=amount, final=True)
        case commands.ReverseClearing(amount=amount, balance=balance):
            return commands.ReverseRefund(amount=amount, balance=balance)
        case commands.Advise(total=total):
            return commands.AdviseCredit(total=total)
        case _:
            return command


def authorized(command: commands.AuthorizeCredit) -> events.Event:
    """Return the approval of a credit, or why it is declined."""
    reason = credit_decline_reason(command)
    if reason:
        return events.CreditDeclined(amount=command.amount, reason=reason)
    return events.CreditAuthorized(amount=command.amount)


def advised(state: CardTransaction, total: int) -> events.CreditAdjusted:
    """Return the event by which the authorized total of the credit becomes `total`."""
    final = _is_alone(state) and total <= state.refunded
    return events.CreditAdjusted(amount=total, final=final)


def settled(state: CardTransaction, amount: int, *, final: bool | None) -> events.Credited:
    """Return the event of `amount` credited; without `final`, the authorized total decides."""
    if final is None:
        final = state.refunded + amount >= (state.credit_authorized or 0)
    return events.Credited(amount=amount, final=final)


def refund_reversed(state: CardTransaction, amount: int, balance: int) -> events.RefundReversed:
    """Return the reversal of `amount` of the refunds, or of a credit, paid whole or not at all."""
    unfunded = 0 if amount <= balance else amount
    is_empty = state.is_credit and not state.credit_authorized and amount == state.refunded
    final = is_empty and not state.closed
    return events.RefundReversed(amount=amount, unfunded=unfunded, final=final)


def approve(draft: CardTransaction, total: int) -> None:
    """Make `total` the authorized total of the credit; an expected purchase stays as it is."""
    draft.credit_authorized = total
    if not _is_alone(draft):
        return
    # A purchase that was declined takes nothing: what clears from now on is of the credit.
    draft.authorizations = 0
    draft.declined = 0
    draft.decline_reason = None
    if draft.closed_by in {Closure.REVERSED, Closure.EXPIRED}:
        draft.closed_by = None
    elif draft.closed_by is Closure.REFUNDED:
        # What had come without an authorization was a part of this credit.
        draft.closed_by = Closure.CREDITED if draft.refunded >= total else None


def refuse(draft: CardTransaction, amount: int, reason: events.DeclineReason) -> None:
    """Keep a declined credit of `amount`, unless something else is known."""
    draft.credit_authorized = draft.credit_authorized or 0
    known = draft.authorized or draft.settlement_count or draft.refund_count
    if not (known or draft.credit_authorized):
        draft.declined = amount
        draft.decline_reason = reason


def _is_alone(state: CardTransaction) -> bool:
    """Return whether no purchase has the same token, but perhaps one that was declined.

    One that was approved pulled for it, also where it has ended since and another was declined.
    """
    is_purchase = state.authorizations and (state.decline_reason is None or state.pull_count)
    return not (is_purchase or state.settlement_count)
