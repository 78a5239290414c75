"""The key with which the processes of an installation sign what they leave for each other in Redis.

It is derived from the server key (HKDF-SHA-256), so that a leak of one does not endanger the other.
Source: docs/decisions/0041-redis-is-not-trusted.md
"""

import hmac
from hashlib import sha256
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cardledger.ledger.storage.secrets.key_ring import ServerKey, server_key

_KEY_BYTES: Final = 32
_PURPOSE: Final = b"cardledger/1/redis"


class MessageKey:
    """Signs and verifies; safe to share between threads."""

    def __init__(self, secret_key: str | ServerKey) -> None:
        """Sign with the current server key; verify with each, while it is being rotated."""
        self._keys: Final = tuple(map(_derive, server_key(secret_key).all))

    def sign(self, place: str, content: bytes) -> bytes:
        """Return the signature of `content` at `place`, a key of Redis: 64 hexadecimal digits."""
        return _signature(self._keys[0], place, content)

    def verify(self, place: str, content: bytes, signature: bytes) -> bool:
        """Return whether `signature` is that of `content` at `place`, in constant time."""
        return any(
            hmac.compare_digest(_signature(key, place, content), signature) for key in self._keys
        )


def _derive(secret_key: str) -> bytes:
    hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_PURPOSE)
    return hkdf.derive(secret_key.encode())


def _signature(key: bytes, place: str, content: bytes) -> bytes:
    signed = place.encode() + b"\0" + content  # No name of ours holds a zero.
    return hmac.digest(key, signed, sha256).hex().encode()
