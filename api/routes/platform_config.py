"""The platform's settings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Response
from pydantic import BaseModel

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import answer
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.wire.common import CURRENCIES, MAX_AMOUNT, money
from cardledger.schema.wire.config import (
    ConfigUpdate,
    EmbeddedWalletConfig,
    FeeConfig,
    FeeConfigUpdate,
    PlatformConfigResource,
    SupportedCurrency,
    SupportedCurrencyUpdate,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.webhooks.urls import is_loopback
from cardledger.workers.signals import doorbell

_FEE_CURRENCY: Final = "USD"
_KEPT: Final = {
    "min_amount",
    "max_amount",
    "required_counterparty_fields",
    "enabled_transaction_types",
}
_TAG = "Platform Configuration"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@reads.get("/config", response_model=PlatformConfigResource)
async def get_config(call: PlatformCall) -> Response:
    """Return the platform's settings."""
    async with call.reading() as connection:
        return answer(_render(await platforms.get(connection, call.platform_id)))


@writes.patch(
    "/config",
    response_model=PlatformConfigResource,
    responses=answers(Code.INVALID_CURRENCY, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
async def update_config(body: ConfigUpdate, call: PlatformCall) -> Response:
    """Change the platform's settings: a field that is not there stays, null takes it away.

    `supportedCurrencies` replaces the list: 409 when it leaves out a currency in which somebody
    has an open account. The two configurations are changed field by field. `feeConfigs` adds fees,
    or replaces those of the same `feeType` and `sourceCurrency`. None of these but the currencies
    and `umaDomain` changes what happens here: they are kept, and returned.
    """
    if not body.model_fields_set:
        message = "nothing to change; send a setting, such as webhookEndpoint, a URL or null"
        raise ApiError(Code.INVALID_INPUT, message)
    endpoint = body.webhook_endpoint
    if endpoint is not None and not call.services.allow_loopback:
        check_production(endpoint, "webhookEndpoint")
    settings = _settings(body)
    async with call.writing() as connection:
        try:
            changed = await platforms.configure(
                connection, call.platform_id, settings, at=call.now()
            )
        except platforms.CurrencyInUseError as error:
            message = f"{error}; a currency can go when nobody has an account in it any more"
            details = {"reason": "CURRENCY_IN_USE", "currency": error.currency}
            raise ApiError(Code.CONFLICT, message, details=details) from None
        if "webhook_endpoint" in body.model_fields_set:
            changed = await platforms.set_webhook_endpoint(
                connection, call.platform_id, endpoint, at=call.now()
            )
    await call.ring(doorbell.WEBHOOKS)  # A new endpoint is tried out.
    return answer(_render(changed))


def _settings(body: ConfigUpdate) -> platforms.PlatformSettings:
    """Return what `body` changes beside the webhook endpoint."""
    for fee in body.fee_configs or []:
        _check_fee(fee)
    return platforms.PlatformSettings(
        named=frozenset(body.model_fields_set),
        uma_domain=body.uma_domain,
        currencies=_currencies(body.supported_currencies or []),
        embedded_wallet_config=_said(body.embedded_wallet_config),
        card_tokenization_2fa_config=_said(body.card_tokenization_2fa_config),
        fee_configs=[
            {
                "feeType": fee.fee_type,
                "sourceCurrency": fee.source_currency,
                "variableFeeBps": fee.variable_fee_bps,
                "fixedFee": fee.fixed_fee.amount,
            }
            for fee in body.fee_configs or []
        ],
    )


def _check_fee(fee: FeeConfigUpdate) -> None:
    if fee.source_currency != _FEE_CURRENCY:
        message = f"fees are taken in {_FEE_CURRENCY} only; send it as sourceCurrency"
        raise ApiError(Code.NOT_IMPLEMENTED, message)
    if fee.fixed_fee.currency.code != fee.source_currency:
        message = f"must be {fee.source_currency}, the currency from which it is taken"
        raise invalid_field("feeConfigs.fixedFee.currency.code", message)


def _currencies(wanted: Sequence[SupportedCurrencyUpdate]) -> dict[str, dict[str, Any]]:
    said = {
        one.currency_code: one.model_dump(mode="json", by_alias=True, include=_KEPT)
        for one in wanted
    }
    if len(said) < len(wanted):
        message = "names a currency twice; send every currency once"
        raise invalid_field("supportedCurrencies", message)
    if unknown := [code for code in said if code not in CURRENCIES]:
        message = f"has {unknown[0]}; there are {', '.join(CURRENCIES)}"
        raise invalid_field("supportedCurrencies", message, Code.INVALID_CURRENCY)
    return said


def _said(update: BaseModel | None) -> dict[str, Any] | None:
    if update is None:
        return None
    return update.model_dump(mode="json", by_alias=True, exclude_unset=True)


def check_production(webhook_endpoint: str, field: str) -> None:
    """Refuse what only a sandbox may have: http, which goes to loopback only, and loopback.

    Raises: ApiError INVALID_INPUT naming `field`.
    """
    url = urlsplit(webhook_endpoint)
    if url.scheme != "https":
        raise invalid_field(field, "must start with https://; this is no sandbox")
    if is_loopback(url.hostname or ""):
        raise invalid_field(field, "must lead to a public address; this is no sandbox")


def _render(platform: platforms.Platform) -> PlatformConfigResource:
    wallets = platform.embedded_wallet_config
    codes = platform.card_tokenization_2fa_config
    return PlatformConfigResource(
        id=platform.id,
        name=platform.name,
        uma_domain=platform.uma_domain,
        webhook_endpoint=platform.webhook_endpoint,
        webhook_public_key=platform.public_key,
        supported_currencies=[
            _currency(code, platform.currency_settings.get(code, {}))
            for code in platform.supported_currencies
        ],
        is_regulated_financial_institution=False,
        embedded_wallet_config=None if wallets is None else EmbeddedWalletConfig(**wallets),
        card_tokenization_2fa_config=None if codes is None else dict(codes),
        fee_configs=[
            FeeConfig(
                fee_type=fee["feeType"],
                source_currency=fee["sourceCurrency"],
                variable_fee_bps=fee["variableFeeBps"],
                fixed_fee=money(fee["fixedFee"], fee["sourceCurrency"]),
            )
            for fee in platform.fee_configs
        ],
        created_at=platform.created_at,
        updated_at=platform.updated_at,
    )


def _currency(code: str, said: Mapping[str, Any]) -> SupportedCurrency:
    return SupportedCurrency(
        currency_code=code,
        min_amount=said.get("minAmount", 1),
        max_amount=said.get("maxAmount", MAX_AMOUNT),
        required_counterparty_fields=said.get("requiredCounterpartyFields", []),
        enabled_transaction_types=said.get("enabledTransactionTypes", []),
        # No provider is connected that could ask for any.
        provider_required_customer_fields=[],
        provider_required_counterparty_customer_fields=[],
    )
