"""Deposits: money that arrives on an internal account."""

from typing import Final

from pydantic_core import to_json

from cardledger.ledger.core.entries import deposit_entry
from cardledger.ledger.core.money import checked
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import RejectedError, amount_of
from cardledger.ledger.engine.records import Account, Decided, DepositRecord
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts, transfers
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from cardledger.schema.wire.webhooks.envelope import WebhookType


class Deposits:
    """Decides deposits."""

    def __init__(self, changes: ChangeSet, recovery: Recovery) -> None:
        self._changes: Final = changes
        self._recovery: Final = recovery

    def receive(self, message: Message) -> Decided:
        """Credit an account, notify its platform, then pay what the account owes."""
        account = self._receiving_account(message)
        entry = deposit_entry(amount_of(message.body))
        checked(account.balance + account.held + entry.amount)  # What is held can always go back.
        deposit = DepositRecord(
            id=new_id(),
            customer_id=account.customer_id,
            account_id=account.id,
            amount=entry.amount,
            message_id=message.id,
            recorded_at=self._changes.now,
            platform_id=account.platform_id,
        )
        webhook = self._webhook(deposit, account)
        self._changes.writes.deposits.append(deposit)
        self._changes.book(account, [entry], subject_id=deposit.id, sequence=0)
        self._changes.emit(
            WebhookType.INCOMING_PAYMENT_COMPLETED,
            deposit.id,
            deposit.customer_id,
            deposit.platform_id,
            None,
            webhook,
        )
        self._recovery.recover(message, account)
        return Decided(message, OutcomeType.APPLIED)

    def _receiving_account(self, message: Message) -> Account:
        account = self._changes.snapshot.accounts.get(Id.parse(message.body["accountId"]))
        if account is None or account.customer_id != message.customer_id:
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT, "accountId names no account of yours"
            )
        if account.status != accounts.ACTIVE:
            # It was when the money was sent: the customer may have been deleted in between.
            raise RejectedError(
                RejectionReason.ACCOUNT_NOT_ACTIVE,
                f"the account is {account.status}; only an ACTIVE account can be funded",
            )
        return account

    def _webhook(self, deposit: DepositRecord, account: Account) -> str:
        """Return the JSON of `deposit` as an incoming transaction."""
        transaction = transfers.incoming(
            transfers.Deposit(
                id=deposit.id,
                customer_id=deposit.customer_id,
                account_id=deposit.account_id,
                amount=deposit.amount,
                recorded_at=deposit.recorded_at,
                currency=account.currency,
                platform_customer_id=self._changes.snapshot.platform_customer_ids[
                    account.customer_id
                ],
            )
        )
        return to_json(transaction.wire()).decode()
