"""What the two parties of a payment have to know of one another."""

from typing import Annotated, Literal

from cardledger.schema.wire.common import Documented, Response

CounterpartyFieldName = Literal[
    "FULL_NAME",
    "BIRTH_DATE",
    "NATIONALITY",
    "PHONE_NUMBER",
    "EMAIL",
    "POSTAL_ADDRESS",
    "TAX_ID",
    "REGISTRATION_NUMBER",
    "USER_TYPE",
    "COUNTRY_OF_RESIDENCE",
    "ACCOUNT_IDENTIFIER",
    "FI_LEGAL_ENTITY_NAME",
    "FI_ADDRESS",
    "PURPOSE_OF_PAYMENT",
    "ULTIMATE_INSTITUTION_COUNTRY",
    "IDENTIFIER",
    "BUSINESS_TYPE",
    "COMPANY_LEGAL_NAME",
    "ID_TYPE",
    "ID_NUMBER",
]


class RequiredField(Response):
    """A field that the platform requests from a counterparty."""

    name: Annotated[str, Documented(CounterpartyFieldName)]
    mandatory: bool
