"""Cards: who gets one, what it spends from, and what the issuer makes of it.

The issuer is the sandbox: the last three characters of `platformCardId` say how it answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, cast

from sqlalchemy import Connection, Row, Uuid, bindparam, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core import authorization, commands, sandbox
from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.messaging import outbox
from cardledger.ledger.projections import accounts
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.cards import CardResource

_VALID_YEARS: Final = 4
_ACTIVATION_BATCH: Final = 500

COLUMNS: Final = [column for column in tables.cards.columns if column.name != "activate_at"]
"""What `render` reads, the key first."""

_CLOSED: Final = "CLOSED"

_SOURCES: Final = type_coerce(tables.cards.c.funding_sources, postgresql.ARRAY(Uuid))
"""As PostgreSQL knows arrays: only so can be asked what one contains."""


class Suffix(StrEnum):
    """What the last three characters of `platformCardId` ask of the sandbox's issuer."""

    NEVER_ISSUED = "001"
    REJECTED = "002"
    ISSUED_LATE = "005"


class SourceSuffix(StrEnum):
    """What the last three characters of a funding source ask of the sandbox."""

    INSUFFICIENT_BALANCE = "002"
    ACCOUNT_CLOSED = "003"


class Refusal(StrEnum):
    """Why no card is issued, or a change refused, in the order in which it is looked at."""

    DUPLICATE_FUNDING_SOURCE = "DUPLICATE_FUNDING_SOURCE"
    UNKNOWN_CARDHOLDER = "UNKNOWN_CARDHOLDER"
    KYC_NOT_APPROVED = "KYC_NOT_APPROVED"
    FUNDING_SOURCE_INELIGIBLE = "FUNDING_SOURCE_INELIGIBLE"
    PLATFORM_CARD_ID_TAKEN = "PLATFORM_CARD_ID_TAKEN"


class RefusedError(Exception):
    """Nothing is done: `field` of the request is at fault, and the message says how."""

    def __init__(self, refusal: Refusal, field: str, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A card that is asked for."""

    cardholder_id: Id
    platform_card_id: str | None
    funding_sources: Sequence[Id]
    max_spend_per_transaction: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What cards have to match; None matches all. `account_id` is any funding source."""

    cardholder_id: Id | None = None
    account_id: Id | None = None
    platform_card_id: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """The answer to a balance inquiry; `available` may be spent, in minor units."""

    decline_reason: DeclineReason | None
    available: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The card transaction that a simulated message is about."""

    issuer_transaction_token: str
    status: str
    closed_by: str | None  # None: open, whatever its status.
    sequence: int
    authorized: int
    settled: int
    refunded: int

    @property
    def is_open(self) -> bool:
        """Whether a further clearing is expected; never of a declined authorization."""
        return self.closed_by is None and bool(self.authorized or self.settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a simulator has to know of a card; `parent` when it asked for one and it is there."""

    currency: str
    parent: Parent | None


async def create(  # noqa: PLR0913 - an application and its circumstances, by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    application: Application,
    at: datetime,
    sandbox_delay: timedelta,
    is_sandbox: bool = True,
) -> CardResource:
    """Ask the issuer for a card, which answers later (`activate_due`).

    Raises: RefusedError, after which the database transaction can only be rolled back.
    """
    refuse_repetitions(application.funding_sources)
    await _check_cardholder(connection, platform_id, application.cardholder_id)
    currency = await eligible_currency(
        connection,
        platform_id=platform_id,
        cardholder_id=application.cardholder_id,
        sources=application.funding_sources,
        is_sandbox=is_sandbox,
    )
    key = new_id()
    platform_card_id = application.platform_card_id or default_platform_card_id(
        key, application.cardholder_id
    )
    row = {
        "id": key,
        "customer_id": application.cardholder_id,
        "platform_id": platform_id,
        "platform_card_id": platform_card_id,
        "state": "PROCESSING",
        "state_reason": None,
        "form": "VIRTUAL",
        "brand": None,
        "last4": None,
        "exp_month": None,
        "exp_year": None,
        "currency": currency,
        "funding_sources": list(application.funding_sources),
        "max_spend_per_transaction": application.max_spend_per_transaction,
        "processor_ref": f"card_{key.hex()}",
        "issuer_ref": f"lead_card_{key.hex()}",
        "created_at": at,
        "updated_at": at,
    }
    activate_at = _activate_at(platform_card_id, at, sandbox_delay) if is_sandbox else at
    try:
        await connection.execute(tables.cards.insert().values(**row, activate_at=activate_at))
    except IntegrityError as error:
        diagnosis = getattr(error.orig, "diag", None)
        if getattr(diagnosis, "constraint_name", None) != "cards_platform_card_id_key":
            raise
        message = "is the identifier of another card that is not closed; send another one"
        raise RefusedError(Refusal.PLATFORM_CARD_ID_TAKEN, "platformCardId", message) from error
    return render(row)


async def get(connection: AsyncConnection, *, platform_id: Id, card_id: Id) -> CardResource | None:
    """Return the platform's card `card_id`, or None when it has no such card."""
    rows = await connection.execute(
        select(*COLUMNS).where(
            tables.cards.c.id == card_id, tables.cards.c.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    return None if row is None else render(_mapping(row))


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
) -> paging.Page[CardResource]:
    """Return one page of the platform's cards."""
    columns = tables.cards.c
    asked = {
        columns.customer_id: filters.cardholder_id,
        columns.platform_card_id: filters.platform_card_id,
        columns.state: filters.state,
    }
    matching = [
        columns.platform_id == platform_id,
        *(column == value for column, value in asked.items() if value is not None),
    ]
    if filters.account_id is not None:
        matching += [
            _SOURCES.contains([filters.account_id]),
            columns.state != _CLOSED,  # It spends from nothing any more.
        ]
    return await paging.read(
        connection,
        select(*COLUMNS),
        table=tables.cards,
        matching=matching,
        wanted=wanted,
        item=lambda row: render(_mapping(row)),
    )


async def inquire(
    connection: AsyncConnection, *, platform_id: Id, card_id: Id, descriptor: str, at: datetime
) -> Inquiry | None:
    """Return what an authorization of nothing would be answered; it leaves no trace.

    All checks of an authorization but the last ones: there are no funds to look for, and no
    deadline. None when the platform has no such card.
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
        forced_decline=sandbox.forced_decline(descriptor),
        decided_at=at,
        decide_by=None,
    )
    has_money = row.state != _CLOSED and row.balance is not None
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
    """Return what a simulator needs of the platform's card `card_id`, in one round trip.

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
        parent = Parent(
            issuer_transaction_token=row.issuer_transaction_token,
            status=row.status,
            closed_by=row.closed_by,
            sequence=row.sequence,
            authorized=row.authorized,
            settled=row.settled,
            refunded=row.refunded,
        )
    return Spending(currency=row.currency, parent=parent)


def activate_due(connection: Connection, *, now: datetime, is_sandbox: bool = True) -> int:
    """Let the issuer answer for every card that is due; returns how many it answered for.

    Cards and their webhooks are written in the caller's database transaction. Another worker that
    does the same at the same time takes other cards.
    """
    due = connection.execute(
        select(*COLUMNS)
        .where(tables.cards.c.activate_at <= now, tables.cards.c.state == "PROCESSING")
        .order_by(tables.cards.c.activate_at)
        .limit(_ACTIVATION_BATCH)
        .with_for_update(skip_locked=True)
    )
    answered = [_answered(_mapping(row), now, is_sandbox=is_sandbox) for row in due]
    if not answered:
        return 0
    connection.execute(
        _ANSWER, [{f"new_{name}": row[name] for name in _ISSUERS} for row in answered]
    )
    for row in answered:
        connection.execute(
            outbox.insert(
                type="CARD.STATE_CHANGE",
                subject_id=row["id"],
                customer_id=row["customer_id"],
                platform_id=row["platform_id"],
                data=render(row).wire(),
                at=now,
            )
        )
    return len(answered)


def render(row: Mapping[str, Any]) -> CardResource:
    """Return a row of `cards` as every reader sees it; a closed card spends from nothing."""
    return CardResource(
        id=row["id"],
        cardholder_id=row["customer_id"],
        platform_card_id=row["platform_card_id"],
        state=row["state"],
        state_reason=row["state_reason"],
        brand=row["brand"],
        form=row["form"],
        last4=row["last4"],
        exp_month=row["exp_month"],
        exp_year=row["exp_year"],
        funding_sources=[] if row["state"] == _CLOSED else row["funding_sources"],
        max_spend_per_transaction=row["max_spend_per_transaction"],
        currency=row["currency"],
        processor_ref=row["processor_ref"],
        issuer_ref=row["issuer_ref"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


_ISSUERS: Final = (
    "id",
    "state",
    "state_reason",
    "brand",
    "last4",
    "exp_month",
    "exp_year",
    "updated_at",
)
"""What the issuer's answer changes, after the key."""

_ANSWER: Final = (
    tables.cards.update()
    .where(tables.cards.c.id == bindparam("new_id"))
    .values({name: bindparam(f"new_{name}") for name in _ISSUERS[1:]} | {"activate_at": None})
)


def _answered(row: Mapping[str, Any], now: datetime, *, is_sandbox: bool) -> dict[str, Any]:
    if is_sandbox and row["platform_card_id"].endswith(Suffix.REJECTED):
        changes = {"state": "CLOSED", "state_reason": "ISSUER_REJECTED"}
        return {**row, **changes, "updated_at": now}
    return {
        **row,
        "state": "ACTIVE",
        "brand": "VISA",
        "last4": _last4(row["id"]),
        "exp_month": now.month,
        "exp_year": now.year + _VALID_YEARS,
        "updated_at": now,
    }


def default_platform_card_id(key: Id, cardholder_id: Id) -> str:
    """Return an identifier for a platform that sent none: the issuer then goes by the cardholder.

    So it ends as theirs does.
    """
    return f"{str(key)[:-3]}{str(cardholder_id)[-3:]}"


def _last4(card_id: Id) -> str:
    return f"{int.from_bytes(sha256(card_id).digest()) % 10_000:04}"


def _activate_at(platform_card_id: str, at: datetime, sandbox_delay: timedelta) -> datetime | None:
    match platform_card_id[-3:]:
        case Suffix.NEVER_ISSUED:
            return None
        case Suffix.ISSUED_LATE:
            return at + sandbox_delay
        case _:
            return at


def refuse_repetitions(sources: Sequence[Id]) -> None:
    """Let `sources` pass when each of them is there once.

    Raises: RefusedError.
    """
    if len(set(sources)) != len(sources):
        message = "names an account twice; send every account once"
        raise RefusedError(Refusal.DUPLICATE_FUNDING_SOURCE, "fundingSources", message)


async def eligible_currency(  # noqa: PLR0913 - whose, which, and where, by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    cardholder_id: Id,
    sources: Sequence[Id],
    is_sandbox: bool,
    currency: str | None = None,
) -> str:
    """Return the currency that all `sources` share, which has to be `currency` when it is given.

    Raises: RefusedError when one of them may not fund a card of this cardholder.
    """
    columns = tables.internal_accounts.c
    rows = await connection.execute(
        select(columns.id, columns.type, columns.status, columns.currency).where(
            columns.id.in_(sources),
            columns.customer_id == cardholder_id,
            columns.platform_id == platform_id,
        )
    )
    found = {row.id: row for row in rows}
    for number, source in enumerate(sources):
        account = found.get(source)
        message = _ineligible(account, currency)
        if account is not None and is_sandbox:
            message = message or _refused_by_the_sandbox(account.id)
        if message:
            field = f"fundingSources.{number}"
            raise RefusedError(Refusal.FUNDING_SOURCE_INELIGIBLE, field, message)
        currency = found[source].currency
    assert currency is not None, "a card has at least one funding source"
    return currency


def _ineligible(account: Row[*tuple[Any, ...]] | None, currency: str | None) -> str | None:
    """Return why `account` may not fund a card in `currency`, None for any currency."""
    if account is None:
        return "is not an internal account of the cardholder"
    if account.type != "INTERNAL_FIAT":
        return f"is an account of type {account.type}; cards spend from INTERNAL_FIAT"
    if account.status != accounts.ACTIVE:
        return f"is {account.status}; only an ACTIVE account can fund a card"
    if currency and account.currency != currency:
        return f"is in {account.currency}; all funding sources of a card share one currency"
    return None


def _refused_by_the_sandbox(account_id: Id) -> str | None:
    match str(account_id)[-3:]:
        case SourceSuffix.INSUFFICIENT_BALANCE:
            return "has not enough money on it to fund a card; put some on it first"
        case SourceSuffix.ACCOUNT_CLOSED:
            return "is closed at its bank; use another account"
        case _:
            return None


async def _check_cardholder(
    connection: AsyncConnection, platform_id: Id, cardholder_id: Id
) -> None:
    columns = tables.customers.c
    rows = await connection.execute(
        select(columns.customer_type, columns.kyc_status)
        .where(
            columns.id == cardholder_id,
            columns.platform_id == platform_id,
            ~columns.is_deleted,
        )
        # Until the card is there: a customer with a card is not deleted.
        .with_for_update(read=True, key_share=True)
    )
    cardholder = rows.one_or_none()
    if cardholder is None:
        message = "is not a customer of this platform"
        raise RefusedError(Refusal.UNKNOWN_CARDHOLDER, "cardholderId", message)
    if cardholder.customer_type != "INDIVIDUAL" or cardholder.kyc_status != "APPROVED":
        message = (
            f"is a customer with kycStatus {cardholder.kyc_status}; it has to be APPROVED first"
            if cardholder.customer_type == "INDIVIDUAL"
            else "is a business; only individuals hold cards"
        )
        raise RefusedError(Refusal.KYC_NOT_APPROVED, "cardholderId", message)


def _mapping(row: Row[*tuple[Any, ...]]) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
