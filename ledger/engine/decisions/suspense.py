"""Suspense: what the network moved and the ledger could not apply, until it is applied.

An item is booked in the commit that rejects or parks its message, and taken back in the commit that
decides its key, or applies the parked message. All messages of a cardholder are decided under the
locks of the cardholder's accounts, so one key never has two open items.
Source: docs/decisions/0067-suspense.md
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import date
from typing import Final

from cardledger.ledger.books.suspense import (
    PAYOUT_RETURN,
    NetworkMoney,
    money_in,
    money_of_rejected,
    resolving_entry,
    suspense_entry,
    type_of_credit,
)
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.recovery import ENGINE
from cardledger.ledger.engine.parsing import (
    RejectedError,
    card_transaction_key_of,
    key_of,
    malformed,
    owns,
    string_of,
    suspended,
)
from cardledger.ledger.engine.records import (
    Card,
    Dates,
    Decided,
    Key,
    OutcomeRow,
    Parked,
    SuspenseItem,
)
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

_REUSED: Final = RejectionReason.KEY_REUSED


class Suspense:
    """Books items of SUSPENSE and takes them back."""

    def __init__(self, changes: ChangeSet) -> None:
        self._changes: Final = changes
        self.open: Final[dict[Id, SuspenseItem]] = {}  # Those that the batch may concern.
        self._of_key: Final[dict[Key, list[SuspenseItem]]] = {}
        # By this batch, not in the database yet: the types under which each may be booked already.
        self._held: Final[dict[Id, AbstractSet[str]]] = {}
        self._settled: Final[dict[Key, list[SuspenseItem]]] = {}  # By adjustments of this batch.
        for item in changes.snapshot.suspense_items:
            self._add(item)

    def hold(self, message: Message, reason: RejectionReason | None = None) -> bool:
        """Book what `message` has moved, which is rejected for `reason`, or parked without one.

        Returns whether it was booked: not where card, cardholder or amount cannot be read, nor
        where the same movement is booked, nor what is rejected of a sender that accepts it.
        """
        body = message.body
        moved = money_in(body) if reason is None else money_of_rejected(body, reason)
        found = self._readable(message, moved)
        return found is not None and self._book(message, *found, reason)

    def receive(self, message: Message, outcomes: Mapping[Key, OutcomeRow]) -> Decided:
        """Book the event in `message`, which was rejected before it could be put into the inbox.

        Not when its key is decided: then it was sent again, corrected, or is a repetition.
        """
        event, reason = suspended(message), _reason_of(message)
        found = self._readable(event, money_in(event.body))
        if found is None:
            raise malformed("its event has no card, cardholder and amount that belong together")
        is_decided = key_of(event) in outcomes
        if is_decided or not self._book(event, *found, reason):
            return Decided(message, OutcomeType.DUPLICATE)
        return Decided(message, OutcomeType.APPLIED)

    def hold_return(self, message: Message, payment: Transfer) -> None:
        """Book what `message` says a bank has returned of `payment`, whose account is closed.

        Not where the books have no account for it: then it stays on OUTBOUND_CLEARING.
        """
        changes, currency = self._changes, payment.arriving_currency
        account = payment.platform_id, currency, ChartAccount.SUSPENSE
        if account not in changes.snapshot.system_accounts:
            return
        dates = changes.dates_of(message)
        self._keep(
            SuspenseItem(
                id=message.id,
                customer_id=payment.customer_id,
                platform_id=payment.platform_id,
                source=ENGINE,
                reference=f"{payment.id}/return",
                card_id=None,
                type=PAYOUT_RETURN,
                currency=currency,
                amount=payment.received,
                cause="CLOSED",
                reason=None,
                recorded_at=changes.now,
                posted_on=dates.posted_on,
            ),
            dates,
            frozenset({PAYOUT_RETURN}),
        )

    def take_back(self, item: SuspenseItem, *, resolved_by: Id, dates: Dates) -> None:
        """Book `item` back, because `resolved_by` has resolved it.

        On the day of `dates`, and never before the day of the item: else SUSPENSE would be short
        in between.
        """
        entry = resolving_entry(item.type, item.amount)
        self._changes.book_system(
            item.id,
            1,
            [entry],
            customer_id=item.customer_id,
            platform_id=item.platform_id,
            currency=item.currency,
            dates=_not_before(item.posted_on, dates),
        )
        item.resolved_at, item.resolved_by = self._changes.now, resolved_by
        if item.id not in self._held:
            self._changes.writes.resolved.append(item)
        self._remove(item)

    def settle(self, item: SuspenseItem, *, adjustment_id: Id, dates: Dates) -> None:
        """Book `item` back, because two people have resolved it; repetitions are resolved, too."""
        self.take_back(item, resolved_by=adjustment_id, dates=dates)
        if key := item.key:
            self._settled.setdefault(key, []).append(item)

    def leave_out(self, resolved: Sequence[SuspenseItem]) -> None:
        """Leave out what was booked of repetitions of `resolved`, which people have resolved."""
        writes = self._changes.writes
        repeated = {
            item.id
            for item in writes.suspended
            if any(
                item.key == other.key and _repeats(item, self._held[item.id], other)
                for other in resolved
            )
        }
        if repeated:
            writes.suspended[:] = [each for each in writes.suspended if each.id not in repeated]
            writes.entries[:] = [entry for entry in writes.entries if entry[0] not in repeated]

    def take_back_decided(self, message: Message, outcome: OutcomeType) -> None:
        """Take back what was booked of earlier messages with the key of decided `message`.

        A movement under a reused key stays: `message` is not about it.
        """
        for item in list(self._of_key.get(key_of(message), ())):
            if item.reason != _REUSED:
                # Settlement details are kept of what was applied, and of nothing else.
                is_applied = outcome is OutcomeType.APPLIED
                changes = self._changes
                dates = changes.dates_of(message) if is_applied else changes.dates_by_time(message)
                self.take_back(item, resolved_by=message.id, dates=dates)

    def take_back_parked(self, parked: Parked) -> None:
        """Take back what was booked of `parked`, which is applied."""
        if item := self.open.get(parked.id):
            self.take_back(item, resolved_by=parked.id, dates=self._changes.dates_of(parked))

    def _readable(
        self, message: Message, money: NetworkMoney | None
    ) -> tuple[NetworkMoney, Card] | None:
        """Return `money`, which `message` has moved, and its card, if the cardholder owns the card.

        None, too, when the books have no accounts for it.
        """
        card = self._changes.snapshot.cards.get(money.card_id) if money else None
        if money is None or card is None or not owns(message, card):
            return None
        account = card.platform_id, card.currency, ChartAccount.SUSPENSE
        return (money, card) if account in self._changes.snapshot.system_accounts else None

    def _book(
        self, message: Message, money: NetworkMoney, card: Card, reason: RejectionReason | None
    ) -> bool:
        dates, context = self._dates_of(message), self._context_of(message)
        settlement = dates.settlement
        of_credit = type_of_credit(money.type)
        is_of_credit = context is not None and context.roll_up.state.is_credit
        item = SuspenseItem(
            id=message.id,
            customer_id=card.customer_id,
            platform_id=card.platform_id,
            source=message.source or None,
            reference=message.reference or None,
            card_id=card.id,
            type=of_credit if is_of_credit else money.type,
            currency=card.currency,
            amount=money.amount,
            cause="PARKED" if reason is None else "REJECTED",
            reason=reason,
            recorded_at=self._changes.now,
            posted_on=dates.posted_on,
            network=settlement.network if settlement else None,
            settlement_date=settlement.settlement_date if settlement else None,
        )
        # Its first arrival was booked under the type that it had then: the credit may have become
        # the refund of a purchase since, and the release before booked what had been sent.
        types = {money.type}
        if context is not None and context.roll_up.state.credit_authorized is not None:
            types.add(of_credit)
        if self._is_booked(item, types):
            return False
        self._keep(item, dates, types)
        return True

    def _keep(self, item: SuspenseItem, dates: Dates, types: AbstractSet[str]) -> None:
        """Book `item`, which is new; a repetition may have been booked under any of `types`."""
        self._changes.book_system(
            item.id,
            0,
            [suspense_entry(item.type, item.amount)],
            customer_id=item.customer_id,
            platform_id=item.platform_id,
            currency=item.currency,
            dates=dates,
        )
        self._changes.writes.suspended.append(item)
        self._held[item.id] = types
        self._add(item)

    def _is_booked(self, item: SuspenseItem, types: AbstractSet[str]) -> bool:
        """Return whether the movement of `item` is booked, or resolved by people."""
        if item.id in self.open:
            return True
        if item.key is None:
            return False
        known = *self._of_key.get(item.key, ()), *self._settled.get(item.key, ())
        return any(_repeats(item, types, other) for other in known)

    def _context_of(self, message: Message) -> CardTransactionContext | None:
        """Return the card transaction that `message` names, if it is known."""
        try:
            return self._changes.card_transaction(card_transaction_key_of(message))
        except RejectedError:
            return None

    def _dates_of(self, message: Message) -> Dates:
        try:
            return self._changes.dates_of(message)
        except RejectedError:  # It is booked all the same.
            return self._changes.dates_by_time(message)

    def _add(self, item: SuspenseItem) -> None:
        self.open[item.id] = item
        if key := item.key:
            self._of_key.setdefault(key, []).append(item)

    def _remove(self, item: SuspenseItem) -> None:
        del self.open[item.id]
        if key := item.key:
            self._of_key[key].remove(item)


def _repeats(item: SuspenseItem, types: AbstractSet[str], other: SuspenseItem) -> bool:
    """Return whether `item` is the movement of `other`, which has its key, under one of `types`.

    What is parked was not rejected before it. Of a used key, each type, card and amount is a
    movement.
    """
    is_reused = item.reason == _REUSED
    if item.reason is None or is_reused != (other.reason == _REUSED):
        return False
    if not is_reused:
        return True
    is_alike = (item.card_id, item.amount) == (other.card_id, other.amount)
    return is_alike and other.type in types


def _not_before(day: date, dates: Dates) -> Dates:
    """Return `dates` with a posting day that is not before `day`."""
    posted_on, wanted = max(dates.posted_on, day), max(dates.late_from or dates.posted_on, day)
    return replace(dates, posted_on=posted_on, late_from=wanted if wanted < posted_on else None)


def _reason_of(message: Message) -> RejectionReason:
    try:
        return RejectionReason(string_of(message.body, "reason"))
    except ValueError as error:
        raise malformed("reason is not one of a rejection") from error
