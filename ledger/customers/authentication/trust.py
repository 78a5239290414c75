"""Trusted external accounts: payments of their customer to them need no challenge."""

from datetime import datetime
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.authentication import factors, state
from cardledger.ledger.customers.authentication.factors import Proof
from cardledger.ledger.customers.authentication.passkeys import RelyingParty
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.ports import CodeSender
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.authentication import ScaChallengeResource

_ACCOUNTS: Final = tables.external_accounts.c

_log = structlog.get_logger()


async def owner_of(
    connection: AsyncConnection, *, platform_id: Id, account_id: Id
) -> Id | bool | None:
    """Return the customer of an external account, None of the platform's; False: no such one."""
    rows = await connection.execute(
        select(_ACCOUNTS.customer_id).where(
            _ACCOUNTS.id == account_id,
            _ACCOUNTS.platform_id == platform_id,
            _ACCOUNTS.deleted_at.is_(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return False
    owner: Id | None = row.customer_id
    return owner


async def is_trusted(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, account_id: Id
) -> bool:
    """Return whether the customer trusts the account; only its own ones can be trusted."""
    trusted_at = await connection.scalar(
        select(_ACCOUNTS.trusted_at).where(
            _ACCOUNTS.id == account_id,
            _ACCOUNTS.platform_id == platform_id,
            _ACCOUNTS.customer_id == customer_id,
        )
    )
    return trusted_at is not None


async def start(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    account_id: Id,
    trusted: bool,
    keys: KeyRing,
    sender: CodeSender,
    party: RelyingParty | None,
    at: datetime,
) -> ScaChallengeResource | Refused | None:
    """Begin the challenge that trusts the account, or ends the trust; None: it is so already."""
    before = await state.locked_state(connection, person, at)
    is_so = await is_trusted(
        connection, platform_id=person.platform_id, customer_id=person.id, account_id=account_id
    )
    if is_so == trusted:
        return None
    return await factors.challenge(
        connection,
        before=before,
        purpose="TRUST" if trusted else "UNTRUST",
        subject=public_id("ExternalAccount", account_id),
        keys=keys,
        sender=sender,
        party=party,
        at=at,
    )


async def confirm(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    person: Person,
    account_id: Id,
    trusted: bool,
    proof: Proof,
    keys: KeyRing,
    party: RelyingParty | None,
    at: datetime,
) -> Refused | None:
    """Check the answer; None: the account is trusted from now on, or not any more."""
    before = await state.locked_state(connection, person, at)
    refused = await factors.answer(
        connection,
        before=before,
        purposes=["TRUST" if trusted else "UNTRUST"],
        subject=public_id("ExternalAccount", account_id),
        proof=proof,
        keys=keys,
        party=party,
        at=at,
    )
    if refused is not None:
        return refused
    await connection.execute(
        tables.external_accounts.update()
        .where(_ACCOUNTS.id == account_id, _ACCOUNTS.platform_id == person.platform_id)
        .values(trusted_at=at if trusted else None, updated_at=at)
    )
    _log.info(
        "external account trusted" if trusted else "external account not trusted any more",
        audit=True,
        customer=public_id("Customer", person.id),
        account=public_id("ExternalAccount", account_id),
        at=at.isoformat(),
    )
    return None
