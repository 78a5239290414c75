"""What bulk inserts and updates write: names and types out of the tables."""

import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from cardledger.ledger.engine.records import DepositRecord, RejectionRecord
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import BulkInsert, type_of
from cardledger.schema import tables

# PostgreSQL's short names of the types that SQLAlchemy writes out.
SHORT = {
    "BIGINT": "int8",
    "BOOLEAN": "bool",
    "BYTEA": "bytea",
    "DATE": "date",
    "INTEGER": "int4",
    "JSON": "json",
    "NUMERIC(20, 6)": "numeric",
    "NUMERIC(24, 12)": "numeric",
    "SMALLINT": "int2",
    "TEXT": "text",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "UUID": "uuid",
}
INSERTED = (
    tables.card_transaction_events,
    tables.card_transactions,
    tables.deposits,
    tables.entries,
    tables.inbox,
    tables.outbox,
    tables.outcomes,
    tables.parked,
    tables.pending_pulls,
    tables.rejections,
    tables.settlement_details,
    tables.conversion_details,
)
UPDATED = (tables.card_transactions, tables.internal_accounts, tables.transfers)
ONLY_INSERTED = {"counterparty_information", "requested_fields"}


@pytest.mark.parametrize("table", INSERTED, ids=lambda table: table.name)
def test_columns_are_sent_as_the_types_of_the_table(table: Table) -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

    for column in table.columns:
        assert type_of(column) == SHORT[column.type.compile(dialect)]


def test_an_insert_names_the_columns_of_its_table_in_their_order() -> None:
    insert = BulkInsert(tables.outbox, without={"retry_at"})
    columns = "id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at"

    assert insert._copy.decode() == f"COPY outbox ({columns}) FROM STDIN (FORMAT BINARY)"
    assert insert._insert.decode() == (
        f"INSERT INTO outbox ({columns}) SELECT u.id, u.customer_id, u.platform_id, u.type,"
        " u.subject_id, u.sequence, u.data::json, u.recorded_at"
        f" FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s) AS u ({columns})"
    )


@pytest.mark.parametrize("table", INSERTED, ids=lambda table: table.name)
def test_every_column_of_a_bulk_insert_has_an_array_type(table: Table) -> None:
    assert {type_of(column) for column in table.columns} <= set(pg_arrays.OF_TYPE)


@pytest.mark.parametrize("table", UPDATED, ids=lambda table: table.name)
def test_every_column_of_a_bulk_update_has_an_array_type(table: Table) -> None:
    updated = [column for column in table.columns if column.name not in ONLY_INSERTED]

    assert {type_of(column) for column in updated} <= set(pg_arrays.OF_TYPE)


def test_a_record_has_the_columns_of_its_table() -> None:
    assert list(DepositRecord._fields) == tables.deposits.columns.keys()
    assert [*RejectionRecord._fields, "mac"] == tables.rejections.columns.keys()
