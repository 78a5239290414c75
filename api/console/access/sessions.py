"""Sessions: a signed cookie that names an API token, and dies with the token's secret.

The cookie holds no secret of the API, and nothing is stored: each request looks the token up. It
ends after twelve hours, at the log-out, and with the token: when that is deleted or expires, or
when the secret that the session began with counts no more.
"""

import binascii
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose

LIFETIME: Final = timedelta(hours=12)
"""How long a session lasts."""

_MAX_COOKIE: Final = 1_024  # Characters; ours have about 300.
_MAX_FORM_TOKEN: Final = 100
_NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session: the token by its client id, and the stamp of the secret that it began with."""

    client_id: str
    stamp: bytes
    nonce: str
    expires_at: datetime


def begin(client_id: str, stamp: bytes, *, at: datetime) -> Session:
    """Return a new session."""
    return Session(
        client_id=client_id,
        stamp=stamp,
        nonce=secrets.token_urlsafe(_NONCE_BYTES),
        expires_at=at + LIFETIME,
    )


def cookie_of(session: Session, keys: KeyRing) -> str:
    """Return the value of the cookie of `session`."""
    content = {
        "c": session.client_id,
        "s": session.stamp.hex(),
        "n": session.nonce,
        "e": int(session.expires_at.timestamp()),
    }
    text = _encoded(json.dumps(content, separators=(",", ":")).encode())
    return f"{text}.{_encoded(keys.hash_secret(_signed(text), Purpose.CONSOLE_SESSION))}"


def session_in(cookie: str, keys: KeyRing, *, at: datetime) -> Session | None:
    """Return the session of a cookie; None when it was not issued here, or has ended."""
    if len(cookie) > _MAX_COOKIE or not cookie.isascii():
        return None
    text, _, tag = cookie.partition(".")
    if not keys.presented(_signed(text), Purpose.CONSOLE_SESSION).proves(_decoded(tag)):
        return None
    content = json.loads(_decoded(text))  # It is what `cookie_of` has signed.
    session = Session(
        client_id=content["c"],
        stamp=bytes.fromhex(content["s"]),
        nonce=content["n"],
        expires_at=datetime.fromtimestamp(content["e"], UTC),
    )
    return session if at < session.expires_at else None


def form_token(session: Session, keys: KeyRing) -> str:
    """Return what the forms of `session` send back, which no other site can know."""
    return _encoded(keys.hash_secret(_of_form(session), Purpose.CONSOLE_FORM))


def is_form_token(sent: str, session: Session, keys: KeyRing) -> bool:
    """Return whether a form of `session` has sent `sent`, in constant time."""
    return _is_token(sent, _of_form(session), keys)


def tag_of(text: str, session: Session, keys: KeyRing) -> str:
    """Return what proves in an address that the console has written `text` for `session`.

    `text` begins with a word that says what it is for.
    """
    return _encoded(keys.hash_secret(_of_address(text, session), Purpose.CONSOLE_FORM))


def is_tag(sent: str, text: str, session: Session, keys: KeyRing) -> bool:
    """Return whether `sent` is the `tag_of` a text, in constant time."""
    return _is_token(sent, _of_address(text, session), keys)


# The purpose is in the text, too: hashes as releases before schema 0018 read them have no other.
def _signed(text: str) -> str:
    return f"console session {text}"


def _of_form(session: Session) -> str:
    return f"console form {session.nonce}"


def _of_address(text: str, session: Session) -> str:
    return f"console address {session.nonce} {text}"


def _is_token(sent: str, text: str, keys: KeyRing) -> bool:
    if len(sent) > _MAX_FORM_TOKEN or not sent.isascii():
        return False
    return keys.presented(text, Purpose.CONSOLE_FORM).proves(_decoded(sent))


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
