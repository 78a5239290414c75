"""Read the database of an installation: statements that write nothing and have a time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import psycopg
from sqlalchemy import NullPool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.config import configuration
from cardledger.config.errors import CommandError
from cardledger.install import databases, discovery
from cardledger.ledger.storage.engines import async_engine, is_cancelled, message_of

STATEMENT_LIMIT_S: Final = 8.0

# The client waits longer than the server works, so that the server's message arrives.
_REPLY_LIMIT_S: Final = STATEMENT_LIMIT_S / 0.8
_READ_ONLY: Final = "-c default_transaction_read_only=on"

Result = TypeVar("Result")


def run(
    data_dir: Path | None,
    work: Callable[[AsyncConnection], Awaitable[Result]],
    *,
    when_slow: str,
) -> Result:
    """Return the result of `work` in one database transaction that only reads.

    Raises: CommandError when a statement takes too long, with `when_slow`: what to change.
    """
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with discovery.database(settings) as url:
        databases.check_schema(url)
        try:
            return asyncio.run(_run(url, work))
        except (DBAPIError, psycopg.Error) as error:
            if is_cancelled(error):
                raise CommandError(
                    f"the query took longer than {STATEMENT_LIMIT_S:g} s and was ended; {when_slow}"
                ) from None
            raise CommandError(f"PostgreSQL failed: {message_of(error)}") from None


async def _run(url: str, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
    engine = async_engine(
        url, poolclass=NullPool, settings=_READ_ONLY, reply_limit_s=_REPLY_LIMIT_S
    )
    try:
        async with engine.begin() as connection:
            return await work(connection)
    finally:
        await engine.dispose()
