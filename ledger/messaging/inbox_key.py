"""The key with which the processes of an installation sign rows that others of them act on.

Those are rows of the inbox and of rejections, and the terms of quotes and of payments. It is
derived from the server key (HKDF-SHA-256), so that a leak of one does not endanger the other. Who
can write to the database, and does not have the server key, cannot have a message decided, nor a
rejection retried, nor a payment carried out.
Source: docs/decisions/0049-macs-of-the-inbox.md
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from hashlib import blake2b
from hmac import compare_digest
from json import dumps
from struct import Struct
from typing import Any, Final

from cardledger.ledger.storage.secrets.key_ring import ServerKey, derive, server_key
from cardledger.schema.ids import Id

_PURPOSE: Final = b"inbox"
_MAC_BYTES: Final = 16

Columns = tuple[int, int, Id, Id, Id, str, str, str, bytes, str | None, datetime]
"""The columns of the inbox before the MAC in their order, as `_content` names them."""

RejectionColumns = tuple[Id, Id, Id, str | None, str | None, str, str, str | None, datetime]
"""The columns of `rejections` in their order, as `_content_of_rejection` names them."""

_REJECTION: Final = b"rejection"  # Sets its MAC apart from that of a message.


class Signed(Enum):
    """Whose terms are signed; its value sets their MAC apart from those of other rows."""

    QUOTE = b"quote"
    PAYMENT = b"payment"


_fixed: Final = Struct(">BB16s16s16sd").pack


class InboxKey:
    """Signs and verifies rows of the inbox and others; safe to share between threads."""

    __slots__ = ("_keyed", "_keyed_for_rejections", "_keyed_for_terms")

    def __init__(self, secret_key: str | ServerKey) -> None:
        """Sign with the current server key; verify with each, while it is being rotated."""
        keys = [derive(each.encode(), _PURPOSE) for each in server_key(secret_key).all]
        # Copied for every row, which is faster than keying the hash again.
        self._keyed: Final = tuple(blake2b(key=key, digest_size=_MAC_BYTES) for key in keys)
        self._keyed_for_rejections: Final = tuple(
            blake2b(key=key, digest_size=_MAC_BYTES, person=_REJECTION) for key in keys
        )
        self._keyed_for_terms: Final = {
            signed: tuple(
                blake2b(key=key, digest_size=_MAC_BYTES, person=signed.value) for key in keys
            )
            for signed in Signed
        }

    def mac(self, columns: Columns) -> bytes:
        """Return the MAC of a row: 16 bytes, keyed BLAKE2b over all of its columns."""
        return _mac(self._keyed[0], _content(columns[0], columns[1:]))

    def verify_all(self, lane: int, rows: Sequence[tuple[Any, ...]]) -> list[bool]:
        """Return of each of `rows` whether its MAC is right with any of the keys, in constant time.

        Shape: rows of the inbox without `lane`, which is theirs; the MAC is the last column.
        """
        return [self._is_verified(row[-1], _content(lane, row[:-1])) for row in rows]

    def _is_verified(self, mac: bytes | None, content: bytes) -> bool:
        if mac is None:
            return False
        # Nearly always by the first, the current key; a generator costs as much as the MAC.
        for keyed in self._keyed:  # noqa: SIM110
            if compare_digest(mac, _mac(keyed, content)):
                return True
        return False

    def is_of_current_key(self, mac: bytes, columns: Columns) -> bool:
        """Return whether `mac` is that of a row with the current server key."""
        return compare_digest(mac, self.mac(columns))

    def mac_of_rejection(self, columns: RejectionColumns) -> bytes:
        """Return the MAC of a row of `rejections`: 16 bytes, over all of its columns."""
        return _mac(self._keyed_for_rejections[0], _content_of_rejection(columns))

    def verifies_rejection(self, mac: bytes, columns: RejectionColumns) -> bool:
        """Return whether `mac` is that of a rejection with any of the keys, in constant time."""
        content = _content_of_rejection(columns)
        return any(
            compare_digest(mac, _mac(keyed, content)) for keyed in self._keyed_for_rejections
        )

    def mac_of_terms(self, signed: Signed, terms: Mapping[str, Any]) -> bytes:
        """Return the MAC of `terms`, the columns of a quote or payment that never change."""
        return _mac(self._keyed_for_terms[signed][0], _content_of_terms(terms))

    def verifies_terms(self, signed: Signed, mac: bytes | None, terms: Mapping[str, Any]) -> bool:
        """Return whether `mac` is that of `terms` with any of the keys, in constant time."""
        if mac is None:
            return False
        content = _content_of_terms(terms)
        return any(
            compare_digest(mac, _mac(keyed, content)) for keyed in self._keyed_for_terms[signed]
        )

    def are_of_current_key(self, signed: Signed, mac: bytes, terms: Mapping[str, Any]) -> bool:
        """Return whether `mac` is that of `terms` with the current server key."""
        return compare_digest(mac, self.mac_of_terms(signed, terms))


def _mac(keyed: blake2b, content: bytes) -> bytes:
    copied = keyed.copy()
    copied.update(content)
    return copied.digest()


def _content(lane: int, columns: tuple[Any, ...]) -> bytes:
    """Return the bytes that are signed: `lane` and the `columns` after it.

    `body` is the text of the JSON; `received_at` counts to the microsecond, in any zone.
    """
    (
        shard,
        key,
        customer_id,
        platform_id,
        source,
        reference,
        body,
        body_hash,
        reply_to,
        received_at,
    ) = columns
    # Unambiguous: of fixed length, then texts, which have no zero in PostgreSQL, then the rest.
    texts = f"{source}\0{reference}\0{reply_to or ''}\0{body}\0"
    fixed = _fixed(lane, shard, key, customer_id, platform_id, received_at.timestamp())
    signed: bytes = fixed + texts.encode() + body_hash
    return signed


def _content_of_rejection(columns: RejectionColumns) -> bytes:
    """Return the bytes that are signed: JSON, which keeps texts and their absence apart.

    Rejections are rare, so it need not be fast. `recorded_at` counts to the microsecond.
    """
    *ids, source, reference, body, reason, detail, recorded_at = columns
    digits = [each.hex() for each in ids]
    at = recorded_at.astimezone(UTC).isoformat()
    return dumps([*digits, source, reference, body, reason, detail, at]).encode()


def _content_of_terms(terms: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: JSON by name, without what is null.

    So a release that knows another column signs the same, as long as it is null.
    """
    present = {name: value for name, value in terms.items() if value is not None}
    return dumps(present, default=_as_json, sort_keys=True).encode()


def _as_json(value: object) -> object:
    if isinstance(value, bytes):  # An id, too.
        return value.hex()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"cannot be signed: {type(value).__name__}")
