"""Why a card transaction stands where it does: each event with what it changed, in words.

Pure. The figures before and after come from the same fold as everything else, so an explanation
cannot tell another story than the books.
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
    "settledAmount": lambda state: state.settled,
    "refundedAmount": lambda state: state.refunded,
    "heldAmount": lambda state: state.held,
    "owedAmount": lambda state: state.owed,
    "pullSummary.count": lambda state: state.pull_count,
    "pullSummary.totalAmount": lambda state: state.pulled,
    "pullSummary.pendingCount": lambda state: state.pending_count,
    "releaseSummary.count": lambda state: state.release_count,
    "releaseSummary.totalAmount": lambda state: state.released,
}


def steps(
    history: Iterable[events.Event],
) -> Iterator[tuple[CardTransaction, events.Event, CardTransaction]]:
    """Yield every event between the state before it and the state after it."""
    before = UNKNOWN
    for event in history:
        after = evolve(before, event)
        yield before, event, after
        before = after


def changes(before: CardTransaction, after: CardTransaction) -> list[Change]:
    """Return the figures a reader sees that differ; amounts in minor units."""
    return [
        Change(field=name, before=figure(before), after=figure(after))
        for name, figure in _FIGURES.items()
        if figure(before) != figure(after)
    ]


def movements(event: events.Event, currency: str) -> list[EntryResource]:
    """Return what `event` moved between which accounts."""
    return [
        EntryResource(debit=entry.debit, credit=entry.credit, amount=money(entry.amount, currency))
        for entry in entries(event)
    ]


def sentence(  # noqa: PLR0912, C901 - one branch an event
    before: CardTransaction, event: events.Event, after: CardTransaction, currency: str
) -> str:
    """Return why `event` happened and what it means, in one sentence."""

    def said(amount: int) -> str:
        return written(amount, currency)

    match event:
        case events.Authorized(amount=amount):
            more = " more" if before.authorized else ""
            return f"{said(amount)}{more} were authorized."
        case events.Declined(amount=amount, reason=reason):
            return f"The network asked for {said(amount)} and it was declined: {reason}."
        case events.AuthorizationAdjusted(amount=amount):
            return (
                f"The network said that the authorized total is {said(amount)} instead of"
                f" {said(before.authorized)}."
            )
        case events.AuthorizationReversed(amount=amount):
            return (
                f"The network took {said(amount)} of the authorization back;"
                f" {said(after.authorized)} of it stands."
            )
        case events.AuthorizationExpired(amount=amount):
            return f"The authorization expired; {said(amount)} of it had not cleared."
        case events.AuthorizationCancelled(amount=amount):
            return f"The card was closed; {said(amount)} of the authorization had not cleared."
        case events.Pulled(amount=amount):
            return (
                f"{said(amount)} were pulled from the funding account, which has paid"
                f" {said(after.funded)} in all."
            )
        case events.PullPending(amount=amount):
            return f"{said(amount)} were pulled from the funding account, to be confirmed."
        case events.PullConfirmed(amount=0) | events.PullFailed(amount=0):
            return "A pull was answered whose money had gone back before."
        case events.PullConfirmed(amount=amount):
            return f"The pull of {said(amount)} was confirmed."
        case events.PullFailed(amount=amount):
            still = " and still has to pay" if after.open_pull else ""
            return (
                f"The pull of {said(amount)} failed at its confirmation; the funding account has"
                f" its money back{still}."
            )
        case events.PullOpened(amount=amount):
            return (
                f"{said(amount)} are needed and the funding account could not pay them; they are"
                " pulled when money arrives."
            )
        case events.PullResized(amount=amount):
            return (
                f"The open pull asks for {said(amount)} now, instead of {said(before.open_pull)}."
            )
        case events.PullRecovered(amount=amount):
            return f"Money arrived, and the open pull of {said(amount)} was paid."
        case events.Released(amount=amount):
            return f"{said(amount)} were no longer needed and went back to the funding account."
        case events.Cleared(amount=amount, unfunded=unfunded, final=final):
            covered = f"; {said(unfunded)} of it were not covered" if unfunded else ""
            last = ", finally" if final else ""
            return f"The network moved {said(amount)}{last}{covered}."
        case events.ClearingReversed(amount=amount):
            return f"The network took a clearing of {said(amount)} back."
        case events.Refunded(amount=amount):
            return f"The merchant gave {said(amount)} back to the funding account."
        case events.RefundReversed(amount=amount, unfunded=unfunded):
            paid = ", which the funding account could not pay" if unfunded else ""
            return f"The merchant took a refund of {said(amount)} back{paid}."
        case events.DebitRecovered(amount=amount):
            return f"Money arrived, and {said(amount)} of reversed refunds were paid."
        case _:
            assert_never(event)


def written(amount: int, currency: str) -> str:
    """Return `amount` minor units as people write it: `12.50 USD`."""
    decimals = CURRENCIES[currency].decimals
    whole, part = divmod(amount, 10**decimals)
    return f"{whole:,}.{part:0{decimals}} {currency}" if decimals else f"{whole:,} {currency}"
