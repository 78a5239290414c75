"""The steps of payments as rows: events, entries, what becomes of the payment, and webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from pydantic_core import to_json

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.payments import payment as rules
from cardledger.ledger.core.payments import transfer as limits
from cardledger.ledger.core.payments.payment import Movement, RefundStatus, State, Status, Step
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.suspense import Suspense
from cardledger.ledger.engine.parsing import RejectedError
from cardledger.ledger.engine.records import Decided, LockedAccount
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts, payment_resources
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

_OPEN: Final = frozenset({Status.PENDING, Status.PROCESSING, Status.COMPLETED})


def state_of(payment: Transfer) -> State:
    """Return where `payment`, a row, stands."""
    is_debited = payment.kind == rules.Kind.OUT and payment.sequence > 0
    has_arrived = payment.kind == rules.Kind.RECEIVED and payment.sequence > 0
    return State(
        steps=payment.sequence,
        status=Status(payment.status),
        refund=None if payment.refund_status is None else RefundStatus(payment.refund_status),
        is_debited=is_debited,
        has_arrived=has_arrived,
        is_returned=payment.failure_reason == FailureReason.PAYOUT_RETURNED,
    )


@dataclass(slots=True, eq=False)
class Life:
    """A payment while a message works on it."""

    payment: Transfer
    message: Message
    state: State = field(init=False)
    _shards: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = state_of(self.payment)

    @property
    def awaits_rail(self) -> bool:
        """Whether a rail may still do something with it."""
        return self.state.status in _OPEN

    def send(self, changes: ChangeSet, message: Message) -> None:
        """Put `message` into the queue of its owner, in the same commit."""
        changes.writes.follow_ups.append(message)
        self._shards.append(message.shard)

    def applied(self) -> Decided:
        """Return the result of a message that was applied."""
        return self._decided(OutcomeType.APPLIED, None)

    def declined(self, reason: FailureReason) -> Decided:
        """Return the result of a message that was declined for `reason`."""
        return self._decided(OutcomeType.DECLINED, reason)

    def _decided(self, outcome: OutcomeType, reason: str | None) -> Decided:
        return Decided(
            self.message, outcome, reason=reason, continues=bool(self._shards), wakes=self._shards
        )


@dataclass(frozen=True, slots=True)
class PaymentAccount:
    """An internal account of the owner of a payment."""

    locked: LockedAccount

    @property
    def funds(self) -> limits.Funds:
        """What the rules read of it."""
        account = self.locked
        return limits.Funds(
            is_usable=account.status == accounts.ACTIVE,
            balance=account.balance,
            held=account.held,
            owed=account.owed,
        )


class PaymentSteps:
    """Takes steps of payments."""

    def __init__(self, changes: ChangeSet, recovery: Recovery, suspense: Suspense) -> None:
        self._changes: Final = changes
        self._suspense: Final = suspense
        self._recovery: Final = recovery

    def account_of(self, payment: Transfer, *, is_source: bool) -> PaymentAccount:
        """Return the source or the destination of `payment`, an account of its owner.

        Raises: RejectedError when it is none.
        """
        key = payment.source_account_id if is_source else payment.destination_account_id
        account = None if key is None else self._changes.snapshot.accounts.get(key)
        if account is None or account.customer_id != payment.customer_id:
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT,
                "Unknown account: the payment names no internal account of its owner.",
            )
        return PaymentAccount(account)

    def refuse(self, life: Life, reason: FailureReason) -> None:
        """Fail a payment of which nothing has moved, without an event."""
        life.payment = life.payment.failed(reason, at=self._changes.now)
        self._keep(life)
        self.announce(life)

    def take(self, life: Life, step: Step, reason: FailureReason | None = None) -> None:
        """Record `step`: its event and entries, the payment after it, and its webhook."""
        before = life.state
        state = rules.evolve(life.payment.terms, before, step)
        movements = rules.entries(life.payment.terms, before, step)
        payment, now = life.payment, self._changes.now
        dates = self._changes.dates_of(life.message)
        credited = self._book(life, movements, sequence=state.steps)
        self._changes.writes.payment_events.append(
            (
                payment.id,
                state.steps,
                payment.customer_id,
                step.value,
                reason,
                life.message.id,
                dates.occurred_at,
                now,
            )
        )
        has_status = state.status is not before.status
        life.state = state
        life.payment = replace(
            payment,
            sequence=state.steps,
            status=state.status.value,
            settled_at=_settled_at(payment, state, now),
            failure_reason=reason
            if state.status is Status.FAILED and reason
            else (payment.failure_reason),
            due_at=None,
            updated_at=now,
        )
        self._keep(life)
        if has_status and not (payment.is_incoming and state.status is Status.PROCESSING):
            self.announce(life)
        for account in credited:
            self._recovery.recover(life.message, account)

    def wait(self, life: Life, *, until: datetime | None) -> None:
        """Let the schedule continue the payment at `until`; None: a message will."""
        life.payment = replace(life.payment, due_at=until)
        self._keep(life)

    def fail(
        self, life: Life, reason: FailureReason, *, because: str, gives_back: bool = True
    ) -> None:
        """Fail a payment, and give back what was debited or has arrived."""
        moved = life.state.is_debited or life.state.has_arrived
        if not moved:
            self.take(life, Step.FAILED, reason)
            return
        self.give_back(life, Step.FAILED, reason, because=because, succeeds=gives_back)

    def reject(self, life: Life, words: str | None) -> None:
        """Reject a payment that has arrived, and send it back."""
        life.payment = replace(life.payment, rejection_reason=words)
        self.give_back(life, Step.REJECTED, None)

    def give_back(
        self,
        life: Life,
        step: Step,
        reason: FailureReason | None,
        *,
        because: str = "TRANSACTION_FAILED",
        succeeds: bool = True,
    ) -> None:
        """Take `step`, which ends a payment whose money has moved, and refund it."""
        now = self._changes.now
        life.payment = replace(
            life.payment,
            refund_reference=f"{life.payment.id}/refund",
            refund_status=RefundStatus.PENDING.value,
            refund_initiated_at=now,
            refund_reason=because,
        )
        self.take(life, step, reason)
        self._announce_refund(life)
        self._refund(life, succeeds=succeeds and self.can_refund(life))
        if step is Step.RETURNED and self._has_closed_account(life):
            self._suspense.hold_return(life.message, life.payment)

    def refund_again(self, life: Life) -> None:
        """Refund a payment whose refund has failed, and that can be refunded now."""
        self._refund(life, succeeds=True)

    def _refund(self, life: Life, *, succeeds: bool) -> None:
        status = RefundStatus.COMPLETED if succeeds else RefundStatus.FAILED
        life.payment = replace(
            life.payment,
            refund_status=status.value,
            refund_settled_at=self._changes.now if succeeds else None,
        )
        self.take(life, Step.REFUNDED if succeeds else Step.REFUND_FAILED)
        self._announce_refund(life)

    def announce(self, life: Life) -> None:
        """Emit the webhook of the status of the payment."""
        self._emit(life, payment_resources.webhook_type(life.payment))

    def _announce_refund(self, life: Life) -> None:
        self._emit(life, payment_resources.refund_webhook_type(life.payment))

    def _emit(self, life: Life, kind: str) -> None:
        payment = life.payment
        self._changes.emit(
            kind,
            payment.id,
            payment.customer_id,
            payment.platform_id,
            None,
            to_json(payment_resources.resource(payment).wire()).decode(),
        )

    def can_refund(self, life: Life) -> bool:
        """Return whether the account that was debited can keep what comes back.

        The account of a customer who was deleted meanwhile is closed: it is no place for money.
        """
        if not life.state.is_debited:
            return True
        if self._has_closed_account(life):
            return False
        account = self.account_of(life.payment, is_source=True).locked
        return account.balance + account.held + life.payment.amount <= MAX_AMOUNT

    def _has_closed_account(self, life: Life) -> bool:
        account = self.account_of(life.payment, is_source=True).locked
        return account.status == accounts.CLOSED

    def _keep(self, life: Life) -> None:
        writes, payment = self._changes.writes, life.payment
        is_new = payment.id not in self._changes.snapshot.transfers
        (writes.arrived if is_new else writes.payments)[payment.id] = payment

    def _book(
        self, life: Life, movements: Sequence[Movement], *, sequence: int
    ) -> list[LockedAccount]:
        """Append the entries of a step; return the accounts whose balance has risen."""
        changes, payment = self._changes, life.payment
        dates = changes.dates_of(life.message)
        credited: list[LockedAccount] = []
        for line, movement in enumerate(movements):
            entry = movement.entry
            if ChartAccount.CUSTOMER in {entry.debit, entry.credit}:
                is_source = not (movement.is_received or payment.is_incoming)
                account = self.account_of(payment, is_source=is_source).locked
                changes.book(
                    account, [entry], dates, subject_id=payment.id, sequence=sequence, line=line
                )
                if entry.credit is ChartAccount.CUSTOMER and account not in credited:
                    credited.append(account)
                continue
            changes.book_system(
                payment.id,
                sequence,
                [entry],
                customer_id=payment.customer_id,
                platform_id=payment.platform_id,
                currency=payment.arriving_currency if movement.is_received else payment.currency,
                dates=dates,
                line=line,
            )
        return credited


def _settled_at(payment: Transfer, state: State, now: datetime) -> datetime | None:
    if state.status is not Status.COMPLETED:
        return None
    return payment.settled_at or now
