"""The life of a payment: its steps, what each makes of its status, and what each books.

A payment is money that leaves an owner or arrives at one. Pure: a step is a fact, `evolve` says
which may follow which, `entries` what moves. Amounts are minor units.

    OUT       DEBITED, SUBMITTED, COMPLETED; or FAILED, REFUNDED; completed: RETURNED, REFUNDED
    IN        SUBMITTED, ARRIVED, CREDITED; or FAILED
    RECEIVED  ARRIVED, CREDITED; or FAILED or REJECTED, REFUNDED
    FEE       CREDITED
    EXCHANGE  EXCHANGED
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cardledger.ledger.core.entries import ChartAccount, Entry


class Kind(StrEnum):
    """Between whom money moves."""

    INTERNAL = "INTERNAL"  # Two accounts of one owner in one currency (`transfer`).
    EXCHANGE = "EXCHANGE"  # Two accounts of one owner in two currencies.
    OUT = "OUT"  # From an account of the ledger to another owner, or to the outside.
    IN = "IN"  # Pulled from an external account.
    RECEIVED = "RECEIVED"  # Sent by another owner, or from the outside.
    FEE = "FEE"  # Of a payment of a customer, for its platform.


class Status(StrEnum):
    """Of a payment, as the API shows it."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"
    REJECTED = "REJECTED"


class RefundStatus(StrEnum):
    """Of what a failed payment gives back."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Step(StrEnum):
    """What has happened to a payment; `transfer_events.kind`."""

    DEBITED = "DEBITED"  # The source account.
    SUBMITTED = "SUBMITTED"  # To the rail, or to the receiver's queue.
    COMPLETED = "COMPLETED"  # Paid out.
    FAILED = "FAILED"
    REJECTED = "REJECTED"  # By the receiver's platform.
    RETURNED = "RETURNED"  # Sent back by the receiving bank after completion.
    REFUNDED = "REFUNDED"
    REFUND_FAILED = "REFUND_FAILED"
    ARRIVED = "ARRIVED"
    CREDITED = "CREDITED"  # To the destination account.
    EXCHANGED = "EXCHANGED"


class ImpossibleStepError(ValueError):
    """A step that cannot follow what has happened before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a payment is about: it never changes.

    `amount` is all that the source pays, `fee` the part of it that is the platform's; `received` is
    in another currency when `is_converted`, and otherwise `amount` less `fee`. With `is_funded` the
    amount arrives from outside in the moment in which it is debited.
    """

    kind: Kind
    amount: int
    fee: int = 0
    received: int
    is_converted: bool = False
    is_funded: bool = False

    @property
    def principal(self) -> int:
        """What the source pays without the fee."""
        return self.amount - self.fee


@dataclass(frozen=True, slots=True)
class State:
    """Where a payment stands after `steps` steps."""

    steps: int = 0
    status: Status = Status.PENDING
    refund: RefundStatus | None = None
    is_debited: bool = False
    has_arrived: bool = False
    is_returned: bool = False


@dataclass(frozen=True, slots=True)
class Movement:
    """An entry, and whether it is in the currency that is received and not the one that is sent."""

    entry: Entry
    is_received: bool = False


_OPEN: Final = frozenset({Status.PENDING, Status.PROCESSING})
_FIRST: Final[Mapping[Kind, frozenset[Step]]] = {
    Kind.OUT: frozenset({Step.DEBITED}),
    Kind.IN: frozenset({Step.SUBMITTED, Step.FAILED}),
    Kind.RECEIVED: frozenset({Step.ARRIVED}),
    Kind.FEE: frozenset({Step.CREDITED}),
    Kind.EXCHANGE: frozenset({Step.EXCHANGED}),
}


def evolve(terms: Terms, state: State, step: Step) -> State:
    """Return the state after `step`.

    Raises: ImpossibleStepError when it cannot follow.
    """
    if not _may_follow(terms.kind, state, step):
        name = f"{terms.kind} that is {state.status} after {state.steps} steps"
        raise ImpossibleStepError(f"{step} cannot follow: a payment {name}")
    after = replace(state, steps=state.steps + 1)
    match step:
        case Step.DEBITED:
            return replace(after, is_debited=True)
        case Step.SUBMITTED:
            return replace(after, status=Status.PROCESSING)
        case Step.ARRIVED:
            return replace(after, has_arrived=True)
        case Step.COMPLETED | Step.CREDITED | Step.EXCHANGED:
            return replace(after, status=Status.COMPLETED)
        case Step.FAILED | Step.REJECTED:
            moved = state.is_debited or state.has_arrived
            return replace(
                after,
                status=Status.FAILED if step is Step.FAILED else Status.REJECTED,
                refund=RefundStatus.PENDING if moved else None,
            )
        case Step.RETURNED:
            return replace(
                after, status=Status.FAILED, refund=RefundStatus.PENDING, is_returned=True
            )
        case Step.REFUNDED:
            return replace(after, refund=RefundStatus.COMPLETED)
        case Step.REFUND_FAILED:
            return replace(after, refund=RefundStatus.FAILED)


def _may_follow(  # noqa: C901 - one branch a step
    kind: Kind, state: State, step: Step
) -> bool:
    if not state.steps:
        return step in _FIRST.get(kind, frozenset())
    is_open = state.status in _OPEN
    match step:
        case Step.SUBMITTED:
            return kind is Kind.OUT and state.status is Status.PENDING
        case Step.COMPLETED:
            return kind is Kind.OUT and is_open
        case Step.RETURNED:
            return kind is Kind.OUT and state.status is Status.COMPLETED
        case Step.ARRIVED:
            return kind is Kind.IN and is_open and not state.has_arrived
        case Step.CREDITED:
            return state.has_arrived and is_open
        case Step.FAILED:
            return is_open
        case Step.REJECTED:
            return kind is Kind.RECEIVED and is_open
        case Step.REFUNDED:
            return state.refund in {RefundStatus.PENDING, RefundStatus.FAILED}
        case Step.REFUND_FAILED:
            return state.refund is RefundStatus.PENDING
    return False


def entries(terms: Terms, state: State, step: Step) -> list[Movement]:
    """Return what `step` books when it follows `state`, in the order of the lines."""
    return [movement for movement in _movements(terms, state, step) if movement.entry.amount]


def _movements(  # noqa: C901, PLR0912 - one branch a step
    terms: Terms, state: State, step: Step
) -> Iterator[Movement]:
    match step:
        case Step.DEBITED:
            if terms.is_funded:
                yield _sent(_OUTSIDE, _CUSTOMER, terms.amount)
            yield from _pay(terms, ChartAccount.OUTBOUND_CLEARING)
            yield _sent(_CUSTOMER, ChartAccount.OUTBOUND_CLEARING, terms.fee)
        case Step.COMPLETED:
            yield _received(ChartAccount.OUTBOUND_CLEARING, _OUTSIDE, terms.received)
            yield _sent(ChartAccount.OUTBOUND_CLEARING, ChartAccount.TRANSFERS, terms.fee)
        case Step.RETURNED:
            yield _received(_OUTSIDE, ChartAccount.OUTBOUND_CLEARING, terms.received)
        case Step.REFUNDED if state.is_debited:
            yield from _pay_back(terms)
            if not state.is_returned:  # Else the platform has earned it.
                yield _sent(ChartAccount.OUTBOUND_CLEARING, _CUSTOMER, terms.fee)
        case Step.REFUNDED:
            yield _sent(ChartAccount.INBOUND_CLEARING, _OUTSIDE, terms.amount)
        case Step.ARRIVED:
            yield _sent(_OUTSIDE, ChartAccount.INBOUND_CLEARING, terms.amount)
        case Step.CREDITED if terms.kind is Kind.FEE:
            yield _sent(ChartAccount.TRANSFERS, _CUSTOMER, terms.amount)
        case Step.CREDITED:
            yield _sent(ChartAccount.INBOUND_CLEARING, _CUSTOMER, terms.amount)
        case Step.EXCHANGED:
            if terms.is_funded:
                yield _sent(_OUTSIDE, _CUSTOMER, terms.amount)
            yield from _pay(terms, _CUSTOMER)
            yield _sent(_CUSTOMER, ChartAccount.TRANSFERS, terms.fee)
        case Step.SUBMITTED | Step.FAILED | Step.REJECTED | Step.REFUND_FAILED:
            return


_CUSTOMER: Final = ChartAccount.CUSTOMER
_OUTSIDE: Final = ChartAccount.SANDBOX_FUNDING
"""Where money comes from and goes to (docs/decisions/0078-payments.md)."""


def _sent(debit: ChartAccount, credit: ChartAccount, amount: int) -> Movement:
    return Movement(Entry(debit, credit, amount))


def _received(debit: ChartAccount, credit: ChartAccount, amount: int) -> Movement:
    return Movement(Entry(debit, credit, amount), is_received=True)


def _pay(terms: Terms, to: ChartAccount) -> Iterator[Movement]:
    """Yield the way of the principal from the source to `to`, by FX when it is converted."""
    if not terms.is_converted:
        yield _sent(_CUSTOMER, to, terms.principal)
        return
    yield _sent(_CUSTOMER, ChartAccount.FX, terms.principal)
    yield _received(ChartAccount.FX, to, terms.received)


def _pay_back(terms: Terms) -> Iterator[Movement]:
    """Yield the same way back to the source, exactly."""
    if not terms.is_converted:
        yield _sent(ChartAccount.OUTBOUND_CLEARING, _CUSTOMER, terms.principal)
        return
    yield _received(ChartAccount.OUTBOUND_CLEARING, ChartAccount.FX, terms.received)
    yield _sent(ChartAccount.FX, _CUSTOMER, terms.principal)
