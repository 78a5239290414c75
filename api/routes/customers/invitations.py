"""Invitations to get a UMA address, and the page that shows one to the invitee."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Final

from fastapi import Path, Request, Response

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import PlatformCall, public_root, services_of
from cardledger.api.http.responses import CREATED, resource_response
from cardledger.api.http.routing import guarded_router, public_router, requires
from cardledger.api.http.strangers import looking_up
from cardledger.api.routes import hosted_page
from cardledger.ledger.customers import invitations
from cardledger.ledger.customers.invitations import Invitation, Refusal, RefusedError, Wanted
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import format_amount
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.invitations import (
    MAX_DAYS,
    InvitationClaim,
    InvitationCreate,
    UmaInvitation,
)
from cardledger.workers.signals import doorbell

PAGE: Final = "/embed/invitations"

_TAG: Final = "Invitations"
_TITLE: Final = "Invitation"
_VISITORS: Final = "visitors of invitation pages"

router = guarded_router(_TAG)
page_router = public_router(_TAG)

_CODE: Final = "^[0-9A-Za-z]{1,64}$"

InvitationCode = Annotated[str, Path(pattern=_CODE, examples=["8J3KQ2M9T4XWZ70B"])]

_ADDRESS: Final = "must be the UMA address of a customer of the platform"

_ERRORS: Final[Mapping[Refusal, tuple[Code, str]]] = {
    Refusal.UNKNOWN: (Code.INVITATION_NOT_FOUND, "There is no invitation with this code."),
    Refusal.CLAIMED: (Code.INVITATION_ALREADY_CLAIMED, "The invitation is already claimed."),
    Refusal.CANCELLED: (Code.INVITATION_CANCELLED, "The invitation was cancelled."),
    Refusal.NOT_OWN: (Code.FORBIDDEN, "Only the platform that made an invitation can cancel it."),
}


@router.post(
    "/invitations",
    status_code=CREATED,
    response_model=UmaInvitation,
    responses=error_responses(Code.INVALID_UMA_ADDRESS, Code.INVITATIONS_NOT_CONFIGURED),
)
@requires(Permission.MANAGE)
async def create_invitation(
    body: InvitationCreate, call: PlatformCall, request: Request
) -> Response:
    """Invite a person to get a UMA address, with any provider of this installation.

    The `code` is the invitation: send it, or the `url` of its page, to the invitee. Nothing is
    reserved for `amountToSend`: pay the invitee after the webhook `INVITATION.CLAIMED`. 400
    `INVITATIONS_NOT_CONFIGURED` without a UMA network.
    """
    at = call.now()
    if call.services.adapters.uma_network is None:
        message = (
            "No UMA network is connected to this installation, so no invitation can be claimed."
        )
        raise ApiError(Code.INVITATIONS_NOT_CONFIGURED, message)
    if body.expires_at is not None and not at < body.expires_at <= at + timedelta(days=MAX_DAYS):
        raise invalid_field("expiresAt", f"must be in the future, at most {MAX_DAYS} days from now")
    wanted = Wanted(
        inviter_uma=body.inviter_uma,
        first_name=body.first_name,
        amount=body.amount_to_send,
        expires_at=body.expires_at,
        page=public_root(request) + PAGE,
    )
    with _refusals("inviterUma"):
        async with call.writing() as connection:
            made = await invitations.create(
                connection, platform_id=call.platform_id, wanted=wanted, at=at
            )
    return resource_response(invitations.resource(made, at=at), CREATED)


@router.get(
    "/invitations/{invitation_code}",
    response_model=UmaInvitation,
    responses=error_responses(Code.INVITATION_NOT_FOUND),
)
@requires(Permission.VIEW)
async def get_invitation(invitation_code: InvitationCode, call: PlatformCall) -> Response:
    """Return an invitation, made by this platform or by another one: its code is the key."""
    with _refusals():
        async with call.reading() as connection:
            found = await invitations.find(connection, invitation_code)
    return resource_response(invitations.resource(found, at=call.now()))


@router.post(
    "/invitations/{invitation_code}/claim",
    response_model=UmaInvitation,
    responses=error_responses(
        Code.INVITATION_NOT_FOUND,
        Code.INVITATION_ALREADY_CLAIMED,
        Code.INVITATION_CANCELLED,
        Code.INVALID_UMA_ADDRESS,
        Code.SELF_PAYMENT,
    ),
)
@requires(Permission.MANAGE)
async def claim_invitation(
    invitation_code: InvitationCode, body: InvitationClaim, call: PlatformCall
) -> Response:
    """Claim an invitation of any platform for a customer of this one, once.

    The platform of the inviter gets the webhook `INVITATION.CLAIMED`. An expired invitation is 400.
    """
    at = call.now()
    with _refusals("inviteeUma"):
        async with call.writing() as connection:
            claimed = await invitations.claim(
                connection,
                platform_id=call.platform_id,
                code=invitation_code,
                invitee_uma=body.invitee_uma,
                at=at,
            )
    await call.notify(doorbell.WEBHOOKS)
    return resource_response(invitations.resource(claimed, at=at))


@router.post(
    "/invitations/{invitation_code}/cancel",
    response_model=UmaInvitation,
    responses=error_responses(
        Code.INVITATION_NOT_FOUND, Code.INVITATION_ALREADY_CLAIMED, Code.INVITATION_CANCELLED
    ),
)
@requires(Permission.MANAGE)
async def cancel_invitation(invitation_code: InvitationCode, call: PlatformCall) -> Response:
    """Cancel an invitation of this platform that is `PENDING`; one of another platform is 403."""
    at = call.now()
    with _refusals():
        async with call.writing() as connection:
            cancelled = await invitations.cancel(
                connection, platform_id=call.platform_id, code=invitation_code, at=at
            )
    return resource_response(invitations.resource(cancelled, at=at))


@contextmanager
def _refusals(field: str = "") -> Iterator[None]:
    """Turn the refusal of an invitation into the error of the interface."""
    try:
        yield
    except RefusedError as error:
        raise _refused(error.refusal, field) from None


def _refused(refusal: Refusal, field: str) -> ApiError:
    if refusal in {Refusal.INVITER, Refusal.INVITEE}:
        return invalid_field(field, _ADDRESS, Code.INVALID_UMA_ADDRESS)
    if refusal is Refusal.SELF:
        message = "The inviter cannot claim its own invitation; name another customer."
        return ApiError(Code.SELF_PAYMENT, message)
    if refusal is Refusal.EXPIRED:
        message = "The invitation has expired; ask the inviter for another one."
        return ApiError(Code.INVALID_INPUT, message, details={"reason": "INVITATION_EXPIRED"})
    return ApiError(*_ERRORS[refusal])


# --- the page ----------------------------------------------------------------------------------

_UNAVAILABLE: Final = """<h1>Invitation unavailable</h1>
<p>It was claimed, was cancelled or has expired. Ask for another one.</p>"""


@page_router.get(PAGE + "/{code}", include_in_schema=False)
async def show_invitation(code: str, request: Request) -> Response:
    """Show an invitation that can be claimed to the person who was invited."""
    services = services_of(request)
    if re.fullmatch(_CODE, code) is None:
        return hosted_page.response(_TITLE, _UNAVAILABLE, hosted_page.NOT_FOUND)
    async with looking_up(services.turns, _VISITORS, address_of(request)) as look_up:
        try:
            async with services.installation.connect() as connection:
                found = await invitations.find(connection, code)
        except RefusedError:
            look_up.is_miss = True
            return hosted_page.response(_TITLE, _UNAVAILABLE, hosted_page.NOT_FOUND)
    if found.status_at(services.clock()) != invitations.PENDING:
        return hosted_page.response(_TITLE, _UNAVAILABLE, hosted_page.NOT_FOUND)
    return hosted_page.response(_TITLE, _content(found))


def _content(invitation: Invitation) -> str:
    inviter = invitation.first_name or invitation.inviter_uma
    content = hosted_page.heading(f"{inviter} invites you to get a UMA address.")
    if invitation.amount is not None and invitation.currency is not None:
        amount = format_amount(invitation.amount, invitation.currency)
        content += hosted_page.paragraph(f"{inviter} means to send you {amount}.")
    return content + hosted_page.paragraph(f"Give your provider this code: {invitation.code}")
