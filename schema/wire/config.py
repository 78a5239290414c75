"""The platform's own settings."""

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from schema.wire.common import LongName, PlatformConfigId, Request, Response, Time


def _webhook_url(value: str) -> str:
    if re.search(r"[\s\x00-\x1f\x7f\\]", value):
        message = "must be a URL without blanks, backslashes and control characters"
        raise ValueError(message)
    try:
        url = urlsplit(value)
        host, port = url.hostname or "", url.port
    except ValueError as error:
        message = f"must be a URL: {error}"
        raise ValueError(message) from None
    if port == 0 or not host:
        message = "must be a URL with a host name and, if any, a port above 0"
        raise ValueError(message)
    if url.username is not None or url.password is not None or "#" in value:
        message = "must be a URL without user name, password and fragment"
        raise ValueError(message)
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        message = "must start with https:// (http:// only to a loopback address)"
        raise ValueError(message)
    return value


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine by its very name."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


WebhookUrl = Annotated[LongName, AfterValidator(_webhook_url)]


class ConfigUpdate(Request):
    """What to change; a field that is not there stays as it is, null takes it away."""

    webhook_endpoint: WebhookUrl | None = None


class SupportedCurrency(Response):
    """A currency in which the platform's customers have internal accounts."""

    currency_code: str
    min_amount: int
    max_amount: int
    required_counterparty_fields: list[str]
    enabled_transaction_types: list[str]


class PlatformConfigResource(Response):
    """The platform's settings; `webhookPublicKey` verifies `X-Grid-Signature`."""

    id: PlatformConfigId
    name: str
    uma_domain: str
    webhook_endpoint: str | None = None
    webhook_public_key: str
    supported_currencies: list[SupportedCurrency]
    is_regulated_financial_institution: bool
    created_at: Time
    updated_at: Time
