"""Whether the terms of quotes and of payments are those that a process of the ledger has signed.

The API's role may insert such rows. What they promise or move is believed only with the MAC of the
process that drafted them, which has checked accounts, limits and rates.
Source: docs/decisions/0098-macs-of-quotes-and-payments.md
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging.inbox_key import InboxKey, Signed
from cardledger.schema.compatibility import OLDEST_HEAD_FINISHED


class HasTerms(Protocol):
    """A row whose terms are signed."""

    @property
    def mac(self) -> bytes | None: ...
    @property
    def signed_terms(self) -> Mapping[str, Any]: ...


Row = TypeVar("Row", bound=HasTerms)

_OLDEST_HEAD: Final = "SELECT oldest_head FROM schema_compatibility"


def forged(
    connection: Connection[Any], rows: Iterable[Row], signed: Signed, key: InboxKey
) -> list[Row]:
    """Return those of `rows` that no process with `key` has signed."""
    found = [row for row in rows if not _is_verified(row, signed, key)]
    if any(row.mac is None for row in found):
        oldest_head = connection.execute(_OLDEST_HEAD).fetchone()
        if not _needs_macs(oldest_head):
            return [row for row in found if row.mac is not None]
    return found


async def is_signed(
    connection: AsyncConnection[Any], row: HasTerms, signed: Signed, key: InboxKey
) -> bool:
    """Return whether a process with `key` has signed the terms of `row`."""
    if row.mac is not None:
        return _is_verified(row, signed, key)
    cursor = await connection.execute(_OLDEST_HEAD)
    return not _needs_macs(await cursor.fetchone())


def _is_verified(row: HasTerms, signed: Signed, key: InboxKey) -> bool:
    return key.verifies_terms(signed, row.mac, row.signed_terms)


def _needs_macs(oldest_head: tuple[Any, ...] | None) -> bool:
    """Return whether no release that may use the database leaves out MACs.

    It is read only where one is missing.
    """
    return oldest_head is None or oldest_head[0] >= OLDEST_HEAD_FINISHED
