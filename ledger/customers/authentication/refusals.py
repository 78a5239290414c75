"""Refusals of authentication: values, because what they have counted must be committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from math import ceil
from typing import Any, Final

from cardledger.schema.wire.common import rfc3339


class Kind(Enum):
    """What a refusal is, for the choice of a status."""

    INVALID = auto()  # A field of the request has to change: `field` names it.
    CONFLICT = auto()
    LOCKED = auto()
    TOO_MANY = auto()
    NOT_IMPLEMENTED = auto()
    PASSKEY_ENROLLED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why something was refused, and what to do; `retry_after_s` with `TOO_MANY`.

    What `has_counted` has written a failed attempt, which must be committed.
    """

    kind: Kind
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    field: str | None = None
    retry_after_s: int | None = None
    has_counted: bool = False


NOT_REQUIRED: Final = Refused(
    kind=Kind.CONFLICT,
    message=(
        "Not required for this customer: only customers whose region is in the European Economic"
        " Area need it, where a payment provider requires it."
    ),
    details={"reason": "NOT_REQUIRED"},
)

NO_PASSKEYS: Final = Refused(
    kind=Kind.NOT_IMPLEMENTED,
    message=(
        "The operator has set no relying party for passkeys; set CARDLEDGER_PASSKEY_ORIGINS, or use"
        " SMS_OTP or TOTP."
    ),
)

PASSKEY_ENROLLED: Final = Refused(
    kind=Kind.PASSKEY_ENROLLED,
    message="The customer already has a passkey; delete it before enrolling another.",
)


def conflict(reason: str, message: str) -> Refused:
    """Return the refusal because of the state of the customer."""
    return Refused(kind=Kind.CONFLICT, message=message, details={"reason": reason})


def invalid(field: str, reason: str, message: str, **details: object) -> Refused:
    """Return the refusal because of a field of the request."""
    return Refused(
        kind=Kind.INVALID, message=message, field=field, details={"reason": reason, **details}
    )


def too_many(message: str, *, at: datetime, until: datetime) -> Refused:
    """Return the refusal of what may be done again from `until` on."""
    wait = max(until - at, timedelta(seconds=1))
    return Refused(kind=Kind.TOO_MANY, message=message, retry_after_s=ceil(wait.total_seconds()))


def locked(*, until: datetime, failed_attempts: int) -> Refused:
    """Return the refusal of a customer who is locked out."""
    return Refused(
        kind=Kind.LOCKED,
        message=(
            "The customer is locked after too many failed attempts; try again after"
            f" {rfc3339(until)}."
        ),
        details={
            "suspended": True,
            "lockedUntil": rfc3339(until),
            "failedAttempts": failed_attempts,
        },
    )
