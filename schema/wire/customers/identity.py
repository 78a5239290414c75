"""Tax identifiers: the type, the number, the country of issuance."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from cardledger.schema.wire.errors import FieldError

IdType = Literal["SSN", "ITIN", "EIN", "NON_US_TAX_ID"]
PersonIdType = Literal["SSN", "ITIN"]

_FORMS: Final[Mapping[str, str]] = {
    "SSN": r"[0-9]{3}-[0-9]{2}-[0-9]{4}",
    "ITIN": r"9[0-9]{2}-[0-9]{2}-[0-9]{4}",
    "EIN": r"[0-9]{2}-[0-9]{7}",
}
"""The formats of the identifiers of the United States; others have no common format."""

_ISSUER: Final = "US"


def issued_in(id_type: str | None, country: str | None) -> str | None:
    """Return the country of issuance: the given one, or the one that the type implies."""
    return country or (_ISSUER if id_type in _FORMS else None)


def identifier_errors(
    *, id_type: str | None, identifier: str | None, country: str | None, within: str = ""
) -> Iterator[FieldError]:
    """Yield the conflicts between the identifier fields of `within` (`personalInfo.`)."""
    if id_type is None:
        if identifier is not None:
            yield FieldError(field=within + "idType", message="is required with an identifier")
        if country is not None:
            yield FieldError(field=within + "countryOfIssuance", message="requires an idType")
        return
    form = _FORMS.get(id_type)
    if form is not None and identifier is not None and not re.fullmatch(form, identifier):
        # The message does not repeat the number: clients log error messages.
        yield FieldError(
            field=within + "identifier",
            message=f"must have the format of a {id_type}: {form}",
            constraint={"pattern": f"^{form}$"},
        )
    if form is not None and country not in {None, _ISSUER}:
        yield FieldError(
            field=within + "countryOfIssuance", message=f"must be {_ISSUER} for a {id_type}"
        )
    if form is None and country == _ISSUER:
        yield FieldError(
            field=within + "countryOfIssuance", message=f"must not be {_ISSUER} for a {id_type}"
        )
