"""The terms that end users accept: their version and address, and the page of a sandbox's terms."""

from typing import Final

from fastapi import Request, Response

from cardledger.api.http.errors import ApiError
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import EndUserTerms, PlatformCall, public_root
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, public_router, requires
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.customers.end_user_terms import EndUserTermsResource
from cardledger.schema.wire.errors import Code

PAGE: Final = "/end-user-terms"
SANDBOX_VERSION: Final = "sandbox-2026-01"

router = guarded_router("Customers")
page_router = public_router("Customers")
"""For a sandbox, at the server's root."""

_TEXT: Final = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>End-user terms of the sandbox</title></head>
<body>
<h1>End-user terms of the sandbox</h1>
<p>Version {SANDBOX_VERSION}. This is a test system: no money moves, and no contract is made.</p>
</body>
</html>
"""
_HEADERS: Final = {
    "Cache-Control": "max-age=3600",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
}


@router.get(
    "/customers/end-user-terms",
    response_model=EndUserTermsResource,
    responses=error_responses(Code.NOT_IMPLEMENTED),
)
@requires(Permission.VIEW)
async def get_end_user_terms(call: PlatformCall, request: Request) -> Response:
    """Return the current version of the end-user terms and the address of their text.

    `version` is what `endUserTermsConsent.termsVersion` of a customer names. The operator sets both
    (`CARDLEDGER_END_USER_TERMS_URL`, `CARDLEDGER_END_USER_TERMS_VERSION`); a sandbox has a page of
    its own. Without terms the response is 501.
    """
    terms = call.services.end_user_terms
    if terms is None and call.services.is_sandbox:
        terms = EndUserTerms(version=SANDBOX_VERSION, url=public_root(request) + PAGE)
    if terms is None:
        message = (
            "The operator has set no end-user terms; set CARDLEDGER_END_USER_TERMS_URL and"
            " CARDLEDGER_END_USER_TERMS_VERSION."
        )
        raise ApiError(Code.NOT_IMPLEMENTED, message)
    return resource_response(EndUserTermsResource(version=terms.version, url=terms.url))


@page_router.get(PAGE, include_in_schema=False)
async def show_end_user_terms() -> Response:
    """Show the terms of the sandbox."""
    return Response(_TEXT, media_type="text/html; charset=utf-8", headers=_HEADERS)
