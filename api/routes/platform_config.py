"""The platform's settings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import Response
from pydantic import BaseModel

from cardledger.api.http.authentication import require
from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import CURRENCIES, MAX_AMOUNT, NO_CURRENCY, money
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
_STORED_FIELDS: Final = {
    "min_amount",
    "max_amount",
    "required_counterparty_fields",
    "enabled_transaction_types",
}
_TAG = "Platform Configuration"

router = guarded_router(_TAG)


@router.get("/config", response_model=PlatformConfigResource)
@requires(Permission.VIEW)
async def get_config(call: PlatformCall) -> Response:
    """Return the platform's settings."""
    async with call.reading() as connection:
        return resource_response(_render(await platforms.get(connection, call.platform_id)))


@router.patch(
    "/config",
    response_model=PlatformConfigResource,
    responses=error_responses(Code.INVALID_CURRENCY, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE)
async def update_config(body: ConfigUpdate, call: PlatformCall) -> Response:
    """Change the platform's settings; omitted fields stay, null removes a field.

    A `webhookEndpoint` needs the permission `VIEW` as well: its receiver reads what happens.
    `supportedCurrencies` replaces the list: 409 when it omits a currency of an open account.
    `umaDomain` is not given up while a customer has a chosen name in it: 409. The two
    configurations are changed field by field. `feeConfigs` adds fees, or replaces those with the
    same `feeType` and `sourceCurrency`; they are charged for conversions. The appearance of wallets
    and codes is stored and returned, without effect in this installation.
    """
    if not body.model_fields_set:
        message = "Nothing to change; send a setting, such as webhookEndpoint."
        raise ApiError(Code.INVALID_INPUT, message)
    endpoint = body.webhook_endpoint
    if endpoint is not None:
        require(call.token, Permission.VIEW)  # Its receiver reads what happens.
    if endpoint is not None and not call.services.allow_loopback:
        check_production(endpoint, "webhookEndpoint")
    settings = _settings(body)
    async with call.writing() as connection:
        if endpoint is not None:
            with granting():
                await api_tokens.keep(connection, call.proven, at=call.now())
        try:
            changed = await platforms.configure(
                connection, call.platform_id, settings, at=call.now()
            )
        except platforms.CurrencyInUseError as error:
            message = f"{error}; close the open accounts in that currency first"
            details = {"reason": "CURRENCY_IN_USE", "currency": error.currency}
            raise ApiError(Code.CONFLICT, message, details=details) from None
        except platforms.UmaDomainInUseError as error:
            message = f"{error}; keep the domain, or delete these customers first"
            details = {"reason": "UMA_DOMAIN_IN_USE", "field": "umaDomain"}
            raise ApiError(Code.CONFLICT, message, details=details) from None
        except platforms.UmaDomainTakenError as error:
            message = f"{error}; send a domain of your own in umaDomain"
            details = {"reason": "UMA_DOMAIN_TAKEN", "field": "umaDomain"}
            raise ApiError(Code.CONFLICT, message, details=details) from None
        if "webhook_endpoint" in body.model_fields_set:
            changed = await platforms.set_webhook_endpoint(
                connection, call.platform_id, endpoint, at=call.now()
            )
    await call.notify(doorbell.WEBHOOKS)  # A new endpoint gets a test webhook.
    return resource_response(_render(changed))


def _settings(body: ConfigUpdate) -> platforms.PlatformSettings:
    """Return the changes of `body`, without the webhook endpoint."""
    for fee in body.fee_configs or []:
        _check_fee(fee)
    return platforms.PlatformSettings(
        named=frozenset(body.model_fields_set),
        uma_domain=body.uma_domain,
        currencies=_currencies(body.supported_currencies or []),
        embedded_wallet_config=_sent_fields(body.embedded_wallet_config),
        card_tokenization_2fa_config=_sent_fields(body.card_tokenization_2fa_config),
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
        message = f"Fees are supported in {_FEE_CURRENCY} only; send it as sourceCurrency."
        raise ApiError(Code.NOT_IMPLEMENTED, message)
    if fee.fixed_fee.currency.code != fee.source_currency:
        message = f"must be {fee.source_currency}, the sourceCurrency of the fee"
        raise invalid_field("feeConfigs.fixedFee.currency.code", message)


def _currencies(wanted: Sequence[SupportedCurrencyUpdate]) -> dict[str, dict[str, Any]]:
    settings = {
        currency.currency_code: currency.model_dump(
            mode="json", by_alias=True, include=_STORED_FIELDS
        )
        for currency in wanted
    }
    if len(settings) < len(wanted):
        message = "has a duplicate currency; send every currency once"
        raise invalid_field("supportedCurrencies", message)
    if unknown := [code for code in settings if code not in CURRENCIES]:
        message = f"contains {unknown[0]}, which {NO_CURRENCY}"
        raise invalid_field("supportedCurrencies", message, Code.INVALID_CURRENCY)
    return settings


def _sent_fields(update: BaseModel | None) -> dict[str, Any] | None:
    if update is None:
        return None
    return update.model_dump(mode="json", by_alias=True, exclude_unset=True)


def check_production(webhook_endpoint: str, field: str) -> None:
    """Reject http and loopback addresses, which only the sandbox of `up` accepts.

    Raises: ApiError INVALID_INPUT naming `field`.
    """
    url = urlsplit(webhook_endpoint)
    if url.scheme != "https":
        raise invalid_field(
            field, "must start with https:// (http:// is for development with `cardledger up`)"
        )
    if is_loopback(url.hostname or ""):
        raise invalid_field(
            field, "must be a public address (loopback is for development with `cardledger up`)"
        )


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


def _currency(code: str, settings: Mapping[str, Any]) -> SupportedCurrency:
    return SupportedCurrency(
        currency_code=code,
        min_amount=settings.get("minAmount", 1),
        max_amount=settings.get("maxAmount", MAX_AMOUNT),
        required_counterparty_fields=settings.get("requiredCounterpartyFields", []),
        enabled_transaction_types=settings.get("enabledTransactionTypes", []),
        # No provider is connected that requires fields.
        provider_required_customer_fields=[],
        provider_required_counterparty_customer_fields=[],
    )
