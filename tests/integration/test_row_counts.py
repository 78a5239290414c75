"""Rows that were there before they were counted count too."""

from collections.abc import Iterator

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from cardledger.schema.ids import Id
from tests.databases import fresh_database

BEFORE, COUNTING, COUNTED = "0026", "0028", "0029"
ROWS = 3


@pytest.fixture
def earlier(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database of an earlier release with a platform that has three customers."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url, BEFORE)
        yield url
        migrate.downgrade(url, "base")  # The roles belong to the server and would stay.


def platform_of(connection: psycopg.Connection) -> Id:
    platform_id = new_id()
    connection.execute(
        "INSERT INTO platforms (id, name, supported_currencies, signing_key, public_key,"
        " webhook_secret, created_at, updated_at)"
        " VALUES (%s, '', '{USD}', '', '', '', now(), now())",
        [platform_id],
    )
    return platform_id


def insert_customers(connection: psycopg.Connection, platform_id: Id, count: int) -> None:
    connection.execute(
        "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type, kyc_status,"
        " uma_address, currencies, is_deleted, created_at, updated_at)"
        " SELECT gen_random_uuid(), %s, gen_random_uuid()::text, 'INDIVIDUAL', 'APPROVED',"
        " '$' || gen_random_uuid() || '@example.com', '{USD}', false, now(), now()"
        " FROM generate_series(1, %s)",
        [platform_id, count],
    )


def counted(connection: psycopg.Connection, platform_id: Id) -> int:
    [[rows]] = connection.execute(
        "SELECT sum(rows) FROM row_counts WHERE platform_id = %s AND resource = 'customers'",
        [platform_id],
    )
    return int(rows)


def test_earlier_rows_and_those_between_the_revisions_are_counted_once(
    earlier: DatabaseUrl,
) -> None:
    with psycopg.connect(earlier, autocommit=True) as connection:
        platform_id = platform_of(connection)
        insert_customers(connection, platform_id, ROWS)
        migrate.upgrade(earlier, COUNTING)
        insert_customers(connection, platform_id, 1)
        migrate.upgrade(earlier, COUNTED)
        first = counted(connection, platform_id)

        connection.execute("UPDATE alembic_version SET version_num = %s", [COUNTING])
        migrate.upgrade(earlier, COUNTED)
        insert_customers(connection, platform_id, 1)

        assert (first, counted(connection, platform_id)) == (ROWS + 1, ROWS + 2)


def test_a_platform_near_the_quota_of_all_may_have_twice_of_what_it_has(
    earlier: DatabaseUrl,
) -> None:
    with psycopg.connect(earlier, autocommit=True) as connection:
        small, large = platform_of(connection), platform_of(connection)
        insert_customers(connection, small, ROWS - 1)
        insert_customers(connection, large, ROWS)
        migrate.upgrade(earlier, COUNTING)
        connection.execute(
            "UPDATE row_quotas SET rows = %s WHERE resource = 'customers'", [2 * ROWS - 1]
        )

        migrate.upgrade(earlier, COUNTED)

        found = connection.execute(
            "SELECT platform_id, resource, rows FROM row_quotas WHERE platform_id IN (%s, %s)",
            [small, large],
        ).fetchall()
    assert found == [(large, "customers", 2 * ROWS)]
