"""Customers and their internal accounts."""

from fastapi import Response

from api import routing
from api.answers import CREATED, answer
from api.context import Here
from api.errors import ApiError, invalid_field, not_found
from ledger import customers
from ledger.tokens import Permission
from schema.wire.common import CustomerId
from schema.wire.customers import UMA_ADDRESS, BusinessCreate, CustomerCreate, CustomerResource
from schema.wire.errors import Code

_TAG = "Customers"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_TAKEN = {"platformCustomerId": Code.CONFLICT, "umaAddress": Code.UMA_ADDRESS_EXISTS}


@writes.post("/customers", status_code=CREATED, response_model=CustomerResource)
async def create_customer(body: CustomerCreate, call: Here) -> Response:
    """Create a customer, with one internal account per currency.

    In the sandbox the end of `fullName` decides on KYC: `001` pending, `002` rejected, `003`
    unverified, anything else approved. Outside it everybody starts unverified.
    """
    if isinstance(body, BusinessCreate):
        message = "business customers are not built yet; send customerType INDIVIDUAL"
        raise ApiError(Code.NOT_IMPLEMENTED, message)
    if body.uma_address is not None and not UMA_ADDRESS.fullmatch(body.uma_address):
        message = "must be of the form $name@domain, the name of a-z, 0-9 and -_.+"
        raise invalid_field("umaAddress", message, Code.INVALID_UMA_ADDRESS)
    if body.currencies and len(set(body.currencies)) != len(body.currencies):
        raise invalid_field("currencies", "names a currency twice; send every currency once")
    person = customers.Individual(
        platform_customer_id=body.platform_customer_id,
        uma_address=body.uma_address,
        region=body.region,
        currencies=tuple(body.currencies) if body.currencies else None,
        email=body.email,
        phone_number=body.phone_number,
        full_name=body.full_name,
        birth_date=body.birth_date,
        nationality=body.nationality,
        address=(
            body.address.model_dump(by_alias=True, exclude_none=True) if body.address else None
        ),
    )
    try:
        async with call.writing() as connection:
            created = await customers.create(
                connection,
                platform_id=call.platform_id,
                person=person,
                at=call.now(),
                is_sandbox=call.services.is_sandbox,
            )
    except customers.UnsupportedCurrencyError as error:
        message = f"has {error.currency}; this platform has {', '.join(error.supported)}"
        raise invalid_field("currencies", message, Code.INVALID_CURRENCY) from None
    except customers.AlreadyExistsError as error:
        message = f"{error}; send another one, or use that customer"
        raise ApiError(_TAKEN[error.field], message, details={"field": error.field}) from None
    return answer(created, CREATED)


@reads.get("/customers/{customer_id}", response_model=CustomerResource)
async def get_customer(customer_id: CustomerId, call: Here) -> Response:
    """Return a customer."""
    async with call.reading() as connection:
        found = await customers.get(
            connection, platform_id=call.platform_id, customer_id=customer_id
        )
    if found is None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    return answer(found)
