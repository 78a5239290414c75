"""Beneficial owners of businesses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.customers.beneficial_owners import NewOwner, OwnerChange
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.wire.common import BeneficialOwnerId, Page
from cardledger.schema.wire.customers.beneficial_owners import (
    BeneficialOwnerCreate,
    BeneficialOwnerResource,
    BeneficialOwnersQuery,
    BeneficialOwnerUpdate,
)
from cardledger.schema.wire.errors import Code

_TAG = "KYC/KYB Verifications"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@writes.post(
    "/beneficial-owners",
    status_code=CREATED,
    response_model=BeneficialOwnerResource,
    responses=answers(Code.USER_NOT_FOUND),
)
async def create_beneficial_owner(body: BeneficialOwnerCreate, call: PlatformCall) -> Response:
    """Add somebody who owns or controls a business; `PENDING` until the business is decided.

    The shares of those with the role `UBO` cannot be more than 100 together; other roles' shares
    are kept and not added up.
    """
    owner = NewOwner(
        customer_id=body.customer_id,
        roles=body.roles,
        ownership_percentage=body.ownership_percentage,
        personal_info=body.personal_info.model_dump(mode="json", by_alias=True, exclude_none=True),
    )
    with _refusals():
        async with call.writing() as connection:
            created = await beneficial_owners.create(
                connection,
                platform_id=call.platform_id,
                owner=owner,
                keys=call.keys,
                at=call.now(),
            )
    return answer(created, CREATED)


@reads.get("/beneficial-owners", response_model=Page[BeneficialOwnerResource])
async def list_beneficial_owners(
    query: Annotated[BeneficialOwnersQuery, Query()], call: PlatformCall
) -> Response:
    """List the owners of a business, in the order in which they were added.

    Nobody owns a person or a customer that is not there: their lists are empty.
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
    return listing.answer(page)


@reads.get("/beneficial-owners/{beneficial_owner_id}", response_model=BeneficialOwnerResource)
async def get_beneficial_owner(
    beneficial_owner_id: BeneficialOwnerId, call: PlatformCall
) -> Response:
    """Return an owner, with the identifier that was sent."""
    async with call.reading() as connection:
        found = await beneficial_owners.get(
            connection,
            platform_id=call.platform_id,
            owner_id=beneficial_owner_id,
            keys=call.keys,
        )
    if found is None:
        raise _no_owner()
    return answer(found)


@writes.patch(
    "/beneficial-owners/{beneficial_owner_id}",
    response_model=BeneficialOwnerResource,
    responses=answers(Code.USER_NOT_FOUND),
)
async def update_beneficial_owner(
    beneficial_owner_id: BeneficialOwnerId, body: BeneficialOwnerUpdate, call: PlatformCall
) -> Response:
    """Change an owner: a field that is not there stays, in `personalInfo`, too.

    Null takes away what need not be there. Who is decided stays so, whatever is changed.
    """
    if not body.model_fields_set:
        message = "nothing to change; send roles, ownershipPercentage or personalInfo"
        raise ApiError(Code.INVALID_INPUT, message)
    info = body.personal_info
    change = OwnerChange(
        roles=body.roles,
        ownership_percentage=body.ownership_percentage,
        personal_info=None
        if info is None
        else info.model_dump(mode="json", by_alias=True, exclude_unset=True),
    )
    with _refusals():
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
    return answer(changed)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except beneficial_owners.UnknownBusinessError:
        raise not_found(Code.USER_NOT_FOUND, "customer") from None
    except beneficial_owners.NotABusinessError:
        raise invalid_field("customerId", "is a person; only a business has owners") from None
    except beneficial_owners.InvalidOwnerError as error:
        raise invalid(error.errors) from None


def _no_owner() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "beneficial owner")
