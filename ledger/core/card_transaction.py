"""The life of one card transaction.

Pure: ids and times arrive inside commands; nothing here reads a clock or a row.
Amounts are minor units of the card's billing currency (ISO 4217).

One money rule governs it. What must be funded is what has settled, or, while the card
transaction is open, what was authorized if that is more. After every fact the difference to what
is funded is pulled from the funding account or released to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Final, TypedDict, assert_never

from ledger.core import commands, events
from ledger.core.authorization import decline_reason
from ledger.core.money import checked


class Status(StrEnum):
    """What a reader is told; derived from the totals, never stored as a decision."""

    AUTHORIZED = "AUTHORIZED"
    PARTIALLY_SETTLED = "PARTIALLY_SETTLED"
    SETTLED = "SETTLED"
    REFUNDED = "REFUNDED"
    EXCEPTION = "EXCEPTION"
    DECLINED = "DECLINED"
    VOIDED = "VOIDED"


class Closure(StrEnum):
    """What made a card transaction expect no further clearing; one that comes is accepted."""

    CLEARED = "CLEARED"
    REVERSED = "REVERSED"
    EXPIRED = "EXPIRED"
    CARD_CLOSED = "CARD_CLOSED"
    REFUNDED = "REFUNDED"  # A refund without a purchase.


# Whoever gave an authorization up may take it again; one that has cleared is over.
_REOPENABLE: Final = frozenset({Closure.REVERSED, Closure.EXPIRED, Closure.REFUNDED})


@dataclass(frozen=True, kw_only=True)
class CardTransaction:
    """Running totals: all that the next decision and every roll-up need.

    Without slots, so that `evolve`, which every event comes through, can copy it at once.
    """

    sequence: int = 0  # Number of events folded so far.
    authorizations: int = 0  # Asked for, approved or not, or advised.
    authorized: int = 0
    settled: int = 0
    settlement_count: int = 0
    refunded: int = 0
    refund_count: int = 0
    pulled: int = 0  # Gross: releases never lower it.
    pull_count: int = 0  # Pulls opened, whether or not they could be paid at once.
    pending: int = 0  # Part of `pulled` whose confirmation is out.
    pending_count: int = 0
    open_pull: int = 0  # What the funding account still has to pay; at most one pull is open.
    unpaid: int = 0  # Refund reversals that the funding account still has to pay.
    released: int = 0
    release_count: int = 0
    closed_by: Closure | None = None  # None: open.
    declined: int = 0  # What was asked for and refused, while nothing has been approved.
    decline_reason: events.DeclineReason | None = None

    @property
    def closed(self) -> bool:
        """Whether no further clearing is expected."""
        return self.closed_by is not None

    @property
    def stands(self) -> bool:
        """Whether there is something that can come to an end: a refusal cannot."""
        return not self.closed and bool(self.authorized or self.settled)

    @property
    def funded(self) -> int:
        """What the funding account has paid, net."""
        return self.pulled - self.released

    @property
    def required(self) -> int:
        """What the funding account has to pay, net: the money rule."""
        return max(self.authorized, self.settled) if self.closed_by is None else self.settled

    @property
    def outstanding(self) -> int:
        """What is authorized and has not cleared."""
        return max(self.authorized - self.settled, 0)

    @property
    def held(self) -> int:
        """What is set aside for clearings to come."""
        return max(self.pulled - self.released - self.settled, 0)

    @property
    def overdrawn(self) -> int:
        """What clearings took beyond what the funding account has paid."""
        return max(self.settled - self.pulled + self.released, 0)

    @property
    def owed(self) -> int:
        """What the network took and the funding account has not paid yet."""
        return self.overdrawn + self.unpaid

    @property
    def in_debt(self) -> bool:
        """Whether the funding account still has something to pay."""
        return bool(self.open_pull or self.unpaid)

    @property
    def status(self) -> Status:
        """Where this card transaction stands: the first line that matches."""
        if self.decline_reason and not (self.settlement_count or self.refund_count):
            return Status.DECLINED
        if self.in_debt:
            return Status.EXCEPTION
        if self.closed and self.refunded and self.refunded >= self.settled:
            return Status.REFUNDED
        if self.settled:
            return Status.SETTLED if self.closed else Status.PARTIALLY_SETTLED
        return Status.VOIDED if self.closed else Status.AUTHORIZED

    @property
    def status_reason(self) -> str | None:
        """Why it is void: a clearing that was taken back counts as a reversal."""
        if self.status is not Status.VOIDED:
            return None
        known = {Closure.EXPIRED, Closure.CARD_CLOSED}
        return self.closed_by if self.closed_by in known else Closure.REVERSED

    @property
    def authorized_amount(self) -> int:
        """What a reader sees: a refused authorization keeps what it asked for."""
        return self.authorized or self.declined


UNKNOWN: Final = CardTransaction()
"""The state before the first fact."""


def decide(  # noqa: PLR0912, C901 - one branch a command
    state: CardTransaction, command: commands.Command
) -> list[events.Event]:
    """Return the facts `command` gives rise to, in the order in which money moves.

    A refusal is a fact, not an error. No facts: there is nothing to do about it.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    match command:
        case commands.Authorize():
            return _authorize(state, command)
        case commands.StandIn(amount=amount, balance=balance):
            return _record(state, events.Authorized(amount=amount), balance)
        case commands.Advise() if state.decline_reason:
            return []  # The network was told no; it advises of nothing that stands.
        case commands.Advise(total=total, balance=balance):
            final = total <= state.settled
            return _record(state, events.AuthorizationAdjusted(amount=total, final=final), balance)
        case commands.Reverse(amount=amount):
            return _reverse(state, amount)
        case commands.Expire() if state.stands:
            return _record(state, events.AuthorizationExpired(amount=state.outstanding))
        case commands.Cancel() if state.stands:
            return _record(state, events.AuthorizationCancelled(amount=state.outstanding))
        case commands.Expire() | commands.Cancel():
            return []
        case commands.Clear():
            return _clear(state, command)
        case commands.ReverseClearing(amount=amount):
            unfunded = min(amount, state.overdrawn)
            return _record(state, events.ClearingReversed(amount=amount, unfunded=unfunded))
        case commands.Refund(amount=amount):
            final = not (state.authorized or state.settled)
            return _record(state, events.Refunded(amount=amount, final=final))
        case commands.ReverseRefund(amount=amount, balance=balance):
            unfunded = 0 if amount <= balance else amount
            return _record(state, events.RefundReversed(amount=amount, unfunded=unfunded))
        case commands.ConfirmPull(amount=amount, succeeded=succeeded):
            return _confirm(state, amount, succeeded=succeeded)
        case commands.Recover(balance=balance):
            return _recover(state, balance)
        case _:
            assert_never(command)


def waits(state: CardTransaction, command: commands.Command) -> bool:
    """Return whether `command` changes what has not arrived yet, and so has to wait for it."""
    match command:
        case commands.Reverse() | commands.Expire() | commands.Advise():
            return not state.authorizations
        case commands.ReverseClearing(amount=amount):
            return amount > state.settled
        case commands.ReverseRefund(amount=amount):
            return amount > state.refunded
        case _:
            return False


def evolve(state: CardTransaction, event: events.Event) -> CardTransaction:
    """Return `state` after one recorded fact; history is never argued with.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    totals = vars(state).copy()
    totals.update(_changes(state, event))
    totals["sequence"] += 1
    after = object.__new__(CardTransaction)
    object.__setattr__(after, "__dict__", totals)
    return after


def fold(history: Iterable[events.Event], initial: CardTransaction = UNKNOWN) -> CardTransaction:
    """Return what `history` amounts to; live processing and every rebuild run this."""
    return reduce(evolve, history, initial)


# --- what facts do to the totals ---------------------------------------------------------------


class _Changes(TypedDict, total=False):
    """New values of those totals that a fact changes."""

    authorizations: int
    authorized: int
    settled: int
    settlement_count: int
    refunded: int
    refund_count: int
    pulled: int
    pull_count: int
    pending: int
    pending_count: int
    open_pull: int
    unpaid: int
    released: int
    release_count: int
    closed_by: Closure | None
    declined: int
    decline_reason: events.DeclineReason | None


def _changes(  # noqa: PLR0912, C901 - one branch an event
    state: CardTransaction, event: events.Event
) -> _Changes:
    match event:
        case events.Authorized(amount=amount):
            return _approved(state, checked(state.authorized + amount))
        case events.Pulled(amount=amount):
            return _paid(state, amount)
        case events.Cleared(amount=amount, final=final):
            return {
                "settled": checked(state.settled + amount),
                "settlement_count": state.settlement_count + 1,
                "closed_by": _after_clearing(state, final=final),
            }
        case events.Released(amount=amount):
            return _given_back(state, amount)
        case events.Declined(amount=amount, reason=reason):
            return _refused(state, amount, reason)
        case events.AuthorizationAdjusted(amount=amount, final=final):
            approved = _approved(state, amount)
            shut = _shut(approved["closed_by"], Closure.REVERSED if final else None)
            return {**approved, "closed_by": shut}
        case events.AuthorizationReversed(amount=amount, final=final):
            return _cut(state, amount, Closure.REVERSED if final else None)
        case events.AuthorizationExpired(amount=amount):
            return _cut(state, amount, Closure.EXPIRED)
        case events.AuthorizationCancelled(amount=amount):
            return _cut(state, amount, Closure.CARD_CLOSED)
        case events.PullPending(amount=amount):
            return {
                **_paid(state, amount),
                "pending": state.pending + amount,
                "pending_count": state.pending_count + 1,
            }
        case events.PullConfirmed(amount=amount):
            return _answered(state, amount)
        case events.PullFailed(amount=amount):
            return {
                **_answered(state, amount),
                "pulled": state.pulled - amount,
                "open_pull": state.required - (state.funded - amount),
            }
        case events.PullOpened(amount=amount):
            return {"open_pull": amount, "pull_count": state.pull_count + 1}
        case events.PullResized(amount=amount):
            return {"open_pull": amount}
        case events.PullRecovered(amount=amount):
            return {
                "pulled": checked(state.pulled + amount),
                "open_pull": state.open_pull - amount,
            }
        case events.ClearingReversed(amount=amount):
            return {"settled": checked(state.settled - amount)}
        case events.Refunded(amount=amount, final=final):
            return {
                "refunded": checked(state.refunded + amount),
                "refund_count": state.refund_count + 1,
                "closed_by": _shut(state.closed_by, Closure.REFUNDED if final else None),
            }
        case events.RefundReversed(amount=amount, unfunded=unfunded):
            return {
                "refunded": checked(state.refunded - amount),
                "unpaid": checked(state.unpaid + unfunded),
            }
        case events.DebitRecovered(amount=amount):
            return {"unpaid": checked(state.unpaid - amount)}
        case _:
            assert_never(event)


def _approved(state: CardTransaction, total: int) -> _Changes:
    return {
        "authorizations": state.authorizations + 1,
        "authorized": total,
        "closed_by": None if state.closed_by in _REOPENABLE else state.closed_by,
        "declined": 0,
        "decline_reason": None,
    }


def _refused(state: CardTransaction, amount: int, reason: events.DeclineReason) -> _Changes:
    asked = state.authorizations + 1
    if state.authorized or state.settlement_count or state.refund_count:
        # A refused addition leaves what was there before as it is.
        return {"authorizations": asked}
    return {"authorizations": asked, "declined": amount, "decline_reason": reason}


def _cut(state: CardTransaction, amount: int, closure: Closure | None) -> _Changes:
    return {
        "authorized": checked(state.authorized - amount),
        "closed_by": _shut(state.closed_by, closure),
    }


def _after_clearing(state: CardTransaction, *, final: bool) -> Closure | None:
    if final:
        return Closure.CLEARED
    # A refund without a purchase closed it; now there is a purchase, and more of it to come.
    return None if state.closed_by is Closure.REFUNDED else state.closed_by


def _shut(before: Closure | None, closure: Closure | None) -> Closure | None:
    return before or closure


def _paid(state: CardTransaction, amount: int) -> _Changes:
    return {"pulled": checked(state.pulled + amount), "pull_count": state.pull_count + 1}


def _answered(state: CardTransaction, amount: int) -> _Changes:
    return {"pending": state.pending - amount, "pending_count": state.pending_count - 1}


def _given_back(state: CardTransaction, amount: int) -> _Changes:
    return {
        "released": checked(state.released + amount),
        "release_count": state.release_count + 1,
        # What was given back needs no confirmation any more.
        "pending": min(state.pending, state.funded - amount),
    }


# --- decisions ---------------------------------------------------------------------------------


def _authorize(state: CardTransaction, command: commands.Authorize) -> list[events.Event]:
    authorized = events.Authorized(amount=command.amount)
    reason = decline_reason(command, _committed(state, command))
    if reason:
        return [events.Declined(amount=command.amount, reason=reason)]
    facts = _record(state, authorized, command.balance, confirms_later=command.confirms_later)
    if not command.clears:
        return facts
    # What both pulls take together was there when it was approved.
    clearing = commands.Clear(amount=command.amount, final=True, balance=command.balance)
    return [*facts, *_clear(fold(facts, state), clearing)]


def _committed(state: CardTransaction, command: commands.Authorize) -> int:
    """Return what approving `command` would promise beyond what has been promised or taken.

    An authorization that arrives after its clearing promises nothing new. One that comes on top
    of what has cleared does, though nothing is pulled for it before it clears as well.
    """
    taken = state.settled + (command.amount if command.clears else 0)
    return max(state.authorized + command.amount, taken) - max(state.authorized, state.settled)


def _reverse(state: CardTransaction, amount: int | None) -> list[events.Event]:
    """Take back what has not cleared, at the most: what has cleared is only given back by money."""
    if state.closed or not state.outstanding:
        return []
    taken = state.outstanding if amount is None else min(amount, state.outstanding)
    final = taken == state.outstanding
    return _record(state, events.AuthorizationReversed(amount=taken, final=final))


def _clear(state: CardTransaction, command: commands.Clear) -> list[events.Event]:
    """Record a clearing, after the pull it makes necessary and before the release it allows.

    In this order the pulled money is there when the network takes it, so that the receivable
    account only ever holds what is really owed (docs/decisions/0006).
    """
    settled = state.settled + command.amount
    final = settled >= state.authorized if command.final is None else command.final
    covered = events.Cleared(amount=command.amount, unfunded=0, final=final)
    reactions = _fund(evolve(state, covered), command.balance)
    pulls = [event for event in reactions if not isinstance(event, events.Released)]
    releases = [event for event in reactions if isinstance(event, events.Released)]
    held = fold(pulls, state).held
    unfunded = max(command.amount - held, 0)
    cleared = events.Cleared(amount=command.amount, unfunded=unfunded, final=final)
    return [*pulls, cleared, *releases]


def _confirm(state: CardTransaction, amount: int, *, succeeded: bool) -> list[events.Event]:
    if not state.pending_count:
        return []
    answered = min(amount, state.pending)  # The rest was given back in the meantime.
    if succeeded:
        return [events.PullConfirmed(amount=answered)]
    held = min(answered, state.held)
    return [events.PullFailed(amount=answered, unfunded=answered - held)]


def _recover(state: CardTransaction, balance: int) -> list[events.Event]:
    """Pay what is still to be paid, each all or nothing."""
    facts: list[events.Event] = []
    if state.unpaid:
        if state.unpaid > balance:
            return []
        facts.append(events.DebitRecovered(amount=state.unpaid))
        balance -= state.unpaid
    if state.open_pull and state.open_pull <= balance:
        unfunded = min(state.open_pull, state.overdrawn)
        facts.append(events.PullRecovered(amount=state.open_pull, unfunded=unfunded))
    return facts


def _record(
    state: CardTransaction,
    event: events.Event,
    balance: int = 0,
    *,
    confirms_later: bool = False,
) -> list[events.Event]:
    """Return `event` and what the money rule makes of it."""
    return [event, *_fund(evolve(state, event), balance, confirms_later=confirms_later)]


def _fund(
    state: CardTransaction, balance: int, *, confirms_later: bool = False
) -> list[events.Event]:
    """Bring what is funded to what is required; `balance` is what a pull may take.

    A pull is all or nothing. One that cannot be paid stays open and follows the shortfall: it is
    paid by recovery only, in the order in which pulls were opened.
    """
    required, funded = state.required, state.funded
    shortfall = max(required - funded, 0)
    checked(state.pulled + shortfall)  # It could not be paid otherwise, and would wait for ever.
    surplus = max(funded - required, 0)
    reactions: list[events.Event] = []
    if state.open_pull:
        if shortfall != state.open_pull:
            reactions.append(events.PullResized(amount=shortfall))
    elif shortfall > balance:
        reactions.append(events.PullOpened(amount=shortfall))
    elif shortfall:
        kind = events.PullPending if confirms_later else events.Pulled
        reactions.append(kind(amount=shortfall))
    if surplus:
        reactions.append(events.Released(amount=surplus))
    return reactions
