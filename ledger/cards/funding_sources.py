"""Funding sources: the internal accounts that a card may spend from."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.cards.refusals import CardRefusal, CardRefusedError
from cardledger.ledger.ports import Issuer
from cardledger.ledger.projections import accounts
from cardledger.schema import tables
from cardledger.schema.ids import Id


def refuse_repetitions(sources: Sequence[Id]) -> None:
    """Raise CardRefusedError when `sources` names an account more than once."""
    if len(set(sources)) != len(sources):
        message = "names an account twice; send every account once"
        raise CardRefusedError(CardRefusal.DUPLICATE_FUNDING_SOURCE, "fundingSources", message)


async def eligible_currency(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    cardholder_id: Id,
    sources: Sequence[Id],
    issuer: Issuer | None,
    currency: str | None = None,
) -> str:
    """Return the currency that all `sources` share; it must be `currency` when that is given.

    Raises: CardRefusedError when one of them may not fund a card of this cardholder.
    """
    columns = tables.internal_accounts.c
    rows = await connection.execute(
        select(columns.id, columns.type, columns.status, columns.currency).where(
            columns.id.in_(sources),
            columns.customer_id == cardholder_id,
            columns.platform_id == platform_id,
        )
    )
    account_by_id = {row.id: row for row in rows}
    for number, source in enumerate(sources):
        objection = _objection(account_by_id.get(source), currency)
        if not objection and issuer is not None:
            objection = issuer.funding_source_objection(source)
        if objection:
            field = f"fundingSources.{number}"
            raise CardRefusedError(CardRefusal.FUNDING_SOURCE_INELIGIBLE, field, objection)
        currency = account_by_id[source].currency
    assert currency is not None, "a card has at least one funding source"
    return currency


def _objection(account: Row[*tuple[Any, ...]] | None, currency: str | None) -> str | None:
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
