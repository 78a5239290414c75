"""Device codes: a program redeems a code once, without credentials, for an access token."""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import access_tokens, grants
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.caps import CapReachedError
from cardledger.ledger.storage.secrets.key_ring import KeyRing, PresentedSecret, Purpose
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.agents import AgentConnection, AgentDeviceCode, DeviceCodeStatus

LIFETIME: Final = timedelta(minutes=15)

CODE_LIMIT: Final = 20
"""The most codes that an agent gets within the lifetime of a code; one of them is redeemable."""

# People read codes out and type them in: no letter that looks like a digit. 75 random bits: right
# codes pass however many wrong codes come from their address, so the limit on failures does not
# make guesses rare. A million guesses a second for a year find one of 10,000 open codes with a
# probability of 1 in 100,000.
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_GROUPS: Final = 3
_GROUP_LENGTH: Final = 5

_CODES: Final = tables.agent_device_codes.c


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A device code, redeemable or not, and its agent; `is_bound`: it was made for this agent."""

    code_hash: bytes
    is_bound: bool
    agent_id: Id
    platform_id: Id
    expires_at: datetime
    redeemed_at: datetime | None
    replaced_at: datetime | None
    is_agent_deleted: bool


class CodeRefusal(StrEnum):
    """Why a code cannot be redeemed."""

    REDEEMED = "CODE_REDEEMED"
    REPLACED = "CODE_REPLACED"
    EXPIRED = "CODE_EXPIRED"


class CodeRefusedError(Exception):
    """The code cannot be redeemed any more; `reason` says why."""

    def __init__(self, reason: CodeRefusal, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


class AgentConnectedError(Exception):
    """The agent is already connected and needs no code."""


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    agent_id: Id,
    granted_by: Collection[Permission],
    keys: KeyRing,
    at: datetime,
) -> AgentDeviceCode | None:
    """Create a code for an agent, replacing an earlier code; None when there is no such agent.

    `granted_by` are the permissions of the token that asks: the code gives those of the agent.
    Raises: AgentConnectedError, CapReachedError, GrantExceededError.
    """
    # First without the lock: what is refused waits for no other request.
    for find_agent in (agents.read_row, agents.locked_row):
        agent = await find_agent(connection, platform_id=platform_id, agent_id=agent_id)
        if agent is None:
            return None
        grants.check(agent.policy["permissions"], granted_by)
        if agent.is_connected:
            raise AgentConnectedError(
                "The agent is already connected; delete it and create another agent."
            )
        await _check_count(connection, agent_id, at)
    await connection.execute(
        update(tables.agent_device_codes)
        .where(
            _CODES.agent_id == agent_id,
            _CODES.redeemed_at.is_(None),
            _CODES.replaced_at.is_(None),
        )
        .values(replaced_at=at)
    )
    code = _new_code()
    while not await _insert(connection, agent_id, code, keys, at):
        code = _new_code()
    return AgentDeviceCode(code=code, agent_id=agent_id, expires_at=at + LIFETIME, redeemed=False)


async def status(
    connection: AsyncConnection, *, platform_id: Id, code: str, keys: KeyRing
) -> DeviceCodeStatus | None:
    """Return whether a code was redeemed; None: no agent of the platform has such a code."""
    agent = tables.agents.c
    rows = await connection.execute(
        select(_CODES.redeemed_at)
        .join(tables.agents, agent.id == _CODES.agent_id)
        .where(
            _CODES.code_hash.in_(presented(keys, code).candidates),
            agent.platform_id == platform_id,
            agent.deleted_at.is_(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return DeviceCodeStatus(code=_spelled(code), redeemed=row.redeemed_at is not None)


async def find(connection: AsyncConnection, code: str, keys: KeyRing) -> DeviceCode | None:
    """Return the device code, any input, or None when it has never existed."""
    agent = tables.agents.c
    rows = await connection.execute(
        select(
            _CODES.code_hash,
            _CODES.agent_hash,
            agent.id,
            agent.platform_id,
            agent.deleted_at,
            _CODES.expires_at,
            _CODES.redeemed_at,
            _CODES.replaced_at,
        )
        .join(tables.agent_device_codes, _CODES.agent_id == agent.id)
        .where(_CODES.code_hash.in_(presented(keys, code).candidates))
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return DeviceCode(
        code_hash=row.code_hash,
        is_bound=row.agent_hash is not None
        and _for_agent(keys, code, row.id).proves(row.agent_hash),
        agent_id=row.id,
        platform_id=row.platform_id,
        expires_at=row.expires_at,
        redeemed_at=row.redeemed_at,
        replaced_at=row.replaced_at,
        is_agent_deleted=row.deleted_at is not None,
    )


async def redeem(
    connection: AsyncConnection,
    code: str,
    device_code: DeviceCode,
    *,
    keys: KeyRing,
    at: datetime,
) -> AgentConnection | None:
    """Connect the agent of a code; only this result contains the agent's access token.

    `device_code` is what `find` has returned for `code`. None when the agent is deleted. Of two
    concurrent calls the second finds the code redeemed.
    Raises: CodeRefusedError.
    """
    # As the code was found: what is refused takes no lock.
    if device_code.is_agent_deleted:
        return None
    check(device_code, at)
    # The agent first, as `create` does; while it is locked, its codes do not change.
    row = await agents.locked_row(
        connection, platform_id=device_code.platform_id, agent_id=device_code.agent_id
    )
    if row is None:
        return None
    current = await find(connection, code, keys)
    assert current is not None
    check(current, at)
    await connection.execute(
        update(tables.agent_device_codes)
        .where(_CODES.code_hash == device_code.code_hash)
        .values(redeemed_at=at)
    )
    token = access_tokens.new(row.id)
    await agents.connect(
        connection, agent_id=row.id, token_hash=access_tokens.hash_of(keys, token), at=at
    )
    return AgentConnection(
        agent_id=row.id, agent_name=row.name, access_token=token, policy=row.policy
    )


def check(device_code: DeviceCode, at: datetime) -> None:
    """Raise CodeRefusedError unless the code, as it was found, can be redeemed."""
    if device_code.redeemed_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REDEEMED, "This code was already redeemed; a code works once."
        )
    if device_code.replaced_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REPLACED, "This code was replaced by a newer code; redeem the newer code."
        )
    if device_code.expires_at <= at:
        raise CodeRefusedError(
            CodeRefusal.EXPIRED, "This code has expired; request a new code from the platform."
        )
    if not device_code.is_bound:
        raise CodeRefusedError(
            CodeRefusal.REPLACED,
            "This code is of an earlier release, or not of this agent; request a new code.",
        )


async def _check_count(connection: AsyncConnection, agent_id: Id, at: datetime) -> None:
    """Raise CapReachedError when the agent, which is locked, gets no further code."""
    valid = _CODES.agent_id == agent_id, _CODES.expires_at > at
    count = await connection.scalar(select(func.count()).where(*valid))
    if (count or 0) >= CODE_LIMIT:
        message = (
            f"The agent has had {CODE_LIMIT} device codes in fifteen minutes, the maximum; use the"
            " last one, or wait."
        )
        raise CapReachedError(message, limit=CODE_LIMIT)


async def _insert(
    connection: AsyncConnection, agent_id: Id, code: str, keys: KeyRing, at: datetime
) -> bool:
    """Store `code` unless it has ever been used; returns whether it was stored."""
    rows = await connection.execute(
        insert(tables.agent_device_codes)
        .values(
            code_hash=presented(keys, code).digest,
            agent_id=agent_id,
            agent_hash=_for_agent(keys, code, agent_id).digest,
            created_at=at,
            expires_at=at + LIFETIME,
        )
        .on_conflict_do_nothing(index_elements=[_CODES.code_hash])
        .returning(_CODES.code_hash)
    )
    return rows.one_or_none() is not None


def _new_code() -> str:
    return "-".join(_new_group() for _ in range(_GROUPS))


def _new_group() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_LENGTH))


def presented(keys: KeyRing, code: str) -> PresentedSecret:
    """Return a presented code, any input: a malformed code takes as long as a wrong code."""
    return keys.presented(_spelled(code), Purpose.DEVICE_CODE)


def _for_agent(keys: KeyRing, code: str, agent_id: Id) -> PresentedSecret:
    """Return a presented code as that of an agent, which is part of what is hashed.

    So it is in the unbound form of a hash, too, which leaves out client and purpose.
    """
    return keys.presented(f"{agent_id.hex()}_{_spelled(code)}", Purpose.DEVICE_CODE)


def _spelled(code: str) -> str:
    """Return `code` in capital letters, as it was shown."""
    return code.upper()
