"""Payments of customers who have to authenticate: whether one needs a challenge, and its answer.

A challenge is linked to one payment, its subject (PSD2, dynamic linking): an answer to it
authorizes no other payment.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import codes, factors, refusals, state, trust
from cardledger.ledger.customers.authentication.factors import Proof
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource

PaymentPurpose = Literal["CURRENCY_CONVERSION", "PAYOUT", "TRANSFER"]

PURPOSES: Final = ("CURRENCY_CONVERSION", "PAYOUT", "TRANSFER")
"""What a challenge for a payment may authorize."""


async def is_required(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    external_account_id: Id | None,
    sender: CodeSender | None,
) -> bool:
    """Return whether a payment of the customer needs a challenge.

    It does when the customer has to authenticate and the external account that it goes to is not
    trusted; `external_account_id` None: it goes somewhere that cannot be trusted.
    """
    person = await state.find(connection, platform_id, customer_id)
    if person is None or not state.is_required(person, sender):
        return False
    if external_account_id is None:
        return True
    return not await trust.is_trusted(
        connection,
        platform_id=platform_id,
        customer_id=customer_id,
        account_id=external_account_id,
    )


async def challenge(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    subject: str,
    purpose: PaymentPurpose,
    keys: KeyRing,
    sender: CodeSender,
    at: datetime,
    party: RelyingParty | None = None,
) -> ScaChallengeResource | Refused:
    """Begin the challenge that authorizes the payment `subject`, a public id.

    It replaces an earlier one. With a relying party, the customer's passkey answers it as well.

    Refused while the customer is locked, has no verified phone, or has had too many codes.
    """
    person = await state.find(connection, platform_id, customer_id, hold=True)
    if person is None:
        return refusals.conflict("NO_CUSTOMER", "The customer is deleted.")
    before = await state.locked_state(connection, person, at)
    if locked := state.lock_of(before, at):
        return locked
    return await factors.challenge(
        connection,
        before=before,
        purpose=purpose,
        subject=subject,
        keys=keys,
        sender=sender,
        party=party,
        at=at,
    )


async def open_challenge(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, subject: str, at: datetime
) -> ScaChallengeResource | None:
    """Return the open challenge for the payment `subject`; None: there is none."""
    person = await state.find(connection, platform_id, customer_id)
    if person is None:
        return None
    found = await codes.latest(connection, person=person, purposes=PURPOSES, subject=subject, at=at)
    return None if found is None else factors.challenge_of(found)


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    subject: str,
    challenge_id: Id | None,
    code: str | None,
    keys: KeyRing,
    at: datetime,
    passkey_assertion: Mapping[str, Any] | None = None,
    origin: str | None = None,
    party: RelyingParty | None = None,
) -> Refused | None:
    """Check the answer to the challenge for the payment `subject`; None: authorized, once.

    A refusal has counted a failed attempt: commit it.
    """
    person = await state.find(connection, platform_id, customer_id, hold=True)
    if person is None:
        return refusals.conflict("NO_CUSTOMER", "The customer is deleted.")
    before = await state.locked_state(connection, person, at)
    return await factors.answer(
        connection,
        before=before,
        purposes=PURPOSES,
        subject=subject,
        proof=Proof(
            challenge_id=challenge_id, code=code, assertion=passkey_assertion, origin=origin
        ),
        keys=keys,
        party=party,
        at=at,
    )
