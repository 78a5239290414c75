"""Hashes of secrets that a former server key or release has made, and their replacement.

A hash cannot be made again without its secret, so it is replaced when the secret is presented.
Source: docs/decisions/0044-secrets-are-bound.md
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Column, Table, update
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema import tables
from cardledger.schema.ids import Id

TOKEN_SECRET: Final[Column[bytes]] = tables.api_tokens.c.secret_hash
AGENT_TOKEN: Final[Column[bytes]] = tables.agents.c.access_token_hash


@dataclass(frozen=True, slots=True)
class Rehash:
    """The hash `stored` in the row `id` is to become `hash`, that of the same secret."""

    column: Column[bytes]
    id: Id
    stored: bytes
    hash: bytes


async def replace(connection: AsyncConnection, rehash: Rehash) -> bool:
    """Replace a hash, unless the secret was rotated meanwhile; return whether it was replaced."""
    table = rehash.column.table
    assert isinstance(table, Table)
    replaced = await connection.execute(
        update(table)
        .where(table.c.id == rehash.id, rehash.column == rehash.stored)
        .values({rehash.column: rehash.hash})
    )
    return replaced.rowcount == 1
