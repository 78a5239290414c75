"""A passkey in software: what a browser and an authenticator answer, byte by byte of the standard.

Written from WebAuthn level 3 and not with the library that verifies it.
"""

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

ORIGIN: Final = "http://localhost:3000"

_USER_PRESENT: Final = 0x01
_USER_VERIFIED: Final = 0x04
_HAS_CREDENTIAL: Final = 0x40


def encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass
class Passkey:
    """A key pair on the P-256 curve, with a counter or without."""

    rp_id: str = "localhost"
    origin: str = ORIGIN
    counts: bool = True
    verifies_user: bool = True
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    credential_id: bytes = field(default_factory=lambda: os.urandom(32))
    counter: int = 0

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the registration that a browser sends for `options`."""
        client = self._client_data("webauthn.create", options["challenge"])
        data = self._authenticator_data(
            _HAS_CREDENTIAL,
            bytes(16)
            + len(self.credential_id).to_bytes(2, "big")
            + self.credential_id
            + self._cose(),
        )
        attestation = b"\xa3" + _text("fmt") + _text("none") + _text("attStmt") + b"\xa0"
        attestation += _text("authData") + _bytes(data)
        return self._response(
            {"clientDataJSON": encoded(client), "attestationObject": encoded(attestation)}
        )

    def use(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the assertion that a browser sends for `options`."""
        self.counter += 1 if self.counts else 0
        client = self._client_data("webauthn.get", options["challenge"])
        data = self._authenticator_data(0, b"")
        signature = self.key.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._response(
            {
                "clientDataJSON": encoded(client),
                "authenticatorData": encoded(data),
                "signature": encoded(signature),
            }
        )

    def _response(self, response: dict[str, str]) -> dict[str, Any]:
        key = encoded(self.credential_id)
        return {
            "id": key,
            "rawId": key,
            "type": "public-key",
            "response": response,
            "clientExtensionResults": {},
        }

    def _client_data(self, kind: str, challenge: str) -> bytes:
        content = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps(content | {"crossOrigin": False}).encode()

    def _authenticator_data(self, flags: int, more: bytes) -> bytes:
        flags |= _USER_PRESENT | (_USER_VERIFIED if self.verifies_user else 0)
        return (
            sha256(self.rp_id.encode()).digest()
            + bytes([flags])
            + self.counter.to_bytes(4, "big")
            + more
        )

    def _cose(self) -> bytes:
        """Return the public key in COSE: {1: 2, 3: -7, -1: 1, -2: x, -3: y}."""
        numbers = self.key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (numbers.x, numbers.y))
        return b"\xa5\x01\x02\x03\x26\x20\x01\x21" + _bytes(x) + b"\x22" + _bytes(y)


def _text(text: str) -> bytes:
    return bytes([0x60 + len(text)]) + text.encode()


def _bytes(raw: bytes) -> bytes:
    head = b"\x58" + bytes([len(raw)]) if len(raw) < 256 else b"\x59" + len(raw).to_bytes(2, "big")
    return head + raw
