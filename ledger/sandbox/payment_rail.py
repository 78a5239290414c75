"""The sandbox's payment rail: the end of the other account's identifier chooses its answers."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.ports import RailAction, RailPayment, RailStep

_SLOWLY: Final = 12
"""How many times the delay of the sandbox a slow payment takes: 6 minutes of 30 seconds."""


class _Planned(NamedTuple):
    """A step, so many times the delay of the sandbox after the one before."""

    action: RailAction
    delays: int = 0
    reason: FailureReason | None = None
    is_cancellation: bool = False
    refund_fails: bool = False


_SUBMITTED: Final = _Planned(RailAction.SUBMIT)
_COMPLETED: Final = _Planned(RailAction.COMPLETE)
_DONE: Final = (_SUBMITTED, _COMPLETED)
_SLOW: Final = (_SUBMITTED, _Planned(RailAction.COMPLETE, _SLOWLY))


def _failed(reason: FailureReason, *, delays: int = 0) -> _Planned:
    return _Planned(RailAction.FAIL, delays, reason)


_PLANS: Final[Mapping[str, Sequence[_Planned]]] = {
    "002": (_failed(FailureReason.INSUFFICIENT_FUNDS),),
    "003": (_failed(FailureReason.ACCOUNT_INVALID),),
    "004": (_failed(FailureReason.REJECTED_BY_BANK),),
    "005": (_failed(FailureReason.REJECTED_BY_BANK, delays=1),),
}
"""Of transfers, by the last three characters."""

_PLANS_OF_QUOTES: Final[Mapping[str, Sequence[_Planned]]] = {
    "002": (_failed(FailureReason.QUOTE_EXECUTION_FAILED),),
    "003": _SLOW,
    "004": (_SUBMITTED, _failed(FailureReason.COUNTERPARTY_POST_TX_FAILED)),
    "005": (
        _SUBMITTED,
        _COMPLETED,
        _Planned(RailAction.RETURN, 1, FailureReason.PAYOUT_RETURNED),
    ),
    "006": (_Planned(RailAction.FAIL, 0, FailureReason.CANCELLED, is_cancellation=True),),
    "007": (
        _SUBMITTED,
        _Planned(RailAction.FAIL, 0, FailureReason.COUNTERPARTY_POST_TX_FAILED, refund_fails=True),
    ),
}

_PLANS_OF_ADDRESSES: Final[Mapping[str, Sequence[_Planned]]] = {
    "$pending.long": _SLOW,
    "$fail.compliance": (_SUBMITTED, _failed(FailureReason.COMPLIANCE_REJECTED)),
}
"""Of UMA addresses, by what they begin with."""


def payment_step(payment: RailPayment, delay: timedelta) -> RailStep | None:
    """Return what happens next to `payment`."""
    plan = _plan(payment)
    if payment.done >= len(plan):
        return None
    step = plan[payment.done]
    return RailStep(
        action=step.action,
        at=payment.changed_at + step.delays * delay,
        reason=step.reason,
        is_cancellation=step.is_cancellation,
        refund_fails=step.refund_fails,
    )


def _plan(payment: RailPayment) -> Sequence[_Planned]:
    if payment.ending.startswith("$"):
        matching = (
            plan
            for beginning, plan in _PLANS_OF_ADDRESSES.items()
            if payment.ending.startswith(f"{beginning}.")
        )
        return next(matching, _DONE)
    plans = _PLANS_OF_QUOTES if payment.is_quoted else _PLANS
    return plans.get(payment.ending[-3:], _DONE)
