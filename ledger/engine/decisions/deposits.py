"""Deposits: money that arrives on an internal account."""

from typing import Final

from pydantic_core import to_json

from cardledger.ledger.core.entries import deposit_entry
from cardledger.ledger.core.money import checked
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    id_of,
    owns,
    text_of,
    time_of,
)
from cardledger.ledger.engine.records import Decided, DepositRecord, LockedAccount
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts, payment_resources, transfers
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from cardledger.schema.wire.webhooks.envelope import WebhookType


class Deposits:
    """Decides deposits."""

    def __init__(self, changes: ChangeSet, recovery: Recovery, rail: RailAnswers) -> None:
        self._changes: Final = changes
        self._recovery: Final = recovery
        self._rail: Final = rail

    def receive(self, message: Message) -> Decided:
        """Credit an account, notify its platform, then pay what the account owes."""
        if not self._rail.accepts_deposits():
            raise RejectedError(
                RejectionReason.SOURCE_NOT_ALLOWED,
                "Deposits are simulated, and accepted in a sandbox only.",
            )
        account = self._receiving_account(message)
        entry = deposit_entry(amount_of(message.body))
        dates, reference = self._changes.dates_of(message), message.body.get("externalReference")
        checked(account.balance + account.held + entry.amount)  # Room to release every hold.
        deposit = DepositRecord(
            id=new_id(),
            customer_id=account.customer_id,
            account_id=account.id,
            amount=entry.amount,
            message_id=message.id,
            recorded_at=self._changes.now,
            platform_id=account.platform_id,
            occurred_at=time_of(message.body, "occurredAt"),
            external_reference=None if reference is None else text_of(reference),
        )
        webhook = self._webhook(deposit, account)
        self._changes.writes.deposits.append(deposit)
        self._changes.book(account, [entry], dates, subject_id=deposit.id, sequence=0)
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

    def _receiving_account(self, message: Message) -> LockedAccount:
        account = self._changes.snapshot.accounts.get(id_of(message.body, "accountId"))
        if account is None or not owns(message, account):
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT,
                "Unknown account: accountId does not match an internal account of this customer.",
            )
        if account.status != accounts.ACTIVE:
            # It was ACTIVE when the deposit was requested.
            raise RejectedError(
                RejectionReason.ACCOUNT_NOT_ACTIVE,
                f"Account is {account.status}; only an ACTIVE account can be funded.",
            )
        return account

    def _webhook(self, deposit: DepositRecord, account: LockedAccount) -> str:
        """Return the JSON of `deposit` as an incoming transaction."""
        transaction = payment_resources.incoming(
            transfers.Deposit(
                id=deposit.id,
                customer_id=deposit.customer_id,
                account_id=deposit.account_id,
                amount=deposit.amount,
                recorded_at=deposit.recorded_at,
                platform_id=account.platform_id,
                currency=account.currency,
                # A platform, which owns accounts as well, is no customer.
                platform_customer_id=self._changes.snapshot.platform_customer_ids.get(
                    account.customer_id, str(account.customer_id)
                ),
            )
        )
        return to_json(transaction.wire()).decode()
