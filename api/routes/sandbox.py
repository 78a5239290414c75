"""Operations of the sandbox beside the card simulators: deposits and test webhooks."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from fastapi import Response

from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import SANDBOX, guarded_router, requires
from cardledger.api.routes.customers.internal_accounts import internal_account
from cardledger.api.routes.webhooks import endpoint_tests
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections import accounts
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import InternalAccountId
from cardledger.schema.wire.customers.accounts import FundRequest, InternalAccountResource
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from cardledger.schema.wire.webhooks.endpoints import SandboxWebhookTestResource

router = guarded_router(SANDBOX)

_SOURCE: Final = "sandbox"
_DETAILS: Final = ("occurredAt", "externalReference")


async def _send(call: RequestContext, deposit: Mapping[str, Any]) -> Response:
    account_id = Id.parse(deposit["accountId"])
    outcome = await call.client.deposit(
        platform_id=call.platform_id,
        account_id=account_id,
        amount=deposit["amount"],
        source=_SOURCE,
        reference=deposit["reference"],
        details={name: deposit[name] for name in _DETAILS if name in deposit},
    )
    if outcome.reason == RejectionReason.AMOUNT_OUT_OF_RANGE:
        message = "The balance would exceed a 64-bit integer; lower the amount."
        raise ApiError(Code.AMOUNT_OUT_OF_RANGE, message)
    if outcome.reason == RejectionReason.ACCOUNT_NOT_ACTIVE:
        raise _not_active((await internal_account(call, account_id)).status)
    assert outcome.outcome in {OutcomeType.APPLIED, OutcomeType.DUPLICATE}, outcome
    return resource_response(await internal_account(call, account_id))


@router.post(
    "/sandbox/internal-accounts/{internal_account_id}/fund",
    response_model=InternalAccountResource,
    responses=error_responses(Code.AMOUNT_OUT_OF_RANGE),
)
@requires(Permission.TRANSACT, send=_send)
async def fund_internal_account(
    internal_account_id: InternalAccountId, body: FundRequest, call: PlatformCall
) -> Response:
    """Credit `amount` to an internal account and return the account."""
    account = await internal_account(call, internal_account_id)
    if account.status != accounts.ACTIVE:
        raise _not_active(account.status)
    deposit = {
        **body.model_dump(mode="json", by_alias=True, exclude_none=True),
        "accountId": str(internal_account_id),
        "reference": str(uuid4()),
    }
    return await _send(call, await idempotency.settle(call, deposit))


async def _send_test(call: RequestContext, event: Mapping[str, Any]) -> Response:
    tested = await endpoint_tests.result_of(call, event, needs_response=True)
    if tested.response_status is None:
        message = f"The webhook got no response: {tested.error}; check webhookEndpoint."
        raise ApiError(Code.WEBHOOK_DELIVERY_ERROR, message, details={"url": tested.url})
    return resource_response(
        SandboxWebhookTestResource(
            url=tested.url,
            response_status=tested.response_status,
            response_body=tested.response_body or "",
        )
    )


@router.post(
    "/sandbox/webhooks/test",
    response_model=SandboxWebhookTestResource,
    responses=error_responses(Code.WEBHOOK_ENDPOINT_NOT_SET, Code.WEBHOOK_DELIVERY_ERROR),
)
@requires(Permission.TRANSACT, send=_send_test)
async def send_sandbox_test_webhook(call: PlatformCall) -> Response:
    """Send one signed `TEST` to the configured `webhookEndpoint` and return its response.

    A platform has at most 2 tests at a time; another one gets 429.
    """
    return await _send_test(call, await endpoint_tests.test_event(call, None))


def _not_active(status: str) -> ApiError:
    message = f"The account is {status}; only an ACTIVE account can be funded."
    return ApiError(Code.INVALID_INPUT, message, details={"reason": "ACCOUNT_NOT_ACTIVE"})
