"""The life of one card transaction.

Pure: ids and times arrive inside commands; nothing here reads a clock or a row.
Amounts are minor units of the card's billing currency (ISO 4217).

One money rule governs it. What must be funded is what has settled, or, while the card
transaction is open, what was authorized if that is more. After every fact the difference to what
is funded is pulled from the funding account or released to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import assert_never

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTransaction:
    """Running totals: all that the next decision and every roll-up need."""

    sequence: int = 0  # Number of events folded so far.
    authorized: int = 0
    settled: int = 0
    settlement_count: int = 0
    pulled: int = 0  # Gross: releases never lower it.
    pull_count: int = 0  # Pulls opened, whether or not they could be paid at once.
    open_pull: int = 0  # What the funding account still has to pay; at most one pull is open.
    released: int = 0
    release_count: int = 0
    closed: bool = False  # No further clearing is expected; one that comes is accepted.
    declined: int = 0  # What was asked for and refused, while nothing has been approved.
    decline_reason: events.DeclineReason | None = None

    @property
    def funded(self) -> int:
        """What the funding account has paid, net."""
        return self.pulled - self.released

    @property
    def required(self) -> int:
        """What the funding account has to pay, net: the money rule."""
        return self.settled if self.closed else max(self.authorized, self.settled)

    @property
    def held(self) -> int:
        """What is set aside for clearings to come."""
        return max(self.funded - self.settled, 0)

    @property
    def owed(self) -> int:
        """What the network took and the funding account has not paid yet."""
        return max(self.settled - self.funded, 0)

    @property
    def status(self) -> Status:
        """Where this card transaction stands: the first line that matches."""
        if self.decline_reason and not self.settled:
            return Status.DECLINED
        if self.open_pull:
            return Status.EXCEPTION
        if self.settled:
            return Status.SETTLED if self.closed else Status.PARTIALLY_SETTLED
        return Status.VOIDED if self.closed else Status.AUTHORIZED

    @property
    def authorized_amount(self) -> int:
        """What a reader sees: a refused authorization keeps what it asked for."""
        return self.authorized or self.declined


UNKNOWN = CardTransaction()
"""The state before the first fact."""


def decide(state: CardTransaction, command: commands.Command) -> list[events.Event]:
    """Return the facts `command` gives rise to, in the order in which money moves.

    A refusal is a fact, not an error.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    match command:
        case commands.Authorize():
            return _authorize(state, command)
        case commands.Clear():
            return _clear(state, command)
        case commands.Recover(balance=balance):
            return _recover(state, balance)
        case _:
            assert_never(command)


def evolve(state: CardTransaction, event: events.Event) -> CardTransaction:
    """Return `state` after one recorded fact; history is never argued with.

    Raises: AmountOutOfRangeError when a total would not fit a `bigint`.
    """
    sequence = state.sequence + 1
    match event:
        case events.Authorized(amount=amount):
            return replace(
                state,
                sequence=sequence,
                authorized=checked(state.authorized + amount),
                declined=0,
                decline_reason=None,
            )
        case events.Declined(amount=amount, reason=reason):
            if state.authorized or state.settled:
                # A refused addition leaves what was approved before as it is.
                return replace(state, sequence=sequence)
            return replace(state, sequence=sequence, declined=amount, decline_reason=reason)
        case events.Pulled(amount=amount):
            return replace(
                state,
                sequence=sequence,
                pulled=checked(state.pulled + amount),
                pull_count=state.pull_count + 1,
            )
        case events.PullOpened(amount=amount):
            return replace(
                state,
                sequence=sequence,
                open_pull=_payable(state, amount),
                pull_count=state.pull_count + 1,
            )
        case events.PullResized(amount=amount):
            return replace(state, sequence=sequence, open_pull=_payable(state, amount))
        case events.PullRecovered(amount=amount):
            return replace(
                state,
                sequence=sequence,
                pulled=checked(state.pulled + amount),
                open_pull=state.open_pull - amount,
            )
        case events.Released(amount=amount):
            return replace(
                state,
                sequence=sequence,
                released=checked(state.released + amount),
                release_count=state.release_count + 1,
            )
        case events.Cleared(amount=amount, final=final):
            return replace(
                state,
                sequence=sequence,
                settled=checked(state.settled + amount),
                settlement_count=state.settlement_count + 1,
                closed=state.closed or final,
            )
        case _:
            assert_never(event)


def fold(history: Iterable[events.Event], initial: CardTransaction = UNKNOWN) -> CardTransaction:
    """Return what `history` amounts to; live processing and every rebuild run this."""
    return reduce(evolve, history, initial)


def _authorize(state: CardTransaction, command: commands.Authorize) -> list[events.Event]:
    total = state.authorized + command.amount
    required = state.settled if state.closed else max(total, state.settled)
    # An authorization that arrives after its clearing needs no second pull.
    needed = max(required - state.funded - state.open_pull, 0)
    reason = decline_reason(command, needed)
    if reason:
        return [events.Declined(amount=command.amount, reason=reason)]
    authorized = events.Authorized(amount=command.amount)
    return [authorized, *_fund(evolve(state, authorized), command.balance)]


def _clear(state: CardTransaction, command: commands.Clear) -> list[events.Event]:
    """Record a clearing, after the pull it makes necessary and before the release it allows.

    In this order the pulled money is there when the network takes it, so that the receivable
    account only ever holds what is really owed (docs/decisions/0006).
    """
    settled = state.settled + command.amount
    final = settled >= state.authorized if command.final is None else command.final
    cleared = events.Cleared(amount=command.amount, unfunded=0, final=final)
    reactions = _fund(evolve(state, cleared), command.balance)
    pulls = [event for event in reactions if not isinstance(event, events.Released)]
    releases = [event for event in reactions if isinstance(event, events.Released)]
    held = fold(pulls, state).held
    unfunded = max(command.amount - held, 0)
    return [*pulls, replace(cleared, unfunded=unfunded), *releases]


def _recover(state: CardTransaction, balance: int) -> list[events.Event]:
    amount = state.open_pull
    if not amount or amount > balance:
        return []
    return [events.PullRecovered(amount=amount, unfunded=min(amount, state.owed))]


def _payable(state: CardTransaction, amount: int) -> int:
    """Return `amount` if an open pull of it can be paid some day.

    Found out here, where one message is refused, and not by the deposit that would pay it.
    """
    checked(state.pulled + amount)
    return amount


def _fund(state: CardTransaction, balance: int) -> list[events.Event]:
    """Bring what is funded to what is required; `balance` is what a pull may take.

    A pull is all or nothing. One that cannot be paid stays open and follows the shortfall: it is
    paid by recovery only, in the order in which pulls were opened.
    """
    shortfall = max(state.required - state.funded, 0)
    surplus = max(state.funded - state.required, 0)
    reactions: list[events.Event] = []
    if state.open_pull:
        if shortfall != state.open_pull:
            reactions.append(events.PullResized(amount=shortfall))
    elif shortfall > balance:
        reactions.append(events.PullOpened(amount=shortfall))
    elif shortfall:
        reactions.append(events.Pulled(amount=shortfall))
    if surplus:
        reactions.append(events.Released(amount=surplus))
    return reactions
