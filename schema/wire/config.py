"""The platform's settings."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from cardledger.schema.wire.common import (
    NOT_NULLABLE,
    STORABLE,
    Currency,
    CurrencyAmount,
    Documented,
    Name,
    NonNegativeAmount,
    PlatformConfigId,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.customers.people import Email
from cardledger.schema.wire.payments.counterparties import CounterpartyFieldName, RequiredField
from cardledger.schema.wire.sandbox import CurrencyCode
from cardledger.schema.wire.webhooks.urls import WebhookUrl, webhook_url

MAX_CURRENCIES: Final = 100
"""Currencies of a platform: a customer has an account in each, and a batch locks all of them."""

MAX_ENTRIES: Final = 100
"""Entries in the lists of all currencies together, so that every valid request is small."""

_MAX_FEES: Final = 3  # There is one type of fee, in one currency.

DOMAIN: Final = r"^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$"


def _domain(value: str) -> str:
    # Not a Pydantic pattern: those have no look-ahead.
    if not re.fullmatch(DOMAIN, value):
        message = "must be a domain name in lower case, such as uma.example.com"
        raise ValueError(message)
    return value


Domain = Annotated[str, StringConstraints(strict=True, max_length=253), AfterValidator(_domain)]


def _picture_url(value: str) -> str:
    url = webhook_url(value)
    if not url.startswith("https://"):
        message = "must start with https://"
        raise ValueError(message)
    return url


PictureUrl = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=512),
    STORABLE,
    AfterValidator(_picture_url),
]

TransactionType = Literal["INCOMING", "OUTGOING"]
FeeType = Literal["CROSS_CURRENCY_TRANSACTION"]


class CounterpartyField(Request):
    """A field that the platform requests from the counterparties of its customers."""

    name: CounterpartyFieldName
    mandatory: Annotated[bool, Field(strict=True)]


class SupportedCurrencyUpdate(Request):
    """A currency that the platform supports.

    The two `provider…` lists are read-only: they may be echoed from a response, without effect.
    """

    currency_code: Currency
    min_amount: NonNegativeAmount
    max_amount: NonNegativeAmount
    required_counterparty_fields: Annotated[list[CounterpartyField], Field(max_length=20)]
    enabled_transaction_types: Annotated[list[TransactionType], Field(max_length=2)]
    provider_required_customer_fields: (
        Annotated[list[CounterpartyFieldName], Field(max_length=20)] | None
    ) = None
    provider_required_counterparty_customer_fields: (
        Annotated[list[CounterpartyFieldName], Field(max_length=20)] | None
    ) = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_amount > self.max_amount:
            message = "must not have a minAmount above its maxAmount"
            raise ValueError(message)
        return self


def _few_entries(wanted: list[SupportedCurrencyUpdate]) -> list[SupportedCurrencyUpdate]:
    lists = (
        entries
        for currency in wanted
        for entries in (
            currency.required_counterparty_fields,
            currency.provider_required_customer_fields,
            currency.provider_required_counterparty_customer_fields,
        )
    )
    count = sum(len(entries or ()) for entries in lists)
    if count > MAX_ENTRIES:
        message = f"has {count} fields of counterparties and customers; send {MAX_ENTRIES} at most"
        raise ValueError(message)
    return wanted


SupportedCurrencies = Annotated[
    list[SupportedCurrencyUpdate],
    Field(
        min_length=1,
        max_length=MAX_CURRENCIES,
        json_schema_extra={"x-maxEntries": MAX_ENTRIES},
    ),
    AfterValidator(_few_entries),
]
"""The currencies of a platform; the lists in them have `MAX_ENTRIES` entries together."""


class EmbeddedWalletConfigUpdate(Request):
    """A change of the appearance of embedded wallets."""

    app_name: Name | None = None
    otp_length: Annotated[int, Field(strict=True, ge=4, le=12)] | None = None
    alphanumeric: Annotated[bool, Field(strict=True)] | None = None
    expiration_seconds: Annotated[int, Field(strict=True, ge=1, le=86_400)] | None = None
    send_from_email_address: Email | None = None
    send_from_email_sender_name: Name | None = None
    reply_to_email_address: Email | None = None
    logo_url: PictureUrl | None = None


class TokenizationEmail(Request):
    """The e-mail with the one-time code for adding a card to a phone."""

    from_address: Email | None = None
    from_name: Name | None = None
    reply_to_address: Email | None = None
    subject: Name | None = None
    body_text: (
        Annotated[str, StringConstraints(strict=True, min_length=1, max_length=2000), STORABLE]
        | None
    ) = None


class TokenizationSms(Request):
    """The SMS with the one-time code for adding a card to a phone."""

    template_sid: (
        Annotated[str, StringConstraints(strict=True, min_length=1, max_length=64), STORABLE] | None
    ) = None
    body_text: (
        Annotated[str, StringConstraints(strict=True, min_length=1, max_length=480), STORABLE]
        | None
    ) = None


class CardTokenization2faConfig(Request):
    """The appearance of the one-time codes for adding a card to a phone."""

    display_name: Name | None = None
    logo_url: PictureUrl | None = None
    email: TokenizationEmail | None = None
    sms: TokenizationSms | None = None


class FixedFee(Request):
    """A fixed fee."""

    amount: NonNegativeAmount
    currency: CurrencyCode


class FeeConfigUpdate(Request):
    """A fee of the platform; it replaces the fee of the same type and currency."""

    fee_type: FeeType
    source_currency: Currency
    variable_fee_bps: Annotated[int, Field(strict=True, ge=0, le=10_000)]
    fixed_fee: FixedFee


class ConfigUpdate(Request):
    """A change of the settings; absent fields keep their value, null removes it."""

    webhook_endpoint: WebhookUrl | None = None
    uma_domain: Domain | None = None
    supported_currencies: Annotated[SupportedCurrencies | None, NOT_NULLABLE] = None
    embedded_wallet_config: EmbeddedWalletConfigUpdate | None = None
    card_tokenization_2fa_config: Annotated[
        CardTokenization2faConfig | None, Field(alias="cardTokenization2faConfig")
    ] = None
    fee_configs: Annotated[
        Annotated[list[FeeConfigUpdate], Field(max_length=_MAX_FEES)] | None, NOT_NULLABLE
    ] = None


class SupportedCurrency(Response):
    """A currency that the platform's customers can hold in internal accounts."""

    currency_code: str
    min_amount: int
    max_amount: int
    required_counterparty_fields: list[RequiredField]
    enabled_transaction_types: Annotated[list[str], Documented(list[TransactionType])]
    provider_required_customer_fields: Annotated[list[str], Documented(list[CounterpartyFieldName])]
    provider_required_counterparty_customer_fields: Annotated[
        list[str], Documented(list[CounterpartyFieldName])
    ]


class EmbeddedWalletConfig(Response):
    """The appearance of the platform's embedded wallets."""

    app_name: str | None = None
    otp_length: int = 6
    alphanumeric: bool = False
    expiration_seconds: int = 300
    send_from_email_address: str | None = None
    send_from_email_sender_name: str = "Notifications"
    reply_to_email_address: str | None = None
    logo_url: str | None = None


class FeeConfig(Response):
    """A fee of the platform: a fixed part and a variable part."""

    fee_type: Annotated[str, Documented(FeeType)]
    source_currency: str
    variable_fee_bps: int
    fixed_fee: CurrencyAmount


class PlatformConfigResource(Response):
    """The platform's settings; `webhookPublicKey` verifies `X-Grid-Signature`."""

    id: PlatformConfigId
    name: str
    uma_domain: str
    webhook_endpoint: str | None = None
    webhook_public_key: str
    supported_currencies: list[SupportedCurrency]
    is_regulated_financial_institution: bool
    embedded_wallet_config: EmbeddedWalletConfig | None = None
    card_tokenization_2fa_config: Annotated[
        Annotated[dict[str, Any], Documented(CardTokenization2faConfig)] | None,
        Field(alias="cardTokenization2faConfig"),
    ] = None
    fee_configs: list[FeeConfig]
    created_at: Time
    updated_at: Time
