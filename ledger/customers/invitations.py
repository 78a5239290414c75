"""Invitations: a customer invites a person, who becomes a customer of any platform and claims it.

A code is all that the platform of the invitee has, so it cannot be guessed, and every platform that
has it can read the invitation. The platform of the inviter sends the money, after the claim.
"""

import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from pydantic_core import to_json
from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import money
from cardledger.schema.wire.exchange.invitations import UmaInvitation

LIFETIME: Final = timedelta(days=30)
"""Of an invitation for which none was chosen."""

_CURRENCY: Final = "USD"  # Of a customer without any.

PENDING: Final = "PENDING"
CLAIMED: Final = "CLAIMED"
CANCELLED: Final = "CANCELLED"
EXPIRED: Final = "EXPIRED"

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Without letters that look like digits.
CODE_LENGTH: Final = 16
"""Of 32 characters each: 80 bits."""

_INVITATION: Final = tables.invitations.c
_CUSTOMER: Final = tables.customers.c


class Refusal(Enum):
    """Why an invitation is not made, claimed or cancelled."""

    UNKNOWN = auto()
    INVITER = auto()  # Not the address of a customer of the platform.
    INVITEE = auto()  # Not the address of a customer of the platform.
    SELF = auto()  # The inviter cannot be the invitee.
    CLAIMED = auto()
    CANCELLED = auto()
    EXPIRED = auto()
    NOT_OWN = auto()  # Of another platform, which alone can cancel it.


class RefusedError(Exception):
    """Nothing was written."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.name)
        self.refusal: Final = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A row of `invitations`; `amount` in minor units of `currency`."""

    id: Id
    platform_id: Id
    customer_id: Id
    code: str
    url: str
    inviter_uma: str
    first_name: str | None
    amount: int | None
    currency: str | None
    status: str
    invitee_uma: str | None
    created_at: datetime
    expires_at: datetime
    claimed_at: datetime | None

    def status_at(self, at: datetime) -> str:
        """Return the status, which a time ends as well."""
        return EXPIRED if self.status == PENDING and at >= self.expires_at else self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An invitation to be made; `page` is the address below which its page will be."""

    inviter_uma: str
    first_name: str | None
    amount: int | None
    expires_at: datetime | None
    page: str


_FIND: Final = text("SELECT * FROM find_invitation(:code)")
_CLAIM: Final = text(
    "SELECT claim_invitation(:code, :invitee, :at, :webhook_id, CAST(:resource AS json))"
)

_COLUMNS: Final = tuple(column.name for column in tables.invitations.columns)
_SHOWN: Final = select(tables.invitations)


def resource(invitation: Invitation, *, at: datetime) -> UmaInvitation:
    """Return an invitation as a resource, as it is `at` a time."""
    amount = None
    if invitation.amount is not None and invitation.currency is not None:
        amount = money(invitation.amount, invitation.currency)
    return UmaInvitation(
        code=invitation.code,
        url=invitation.url,
        inviter_uma=invitation.inviter_uma,
        invitee_uma=invitation.invitee_uma,
        status=invitation.status_at(at),
        first_name=invitation.first_name,
        amount_to_send=amount,
        created_at=invitation.created_at,
        expires_at=invitation.expires_at,
        claimed_at=invitation.claimed_at,
    )


async def create(
    connection: AsyncConnection, *, platform_id: Id, wanted: Wanted, at: datetime
) -> Invitation:
    """Make an invitation by a customer of the platform.

    Raises: RefusedError INVITER.
    """
    inviter = await _customer(connection, platform_id, wanted.inviter_uma)
    if inviter is None:
        raise RefusedError(Refusal.INVITER)
    code = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))
    made = Invitation(
        id=new_id(),
        platform_id=platform_id,
        customer_id=inviter.id,
        code=code,
        url=f"{wanted.page}/{code}",
        inviter_uma=wanted.inviter_uma,
        first_name=wanted.first_name,
        amount=wanted.amount,
        currency=None if wanted.amount is None else (inviter.currencies or [_CURRENCY])[0],
        status=PENDING,
        invitee_uma=None,
        created_at=at,
        expires_at=wanted.expires_at or at + LIFETIME,
        claimed_at=None,
    )
    await connection.execute(
        tables.invitations.insert().values({name: getattr(made, name) for name in _COLUMNS})
    )
    return made


async def find(connection: AsyncConnection, code: str) -> Invitation:
    """Return the invitation with `code`, of any platform.

    Raises: RefusedError UNKNOWN.
    """
    row = (await connection.execute(_FIND, {"code": code})).one_or_none()
    if row is None:
        raise RefusedError(Refusal.UNKNOWN)
    return _from_row(row)


async def claim(
    connection: AsyncConnection, *, platform_id: Id, code: str, invitee_uma: str, at: datetime
) -> Invitation:
    """Claim an invitation for a customer of the platform, with the webhook to its inviter.

    Raises: RefusedError.
    """
    before = await find(connection, code)
    _check_pending(before, at)
    invitee = await _customer(connection, platform_id, invitee_uma)
    if invitee is None:
        raise RefusedError(Refusal.INVITEE)
    if invitee.id == before.customer_id:
        raise RefusedError(Refusal.SELF)
    claimed = replace(before, status=CLAIMED, invitee_uma=invitee_uma, claimed_at=at)
    is_ours = await connection.scalar(
        _CLAIM,
        {
            "code": code,
            "invitee": invitee_uma,
            "at": at,
            "webhook_id": new_id(),
            "resource": to_json(resource(claimed, at=at).wire()).decode(),
        },
    )
    if not is_ours:  # Another claim, or the cancellation, was first.
        _check_pending(await find(connection, code), at)
    return claimed


async def cancel(
    connection: AsyncConnection, *, platform_id: Id, code: str, at: datetime
) -> Invitation:
    """Cancel an invitation of the platform that is not claimed.

    Raises: RefusedError.
    """
    own = _SHOWN.where(_INVITATION.code == code, _INVITATION.platform_id == platform_id)
    row = (await connection.execute(own.with_for_update())).one_or_none()
    if row is None:
        await find(connection, code)
        raise RefusedError(Refusal.NOT_OWN)
    before = _from_row(row)
    _check_pending(before, at)
    await connection.execute(
        tables.invitations.update()
        .where(_INVITATION.id == before.id, _INVITATION.platform_id == platform_id)
        .values(status=CANCELLED)
    )
    return replace(before, status=CANCELLED)


def _check_pending(invitation: Invitation, at: datetime) -> None:
    status = invitation.status_at(at)
    if status != PENDING:
        raise RefusedError(Refusal[status])


async def _customer(
    connection: AsyncConnection, platform_id: Id, uma_address: str
) -> Row[*tuple[Any, ...]] | None:
    """Return the platform's customer with an address, which is not deleted meanwhile."""
    rows = await connection.execute(
        select(_CUSTOMER.id, _CUSTOMER.currencies)
        .where(
            _CUSTOMER.uma_address == uma_address,
            _CUSTOMER.platform_id == platform_id,
            ~_CUSTOMER.is_deleted,
        )
        .with_for_update(key_share=True, read=True)
    )
    return rows.one_or_none()


def _from_row(row: Row[*tuple[Any, ...]]) -> Invitation:
    return Invitation(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
