"""Issuing cards: the checks of a request, and recording the issuer's answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, literal_column, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.cards import funding_sources
from cardledger.ledger.cards.refusals import CardRefusal, CardRefusedError
from cardledger.ledger.cards.registry import CLOSED, COLUMNS, render
from cardledger.ledger.messaging import outbox
from cardledger.ledger.ports import Issuer, NotConnectedError
from cardledger.ledger.storage import caps
from cardledger.ledger.storage.engines import constraint_of
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.cards import CardResource

CARD_LIMIT: Final = 1_000
"""The most cards of a cardholder that are not closed."""

_ANSWERS_LIMIT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CardApplication:
    """A request for a card."""

    cardholder_id: Id
    platform_card_id: str | None
    funding_sources: Sequence[Id]
    max_spend_per_transaction: int | None


async def create(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    application: CardApplication,
    issuer: Issuer | None,
    at: datetime,
) -> CardResource:
    """Request a card from the issuer, which answers later (`record_answers`).

    Raises: NotConnectedError; CapReachedError; CardRefusedError, after which the database
    transaction can only be rolled back.
    """
    if issuer is None:
        raise NotConnectedError("card issuer")
    funding_sources.refuse_repetitions(application.funding_sources)
    await _check_cardholder(connection, platform_id, application.cardholder_id)
    currency = await funding_sources.eligible_currency(
        connection,
        platform_id=platform_id,
        cardholder_id=application.cardholder_id,
        sources=application.funding_sources,
        issuer=issuer,
    )
    await caps.check(
        connection,
        tables.cards,
        # A literal, not a parameter: the partial index of open cards needs the value itself.
        tables.cards.c.state != literal_column(f"'{CLOSED}'"),
        platform_id=platform_id,
        customer_id=application.cardholder_id,
        limit=CARD_LIMIT,
        noun="cards",
        advice="; close one first",
    )
    key = new_id()
    platform_card_id = application.platform_card_id or issuer.default_platform_card_id(
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
    due_at = issuer.answer_due_at(platform_card_id, requested_at=at)
    try:
        await connection.execute(tables.cards.insert().values(**row, activate_at=due_at))
    except IntegrityError as error:
        if constraint_of(error) != "cards_platform_card_id_key":
            raise
        message = "is the identifier of another open card; send a different identifier"
        raise CardRefusedError(
            CardRefusal.PLATFORM_CARD_ID_TAKEN, "platformCardId", message
        ) from error
    return render(row)


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
        # Until the card is committed: a customer who has a card cannot be deleted.
        .with_for_update(read=True, key_share=True)
    )
    cardholder = rows.one_or_none()
    if cardholder is None:
        message = "is not a customer of this platform"
        raise CardRefusedError(CardRefusal.UNKNOWN_CARDHOLDER, "cardholderId", message)
    if cardholder.customer_type != "INDIVIDUAL" or cardholder.kyc_status != "APPROVED":
        message = (
            f"is a customer with kycStatus {cardholder.kyc_status}; it must be APPROVED"
            if cardholder.customer_type == "INDIVIDUAL"
            else "is a business; only individuals hold cards"
        )
        raise CardRefusedError(CardRefusal.KYC_NOT_APPROVED, "cardholderId", message)


_ANSWERED: Final = (
    "state",
    "state_reason",
    "brand",
    "last4",
    "exp_month",
    "exp_year",
    "updated_at",
)
"""The columns that the issuer's answer changes."""

_RECORD_ANSWER: Final = (
    tables.cards.update()
    .where(tables.cards.c.id == bindparam("card_id"))
    .values({name: bindparam(f"new_{name}") for name in _ANSWERED} | {"activate_at": None})
)


# `IS TRUE`: not by the index of states, in which cards that wait for no answer are, too.
ANSWER_IS_DUE: Final = """EXISTS (
    SELECT FROM cards WHERE activate_at <= now() AND (state = 'PROCESSING') IS TRUE
)"""
"""The condition, in SQL, that `record_answers` has something to record."""


def record_answers(connection: Connection, issuer: Issuer, *, now: datetime) -> int:
    """Record the issuer's answer for every card whose answer is due; returns their number.

    Cards and their webhooks are written in the caller's database transaction. Another worker that
    does the same at the same time takes other cards.
    """
    due = connection.execute(
        select(*COLUMNS)
        .where(tables.cards.c.activate_at <= now, tables.cards.c.state == "PROCESSING")
        .order_by(tables.cards.c.activate_at)
        .limit(_ANSWERS_LIMIT)
        .with_for_update(skip_locked=True)
    )
    answered = [_answered(row._asdict(), issuer, now) for row in due]
    if not answered:
        return 0
    connection.execute(
        _RECORD_ANSWER,
        [
            {"card_id": row["id"]} | {f"new_{name}": row[name] for name in _ANSWERED}
            for row in answered
        ],
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


def _answered(row: Mapping[str, Any], issuer: Issuer, now: datetime) -> dict[str, Any]:
    """Return the columns of a card as the issuer's answer leaves them."""
    issued = issuer.issue(row["id"], row["platform_card_id"], at=now)
    if issued is None:
        changes = {"state": "CLOSED", "state_reason": "ISSUER_REJECTED"}
        return {**row, **changes, "updated_at": now}
    return {
        **row,
        "state": "ACTIVE",
        "brand": issued.brand,
        "last4": issued.last4,
        "exp_month": issued.exp_month,
        "exp_year": issued.exp_year,
        "updated_at": now,
    }
