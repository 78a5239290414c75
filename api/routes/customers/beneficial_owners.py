"""Beneficial owners of businesses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, capped, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.customers.beneficial_owners import NewOwner, OwnerChange
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import BeneficialOwnerId, Page
from cardledger.schema.wire.customers.beneficial_owners import (
    BeneficialOwnerCreate,
    BeneficialOwnerResource,
    BeneficialOwnersQuery,
    BeneficialOwnerUpdate,
)
from cardledger.schema.wire.errors import Code

_TAG = "KYC/KYB Verifications"

router = guarded_router(_TAG)


@router.post(
    "/beneficial-owners",
    status_code=CREATED,
    response_model=BeneficialOwnerResource,
    responses=error_responses(Code.USER_NOT_FOUND),
)
@requires(Permission.MANAGE)
async def create_beneficial_owner(body: BeneficialOwnerCreate, call: PlatformCall) -> Response:
    """Add a beneficial owner to a business; `PENDING` until the business is verified.

    The `ownershipPercentage` of all owners with the role `UBO` adds up to at most 100.
    A business has 100 owners at most: one more is 409 `CONFLICT`.
    """
    owner = NewOwner(
        customer_id=body.customer_id,
        roles=body.roles,
        ownership_percentage=body.ownership_percentage,
        personal_info=body.personal_info.model_dump(mode="json", by_alias=True, exclude_none=True),
    )
    with _api_errors(), capped():
        async with call.writing() as connection:
            created = await beneficial_owners.create(
                connection,
                platform_id=call.platform_id,
                owner=owner,
                keys=call.keys,
                at=call.now(),
            )
    return resource_response(created, CREATED)


@router.get("/beneficial-owners", response_model=Page[BeneficialOwnerResource])
@requires(Permission.VIEW)
async def list_beneficial_owners(
    query: Annotated[BeneficialOwnersQuery, Query()], call: PlatformCall
) -> Response:
    """List the beneficial owners of a business, oldest first.

    The list of an individual or of an unknown customer is empty.
    """
    listing = Listing(call, "beneficial-owners", query)
    async with call.reading() as connection:
        page = await beneficial_owners.page(
            connection,
            platform_id=call.platform_id,
            customer_id=query.customer_id,
            wanted=listing.wanted(newest_first=False),
            keys=call.keys,
        )
    return listing.response(page)


@router.get("/beneficial-owners/{beneficial_owner_id}", response_model=BeneficialOwnerResource)
@requires(Permission.VIEW)
async def get_beneficial_owner(
    beneficial_owner_id: BeneficialOwnerId, call: PlatformCall
) -> Response:
    """Return a beneficial owner, with the identifier that was sent."""
    async with call.reading() as connection:
        owner = await beneficial_owners.get(
            connection,
            platform_id=call.platform_id,
            owner_id=beneficial_owner_id,
            keys=call.keys,
        )
    if owner is None:
        raise _no_owner()
    return resource_response(owner)


@router.patch(
    "/beneficial-owners/{beneficial_owner_id}",
    response_model=BeneficialOwnerResource,
    responses=error_responses(Code.USER_NOT_FOUND),
)
@requires(Permission.MANAGE, Permission.VIEW)
async def update_beneficial_owner(
    beneficial_owner_id: BeneficialOwnerId, body: BeneficialOwnerUpdate, call: PlatformCall
) -> Response:
    """Change a beneficial owner; omitted fields stay, in `personalInfo` as well.

    Null removes an optional field. A change does not affect `kycStatus`.
    """
    if not body.model_fields_set:
        message = "Nothing to change; send roles, ownershipPercentage or personalInfo."
        raise ApiError(Code.INVALID_INPUT, message)
    info = body.personal_info
    change = OwnerChange(
        roles=body.roles,
        ownership_percentage=body.ownership_percentage,
        personal_info=None
        if info is None
        else info.model_dump(mode="json", by_alias=True, exclude_unset=True),
    )
    with _api_errors():
        async with call.writing() as connection:
            changed = await beneficial_owners.change(
                connection,
                platform_id=call.platform_id,
                owner_id=beneficial_owner_id,
                change=change,
                keys=call.keys,
                at=call.now(),
            )
    if changed is None:
        raise _no_owner()
    return resource_response(changed)


@contextmanager
def _api_errors() -> Iterator[None]:
    try:
        yield
    except beneficial_owners.UnknownBusinessError:
        raise not_found(Code.USER_NOT_FOUND, "customer") from None
    except beneficial_owners.NotABusinessError:
        raise invalid_field(
            "customerId", "is an individual; only a business has beneficial owners"
        ) from None
    except beneficial_owners.InvalidOwnerError as error:
        raise invalid(error.errors) from None


def _no_owner() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "beneficial owner")
