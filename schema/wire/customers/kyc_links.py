"""Links to a hosted page on which a customer is verified."""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from cardledger.schema.wire.common import LongName, Request, Response, Time

_URL: Final = re.compile(r"https://[\w.~%-]+(:\d{1,5})?([/?#][!-~]*)?", re.ASCII)
_LOCAL: Final = re.compile(r"http://(localhost|127\.0\.0\.1)(:\d{1,5})?([/?#][!-~]*)?", re.ASCII)


def _returned_to(value: str) -> str:
    if not (_URL.fullmatch(value) or _LOCAL.fullmatch(value)):
        message = "must be an https URL without credentials, or an http URL of this machine"
        raise ValueError(message)
    return value


class KycLinkCreate(Request):
    """Where the page leads to after its end."""

    redirect_uri: Annotated[LongName, AfterValidator(_returned_to)] | None = None


class KycLinkResource(Response):
    """A link for one customer; the URL is the credential, and a repetition does not have it."""

    kyc_url: str | None = None
    expires_at: Time
    provider: Literal["SUMSUB"]
