"""Uses of the server key: hashes of client secrets, encryption at rest, page cursors, cards.

The settings hold the key; each use has a key derived from it (HKDF-SHA-256), so that a leak of one
derived key does not endanger another. During a rotation a process knows several server keys: the
current one seals and signs, each of them opens and verifies (docs/keys.md).

Shape: of a sealed value: format 1 (1 byte), id of the server key (4), nonce (12), ciphertext and
tag of AES-256-GCM. Of a hash: format 1 (1), id of the server key (4), HMAC-SHA-256 (32). Releases
before schema 0018 wrote both without the first five bytes, and bound to nothing.
Source: docs/decisions/0044-secrets-are-bound.md
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LOST_WITHIN: Final = timedelta(minutes=10)
"""A secret that is rotated again so soon was lost: its response did not arrive."""

MIN_KEY_LENGTH: Final = 32
HEADER_BYTES: Final = 5
"""The first bytes of a sealed value and of a hash: the format and the id of the server key."""

_FORMAT: Final = b"\x01"
_KEY_BYTES: Final = 32
_KEY_ID_BYTES: Final = HEADER_BYTES - len(_FORMAT)
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_DIGEST_BYTES: Final = 32
# Part of the key derivation: changing it makes everything encrypted unreadable.
_DOMAIN: Final = b"cardledger/1/"


class SecretsError(Exception):
    """A value cannot be decrypted: another server key sealed it, or it was changed or moved."""


@dataclass(frozen=True, slots=True, repr=False)
class ServerKey:
    """The server key of an installation, and during a rotation the keys before and after it.

    `former` has the oldest key last. With `binds` false, values are written as releases before
    schema 0018 read them. Without a `repr`, so that no log can show the keys.
    """

    current: str
    former: tuple[str, ...] = ()
    next: str | None = None
    binds: bool = True

    @property
    def all(self) -> tuple[str, ...]:
        """Every key, the current one first."""
        return (self.current, *self.former, *((self.next,) if self.next is not None else ()))


def server_key(given: str | ServerKey) -> ServerKey:
    """Return `given` as a server key: a text is a key without others."""
    return ServerKey(given) if isinstance(given, str) else given


@dataclass(frozen=True, slots=True)
class Location:
    """Where a sealed value is stored; it opens nowhere else.

    `row` identifies the row among those of the platform.
    """

    table: str
    column: str
    platform_id: bytes
    row: bytes

    def __str__(self) -> str:
        """Return table and column."""
        return f"{self.table}.{self.column}"

    @property
    def associated_data(self) -> bytes:
        """What a sealed value is bound to; no two locations have the same."""
        # Names have no zero byte, and all ids have the same length.
        return b"\0".join((self.table.encode(), self.column.encode(), self.platform_id + self.row))


class Purpose(StrEnum):
    """What a secret is for: part of its hash, so that a hash serves no other purpose."""

    API_TOKEN = "API token"  # noqa: S105 - a name
    AGENT = "access token of an agent"
    DEVICE_CODE = "device code"
    CARD_PAGE = "card page"
    CARD_VIEWER = "first viewer of a card page"
    LOOK_UP = "look-up of a receiver"
    KYC_PAGE = "page of a verification"
    ONE_TIME_CODE = "one-time code"
    RECOVERY_CODE = "recovery code"
    CONSOLE_TICKET = "ticket of the console"
    CONSOLE_SESSION = "session of the console"
    CONSOLE_FORM = "form of the console"


class _DerivedKeys:
    """The keys derived from one server key."""

    __slots__ = ("card", "cursor", "hash", "header", "seal", "unbound_hash", "unbound_seal")

    def __init__(self, secret_key: str) -> None:
        if len(secret_key) < MIN_KEY_LENGTH:
            raise ValueError(f"the server key must have at least {MIN_KEY_LENGTH} characters")
        material = secret_key.encode()
        self.header: Final = _FORMAT + derive(material, b"key id")[:_KEY_ID_BYTES]
        self.card: Final = derive(material, b"card")
        self.cursor: Final = derive(material, b"cursor")
        self.hash: Final = derive(material, b"bound hash")
        self.seal: Final = AESGCM(derive(material, b"bound seal"))
        self.unbound_hash: Final = derive(material, b"hash")
        self.unbound_seal: Final = AESGCM(derive(material, b"seal"))


class PresentedSecret:
    """A secret that a caller has presented, with what it is for; compares with stored hashes."""

    __slots__ = ("_bound", "_keys", "_secret", "digest")

    def __init__(
        self,
        keys: Sequence[_DerivedKeys],
        bound: bytes,
        secret: str,
        binds: bool,  # noqa: FBT001 - by position: once for each request
    ) -> None:
        self._keys: Final = keys
        self._bound: Final = bound
        self._secret: Final = secret
        self.digest: Final = (
            _bound_hash(keys[0], bound) if binds else _unbound_hash(keys[0], secret)
        )
        """Its hash under the current key: what is stored."""

    def proves(self, stored: bytes) -> bool:
        """Return whether `stored` is the hash of this secret, in constant time."""
        if hmac.compare_digest(self.digest, stored):  # Nearly always: one computation.
            return True
        return any(hmac.compare_digest(other, stored) for other in self._others(stored))

    def is_current(self, stored: bytes) -> bool:
        """Return whether `stored` has the format and the key of new hashes."""
        return _is_bound(stored) and stored.startswith(self._keys[0].header)

    @property
    def candidates(self) -> list[bytes]:
        """Every hash under which this secret may be stored, for a query."""
        bound = [_bound_hash(keys, self._bound) for keys in self._keys]
        return bound + [_unbound_hash(keys, self._secret) for keys in self._keys]

    def _others(self, stored: bytes) -> list[bytes]:
        """Return the hashes that a stored one of another key or an earlier release may equal."""
        if _is_bound(stored):
            owners = [keys for keys in self._keys if stored.startswith(keys.header)]
            return [_bound_hash(keys, self._bound) for keys in owners]
        return [_unbound_hash(keys, self._secret) for keys in self._keys]


class KeyRing:
    """The keys derived from the server key; safe to share between threads.

    Raises: ValueError when a server key is shorter than 32 characters.
    """

    __slots__ = ("_binds", "_card_key", "_cursor_keys", "_keys", "is_rotating")

    def __init__(self, secret_key: str | ServerKey) -> None:
        given = server_key(secret_key)
        self._keys: Final = tuple(map(_DerivedKeys, given.all))
        self._cursor_keys: Final = tuple(keys.cursor for keys in self._keys)
        # The oldest key that is known, until `adopt_card_key`: see docs/decisions/0014.
        self._card_key = self._keys[len(given.former)].card
        self._binds: Final = given.binds
        self.is_rotating: Final = bool(given.former) and given.binds
        """Whether values of a former key are to be replaced."""

    @property
    def header(self) -> bytes:
        """The first bytes of what the current key seals and hashes."""
        return self._keys[0].header

    @property
    def headers(self) -> list[bytes]:
        """The first bytes of what each key seals and hashes, the current key first."""
        return [keys.header for keys in self._keys]

    def hash_secret(self, secret: str, purpose: Purpose, client: str = "") -> bytes:
        """Return the hash of `secret` to be stored; it proves nothing for another `client`.

        Only for generated secrets: a keyed hash does not protect a password.
        """
        return self.presented(secret, purpose, client).digest

    def presented(self, secret: str, purpose: Purpose, client: str = "") -> PresentedSecret:
        """Return a secret that a caller presents as that of `client`."""
        # The length keeps a client and a secret from running into each other.
        bound = f"{purpose.value}\0{len(client)}\0{client}{secret}".encode(errors="surrogatepass")
        return PresentedSecret(self._keys, bound, secret, self._binds)

    def encrypt(self, plain: bytes, location: Location) -> bytes:
        """Return `plain` sealed with the current key; it opens at `location` only."""
        keys = self._keys[0]
        nonce = secrets.token_bytes(_NONCE_BYTES)
        if not self._binds:
            return nonce + keys.unbound_seal.encrypt(nonce, plain, None)
        bound = keys.header + location.associated_data
        return keys.header + nonce + keys.seal.encrypt(nonce, plain, bound)

    def decrypt(self, sealed: bytes, location: Location) -> bytes:
        """Return the plaintext of what was sealed for `location`, with any of the keys.

        A value of a release before schema 0018, which is bound to nothing, opens as well; with a
        key that no such release has used there are none.
        Raises: SecretsError when another key sealed it, or it was changed or moved since.
        """
        header, text = sealed[:HEADER_BYTES], sealed[HEADER_BYTES:]
        for keys in self._keys:
            if keys.header == header:
                opened = _open(keys.seal, text, header + location.associated_data)
                if opened is not None:
                    return opened
        # The nonce of an unbound value may begin as a header does, once in 2^40 values.
        for keys in self._keys:
            opened = _open(keys.unbound_seal, sealed, None)
            if opened is not None:
                return opened
        raise SecretsError(
            f"cannot decrypt {location}: CARDLEDGER_SECRET_KEY is not the key that encrypted it,"
            " or the value was changed or moved"
        )

    @property
    def card_key(self) -> bytes:
        """The key of card numbers, which a rotation keeps."""
        return self._card_key

    def adopt_card_key(self, card_key: bytes) -> None:
        """Derive card numbers with `card_key` from now on."""
        self._card_key = card_key

    def card_digest(self, payload: bytes) -> bytes:
        """Return the 32 bytes that a card's number is derived from; `payload` determines them."""
        return hmac.digest(self._card_key, payload, sha256)

    def sign_cursor(self, payload: bytes) -> bytes:
        """Return a short authentication tag for a page cursor."""
        return _cursor_tag(self._cursor_keys[0], payload)

    def verify_cursor(self, payload: bytes, tag: bytes) -> bool:
        """Return whether `tag` authenticates `payload`, in constant time."""
        return any(hmac.compare_digest(_cursor_tag(key, payload), tag) for key in self._cursor_keys)


def derive(material: bytes, purpose: bytes) -> bytes:
    """Return the key of 32 bytes that the server key `material` yields for `purpose` only."""
    hkdf = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_DOMAIN + purpose)
    return hkdf.derive(material)


def _is_bound(digest: bytes) -> bool:
    return len(digest) == HEADER_BYTES + _DIGEST_BYTES


def _bound_hash(keys: _DerivedKeys, bound: bytes) -> bytes:
    return keys.header + hmac.digest(keys.hash, bound, sha256)


def _unbound_hash(keys: _DerivedKeys, secret: str) -> bytes:
    text = secret.encode(errors="surrogatepass")
    return hmac.digest(keys.unbound_hash, text, sha256)


def _cursor_tag(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, payload, sha256)[:_TAG_BYTES]


def _open(seal: AESGCM, sealed: bytes, bound: bytes | None) -> bytes | None:
    """Return the plaintext; None when it was sealed with another key or for another location."""
    try:
        return seal.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):  # ValueError: too short for a ciphertext.
        return None
