"""The life of one card transaction.

Pure: ids and times are fields of commands; nothing here reads a clock or a row.
Amounts are minor units of the card's billing currency (ISO 4217).

One money rule: what must be funded is what has settled, or, while the card transaction is open,
what was authorized if that is more. After every event the difference to what is funded is pulled
from the funding account or released to it. What is written off needs no funding, and comes back
before the customer gets anything back (docs/decisions/0068).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from cardledger.ledger.core import commands, credit, events, late_approvals, write_offs
from cardledger.ledger.core.authorization import decline_reason
from cardledger.ledger.core.money import checked
from cardledger.ledger.core.state import UNKNOWN, CardTransaction
from cardledger.ledger.core.status import WITHOUT_PURCHASE, Closure

__all__ = [
    "UNKNOWN",
    "CardTransaction",
    "Decision",
    "decide",
    "evolve",
    "fold",
    "waits",
    "write_off_limit",
]

# A new authorization reopens these; a card transaction that closed by clearing stays closed.
_REOPENABLE: Final = frozenset({Closure.REVERSED, Closure.EXPIRED, *WITHOUT_PURCHASE})


@dataclass(frozen=True, slots=True)
class Decision:
    """The events that a command causes, in the order in which money moves, and the state after."""

    facts: list[events.Event]
    after: CardTransaction


def decide(  # noqa: PLR0912, C901 - one branch a command
    state: CardTransaction, command: commands.Command
) -> Decision:
    """Return the events that `command` causes.

    A decline is an event, not an error. No events: the command changes nothing.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    if state.credit_authorized is not None and state.is_credit:
        command = credit.meant(command)
    match command:
        case commands.Authorize():
            return _authorize(state, command)
        case commands.Clear():
            return _clear(state, command)
        case commands.StandIn(amount=amount, balance=balance):
            return _record(state, events.Authorized(amount=amount), balance)
        case commands.Advise() if state.decline_reason:
            return _nothing(state)  # There is no authorization to advise of.
        case commands.Advise(total=total, balance=balance):
            final = total <= state.settled
            return _record(state, events.AuthorizationAdjusted(amount=total, final=final), balance)
        case commands.Reverse(amount=amount):
            return _reverse(state, amount)
        case commands.TakeBack():
            return _record_all(state, late_approvals.taken_back(state, command), command.balance)
        case commands.Expire() if state.stands:
            return _record(state, events.AuthorizationExpired(amount=state.outstanding))
        case commands.Cancel() if state.stands:
            return _record(state, events.AuthorizationCancelled(amount=state.outstanding))
        case commands.Expire() | commands.Cancel():
            return _nothing(state)
        case commands.ReverseClearing(amount=amount):
            return _record_all(state, write_offs.clearing_reversed(state, amount))
        case commands.Refund(amount=amount):
            final = not (state.authorized or state.settled)
            return _refund(state, events.Refunded(amount=amount, final=final))
        case commands.Credit(amount=amount):
            if state.authorized or state.settled:
                return _refund(state, events.Refunded(amount=amount, final=False))
            return _refund(state, events.Credited(amount=amount))
        case commands.AuthorizeCredit():
            return _record(state, credit.authorized(command))
        case commands.AdviseCredit(total=total):
            return _record(state, credit.advised(state, total))
        case commands.SettleCredit(amount=amount, final=complete):
            return _refund(state, credit.settled(state, amount, final=complete))
        case commands.ReverseRefund(amount=amount, balance=balance):
            return _record(state, credit.refund_reversed(state, amount, balance))
        case commands.ConfirmPull(amount=amount, succeeded=succeeded):
            return _confirm(state, amount, succeeded=succeeded)
        case commands.Recover(balance=balance):
            return _recover(state, balance)
        case commands.WriteOff(amount=amount):
            return _write_off(state, amount)
        case _:
            assert_never(command)


def write_off_limit(state: CardTransaction) -> int:
    """Return the most that can be written off now; a command to write off more has no events."""
    return state.owed


def waits(state: CardTransaction, command: commands.Command) -> bool:
    """Return whether `command` reverses or changes an event that has not arrived yet."""
    match command:
        case commands.Reverse() | commands.Expire() | commands.Advise():
            return not state.authorizations and state.credit_authorized is None
        case commands.ReverseClearing(amount=amount):
            return amount > (state.refunded if state.is_credit else state.settled)
        case commands.ReverseRefund(amount=amount):
            return amount > state.refunded
        case _:
            return False


def evolve(state: CardTransaction, event: events.Event) -> CardTransaction:
    """Return `state` after one recorded event, which is never rejected.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    return fold((event,), state)


def fold(history: Iterable[events.Event], initial: CardTransaction = UNKNOWN) -> CardTransaction:
    """Return the state after `history`; live processing and every rebuild run this.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    draft = _copied(initial)
    for event in history:
        _add(draft, event)
        draft.sequence += 1
    return draft


def _copied(state: CardTransaction) -> CardTransaction:
    # Field by field: this runs for every event, and `dataclasses.replace` is slower.
    copy = CardTransaction(
        sequence=state.sequence,
        authorizations=state.authorizations,
        authorized=state.authorized,
        settled=state.settled,
        settlement_count=state.settlement_count,
        refunded=state.refunded,
        refund_count=state.refund_count,
        pulled=state.pulled,
        pull_count=state.pull_count,
        pending=state.pending,
        pending_count=state.pending_count,
        open_pull=state.open_pull,
        unpaid=state.unpaid,
        released=state.released,
        release_count=state.release_count,
        closed_by=state.closed_by,
        declined=state.declined,
        decline_reason=state.decline_reason,
    )
    if state.credit_authorized is not None:
        copy.credit_authorized = state.credit_authorized
    if state.written_off:  # Of next to none.
        copy.written_off = state.written_off
        copy.debits_written_off = state.debits_written_off
    return copy


def _add(  # noqa: PLR0912, PLR0915, C901 - one branch an event
    draft: CardTransaction, event: events.Event
) -> None:
    """Add `event` to `draft`; the most frequent come first."""
    match event:
        case events.Pulled(amount=amount):
            _pay(draft, amount)
        case events.Authorized(amount=amount):
            _approve(draft, checked(draft.authorized + amount))
        case events.Cleared(amount=amount, final=final):
            draft.settled = checked(draft.settled + amount)
            draft.settlement_count += 1
            if final:
                draft.closed_by = Closure.CLEARED
            elif draft.closed_by in WITHOUT_PURCHASE:
                # A refund or credit without a purchase had closed it; now its purchase clears.
                draft.closed_by = None
        case events.Released(amount=amount):
            draft.released = checked(draft.released + amount)
            draft.release_count += 1
            # What is released needs no confirmation any more.
            draft.pending = min(draft.pending, draft.pulled - draft.released)
        case events.Declined(amount=amount, reason=reason):
            _refuse(draft, amount, reason)
        case events.AuthorizationAdjusted(amount=amount, final=final):
            _approve(draft, amount)
            _shut(draft, Closure.REVERSED if final else None)
        case events.AuthorizationReversed(amount=amount, final=final) if (
            draft.closed_by is Closure.CLEARED
        ):
            late_approvals.reopen(draft, amount, stays_closed=final)
        case events.AuthorizationReversed(amount=amount, final=final):
            _cut(draft, amount, Closure.REVERSED if final else None)
        case events.AuthorizationExpired(amount=amount):
            _cut(draft, amount, Closure.EXPIRED)
        case events.AuthorizationCancelled(amount=amount):
            _cut(draft, amount, Closure.CARD_CLOSED)
        case events.PullPending(amount=amount):
            _pay(draft, amount)
            draft.pending += amount
            draft.pending_count += 1
        case events.PullConfirmed(amount=amount):
            _answer(draft, amount)
        case events.PullFailed(amount=amount):
            _answer(draft, amount)
            draft.pulled -= amount
            draft.open_pull = draft.required - draft.funded - draft.clearings_written_off
        case events.PullOpened(amount=amount):
            draft.open_pull = amount
            draft.pull_count += 1
        case events.PullResized(amount=amount):
            draft.open_pull = amount
        case events.PullRecovered(amount=amount):
            draft.pulled = checked(draft.pulled + amount)
            draft.open_pull -= amount
        case events.ClearingReversed(amount=amount, final=final):
            draft.settled = checked(draft.settled - amount)
            _shut(draft, Closure.REVERSED if final else None)
        case events.Refunded(amount=amount, final=final):
            draft.refunded = checked(draft.refunded + amount)
            draft.refund_count += 1
            _shut(draft, Closure.REFUNDED if final else None)
        case events.Credited(amount=amount, final=final):
            draft.refunded = checked(draft.refunded + amount)
            draft.refund_count += 1
            if final:
                # As a final clearing does, also after an expiry.
                _shut(draft, Closure.CREDITED, again=draft.is_credit)
        case events.CreditAuthorized(amount=amount):
            credit.approve(draft, checked((draft.credit_authorized or 0) + amount))
        case events.CreditAdjusted(amount=amount, final=final):
            credit.approve(draft, amount)
            _shut(draft, Closure.REVERSED if final else None)
        case events.CreditDeclined(amount=amount, reason=reason):
            credit.refuse(draft, amount, reason)
        case events.RefundReversed(amount=amount, unfunded=unfunded, final=final):
            draft.refunded = checked(draft.refunded - amount)
            draft.unpaid = checked(draft.unpaid + unfunded)
            _shut(draft, Closure.REVERSED if final else None)
        case events.DebitRecovered(amount=amount):
            draft.unpaid = checked(draft.unpaid - amount)
        case events.WrittenOff(amount=amount, unfunded=unfunded):
            draft.open_pull -= unfunded
            draft.unpaid -= amount - unfunded
            draft.written_off = checked(draft.written_off + amount)
            draft.debits_written_off += amount - unfunded
        case events.WriteOffReversed(amount=amount):
            draft.written_off -= amount
        case events.WriteOffRecovered(amount=amount, unfunded=unfunded):
            draft.pulled = checked(draft.pulled + unfunded)
            draft.written_off -= amount
            draft.debits_written_off -= amount - unfunded
        case _:
            assert_never(event)


def _approve(draft: CardTransaction, authorized: int) -> None:
    draft.authorizations += 1
    draft.authorized = authorized
    if draft.closed_by in _REOPENABLE:
        draft.closed_by = None
    draft.declined = 0
    draft.decline_reason = None


def _refuse(draft: CardTransaction, amount: int, reason: events.DeclineReason) -> None:
    if draft.is_credit and (draft.credit_authorized or draft.refund_count):
        return  # The token stays that of the credit: what clears is no purchase.
    draft.authorizations += 1
    # A declined increment does not change an earlier approval.
    if not (draft.authorized or draft.settlement_count or draft.refund_count):
        draft.declined = amount
        draft.decline_reason = reason


def _cut(draft: CardTransaction, amount: int, closure: Closure | None) -> None:
    if draft.is_credit:
        draft.credit_authorized = checked((draft.credit_authorized or 0) - amount)
    else:
        draft.authorized = checked(draft.authorized - amount)
    _shut(draft, closure)


def _shut(draft: CardTransaction, closure: Closure | None, *, again: bool = False) -> None:
    draft.closed_by = closure if again else draft.closed_by or closure


def _pay(draft: CardTransaction, amount: int) -> None:
    draft.pulled = checked(draft.pulled + amount)
    draft.pull_count += 1


def _answer(draft: CardTransaction, amount: int) -> None:
    draft.pending -= amount
    draft.pending_count -= 1


def _nothing(state: CardTransaction) -> Decision:
    return Decision([], state)


def _authorize(state: CardTransaction, command: commands.Authorize) -> Decision:
    needed = _needed(state, command)
    reason = decline_reason(command, needed)
    if reason:
        declined = events.Declined(amount=command.amount, reason=reason)
        return Decision([declined], evolve(state, declined))
    authorized = events.Authorized(amount=command.amount)
    approved = _record(state, authorized, command.balance, confirms_later=command.confirms_later)
    if needed and 0 < approved.after.open_pull <= command.balance:
        # An approval takes what it was checked for, whatever is due before it in the queue: else
        # the next one would be checked for the same money.
        pull = _pull_recovered(approved.after)
        approved = Decision([*approved.facts, pull], evolve(approved.after, pull))
    if not command.clears:
        return approved
    # The approval has checked funds for both pulls together.
    clearing = commands.Clear(amount=command.amount, final=True, balance=command.balance)
    cleared = _clear(approved.after, clearing)
    return Decision([*approved.facts, *cleared.facts], cleared.after)


def _needed(state: CardTransaction, command: commands.Authorize) -> int:
    """Return what the account must have for `command`, besides what is owed.

    That is what an approval would add to what is authorized or has settled, and what is due for an
    earlier hold. An authorization that arrives after its clearing adds nothing. One beyond what has
    cleared does, though nothing is pulled for it before it clears as well.
    """
    taken = state.settled + (command.amount if command.clears else 0)
    added = max(state.authorized + command.amount, taken) - max(state.authorized, state.settled)
    return added + max(state.open_pull - state.overdrawn, 0)


def _reverse(state: CardTransaction, amount: int | None) -> Decision:
    """Reverse at most what has not cleared; cleared money only returns by a refund or reversal."""
    if state.closed or not state.outstanding:
        return _nothing(state)
    taken = state.outstanding if amount is None else min(amount, state.outstanding)
    final = taken == state.outstanding
    return _record(state, events.AuthorizationReversed(amount=taken, final=final))


def _clear(state: CardTransaction, command: commands.Clear) -> Decision:
    """Record a clearing, after the pull that it requires and before the release that it allows.

    In this order the pulled money covers the clearing, so that the receivable account only holds
    what is really owed (docs/decisions/0006).
    """
    amount = command.amount
    final = command.final
    if final is None:
        final = state.settled + amount >= state.authorized
    covered = events.Cleared(amount=amount, unfunded=0, final=final)
    reactions = _fund(evolve(state, covered), command.balance)
    pulls = [event for event in reactions if not isinstance(event, events.Released)]
    paid = fold(pulls, state) if pulls else state
    short = amount - paid.held
    cleared = events.Cleared(amount=amount, unfunded=short, final=final) if short > 0 else covered
    then = [cleared, *reactions[len(pulls) :]]
    return Decision([*pulls, *then], fold(then, paid))


def _refund(state: CardTransaction, refunded: events.Refunded | events.Credited) -> Decision:
    if not state.written_off:
        return _record(state, refunded)
    back = write_offs.from_refund(
        refunded.amount, state.clearings_written_off, state.debits_written_off
    )
    return _record_all(state, [refunded, back])


def _write_off(state: CardTransaction, amount: int) -> Decision:
    if not 0 < amount <= write_off_limit(state):
        return _nothing(state)
    # Refund reversals first, as recovery collects them.
    unfunded = max(amount - state.unpaid, 0)
    fact = events.WrittenOff(amount=amount, unfunded=unfunded)
    return Decision([fact], evolve(state, fact))


def _confirm(state: CardTransaction, amount: int, *, succeeded: bool) -> Decision:
    if not state.pending_count:
        return _nothing(state)
    answered = min(amount, state.pending)  # The rest was released in the meantime.
    held = min(answered, state.held)
    fact = (
        events.PullConfirmed(amount=answered)
        if succeeded
        else events.PullFailed(amount=answered, unfunded=answered - held)
    )
    return Decision([fact], evolve(state, fact))


def _recover(state: CardTransaction, balance: int) -> Decision:
    """Pay the unpaid refund reversals and the open pull, each all or nothing."""
    facts: list[events.Event] = []
    if state.unpaid:
        if state.unpaid > balance:
            return _nothing(state)
        facts.append(events.DebitRecovered(amount=state.unpaid))
        balance -= state.unpaid
    if state.open_pull and state.open_pull <= balance:
        facts.append(_pull_recovered(state))
    return Decision(facts, fold(facts, state))


def _pull_recovered(state: CardTransaction) -> events.PullRecovered:
    unfunded = min(state.open_pull, state.overdrawn)
    return events.PullRecovered(amount=state.open_pull, unfunded=unfunded)


def _record(
    state: CardTransaction,
    event: events.Event,
    balance: int = 0,
    *,
    confirms_later: bool = False,
) -> Decision:
    """Return `event` and the pull or release that the money rule requires after it."""
    after = evolve(state, event)
    reactions = _fund(after, balance, confirms_later=confirms_later)
    if not reactions:
        return Decision([event], after)
    return Decision([event, *reactions], fold(reactions, after))


def _record_all(state: CardTransaction, facts: list[events.Event], balance: int = 0) -> Decision:
    """Do as `_record` does for several events of one command; without any, nothing changes."""
    if not facts:
        return _nothing(state)
    after = fold(facts, state)
    reactions = _fund(after, balance)
    return Decision([*facts, *reactions], fold(reactions, after))


def _fund(
    state: CardTransaction, balance: int, *, confirms_later: bool = False
) -> list[events.Event]:
    """Return the pull or release that brings what is funded to what is required.

    A pull is all or nothing. A pull above `balance` stays open and follows the shortfall: recovery
    pays open pulls, in the order in which they were opened.
    """
    missing = state.required - state.funded
    if state.written_off:
        missing -= state.clearings_written_off
    shortfall = max(missing, 0)
    checked(state.pulled + shortfall)  # Or the pull could never be paid.
    reactions: list[events.Event] = []
    if state.open_pull:
        if shortfall != state.open_pull:
            reactions.append(events.PullResized(amount=shortfall))
    elif shortfall > balance:
        reactions.append(events.PullOpened(amount=shortfall))
    elif shortfall:
        kind = events.PullPending if confirms_later else events.Pulled
        reactions.append(kind(amount=shortfall))
    if missing < 0:
        reactions.append(events.Released(amount=-missing))
    return reactions
