"""Passkeys (WebAuthn): one a customer, enrolled and used with the user's verification.

The library `fido2` verifies registrations and assertions; attestations are not requested. A
customer has one open challenge of a passkey at a time, and a later one replaces it.
Source: https://www.w3.org/TR/webauthn-3/
"""

import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestationConveyancePreference,
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialDescriptor,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialType,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import refusals, state
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

LIFETIME: Final = timedelta(minutes=5)
MAX_CREDENTIAL_ID: Final = 1023
"""Bytes; the largest that the standard allows."""

ENROLMENT: Final = "ENROL"
_CHALLENGE_BYTES: Final = 32
_VERIFIED: Final = UserVerificationRequirement.REQUIRED
_PASSKEYS: Final = tables.authentication_passkeys.c


@dataclass(frozen=True, slots=True, kw_only=True)
class RelyingParty:
    """For whom passkeys are: a domain, and the origins of the pages that use them there."""

    id: str
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    """An enrolled passkey of a customer."""

    credential_id: bytes
    credential: bytes
    sign_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceremony:
    """What a browser needs to create or to use a passkey, and until when it may answer."""

    id: Id
    options: Mapping[str, Any]
    expires_at: datetime


async def of(connection: AsyncConnection, person: Person) -> Passkey | None:
    """Return the customer's passkey; None: it has none."""
    rows = await connection.execute(
        select(_PASSKEYS.credential_id, _PASSKEYS.credential, _PASSKEYS.sign_count).where(
            _PASSKEYS.id == person.id,
            _PASSKEYS.platform_id == person.platform_id,
            _PASSKEYS.enrolled_at.isnot(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return Passkey(
        credential_id=row.credential_id, credential=row.credential, sign_count=row.sign_count
    )


def public_id(credential_id: bytes) -> str:
    """Return the `credentialId` of the interface: Base64url, as browsers write it."""
    return urlsafe_b64encode(credential_id).rstrip(b"=").decode()


async def begin_enrolment(
    connection: AsyncConnection,
    *,
    person: Person,
    name: str,
    party: RelyingParty,
    at: datetime,
) -> Ceremony | Refused:
    """Return the options to create a passkey for the platform `name`."""
    await state.locked_state(connection, person, at)
    if await of(connection, person) is not None:
        return refusals.PASSKEY_ENROLLED
    user = PublicKeyCredentialUserEntity(
        name=person.email or person.phone_number or str(person.id),
        id=bytes(person.id),
        display_name=person.email or str(person.id),
    )
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    options, _ = _server(party, name).register_begin(
        user,
        resident_key_requirement=ResidentKeyRequirement.PREFERRED,
        user_verification=_VERIFIED,
        challenge=challenge,
    )
    about = ENROLMENT, "", new_id()
    return await _challenged(connection, person, (challenge, options), about, at)


async def enrol(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    origin: str | None,
    credential: Mapping[str, Any],
    party: RelyingParty,
    at: datetime,
) -> Passkey | Refused:
    """Verify a new passkey and enrol it."""
    await state.locked_state(connection, person, at)
    if await of(connection, person) is not None:
        return refusals.PASSKEY_ENROLLED
    challenge = await _use_challenge(
        connection, person, at, purposes=(ENROLMENT,), subject="", challenge_id=None
    )
    if challenge is None:
        return refusals.invalid("credential", "CODE_EXPIRED", "answers no open challenge")
    data = _verified(
        lambda: (
            _server(party, "", origin)
            .register_complete(_state_of(challenge), credential)
            .credential_data
        )
    )
    if data is None or len(data.credential_id) > MAX_CREDENTIAL_ID:
        return refusals.invalid("credential", "WRONG_PASSKEY", "is not a valid new passkey")
    made = Passkey(credential_id=bytes(data.credential_id), credential=bytes(data), sign_count=0)
    await connection.execute(
        tables.authentication_passkeys.update()
        .where(_PASSKEYS.id == person.id, _PASSKEYS.platform_id == person.platform_id)
        .values(
            credential_id=made.credential_id,
            credential=made.credential,
            sign_count=0,
            enrolled_at=at,
            updated_at=at,
        )
    )
    return made


async def begin_assertion(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    purpose: str,
    subject: str,
    party: RelyingParty,
    at: datetime,
    challenge_id: Id | None = None,
) -> Ceremony | None:
    """Return the options to use the customer's passkey; None: it has none.

    With `challenge_id`, as another way to answer that challenge.
    """
    passkey = await of(connection, person)
    if passkey is None:
        return None
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    options, _ = _server(party, "").authenticate_begin(
        [
            PublicKeyCredentialDescriptor(
                type=PublicKeyCredentialType.PUBLIC_KEY, id=passkey.credential_id
            )
        ],
        user_verification=_VERIFIED,
        challenge=challenge,
    )
    about = purpose, subject, challenge_id or new_id()
    return await _challenged(connection, person, (challenge, options), about, at)


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    purposes: tuple[str, ...],
    subject: str,
    challenge_id: Id | None,
    origin: str | None,
    assertion: Mapping[str, Any],
    party: RelyingParty,
    at: datetime,
) -> Refused | None:
    """Verify the use of the customer's passkey; None: it is right. The caller holds the state."""
    passkey = await of(connection, person)
    challenge = await _use_challenge(
        connection, person, at, purposes=purposes, subject=subject, challenge_id=challenge_id
    )
    if passkey is None or challenge is None:
        message = "answers no open challenge: none was started, or it expired or was used"
        return refusals.invalid("passkeyAssertion", "CODE_EXPIRED", message)
    count = _verified(lambda: _asserted(passkey, challenge, assertion, party, origin))
    # A counter that goes back belongs to a copy of the passkey; passkeys that are synchronized
    # have none, which is always 0.
    if count is None or (count <= passkey.sign_count and (count or passkey.sign_count)):
        return refusals.invalid(
            "passkeyAssertion", "WRONG_CODE", "is not of the customer's passkey"
        )
    await connection.execute(
        tables.authentication_passkeys.update()
        .where(_PASSKEYS.id == person.id, _PASSKEYS.platform_id == person.platform_id)
        .values(sign_count=count, updated_at=at)
    )
    return None


async def delete(
    connection: AsyncConnection, *, person: Person, credential_id: str, at: datetime
) -> bool:
    """Delete the customer's passkey of this `credentialId`; returns whether there was one."""
    await state.locked_state(connection, person, at)
    passkey = await of(connection, person)
    if passkey is None or public_id(passkey.credential_id) != credential_id.rstrip("="):
        return False
    await connection.execute(
        tables.authentication_passkeys.delete().where(
            _PASSKEYS.id == person.id, _PASSKEYS.platform_id == person.platform_id
        )
    )
    return True


def _asserted(
    passkey: Passkey,
    challenge: bytes,
    assertion: Mapping[str, Any],
    party: RelyingParty,
    origin: str | None,
) -> int:
    """Return the counter of a verified assertion."""
    credential = AttestedCredentialData(passkey.credential)
    response = AuthenticationResponse.from_dict(assertion)
    _server(party, "", origin).authenticate_complete(_state_of(challenge), [credential], response)
    return int(response.response.authenticator_data.counter)


def _verified(verify: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever `verify` returns
    """Return what `verify` returns; None when it fails: it reads what a stranger has sent."""
    try:
        return verify()
    except Exception:  # noqa: BLE001 - of JSON, CBOR, keys and signatures; each means: not valid
        return None


def _server(party: RelyingParty, name: str, origin: str | None = None) -> Fido2Server:
    """Return the verifier for `party`; with `origin`, for that page of its pages only."""
    allowed = party.origins if origin is None else {origin} & set(party.origins)
    entity = PublicKeyCredentialRpEntity(name=name or party.id, id=party.id)
    return Fido2Server(
        entity,
        attestation=AttestationConveyancePreference.NONE,
        verify_origin=lambda found: found in allowed,
    )


def _state_of(challenge: bytes) -> dict[str, str]:
    return {"challenge": public_id(challenge), "user_verification": _VERIFIED.value}


async def _challenged(
    connection: AsyncConnection,
    person: Person,
    begun: tuple[bytes, Mapping[str, Any]],
    about: tuple[str, str, Id],
    at: datetime,
) -> Ceremony:
    """Store the challenge `about` a purpose and a subject in the place of an earlier one."""
    (challenge, options), (purpose, subject, key) = begun, about
    values = {
        "challenge_id": key,
        "challenge": challenge,
        "challenge_purpose": purpose,
        "challenge_subject": subject,
        "challenge_expires_at": at + LIFETIME,
        "updated_at": at,
    }
    await connection.execute(
        insert(tables.authentication_passkeys)
        .values(id=person.id, platform_id=person.platform_id, sign_count=0, **values)
        .on_conflict_do_update(index_elements=[_PASSKEYS.id], set_=values)
    )
    return Ceremony(
        id=key,
        options=json.loads(json.dumps(dict(options)))["publicKey"],
        expires_at=at + LIFETIME,
    )


async def _use_challenge(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    person: Person,
    at: datetime,
    *,
    purposes: tuple[str, ...],
    subject: str,
    challenge_id: Id | None,
) -> bytes | None:
    """Return the open challenge, which is used up whatever the answer is; None: there is none."""
    open_one = [
        _PASSKEYS.id == person.id,
        _PASSKEYS.platform_id == person.platform_id,
        _PASSKEYS.challenge_purpose.in_(purposes),
        _PASSKEYS.challenge_subject == subject,
        _PASSKEYS.challenge_expires_at > at,
    ]
    if challenge_id is not None:
        open_one.append(_PASSKEYS.challenge_id == challenge_id)
    challenge: bytes | None = await connection.scalar(select(_PASSKEYS.challenge).where(*open_one))
    if challenge is not None:
        await connection.execute(
            tables.authentication_passkeys.update()
            .where(*open_one)
            .values(challenge=None, challenge_expires_at=None, updated_at=at)
        )
    return challenge
