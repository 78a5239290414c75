"""The customer of an operation of SCA, which must be one that has to authenticate."""

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import not_found
from cardledger.api.http.request_context import PlatformContext
from cardledger.api.routes.customers.authentication.refusals import error_of
from cardledger.ledger.customers.authentication import refusals, state
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.ports import CodeSender
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code


async def person_of(
    connection: AsyncConnection, call: PlatformContext, customer_id: Id, *, hold: bool = True
) -> tuple[Person, CodeSender]:
    """Return the customer, and the sender of its codes; with `hold`, for what writes.

    Raises: ApiError USER_NOT_FOUND; CONFLICT when the customer has not to authenticate.
    """
    person = await state.find(connection, call.platform_id, customer_id, hold=hold)
    if person is None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    sender = call.code_sender
    if sender is None or not state.is_required(person, sender):
        raise error_of(refusals.NOT_REQUIRED)
    return person, sender
