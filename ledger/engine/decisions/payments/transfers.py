"""Transfers between two accounts of one owner: carry them out, or fail them."""

from collections.abc import Iterable
from typing import Final

from pydantic_core import to_json

from cardledger.ledger.core.entries import transfer_entries
from cardledger.ledger.core.payments import transfer as rules
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.payments.payments import Payments
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import RejectedError, id_of, owns, transfers_of
from cardledger.ledger.engine.records import Decided, LockedAccount
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts, payment_resources, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason


class Transfers:
    """Decides transfers; what moves is in the row of a transfer, not in its message."""

    def __init__(self, changes: ChangeSet, recovery: Recovery, payments: Payments) -> None:
        self._changes: Final = changes
        self._recovery: Final = recovery
        self._payments: Final = payments

    def decide(self, message: Message, kind: str) -> Decided:
        """Decide a message about a transfer, of type `kind`."""
        if kind != inbox.TRANSFER:
            return self._payments.decide(message, kind)
        payment = self._payments.find(message)
        return (
            self._carry_out(message) if payment is None else self._payments.start(message, payment)
        )

    def _carry_out(self, message: Message) -> Decided:
        """Move the money of a transfer, or fail the transfer."""
        changes = self._changes
        key = id_of(message.body, "transferId")
        transfer = self._in_progress(key, message)
        if transfer is None:
            raise RejectedError(
                RejectionReason.UNKNOWN_TRANSFER,
                "Unknown transfer: transferId does not match a transfer that is PROCESSING.",
            )
        assert transfer.source_account_id is not None
        assert transfer.destination_account_id is not None
        source = changes.snapshot.accounts[transfer.source_account_id]
        destination = changes.snapshot.accounts[transfer.destination_account_id]
        reason = rules.refusal(transfer.amount, _funds(source), _funds(destination))
        if reason:
            self._end(transfer.failed(reason, at=changes.now))
            return Decided(message, OutcomeType.DECLINED, reason=reason)
        out, into = transfer_entries(transfer.amount)
        dates = changes.dates_of(message)
        changes.book(source, [out], dates, subject_id=key, sequence=0)
        changes.book(destination, [into], dates, subject_id=key, sequence=0, line=1)
        self._end(transfer.completed(at=changes.now))
        self._recovery.recover(message, destination)
        return Decided(message, OutcomeType.APPLIED)

    def fail(self, messages: Iterable[Message]) -> None:
        """Fail the transfers that `messages`, which are rejected, were to carry out.

        No other message will: they would stay PROCESSING.
        """
        for message in messages:
            for key, _ in transfers_of([message]):
                if transfer := self._in_progress(key, message):
                    reason = rules.FailureReason.INTERNAL_ERROR
                    self._end(transfer.failed(reason, at=self._changes.now))
            self._payments.fail_unstarted(message)

    def _in_progress(self, key: Id, message: Message) -> Transfer | None:
        """Return the transfer `key` if it is PROCESSING, and of the customer of `message`."""
        changes = self._changes
        transfer = changes.writes.transfers.get(key) or changes.snapshot.transfers.get(key)
        if transfer is None or not owns(message, transfer):
            return None
        is_in_progress = transfer.is_internal and transfer.status == transfers.PROCESSING
        return transfer if is_in_progress else None

    def _end(self, transfer: Transfer) -> None:
        self._changes.writes.transfers[transfer.id] = transfer
        self._changes.emit(
            payment_resources.webhook_type(transfer),
            transfer.id,
            transfer.customer_id,
            transfer.platform_id,
            None,
            to_json(payment_resources.outgoing(transfer).wire()).decode(),
        )


def _funds(account: LockedAccount) -> rules.Funds:
    return rules.Funds(
        is_usable=account.status == accounts.ACTIVE,
        balance=account.balance,
        held=account.held,
        owed=account.owed,
    )
