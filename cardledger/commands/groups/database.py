"""What groups of commands share that read the database of an installation.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cardledger.config.errors import USAGE, CommandError

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from cardledger.ledger.books.suspense_items import Suspended
    from cardledger.ledger.messaging.inbox_key import InboxKey
    from cardledger.schema.ids import Id

Result = TypeVar("Result")


def run(
    data_dir: Path | None, work: "Callable[[AsyncConnection[Any]], Awaitable[Result]]"
) -> Result:
    """Run `work` in a database transaction of the installation.

    Raises: CommandError when PostgreSQL fails.
    """
    import asyncio

    from sqlalchemy import NullPool
    from sqlalchemy.exc import DBAPIError

    from cardledger.config import configuration
    from cardledger.install import discovery
    from cardledger.ledger.storage.engines import async_engine, driver_async

    async def in_transaction(url: str) -> Result:
        engine = async_engine(url, poolclass=NullPool)
        async with engine.begin() as connection:
            return await work(await driver_async(connection))

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with discovery.database(settings) as url:
        try:
            return asyncio.run(in_transaction(url))
        except DBAPIError as error:
            raise CommandError(f"PostgreSQL failed: {error.orig}") from None


def inbox_key(data_dir: Path | None) -> "InboxKey":
    """Return the key with which messages that the operator enqueues are signed."""
    from cardledger.config import configuration
    from cardledger.install import credentials
    from cardledger.ledger.messaging.inbox_key import InboxKey

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    return InboxKey(credentials.needed_key(settings))


def quoted(text: str | None) -> str:
    """Return `text` without characters that a terminal obeys."""
    return json.dumps(text)[1:-1] if text is not None else "-"


def suspense_note(suspended: "Suspended | None") -> str:
    """Return the end of a line about a message that has money in SUSPENSE."""
    if suspended is None:
        return ""
    return f"; in suspense: {suspended.amount:,} minor units of {suspended.currency}"


def in_suspense(suspended: "Suspended | None") -> dict[str, Any]:
    """Return the field of JSON about a message that has money in SUSPENSE."""
    return {} if suspended is None else {"suspense": suspended.as_dict()}


def identifier(text: str, of: str) -> "Id":
    """Return the UUID in `text`, the id `of` a resource.

    Raises: CommandError.
    """
    from cardledger.schema.ids import Id

    try:
        return Id.parse(text)
    except ValueError:
        raise CommandError(f"{quoted(text)} is not the id of {of}", code=USAGE) from None
