"""Authenticator applications: codes of RFC 6238 (SHA-1, six digits, 30 seconds), recovery codes."""

import hmac
import secrets
from base64 import b32encode
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import refusals, state
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person, State
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.ledger.storage.secrets.sealed_columns import TOTP_SECRET
from cardledger.schema.wire.customers.authentication import TotpEnrolment

STEP_S: Final = 30
RECOVERY_CODE_COUNT: Final = 10

_DIGITS: Final = 6
_SECRET_BYTES: Final = 20  # As many as SHA-1 has, which RFC 4226 recommends.
_DRIFT: Final = 1  # Steps that a clock may be wrong.
_HASH_BYTES: Final = 37
# People type them in: no letter that looks like a digit. 50 random bits.
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_GROUPS: Final = 2
_GROUP_LENGTH: Final = 5


async def enrol(
    connection: AsyncConnection,
    *,
    person: Person,
    issuer: str,
    keys: KeyRing,
    at: datetime,
) -> TotpEnrolment | Refused:
    """Make a secret, which `confirm` has to prove; an unproven one is replaced."""
    before = await state.locked_state(connection, person, at)
    if before.totp_enrolled_at is not None:
        message = (
            "The customer already has an authenticator; reset it with POST /sca/factors/reset."
        )
        return refusals.conflict("ALREADY_ENROLLED", message)
    secret = secrets.token_bytes(_SECRET_BYTES)
    location = TOTP_SECRET.of(person.platform_id, person.id)
    sealed = keys.encrypt(secret, location)
    await state.write(connection, before, at, totp_secret=sealed, totp_step=None)
    account = person.email or person.phone_number or str(person.id)
    return TotpEnrolment(
        secret=secret.hex(),
        secret_base32_encoded=b32encode(secret).decode(),
        totp_uri=_totp(secret).get_provisioning_uri(account, issuer),
    )


async def confirm(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    secret: str,
    code: str,
    keys: KeyRing,
    sender: CodeSender | None,
    at: datetime,
) -> list[str] | Refused:
    """Enrol the authenticator that shows `code`; returns recovery codes, which are not stored."""
    before = await state.locked_state(connection, person, at)
    if before.totp_enrolled_at is not None:
        message = "The customer's authenticator is already enrolled."
        return refusals.conflict("ALREADY_ENROLLED", message)
    if before.totp_secret is None:
        message = "No authenticator is being enrolled; start with POST /sca/factors."
        return refusals.conflict("NOT_STARTED", message)
    opened = keys.decrypt(before.totp_secret, TOTP_SECRET.of(person.platform_id, person.id))
    if not hmac.compare_digest(opened.hex().encode(), secret.lower().encode(errors="replace")):
        message = "is not the secret that POST /sca/factors has returned last"
        return refusals.invalid("secret", "WRONG_SECRET", message)
    step = _step_of(opened, code, at, after=None)
    if step is None and not _counts_anyway(code, sender):
        message = "is wrong: it is not the code that the authenticator shows now"
        return refusals.invalid("code", "WRONG_CODE", message)
    recovery_codes = [_new_recovery_code() for _ in range(RECOVERY_CODE_COUNT)]
    hashes = [
        keys.hash_secret(recovery, Purpose.RECOVERY_CODE, str(person.id))
        for recovery in recovery_codes
    ]
    await state.write(
        connection,
        before,
        at,
        totp_enrolled_at=at,
        totp_step=step,
        recovery_hashes=b"".join(hashes),
    )
    return recovery_codes


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    before: State,
    code: str,
    keys: KeyRing,
    sender: CodeSender | None,
    at: datetime,
) -> bool:
    """Return whether `code` is the authenticator's, or a recovery code; each counts once."""
    if before.totp_secret is None or before.totp_enrolled_at is None:
        return False
    person = before.person
    secret = keys.decrypt(before.totp_secret, TOTP_SECRET.of(person.platform_id, person.id))
    step = _step_of(secret, code, at, after=before.totp_step)
    if step is not None:
        await state.write(connection, before, at, totp_step=step)
        return True
    if _counts_anyway(code, sender):
        return True
    remaining = _without(before.recovery_hashes, code, person, keys)
    if remaining is None:
        return False
    await state.write(connection, before, at, recovery_hashes=remaining)
    return True


def _totp(secret: bytes) -> TOTP:
    return TOTP(secret, _DIGITS, SHA1(), STEP_S)  # noqa: S303 - of the standard, within HMAC


def _step_of(secret: bytes, code: str, at: datetime, *, after: int | None) -> int | None:
    """Return the period whose code `code` is, around `at` and later than `after`; None: none."""
    now = int(at.timestamp()) // STEP_S
    given = code.encode(errors="replace")
    found = None
    for step in range(now - _DRIFT, now + _DRIFT + 1):
        if hmac.compare_digest(_totp(secret).generate(step * STEP_S), given):
            found = step
    return None if found is None or (after is not None and found <= after) else found


def _counts_anyway(code: str, sender: CodeSender | None) -> bool:
    return sender is not None and sender.accepts_as_totp(code)


def _without(hashes: bytes, code: str, person: Person, keys: KeyRing) -> bytes | None:
    """Return `hashes` without that of the recovery code `code`; None: it is none of them."""
    presented = keys.presented(code.strip().upper(), Purpose.RECOVERY_CODE, str(person.id))
    stored = [hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)]
    kept = [one for one in stored if not presented.proves(one)]
    return None if len(kept) == len(stored) else b"".join(kept)


def _new_recovery_code() -> str:
    groups = (
        "".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_LENGTH)) for _ in range(_GROUPS)
    )
    return "-".join(groups)
