"""The history of a card transaction in words: what each event did and which figures it changed.

Pure. The figures before and after an event come from the fold that the engine itself uses, so an
explanation always agrees with the ledger.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, assert_never

from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction, evolve
from cardledger.ledger.core.entries import entries
from cardledger.schema.wire.cards.card_transaction_events import Change, EntryResource
from cardledger.schema.wire.common import CURRENCIES, money

_FIGURES: Final[dict[str, Callable[[CardTransaction], int | str | None]]] = {
    "status": lambda state: state.status if state.sequence else None,
    "authorizedAmount": lambda state: state.authorized_amount,
    "settledAmount": lambda state: state.settled_amount,
    "refundedAmount": lambda state: state.refunded - state.credited,
    "heldAmount": lambda state: state.held,
    "owedAmount": lambda state: state.owed,
    "writtenOffAmount": lambda state: state.written_off,
    "pullSummary.count": lambda state: state.pull_count,
    "pullSummary.totalAmount": lambda state: state.pulled,
    "pullSummary.pendingCount": lambda state: state.pending_count,
    "releaseSummary.count": lambda state: state.release_count,
    "releaseSummary.totalAmount": lambda state: state.released,
}


def steps(
    history: Iterable[events.Event], before: CardTransaction = UNKNOWN
) -> Iterator[tuple[CardTransaction, events.Event, CardTransaction]]:
    """Yield every event with the state before it and the state after it; the first is `before`."""
    for event in history:
        after = evolve(before, event)
        yield before, event, after
        before = after


def figures(state: CardTransaction) -> dict[str, int | str | None]:
    """Return the public figures of a state, by the names that `changes` gives them."""
    return {name: figure(state) for name, figure in _FIGURES.items()}


def reason(state: CardTransaction) -> str | None:
    """Return why a card transaction is VOIDED, or was declined: also before a forced clearing."""
    return state.status_reason or state.decline_reason


def changes(before: CardTransaction, after: CardTransaction) -> list[Change]:
    """Return the public figures that differ between two states; amounts in minor units."""
    return [
        Change(field=name, before=figure(before), after=figure(after))
        for name, figure in _FIGURES.items()
        if figure(before) != figure(after)
    ]


def movements(event: events.Event, currency: str) -> list[EntryResource]:
    """Return the ledger entries of `event`, as the API shows them."""
    return [
        EntryResource(debit=entry.debit, credit=entry.credit, amount=money(entry.amount, currency))
        for entry in entries(event)
    ]


def sentence(  # noqa: PLR0912, PLR0915, C901 - one branch an event
    before: CardTransaction, event: events.Event, after: CardTransaction, currency: str
) -> str:
    """Return what `event` did, for readers of a statement or a reconciliation report."""

    def money_text(minor_units: int) -> str:
        return amount_text(minor_units, currency)

    amount = money_text(event.amount)
    match event:
        case events.Authorized():
            more = " more" if before.authorized else ""
            return f"{amount}{more} was authorized."
        case events.Declined(reason=reason):
            return f"An authorization of {amount} was declined: {reason}."
        case events.AuthorizationAdjusted():
            previous = money_text(before.authorized)
            return f"The network adjusted the authorized total from {previous} to {amount}."
        case events.AuthorizationReversed() if before.is_credit:
            left = money_text(after.authorized_amount)
            return f"{amount} of the authorized credit was reversed; {left} remains authorized."
        case events.AuthorizationReversed():
            left = money_text(after.authorized)
            return f"{amount} of the authorization was reversed; {left} remains authorized."
        case events.AuthorizationExpired() if before.is_credit:
            return f"The authorization of the credit expired; {amount} had not cleared."
        case events.AuthorizationExpired():
            return f"The authorization expired; {amount} had not cleared."
        case events.AuthorizationCancelled() if before.is_credit:
            return f"The card was closed; {amount} of the authorized credit had not cleared."
        case events.AuthorizationCancelled():
            return f"The card was closed; {amount} of the authorization had not cleared."
        case events.Pulled():
            return f"{amount} was pulled; {money_text(after.pulled)} pulled in total."
        case events.PullPending():
            total = money_text(after.pulled)
            return f"{amount} was pulled and awaits confirmation; {total} pulled in total."
        case events.PullConfirmed(amount=0):
            return "Confirmation received for a pull that had already been released."
        case events.PullFailed(amount=0):
            return "Failure reported for a pull that had already been released."
        case events.PullConfirmed():
            return f"The pull of {amount} was confirmed."
        case events.PullFailed():
            due = f"; {money_text(after.open_pull)} remains due" if after.open_pull else ""
            return f"The pull of {amount} failed and was returned to the funding account{due}."
        case events.PullOpened():
            return (
                f"Insufficient funds: {amount} remains due and is collected when the account is"
                " credited."
            )
        case events.PullResized():
            return f"The amount due changed from {money_text(before.open_pull)} to {amount}."
        case events.PullRecovered():
            return f"The {amount} due was pulled; {money_text(after.pulled)} pulled in total."
        case events.Released():
            return f"{amount} was released to the funding account."
        case events.Cleared(unfunded=unfunded, final=final):
            clearing = "final clearing" if final else "clearing"
            gap = f"; {money_text(unfunded)} exceeded the pulled amount" if unfunded else ""
            return f"A {clearing} of {amount} was settled{gap}."
        case events.ClearingReversed():
            return f"A clearing of {amount} was reversed."
        case events.Refunded():
            return f"{amount} was refunded to the funding account."
        case events.CreditAuthorized():
            more = " more" if before.credit_authorized else ""
            return f"A credit of {amount}{more} was authorized; it is credited when it clears."
        case events.CreditDeclined(reason=reason):
            return f"The authorization of a credit of {amount} was declined: {reason}."
        case events.CreditAdjusted() if before.credit_authorized is None:
            return f"The network reported that a credit of {amount} is authorized."
        case events.CreditAdjusted():
            previous = money_text(before.credit_authorized or 0)
            return f"The network adjusted the authorized credit from {previous} to {amount}."
        case events.Credited() if before.credit_authorized is None:
            return f"{amount} was credited to the funding account; it belongs to no purchase."
        case events.Credited(final=final):
            clearing = "final clearing" if final else "clearing"
            return f"A {clearing} of {amount} was credited to the funding account."
        case events.RefundReversed(unfunded=unfunded):
            due = (
                f"; insufficient funds: {money_text(unfunded)} remains due and is collected when"
                " the account is credited"
                if unfunded
                else ""
            )
            kind = "credit" if before.has_credit else "refund"
            return f"A {kind} of {amount} was reversed{due}."
        case events.DebitRecovered():
            return f"The account was credited and {amount} of reversed refunds was collected."
        case events.WrittenOff():
            left = f"; {money_text(after.owed)} remains due" if after.owed else ""
            return f"{amount} was written off as a loss and is not collected any more{left}."
        case events.WriteOffReversed():
            return f"{amount} of the reversed clearing had been written off and reduced the loss."
        case events.WriteOffRecovered():
            return f"{amount} had been written off and was collected from what was given back."
        case _:
            assert_never(event)


def amount_text(minor_units: int, currency: str) -> str:
    """Return an amount as people write it: `12.50 USD`."""
    decimals = CURRENCIES[currency].decimals
    whole, part = divmod(minor_units, 10**decimals)
    return f"{whole:,}.{part:0{decimals}} {currency}" if decimals else f"{whole:,} {currency}"
