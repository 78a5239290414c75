"""Apply decisions about card transactions, and pay debts with the money that they free."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import Decision, decide
from cardledger.ledger.core.events import (
    Credited,
    Declined,
    Event,
    PullFailed,
    PullPending,
    PullResized,
    Refunded,
    Released,
    WrittenOff,
)
from cardledger.ledger.core.money import AmountOutOfRangeError
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.parsing import RejectedError, id_of, owns
from cardledger.ledger.engine.records import (
    Dates,
    Decided,
    LockedAccount,
    Parked,
    PendingPull,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import card_transaction
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.conversion import Conversion
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

# Or lets a later debt be paid, because less or nothing is due before it.
_FREES_MONEY: Final = frozenset({Credited, Released, Refunded, PullResized, WrittenOff})

ENGINE: Final = "engine"
"""The source of the messages that the engine sends to itself."""


class Recovery:
    """Applies decisions, and retries the open debts of accounts that get money."""

    def __init__(self, changes: ChangeSet, rail: RailAnswers) -> None:
        self._changes: Final = changes
        self._rail: Final = rail
        self._followed_up: Final[set[Id]] = set()  # Accounts, by this batch.
        self.shards: Final[list[int]] = []  # Queues that got a follow-up; the batch empties it.

    def apply(
        self,
        message: Message | Parked,
        context: CardTransactionContext,
        decision: Decision,
        before: RollUp | None = None,
    ) -> None:
        """Record a decision about the card transaction of `message`, with all that follows.

        `before` replaces its roll-up where the message adds the merchant.
        """
        before = before or context.roll_up
        dates = self._changes.dates_of(message)
        if dates.conversion is not None:
            self._apply_converted(message, dates.conversion, context, decision, before)
        else:
            self._record(message, dates, context, decision, before)
        if dates.settlement is not None and not isinstance(decision.facts[0], Declined):
            self._changes.keep_settlement(
                dates.settlement,
                before.identity,
                sequence=before.state.sequence + 1,
                message_id=message.id,
            )

    def _apply_converted(
        self,
        message: Message | Parked,
        wire: Conversion,
        context: CardTransactionContext,
        decision: Decision,
        before: RollUp,
    ) -> None:
        """Record a decision whose amount the network has converted, also where it was declined."""
        conversion = card_transaction.Conversion(
            merchant_amount=wire.merchant_amount.amount,
            merchant_currency=wire.merchant_amount.currency,
            billing_amount=message.body.get("amount", decision.facts[0].amount),
            rate=Decimal(wire.rate),
        )
        dates = self._changes.dates_of(message)
        before = replace(before, conversion=conversion)
        self._record(message, dates, context, decision, before)
        self._changes.keep_conversion(
            conversion,
            before.identity,
            sequence=before.state.sequence + 1,
            message_id=message.id,
        )

    def _record(
        self,
        message: Message | Parked,
        dates: Dates,
        context: CardTransactionContext,
        decision: Decision,
        before: RollUp,
    ) -> None:
        """Record a decision that `message` causes about any card transaction, and what follows."""
        self._changes.record(context, before, decision, message_id=message.id, dates=dates)
        kinds = set(map(type, decision.facts))
        if PullPending in kinds:
            self._await_confirmation(context, decision.facts, message.body)
        if not kinds.isdisjoint(_FREES_MONEY):
            self.recover(message, context.account)
        elif PullFailed in kinds:
            # The money that comes back is what this pull could not pay: older debts come first.
            self.recover(message, context.account, ahead_of=context)

    def recover(
        self,
        message: Message | Parked,
        account: LockedAccount,
        *,
        ahead_of: CardTransactionContext | None = None,
    ) -> None:
        """Retry the debts of `account`, oldest first, until the balance does not cover one."""
        indebted = self._changes.indebted(account)
        oldest = self._changes.oldest_debts(account)
        if not indebted and oldest is None:
            return
        queue = sorted(
            (
                debtor
                for debtor in indebted
                if oldest is None or debtor.roll_up.identity.id in oldest
            ),
            key=_place_in_queue,
        )
        for debtor in queue:
            if debtor is ahead_of:
                return
            try:
                decision = decide(debtor.roll_up.state, commands.Recover(balance=account.balance))
                if not decision.facts:
                    return
                dates = self._changes.dates_of(message)
                self._record(message, dates, debtor, decision, debtor.roll_up)
            except AmountOutOfRangeError:
                return  # A total is at the end of its range: the pull stays open.
            if debtor.roll_up.debt_id:
                return
        if oldest is not None:
            self._follow_up(account)

    def resume(self, message: Message) -> Decided:
        """Continue with a queue of debts that was too long for one message."""
        account = self._changes.snapshot.accounts.get(id_of(message.body, "accountId"))
        if account is None or not owns(message, account):
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT,
                "Unknown account: accountId does not match an internal account of this customer.",
            )
        self.recover(message, account)
        return Decided(message, OutcomeType.APPLIED)

    def _follow_up(self, account: LockedAccount) -> None:
        """Enqueue a message that pays the rest of a long queue of debts; one is enough a batch."""
        if account.id in self._followed_up:
            return
        self._followed_up.add(account.id)
        key = new_id()
        body = {
            "type": inbox.RECOVERY,
            "source": ENGINE,
            "reference": str(key),
            "accountId": str(account.id),
        }
        owner = inbox.Owner(account.customer_id, account.platform_id)
        message = inbox.address(
            body, owner, lane=inbox.Lane.LIVE, reply_to=None, at=self._changes.now
        )
        self._changes.writes.follow_ups.append(message)
        self.shards.append(message.shard)

    def _await_confirmation(
        self, context: CardTransactionContext, facts: Sequence[Event], body: Mapping[str, Any]
    ) -> None:
        """Keep the pending pull among `facts`, the latest of `context`, until it is confirmed."""
        identity, state = context.roll_up.identity, context.roll_up.state
        descriptor = self._rail.descriptor(identity, body)
        due_at = self._rail.confirmation_due_at(self._changes.now)
        for sequence, fact in enumerate(facts, start=state.sequence - len(facts) + 1):
            if isinstance(fact, PullPending):
                self._changes.writes.pending_pulls.append(
                    PendingPull(
                        card_transaction_id=identity.id,
                        sequence=sequence,
                        customer_id=identity.customer_id,
                        card_id=identity.card_id,
                        token=identity.issuer_transaction_token,
                        amount=fact.amount,
                        succeeds=self._rail.confirms(descriptor),
                        due_at=due_at,
                    )
                )


def _place_in_queue(context: CardTransactionContext) -> tuple[datetime, Id]:
    debt_since, debt_id = context.roll_up.debt_since, context.roll_up.debt_id
    assert debt_since is not None
    assert debt_id is not None
    return debt_since, debt_id
