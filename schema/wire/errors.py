"""Errors: one envelope, one table of codes, and what becomes of a validator's complaints."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from schema.wire.common import MAX_AMOUNT, Response


class Code(StrEnum):
    """Every code that an error body may carry."""

    INVALID_INPUT = "INVALID_INPUT"
    INVALID_BANK_ACCOUNT = "INVALID_BANK_ACCOUNT"
    INVALID_CURRENCY = "INVALID_CURRENCY"
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"
    INVALID_UMA_ADDRESS = "INVALID_UMA_ADDRESS"
    CARDHOLDER_KYC_NOT_APPROVED = "CARDHOLDER_KYC_NOT_APPROVED"
    FUNDING_SOURCE_INELIGIBLE = "FUNDING_SOURCE_INELIGIBLE"

    UNAUTHORIZED = "UNAUTHORIZED"

    FORBIDDEN = "FORBIDDEN"

    TRANSACTION_NOT_FOUND = "TRANSACTION_NOT_FOUND"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    TOKEN_NOT_FOUND = "TOKEN_NOT_FOUND"  # noqa: S105 - a code
    REFERENCE_NOT_FOUND = "REFERENCE_NOT_FOUND"

    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"

    CONFLICT = "CONFLICT"
    INVALID_STATE_TRANSITION = "INVALID_STATE_TRANSITION"
    CARD_ALREADY_CLOSED = "CARD_ALREADY_CLOSED"
    CARD_NOT_MUTABLE = "CARD_NOT_MUTABLE"
    UMA_ADDRESS_EXISTS = "UMA_ADDRESS_EXISTS"

    CUSTOMER_DELETED = "CUSTOMER_DELETED"

    INTERNAL_ERROR = "INTERNAL_ERROR"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"


STATUS: Final[Mapping[Code, int]] = {
    Code.INVALID_INPUT: 400,
    Code.INVALID_BANK_ACCOUNT: 400,
    Code.INVALID_CURRENCY: 400,
    Code.AMOUNT_OUT_OF_RANGE: 400,
    Code.INVALID_UMA_ADDRESS: 400,
    Code.CARDHOLDER_KYC_NOT_APPROVED: 400,
    Code.FUNDING_SOURCE_INELIGIBLE: 400,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.TRANSACTION_NOT_FOUND: 404,
    Code.USER_NOT_FOUND: 404,
    Code.TOKEN_NOT_FOUND: 404,
    Code.REFERENCE_NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.CONFLICT: 409,
    Code.INVALID_STATE_TRANSITION: 409,
    Code.CARD_ALREADY_CLOSED: 409,
    Code.CARD_NOT_MUTABLE: 409,
    Code.UMA_ADDRESS_EXISTS: 409,
    Code.CUSTOMER_DELETED: 410,
    Code.INTERNAL_ERROR: 500,
    Code.NOT_IMPLEMENTED: 501,
    Code.SERVICE_UNAVAILABLE: 503,
}
"""The HTTP status of every code. One exception: a body that is too large is `INVALID_INPUT` with
413, because the interface has no code of its own for it."""


class FieldError(Response):
    """One field that has to change: where it is, what is wrong, what it has to meet."""

    field: str
    message: str
    constraint: dict[str, Any] | None = None


class ErrorBody(Response):
    """The envelope of every error."""

    status: int
    code: Code
    message: str
    details: dict[str, Any] | None = None


def field_errors(complaints: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Return what a person has to change, one entry per complaint of Pydantic (`errors()`)."""
    return [
        FieldError(
            field=dotted(complaint["loc"]),
            message=_message(complaint),
            constraint=_constraint(complaint),
        )
        for complaint in complaints
    ]


def sentence(errors: Sequence[FieldError]) -> str:
    """Return `errors` in one line, for a message that is read without its details."""
    shown = [f"{error.field or 'body'} {error.message}" for error in errors[:3]]
    rest = len(errors) - len(shown)
    return "; ".join(shown) + (f"; and {rest} more" if rest else "")


def explain(error: ValidationError) -> str:
    """Return in one line what to change about an input that Pydantic refused."""
    said = sentence(field_errors(error.errors(include_url=False, include_input=False)))
    # Some of it is quoted from the input; it is kept in a text column.
    return said.replace("\x00", "\ufffd").encode(errors="backslashreplace").decode()


def dotted(path: Iterable[object]) -> str:
    """Return a path such as `merchant.mcc` or `fundingSources.0`, printable whatever was sent.

    Which member of a union was tried (`AUTHORIZATION`) is no part of it; our fields are camelCase.
    """
    parts = [str(part) for part in path]
    joined = ".".join([part for part in parts[:-1] if not part.isupper()] + parts[-1:])
    return joined.encode("ascii", "backslashreplace").decode()[:200]


_DATE: Final = "must be a date of the calendar, of the form YYYY-MM-DD"
_TIME: Final = "must be a time with its zone, such as 2026-01-31T12:00:00Z"

_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a known field; remove it",
    "int_type": "must be a JSON integer, without quotes, decimal point or exponent",
    "int_parsing": "must be an integer",
    "int_parsing_size": f"must be at most {MAX_AMOUNT}",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode: it has a lone surrogate",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_from_float": "must be a JSON integer, without quotes, decimal point or exponent",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "datetime_object_invalid": _TIME,
    "timezone_aware": _TIME,
    "uuid_type": "must be a UUID",
    "uuid_parsing": "must be a UUID",
    "none_required": "must be null",
    "invalid_key": "must have strings as names",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "union_tag_not_found": "must be an object that says its kind in {discriminator}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} item(s)",
    "too_long": "must have at most {max_length} items",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "union_tag_invalid": "must have as {discriminator} one of {expected_tags}",
}
"""What to change, by the type of complaint; our own validators say it in words of their own."""

_OWN: Final = frozenset({"value_error", "assertion_error"})
_NO_VALUE: Final = "has a value that cannot be used here"


def _message(complaint: Mapping[str, Any]) -> str:
    template = _MESSAGES.get(complaint["type"])
    if template is not None:
        return template.format_map(complaint.get("ctx", {})).replace("'", "")
    said = str(complaint["msg"])
    if complaint["type"] in _OWN:
        said = said.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return said[:1].lower() + said[1:]
    subject, should, wish = said.partition(" should ")
    # Pydantic's words for what none of our models asks for, as near to ours as they come.
    return f"must {wish}" if should and " " not in subject else _NO_VALUE


_CONSTRAINTS: Final[Mapping[str, str]] = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def _constraint(complaint: Mapping[str, Any]) -> dict[str, Any] | None:
    context = complaint.get("ctx", {})
    named = {
        name: context[key]
        for key, name in _CONSTRAINTS.items()
        if key in context and complaint["type"] not in {"too_short", "too_long"}
    }
    expected = context.get("expected") or context.get("expected_tags")
    if expected:
        values = str(expected).replace(" or ", ", ").replace("'", "")
        named["enum"] = [value.strip() for value in values.split(",")]
    return named or None
