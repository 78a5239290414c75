"""The versions of what the ledger runs on."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_VERSIONS: Final = """
    SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'),
        current_setting('full_page_writes')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """PostgreSQL: its version, whether it is a replica, and whether a crash may lose commits."""

    version: str
    is_replica: bool
    is_durable: bool


async def read(connection: AsyncConnection) -> ServerVersion:
    """Return the version of the server of `connection`."""
    version, is_replica, *durable = (await connection.execute(text(_VERSIONS))).one()
    return ServerVersion(
        version=version,
        is_replica=is_replica,
        is_durable=all(setting == "on" for setting in durable),
    )
