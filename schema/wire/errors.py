"""Errors: the codes, the body of every error, and messages for validation errors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from cardledger.schema.wire.common import MAX_AMOUNT, Response


class Code(StrEnum):
    """Every code of an error body, ordered by status."""

    INVALID_INPUT = "INVALID_INPUT"
    MISSING_MANDATORY_USER_INFO = "MISSING_MANDATORY_USER_INFO"
    INVITATION_ALREADY_CLAIMED = "INVITATION_ALREADY_CLAIMED"
    INVITATIONS_NOT_CONFIGURED = "INVITATIONS_NOT_CONFIGURED"
    INVALID_UMA_ADDRESS = "INVALID_UMA_ADDRESS"
    INVITATION_CANCELLED = "INVITATION_CANCELLED"
    QUOTE_REQUEST_FAILED = "QUOTE_REQUEST_FAILED"
    INVALID_PAYREQ_RESPONSE = "INVALID_PAYREQ_RESPONSE"
    INVALID_RECEIVER = "INVALID_RECEIVER"
    PARSE_PAYREQ_RESPONSE_ERROR = "PARSE_PAYREQ_RESPONSE_ERROR"
    CERT_CHAIN_INVALID = "CERT_CHAIN_INVALID"
    CERT_CHAIN_EXPIRED = "CERT_CHAIN_EXPIRED"
    INVALID_PUBKEY_FORMAT = "INVALID_PUBKEY_FORMAT"
    MISSING_REQUIRED_UMA_PARAMETERS = "MISSING_REQUIRED_UMA_PARAMETERS"
    SENDER_NOT_ACCEPTED = "SENDER_NOT_ACCEPTED"
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"
    INVALID_CURRENCY = "INVALID_CURRENCY"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
    INVALID_NONCE = "INVALID_NONCE"
    INVALID_REQUEST_FORMAT = "INVALID_REQUEST_FORMAT"
    INVALID_BANK_ACCOUNT = "INVALID_BANK_ACCOUNT"
    SELF_PAYMENT = "SELF_PAYMENT"
    LOOKUP_REQUEST_FAILED = "LOOKUP_REQUEST_FAILED"
    PARSE_LNURLP_RESPONSE_ERROR = "PARSE_LNURLP_RESPONSE_ERROR"
    INVALID_AMOUNT = "INVALID_AMOUNT"
    WEBHOOK_ENDPOINT_NOT_SET = "WEBHOOK_ENDPOINT_NOT_SET"
    WEBHOOK_DELIVERY_ERROR = "WEBHOOK_DELIVERY_ERROR"
    LOW_QUALITY = "LOW_QUALITY"
    DATA_MISMATCH = "DATA_MISMATCH"
    EXPIRED = "EXPIRED"
    SUSPECTED_FRAUD = "SUSPECTED_FRAUD"
    UNSUITABLE_DOCUMENT = "UNSUITABLE_DOCUMENT"
    INCOMPLETE = "INCOMPLETE"
    EMAIL_OTP_CREDENTIAL_ALREADY_EXISTS = "EMAIL_OTP_CREDENTIAL_ALREADY_EXISTS"
    SMS_OTP_CREDENTIAL_ALREADY_EXISTS = "SMS_OTP_CREDENTIAL_ALREADY_EXISTS"
    PASSKEY_CREDENTIAL_ALREADY_EXISTS = "PASSKEY_CREDENTIAL_ALREADY_EXISTS"
    STABLECOIN_PROVIDER_ACCOUNT_INVALID = "STABLECOIN_PROVIDER_ACCOUNT_INVALID"
    STABLECOIN_PROVIDER_ACCOUNT_REVOKED = "STABLECOIN_PROVIDER_ACCOUNT_REVOKED"
    STABLECOIN_PROVIDER_ACCOUNT_SELECTION_REQUIRED = (
        "STABLECOIN_PROVIDER_ACCOUNT_SELECTION_REQUIRED"
    )
    CARDHOLDER_KYC_NOT_APPROVED = "CARDHOLDER_KYC_NOT_APPROVED"
    FUNDING_SOURCE_INELIGIBLE = "FUNDING_SOURCE_INELIGIBLE"
    EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED = "EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED"

    UNAUTHORIZED = "UNAUTHORIZED"
    INVALID_SIGNATURE = "INVALID_SIGNATURE"
    WALLET_SIGNATURE_MISSING = "WALLET_SIGNATURE_MISSING"
    WALLET_SIGNATURE_MALFORMED = "WALLET_SIGNATURE_MALFORMED"
    WALLET_SIGNATURE_BODY_MISMATCH = "WALLET_SIGNATURE_BODY_MISMATCH"
    WALLET_SIGNATURE_INVALID = "WALLET_SIGNATURE_INVALID"
    REQUEST_ID_MISSING = "REQUEST_ID_MISSING"

    FORBIDDEN = "FORBIDDEN"
    USER_NOT_READY = "USER_NOT_READY"
    COUNTERPARTY_NOT_ALLOWED = "COUNTERPARTY_NOT_ALLOWED"
    VELOCITY_LIMIT_EXCEEDED = "VELOCITY_LIMIT_EXCEEDED"

    TRANSACTION_NOT_FOUND = "TRANSACTION_NOT_FOUND"
    INVITATION_NOT_FOUND = "INVITATION_NOT_FOUND"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    QUOTE_NOT_FOUND = "QUOTE_NOT_FOUND"
    LOOKUP_REQUEST_NOT_FOUND = "LOOKUP_REQUEST_NOT_FOUND"
    TOKEN_NOT_FOUND = "TOKEN_NOT_FOUND"  # noqa: S105 - a code
    BULK_UPLOAD_JOB_NOT_FOUND = "BULK_UPLOAD_JOB_NOT_FOUND"
    REFERENCE_NOT_FOUND = "REFERENCE_NOT_FOUND"
    UMA_NOT_FOUND = "UMA_NOT_FOUND"
    STABLECOIN_PROVIDER_ACCOUNT_NOT_FOUND = "STABLECOIN_PROVIDER_ACCOUNT_NOT_FOUND"

    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"

    TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL = "TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL"
    TRANSACTION_NOT_CANCELLABLE = "TRANSACTION_NOT_CANCELLABLE"
    UMA_ADDRESS_EXISTS = "UMA_ADDRESS_EXISTS"
    EMAIL_OTP_EMAIL_ALREADY_EXISTS = "EMAIL_OTP_EMAIL_ALREADY_EXISTS"
    EMAIL_OTP_CREDENTIAL_SET_CHANGED = "EMAIL_OTP_CREDENTIAL_SET_CHANGED"
    PASSKEY_ALREADY_ENROLLED = "PASSKEY_ALREADY_ENROLLED"
    CONFLICT = "CONFLICT"
    INVALID_STATE_TRANSITION = "INVALID_STATE_TRANSITION"
    CARD_ALREADY_CLOSED = "CARD_ALREADY_CLOSED"
    CARD_NOT_MUTABLE = "CARD_NOT_MUTABLE"
    SCA_SESSION_REQUIRED = "SCA_SESSION_REQUIRED"

    CUSTOMER_DELETED = "CUSTOMER_DELETED"

    UNSUPPORTED_UMA_VERSION = "UNSUPPORTED_UMA_VERSION"

    ACCOUNT_LOCKED = "ACCOUNT_LOCKED"

    PAYREQ_REQUEST_FAILED = "PAYREQ_REQUEST_FAILED"
    COUNTERPARTY_PUBKEY_FETCH_ERROR = "COUNTERPARTY_PUBKEY_FETCH_ERROR"
    NO_COMPATIBLE_UMA_VERSION = "NO_COMPATIBLE_UMA_VERSION"
    LNURLP_REQUEST_FAILED = "LNURLP_REQUEST_FAILED"
    EMAIL_OTP_CREDENTIAL_SYNC_FAILED = "EMAIL_OTP_CREDENTIAL_SYNC_FAILED"

    RATE_LIMITED = "RATE_LIMITED"

    GRID_SWITCH_ERROR = "GRID_SWITCH_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"

    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY = "UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY"

    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"


class FieldError(Response):
    """One invalid field: its path, what to change, and the constraint."""

    field: str
    message: str
    constraint: dict[str, Any] | None = None


class ErrorBody(Response):
    """The body of every error."""

    status: int
    code: Code
    message: str
    details: dict[str, Any] | None = None


def field_errors(pydantic_errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Return one field error per error of Pydantic (`errors()`)."""
    return [
        FieldError(
            field=dotted(_path(error)), message=_message(error), constraint=_constraint(error)
        )
        for error in pydantic_errors
    ]


_IN_SENTENCE: Final = 3


def sentence(errors: Sequence[FieldError], count: int | None = None) -> str:
    """Return `errors` in one line, for a message that is read without `details`.

    `count` is the number of errors where `errors` are only the first.
    """
    shown = [f"{error.field or 'body'} {error.message}" for error in errors[:_IN_SENTENCE]]
    rest = (count or len(errors)) - len(shown)
    return "; ".join(shown) + (f"; and {rest} more" if rest else "")


_IN_LISTING: Final = 20
_LISTING_LENGTH: Final = 1_900  # Characters, with room for the place of the input.


def listing(errors: Sequence[FieldError], count: int) -> str:
    """Return `errors` in one line for a row that is kept: at most 20, in 1,900 characters.

    `count` is the number of errors where `errors` are only the first.
    """
    shown: list[str] = []
    room = _LISTING_LENGTH
    for error in errors[:_IN_LISTING]:
        text = f"{error.field or 'body'} {error.message}"
        room -= len(text) + len("; ")
        if room < 0:
            break
        shown.append(text)
    rest = count - len(shown)
    return "; ".join(shown) + (f"; and {rest} more" if rest else "")


def explain(error: ValidationError) -> str:
    """Return in one line what to change in an input that Pydantic rejected."""
    found = error.errors(include_url=False, include_input=False)
    return storable(sentence(field_errors(found[:_IN_SENTENCE]), len(found)))


def explain_all(found: Sequence[Mapping[str, Any]]) -> str:
    """Return in one line what to change, by the errors of Pydantic: `listing` of them."""
    return storable(listing(field_errors(found[:_IN_LISTING]), len(found)))


def storable(text: str) -> str:
    """Return `text`, which may quote an input, as a text column can store it."""
    return text.replace("\x00", "\ufffd").encode(errors="backslashreplace").decode()


def shortened(text: str, length: int) -> str:
    """Return `text` with at most `length` characters; an ellipsis stands for the rest."""
    return text if len(text) <= length else text[: length - 1] + "…"


def dotted(path: Iterable[object]) -> str:
    """Return a path such as `merchant.mcc` or `fundingSources.0`, in printable ASCII.

    The tag of a union's member (`AUTHORIZATION`) is left out; field names are camelCase.
    """
    parts = [str(part) for part in path]
    joined = ".".join([part for part in parts[:-1] if not part.isupper()] + parts[-1:])
    return joined.encode("ascii", "backslashreplace").decode()[:200]


_DATE: Final = "must be a valid date of the form YYYY-MM-DD"
_TIME: Final = "must be a time with its zone, such as 2026-01-31T12:00:00Z"

_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a known field; remove it",
    "int_type": "must be a JSON integer, without quotes, decimal point or exponent",
    "int_parsing": "must be an integer",
    "int_parsing_size": f"must be at most {MAX_AMOUNT}",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode: it contains a lone surrogate",
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
    "none_required": "must be null",
    "invalid_key": "must have strings as names",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "union_tag_not_found": "is required",
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
    "union_tag_invalid": "must be one of {expected_tags}",
}
"""Messages by the type of Pydantic's error; our own validators have their own messages."""

_OWN: Final = frozenset({"value_error", "assertion_error"})
_OWN_LENGTH: Final = 300  # They may quote the input.
_NO_VALUE: Final = "must be a valid value"


def _path(error: Mapping[str, Any]) -> Sequence[object]:
    """Return the path of the field to change: the discriminator, where a union is meant."""
    if error["type"] in {"union_tag_not_found", "union_tag_invalid"}:
        return (*error["loc"], _context(error)["discriminator"])
    path: Sequence[object] = error["loc"]
    return path


def _message(error: Mapping[str, Any]) -> str:
    template = _MESSAGES.get(error["type"])
    if template is not None:
        return template.format_map(_context(error))
    text = str(error["msg"])
    if error["type"] in _OWN:
        text = text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return shortened(text[:1].lower() + text[1:], _OWN_LENGTH)
    subject, should, rule = text.partition(" should ")
    # An error type that none of our models raises: use Pydantic's message.
    return f"must {rule}" if should and " " not in subject else _NO_VALUE


_CONSTRAINTS: Final[Mapping[str, str]] = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def _constraint(error: Mapping[str, Any]) -> dict[str, Any] | None:
    context = _context(error)
    named: dict[str, Any] = {
        name: context[key]
        for key, name in _CONSTRAINTS.items()
        if key in context and error["type"] not in {"too_short", "too_long"}
    }
    expected = context.get("expected") or context.get("expected_tags")
    if expected:
        named["enum"] = expected.split(", ")
    return named or None


_ENUM_MEMBER: Final = re.compile(r"<\w+\.\w+: ('[^']*')>")


def _context(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context of Pydantic's error with the names and values of the wire only.

    Pydantic quotes values, prints members of an enum as Python does, and names a discriminator
    in both spellings: `'account_type' | 'accountType'`.
    """
    context = dict(error.get("ctx", {}))
    for key in ("expected", "expected_tags"):
        if key in context:
            plain = _ENUM_MEMBER.sub(r"\1", str(context[key])).replace(" or ", ", ")
            values = [value.strip().strip("'") for value in plain.split(",")]
            context[key] = ", ".join(dict.fromkeys(values))
    if "discriminator" in context:
        *_, name = str(context["discriminator"]).split("|")
        context["discriminator"] = to_camel(name.strip().strip("'"))
    return context
