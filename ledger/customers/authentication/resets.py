"""Resets of lost factors: the customer proves by another way that it is itself."""

from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import factors, refusals, state
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person, State
from cardledger.ledger.ports import IdentityVerifier
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.authentication import ScaReset, ScaResetStarted

LIFETIME: Final = timedelta(hours=24)
LIMIT: Final = 5
"""Resets that a customer may start in `LIFETIME`."""

_KEPT: Final = timedelta(days=30)
_OPEN: Final = frozenset({"INITIATED", "PENDING_REVIEW", "LIVENESS_PASSED"})
_RESETS: Final = tables.authentication_resets.c

_log = structlog.get_logger()


async def start(
    connection: AsyncConnection,
    *,
    person: Person,
    factor: str,
    verifier: IdentityVerifier,
    at: datetime,
) -> ScaResetStarted | Refused:
    """Start the reset of a factor that the customer has."""
    before = await state.locked_state(connection, person, at)
    if factor == "EMAIL_OTP":
        message = "must be SMS_OTP or TOTP; another e-mail address is set with PATCH /customers"
        return refusals.invalid("factor", "NOT_RESETTABLE", message)
    if factor == "PASSKEY":
        message = (
            "must be SMS_OTP or TOTP; delete a passkey with DELETE /sca/factors/{credentialId}"
        )
        return refusals.invalid("factor", "NOT_RESETTABLE", message)
    if factor not in factors.of(before):
        return factors.unavailable(factor)
    recent = select(func.count(), func.min(_RESETS.created_at)).where(
        _RESETS.customer_id == person.id, _RESETS.created_at > at - LIFETIME
    )
    count, oldest = (await connection.execute(recent)).one()
    if count >= LIMIT:
        message = f"The customer has started {LIMIT} resets within 24 hours, the maximum; wait."
        return refusals.too_many(message, at=at, until=oldest + LIFETIME)
    await connection.execute(
        tables.authentication_resets.delete().where(
            _RESETS.customer_id == person.id, _RESETS.created_at < at - _KEPT
        )
    )
    liveness = verifier.check_liveness(person.id)
    key = new_id()
    await connection.execute(
        tables.authentication_resets.insert().values(
            id=key,
            platform_id=person.platform_id,
            customer_id=person.id,
            factor=factor,
            status=liveness.status,
            created_at=at,
            expires_at=at + LIFETIME,
        )
    )
    _audit("reset of a factor started", person, factor, at)
    return ScaResetStarted(reset_id=key, verification_link=liveness.link, expires_at=at + LIFETIME)


async def get(
    connection: AsyncConnection, *, person: Person, reset_id: Id, at: datetime
) -> ScaReset | None:
    """Return a reset of the customer; None: there is no such reset."""
    row = (await connection.execute(_query(person, reset_id))).one_or_none()
    if row is None:
        return None
    now = await state.read_state(connection, person)
    return ScaReset(
        status=_status(row, at),
        factor=row.factor,
        enrollment_status="ENROLLED" if _is_enrolled(row, now) else "PENDING",
        expires_at=row.expires_at,
        completed_at=row.completed_at,
    )


async def complete(
    connection: AsyncConnection,
    *,
    person: Person,
    reset_id: Id,
    phone_number: str | None,
    at: datetime,
) -> Refused | bool:
    """Take the lost factor away; False: there is no such reset.

    The new phone of an `SMS_OTP` factor becomes the customer's and has to be verified. An
    authenticator is enrolled anew. The customer's session ends.
    """
    before = await state.locked_state(connection, person, at)
    row = (await connection.execute(_query(person, reset_id).with_for_update())).one_or_none()
    if row is None:
        return False
    status = _status(row, at)
    if status != "LIVENESS_PASSED":
        message = f"The reset is {status}; only one that is LIVENESS_PASSED can be completed."
        return refusals.conflict("RESET_NOT_READY", message)
    is_sms = row.factor == "SMS_OTP"
    if is_sms != (phone_number is not None):
        message = "is required for SMS_OTP" if is_sms else f"is not allowed for {row.factor}"
        return refusals.invalid("mobile", "MOBILE", message)
    if is_sms:
        customer = tables.customers.c
        await connection.execute(
            tables.customers.update()
            .where(customer.id == person.id, customer.platform_id == person.platform_id)
            .values(phone_number=phone_number, updated_at=at)
        )
    lost = (
        {"verified_phone": None}
        if is_sms
        else {
            "totp_secret": None,
            "totp_enrolled_at": None,
            "totp_step": None,
            "recovery_hashes": None,
        }
    )
    await state.write(connection, before, at, **lost, session_expires_at=None)
    await connection.execute(
        tables.authentication_resets.update()
        .where(_RESETS.id == reset_id)
        .values(status="COMPLETED", completed_at=at)
    )
    _audit("reset of a factor completed", person, row.factor, at)
    return True


def _query(person: Person, reset_id: Id) -> Any:  # noqa: ANN401 - a statement
    return select(_RESETS.factor, _RESETS.status, _RESETS.expires_at, _RESETS.completed_at).where(
        _RESETS.id == reset_id,
        _RESETS.customer_id == person.id,
        _RESETS.platform_id == person.platform_id,
    )


def _status(row: Row[*tuple[Any, ...]], at: datetime) -> Any:  # noqa: ANN401 - of the table
    return "EXPIRED" if row.status in _OPEN and row.expires_at <= at else row.status


def _is_enrolled(row: Row[*tuple[Any, ...]], now: State) -> bool:
    """Return whether the factor has been replaced since the reset was completed."""
    if row.completed_at is None:
        return False
    if row.factor == "SMS_OTP":
        return now.has_phone
    return now.totp_enrolled_at is not None


def _audit(action: str, person: Person, factor: str, at: datetime) -> None:
    customer = public_id("Customer", person.id)
    _log.info(action, audit=True, customer=customer, factor=factor, at=at.isoformat())
