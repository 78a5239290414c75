"""Who a person is to a tax office: the kind of number, the number, the country that gave it."""

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
"""How the numbers of the United States are written; others have every form there is."""

_ISSUER: Final = "US"


def issued_in(id_type: str | None, country: str | None) -> str | None:
    """Return the country that gave the number: what was said, or what its kind says."""
    return country or (_ISSUER if id_type in _FORMS else None)


def identifier_errors(
    *, id_type: str | None, identifier: str | None, country: str | None, within: str = ""
) -> Iterator[FieldError]:
    """Return what does not go together in the fields of the object `within` (`personalInfo.`)."""
    if id_type is None:
        if identifier is not None:
            yield FieldError(field=within + "idType", message="is required with an identifier")
        if country is not None:
            yield FieldError(
                field=within + "countryOfIssuance", message="goes with an idType; send that, too"
            )
        return
    form = _FORMS.get(id_type)
    if form is not None and identifier is not None and not re.fullmatch(form, identifier):
        # The number itself is never repeated: errors are logged by those who get them.
        yield FieldError(
            field=within + "identifier",
            message=f"must be written as a {id_type} is: {form}",
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
