"""Quotas: how many rows of a resource a platform may have, in a database shared with others.

A trigger of each table counts what is inserted, by whatever statement, and refuses the row that
exceeds the quota (revision 0027). Deleted resources count, because their rows stay; expired quotes
do until their rows are deleted (revision 0139). Payments that arrive and fees, which the engine
inserts, do not (revision 0149).
Source: docs/decisions/0055-row-quotas.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema import tables
from cardledger.schema.ids import Id

EVERY_PLATFORM: Final = Id(bytes(16))
"""Whose quotas are those of each platform without a quota of its own."""

QUOTA_REACHED: Final = "CL001"
"""The SQLSTATE with which the trigger refuses a row."""


class UnknownResourceError(Exception):
    """Rows of this name have no quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedQuota:
    """The quota that a statement would have exceeded; it inserted nothing."""

    resource: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How many rows of `resource` a platform has, and how many it may have."""

    resource: str
    rows: int
    quota: int


def reached_in(error: DBAPIError) -> ReachedQuota | None:
    """Return the quota because of which a statement failed, if it did so because of one."""
    diagnostics = getattr(error.orig, "diag", None)
    if diagnostics is None or diagnostics.sqlstate != QUOTA_REACHED:
        return None
    return ReachedQuota(
        resource=diagnostics.table_name.replace("_", " "), rows=int(diagnostics.message_detail)
    )


async def usage(connection: AsyncConnection, platform_id: Id) -> Sequence[Usage]:
    """Return the usage of a platform for each resource with a quota, by name."""
    counts, quotas = tables.row_counts.c, tables.row_quotas.c
    counted = await connection.execute(
        select(counts.resource, func.sum(counts.rows))
        .where(counts.platform_id == platform_id)
        .group_by(counts.resource)
    )
    rows: Mapping[str, int] = {resource: int(total) for resource, total in counted}
    # The platform's own quotas last: they count.
    found = await connection.execute(
        select(quotas.resource, quotas.rows.label("quota"))
        .where(quotas.platform_id.in_([EVERY_PLATFORM, platform_id]))
        .order_by(quotas.platform_id)
    )
    allowed = {row.resource: row.quota for row in found}
    return [
        Usage(resource=resource, rows=rows.get(resource, 0), quota=allowed[resource])
        for resource in sorted(allowed)
    ]


async def set_quota(
    connection: AsyncConnection, resource: str, rows: int, *, platform_id: Id = EVERY_PLATFORM
) -> None:
    """Let a platform, or each without a quota of its own, have `rows` of `resource`.

    Raises: UnknownResourceError; nothing was written.
    """
    quotas = tables.row_quotas.c
    known = select(quotas.resource).where(
        quotas.platform_id == EVERY_PLATFORM, quotas.resource == resource
    )
    if await connection.scalar(known) is None:
        raise UnknownResourceError(resource)
    new = insert(tables.row_quotas).values(platform_id=platform_id, resource=resource, rows=rows)
    await connection.execute(
        new.on_conflict_do_update(
            index_elements=[quotas.platform_id, quotas.resource], set_={"rows": rows}
        )
    )
