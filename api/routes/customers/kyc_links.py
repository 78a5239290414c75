"""Links to a hosted page on which a customer is verified, and that page in a sandbox."""

from typing import Final

from fastapi import Request, Response

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import PlatformCall, public_root, services_of
from cardledger.api.http.responses import CREATED, capped, granting, resource_response
from cardledger.api.http.routing import guarded_router, public_router, requires
from cardledger.api.http.strangers import looking_up
from cardledger.api.routes import hosted_page
from cardledger.ledger.customers import kyc_links
from cardledger.ledger.customers.verifications import AlreadyDecidedError
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CustomerId
from cardledger.schema.wire.customers.kyc_links import KycLinkCreate, KycLinkResource
from cardledger.schema.wire.errors import Code

PATH: Final = "/embed/kyc"

_TAG: Final = "KYC/KYB Verifications"
_TITLE: Final = "Identity verification"
_VISITORS: Final = "visitors of verification pages"

router = guarded_router(_TAG)
page_router = public_router(_TAG)

_PROMPT: Final = """<h1>Identity verification</h1>
<form method="post"><button>Verify my identity</button></form>
<p>This is a sandbox: nothing is asked, and the name on record decides.</p>"""

_UNAVAILABLE: Final = """<h1>Link unavailable</h1>
<p>It has expired, or was used already. Ask for another one.</p>"""

_ENDS: Final = {
    "APPROVED": "Your identity is verified.",
    "REJECTED": "Your identity could not be verified.",
    "PENDING_MANUAL_REVIEW": "Thank you. A person looks at it.",
}
_RESOLVE: Final = "Something is missing. You will be asked for it."


@router.post(
    "/customers/{customer_id}/kyc-link",
    status_code=CREATED,
    response_model=KycLinkResource,
    responses=error_responses(Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE, secrets=("kycUrl",))
async def create_kyc_link(
    customer_id: CustomerId,
    call: PlatformCall,
    request: Request,
    body: KycLinkCreate | None = None,
) -> Response:
    """Return the URL of a hosted page on which a customer is verified, once, within a day.

    Opening the page uses nothing up, so previews of links do no harm; submitting it does, and
    decides as `POST /verifications` does, without asking for what is missing. Earlier links stay
    valid. 409 while a customer of the European Economic Area has unverified contacts, and with 20
    links; 400 when it is `APPROVED` or `REJECTED`. The status does not change. 501 without an
    identity verifier. A repetition with an `Idempotency-Key` has no `kycUrl`: ask for another link.
    """
    root = public_root(request)
    try:
        with capped(), granting():
            async with call.giving_access() as connection:
                link = await kyc_links.create(
                    connection,
                    platform_id=call.platform_id,
                    customer_id=customer_id,
                    redirect_uri=None if body is None else body.redirect_uri,
                    adapters=call.services.adapters,
                    keys=call.keys,
                    at=call.now(),
                )
    except AlreadyDecidedError as error:
        message = f"{error}; a decided customer needs no link"
        details = {"reason": "ALREADY_DECIDED", "status": error.status}
        raise ApiError(Code.INVALID_INPUT, message, details=details) from None
    except kyc_links.UnverifiedContactsError:
        message = (
            "The customer's e-mail address and phone number must be verified first; use"
            " verify-email and verify-phone."
        )
        details = {"reason": "CONTACTS_NOT_VERIFIED"}
        raise ApiError(Code.CONFLICT, message, details=details) from None
    if link is None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    created = resource_response(
        KycLinkResource(
            kyc_url=f"{root}{PATH}/{link.token}", expires_at=link.expires_at, provider="SUMSUB"
        ),
        CREATED,
    )
    created.headers["Cache-Control"] = "no-store"
    return created


@page_router.get(PATH + "/{token}", include_in_schema=False)
async def show_verification(token: str, request: Request) -> Response:
    """Show the page of a link, which stays as it is."""
    services = services_of(request)
    async with looking_up(services.turns, _VISITORS, address_of(request)) as look_up:
        platform_id = await _platform_of(request, token)
        if platform_id is None:
            look_up.is_miss = True
        else:
            async with services.platforms.reading(platform_id) as connection:
                link = await kyc_links.look(
                    connection, token=token, keys=services.keys, at=services.clock()
                )
            if link is not None:
                return hosted_page.response(_TITLE, _PROMPT)
    return hosted_page.response(_TITLE, _UNAVAILABLE, hosted_page.NOT_FOUND)


@page_router.post(PATH + "/{token}", include_in_schema=False)
async def submit_verification(token: str, request: Request) -> Response:
    """Verify the customer of a link, and use the link."""
    services = services_of(request)
    async with looking_up(services.turns, _VISITORS, address_of(request)) as look_up:
        platform_id = await _platform_of(request, token)
        submitted = None
        if platform_id is None:
            look_up.is_miss = True
        else:
            async with services.platforms.writing(platform_id) as connection:
                submitted = await kyc_links.submit(
                    connection,
                    platform_id=platform_id,
                    token=token,
                    adapters=services.adapters,
                    keys=services.keys,
                    at=services.clock(),
                )
    if submitted is None:
        return hosted_page.response(_TITLE, _UNAVAILABLE, hosted_page.NOT_FOUND)
    content = hosted_page.heading(_ENDS.get(submitted.status, _RESOLVE))
    if submitted.redirect_uri is not None:
        content += hosted_page.link(submitted.redirect_uri, "Continue")
    return hosted_page.response(_TITLE, content)


async def _platform_of(request: Request, token: str) -> Id | None:
    """Return the platform of the customer of `token`; None without a verifier, too."""
    services = services_of(request)
    if services.adapters.identity_verifier is None:
        return None
    async with services.installation.connect() as connection:
        return await kyc_links.platform_of(connection, token=token, keys=services.keys)
