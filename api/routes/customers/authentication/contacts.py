"""Contact verification: the e-mail address and the phone number of a customer, by a code."""

from typing import Final

from fastapi import Response

from cardledger.api.http.errors import not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.refusals import refusal
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.authentication import contacts, state
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CustomerId
from cardledger.schema.wire.customers.authentication import Channel, ContactCode
from cardledger.schema.wire.customers.customers import CustomerResource
from cardledger.schema.wire.errors import Code

_NO_CONTENT: Final = 204

router = guarded_router("Contact Verification")


@router.post(
    "/customers/{customer_id}/verify-email",
    status_code=_NO_CONTENT,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.MANAGE)
async def start_email_verification(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Send a code to the customer's e-mail address; an earlier code stops working.

    Only for a customer whose `region` is in the European Economic Area, else 409. The code works
    for five minutes and five attempts; a customer gets five an hour, then 429. The sandbox sends
    nothing: its code is 123456.
    """
    return await _start(call, customer_id, "EMAIL")


@router.post(
    "/customers/{customer_id}/verify-phone",
    status_code=_NO_CONTENT,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.MANAGE)
async def start_phone_verification(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Send a code to the customer's phone by SMS, under the rules of `verify-email`."""
    return await _start(call, customer_id, "PHONE")


@router.post(
    "/customers/{customer_id}/verify-email/confirm",
    response_model=CustomerResource,
    responses=error_responses(Code.CONFLICT, Code.ACCOUNT_LOCKED),
)
@requires(Permission.MANAGE, Permission.VIEW)
async def confirm_email_verification(
    customer_id: CustomerId, body: ContactCode, call: PlatformCall
) -> Response:
    """Verify the customer's e-mail address with the code; returns the customer.

    The fifth wrong code in a row locks the customer for 30 minutes, 423 `ACCOUNT_LOCKED`.
    """
    return await _confirm(call, customer_id, "EMAIL", body.code)


@router.post(
    "/customers/{customer_id}/verify-phone/confirm",
    response_model=CustomerResource,
    responses=error_responses(Code.CONFLICT, Code.ACCOUNT_LOCKED),
)
@requires(Permission.MANAGE, Permission.VIEW)
async def confirm_phone_verification(
    customer_id: CustomerId, body: ContactCode, call: PlatformCall
) -> Response:
    """Verify the customer's phone number with the code, under the rules of `verify-email`."""
    return await _confirm(call, customer_id, "PHONE", body.code)


async def _start(call: PlatformContext, customer_id: Id, channel: Channel) -> Response:
    async with call.writing() as connection:
        person = await state.find(connection, call.platform_id, customer_id, hold=True)
        if person is None:
            raise not_found(Code.USER_NOT_FOUND, "customer")
        refused = await contacts.start(
            connection,
            person=person,
            channel=channel,
            keys=call.keys,
            sender=call.code_sender,
            at=call.now(),
        )
        if refused is not None:
            return refusal(refused)
    return Response(status_code=_NO_CONTENT)


async def _confirm(call: PlatformContext, customer_id: Id, channel: Channel, code: str) -> Response:
    async with call.writing() as connection:
        person = await state.find(connection, call.platform_id, customer_id, hold=True)
        if person is None:
            raise not_found(Code.USER_NOT_FOUND, "customer")
        refused = await contacts.confirm(
            connection,
            person=person,
            channel=channel,
            code=code,
            keys=call.keys,
            sender=call.code_sender,
            at=call.now(),
        )
        if refused is not None:
            return refusal(refused)
        customer = await customers.get(
            connection, platform_id=call.platform_id, customer_id=customer_id
        )
    assert customer is not None
    return resource_response(customer)
