"""Rows as the audit reads them: streams, grouped by what they belong to."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from psycopg import Connection

from cardledger.ledger.storage import cursors
from cardledger.schema.ids import Id

Row = Sequence[Any]
SystemAccounts = dict[tuple[Id, str, str], Id]
"""By platform, currency and kind."""


class Grouped:
    """Rows of a stream grouped by their first column, read in ascending order of that column."""

    def __init__(self, connection: Connection[Any], name: str, query: str) -> None:
        rows = cursors.stream(connection, name, query)
        self._groups = groupby(rows, key=itemgetter(0))
        self._ahead: tuple[Id, list[Row]] | None = None

    def of(self, key: Id) -> list[Row]:
        """Return the other columns of the rows of `key`; rows of lower keys are skipped."""
        while self._ahead is None or self._ahead[0] < key:
            group = next(self._groups, None)
            if group is None:
                return []
            self._ahead = group[0], [row[1:] for row in group[1]]
        return self._ahead[1] if self._ahead[0] == key else []


def system_accounts_of(connection: Connection[Any]) -> SystemAccounts:
    """Return the system accounts of all platforms."""
    rows = connection.execute("SELECT platform_id, currency, kind, id FROM system_accounts")
    return {(platform, currency, kind): key for platform, currency, kind, key in rows}
