"""Links to a hosted page that verifies one customer: valid for a day, used once.

Opening the page uses nothing up, so programs that preview links do no harm; submitting it does.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers import verifications
from cardledger.ledger.customers.authentication import contacts, state
from cardledger.ledger.customers.verifications import AlreadyDecidedError
from cardledger.ledger.ports import Adapters, NotConnectedError
from cardledger.ledger.storage import caps
from cardledger.ledger.storage.caps import CapReachedError
from cardledger.ledger.storage.secrets import owned_tokens
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.verifications import VerificationStatus

LIFETIME: Final = timedelta(days=1)

RETENTION: Final = timedelta(days=30)
"""How long a link is kept after its end, as a record of who was sent where."""

LINK_LIMIT: Final = 20
"""The most links of a customer that are kept."""

_LINKS: Final = tables.kyc_links.c
_CUSTOMERS: Final = tables.customers.c


class UnverifiedContactsError(Exception):
    """The region of the customer requires that its e-mail address and phone are verified first."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KycLink:
    """A link; only the caller of `create` knows its `token`."""

    token: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLink:
    """A link that can be submitted, and where its page leads to."""

    customer_id: Id
    redirect_uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of the verification, and where the page leads to."""

    status: VerificationStatus
    redirect_uri: str | None


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    redirect_uri: str | None,
    adapters: Adapters,
    keys: KeyRing,
    at: datetime,
) -> KycLink | None:
    """Create a link for a customer; None when the platform has no such customer.

    Earlier links stay valid, and the customer's status stays.
    Raises: NotConnectedError, UnverifiedContactsError, AlreadyDecidedError, CapReachedError;
    nothing has been written.
    """
    if adapters.identity_verifier is None:
        raise NotConnectedError("identity verifier")
    person = await state.find(connection, platform_id, customer_id, hold=True)
    if person is None:
        return None
    status = await connection.scalar(
        select(_CUSTOMERS.kyc_status).where(_CUSTOMERS.id == customer_id)
    )
    if status in customers.DECIDED:
        raise AlreadyDecidedError(status)
    is_required = state.is_required(person, adapters.code_sender)
    if is_required and not await contacts.are_verified(connection, person):
        raise UnverifiedContactsError
    await caps.lock(connection, tables.kyc_links, customer_id)
    kept = await connection.scalar(
        select(func.count()).select_from(tables.kyc_links).where(_LINKS.customer_id == customer_id)
    )
    if kept is not None and kept >= LINK_LIMIT:
        message = f"The customer has {LINK_LIMIT} links, the maximum; use one of them."
        raise CapReachedError(message, limit=LINK_LIMIT)
    link = KycLink(token=owned_tokens.new(customer_id), expires_at=at + LIFETIME)
    await connection.execute(
        tables.kyc_links.insert().values(
            token_hash=keys.hash_secret(link.token, Purpose.KYC_PAGE),
            platform_id=platform_id,
            customer_id=customer_id,
            redirect_uri=redirect_uri,
            created_at=at,
            expires_at=link.expires_at,
        )
    )
    return link


async def platform_of(connection: AsyncConnection, *, token: str, keys: KeyRing) -> Id | None:
    """Return the platform whose row has the hash of `token`; None: there is none.

    The customer is compared where the link is looked at, as that platform.
    """
    platform_id: Id | None = await connection.scalar(
        select(_LINKS.platform_id).where(_LINKS.token_hash.in_(_candidates(token, keys)))
    )
    return platform_id


async def look(
    connection: AsyncConnection, *, token: str, keys: KeyRing, at: datetime
) -> OpenLink | None:
    """Return what the link is for, and change nothing; None: it has ended, or was used."""
    rows = await connection.execute(
        select(_LINKS.customer_id, _LINKS.redirect_uri).where(
            *_of_token(token, keys),
            _LINKS.expires_at > at,
            _LINKS.used_at.is_(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return OpenLink(customer_id=row.customer_id, redirect_uri=row.redirect_uri)


async def submit(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    token: str,
    adapters: Adapters,
    keys: KeyRing,
    at: datetime,
) -> Submitted | None:
    """Use the link, and verify its customer; None: it has ended, was used, or is not needed."""
    # One statement: of two submissions at once, the second waits and then finds the link used.
    rows = await connection.execute(
        tables.kyc_links.update()
        .where(
            *_of_token(token, keys),
            _LINKS.expires_at > at,
            _LINKS.used_at.is_(None),
        )
        .values(used_at=at)
        .returning(_LINKS.customer_id, _LINKS.redirect_uri)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    try:
        verification = await verifications.submit(
            connection,
            platform_id=platform_id,
            customer_id=row.customer_id,
            verifier=adapters.identity_verifier,
            keys=keys,
            at=at,
            is_hosted=True,
        )
    except AlreadyDecidedError:
        return None
    if verification is None:
        return None
    return Submitted(status=verification.verification_status, redirect_uri=row.redirect_uri)


async def remove_old(
    connection: AsyncConnection, *, platform_id: Id, at: datetime, limit: int
) -> int:
    """Delete links that ended long ago; returns how many, up to `limit`."""
    old = (
        select(_LINKS.token_hash)
        .where(_LINKS.platform_id == platform_id, _LINKS.expires_at <= at - RETENTION)
        .limit(limit)
    )
    gone = await connection.execute(
        delete(tables.kyc_links).where(_LINKS.token_hash.in_(old.scalar_subquery()))
    )
    return gone.rowcount


def _of_token(token: str, keys: KeyRing) -> list[ColumnElement[bool]]:
    """Return the conditions of the row of `token`: its hash, and the customer that it names."""
    found: list[ColumnElement[bool]] = [_LINKS.token_hash.in_(_candidates(token, keys))]
    # Links of releases before schema 0139 name none; they live for a day.
    customer_id = owned_tokens.owner_in(token)
    return found if customer_id is None else [*found, _LINKS.customer_id == customer_id]


def _candidates(token: str, keys: KeyRing) -> list[bytes]:
    return keys.presented(token, Purpose.KYC_PAGE).candidates
