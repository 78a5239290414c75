"""Device codes: how a program becomes an agent, once and without any other credential."""

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

# People read codes out and type them in: no letter that looks like a digit. 40 random bits: who
# tries a million a second for fifteen minutes finds the one that is open once in a thousand times.
_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_HALF: Final = 4

_CODES: Final = tables.agent_device_codes.c


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A code that was made once, whatever became of it, and whom it is for."""

    code_hash: bytes
    agent_id: Id
    platform_id: Id
    expires_at: datetime


class CodeRefusal(StrEnum):
    """Why a code connects nobody any more."""

    REDEEMED = "CODE_REDEEMED"
    REPLACED = "CODE_REPLACED"
    EXPIRED = "CODE_EXPIRED"


class CodeRefusedError(Exception):
    """The code was good once; `reason` says what became of it."""

    def __init__(self, reason: CodeRefusal, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


class AgentConnectedError(Exception):
    """The agent is connected; there is nothing that a code could do for it."""


async def create(
    connection: AsyncConnection, *, platform_id: Id, agent_id: Id, keys: KeyRing, at: datetime
) -> AgentDeviceCode | None:
    """Make a code for an agent, in the place of an earlier one; None when there is no such agent.

    Raises: AgentConnectedError.
    """
    agent = await agents.locked_row(connection, platform_id=platform_id, agent_id=agent_id)
    if agent is None:
        return None
    if agent.is_connected:
        raise AgentConnectedError(
            "the agent is connected; delete it and create another one instead"
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
    """Return whether a code of the platform's agents was redeemed; None: it has no such code."""
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
    """Return whose `code` is, or None when there never was such a code."""
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
    connection: AsyncConnection, found: DeviceCode, *, keys: KeyRing, at: datetime
) -> AgentConnection | None:
    """Connect the agent of a code; what is returned has its token, which nobody can read again.

    None when the agent is deleted. Of two at once the second waits, and finds the code redeemed.
    Raises: CodeRefusedError.
    """
    # The agent first, as whoever makes a code does; from then on the code stays what it is.
    row = await agents.locked_row(
        connection, platform_id=found.platform_id, agent_id=found.agent_id
    )
    if row is None:
        return None
    await check(connection, found, at)
    await connection.execute(
        update(tables.agent_device_codes)
        .where(_CODES.code_hash == found.code_hash)
        .values(redeemed_at=at)
    )
    # A prefix, so that a search for leaked secrets can know one when it sees it.
    token = f"clat_{secrets.token_urlsafe(32)}"
    await agents.connect(connection, agent_id=row.id, token_hash=keys.hash_secret(token), at=at)
    return AgentConnection(
        agent_id=row.id, agent_name=row.name, access_token=token, policy=row.policy
    )


async def check(connection: AsyncConnection, found: DeviceCode, at: datetime) -> None:
    """See to it that a code still connects somebody.

    Raises: CodeRefusedError.
    """
    rows = await connection.execute(
        select(_CODES.redeemed_at, _CODES.replaced_at, _CODES.expires_at).where(
            _CODES.code_hash == found.code_hash
        )
    )
    row = rows.one()
    if row.redeemed_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REDEEMED, "this code was redeemed before; each works once"
        )
    if row.replaced_at is not None:
        raise CodeRefusedError(
            CodeRefusal.REPLACED, "a newer code took this one's place; redeem that one"
        )
    if row.expires_at <= at:
        raise CodeRefusedError(
            CodeRefusal.EXPIRED, "this code is too old; ask the platform for a new one"
        )


async def _insert(
    connection: AsyncConnection, agent_id: Id, code: str, keys: KeyRing, at: datetime
) -> bool:
    """Keep `code` if nobody ever had it; returns whether it was free."""
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
    # Of whatever was sent: a code that cannot be one costs what any other costs.
    return keys.hash_secret(_spelled(code))


def _spelled(code: str) -> str:
    """Return `code` as it was shown, when it was typed in small letters."""
    return code.upper()
