"""The checks of an authorization, in their documented order; the first that fails decides."""

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.commands import Authorize, AuthorizeCredit
from cardledger.ledger.core.events import DeclineReason


def decline_reason(command: Authorize, needed: int) -> DeclineReason | None:
    """Return why `command` is declined, or None when it is approved.

    Units: `needed` is what would have to be pulled, in minor units.
    """
    if command.issuer_decline:
        return command.issuer_decline
    if command.card_state is CardState.FROZEN:
        return DeclineReason.CARD_PAUSED
    if command.card_state is not CardState.ACTIVE:
        return DeclineReason.CARD_NOT_ACTIVE
    if not command.account_usable:
        return DeclineReason.NO_ELIGIBLE_FUNDING_SOURCE
    if command.max_spend is not None and command.amount > command.max_spend:
        return DeclineReason.SPEND_LIMIT_EXCEEDED
    # Money that is owed for earlier exceptions cannot be spent again. When the clearing came first
    # and nothing has to be pulled, no funds are needed.
    if needed > max(command.balance - command.owed, 0):
        return DeclineReason.INSUFFICIENT_FUNDS
    if command.decide_by is not None and command.decided_at > command.decide_by:
        return DeclineReason.DECISION_TIMEOUT
    return None


def credit_decline_reason(command: AuthorizeCredit) -> DeclineReason | None:
    """Return why the credit of `command` is declined, or None: the same checks without funds."""
    if command.issuer_decline:
        return command.issuer_decline
    if command.card_state is CardState.FROZEN:
        return DeclineReason.CARD_PAUSED
    if command.card_state is not CardState.ACTIVE:
        return DeclineReason.CARD_NOT_ACTIVE
    if not command.account_usable:
        return DeclineReason.NO_ELIGIBLE_FUNDING_SOURCE
    if command.decide_by is not None and command.decided_at > command.decide_by:
        return DeclineReason.DECISION_TIMEOUT
    return None
