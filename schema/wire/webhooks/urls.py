"""Rules for webhook URLs; host names are checked again after each DNS look-up."""

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from cardledger.schema import ssrf
from cardledger.schema.ssrf import Address, why_forbidden
from cardledger.schema.wire.common import LongName


def webhook_url(value: str) -> str:
    """Return `value` if its text is a permitted webhook URL.

    Raises: ValueError.
    """
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
    address = _allowed_address(host)
    is_local = is_loopback(host) if address is None else ssrf.is_loopback(address)
    if url.scheme != "https" and not (url.scheme == "http" and is_local):
        message = "must start with https:// (http:// only to a loopback address)"
        raise ValueError(message)
    return value


def _allowed_address(host: str) -> Address | None:
    """Return the IP address that `host` is; None for a name, which is checked after DNS.

    Raises: ValueError when the address is forbidden.
    """
    if "%" in host:
        message = "must be a URL without % in its host name"
        raise ValueError(message)
    try:
        address = ssrf.literal(host)
    except ValueError as error:
        message = f"must be a URL with a plain host: {error}"
        raise ValueError(message) from None
    # Loopback is decided by the caller, who knows whether this is a sandbox.
    if address and (purpose := why_forbidden(address, allow_loopback=True)):
        message = f"must lead to a public address; this one is not ({purpose})"
        raise ValueError(message)
    return address


def is_loopback(host: str) -> bool:
    """Return whether `host` is `localhost` or a loopback address."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761
        return True
    try:
        return ssrf.is_loopback(ip_address(host))
    except ValueError:
        return False


WebhookUrl = Annotated[LongName, AfterValidator(webhook_url)]
"""A URL that a webhook may be sent to."""
