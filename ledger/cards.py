"""Cards: who gets one, what it spends from, and what the issuer makes of it.

The issuer is the sandbox: the last three characters of `platformCardId` say how it answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

from sqlalchemy import Connection, Row, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger import accounts, outbox
from ledger.ids import new_id
from schema import tables
from schema.wire.cards import CardResource

_VALID_YEARS: Final = 4
_ACTIVATION_BATCH: Final = 500

_COLUMNS: Final = [column for column in tables.cards.columns if column.name != "activate_at"]


class Suffix(StrEnum):
    """What the last three characters of `platformCardId` ask of the sandbox's issuer."""

    NEVER_ISSUED = "001"
    REJECTED = "002"
    ISSUED_LATE = "005"


class Refusal(StrEnum):
    """Why no card is issued, in the order in which it is looked at."""

    DUPLICATE_FUNDING_SOURCE = "DUPLICATE_FUNDING_SOURCE"
    UNKNOWN_CARDHOLDER = "UNKNOWN_CARDHOLDER"
    KYC_NOT_APPROVED = "KYC_NOT_APPROVED"
    FUNDING_SOURCE_INELIGIBLE = "FUNDING_SOURCE_INELIGIBLE"
    PLATFORM_CARD_ID_TAKEN = "PLATFORM_CARD_ID_TAKEN"


class RefusedError(Exception):
    """No card is issued: `field` of the request is at fault, and the message says how."""

    def __init__(self, refusal: Refusal, field: str, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A card that is asked for."""

    cardholder_id: UUID
    platform_card_id: str | None
    funding_sources: Sequence[UUID]
    max_spend_per_transaction: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The card transaction that a simulated message is about."""

    issuer_transaction_token: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a simulator has to know of a card; `parent` when it asked for one and it is there."""

    currency: str
    parent: Parent | None


async def create(  # noqa: PLR0913 - an application and its circumstances, by name
    connection: AsyncConnection,
    *,
    platform_id: UUID,
    application: Application,
    at: datetime,
    sandbox_delay: timedelta,
    is_sandbox: bool = True,
) -> CardResource:
    """Ask the issuer for a card, which answers later (`activate_due`).

    Raises: RefusedError, after which the database transaction can only be rolled back.
    """
    currency = await _eligible_currency(connection, platform_id, application)
    key = new_id()
    platform_card_id = application.platform_card_id or str(new_id())
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
        "processor_ref": f"card_{key.hex}",
        "issuer_ref": f"lead_card_{key.hex}",
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


async def get(
    connection: AsyncConnection, *, platform_id: UUID, card_id: UUID
) -> CardResource | None:
    """Return the platform's card `card_id`, or None when it has no such card."""
    rows = await connection.execute(
        select(*_COLUMNS).where(
            tables.cards.c.id == card_id, tables.cards.c.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    return None if row is None else render(_mapping(row))


async def spending(
    connection: AsyncConnection,
    *,
    platform_id: UUID,
    card_id: UUID,
    card_transaction_id: UUID | None = None,
) -> Spending | None:
    """Return what a simulator needs of the platform's card `card_id`, in one round trip.

    None when the platform has no such card.
    """
    cards, parents = tables.cards.c, tables.card_transactions.c
    rows = await connection.execute(
        select(cards.currency, parents.issuer_transaction_token, parents.status)
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
    currency, token, status = row
    parent = None if token is None else Parent(issuer_transaction_token=token, status=status)
    return Spending(currency=currency, parent=parent)


def activate_due(connection: Connection, *, now: datetime, is_sandbox: bool = True) -> int:
    """Let the issuer answer for every card that is due; returns how many it answered for.

    Cards and their webhooks are written in the caller's database transaction. Another worker that
    does the same at the same time takes other cards.
    """
    due = connection.execute(
        select(*_COLUMNS)
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
    """Return a row of `cards` as every reader sees it."""
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
        funding_sources=row["funding_sources"],
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


def _last4(card_id: UUID) -> str:
    return f"{int.from_bytes(sha256(card_id.bytes).digest()) % 10_000:04}"


def _activate_at(platform_card_id: str, at: datetime, sandbox_delay: timedelta) -> datetime | None:
    match platform_card_id[-3:]:
        case Suffix.NEVER_ISSUED:
            return None
        case Suffix.ISSUED_LATE:
            return at + sandbox_delay
        case _:
            return at


async def _eligible_currency(
    connection: AsyncConnection, platform_id: UUID, application: Application
) -> str:
    """Return the currency of the card that `application` would get.

    Raises: RefusedError.
    """
    sources = application.funding_sources
    if len(set(sources)) != len(sources):
        message = "names an account twice; send every account once"
        raise RefusedError(Refusal.DUPLICATE_FUNDING_SOURCE, "fundingSources", message)
    await _check_cardholder(connection, platform_id, application.cardholder_id)
    columns = tables.internal_accounts.c
    rows = await connection.execute(
        select(columns.id, columns.type, columns.status, columns.currency).where(
            columns.id.in_(sources),
            columns.customer_id == application.cardholder_id,
            columns.platform_id == platform_id,
        )
    )
    found = {row.id: row for row in rows}
    for number, source in enumerate(sources):
        account = found.get(source)
        if account is None:
            message = "is not an internal account of the cardholder"
        elif account.type != "INTERNAL_FIAT":
            message = f"is an account of type {account.type}; cards spend from INTERNAL_FIAT"
        elif account.status != accounts.ACTIVE:
            message = f"is {account.status}; only an ACTIVE account can fund a card"
        elif account.currency != found[sources[0]].currency:
            message = "has another currency than the first; all have to share one"
        else:
            continue
        raise RefusedError(Refusal.FUNDING_SOURCE_INELIGIBLE, f"fundingSources.{number}", message)
    currency: str = found[sources[0]].currency
    return currency


async def _check_cardholder(
    connection: AsyncConnection, platform_id: UUID, cardholder_id: UUID
) -> None:
    columns = tables.customers.c
    rows = await connection.execute(
        select(columns.customer_type, columns.kyc_status).where(
            columns.id == cardholder_id,
            columns.platform_id == platform_id,
            ~columns.is_deleted,
        )
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
