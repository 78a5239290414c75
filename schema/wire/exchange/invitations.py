"""Invitations: a customer invites a person to get a UMA address."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from cardledger.schema.wire.common import (
    STORABLE,
    CurrencyAmount,
    Documented,
    Request,
    Response,
    ShortName,
    Time,
)
from cardledger.schema.wire.exchange.rates import MAX_QUOTED

InvitationStatus = Literal["PENDING", "CLAIMED", "EXPIRED", "CANCELLED"]

MAX_DAYS: Final = 365
"""How long an invitation can be valid."""

UmaOfCustomer = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=320),
    STORABLE,
    Field(examples=["$ada@bank.example"]),
]
"""A UMA address of a customer: 400 `INVALID_UMA_ADDRESS` when the platform has no such customer."""


class InvitationCreate(Request):
    """An invitation by the customer with the address `inviterUma`.

    `amountToSend` is in minor units of the customer's first currency. Nothing is reserved for it:
    the platform pays the invitee after the claim. `expiresAt` is at most 365 days from now, and 30
    days when it is left out.
    """

    inviter_uma: UmaOfCustomer
    first_name: ShortName | None = None
    amount_to_send: Annotated[int, Field(strict=True, gt=0, le=MAX_QUOTED)] | None = None
    expires_at: Time | None = None


class InvitationClaim(Request):
    """The claim of an invitation for the customer with the address `inviteeUma`."""

    invitee_uma: UmaOfCustomer


class UmaInvitation(Response):
    """An invitation; `url` is a page that shows it to the invitee."""

    code: Annotated[str, Field(examples=["8J3KQ2M9T4XWZ"])]
    url: str
    inviter_uma: str
    invitee_uma: str | None = None
    status: Annotated[str, Documented(InvitationStatus)]
    first_name: str | None = None
    amount_to_send: CurrencyAmount | None = None
    created_at: Time
    expires_at: Time
    claimed_at: Time | None = None
