"""Signatures of webhooks: two schemes over the same bytes, signed and verified here.

`X-Grid-Signature` is ECDSA on P-256 with SHA-256 over the body: the platform's public key
verifies it, and it does not cover the time of sending. The three Standard Webhooks headers are an
HMAC with a shared secret over id, time and body, so a receiver can reject an old webhook.
"""

import base64
import binascii
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from importlib.metadata import version
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": f"cardledger/{version('cardledger')}",
}
"""What every webhook carries beside its signatures."""

GRID_SIGNATURE: Final = "X-Grid-Signature"
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - a prefix, not a secret
TOLERANCE: Final = timedelta(minutes=5)
"""The largest difference between a webhook's timestamp and the receiver's clock."""

_SECRET_BYTES: Final = 32
_ECDSA: Final = ec.ECDSA(SHA256())


class SignatureError(Exception):
    """A signature does not verify; the message names the check that failed."""


def new_signing_key() -> tuple[bytes, str]:
    """Return a new P-256 key: the private key as PKCS #8 DER, the public key as PEM."""
    private_key = ec.generate_private_key(ec.SECP256R1())
    private = private_key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),  # KeyRing encrypts it.
    )
    public = private_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public.decode()


def new_webhook_secret() -> str:
    """Return a new secret in the format of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def load_private_key(der: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key from its PKCS #8 DER form."""
    key = serialization.load_der_private_key(der, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("webhooks are signed with an elliptic-curve key")
    return key


def load_public_key(pem: str) -> ec.EllipticCurvePublicKey:
    """Return the public key from its PEM form."""
    key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError("webhooks are signed with an elliptic-curve key")
    return key


def sign(  # noqa: PLR0913 - keyword arguments only
    body: bytes,
    *,
    webhook_id: str,
    at: datetime,
    private_key: ec.EllipticCurvePrivateKey,
    secret: str,
    former_secrets: Sequence[str] = (),
) -> dict[str, str]:
    """Return the four signature headers of `body`.

    During a rotation `webhook-signature` has a signature per secret, separated by spaces.
    """
    timestamp = str(int(at.timestamp()))
    ecdsa = base64.b64encode(private_key.sign(body, _ECDSA)).decode()
    macs = (_mac(key, webhook_id, timestamp, body) for key in (secret, *former_secrets))
    return {
        GRID_SIGNATURE: json.dumps({"v": "1", "s": ecdsa}, separators=(",", ":")),
        WEBHOOK_ID: webhook_id,
        WEBHOOK_TIMESTAMP: timestamp,
        WEBHOOK_SIGNATURE: " ".join(f"v1,{base64.b64encode(mac).decode()}" for mac in macs),
    }


def verify(
    body: bytes,
    headers: Mapping[str, str],
    *,
    public_key: ec.EllipticCurvePublicKey,
    secret: str,
    now: datetime,
) -> None:
    """Verify both signatures of a webhook; header names may have any case.

    Raises: SignatureError naming the first check that failed.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    verify_grid(body, lower.get(GRID_SIGNATURE.lower(), ""), public_key)
    _verify_standard(body, lower, secret, now)


def verify_grid(body: bytes, header: str, public_key: ec.EllipticCurvePublicKey) -> None:
    """Verify the value of `X-Grid-Signature` against the received bytes.

    Raises: SignatureError.
    """
    try:
        parts = json.loads(header)
        if parts["v"] != "1":
            raise SignatureError(f"{GRID_SIGNATURE}: unsupported version; expected 1")
        public_key.verify(base64.b64decode(parts["s"], validate=True), body, _ECDSA)
    except (ValueError, TypeError, LookupError):
        raise SignatureError(f'{GRID_SIGNATURE}: not of the form {{"v":"1","s":"…"}}') from None
    except InvalidSignature:
        raise SignatureError(f"{GRID_SIGNATURE}: does not match this body and public key") from None


def _verify_standard(body: bytes, headers: Mapping[str, str], secret: str, now: datetime) -> None:
    webhook_id, timestamp = headers.get(WEBHOOK_ID, ""), headers.get(WEBHOOK_TIMESTAMP, "")
    # int() would also accept Arabic digits, underscores and numbers of any length.
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):  # noqa: PLR2004
        raise SignatureError(f"{WEBHOOK_TIMESTAMP}: not a Unix time in seconds")
    expected = _mac(secret, webhook_id, timestamp, body)
    # During a rotation the header has a signature per secret, separated by spaces.
    candidates = headers.get(WEBHOOK_SIGNATURE, "").split()
    if not any(hmac.compare_digest(expected, _v1(candidate)) for candidate in candidates):
        raise SignatureError(f"{WEBHOOK_SIGNATURE}: does not match this webhook and secret")
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE.total_seconds():
        raise SignatureError(f"{WEBHOOK_TIMESTAMP}: more than 5 minutes from the current time")


def _v1(candidate: str) -> bytes:
    version, _, encoded = candidate.partition(",")
    if version != "v1":
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _mac(secret: str, webhook_id: str, timestamp: str, body: bytes) -> bytes:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, sha256)
