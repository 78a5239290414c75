"""The factors of a customer, and challenges that a factor answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import codes, passkeys, refusals, state
from cardledger.ledger.customers.authentication.codes import Challenge, Purpose, SentFactor
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import State
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a customer answers: a code, or the assertion of a passkey and the page's origin.

    `challenge_id` None: to the last challenge.
    """

    challenge_id: Id | None = None
    code: str | None = None
    assertion: Mapping[str, Any] | None = None
    origin: str | None = None


def of(now: State) -> list[str]:
    """Return the factors that the customer can use."""
    has = {
        "SMS_OTP": now.has_phone,
        "EMAIL_OTP": now.has_email,
        "TOTP": now.totp_enrolled_at is not None,
        "PASSKEY": now.has_passkey,
    }
    return [factor for factor, is_there in has.items() if is_there]


def unavailable(factor: str) -> Refused:
    """Return the refusal of a factor that the customer does not have."""
    what = {
        "SMS_OTP": "no verified phone number; verify it with POST /customers/{id}/verify-phone",
        "EMAIL_OTP": "no verified e-mail address; verify it with POST /customers/{id}/verify-email",
        "TOTP": "no authenticator; enrol one with POST /sca/factors",
        "PASSKEY": "no passkey; enrol one with POST /sca/factors",
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


async def challenge(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    before: State,
    purpose: Purpose,
    subject: str,
    keys: KeyRing,
    sender: CodeSender,
    party: RelyingParty | None,
    at: datetime,
) -> ScaChallengeResource | Refused:
    """Begin a challenge for one payment or one account: a code by SMS, a passkey, or either.

    Both are linked to the subject, as a code of an authenticator cannot be.
    """
    sent: Challenge | None = None
    if before.has_phone or party is None or not before.has_passkey:
        result = await send_code(
            connection,
            before=before,
            purpose=purpose,
            subject=subject,
            factor="SMS_OTP",
            keys=keys,
            sender=sender,
            at=at,
        )
        if isinstance(result, Refused):
            return result
        sent = result
    ceremony = None
    if party is not None and before.has_passkey:
        ceremony = await passkeys.begin_assertion(
            connection,
            person=before.person,
            purpose=purpose,
            subject=subject,
            party=party,
            at=at,
            challenge_id=None if sent is None else sent.id,
        )
    available = [] if sent is None else ["SMS_OTP"]
    if ceremony is not None:
        available.append("PASSKEY")
    begun = sent or ceremony
    assert begun is not None
    return ScaChallengeResource(
        id=begun.id,
        expires_at=begun.expires_at,
        factor=available[0],
        available_factors=available,
        purpose=purpose,
        passkey_assertion_options=None if ceremony is None else dict(ceremony.options),
        passkey_allowed_origins=(
            None if ceremony is None or party is None else list(party.origins)
        ),
    )


def challenge_of(challenge: Challenge) -> ScaChallengeResource:
    """Return the resource of a challenge whose code was sent by SMS."""
    return ScaChallengeResource(
        id=challenge.id,
        expires_at=challenge.expires_at,
        factor=challenge.factor,
        available_factors=[challenge.factor],
        purpose=challenge.purpose,
    )


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    before: State,
    purposes: Sequence[str],
    subject: str,
    proof: Proof,
    keys: KeyRing,
    party: RelyingParty | None,
    at: datetime,
    factor: str | None = None,
) -> Refused | None:
    """Check the answer to a challenge; a wrong one counts towards the customer's lock."""
    if locked := state.lock_of(before, at):
        return locked
    if proof.assertion is not None:
        if party is None:
            return refusals.NO_PASSKEYS
        refused = await passkeys.answer(
            connection,
            person=before.person,
            purposes=tuple(purposes),
            subject=subject,
            challenge_id=proof.challenge_id,
            origin=proof.origin,
            assertion=proof.assertion,
            party=party,
            at=at,
        )
        if refused is None:
            await codes.end(
                connection, person=before.person, purposes=purposes, subject=subject, at=at
            )
    elif proof.code is not None:
        refused = await codes.answer(
            connection,
            person=before.person,
            purposes=purposes,
            subject=subject,
            challenge_id=proof.challenge_id,
            code=proof.code,
            keys=keys,
            at=at,
            # A code for a phone that was lost, or is not the customer's any more, is no answer.
            factors=of(before) if factor is None else [factor],
        )
    else:
        return refusals.invalid("code", "REQUIRED", "is required, or passkeyAssertion and origin")
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
    field = refused.field or "code"
    wrong = refusals.invalid(field, "WRONG_CODE", "is wrong", attemptsLeft=left)
    return replace(locked or wrong, has_counted=True)
