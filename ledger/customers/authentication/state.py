"""The customer that authenticates, what it has proved, and its lock after failed attempts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import refusals
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.ports import CodeSender
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.customers import CONTACT_REGIONS

FAILURE_LIMIT: Final = 5
"""Failed attempts in a row, after which the customer is locked."""

LOCK_TIME: Final = timedelta(minutes=30)

_STATE: Final = tables.customer_authentication.c
_CUSTOMER: Final = tables.customers.c
_PASSKEYS: Final = tables.authentication_passkeys.c
_HAS_PASSKEY: Final = (
    select(_PASSKEYS.enrolled_at.isnot(None))
    .where(_PASSKEYS.id == _STATE.id)
    .scalar_subquery()
    .label("has_passkey")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The customer, as far as authentication is concerned."""

    id: Id
    platform_id: Id
    region: str | None
    email: str | None
    phone_number: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a customer has proved: the columns of its locked row."""

    person: Person
    verified_email: str | None
    verified_phone: str | None
    totp_secret: bytes | None
    totp_enrolled_at: datetime | None
    totp_step: int | None
    recovery_hashes: bytes
    failed_attempts: int
    locked_until: datetime | None
    session_expires_at: datetime | None
    has_passkey: bool

    @property
    def has_email(self) -> bool:
        """Whether the customer's present e-mail address is verified."""
        return self.verified_email is not None and self.verified_email == self.person.email

    @property
    def has_phone(self) -> bool:
        """Whether the customer's present phone number is verified."""
        return self.verified_phone is not None and self.verified_phone == self.person.phone_number


async def find(
    connection: AsyncConnection, platform_id: Id, customer_id: Id, *, hold: bool = False
) -> Person | None:
    """Return the platform's customer; None when it has no such customer, or has deleted it.

    With `hold`, for what writes: it is not deleted before the database transaction ends, and its
    row is locked before its state, as the deletion does it.
    """
    query = select(_CUSTOMER.region, _CUSTOMER.email, _CUSTOMER.phone_number).where(
        _CUSTOMER.id == customer_id,
        _CUSTOMER.platform_id == platform_id,
        ~_CUSTOMER.is_deleted,
    )
    rows = await connection.execute(
        query.with_for_update(read=True, key_share=True) if hold else query
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return Person(
        id=customer_id,
        platform_id=platform_id,
        region=row.region,
        email=row.email,
        phone_number=row.phone_number,
    )


def is_required(person: Person, sender: CodeSender | None) -> bool:
    """Return whether the customer has to authenticate: by its region, and where codes are sent."""
    return sender is not None and person.region in CONTACT_REGIONS


async def locked_state(connection: AsyncConnection, person: Person, at: datetime) -> State:
    """Return the customer's state, locked until the database transaction ends."""
    await connection.execute(
        insert(tables.customer_authentication)
        .values(id=person.id, platform_id=person.platform_id, updated_at=at)
        .on_conflict_do_nothing(index_elements=[_STATE.id])
    )
    return await _read(connection, person, lock=True)


async def read_state(connection: AsyncConnection, person: Person) -> State:
    """Return the customer's state as it is now, without a lock."""
    return await _read(connection, person, lock=False)


async def _read(connection: AsyncConnection, person: Person, *, lock: bool) -> State:
    query = select(
        _STATE.verified_email,
        _STATE.verified_phone,
        _STATE.totp_secret,
        _STATE.totp_enrolled_at,
        _STATE.totp_step,
        _STATE.recovery_hashes,
        _STATE.failed_attempts,
        _STATE.locked_until,
        _STATE.session_expires_at,
        _HAS_PASSKEY,
    ).where(_STATE.id == person.id, _STATE.platform_id == person.platform_id)
    rows = await connection.execute(query.with_for_update() if lock else query)
    row = rows.one_or_none()
    fields: Mapping[str, Any] = {} if row is None else dict(row._mapping)  # noqa: SLF001 - public
    return State(
        person=person,
        verified_email=fields.get("verified_email"),
        verified_phone=fields.get("verified_phone"),
        totp_secret=fields.get("totp_secret"),
        totp_enrolled_at=fields.get("totp_enrolled_at"),
        totp_step=fields.get("totp_step"),
        recovery_hashes=fields.get("recovery_hashes") or b"",
        failed_attempts=fields.get("failed_attempts", 0),
        locked_until=fields.get("locked_until"),
        session_expires_at=fields.get("session_expires_at"),
        has_passkey=bool(fields.get("has_passkey")),
    )


async def write(connection: AsyncConnection, state: State, at: datetime, **columns: object) -> None:
    """Change columns of a state that is locked."""
    await connection.execute(
        tables.customer_authentication.update()
        .where(_STATE.id == state.person.id, _STATE.platform_id == state.person.platform_id)
        .values(**columns, updated_at=at)
    )


# --- the lock after failed attempts --------------------------------------------------------------


def lock_of(state: State, at: datetime) -> Refused | None:
    """Return the refusal of a customer who is locked at `at`; None: it is not."""
    if state.locked_until is None or state.locked_until <= at:
        return None
    return refusals.locked(until=state.locked_until, failed_attempts=state.failed_attempts)


async def fail(connection: AsyncConnection, state: State, at: datetime) -> Refused | None:
    """Count a failed attempt; the refusal when it is the one that locks the customer."""
    is_over = state.locked_until is not None and state.locked_until <= at
    failed = 1 if is_over else state.failed_attempts + 1
    until = at + LOCK_TIME if failed >= FAILURE_LIMIT else None
    await write(connection, state, at, failed_attempts=failed, locked_until=until)
    if until is None:
        return None
    return refusals.locked(until=until, failed_attempts=failed)


def attempts_left(state: State, at: datetime) -> int:
    """Return how many attempts a customer has after one more failure, until it is locked."""
    is_over = state.locked_until is not None and state.locked_until <= at
    return FAILURE_LIMIT - 1 - (0 if is_over else state.failed_attempts)


async def forget(connection: AsyncConnection, *, customer_id: Id) -> None:
    """Delete all that a customer has proved, when the customer is deleted."""
    for table in (tables.authentication_challenges, tables.authentication_resets):
        await connection.execute(table.delete().where(table.c.customer_id == customer_id))
    for table in (tables.authentication_passkeys, tables.customer_authentication):
        await connection.execute(table.delete().where(table.c.id == customer_id))
