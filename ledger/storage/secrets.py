"""Uses of the server key: hashes of client secrets, encryption at rest, page cursors, cards.

The settings hold one key; each use has a key derived from it (HKDF-SHA-256), so that a leak of one
derived key does not endanger another.
"""

import hmac
import secrets
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MIN_KEY_LENGTH: Final = 32
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
# Part of the key derivation: changing it makes everything encrypted unreadable.
_DOMAIN: Final = b"cardledger/1/"


class SecretsError(Exception):
    """A value cannot be decrypted: it was encrypted with another server key, or changed."""


class KeyRing:
    """The keys derived from one server key; safe to share between threads.

    Raises: ValueError when the server key is shorter than 32 characters.
    """

    __slots__ = ("_card_key", "_cursor_key", "_hash_key", "_seal")

    def __init__(self, secret_key: str) -> None:
        if len(secret_key) < MIN_KEY_LENGTH:
            raise ValueError(f"the server key must have at least {MIN_KEY_LENGTH} characters")
        material = secret_key.encode()
        self._card_key: Final = _derive(material, b"card")
        self._hash_key: Final = _derive(material, b"hash")
        self._cursor_key: Final = _derive(material, b"cursor")
        self._seal: Final = AESGCM(_derive(material, b"seal"))

    def hash_secret(self, secret: str) -> bytes:
        """Return the stored hash of `secret`: 32 bytes.

        Only for generated secrets: a keyed hash does not protect a password.
        """
        return hmac.digest(self._hash_key, secret.encode(errors="surrogatepass"), sha256)

    def verify_secret(self, secret: str, digest: bytes) -> bool:
        """Return whether `digest` is the hash of `secret`, in constant time."""
        return hmac.compare_digest(self.hash_secret(secret), digest)

    def encrypt(self, plain: bytes) -> bytes:
        """Return `plain` encrypted: a random nonce, then the AES-256-GCM ciphertext and its tag."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._seal.encrypt(nonce, plain, None)

    def decrypt(self, sealed: bytes) -> bytes:
        """Return the plaintext of what `encrypt` returned.

        Raises: SecretsError when it was encrypted with another key, or changed since.
        """
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._seal.decrypt(nonce, text, None)
        except (InvalidTag, ValueError):  # ValueError: too short for a ciphertext.
            raise SecretsError(
                "cannot decrypt: CARDLEDGER_SECRET_KEY is not the key that encrypted it"
            ) from None

    def card_digest(self, payload: bytes) -> bytes:
        """Return the 32 bytes that a card's number is derived from; `payload` determines them."""
        return hmac.digest(self._card_key, payload, sha256)

    def sign_cursor(self, payload: bytes) -> bytes:
        """Return a short authentication tag for a page cursor."""
        return hmac.digest(self._cursor_key, payload, sha256)[:_TAG_BYTES]

    def verify_cursor(self, payload: bytes, tag: bytes) -> bool:
        """Return whether `tag` authenticates `payload`, in constant time."""
        return hmac.compare_digest(self.sign_cursor(payload), tag)


def _derive(material: bytes, purpose: bytes) -> bytes:
    hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_DOMAIN + purpose)
    return hkdf.derive(material)
