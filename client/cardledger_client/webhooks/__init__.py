"""Verification of received webhooks.

    from cardledger_client.webhooks import WebhookVerificationError, verify

    event = verify(request.body, request.headers, secret="whsec_…")

Needs only the standard library, and `cryptography` for a public key; nothing else of this package.
So it shares no code with the side that signs. The folder is linked into `cardledger.webhooks`,
which has the same names.
"""

import base64
import binascii
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Reason", "WebhookVerificationError", "verify"]

TOLERANCE: Final = timedelta(minutes=5)
"""How far the clocks of sender and receiver may differ before a webhook counts as replayed."""

_ID: Final = "webhook-id"
_TIMESTAMP: Final = "webhook-timestamp"
_SIGNATURE: Final = "webhook-signature"
_GRID: Final = "x-grid-signature"

_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what marks a secret, not one
_MIN_SECRET_BYTES: Final = 16
# More than a rotation needs; a forged header must not cost much time.
_MAX_SIGNATURES: Final = 16
_MAX_TIMESTAMP_DIGITS: Final = 12


class Reason(StrEnum):
    """Why a webhook was not accepted."""

    NO_KEY = (
        "NO_KEY"  # Neither secret nor public key, or an invalid one: a mistake of the receiver.
    )
    MISSING_HEADER = "MISSING_HEADER"  # Absent, or present with different values.
    MALFORMED_HEADER = "MALFORMED_HEADER"
    TOO_OLD = "TOO_OLD"
    TOO_NEW = "TOO_NEW"
    WRONG_SIGNATURE = "WRONG_SIGNATURE"
    NOT_JSON = "NOT_JSON"  # Signed, and not a JSON object.


class WebhookVerificationError(Exception):
    """A webhook is not authentic, or cannot be verified; see `reason`, and the message."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


def verify(  # noqa: PLR0913 - the options of both schemes, by name
    body: bytes,
    headers: Mapping[str, str],
    *,
    secret: str | Sequence[str] | None = None,
    public_key: str | Sequence[str] | None = None,
    tolerance: timedelta = TOLERANCE,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return the envelope in `body` if every scheme with a key verifies it.

    `body` is the exact bytes received, before any parsing; header names are case-insensitive.
    `secret` verifies the three Standard Webhooks headers, so also the id and the age;
    `public_key` (PEM) verifies X-Grid-Signature, which covers the body alone: a receiver that uses
    only this must remember the ids permanently, because a replayed webhook looks like a new one.
    With both, both must verify. During a rotation, give all keys: one that fits is enough.
    Raises: WebhookVerificationError; `body` must not be trusted then.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("body must be the bytes received, not a decoded form of them")
    body = bytes(body)
    if secret is None and public_key is None:
        raise WebhookVerificationError(Reason.NO_KEY, "no secret and no public key to verify with")
    if secret is not None:
        _verify_standard(body, headers, _several(secret), tolerance, now or datetime.now(UTC))
    if public_key is not None:
        _verify_grid(body, headers, _several(public_key))
    return _envelope(body)


def _several(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


# --- Standard Webhooks ---------------------------------------------------------------------------


def _verify_standard(
    body: bytes,
    headers: Mapping[str, str],
    secrets: Sequence[str],
    tolerance: timedelta,
    now: datetime,
) -> None:
    keys = [_secret_bytes(secret) for secret in secrets]
    if not keys:
        raise WebhookVerificationError(Reason.NO_KEY, "the list of secrets is empty")
    webhook_id, timestamp = _header(headers, _ID), _header(headers, _TIMESTAMP)
    given = [
        encoded.encode(errors="replace")
        for version, _, encoded in (
            candidate.partition(",") for candidate in _header(headers, _SIGNATURE).split(" ")
        )
        if version == "v1" and encoded
    ]
    if not given or len(given) > _MAX_SIGNATURES:
        raise WebhookVerificationError(
            Reason.MALFORMED_HEADER, f"{_SIGNATURE} has no signature of the form v1,…, or too many"
        )
    # int() would also accept other digits, signs, blanks and underscores.
    if not (
        timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_TIMESTAMP_DIGITS
    ):
        raise WebhookVerificationError(
            Reason.MALFORMED_HEADER, f"{_TIMESTAMP} is not a time in seconds"
        )
    signed = f"{webhook_id}.{timestamp}.".encode(errors="replace") + body
    # Texts are compared, not bytes: base64 has several texts for the same bytes. All pairs are
    # compared, so that the time taken does not reveal which one fits.
    fits = [
        hmac.compare_digest(base64.b64encode(hmac.digest(key, signed, sha256)), signature)
        for key in keys
        for signature in given
    ]
    if not any(fits):
        raise WebhookVerificationError(
            Reason.WRONG_SIGNATURE, f"{_SIGNATURE} does not match this webhook and this secret"
        )
    # After the signature: only the sender may learn what this clock says.
    _check_age(int(timestamp), tolerance, now)


def _check_age(timestamp: int, tolerance: timedelta, now: datetime) -> None:
    age_s, limit_s = now.timestamp() - timestamp, tolerance.total_seconds()
    # The header has whole seconds, rounded down: a webhook sent just now is not in the future.
    if age_s > limit_s:
        raise WebhookVerificationError(Reason.TOO_OLD, f"{_TIMESTAMP} is too long ago")
    if -age_s > limit_s:
        raise WebhookVerificationError(Reason.TOO_NEW, f"{_TIMESTAMP} is too far in the future")


def _secret_bytes(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    # An empty environment variable must not become a secret that everyone knows.
    if len(key) < _MIN_SECRET_BYTES:
        raise WebhookVerificationError(
            Reason.NO_KEY, "a secret must be whsec_ followed by the base64 of at least 16 bytes"
        )
    return key


# --- X-Grid-Signature ----------------------------------------------------------------------------


def _verify_grid(body: bytes, headers: Mapping[str, str], pems: Sequence[str]) -> None:
    # Imported here, so that receivers with a secret only do not need the package.
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = 'a public key needs cryptography: pip install "cardledger-client[webhooks]"'
        raise ModuleNotFoundError(message, name=error.name) from error
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    keys = [_public_key(pem) for pem in pems]
    if not keys:
        raise WebhookVerificationError(Reason.NO_KEY, "the list of public keys is empty")
    signature = _grid_signature(_header(headers, _GRID))
    for key in keys:
        try:
            key.verify(signature, body, ec.ECDSA(SHA256()))
        except InvalidSignature:
            continue
        return
    raise WebhookVerificationError(
        Reason.WRONG_SIGNATURE, f"{_GRID} does not match this body and this key"
    )


def _grid_signature(header: str) -> bytes:
    try:
        parts = json.loads(header)
        encoded = parts["s"]
        signature = base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError, LookupError, RecursionError):
        parts, encoded, signature = {}, "", b""
    # The comparison rejects the other base64 texts of the same bytes.
    if parts.get("v") != "1" or not signature or base64.b64encode(signature).decode() != encoded:
        raise WebhookVerificationError(
            Reason.MALFORMED_HEADER, f'{_GRID} is not of the form {{"v":"1","s":"…"}}'
        )
    return signature


def _public_key(pem: str) -> "ec.EllipticCurvePublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise WebhookVerificationError(Reason.NO_KEY, "a public key is not valid PEM") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise WebhookVerificationError(
            Reason.NO_KEY, "a public key is not an elliptic-curve key on P-256"
        )
    return key


# --- common parts --------------------------------------------------------------------------------


def _header(headers: Mapping[str, str], name: str) -> str:
    """Return the value of the header `name`, case-insensitive, if there is exactly one."""
    values = {value for key, value in headers.items() if key.lower() == name}
    if len(values) != 1 or not (value := values.pop()):
        raise WebhookVerificationError(
            Reason.MISSING_HEADER, f"{name} is missing, or present with different values"
        )
    return value


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise WebhookVerificationError(Reason.NOT_JSON, "the body is not a JSON object")
    return content
