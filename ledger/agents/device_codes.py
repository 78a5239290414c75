"""Device codes: a program redeems a code once, without credentials, for an access token."""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import registry as agents
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.agents import AgentConnection, AgentDeviceCode, DeviceCodeStatus

LIFETIME: Final = timedelta(minutes=15)

# People read codes out and type them in: no letter that looks like a digit. 40 random bits: a
# million guesses a second for fifteen minutes find an open code with a probability of 1 in 1,200.
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_HALF: Final = 4

_CODES: Final = tables.agent_device_codes.c


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A device code, redeemable or not, and its agent."""

    code_hash: bytes
    agent_id: Id
    platform_id: Id
    expires_at: datetime


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


async def create(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id, keys: KeyRing, at: datetime
) -> AgentDeviceCode | None:
    """Create a code for an agent, replacing an earlier code; None when there is no such agent.

    Raises: AgentConnectedError.
    """
    agent = await agents.locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    if agent is None:
        return None
    if agent.is_connected:
        raise AgentConnectedError(
            "The agent is already connected; delete it and create another agent."
        )
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
            _CODES.code_hash == _hash(keys, code),
            agent.platform_id == platform_id,
            agent.deleted_at.is_(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return DeviceCodeStatus(code=_spelled(code), redeemed=row.redeemed_at is not None)


async def find(connection: AsyncConnection, *, code: str, keys: KeyRing) -> DeviceCode | None:
    """Return the device code that `code` names, or None when it never existed."""
    agent, code_hash = tables.agents.c, _hash(keys, code)
    rows = await connection.execute(
        select(agent.id, agent.platform_id, _CODES.expires_at)
        .join(tables.agent_device_codes, _CODES.agent_id == agent.id)
        .where(_CODES.code_hash == code_hash)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return DeviceCode(
        code_hash=code_hash,
        agent_id=row.id,
        platform_id=row.platform_id,
        expires_at=row.expires_at,
    )


async def redeem(
    connection: AsyncConnection, device_code: DeviceCode, *, keys: KeyRing, at: datetime
) -> AgentConnection | None:
    """Connect the agent of a code; only this result contains the agent's access token.

    None when the agent is deleted. Of two concurrent calls the second finds the code redeemed.
    Raises: CodeRefusedError.
    """
    # The agent first, as `create` does; while it is locked, its codes do not change.
    row = await agents.locked_row(
        connection, platform_id=device_code.platform_id, agent_id=device_code.agent_id
    )
    if row is None:
        return None
    await check(connection, device_code, at)
    await connection.execute(
        update(tables.agent_device_codes)
        .where(_CODES.code_hash == device_code.code_hash)
        .values(redeemed_at=at)
    )
    # A prefix, by which scanners for leaked secrets recognize the token.
    token = f"clat_{secrets.token_urlsafe(32)}"
    await agents.connect(connection, agent_id=row.id, token_hash=keys.hash_secret(token), at=at)
    return AgentConnection(
        agent_id=row.id, agent_name=row.name, access_token=token, policy=row.policy
    )


async def check(connection: AsyncConnection, device_code: DeviceCode, at: datetime) -> None:
    """Raise CodeRefusedError unless the code can be redeemed."""
    rows = await connection.execute(
        select(_CODES.redeemed_at, _CODES.replaced_at, _CODES.expires_at).where(
            _CODES.code_hash == device_code.code_hash
        )
    )
    row = rows.one()
    if row.redeemed_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REDEEMED, "This code was already redeemed; a code works once."
        )
    if row.replaced_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REPLACED, "This code was replaced by a newer code; redeem the newer code."
        )
    if row.expires_at <= at:
        raise CodeRefusedError(
            CodeRefusal.EXPIRED, "This code has expired; request a new code from the platform."
        )


async def _insert(
    connection: AsyncConnection, agent_id: Id, code: str, keys: KeyRing, at: datetime
) -> bool:
    """Store `code` unless it has ever been used; returns whether it was stored."""
    rows = await connection.execute(
        insert(tables.agent_device_codes)
        .values(
            code_hash=_hash(keys, code),
            agent_id=agent_id,
            created_at=at,
            expires_at=at + LIFETIME,
        )
        .on_conflict_do_nothing(index_elements=[_CODES.code_hash])
        .returning(_CODES.code_hash)
    )
    return rows.one_or_none() is not None


def _new_code() -> str:
    letters = [secrets.choice(_ALPHABET) for _ in range(2 * _HALF)]
    return f"{''.join(letters[:_HALF])}-{''.join(letters[_HALF:])}"


def _hash(keys: KeyRing, code: str) -> bytes:
    # Of any input, so that a malformed code takes as long as a wrong code.
    return keys.hash_secret(_spelled(code))


def _spelled(code: str) -> str:
    """Return `code` in capital letters, as it was shown."""
    return code.upper()
