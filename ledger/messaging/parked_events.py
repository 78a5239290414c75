"""List parked events: those that wait for the event that they reverse or change."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import class_row

from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEvent:
    """A parked event; `body` is the event, as the inbox stored it."""

    id: Id
    platform_id: Id | None  # None: parked by a release before schema 0030.
    card_id: Id
    issuer_transaction_token: str
    body: Mapping[str, Any]
    received_at: datetime

    @property
    def type(self) -> str | None:
        """The type of the event; None where a later release has stored it otherwise."""
        return self.body.get("type")

    @property
    def source(self) -> str | None:
        """The sender of the event."""
        return self.body.get("source")

    @property
    def reference(self) -> str | None:
        """The identifier of the event at its sender."""
        return self.body.get("reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which parked events are meant; None: any."""

    platform_id: Id | None = None
    before: Id | None = None  # Only older ones than this.
    id: Id | None = None


_FIND: Final = """
    SELECT id, platform_id, card_id, issuer_transaction_token, body, received_at
    FROM parked
    WHERE (%(before)s::uuid IS NULL OR id < %(before)s)
        AND (%(id)s::uuid IS NULL OR id = %(id)s)
        {of_platform}
    ORDER BY id DESC LIMIT %(limit)s
"""
# Two statements: a condition on either would not use the index of the platform's events. That of
# the operator reads the whole table: an index by id alone could be chosen for a platform, too, and
# would read the events of the others.
_FIND_OWN: Final = _FIND.format(of_platform="AND platform_id = %(platform_id)s")
_FIND_ALL: Final = _FIND.format(of_platform="")


async def find(connection: AsyncConnection[Any], which: Filter, *, limit: int) -> list[ParkedEvent]:
    """Return at most `limit` parked events, the newest first."""
    async with connection.cursor(row_factory=class_row(ParkedEvent)) as cursor:
        await cursor.execute(*query(which, limit=limit))
        return await cursor.fetchall()


def query(which: Filter, *, limit: int) -> tuple[LiteralString, dict[str, Any]]:
    """Return the statement of `find` and its parameters."""
    return _FIND_ALL if which.platform_id is None else _FIND_OWN, {
        "platform_id": which.platform_id,
        "before": which.before,
        "id": which.id,
        "limit": limit,
    }
