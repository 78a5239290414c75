"""Tickets that open a session of the console: for one use, within a minute.

Made by `cardledger up` and `cardledger demo`, which print them in a link, so that the credentials
of the API appear in no address.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.secrets import owned_tokens
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema import tables

LIFETIME: Final = timedelta(seconds=60)
"""How long a ticket works."""

_COLUMNS: Final = tables.console_tickets.c
_TOKENS: Final = tables.api_tokens.c


async def create(
    connection: AsyncConnection, *, client_id: str, keys: KeyRing, at: datetime
) -> str | None:
    """Return a ticket for a session of the API token `client_id`; None: there is no such token.

    Tickets that have expired unused are deleted.
    """
    token_id = await connection.scalar(select(_TOKENS.id).where(_TOKENS.client_id == client_id))
    if token_id is None:
        return None
    await connection.execute(tables.console_tickets.delete().where(_COLUMNS.expires_at <= at))
    ticket = owned_tokens.new(token_id)
    await connection.execute(
        tables.console_tickets.insert().values(
            ticket_hash=keys.hash_secret(ticket, Purpose.CONSOLE_TICKET),
            api_token_id=token_id,
            created_at=at,
            expires_at=at + LIFETIME,
        )
    )
    return ticket


async def redeem(
    connection: AsyncConnection, *, ticket: str, keys: KeyRing, at: datetime
) -> str | None:
    """Use a ticket up; return the client id of its token.

    None when there is no such ticket, it has expired or was used, or the token has been deleted.
    """
    token_id = owned_tokens.owner_in(ticket)
    if token_id is None:
        return None
    candidates = keys.presented(ticket, Purpose.CONSOLE_TICKET).candidates
    used = await connection.execute(
        tables.console_tickets.delete()
        .where(_COLUMNS.ticket_hash.in_(candidates), _COLUMNS.api_token_id == token_id)
        .returning(_COLUMNS.expires_at)
    )
    expires_at = used.scalar_one_or_none()
    if expires_at is None or expires_at <= at:
        return None
    client_id: str | None = await connection.scalar(
        select(_TOKENS.client_id).where(_TOKENS.id == token_id)
    )
    return client_id
