"""Responses to refusals of authentication."""

from collections.abc import Mapping
from typing import Final

from fastapi import Response

from cardledger.api.http.errors import ApiError, error_response
from cardledger.ledger.customers.authentication.refusals import Kind, Refused
from cardledger.schema.wire.errors import Code, FieldError

_CODES: Final[Mapping[Kind, Code]] = {
    Kind.INVALID: Code.INVALID_INPUT,
    Kind.CONFLICT: Code.CONFLICT,
    Kind.LOCKED: Code.ACCOUNT_LOCKED,
    Kind.TOO_MANY: Code.RATE_LIMITED,
    Kind.NOT_IMPLEMENTED: Code.NOT_IMPLEMENTED,
    Kind.PASSKEY_ENROLLED: Code.PASSKEY_ALREADY_ENROLLED,
}


def refusal(refused: Refused) -> Response:
    """Return the response to an attempt that was counted: the database transaction commits.

    With an `Idempotency-Key` it is stored, so that a repetition is not counted again.
    Raises: ApiError for any other refusal, which has no effect.
    """
    error = error_of(refused)
    if not refused.has_counted:
        raise error
    return error_response(error)


def error_of(refused: Refused) -> ApiError:
    """Return the error for a refusal."""
    message = refused.message
    details = dict(refused.details)
    headers = {}
    if refused.field is not None:
        field = FieldError(field=refused.field, message=message)
        message = f"{refused.field} {message}"
        details = {"errors": [field.wire()], **details}
    if refused.retry_after_s is not None:
        headers = {
            "Retry-After": str(refused.retry_after_s),
            "retry-after-ms": str(refused.retry_after_s * 1000),
        }
    return ApiError(_CODES[refused.kind], message, details=details or None, headers=headers)
