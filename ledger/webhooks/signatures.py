"""Signatures of webhooks: two schemes over the same bytes, made here and checked here.

`X-Grid-Signature` is ECDSA on P-256 with SHA-256 over the body, so anybody with the platform's
public key can check it; it says nothing about when it was sent. The three Standard Webhooks
headers are an HMAC with a shared secret over id, time and body: whoever checks them can refuse
what is old.
"""

import base64
import binascii
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

GRID_SIGNATURE: Final = "X-Grid-Signature"
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what marks a secret, not one
TOLERANCE: Final = timedelta(minutes=5)
"""How far a receiver's clock and ours may be apart before a webhook counts as replayed."""

_SECRET_BYTES: Final = 32
_ECDSA: Final = ec.ECDSA(SHA256())


class SignatureError(Exception):
    """A webhook is not what its sender sent; the message says which check failed."""


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
    """Return a new secret as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def load_private_key(der: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key that `new_signing_key` wrote."""
    key = serialization.load_der_private_key(der, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("webhooks are signed with a key on an elliptic curve")
    return key


def load_public_key(pem: str) -> ec.EllipticCurvePublicKey:
    """Return the public key that a platform is given."""
    key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise TypeError("webhooks are signed with a key on an elliptic curve")
    return key


def sign(  # noqa: PLR0913 - what is signed and with what, by name
    body: bytes,
    *,
    webhook_id: str,
    at: datetime,
    private_key: ec.EllipticCurvePrivateKey,
    secret: str,
    former_secrets: Sequence[str] = (),
) -> dict[str, str]:
    """Return the headers that prove `body` to whoever has the public key or a secret.

    During a rotation the header has one signature a secret, separated by spaces.
    """
    timestamp = str(int(at.timestamp()))
    ecdsa = base64.b64encode(private_key.sign(body, _ECDSA)).decode()
    macs = (_mac(one, webhook_id, timestamp, body) for one in (secret, *former_secrets))
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
    """Check both signatures of a webhook that came in with `headers`, in any case.

    Raises: SignatureError naming the first check that failed.
    """
    given = {name.lower(): value for name, value in headers.items()}
    verify_grid(body, given.get(GRID_SIGNATURE.lower(), ""), public_key)
    _verify_standard(body, given, secret, now)


def verify_grid(body: bytes, header: str, public_key: ec.EllipticCurvePublicKey) -> None:
    """Check the value of `X-Grid-Signature` against the exact bytes that came.

    Raises: SignatureError.
    """
    try:
        parts = json.loads(header)
        if parts["v"] != "1":
            raise SignatureError(f"{GRID_SIGNATURE}: not version 1")
        public_key.verify(base64.b64decode(parts["s"], validate=True), body, _ECDSA)
    except (ValueError, TypeError, LookupError):
        raise SignatureError(f'{GRID_SIGNATURE}: not of the form {{"v":"1","s":"…"}}') from None
    except InvalidSignature:
        raise SignatureError(f"{GRID_SIGNATURE}: not made for this body by this key") from None


def _verify_standard(body: bytes, given: Mapping[str, str], secret: str, now: datetime) -> None:
    webhook_id, timestamp = given.get(WEBHOOK_ID, ""), given.get(WEBHOOK_TIMESTAMP, "")
    # Longer than any time we know, and int() would read Arabic digits and underscores.
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):  # noqa: PLR2004
        raise SignatureError(f"{WEBHOOK_TIMESTAMP}: not a time in seconds")
    expected = _mac(secret, webhook_id, timestamp, body)
    # During a rotation the header lists one signature a secret, separated by spaces.
    candidates = given.get(WEBHOOK_SIGNATURE, "").split()
    if not any(hmac.compare_digest(expected, _v1(candidate)) for candidate in candidates):
        raise SignatureError(f"{WEBHOOK_SIGNATURE}: not made for this webhook with this secret")
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE.total_seconds():
        raise SignatureError(f"{WEBHOOK_TIMESTAMP}: too far from now")


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
