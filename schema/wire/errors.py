"""Errors: one envelope, one table of codes, and what becomes of a validator's complaints."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from cardledger.schema.wire.common import MAX_AMOUNT, Response


class Code(StrEnum):
    """Every code that an error body may carry, status by status."""

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


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """What a code says: its status, when it is raised, and how anybody can see it.

    No `how`: its area is not built, so nobody meets it.
    """

    status: int
    when: str
    how: str | None = None

    @property
    def is_built(self) -> bool:
        """Whether this installation raises it."""
        return self.how is not None


ERROR_SPECS: Final[Mapping[Code, ErrorSpec]] = {
    Code.INVALID_INPUT: ErrorSpec(
        400,
        "what was sent cannot be understood or is not allowed; `details.errors` names every "
        "field to change",
        "send an unknown field, or `limit=0` to any list",
    ),
    Code.MISSING_MANDATORY_USER_INFO: ErrorSpec(
        400,
        "a customer of this region has to come with more about itself",
        "create a customer with `region` `DE`, without `email` and `phoneNumber`",
    ),
    Code.INVITATION_ALREADY_CLAIMED: ErrorSpec(400, "the invitation belongs to somebody already"),
    Code.INVITATIONS_NOT_CONFIGURED: ErrorSpec(400, "the platform has no invitations"),
    Code.INVALID_UMA_ADDRESS: ErrorSpec(
        400,
        "a UMA address is not of the form `$name@domain`",
        "create a customer with `umaAddress` `ada`",
    ),
    Code.INVITATION_CANCELLED: ErrorSpec(400, "the invitation was taken back"),
    Code.QUOTE_REQUEST_FAILED: ErrorSpec(400, "no quote could be had; worth another try"),
    Code.INVALID_PAYREQ_RESPONSE: ErrorSpec(400, "the counterparty's payreq answer is wrong"),
    Code.INVALID_RECEIVER: ErrorSpec(400, "the receiver cannot be paid"),
    Code.PARSE_PAYREQ_RESPONSE_ERROR: ErrorSpec(
        400,
        "the counterparty's payreq answer cannot be read",
    ),
    Code.CERT_CHAIN_INVALID: ErrorSpec(400, "a counterparty's certificates do not hold"),
    Code.CERT_CHAIN_EXPIRED: ErrorSpec(400, "a counterparty's certificates are too old"),
    Code.INVALID_PUBKEY_FORMAT: ErrorSpec(400, "a counterparty's public key cannot be read"),
    Code.MISSING_REQUIRED_UMA_PARAMETERS: ErrorSpec(400, "a UMA request lacks parameters"),
    Code.SENDER_NOT_ACCEPTED: ErrorSpec(400, "the receiver takes nothing from this sender"),
    Code.AMOUNT_OUT_OF_RANGE: ErrorSpec(
        400,
        "a total would leave the range of a 64-bit integer",
        "put 9223372036854775807 on a card with `simulate/financial_credit_authorization`, then "
        "fund its account",
    ),
    Code.INVALID_CURRENCY: ErrorSpec(
        400,
        "the currency is not one that fits here",
        "simulate an authorization in EUR on a card in USD",
    ),
    Code.INVALID_TIMESTAMP: ErrorSpec(400, "a counterparty's time is not to be believed"),
    Code.INVALID_NONCE: ErrorSpec(400, "a counterparty's nonce came before"),
    Code.INVALID_REQUEST_FORMAT: ErrorSpec(400, "a counterparty's request cannot be read"),
    Code.INVALID_BANK_ACCOUNT: ErrorSpec(
        400,
        "the account's number has a wrong check digit, or there is no such account",
        "register an external account with the IBAN `DE00370400440532013000`",
    ),
    Code.SELF_PAYMENT: ErrorSpec(
        400,
        "the money would go where it comes from",
        "let an agent transfer from an internal account to itself",
    ),
    Code.LOOKUP_REQUEST_FAILED: ErrorSpec(400, "the counterparty could not be looked up"),
    Code.PARSE_LNURLP_RESPONSE_ERROR: ErrorSpec(
        400,
        "the counterparty's lnurlp answer cannot be read",
    ),
    Code.INVALID_AMOUNT: ErrorSpec(
        400,
        "a transfer has no amount, or none that can be moved",
        "let an agent ask for a transfer without `amount`",
    ),
    Code.WEBHOOK_ENDPOINT_NOT_SET: ErrorSpec(
        400,
        "the platform has no address for webhooks",
        "`POST /sandbox/webhooks/test` while `webhookEndpoint` is null",
    ),
    Code.WEBHOOK_DELIVERY_ERROR: ErrorSpec(
        400,
        "the test webhook did not arrive",
        "set `webhookEndpoint` to a port on which nothing listens, then "
        "`POST /sandbox/webhooks/test`",
    ),
    Code.LOW_QUALITY: ErrorSpec(400, "the document cannot be read"),
    Code.DATA_MISMATCH: ErrorSpec(400, "the document is about somebody else"),
    Code.EXPIRED: ErrorSpec(400, "the document is too old"),
    Code.SUSPECTED_FRAUD: ErrorSpec(400, "the document does not look genuine"),
    Code.UNSUITABLE_DOCUMENT: ErrorSpec(400, "the document is not one of those that count"),
    Code.INCOMPLETE: ErrorSpec(400, "parts of the document are missing"),
    Code.EMAIL_OTP_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(
        400,
        "the internal account has an e-mail credential already",
    ),
    Code.SMS_OTP_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(
        400,
        "the internal account has an SMS credential already",
    ),
    Code.PASSKEY_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(400, "this passkey is registered already"),
    Code.STABLECOIN_PROVIDER_ACCOUNT_INVALID: ErrorSpec(
        400,
        "the provider does not take this account",
    ),
    Code.STABLECOIN_PROVIDER_ACCOUNT_REVOKED: ErrorSpec(
        400, "the link to the provider was revoked"
    ),
    Code.STABLECOIN_PROVIDER_ACCOUNT_SELECTION_REQUIRED: ErrorSpec(
        400,
        "there are several links; say which with `stablecoinProviderAccountId`",
    ),
    Code.CARDHOLDER_KYC_NOT_APPROVED: ErrorSpec(
        400,
        "the cardholder's `kycStatus`, or a business's `kybStatus`, is not `APPROVED`",
        "issue a card to a customer whose `fullName` ends in `001`",
    ),
    Code.FUNDING_SOURCE_INELIGIBLE: ErrorSpec(
        400,
        "a funding source is not the cardholder's, not active or not fiat",
        "issue a card with another customer's internal account in `fundingSources`",
    ),
    Code.UNAUTHORIZED: ErrorSpec(
        401,
        "the credentials are missing, malformed or unknown, or of the other scheme",
        "call without the header `Authorization`",
    ),
    Code.INVALID_SIGNATURE: ErrorSpec(401, "a counterparty's signature does not hold"),
    Code.WALLET_SIGNATURE_MISSING: ErrorSpec(401, "an action of an embedded wallet is not signed"),
    Code.WALLET_SIGNATURE_MALFORMED: ErrorSpec(401, "the wallet's signature cannot be read"),
    Code.WALLET_SIGNATURE_BODY_MISMATCH: ErrorSpec(401, "the wallet signed another body"),
    Code.WALLET_SIGNATURE_INVALID: ErrorSpec(401, "the wallet's signature does not hold"),
    Code.REQUEST_ID_MISSING: ErrorSpec(
        401, "the signed retry does not say which request it repeats"
    ),
    Code.FORBIDDEN: ErrorSpec(
        403,
        "the token lacks the permission, or the agent's policy or pause forbids it",
        "create a customer with a token that has only `VIEW`",
    ),
    Code.USER_NOT_READY: ErrorSpec(403, "the customer may not pay yet"),
    Code.COUNTERPARTY_NOT_ALLOWED: ErrorSpec(403, "this counterparty may not be paid"),
    Code.VELOCITY_LIMIT_EXCEEDED: ErrorSpec(403, "too much was paid in too little time"),
    Code.TRANSACTION_NOT_FOUND: ErrorSpec(
        404,
        "no transaction of the caller has this id",
        "read `/transactions/CardTransaction:` and a new UUID",
    ),
    Code.INVITATION_NOT_FOUND: ErrorSpec(404, "there is no such invitation"),
    Code.USER_NOT_FOUND: ErrorSpec(
        404,
        "no customer of the caller has this id",
        "read `/customers/Customer:` and a new UUID",
    ),
    Code.QUOTE_NOT_FOUND: ErrorSpec(404, "there is no such quote"),
    Code.LOOKUP_REQUEST_NOT_FOUND: ErrorSpec(404, "there is no such lookup"),
    Code.TOKEN_NOT_FOUND: ErrorSpec(
        404,
        "no token of the platform has this id",
        "read `/tokens/Token:` and a new UUID",
    ),
    Code.BULK_UPLOAD_JOB_NOT_FOUND: ErrorSpec(404, "there is no such upload"),
    Code.REFERENCE_NOT_FOUND: ErrorSpec(
        404,
        "nothing else of the caller has this id, or there is no such path",
        "read `/cards/Card:` and a new UUID",
    ),
    Code.UMA_NOT_FOUND: ErrorSpec(404, "nobody has this UMA address"),
    Code.STABLECOIN_PROVIDER_ACCOUNT_NOT_FOUND: ErrorSpec(
        404, "there is no such link to a provider"
    ),
    Code.METHOD_NOT_ALLOWED: ErrorSpec(
        405,
        "the path has no such method; the header `Allow` says which it has",
        "`PUT /customers`",
    ),
    Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL: ErrorSpec(
        409,
        "the transaction does not wait for the platform's decision, or no longer",
        "approve a card transaction",
    ),
    Code.TRANSACTION_NOT_CANCELLABLE: ErrorSpec(
        409,
        "the transaction is past the point of cancellation",
    ),
    Code.UMA_ADDRESS_EXISTS: ErrorSpec(
        409,
        "another customer has this UMA address",
        "create two customers with one `umaAddress`",
    ),
    Code.EMAIL_OTP_EMAIL_ALREADY_EXISTS: ErrorSpec(
        409,
        "the e-mail address belongs to another credential",
    ),
    Code.EMAIL_OTP_CREDENTIAL_SET_CHANGED: ErrorSpec(
        409,
        "the credentials changed after the challenge",
    ),
    Code.PASSKEY_ALREADY_ENROLLED: ErrorSpec(409, "the customer has a passkey already"),
    Code.CONFLICT: ErrorSpec(
        409,
        "what is there already stands in the way, such as a `platformCustomerId` that is taken, "
        "or an `Idempotency-Key` that came with another request",
        "create two customers with one `platformCustomerId`",
    ),
    Code.INVALID_STATE_TRANSITION: ErrorSpec(
        409,
        "a card cannot go from its state to that one",
        "freeze a card that is still `PROCESSING`",
    ),
    Code.CARD_ALREADY_CLOSED: ErrorSpec(409, "the card is closed already", "close a card twice"),
    Code.CARD_NOT_MUTABLE: ErrorSpec(
        409,
        "a closed card does not change any more",
        "set `maxSpendPerTransaction` of a closed card",
    ),
    Code.CUSTOMER_DELETED: ErrorSpec(
        410,
        "the customer was deleted before",
        "delete a customer twice",
    ),
    Code.UNSUPPORTED_UMA_VERSION: ErrorSpec(412, "the counterparty speaks another version of UMA"),
    Code.ACCOUNT_LOCKED: ErrorSpec(423, "too many wrong one-time codes"),
    Code.PAYREQ_REQUEST_FAILED: ErrorSpec(424, "the counterparty did not answer a payreq"),
    Code.COUNTERPARTY_PUBKEY_FETCH_ERROR: ErrorSpec(424, "the counterparty's keys cannot be had"),
    Code.NO_COMPATIBLE_UMA_VERSION: ErrorSpec(424, "there is no version of UMA that both speak"),
    Code.LNURLP_REQUEST_FAILED: ErrorSpec(424, "the counterparty did not answer an lnurlp request"),
    Code.EMAIL_OTP_CREDENTIAL_SYNC_FAILED: ErrorSpec(
        424,
        "a credential could not follow its e-mail address",
    ),
    Code.RATE_LIMITED: ErrorSpec(
        429,
        "too many requests in too little time; `Retry-After` says when to come back",
        "call faster than the installation's rate limit allows",
    ),
    Code.GRID_SWITCH_ERROR: ErrorSpec(500, "the payment switch failed"),
    Code.INTERNAL_ERROR: ErrorSpec(
        500,
        "something is wrong here, not with the request",
        "it cannot be provoked on purpose: each one is a defect; the tests break the database "
        "under the service to see it",
    ),
    Code.NOT_IMPLEMENTED: ErrorSpec(
        501,
        "the interface has this and this installation has not",
        "`GET /exchange-rates`",
    ),
    Code.UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY: ErrorSpec(
        501,
        "a counterparty demands what nobody knows",
    ),
    Code.SERVICE_UNAVAILABLE: ErrorSpec(
        503,
        "the database does not answer, or no worker decides in time",
        "stop PostgreSQL and call anything",
    ),
}
"""The one table of errors: the documentation and every status come from it."""

STATUS: Final[Mapping[Code, int]] = {code: said.status for code, said in ERROR_SPECS.items()}
"""The HTTP status of every code. Exceptions: a body that is too large is `INVALID_INPUT` with 413,
one that does not come to its end with 408, and a head that is too large with 431, because the
interface has no codes of its own for them."""


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
