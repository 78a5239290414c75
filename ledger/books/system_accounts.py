"""The system accounts of platforms: one of each kind for each platform and currency."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

Chart = tuple[Id, str]
"""A platform and a currency."""

Accounts = dict[tuple[Id, str, str], Id]
"""Accounts by platform, currency and kind."""

_KINDS: Final = tuple(kind.value for kind in ChartAccount if kind is not ChartAccount.CUSTOMER)
_LATER: Final = (
    "SETTLEMENT_BANK",
    "SUSPENSE",
    "INTERCHANGE",
    "NETWORK_FEES",
    "OUTBOUND_CLEARING",
    "INBOUND_CLEARING",
    "FX",
)
"""The kinds since schema 0035: an API of an earlier release opens platforms without them."""


class SystemAccounts:
    """The system accounts that a process knows: they never change; for several threads."""

    def __init__(self) -> None:
        self._known: tuple[Accounts, frozenset[Chart]] = ({}, frozenset())  # With whole charts.

    def of(
        self, connection: Connection[Any], charts: Collection[Chart]
    ) -> Mapping[tuple[Id, str, str], Id]:
        """Return the system accounts of `charts`, mostly from memory.

        Kinds that an API of an earlier release did not open, and charts of a currency that was not
        used before, are opened in the database transaction of `connection`, and remembered once
        they are committed.
        """
        known, whole = self._known
        unknown = [chart for chart in charts if chart not in whole]
        if not unknown:
            return known
        platforms = {platform for platform, _ in unknown}
        loaded = _read(connection, platforms)
        complete = _complete(loaded)
        known = known | {key: each for key, each in loaded.items() if key[:2] in complete}
        self._known = known, whole | complete
        if not _open_missing(connection, loaded, unknown):
            return known | loaded
        return known | _read(connection, platforms)


def _complete(accounts: Accounts) -> frozenset[Chart]:
    """Return the charts of which `accounts` has every kind."""
    charts = {(platform, currency) for platform, currency, _ in accounts}
    return frozenset(
        chart for chart in charts if all((*chart, kind) in accounts for kind in _KINDS)
    )


_READ: Final = (
    "SELECT platform_id, currency, kind, id FROM system_accounts WHERE platform_id = ANY(%s)"
)


def _read(connection: Connection[Any], platform_ids: Iterable[Id]) -> Accounts:
    cursor = connection.execute(_READ, [list(platform_ids)])
    return {(platform, currency, kind): key for platform, currency, kind, key in cursor}


# In one order: the second of two batches waits for the first, and then finds its rows.
_OPEN: Final = """
    INSERT INTO system_accounts (id, platform_id, currency, kind)
    SELECT k.id, k.platform_id, k.currency, k.kind
    FROM unnest(%s, %s, %s, %s) AS k (id, platform_id, currency, kind)
    ORDER BY k.platform_id, k.currency, k.kind
    ON CONFLICT DO NOTHING
"""


def _open_missing(connection: Connection[Any], accounts: Accounts, charts: Iterable[Chart]) -> bool:
    """Open what `charts` lack; return whether anything was missing.

    Those that have some accounts lack only later kinds: another one was removed by mistake.
    """
    begun = {key[:2] for key in accounts}
    rows = [
        (new_id(), *chart, kind)
        for chart in charts
        for kind in (_LATER if chart in begun else _KINDS)
        if (*chart, kind) not in accounts
    ]
    if rows:
        connection.execute(_OPEN, pg_arrays.columns(rows, "uuid", "uuid", "text", "text"))
    return bool(rows)
