"""One-time codes: sent, bounded in number and time, answered once. Only their hashes are stored."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import refusals
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.key_ring import Purpose as SecretPurpose
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import Channel

Purpose = Literal[
    "VERIFY_EMAIL",
    "VERIFY_PHONE",
    "LOGIN",
    "TRUST",
    "UNTRUST",
    "CURRENCY_CONVERSION",
    "PAYOUT",
    "TRANSFER",
]
SentFactor = Literal["SMS_OTP", "EMAIL_OTP"]

CONTACTS: Final[Collection[Purpose]] = ("VERIFY_EMAIL", "VERIFY_PHONE")
"""Purposes of contact verification; the others authenticate."""

LIFETIME: Final = timedelta(minutes=5)
ATTEMPT_LIMIT: Final = 5
"""Wrong answers, after which a code is not accepted any more."""

WINDOW: Final = timedelta(hours=1)
CONTACT_LIMIT: Final = 5
"""Codes of one purpose that a contact gets within the window."""

CODE_LIMIT: Final = 30
"""Codes that a customer gets within the window to authenticate, for whatever purpose."""

_KEPT: Final = timedelta(days=1)
_CHANNELS: Final[dict[str, Channel]] = {"SMS_OTP": "PHONE", "EMAIL_OTP": "EMAIL"}
_CHALLENGES: Final = tables.authentication_challenges.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A code that was sent, for what, and until when it is accepted."""

    id: Id
    purpose: str
    factor: str
    expires_at: datetime


async def send(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    purpose: Purpose,
    subject: str,
    factor: SentFactor,
    address: str,
    keys: KeyRing,
    sender: CodeSender,
    at: datetime,
) -> Challenge | Refused:
    """Send a code to `address`; an earlier one for the same is not accepted any more.

    The caller has locked the customer's state.
    """
    if refused := await _refused_by_number(connection, person, purpose, at):
        return refused
    await connection.execute(
        tables.authentication_challenges.delete().where(
            _CHALLENGES.customer_id == person.id, _CHALLENGES.created_at < at - _KEPT
        )
    )
    await connection.execute(
        tables.authentication_challenges.update()
        .where(
            _CHALLENGES.customer_id == person.id,
            _CHALLENGES.purpose == purpose,
            _CHALLENGES.subject == subject,
            _CHALLENGES.ended_at.is_(None),
        )
        .values(ended_at=at)
    )
    challenge = Challenge(id=new_id(), purpose=purpose, factor=factor, expires_at=at + LIFETIME)
    code = sender.new_code()
    await connection.execute(
        tables.authentication_challenges.insert().values(
            id=challenge.id,
            platform_id=person.platform_id,
            customer_id=person.id,
            purpose=purpose,
            subject=subject,
            factor=factor,
            code_hash=keys.hash_secret(code, SecretPurpose.ONE_TIME_CODE, str(challenge.id)),
            created_at=at,
            expires_at=challenge.expires_at,
        )
    )
    sender.send(_CHANNELS[factor], address, code)
    return challenge


async def _refused_by_number(
    connection: AsyncConnection, person: Person, purpose: Purpose, at: datetime
) -> Refused | None:
    is_contact = purpose in CONTACTS
    purposes = [purpose] if is_contact else None
    limit = CONTACT_LIMIT if is_contact else CODE_LIMIT
    of_purpose = (
        _CHALLENGES.purpose.in_(purposes) if purposes else _CHALLENGES.purpose.not_in(CONTACTS)
    )
    recent = select(func.count(), func.min(_CHALLENGES.created_at)).where(
        _CHALLENGES.customer_id == person.id, _CHALLENGES.created_at > at - WINDOW, of_purpose
    )
    count, oldest = (await connection.execute(recent)).one()
    if count < limit:
        return None
    message = (
        f"The customer has had {limit} codes within an hour, the maximum; wait, or use the last."
    )
    return refusals.too_many(message, at=at, until=oldest + WINDOW)


async def latest(
    connection: AsyncConnection,
    *,
    person: Person,
    purposes: Collection[str],
    subject: str,
    at: datetime,
) -> Challenge | None:
    """Return the open challenge about `subject`; None: there is none."""
    row = (await connection.execute(_open(person, purposes, subject, at))).first()
    if row is None:
        return None
    return Challenge(id=row.id, purpose=row.purpose, factor=row.factor, expires_at=row.expires_at)


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    purposes: Collection[str],
    subject: str,
    challenge_id: Id | None,
    code: str,
    keys: KeyRing,
    at: datetime,
    factors: Collection[str] | None = None,
) -> Refused | None:
    """Check the answer to an open challenge, by default the last; None: right, and used up.

    With `factors`, only to one that was sent by one of them. The caller has locked the customer's
    state.
    """
    query = _open(person, purposes, subject, at)
    if challenge_id is not None:
        query = query.where(_CHALLENGES.id == challenge_id)
    if factors is not None:
        query = query.where(_CHALLENGES.factor.in_(factors))
    row = (await connection.execute(query)).first()
    if row is None:
        field = "challengeId" if challenge_id is not None else "code"
        message = "belongs to no open challenge: none was started, or it expired or was used"
        return refusals.invalid(field, "CODE_EXPIRED", message)
    presented = keys.presented(code, SecretPurpose.ONE_TIME_CODE, str(row.id))
    is_right = presented.proves(row.code_hash)
    attempts = row.attempts + (0 if is_right else 1)
    is_over = is_right or attempts >= ATTEMPT_LIMIT
    await connection.execute(
        tables.authentication_challenges.update()
        .where(_CHALLENGES.id == row.id)
        .values(attempts=attempts, ended_at=at if is_over else None)
    )
    if is_right:
        return None
    left = ATTEMPT_LIMIT - attempts
    message = "is wrong" if left else "is wrong, and too many were; request another code"
    wrong = refusals.invalid("code", "WRONG_CODE", message, attemptsLeft=left)
    return replace(wrong, has_counted=True)


async def end(
    connection: AsyncConnection,
    *,
    person: Person,
    purposes: Collection[str],
    subject: str,
    at: datetime,
) -> None:
    """Let no code for `subject` be accepted any more: it was authorized in another way."""
    await connection.execute(
        tables.authentication_challenges.update()
        .where(
            _CHALLENGES.customer_id == person.id,
            _CHALLENGES.platform_id == person.platform_id,
            _CHALLENGES.purpose.in_(purposes),
            _CHALLENGES.subject == subject,
            _CHALLENGES.ended_at.is_(None),
        )
        .values(ended_at=at)
    )


async def give_up(
    connection: AsyncConnection, *, person: Person, factor: SentFactor, at: datetime
) -> None:
    """Let no code that was sent by `factor` be accepted any more: it may be to another address."""
    await connection.execute(
        tables.authentication_challenges.update()
        .where(
            _CHALLENGES.customer_id == person.id,
            _CHALLENGES.platform_id == person.platform_id,
            _CHALLENGES.factor == factor,
            _CHALLENGES.ended_at.is_(None),
        )
        .values(ended_at=at)
    )


def _open(
    person: Person, purposes: Collection[str], subject: str, at: datetime
) -> Select[*tuple[Id, str, str, datetime, bytes, int]]:
    return (
        select(
            _CHALLENGES.id,
            _CHALLENGES.purpose,
            _CHALLENGES.factor,
            _CHALLENGES.expires_at,
            _CHALLENGES.code_hash,
            _CHALLENGES.attempts,
        )
        .where(
            _CHALLENGES.customer_id == person.id,
            _CHALLENGES.platform_id == person.platform_id,
            _CHALLENGES.purpose.in_(purposes),
            _CHALLENGES.subject == subject,
            _CHALLENGES.ended_at.is_(None),
            _CHALLENGES.expires_at > at,
        )
        .order_by(_CHALLENGES.created_at.desc(), _CHALLENGES.id.desc())
        .limit(1)
    )
