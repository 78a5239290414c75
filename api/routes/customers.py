"""Customers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.customers import deletion, updates
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema.wire.common import CustomerId, Page
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.customers import (
    UMA_ADDRESS,
    BusinessCreate,
    BusinessUpdate,
    CustomerCreate,
    CustomerResource,
    CustomersQuery,
    CustomerUpdate,
    DueDiligence,
    IndividualCreate,
    IndividualUpdate,
    merged,
    missing_contacts,
    undescribed,
)
from cardledger.schema.wire.errors import Code

_TAG = "Customers"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_DUE = frozenset(DueDiligence.model_fields)
_REFUSES = answers(
    Code.INVALID_UMA_ADDRESS,
    Code.INVALID_CURRENCY,
    Code.MISSING_MANDATORY_USER_INFO,
    Code.UMA_ADDRESS_EXISTS,
    Code.CONFLICT,
)
_TAKEN = {"platformCustomerId": Code.CONFLICT, "umaAddress": Code.UMA_ADDRESS_EXISTS}


@writes.post(
    "/customers",
    status_code=CREATED,
    response_model=CustomerResource,
    responses=_REFUSES,
)
async def create_customer(body: CustomerCreate, call: PlatformCall) -> Response:
    """Create a customer, with one internal account per currency.

    In the sandbox the end of `fullName` decides on KYC: `001` pending, `002` rejected, `003`
    unverified, anything else approved. Outside it everybody starts unverified, and so does a
    business everywhere: `POST /verifications` moves both on. In the European Economic Area `email`
    and `phoneNumber` have to be there. `identifier` is kept encrypted and never returned.
    """
    _check(body.uma_address, body.currencies)
    _check_new(body)
    with _refusals():
        async with call.writing() as connection:
            created = await customers.create(
                connection,
                platform_id=call.platform_id,
                person=_applicant(body, call.keys),
                verifier=call.services.adapters.identity_verifier,
                at=call.now(),
            )
    return answer(created, CREATED)


@reads.get("/customers", response_model=Page[CustomerResource])
async def list_customers(query: Annotated[CustomersQuery, Query()], call: PlatformCall) -> Response:
    """List customers, newest first; deleted ones only with `isIncludingDeleted`."""
    listing = Listing(call, "customers", query)
    filters = customers.CustomerFilters(
        platform_customer_id=query.platform_customer_id,
        customer_type=query.customer_type,
        created_from=query.created_after,
        created_to=query.created_before,
        updated_from=query.updated_after,
        updated_to=query.updated_before,
        region=query.region,
        currency=query.currency,
        uma_address=query.uma_address,
        with_deleted=query.is_including_deleted == "true",
    )
    async with call.reading() as connection:
        page = await customers.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=True),
        )
    return listing.answer(page)


@reads.get("/customers/{customer_id}", response_model=CustomerResource)
async def get_customer(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Return a customer, also one that was deleted."""
    async with call.reading() as connection:
        found = await customers.get(
            connection, platform_id=call.platform_id, customer_id=customer_id
        )
    if found is None:
        raise _no_customer()
    return answer(found)


@writes.patch(
    "/customers/{customer_id}",
    response_model=CustomerResource,
    responses=_REFUSES,
)
async def update_customer(
    customer_id: CustomerId, body: CustomerUpdate, call: PlatformCall
) -> Response:
    """Change a customer: a field that is not there stays, null takes it away.

    `customerType` says what is changed and cannot be changed itself. `currencies` replaces the
    list: a new currency gets an account, the account of one that goes stays. `email` and
    `phoneNumber` are changed one at a time, and stay where the region asks for them. Another name
    decides nothing about KYC again.
    """
    changes = _changes(body)
    _check(body.uma_address, body.currencies)
    try:
        with _refusals():
            async with call.writing() as connection:
                changed = await updates.change(
                    connection,
                    platform_id=call.platform_id,
                    customer_id=customer_id,
                    customer_type=body.customer_type,
                    changes=changes,
                    keys=call.keys,
                    at=call.now(),
                )
    except updates.CustomerTypeError as error:
        raise invalid_field("customerType", f"does not match: {error}") from None
    except customers.CustomerDeletedError:
        message = "the customer is deleted; nothing about it can be changed any more"
        raise ApiError(Code.USER_NOT_FOUND, message) from None
    if changed is None:
        raise _no_customer()
    return answer(changed)


@writes.delete(
    "/customers/{customer_id}",
    response_model=CustomerResource,
    responses=answers(Code.CONFLICT, Code.CUSTOMER_DELETED),
)
async def delete_customer(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Delete a customer and close its accounts; the answer shows it with `isDeleted` true.

    409 while it has a card that is not `CLOSED`, or an account with money on it, held on it or
    owed by it: nobody could reach that any more. What was booked stays in the record.
    """
    try:
        async with call.writing() as connection:
            deleted = await deletion.delete(
                connection, platform_id=call.platform_id, customer_id=customer_id, at=call.now()
            )
    except customers.CustomerDeletedError:
        raise ApiError(Code.CUSTOMER_DELETED, "the customer has been deleted before") from None
    except deletion.CustomerInUseError as error:
        message = f"{error}; close its cards and bring its accounts to zero first"
        raise ApiError(Code.CONFLICT, message, details={"reason": error.reason}) from None
    if deleted is None:
        raise _no_customer()
    return answer(deleted)


def _applicant(
    body: IndividualCreate | BusinessCreate, keys: KeyRing
) -> customers.Individual | customers.Business:
    said: dict[str, Any] = {
        "platform_customer_id": body.platform_customer_id,
        "uma_address": body.uma_address,
        "region": body.region,
        "currencies": tuple(body.currencies) if body.currencies else None,
        "email": body.email,
        "phone_number": body.phone_number,
        "address": _object(body.address),
        "end_user_terms_consent": _object(body.end_user_terms_consent),
    }
    if isinstance(body, BusinessCreate):
        return customers.Business(**said, info=_object(body.business_info) or {})
    return customers.Individual(
        **said,
        full_name=body.full_name,
        birth_date=body.birth_date,
        nationality=body.nationality,
        id_type=body.id_type,
        sealed_identifier=keys.encrypt(body.identifier.encode()) if body.identifier else None,
        country_of_issuance=body.country_of_issuance,
        due_diligence=merged({}, _due_diligence(body)) or None,
    )


def _due_diligence(body: DueDiligence) -> dict[str, Any]:
    """Return what `body` says of a person's money, null included: it takes away."""
    return body.model_dump(
        mode="json",
        by_alias=True,
        include=set(DueDiligence.model_fields),
        exclude_unset=True,
    )


def _changes(body: IndividualUpdate | BusinessUpdate) -> dict[str, Any]:
    """Return the columns that `body` changes."""
    named = body.model_fields_set - {"customer_type", "kyc_status"}
    if not named:
        raise ApiError(Code.INVALID_INPUT, "nothing to change; send a field beside customerType")
    if {"email", "phone_number"} <= named:
        raise invalid_field("phoneNumber", "cannot change together with email; send them apart")
    changes = {name: getattr(body, name) for name in sorted(named)}
    for name in {"address", "end_user_terms_consent"} & named:
        changes[name] = _object(getattr(body, name))
    if isinstance(body, IndividualUpdate) and (due := _due_diligence(body)):
        changes = {name: said for name, said in changes.items() if name not in _DUE}
        changes["due_diligence"] = due
    if isinstance(body, BusinessUpdate) and body.business_info is not None:
        changes["business_info"] = body.business_info.model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
    return changes


def _object(said: BaseModel | None) -> dict[str, Any] | None:
    return None if said is None else said.model_dump(mode="json", by_alias=True, exclude_none=True)


def _check(uma_address: str | None, currencies: list[str] | None) -> None:
    if uma_address is not None and not UMA_ADDRESS.fullmatch(uma_address):
        message = "must be of the form $name@domain, the name of a-z, 0-9 and -_.+"
        raise invalid_field("umaAddress", message, Code.INVALID_UMA_ADDRESS)
    if currencies and len(set(currencies)) != len(currencies):
        raise invalid_field("currencies", "names a currency twice; send every currency once")


def _check_new(body: IndividualCreate | BusinessCreate) -> None:
    missing = list(
        missing_contacts(region=body.region, email=body.email, phone_number=body.phone_number)
    )
    if missing:
        raise invalid(missing, Code.MISSING_MANDATORY_USER_INFO)
    if isinstance(body, BusinessCreate):
        errors = list(undescribed(_object(body.business_info) or {}, within="businessInfo."))
    else:
        errors = list(undescribed(_due_diligence(body)))
        errors += identity.identifier_errors(
            id_type=body.id_type, identifier=body.identifier, country=body.country_of_issuance
        )
    if errors:
        raise invalid(errors)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except customers.UnsupportedCurrencyError as error:
        message = f"has {error.currency}; this platform has {', '.join(error.supported)}"
        raise invalid_field("currencies", message, Code.INVALID_CURRENCY) from None
    except updates.MissingContactError as error:
        raise invalid(error.errors, Code.MISSING_MANDATORY_USER_INFO) from None
    except updates.InvalidCustomerError as error:
        raise invalid(error.errors) from None
    except customers.CustomerExistsError as error:
        message = f"{error}; send another one, or use that customer"
        raise ApiError(_TAKEN[error.field], message, details={"field": error.field}) from None


def _no_customer() -> ApiError:
    return not_found(Code.USER_NOT_FOUND, "customer")
