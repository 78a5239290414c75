"""What the card simulators read: balance inquiries, and the card transaction to act on."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.cards.registry import CLOSED
from cardledger.ledger.core import authorization, commands
from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.state import CardTransaction
from cardledger.ledger.core.status import Closure
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.projections import accounts
from cardledger.schema import tables
from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """The result of a balance inquiry; `available` in minor units."""

    decline_reason: DeclineReason | None
    available: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The card transaction that a simulated message refers to."""

    issuer_transaction_token: str
    status: str
    closed_by: str | None  # None: open, whatever its status.
    sequence: int
    authorized: int
    settled: int  # Of a credit: what was credited.
    refunded: int  # Credits as well.
    merchant_currency: str | None  # Of a purchase in another currency than the card's.
    is_credit: bool  # An authorized credit without a purchase, or a settled one.

    @property
    def is_open(self) -> bool:
        """Whether a further clearing is expected; never of a declined authorization."""
        return self.closed_by is None and bool(self.authorized or self.settled)

    @property
    def refundable(self) -> int:
        """What has settled of a purchase and is not refunded."""
        return 0 if self.is_credit else self.settled - self.refunded


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A card's currency, and its card transaction if the simulator named an existing one."""

    currency: str
    parent: Parent | None


async def inquire(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    descriptor: str,
    rail: FundingRail | None,
    at: datetime,
) -> Inquiry | None:
    """Return the decision about an authorization of amount 0; nothing is recorded.

    All checks of an authorization except funds and deadline. None when the platform has no such
    card.
    """
    card, account = tables.cards.c, tables.internal_accounts.c
    rows = await connection.execute(
        select(
            card.state,
            card.currency,
            card.max_spend_per_transaction,
            account.status,
            account.balance,
            account.owed,
        )
        .outerjoin_from(
            tables.cards,
            tables.internal_accounts,
            (account.id == card.funding_sources[1]) & (account.customer_id == card.customer_id),
        )
        .where(card.id == card_id, card.platform_id == platform_id)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    question = commands.Authorize(
        amount=0,
        balance=0,
        owed=0,
        card_state=CardState(row.state),
        account_usable=row.status == accounts.ACTIVE,
        max_spend=row.max_spend_per_transaction,
        issuer_decline=None if rail is None else rail.issuer_decline(descriptor),
        decided_at=at,
        decide_by=None,
    )
    has_money = row.state != CLOSED and row.balance is not None
    return Inquiry(
        decline_reason=authorization.decline_reason(question, needed=0),
        available=max(row.balance - row.owed, 0) if has_money else 0,
        currency=row.currency,
    )


async def spending(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_id: Id,
    card_transaction_id: Id | None = None,
) -> Spending | None:
    """Return the platform's card `card_id` as a simulator needs it, in one round trip.

    None when the platform has no such card.
    """
    cards, parents = tables.cards.c, tables.card_transactions.c
    rows = await connection.execute(
        select(
            cards.currency,
            parents.issuer_transaction_token,
            parents.status,
            parents.closed_by,
            parents.sequence,
            parents.authorized,
            parents.settled,
            parents.refunded,
            parents.authorizations,
            parents.settlement_count,
            parents.credit_authorized,
            parents.merchant_currency,
        )
        .outerjoin_from(
            tables.cards,
            tables.card_transactions,
            (parents.id == card_transaction_id)
            & (parents.customer_id == cards.customer_id)
            & (parents.card_id == cards.id),
        )
        .where(cards.id == card_id, cards.platform_id == platform_id)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    parent = None
    if row.issuer_transaction_token is not None:
        state = CardTransaction(
            authorizations=row.authorizations,
            settlement_count=row.settlement_count,
            closed_by=None if row.closed_by is None else Closure(row.closed_by),
            credit_authorized=row.credit_authorized,
        )
        is_credit = state.has_credit
        parent = Parent(
            issuer_transaction_token=row.issuer_transaction_token,
            status=row.status,
            closed_by=row.closed_by,
            sequence=row.sequence,
            authorized=(row.credit_authorized or 0) if is_credit else row.authorized,
            settled=row.refunded if is_credit else row.settled,
            refunded=row.refunded,
            merchant_currency=row.merchant_currency,
            is_credit=is_credit,
        )
    return Spending(currency=row.currency, parent=parent)
