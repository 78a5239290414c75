"""Contact verification: a customer's e-mail address and phone number, by a code sent to each.

What was verified is stored as it was: another address or number is not verified.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import codes, refusals, state
from cardledger.ledger.customers.authentication.codes import Purpose, SentFactor
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person, State
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import (
    Channel,
    ContactStatus,
    ContactVerification,
)
from cardledger.schema.wire.customers.customers import CONTACT_REGIONS

_PURPOSES: Final[Mapping[Channel, Purpose]] = {"EMAIL": "VERIFY_EMAIL", "PHONE": "VERIFY_PHONE"}
_FACTORS: Final[Mapping[Channel, SentFactor]] = {"EMAIL": "EMAIL_OTP", "PHONE": "SMS_OTP"}
_NAMES: Final[Mapping[Channel, str]] = {"EMAIL": "e-mail address", "PHONE": "phone number"}
_COLUMNS: Final[Mapping[Channel, str]] = {"EMAIL": "verified_email", "PHONE": "verified_phone"}
_STATE: Final = tables.customer_authentication.c


async def start(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    channel: Channel,
    keys: KeyRing,
    sender: CodeSender | None,
    at: datetime,
) -> Refused | None:
    """Send a code to the customer's e-mail address or phone; None: it was sent."""
    if sender is None or not state.is_required(person, sender):
        return refusals.NOT_REQUIRED
    before = await state.locked_state(connection, person, at)
    contact, refused = _unverified(before, channel)
    if contact is None:
        return refused
    sent = await codes.send(
        connection,
        person=person,
        purpose=_PURPOSES[channel],
        subject=contact,
        factor=_FACTORS[channel],
        address=contact,
        keys=keys,
        sender=sender,
        at=at,
    )
    return sent if isinstance(sent, Refused) else None


async def confirm(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    channel: Channel,
    code: str,
    keys: KeyRing,
    sender: CodeSender | None,
    at: datetime,
) -> Refused | None:
    """Check the code; None: the contact is verified from now on.

    A wrong one counts towards the customer's lock.
    """
    if not state.is_required(person, sender):
        return refusals.NOT_REQUIRED
    before = await state.locked_state(connection, person, at)
    contact, refused = _unverified(before, channel)
    if contact is None:
        return refused
    # Else five codes an hour, of five guesses each, could be guessed without an end.
    if locked := state.lock_of(before, at):
        return locked
    refused = await codes.answer(
        connection,
        person=person,
        purposes=[_PURPOSES[channel]],
        subject=contact,
        challenge_id=None,
        code=code,
        keys=keys,
        at=at,
    )
    if refused is None:
        await codes.give_up(connection, person=person, factor=_FACTORS[channel], at=at)
        await state.write(connection, before, at, **{_COLUMNS[channel]: contact})
    elif refused.has_counted:
        await state.fail(connection, before, at)
    return refused


def _unverified(before: State, channel: Channel) -> tuple[str | None, Refused | None]:
    """Return the contact that is to be verified, or why there is none."""
    is_email = channel == "EMAIL"
    contact = before.person.email if is_email else before.person.phone_number
    name = _NAMES[channel]
    if contact is None:
        return None, refusals.conflict(
            "NO_CONTACT", f"The customer has no {name}; set it with PATCH /customers first."
        )
    if before.has_email if is_email else before.has_phone:
        return None, refusals.conflict(
            "ALREADY_VERIFIED", f"The customer's {name} is already verified."
        )
    return contact, None


async def of_customers(
    connection: AsyncConnection, people: Collection[Person]
) -> Mapping[Id, ContactVerification]:
    """Return which contacts are verified, of the customers whose region requires it."""
    required = {person.id: person for person in people if person.region in CONTACT_REGIONS}
    if not required:
        return {}
    rows = await connection.execute(
        select(_STATE.id, _STATE.verified_email, _STATE.verified_phone).where(
            _STATE.id.in_(required)
        )
    )
    found = {row.id: row for row in rows}
    return {
        key: ContactVerification(
            email=_status(person.email, getattr(found.get(key), "verified_email", None)),
            phone=_status(person.phone_number, getattr(found.get(key), "verified_phone", None)),
        )
        for key, person in required.items()
    }


def _status(contact: str | None, verified: str | None) -> ContactStatus | None:
    if contact is None:
        return None
    return "VERIFIED" if contact == verified else "PENDING"


async def are_verified(connection: AsyncConnection, person: Person) -> bool:
    """Return whether both contacts are verified, or need not be."""
    if person.region not in CONTACT_REGIONS:
        return True
    now = await state.read_state(connection, person)
    return now.has_email and now.has_phone
