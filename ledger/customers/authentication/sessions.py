"""Logins by strong customer authentication: start, complete, and what the platform reports."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import factors, passkeys, refusals, state, totp
from cardledger.ledger.customers.authentication.codes import Challenge, SentFactor
from cardledger.ledger.customers.authentication.factors import Proof
from cardledger.ledger.customers.authentication.passkeys import Ceremony, RelyingParty
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.authentication import EventType, ScaLock

SESSION_TIME: Final = timedelta(days=180)

_SENT: Final[dict[str, SentFactor]] = {"SMS_OTP": "SMS_OTP", "EMAIL_OTP": "EMAIL_OTP"}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a customer answers in a login, by which factor and from where."""

    factor: str
    proof: Proof
    ip_address: str


async def start(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    factor: str,
    keys: KeyRing,
    sender: CodeSender,
    party: RelyingParty | None,
    at: datetime,
) -> Challenge | Ceremony | Refused | None:
    """Begin the challenge of a login; None for a factor that has none."""
    before = await state.locked_state(connection, person, at)
    if factor == "PASSKEY" and party is None:
        return refusals.NO_PASSKEYS
    if factor not in factors.of(before):
        return factors.unavailable(factor)
    if factor == "PASSKEY" and party is not None:
        return await passkeys.begin_assertion(
            connection, person=person, purpose="LOGIN", subject="", party=party, at=at
        )
    if factor not in _SENT:
        return None
    return await factors.send_code(
        connection,
        before=before,
        purpose="LOGIN",
        subject="",
        factor=_SENT[factor],
        keys=keys,
        sender=sender,
        at=at,
    )


async def complete(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    answer: Answer,
    keys: KeyRing,
    sender: CodeSender,
    party: RelyingParty | None,
    at: datetime,
) -> datetime | Refused:
    """Check the answer of a login; returns the end of the session, which lasts 180 days."""
    before = await state.locked_state(connection, person, at)
    if locked := state.lock_of(before, at):
        return locked
    if answer.factor not in factors.of(before):
        return factors.unavailable(answer.factor)
    if answer.factor != "TOTP":
        refused = await factors.answer(
            connection,
            before=before,
            purposes=["LOGIN"],
            subject="",
            proof=answer.proof,
            keys=keys,
            party=party,
            at=at,
            factor=answer.factor,
        )
    else:
        code = answer.proof.code or ""
        is_right = await totp.answer(
            connection, before=before, code=code, keys=keys, sender=sender, at=at
        )
        wrong = None if is_right else refusals.invalid("code", "WRONG_CODE", "is wrong")
        refused = await factors.counted(connection, before, wrong, at)
    if refused is not None:
        _audit("login of a customer refused", person, answer, at)
        return refused
    expires_at = at + SESSION_TIME
    await state.write(connection, before, at, session_expires_at=expires_at)
    _audit("login of a customer", person, answer, at)
    return expires_at


async def record(
    connection: AsyncConnection, *, person: Person, event_type: EventType, at: datetime
) -> ScaLock | Refused:
    """Record what happened in the platform's own login.

    A failed login counts as a wrong code does. A new password ends the session and the count of
    failed attempts, not a lock.
    """
    before = await state.locked_state(connection, person, at)
    if locked := state.lock_of(before, at):
        return locked
    if event_type == "FAILED_LOGIN_ATTEMPT":
        await state.fail(connection, before, at)
    else:
        await state.write(
            connection,
            before,
            at,
            failed_attempts=0,
            locked_until=None,
            session_expires_at=None,
        )
    now = await state.read_state(connection, person)
    return ScaLock(
        event_type=event_type,
        suspended=state.lock_of(now, at) is not None,
        locked_until=now.locked_until,
        failed_attempts=now.failed_attempts,
    )


def _audit(action: str, person: Person, answer: Answer, at: datetime) -> None:
    """Log the login, its factor and the end user's address, and nothing that is secret."""
    _log.info(
        action,
        audit=True,
        customer=public_id("Customer", person.id),
        factor=answer.factor,
        address=answer.ip_address,
        at=at.isoformat(),
    )
