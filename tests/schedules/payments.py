"""Scenarios of payments. Each message names a payment that was brought to where it is decided."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.engine import timers
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message as Sent
from cardledger.ledger.messaging.inbox_key import Signed
from cardledger.ledger.payments import messages
from cardledger.ledger.payments.messages import Arrival, Decision, RailOutcome
from cardledger.ledger.projections import transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from tests.payments import STARTED_AT, Desk
from tests.schedules.actors import accept
from tests.schedules.scenario import MakeMessage, Message, Scenario
from tests.world import INBOX_KEY, Cardholder, World

_AMOUNT: Final = 4_000
_FEE: Final = 50

# Ends of account numbers, by which the rail of the sandbox chooses its answers.
_PAID: Final = "000"
_FAILS_LATER: Final = "005"
_SLOW: Final = "003"  # Of a quote, as the next one.
_REFUND_FAILS: Final = "007"


def _body(message: Sent) -> Message:
    return dict(message.body)


def _record(world: World, payment: Transfer) -> None:
    """Record `payment`, which is new, without a message that begins it."""
    mac = INBOX_KEY.mac_of_terms(Signed.PAYMENT, payment.signed_terms)
    with world.database.begin() as connection:
        connection.execute(transfers.insert(replace(payment, mac=mac)))


def _begin(world: World, owner: Cardholder, payment: Transfer, balance: int = 0) -> Transfer:
    """Deposit `balance`, and let the engine begin `payment`; return it as it is then."""
    _record(world, payment)
    deposits = [world.deposit(owner, balance)] if balance else []
    accept(world, owner, [*deposits, _body(messages.execution(payment, None, STARTED_AT))])
    desk = Desk(world)
    desk.drain()
    return desk.stored(payment.id)


def _draft(
    world: World, cardholder: Cardholder, ending: str, quote_id: Id | None = None
) -> Transfer:
    """Return a payout to a new account at a bank, as it is when it is requested."""
    desk = Desk(world)
    bank = desk.external_account(cardholder.owner, f"1234567{ending}")
    return desk.draft(
        cardholder,
        _AMOUNT,
        bank,
        Kind.OUT,
        account_ending=f"7{ending}",
        quote_id=quote_id,
        requested_at=STARTED_AT,
    )


def _draft_to(world: World, sender: Cardholder, receiver: Cardholder, **fields: Any) -> Transfer:  # noqa: ANN401 - columns
    """Return a payment to another owner, as it is when it is requested."""
    return Desk(world).draft(
        sender,
        _AMOUNT,
        receiver.account_id,
        Kind.OUT,
        peer_id=receiver.owner.customer_id,
        peer_platform_id=receiver.owner.platform_id,
        requested_at=STARTED_AT,
        **fields,
    )


def _payout(
    world: World, cardholder: Cardholder, ending: str, quote_id: Id | None = None
) -> Transfer:
    """Return a new payout that has gone as far as its rail lets it."""
    return _begin(world, cardholder, _draft(world, cardholder, ending, quote_id))


def _named(world: World, cardholder: Cardholder, kind: Kind) -> Transfer | None:
    """Return the payment that an earlier message of the scenario names, if there is one."""
    rows = world.rows(
        "SELECT id FROM transfers WHERE customer_id = %s AND kind = %s",
        cardholder.owner.customer_id,
        kind.value,
    )
    return Desk(world).stored(rows[0][0]) if rows else None


# --- beginnings, cancellations -------------------------------------------------------------------


def _payment_to_another(world: World, cardholder: Cardholder) -> Message:
    """A payment with a fee to a new cardholder of the platform, which has an account for it."""
    platform_id = cardholder.owner.platform_id
    if not world.rows("SELECT FROM internal_accounts WHERE customer_id = %s", platform_id):
        Desk(world).platform_account(platform_id)
    receiver = world.cardholder(platform_id)
    payment = _draft_to(world, cardholder, receiver, fee_amount=_FEE)
    _record(world, payment)
    return _body(messages.execution(payment, None, STARTED_AT))


def _unbegun(world: World, cardholder: Cardholder) -> Transfer:
    """Return a payout whose message has not arrived."""
    if found := _named(world, cardholder, Kind.OUT):
        return found
    payment = _draft(world, cardholder, _PAID)
    _record(world, payment)
    return payment


def _late_beginning(world: World, cardholder: Cardholder) -> Message:
    return _body(messages.execution(_unbegun(world, cardholder), None, STARTED_AT))


def _early_cancellation(world: World, cardholder: Cardholder) -> Message:
    return _body(messages.cancellation(_unbegun(world, cardholder), None, STARTED_AT))


def _cancellation(ending: str) -> MakeMessage:
    def cancel(world: World, cardholder: Cardholder) -> Message:
        payment = _payout(world, cardholder, ending)
        return _body(messages.cancellation(payment, None, STARTED_AT))

    return cancel


# --- what arrives --------------------------------------------------------------------------------


def _arriving(cardholder: Cardholder, *, needs_approval: bool) -> Message:
    wanted = Arrival(
        id=new_id(),
        owner=cardholder.owner,
        account_id=cardholder.account_id,
        amount=_AMOUNT,
        currency="USD",
        needs_approval=needs_approval,
    )
    return _body(messages.arrival(wanted, None, STARTED_AT))


def _arrival(status: str = "ACTIVE", *, needs_approval: bool = False) -> MakeMessage:
    """Money arrives from outside for another account of the cardholder, which has `status`."""
    return lambda world, cardholder: _arriving(
        world.another_account(cardholder, status=status), needs_approval=needs_approval
    )


def _from_outside(world: World, cardholder: Cardholder) -> None:
    accept(world, cardholder, [_arriving(cardholder, needs_approval=True)])
    Desk(world).drain()


def _from_another(world: World, cardholder: Cardholder) -> None:
    sender = world.cardholder(cardholder.owner.platform_id)
    _begin(world, sender, _draft_to(world, sender, cardholder, needs_approval=True), _AMOUNT)


_Arrive = Callable[[World, Cardholder], None]


def _awaiting(world: World, cardholder: Cardholder, arrive: _Arrive) -> Transfer:
    """Return the payment that has arrived and needs approval."""
    found = _named(world, cardholder, Kind.RECEIVED)
    if found is None:
        arrive(world, cardholder)
        found = _named(world, cardholder, Kind.RECEIVED)
        assert found
    return found


def _decision(
    decision: Decision, reason: str | None = None, arrive: _Arrive = _from_outside
) -> MakeMessage:
    def decide(world: World, cardholder: Cardholder) -> Message:
        key = _awaiting(world, cardholder, arrive).id
        owner = cardholder.owner
        return _body(messages.approval(key, owner, decision, reason=reason, at=STARTED_AT))

    return decide


# --- what the schedule, a rail and the operator say ----------------------------------------------


def _due(payment: Transfer) -> Message:
    """The schedule continues `payment`."""
    return {
        "type": inbox.TRANSFER_DUE,
        "source": timers.SOURCE,
        "reference": f"{payment.id}/due/{STARTED_AT:%Y%m%dT%H%M%S.%f}",
        "transferId": str(payment.id),
    }


def _due_payout(ending: str) -> MakeMessage:
    return lambda world, cardholder: _due(_payout(world, cardholder, ending))


def _due_approval(world: World, cardholder: Cardholder) -> Message:
    return _due(_awaiting(world, cardholder, _from_outside))


def _answer(outcome: RailOutcome, reason: FailureReason | None = None) -> MakeMessage:
    """The rail answers about a slow payout of the cardholder."""

    def answer(world: World, cardholder: Cardholder) -> Message:
        payment = _named(world, cardholder, Kind.OUT)
        payment = payment or _payout(world, cardholder, _SLOW, new_id())
        return _body(messages.rail_answer(payment, outcome, reason, at=STARTED_AT))

    return answer


def _return(status: str) -> MakeMessage:
    """A payout comes back to its account, which has `status` by then."""

    def come_back(world: World, cardholder: Cardholder) -> Message:
        account = world.another_account(cardholder)
        payment = _begin(world, account, _draft(world, account, _PAID), _AMOUNT)
        world.connection.execute(
            "UPDATE internal_accounts SET status = %s WHERE id = %s", [status, account.account_id]
        )
        return _body(messages.rail_answer(payment, RailOutcome.RETURNED, None, at=STARTED_AT))

    return come_back


def _refund(world: World, cardholder: Cardholder) -> Message:
    """The operator attempts a refund that has failed."""
    payment = _named(world, cardholder, Kind.OUT)
    payment = payment or _payout(world, cardholder, _REFUND_FAILS, new_id())
    return _body(messages.refund(payment.id, cardholder.owner, new_id(), at=STARTED_AT))


_APPROVAL: Final = _decision(Decision.APPROVE)
_REJECTION: Final = _decision(Decision.REJECT, "not wanted")
_FAILURE: Final = _decision(Decision.FAIL, FailureReason.MISSING_MANDATORY_PAYEE_DATA.value)
_APPROVAL_OF_ANOTHER: Final = _decision(Decision.APPROVE, arrive=_from_another)
_REJECTION_OF_ANOTHER: Final = _decision(Decision.REJECT, "not wanted", _from_another)
_COMPLETED: Final = _answer(RailOutcome.COMPLETED)
_FAILED: Final = _answer(RailOutcome.FAILED, FailureReason.REJECTED_BY_BANK)

_RECEIPT: Final = [inbox.TRANSFER_RECEIPT]
_TO_ANOTHER: Final = [inbox.TRANSFER_ARRIVAL, inbox.TRANSFER_RECEIPT, inbox.TRANSFER_FEE]
_TWICE: Final = ["APPLIED"] * 2
_SECOND_IN_VAIN: Final = ["APPLIED", "DECLINED"]

PAYMENTS: Final = [
    Scenario(
        "payment to another",
        [_payment_to_another],
        follow_ups=_TO_ANOTHER,
        outcomes=["APPLIED"] * 4,
    ),
    Scenario("cancellation", [_cancellation(_FAILS_LATER)]),
    Scenario("late cancellation", [_cancellation(_PAID)], outcomes=["DECLINED"]),
    Scenario(
        "early cancellation",
        [_early_cancellation, _late_beginning],
        outcomes=["APPLIED", "REJECTED"],
    ),
    Scenario("arrival", [_arrival()]),
    Scenario("arrival that needs approval", [_arrival(needs_approval=True)]),
    Scenario("arrival at a closed account", [_arrival("CLOSED")], outcomes=["DECLINED"]),
    Scenario("approval", [_APPROVAL_OF_ANOTHER], follow_ups=_RECEIPT, outcomes=_TWICE),
    Scenario("rejection", [_REJECTION_OF_ANOTHER], follow_ups=_RECEIPT, outcomes=_TWICE),
    Scenario("failed approval", [_FAILURE]),
    Scenario("missed approval", [_due_approval]),
    Scenario("two decisions", [_APPROVAL, _REJECTION], outcomes=_SECOND_IN_VAIN),
    Scenario("due failure", [_due_payout(_FAILS_LATER)]),
    Scenario("nothing due", [_due_payout(_PAID)], outcomes=["IGNORED"]),
    Scenario("completed payout", [_COMPLETED]),
    Scenario("failed payout", [_FAILED]),
    Scenario("two answers", [_FAILED, _COMPLETED], outcomes=["APPLIED", "IGNORED"]),
    Scenario("returned payout", [_return("ACTIVE")]),
    Scenario("payout returned to a closed account", [_return("CLOSED")]),
    Scenario("two refunds", [_refund] * 2, outcomes=_SECOND_IN_VAIN),
]
