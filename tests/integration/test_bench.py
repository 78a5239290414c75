"""What the benchmark compares with is what it says."""

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from cardledger.bench import floor, workbench
from cardledger.bench.workbench import Bench
from cardledger.servers import DatabaseUrl


@pytest.fixture
def bench(postgres_url: DatabaseUrl) -> Iterator[Bench]:
    with workbench.bench(postgres_url) as made:
        yield made


# --- the floor ----------------------------------------------------------------------------------


def test_the_floor_copies_every_row_that_authorizations_left(bench: Bench) -> None:
    with psycopg.connect(bench.owner_url) as connection:
        batches = floor.decided_rows(bench, connection, count=700)
        rate = floor.Twins(connection, batches).append()

        assert rate > 0
        assert len(batches) == 2
        for table in floor.APPENDED:
            query: LiteralString = "SELECT t::text FROM {} t"
            copied = _rows(connection, query, floor.twin(table))
            query += _OF_AUTHORIZATIONS[table]
            assert copied == _rows(connection, query, sql.Identifier(table)), table
        kinds = _rows(connection, "SELECT DISTINCT type FROM {}", floor.twin("outbox"))
        assert kinds == ["CARD_TRANSACTION.AUTHORIZED", "INTERNAL_ACCOUNT.BALANCE_UPDATED"]


# Deposits brought the money before: an account's first entry and what was told of it.
_OF_AUTHORIZATIONS: dict[str, LiteralString] = {
    "card_transaction_events": "",
    "entries": " WHERE sequence > 0",
    "outcomes": " WHERE subject_id IN (SELECT id FROM card_transactions)",
    "card_transactions": "",
    "outbox": " WHERE recorded_at > (SELECT max(recorded_at) FROM deposits)",
}


def _rows(
    connection: psycopg.Connection[tuple[str]], query: LiteralString, table: sql.Identifier
) -> list[str]:
    return sorted(row for (row,) in connection.execute(sql.SQL(query).format(table)))
