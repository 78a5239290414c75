"""Tickets that open a session of the console: for one use, within a minute.

Made by `cardledger up` and `cardledger demo`, which print them in a link, so that the credentials
of the API appear in no address.
"""

import secrets
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.secrets.key_ring import KeyRing, Purpose
from cardledger.schema import tables

LIFETIME: Final = timedelta(seconds=60)
"""How long a ticket works."""

_TICKET_BYTES: Final = 32
_MAX_TICKET: Final = 64  # Characters; a longer one was never issued.
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
    ticket = secrets.token_urlsafe(_TICKET_BYTES)
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
    if not ticket.isascii() or len(ticket) > _MAX_TICKET:
        return None
    candidates = keys.presented(ticket, Purpose.CONSOLE_TICKET).candidates
    used = await connection.execute(
        tables.console_tickets.delete()
        .where(_COLUMNS.ticket_hash.in_(candidates))
        .returning(_COLUMNS.api_token_id, _COLUMNS.expires_at)
    )
    row = used.one_or_none()
    if row is None or row.expires_at <= at:
        return None
    client_id: str | None = await connection.scalar(
        select(_TOKENS.client_id).where(_TOKENS.id == row.api_token_id)
    )
    return client_id
