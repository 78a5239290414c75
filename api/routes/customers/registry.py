"""Customers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel

from cardledger.api.http.errors import ApiError, invalid, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.customers import deletion, updates
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.platforms.scopes import Permission
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
    UploadedBusiness,
    merged,
    missing_contacts,
    undescribed,
)
from cardledger.schema.wire.errors import Code

_TAG = "Customers"

router = guarded_router(_TAG)

_DUE_DILIGENCE_FIELDS = frozenset(DueDiligence.model_fields)
_CUSTOMER_ERRORS = error_responses(
    Code.INVALID_UMA_ADDRESS,
    Code.INVALID_CURRENCY,
    Code.MISSING_MANDATORY_USER_INFO,
    Code.UMA_ADDRESS_EXISTS,
    Code.CONFLICT,
)
_TAKEN = {"platformCustomerId": Code.CONFLICT, "umaAddress": Code.UMA_ADDRESS_EXISTS}


@router.post(
    "/customers",
    status_code=CREATED,
    response_model=CustomerResource,
    responses=_CUSTOMER_ERRORS,
)
@requires(Permission.MANAGE)
async def create_customer(body: CustomerCreate, call: PlatformCall) -> Response:
    """Create a customer, with one internal account per currency.

    In the sandbox the last three characters of `fullName` decide `kycStatus`: `001` pending, `002`
    rejected, `003` unverified, anything else approved. Outside the sandbox every customer starts
    unverified, and everywhere every business does; `POST /verifications` starts the verification.
    In the European Economic Area `email` and `phoneNumber` are required. `identifier` is stored
    encrypted and never returned.
    """
    check_new(body)
    with creating():
        async with call.writing() as connection:
            created = await customers.create(
                connection,
                platform_id=call.platform_id,
                person=applicant(body),
                verifier=call.services.adapters.identity_verifier,
                keys=call.keys,
                at=call.now(),
            )
    return resource_response(created, CREATED)


@router.get("/customers", response_model=Page[CustomerResource])
@requires(Permission.VIEW)
async def list_customers(query: Annotated[CustomersQuery, Query()], call: PlatformCall) -> Response:
    """List customers, newest first; deleted customers only with `isIncludingDeleted`."""
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
    return await listing.response_in_turns(page, call.services.loop_turns)


@router.get("/customers/{customer_id}", response_model=CustomerResource)
@requires(Permission.VIEW)
async def get_customer(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Return a customer; deleted customers are returned as well."""
    async with call.reading() as connection:
        customer = await customers.get(
            connection, platform_id=call.platform_id, customer_id=customer_id
        )
    if customer is None:
        raise _no_customer()
    return resource_response(customer)


@router.patch(
    "/customers/{customer_id}",
    response_model=CustomerResource,
    responses=_CUSTOMER_ERRORS,
)
@requires(Permission.MANAGE, Permission.VIEW)
async def update_customer(
    customer_id: CustomerId, body: CustomerUpdate, call: PlatformCall
) -> Response:
    """Change a customer; omitted fields stay, null removes a field.

    `customerType` must be the customer's own. `currencies` replaces the list: an account is opened
    for every new currency, and accounts of removed currencies stay. `email` and `phoneNumber` are
    changed in separate requests and cannot be removed where the region requires them. A new name
    does not change `kycStatus`.
    """
    changes = _changes(body)
    _check(body.uma_address, body.currencies)
    try:
        with creating():
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
        raise invalid_field("customerType", f"does not match the customer: {error}") from None
    except customers.CustomerDeletedError:
        message = "The customer is deleted and cannot be changed."
        raise ApiError(Code.USER_NOT_FOUND, message) from None
    if changed is None:
        raise _no_customer()
    return resource_response(changed)


@router.delete(
    "/customers/{customer_id}",
    response_model=CustomerResource,
    responses=error_responses(Code.CONFLICT, Code.CUSTOMER_DELETED),
)
@requires(Permission.MANAGE, Permission.VIEW)
async def delete_customer(customer_id: CustomerId, call: PlatformCall) -> Response:
    """Delete a customer and close its accounts; the response has `isDeleted` true.

    409 while it has a card that is not `CLOSED`, or an account with a balance, a held amount or an
    owed amount. Its transactions are kept.
    """
    try:
        async with call.writing() as connection:
            deleted, documents = await deletion.delete(
                connection, platform_id=call.platform_id, customer_id=customer_id, at=call.now()
            )
            call.remove_after_commit(documents.files)
    except customers.CustomerDeletedError:
        raise ApiError(Code.CUSTOMER_DELETED, "The customer is already deleted.") from None
    except deletion.CustomerInUseError as error:
        raise ApiError(Code.CONFLICT, str(error), details={"reason": error.reason}) from None
    if deleted is None:
        raise _no_customer()
    return resource_response(deleted)


def applicant(
    body: IndividualCreate | BusinessCreate | UploadedBusiness,
) -> customers.Individual | customers.Business:
    """Return whom `body`, which `check_new` has checked, describes."""
    common: dict[str, Any] = {
        "platform_customer_id": body.platform_customer_id,
        "uma_address": body.uma_address,
        "region": body.region,
        "currencies": tuple(body.currencies) if body.currencies else None,
        "email": body.email,
        "phone_number": body.phone_number,
        "address": _object(body.address),
        "end_user_terms_consent": _object(body.end_user_terms_consent),
    }
    if not isinstance(body, IndividualCreate):
        return customers.Business(**common, info=_object(body.business_info) or {})
    return customers.Individual(
        **common,
        full_name=body.full_name,
        birth_date=body.birth_date,
        nationality=body.nationality,
        id_type=body.id_type,
        identifier=body.identifier or None,
        country_of_issuance=body.country_of_issuance,
        due_diligence=merged({}, _due_diligence(body)) or None,
    )


def _due_diligence(body: DueDiligence) -> dict[str, Any]:
    """Return the due-diligence fields of `body`, null included: it removes a field."""
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
        raise ApiError(
            Code.INVALID_INPUT, "Nothing to change; send a field other than customerType."
        )
    if {"email", "phone_number"} <= named:
        raise invalid_field(
            "phoneNumber", "cannot change together with email; send one of them per request"
        )
    changes = {name: getattr(body, name) for name in sorted(named)}
    for name in {"address", "end_user_terms_consent"} & named:
        changes[name] = _object(getattr(body, name))
    if isinstance(body, IndividualUpdate) and (due := _due_diligence(body)):
        changes = {
            name: value for name, value in changes.items() if name not in _DUE_DILIGENCE_FIELDS
        }
        changes["due_diligence"] = due
    if isinstance(body, BusinessUpdate) and body.business_info is not None:
        changes["business_info"] = body.business_info.model_dump(
            mode="json", by_alias=True, exclude_unset=True
        )
    return changes


def _object(model: BaseModel | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _check(uma_address: str | None, currencies: list[str] | None) -> None:
    if uma_address is not None and not UMA_ADDRESS.fullmatch(uma_address):
        message = "must be of the form $name@domain, with a-z, 0-9 and -_.+ in the name"
        raise invalid_field("umaAddress", message, Code.INVALID_UMA_ADDRESS)
    if currencies and len(set(currencies)) != len(currencies):
        raise invalid_field("currencies", "has a duplicate currency; send every currency once")


def check_new(body: IndividualCreate | BusinessCreate | UploadedBusiness) -> None:
    """Check the rules across the fields of a new customer.

    Raises: ApiError.
    """
    _check(body.uma_address, body.currencies)
    missing = list(
        missing_contacts(region=body.region, email=body.email, phone_number=body.phone_number)
    )
    if missing:
        raise invalid(missing, Code.MISSING_MANDATORY_USER_INFO)
    if not isinstance(body, IndividualCreate):
        errors = list(undescribed(_object(body.business_info) or {}, within="businessInfo."))
    else:
        errors = list(undescribed(_due_diligence(body)))
        errors += identity.identifier_errors(
            id_type=body.id_type, identifier=body.identifier, country=body.country_of_issuance
        )
    if errors:
        raise invalid(errors)


@contextmanager
def creating() -> Iterator[None]:
    """Answer what the block refuses of a new customer, or of a change."""
    try:
        yield
    except customers.UnsupportedCurrencyError as error:
        message = f"contains {error.currency}; the platform supports {', '.join(error.supported)}"
        raise invalid_field("currencies", message, Code.INVALID_CURRENCY) from None
    except customers.UmaDomainError as error:
        message = (
            f"must be in {error.own}, the platform's umaDomain"
            if error.own
            else "cannot be chosen without a domain of the platform's own; omit it, or set"
            " umaDomain with PATCH /config first"
        )
        raise invalid_field("umaAddress", message, Code.INVALID_UMA_ADDRESS) from None
    except updates.MissingContactError as error:
        raise invalid(error.errors, Code.MISSING_MANDATORY_USER_INFO) from None
    except updates.InvalidCustomerError as error:
        raise invalid(error.errors) from None
    except customers.CustomerExistsError as error:
        message = f"{error}; send another value, or use that customer"
        raise ApiError(_TAKEN[error.field], message, details={"field": error.field}) from None


def _no_customer() -> ApiError:
    return not_found(Code.USER_NOT_FOUND, "customer")
