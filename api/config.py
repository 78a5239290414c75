"""The platform's settings."""

from urllib.parse import urlsplit

from fastapi import Response

from api import routing
from api.answers import answer
from api.context import Here
from api.errors import ApiError, invalid_field
from ledger import customers, platforms
from ledger.tokens import Permission
from schema.wire.common import MAX_AMOUNT
from schema.wire.config import ConfigUpdate, PlatformConfigResource, SupportedCurrency
from schema.wire.errors import Code

_TAG = "Platform Configuration"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@reads.get("/config", response_model=PlatformConfigResource)
async def get_config(call: Here) -> Response:
    """Return the platform's settings."""
    async with call.reading() as connection:
        return answer(_render(await platforms.get(connection, call.platform_id)))


@writes.patch("/config", response_model=PlatformConfigResource)
async def update_config(body: ConfigUpdate, call: Here) -> Response:
    """Change the platform's settings: a field that is not there stays, null takes it away."""
    if not body.model_fields_set:
        message = "nothing to change; send webhookEndpoint, a URL or null"
        raise ApiError(Code.INVALID_INPUT, message)
    endpoint = body.webhook_endpoint
    if endpoint is not None and not call.services.is_sandbox:
        _check_production(endpoint)
    async with call.writing() as connection:
        changed = await platforms.set_webhook_endpoint(
            connection, call.platform_id, endpoint, at=call.now()
        )
    return answer(_render(changed))


def _check_production(webhook_endpoint: str) -> None:
    # Only a loopback address may have http at all, and in production that is one of ours.
    if urlsplit(webhook_endpoint).scheme != "https":
        raise invalid_field("webhookEndpoint", "must start with https://; this is no sandbox")


def _render(platform: platforms.Platform) -> PlatformConfigResource:
    return PlatformConfigResource(
        id=platform.id,
        name=platform.name,
        uma_domain=customers.UMA_DOMAIN,
        webhook_endpoint=platform.webhook_endpoint,
        webhook_public_key=platform.public_key,
        supported_currencies=[
            SupportedCurrency(
                currency_code=currency,
                min_amount=1,
                max_amount=MAX_AMOUNT,
                required_counterparty_fields=[],
                enabled_transaction_types=[],
            )
            for currency in platform.supported_currencies
        ],
        is_regulated_financial_institution=False,
        created_at=platform.created_at,
        updated_at=platform.updated_at,
    )
