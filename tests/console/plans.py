"""What a statement of a page may read of tables that grow, by its plan."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg

from cardledger.schema import tables

GROWING: Final = frozenset(
    {
        "card_transaction_events",
        "card_transactions",
        "cards",
        "conversion_details",
        "customers",
        "deposits",
        "entries",
        "inbox",
        "internal_accounts",
        "outbox",
        "outcomes",
        "parked",
        "posting_totals",
        "rejections",
        "transfers",
        "webhook_attempts",
        "webhook_deliveries",
    }
)
"""The tables whose rows no setting bounds."""

_WHOLE: Final = frozenset(
    {
        "card_transactions_debt_idx",
        "card_transactions_open_exceptions_idx",
        "inbox_pkey",
        "outbox_pkey",
    }
)
"""Indexes of what waits and of what is owed, which a page may read from one end up to a limit."""

_SCANS: Final = frozenset({"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"})

# They pass on the rows of their first child one by one, as many as are wanted.
_STREAMS: Final = frozenset(
    {"Append", "LockRows", "Merge Append", "Nested Loop", "Result", "Subquery Scan"}
)
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'")

Plan = Mapping[str, Any]
"""A node of a plan, as EXPLAIN (FORMAT JSON) prints it."""


def seem_large(url: str) -> None:
    """Have PostgreSQL take the growing tables for large ones of a platform.

    In a small table every index is as cheap as the one that fits. `url` is that of a superuser.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        for name in GROWING:
            if "platform_id" in tables.metadata.tables[name].c:
                connection.execute(
                    f"ALTER TABLE {name} ALTER platform_id SET (n_distinct = 1)".encode()
                )
        connection.execute("ANALYZE")
        connection.execute(
            "UPDATE pg_class SET reltuples = 1e6, relpages = 1 WHERE oid IN ("
            " SELECT c.oid FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid"
            " JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid)"
            " WHERE t.relname = ANY(%s) AND t.relkind = 'r')",
            [list(GROWING)],
        )


def unbounded(plan: Plan) -> list[str]:
    """Return the growing tables that `plan` reads from the beginning, or all of a platform.

    An index that is read by the platform alone needs a LIMIT above it. How far such a scan goes
    where few rows match is not in a plan (`test_search_further.py`).
    """
    return list(_unbounded(plan, is_limited=False))


def _unbounded(node: Plan, *, is_limited: bool) -> Iterator[str]:
    kind = node["Node Type"]
    is_growing = kind in _SCANS and node["Relation Name"] in GROWING
    if is_growing and not is_limited and not _is_by_key(node):
        yield str(node["Relation Name"])
    for number, child in enumerate(node.get("Plans", ())):
        is_first = number == 0 and child["Parent Relationship"] in {"Outer", "Member", "Subquery"}
        streams = kind in _STREAMS and (is_first or kind.endswith("Append"))
        yield from _unbounded(child, is_limited=kind == "Limit" or (streams and is_limited))


def _is_by_key(scan: Plan) -> bool:
    """Return whether `scan` reads by more than the platform, or what may be read whole."""
    return scan.get("Index Name") in _WHOLE or any(
        _columns(each) - {"platform_id"} for each in _index_conditions(scan)
    )


def _index_conditions(node: Plan) -> Iterator[str]:
    if "Index Cond" in node:
        yield node["Index Cond"]
    for child in node.get("Plans", ()):
        if child["Node Type"].startswith("Bitmap"):
            yield from _index_conditions(child)


def _columns(condition: str) -> set[str]:
    """Return the columns of the index in its `condition`: those that no table stands before."""
    words = re.findall(r"(?<![.\w])[a-z_]+\b", _LITERAL.sub("", condition))
    return set(words) & _NAMES


_NAMES: Final = {column.name for name in GROWING for column in tables.metadata.tables[name].c}
