"""Challenges of external accounts by micro-deposits.

Two small amounts are paid to a PENDING account; who can name them receives its payments, and the
account becomes ACTIVE. Guesses are few: five for a challenge, three challenges within 30 days for
an account, however often its owner registers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import external_accounts
from cardledger.ledger.messaging import outbox
from cardledger.ledger.ports import AccountVerifier, NotConnectedError
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.challenges import ExternalAccountChallengeResource
from cardledger.schema.wire.customers.external_accounts import ExternalAccountResource
from cardledger.schema.wire.webhooks.envelope import WebhookType

ATTEMPT_LIMIT: Final = 5
"""The most wrong answers to a challenge."""

CHALLENGE_LIMIT: Final = 3
"""The most challenges of an account within `WINDOW`."""

WINDOW: Final = timedelta(days=30)

LIFETIME: Final = timedelta(days=7)

_PLATFORM: Final = Id(bytes(16))  # Whose webhooks are those of accounts without a customer.

_ACCOUNTS: Final = tables.external_accounts.c
_CHALLENGES: Final = tables.external_account_challenges.c


class ChallengeRefusal(StrEnum):
    """Why an account is not challenged, or an answer does not count."""

    NOT_PENDING = "NOT_PENDING"
    NO_DEPOSITS = "NO_DEPOSITS"
    CHALLENGE_OPEN = "CHALLENGE_OPEN"
    TOO_MANY_CHALLENGES = "TOO_MANY_CHALLENGES"
    NO_CHALLENGE = "NO_CHALLENGE"
    CHALLENGE_EXPIRED = "CHALLENGE_EXPIRED"
    CHALLENGE_LOCKED = "CHALLENGE_LOCKED"


class ChallengeRefusedError(Exception):
    """The request does not fit the account; nothing has been written."""

    def __init__(self, reason: ChallengeRefusal, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


@dataclass(frozen=True, slots=True)
class WrongAmounts:
    """The answer was wrong, which has been written; so many are left."""

    attempts_left: int


async def start(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    account_id: Id,
    of_platform: bool,
    verifier: AccountVerifier | None,
    at: datetime,
) -> ExternalAccountChallengeResource | None:
    """Pay two amounts to an account; None when the platform has no such account.

    Raises: NotConnectedError, ChallengeRefusedError.
    """
    if verifier is None:
        raise NotConnectedError("account verifier")
    account = await _locked(connection, platform_id, account_id, of_platform=of_platform)
    if account is None:
        return None
    if account.account_type.endswith("_WALLET") or account.account_type == "LIGHTNING":
        raise ChallengeRefusedError(
            ChallengeRefusal.NO_DEPOSITS, "A wallet gets no micro-deposits; only bank accounts do."
        )
    before = await _latest(connection, account_id)
    if before is not None and before.expires_at > at and before.attempts < ATTEMPT_LIMIT:
        raise ChallengeRefusedError(
            ChallengeRefusal.CHALLENGE_OPEN, "The account has a challenge; name its amounts."
        )
    if await _count(connection, platform_id, account, since=at - WINDOW) >= CHALLENGE_LIMIT:
        raise ChallengeRefusedError(
            ChallengeRefusal.TOO_MANY_CHALLENGES,
            f"The account has had {CHALLENGE_LIMIT} challenges within {WINDOW.days} days, the"
            " maximum; wait.",
        )
    key = new_id()
    await connection.execute(
        tables.external_account_challenges.insert().values(
            id=key,
            platform_id=platform_id,
            external_account_id=account_id,
            amounts=sorted(verifier.micro_deposits(key)),
            attempts=0,
            created_at=at,
            expires_at=at + LIFETIME,
        )
    )
    return ExternalAccountChallengeResource(
        id=key,
        external_account_id=account_id,
        type="MICRO_DEPOSITS",
        currency=account.currency,
        attempts_left=ATTEMPT_LIMIT,
        created_at=at,
        expires_at=at + LIFETIME,
    )


async def answer(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    account_id: Id,
    of_platform: bool,
    amounts: Sequence[int],
    at: datetime,
) -> ExternalAccountResource | WrongAmounts | None:
    """Compare `amounts` with what was paid to an account; None: there is no such account.

    A wrong answer is counted in the caller's database transaction, which must be committed. The
    right one makes the account ACTIVE and writes its webhook.
    Raises: ChallengeRefusedError.
    """
    account = await _locked(connection, platform_id, account_id, of_platform=of_platform)
    if account is None:
        return None
    challenge = await _latest(connection, account_id)
    if challenge is None:
        raise ChallengeRefusedError(
            ChallengeRefusal.NO_CHALLENGE, "The account has no challenge; request one first."
        )
    if challenge.attempts >= ATTEMPT_LIMIT:
        raise ChallengeRefusedError(
            ChallengeRefusal.CHALLENGE_LOCKED,
            f"The challenge got {ATTEMPT_LIMIT} wrong answers; request another one.",
        )
    if challenge.expires_at <= at:
        raise ChallengeRefusedError(
            ChallengeRefusal.CHALLENGE_EXPIRED, "The challenge has expired; request another one."
        )
    if sorted(amounts) != list(challenge.amounts):
        await connection.execute(
            tables.external_account_challenges.update()
            .where(_CHALLENGES.id == challenge.id)
            .values(attempts=_CHALLENGES.attempts + 1)
        )
        return WrongAmounts(ATTEMPT_LIMIT - challenge.attempts - 1)
    return await _activate(connection, platform_id, account, at)


async def _activate(
    connection: AsyncConnection, platform_id: Id, account: Row[*tuple[Any, ...]], at: datetime
) -> ExternalAccountResource:
    await connection.execute(
        tables.external_accounts.update()
        .where(_ACCOUNTS.id == account.id)
        .values(status="ACTIVE", updated_at=at)
    )
    active = await external_accounts.get(connection, platform_id=platform_id, account_id=account.id)
    assert active is not None
    await connection.execute(
        outbox.insert(
            type=WebhookType.EXTERNAL_ACCOUNT_STATUS_UPDATED,
            subject_id=account.id,
            customer_id=account.customer_id or _PLATFORM,
            platform_id=platform_id,
            data=active.wire(),
            at=at,
        )
    )
    return active


async def _locked(
    connection: AsyncConnection, platform_id: Id, account_id: Id, *, of_platform: bool
) -> Row[*tuple[Any, ...]] | None:
    """Lock and return a PENDING account; None: the platform has no such account.

    Raises: ChallengeRefusedError.
    """
    matching = [
        _ACCOUNTS.id == account_id,
        _ACCOUNTS.platform_id == platform_id,
        _ACCOUNTS.deleted_at.is_(None),
    ]
    if of_platform:
        matching.append(_ACCOUNTS.customer_id.is_(None))
    rows = await connection.execute(
        select(
            _ACCOUNTS.id,
            _ACCOUNTS.customer_id,
            _ACCOUNTS.status,
            _ACCOUNTS.currency,
            _ACCOUNTS.account_type,
            _ACCOUNTS.fingerprint,
        )
        .where(*matching)
        .with_for_update()
    )
    account = rows.one_or_none()
    if account is not None and account.status != "PENDING":
        raise ChallengeRefusedError(
            ChallengeRefusal.NOT_PENDING,
            f"The account is {account.status}; only a PENDING account is challenged.",
        )
    return account


async def _latest(connection: AsyncConnection, account_id: Id) -> Row[*tuple[Any, ...]] | None:
    rows = await connection.execute(
        select(tables.external_account_challenges)
        .where(_CHALLENGES.external_account_id == account_id)
        .order_by(_CHALLENGES.id.desc())
        .limit(1)
    )
    return rows.one_or_none()


async def _count(
    connection: AsyncConnection,
    platform_id: Id,
    account: Row[*tuple[Any, ...]],
    *,
    since: datetime,
) -> int:
    """Count the challenges of an account, and of its deleted registrations, after `since`."""
    count = await connection.scalar(
        select(func.count())
        .select_from(tables.external_account_challenges)
        .join(tables.external_accounts, _ACCOUNTS.id == _CHALLENGES.external_account_id)
        .where(
            _ACCOUNTS.platform_id == platform_id,
            _ACCOUNTS.customer_id == account.customer_id,
            _ACCOUNTS.fingerprint == account.fingerprint,
            _CHALLENGES.created_at > since,
        )
    )
    return int(count or 0)
