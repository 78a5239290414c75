"""Payments: money that leaves an owner or arrives at one, step by step.

What may follow what, and what a step books, is in `core.payments.payment`. A payment to another
owner of this installation is two: OUT in the queue of the sender, RECEIVED in that of the receiver,
who tells the sender what became of it. So no queue changes the accounts of another one.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from cardledger.ledger.core.money import checked
from cardledger.ledger.core.payments import transfer as limits
from cardledger.ledger.core.payments.payment import Kind, RefundStatus, Status, Step
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.payments import messages
from cardledger.ledger.engine.decisions.payments.steps import Life, PaymentSteps
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.suspense import Suspense
from cardledger.ledger.engine.parsing import RejectedError, id_of, malformed, owns, string_of
from cardledger.ledger.engine.records import Decided, LockedAccount
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.ports import RailAction, RailPayment, RailStep
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType, RejectionReason

APPROVAL_LIMIT: Final = timedelta(seconds=15)
"""After which a payment that has no decision fails: five seconds for the answer to its
webhook, five for the decision after that, and a margin."""

NOT_CANCELLABLE: Final = "NOT_CANCELLABLE"
NOT_PENDING: Final = "NOT_PENDING"
NO_FAILED_REFUND: Final = "NO_FAILED_REFUND"


class Payments:
    """Decides messages of payments; what moves is in the row of a payment, not in its message.

    The row is one that a process of this installation has signed (`reads.lock_signed_transfers`).
    """

    def __init__(
        self, changes: ChangeSet, recovery: Recovery, rail: RailAnswers, suspense: Suspense
    ) -> None:
        self._changes: Final = changes
        self._rail: Final = rail
        self._steps: Final = PaymentSteps(changes, recovery, suspense)

    def find(self, message: Message) -> Transfer | None:
        """Return the payment that `message` names; None: there is none, or it is INTERNAL."""
        key = id_of(message.body, "transferId")
        writes = self._changes.writes
        found = (
            writes.payments.get(key)
            or writes.arrived.get(key)
            or self._changes.snapshot.transfers.get(key)
        )
        if found is None or found.is_internal or not owns(message, found):
            return None
        return found

    def decide(self, message: Message, kind: str) -> Decided:
        """Decide a message of any type but the one that begins a payment."""
        if kind == inbox.TRANSFER_ARRIVAL:
            return self._arrive(message)
        if kind == inbox.TRANSFER_FEE:
            return self._credit_fee(message)
        payment = self.find(message)
        if payment is None:
            raise RejectedError(
                RejectionReason.UNKNOWN_TRANSFER,
                "Unknown transfer: transferId does not match a payment of this owner.",
            )
        life = Life(payment, message)
        match kind:
            case inbox.TRANSFER_CANCELLATION:
                return self._cancel(life)
            case inbox.TRANSFER_APPROVAL:
                return self._decide_arrival(life)
            case inbox.TRANSFER_DUE:
                return self._continue(life)
            case inbox.TRANSFER_REFUND:
                return self._refund_again(life)
            case _:  # What the receiver or a rail says.
                return self._answer(life)

    # --- beginnings --------------------------------------------------------------------------

    def start(self, message: Message, payment: Transfer) -> Decided:
        """Debit the source of a payment and hand it over, or fail it."""
        if payment.status != Status.PENDING or payment.sequence or payment.requested_at is None:
            raise RejectedError(
                RejectionReason.UNKNOWN_TRANSFER,
                "Unknown transfer: transferId does not match a payment that was requested.",
            )
        life = Life(payment, message)
        reason = self._refusal(payment)
        if reason:
            self._steps.refuse(life, reason)
            return Decided(message, OutcomeType.DECLINED, reason=reason)
        if payment.kind == Kind.EXCHANGE:
            self._steps.take(life, Step.EXCHANGED)
            self._send_fee(life)
        elif payment.kind == Kind.OUT:
            self._steps.take(life, Step.DEBITED)
            self._proceed(life)
        else:
            self._proceed(life)
        return life.applied()

    def fail_unstarted(self, message: Message) -> None:
        """Fail the payment that `message`, which is rejected, was to begin."""
        body = message.body
        if not isinstance(body, dict) or body.get("type") != inbox.TRANSFER:
            return
        try:
            payment = self.find(message)
        except RejectedError:
            return
        if payment and payment.status == Status.PENDING and not payment.sequence:
            self._steps.refuse(Life(payment, message), FailureReason.INTERNAL_ERROR)

    def _refusal(self, payment: Transfer) -> FailureReason | None:
        if payment.kind == Kind.IN:
            can_receive = limits.can_receive(payment.amount, self._funds(payment, is_source=False))
            return None if can_receive else FailureReason.ACCOUNT_CANNOT_RECEIVE
        source = self._funds(payment, is_source=True)
        if payment.is_funded:
            if not limits.can_receive(payment.amount, source):
                return FailureReason.ACCOUNT_CANNOT_RECEIVE
            # It is all spent at once, whatever is owed.
            source = replace(source, balance=payment.amount, owed=0)
        if payment.kind == Kind.EXCHANGE:
            destination = self._funds(payment, is_source=False)
            return limits.exchange_refusal(payment.amount, source, payment.received, destination)
        return limits.debit_refusal(payment.amount, source)

    def _funds(self, payment: Transfer, *, is_source: bool) -> limits.Funds:
        return self._steps.account_of(payment, is_source=is_source).funds

    def _proceed(self, life: Life) -> None:
        """Hand a payment over to its receiver, or to the rail as far as that has answered."""
        if life.payment.peer_id is not None:
            self._steps.take(life, Step.SUBMITTED)
            life.send(self._changes, messages.arrival(life.payment, self._changes.now))
            return
        while life.awaits_rail:
            answer = self._rail.payment_step(_for_rail(life))
            if answer is None:
                return
            if answer.at > self._changes.now:
                self._steps.wait(life, until=answer.at)
                return
            self._act(life, answer)

    def _act(self, life: Life, answer: RailStep) -> None:
        match answer.action:
            case RailAction.SUBMIT:
                self._steps.take(life, Step.SUBMITTED)
            case RailAction.COMPLETE:
                self._complete(life)
            case RailAction.FAIL:
                self._steps.fail(
                    life,
                    answer.reason or FailureReason.REJECTED_BY_BANK,
                    because="USER_CANCELLATION" if answer.is_cancellation else _FAILED,
                    gives_back=not answer.refund_fails,
                )
            case RailAction.RETURN:
                self._steps.give_back(life, Step.RETURNED, FailureReason.PAYOUT_RETURNED)

    def _complete(self, life: Life) -> None:
        if life.payment.kind == Kind.IN:
            self._steps.take(life, Step.ARRIVED)
            self._credit(life)
            return
        self._steps.take(life, Step.COMPLETED)
        self._send_fee(life)

    def _send_fee(self, life: Life) -> None:
        """Send what the platform has earned to its own queue, which credits its account."""
        if life.payment.fee_amount:
            life.send(self._changes, messages.fee(life.payment, self._changes.now))

    # --- what comes later --------------------------------------------------------------------

    def _continue(self, life: Life) -> Decided:
        payment, now = life.payment, self._changes.now
        if payment.due_at is None:
            return Decided(life.message, OutcomeType.IGNORED)
        if payment.due_at > now:
            return Decided(life.message, OutcomeType.IGNORED, reason=OutcomeFlag.NOT_DUE)
        if payment.kind == Kind.RECEIVED:
            self._refuse_arrival(life, FailureReason.PAYMENT_APPROVAL_TIMED_OUT, because="TIMEOUT")
        else:
            self._proceed(life)
            if life.payment is payment:  # The rail has said nothing.
                if not self._rail.is_connected:  # The step stays due until one is.
                    return Decided(life.message, OutcomeType.IGNORED, reason=OutcomeFlag.NOT_DUE)
                self._steps.wait(life, until=None)  # A message of the rail will tell.
        return life.applied()

    def _cancel(self, life: Life) -> Decided:
        payment = life.payment
        if payment.status != Status.PENDING or payment.kind not in {Kind.OUT, Kind.IN}:
            return Decided(life.message, OutcomeType.DECLINED, reason=NOT_CANCELLABLE)
        # A payout that was not begun: its own message is late, or was rejected.
        if payment.kind == Kind.OUT and not payment.sequence:
            self._steps.refuse(life, FailureReason.CANCELLED)
            return life.applied()
        self._steps.fail(life, FailureReason.CANCELLED, because="USER_CANCELLATION")
        return life.applied()

    def _refund_again(self, life: Life) -> Decided:
        """Repeat a refund that has failed, as the operator has asked."""
        if life.payment.refund_status != RefundStatus.FAILED:
            return Decided(life.message, OutcomeType.DECLINED, reason=NO_FAILED_REFUND)
        if not self._steps.can_refund(life):
            return life.declined(FailureReason.ACCOUNT_CANNOT_RECEIVE)
        self._steps.refund_again(life)
        return life.applied()

    def _answer(self, life: Life) -> Decided:
        """Complete, fail or return a payment, as its receiver or its rail says."""
        outcome = string_of(life.message.body, "outcome")
        is_open = life.payment.status in {Status.PENDING, Status.PROCESSING}
        if outcome == "RETURNED" and life.payment.status == Status.COMPLETED:
            self._steps.give_back(life, Step.RETURNED, FailureReason.PAYOUT_RETURNED)
        elif outcome == "COMPLETED" and is_open:
            self._complete(life)
        elif outcome == "FAILED" and is_open:
            self._steps.fail(life, _reason_in(life.message.body), because=_FAILED)
        elif outcome not in {"RETURNED", "COMPLETED", "FAILED"}:
            raise malformed("outcome must be COMPLETED, FAILED or RETURNED")
        else:
            return Decided(life.message, OutcomeType.IGNORED)
        return life.applied()

    # --- what arrives ------------------------------------------------------------------------

    def _arrive(self, message: Message) -> Decided:
        """Take in a payment of another owner or from outside: credit it, or ask for approval."""
        payment = messages.arriving(message, self._owner_name(message), self._changes.now)
        account = self._receiving_account(payment)
        life = Life(payment, message)
        if account is None:
            if payment.origin_id is None:
                raise RejectedError(
                    RejectionReason.UNKNOWN_ACCOUNT,
                    "Unknown account: accountId does not match an internal account of this owner in"
                    " the currency of the payment.",
                )
            self._tell_sender(life, FailureReason.ACCOUNT_CANNOT_RECEIVE)
            return life.declined(FailureReason.ACCOUNT_CANNOT_RECEIVE)
        self._steps.take(life, Step.ARRIVED)
        if reason := self._refusal_of_network(life):
            self._refuse_arrival(life, reason, because=_FAILED)
            return life.declined(reason)
        if payment.needs_approval:
            self._steps.wait(life, until=self._changes.now + APPROVAL_LIMIT)
            self._steps.announce(life)
            return life.applied()
        return self._credit(life)

    def _refusal_of_network(self, life: Life) -> FailureReason | None:
        """Return why the network takes back what has come from a UMA address elsewhere, if so."""
        payment = life.payment
        if payment.uma_address is None or payment.origin_id is not None:
            return None
        answer = self._rail.payment_step(_for_rail(life))
        if answer is None or answer.action is not RailAction.FAIL:
            return None
        return answer.reason or FailureReason.COMPLIANCE_REJECTED

    def _receiving_account(self, payment: Transfer) -> LockedAccount | None:
        assert payment.destination_account_id is not None
        account = self._changes.snapshot.accounts.get(payment.destination_account_id)
        if account is None or account.customer_id != payment.customer_id:
            return None
        return account if account.currency == payment.currency else None

    def _credit(self, life: Life) -> Decided:
        """Credit what has arrived; send it back when the account cannot receive it."""
        if not limits.can_receive(life.payment.amount, self._funds(life.payment, is_source=False)):
            self._refuse_arrival(life, FailureReason.ACCOUNT_CANNOT_RECEIVE, because=_FAILED)
            return life.declined(FailureReason.ACCOUNT_CANNOT_RECEIVE)
        self._steps.take(life, Step.CREDITED)
        self._tell_sender(life, None)
        return life.applied()

    def _refuse_arrival(self, life: Life, reason: FailureReason, *, because: str) -> None:
        self._steps.fail(life, reason, because=because)
        self._tell_sender(life, reason)

    def _tell_sender(self, life: Life, reason: FailureReason | None) -> None:
        if life.payment.origin_id is not None:
            life.send(self._changes, messages.receipt(life.payment, reason, self._changes.now))

    def _decide_arrival(self, life: Life) -> Decided:
        """Approve, reject or fail a payment that has arrived: the first decision counts."""
        payment, body = life.payment, life.message.body
        decision = string_of(body, "decision")
        if decision not in {"APPROVE", "REJECT", "FAIL"}:
            raise malformed("decision must be APPROVE, REJECT or FAIL")
        if payment.kind != Kind.RECEIVED or payment.status != Status.PENDING:
            return Decided(life.message, OutcomeType.DECLINED, reason=NOT_PENDING)
        if decision == "APPROVE":
            return self._credit(life)
        if decision == "FAIL":
            self._refuse_arrival(life, _reason_in(body), because=_FAILED)
        else:
            self._steps.reject(life, messages.optional_text(body, "reason"))
            self._tell_sender(life, FailureReason.REJECTED_BY_PLATFORM)
        return life.applied()

    def _credit_fee(self, message: Message) -> Decided:
        """Credit the platform with the fee of a payment."""
        accounts = self._changes.snapshot.accounts
        payment = messages.arriving_fee(message, self._changes.now)
        own = (
            account
            for account in accounts.values()
            if (account.customer_id, account.currency) == (message.customer_id, payment.currency)
        )
        account = min(own, key=lambda account: account.id, default=None)
        if account is None:
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT,
                f"Unknown account: the platform has no internal account in {payment.currency}.",
            )
        checked(account.balance + account.held + payment.amount)  # Else it stays in TRANSFERS.
        life = Life(replace(payment, destination_account_id=account.id), message)
        self._steps.take(life, Step.CREDITED)
        return life.applied()

    def _owner_name(self, message: Message) -> str:
        names: Mapping[Any, str] = self._changes.snapshot.platform_customer_ids
        return names.get(message.customer_id, str(message.customer_id))


_FAILED: Final = "TRANSACTION_FAILED"

_RAIL_STEPS_BEFORE: Final[Mapping[str, int]] = {Kind.OUT.value: 1}  # It was debited.


def _for_rail(life: Life) -> RailPayment:
    payment = life.payment
    return RailPayment(
        ending=payment.uma_address or payment.account_ending or "",
        is_pull=payment.kind == Kind.IN,
        is_quoted=payment.quote_id is not None,
        done=life.state.steps - _RAIL_STEPS_BEFORE.get(payment.kind, 0),
        changed_at=payment.updated_at,
    )


def _reason_in(body: Mapping[str, Any]) -> FailureReason:
    """Return the failure code in `body`.

    Raises: RejectedError for one that does not exist.
    """
    try:
        return FailureReason(string_of(body, "reason"))
    except ValueError as error:
        raise malformed("reason is not a failure code") from error
