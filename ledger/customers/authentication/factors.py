"""The factors of a customer, and challenges that a factor answers."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import codes, refusals, state
from cardledger.ledger.customers.authentication.codes import Challenge, Purpose, SentFactor
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import State
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource

PER_PAYMENT: Final = ("SMS_OTP",)
"""The factors of a challenge for one payment or one account: a code that is linked to it."""


def of(now: State) -> list[str]:
    """Return the factors that the customer can use."""
    has = {
        "SMS_OTP": now.has_phone,
        "EMAIL_OTP": now.has_email,
        "TOTP": now.totp_enrolled_at is not None,
    }
    return [factor for factor, is_there in has.items() if is_there]


def unavailable(factor: str) -> Refused:
    """Return the refusal of a factor that the customer does not have."""
    what = {
        "SMS_OTP": "no verified phone number; verify it with POST /customers/{id}/verify-phone",
        "EMAIL_OTP": "no verified e-mail address; verify it with POST /customers/{id}/verify-email",
        "TOTP": "no authenticator; enrol one with POST /sca/factors",
    }[factor]
    return refusals.conflict("FACTOR_UNAVAILABLE", f"The customer has {what}.")


async def send_code(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    before: State,
    purpose: Purpose,
    subject: str,
    factor: SentFactor,
    keys: KeyRing,
    sender: CodeSender,
    at: datetime,
) -> Challenge | Refused:
    """Send a code by `factor`, whose contact must be verified."""
    is_sms = factor == "SMS_OTP"
    address = before.verified_phone if is_sms else before.verified_email
    if address is None or factor not in of(before):
        return unavailable(factor)
    return await codes.send(
        connection,
        person=before.person,
        purpose=purpose,
        subject=subject,
        factor=factor,
        address=address,
        keys=keys,
        sender=sender,
        at=at,
    )


def challenge_of(challenge: Challenge) -> ScaChallengeResource:
    """Return the resource of a challenge for one payment or one account."""
    return ScaChallengeResource(
        id=challenge.id,
        expires_at=challenge.expires_at,
        factor=challenge.factor,
        available_factors=list(PER_PAYMENT),
        purpose=challenge.purpose,
    )


async def answer_code(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    before: State,
    purposes: Collection[str],
    subject: str,
    challenge_id: Id | None,
    code: str,
    keys: KeyRing,
    at: datetime,
    factor: str | None = None,
) -> Refused | None:
    """Check the answer to a challenge; a wrong one counts towards the customer's lock."""
    if locked := state.lock_of(before, at):
        return locked
    refused = await codes.answer(
        connection,
        person=before.person,
        purposes=purposes,
        subject=subject,
        challenge_id=challenge_id,
        code=code,
        keys=keys,
        at=at,
        factor=factor,
    )
    return await counted(connection, before, refused, at)


async def counted(
    connection: AsyncConnection, before: State, refused: Refused | None, at: datetime
) -> Refused | None:
    """Count the result of an attempt, and return its refusal, or that of the lock it has led to."""
    if refused is None:
        await state.write(connection, before, at, failed_attempts=0, locked_until=None)
        return None
    if refused.details.get("reason") != "WRONG_CODE":
        return refused
    left = state.attempts_left(before, at)
    locked = await state.fail(connection, before, at)
    wrong = refusals.invalid("code", "WRONG_CODE", "is wrong", attemptsLeft=left)
    return replace(locked or wrong, has_counted=True)
