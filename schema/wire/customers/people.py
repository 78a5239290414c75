"""Types that all people share: e-mail, phone number, date, address, KYC status."""

from typing import Annotated, Literal

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, Field

from cardledger.schema.wire.common import Country, Name, Request, ShortName

KycStatus = Literal["UNVERIFIED", "PENDING", "APPROVED", "REJECTED", "HOLD"]


def _email(value: str) -> str:
    try:
        # Reserved names such as `.test` are usual in a sandbox.
        checked = validate_email(value, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        message = f"must be an e-mail address: {error}"
        raise ValueError(message) from None
    return checked.normalized


Email = Annotated[Name, AfterValidator(_email)]
PhoneNumber = Annotated[str, Field(strict=True, pattern=r"^\+[1-9][0-9]{1,14}$")]


class Address(Request):
    """A postal address."""

    line1: Name
    line2: Name | None = None
    city: Name | None = None
    state: Name | None = None
    postal_code: ShortName
    country: Country
