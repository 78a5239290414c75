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
HALF = 5_000  # Of the quota of webhook endpoints.


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


def insert_endpoints(connection: psycopg.Connection, platform_id: Id, count: int) -> None:
    connection.execute(
        "INSERT INTO webhook_endpoints (id, platform_id, url, state, mode, is_default, secret,"
        " event_types, created_at, updated_at)"
        " SELECT gen_random_uuid(), %s, 'https://example.com/', 'ENABLED', 'PARALLEL', false, '',"
        " '{}', now(), now() FROM generate_series(1, %s)",
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


def test_a_platform_with_more_than_half_of_a_quota_may_have_twice_what_it_has(
    earlier: DatabaseUrl,
) -> None:
    with psycopg.connect(earlier, autocommit=True) as connection:
        small, large = platform_of(connection), platform_of(connection)
        insert_endpoints(connection, small, HALF)
        insert_endpoints(connection, large, HALF + 1)

        migrate.upgrade(earlier, COUNTED)

        found = connection.execute(
            "SELECT platform_id, resource, rows FROM row_quotas WHERE platform_id IN (%s, %s)",
            [small, large],
        ).fetchall()
    assert found == [(large, "webhook_endpoints", 2 * (HALF + 1))]


def test_until_all_is_counted_nothing_is_refused(earlier: DatabaseUrl) -> None:
    with psycopg.connect(earlier, autocommit=True) as connection:
        platform_id = platform_of(connection)
        migrate.upgrade(earlier, COUNTING)

        insert_endpoints(connection, platform_id, 2 * HALF + 1)

        migrate.upgrade(earlier, COUNTED)
        insert_endpoints(connection, platform_id, 1)


def test_after_the_way_back_rows_are_counted_anew(earlier: DatabaseUrl) -> None:
    with psycopg.connect(earlier, autocommit=True) as connection:
        platform_id = platform_of(connection)
        migrate.upgrade(earlier, COUNTED)
        migrate.downgrade(earlier, "0027")
        insert_customers(connection, platform_id, ROWS)

        migrate.upgrade(earlier, COUNTED)

        assert counted(connection, platform_id) == ROWS


def insert_tokens(connection: psycopg.Connection, platform_id: Id, count: int) -> None:
    connection.execute(
        "INSERT INTO api_tokens (id, platform_id, name, client_id, secret_hash, permissions,"
        " created_at) SELECT gen_random_uuid(), %s, '', gen_random_uuid()::text, '', '{}', now()"
        " FROM generate_series(1, %s)",
        [platform_id, count],
    )


def test_earlier_tokens_are_counted_once(earlier: DatabaseUrl) -> None:
    def tokens(connection: psycopg.Connection, platform_id: Id) -> int:
        [[rows]] = connection.execute(
            "SELECT sum(rows) FROM row_counts WHERE platform_id = %s AND resource = 'api_tokens'",
            [platform_id],
        )
        return int(rows)

    migrate.upgrade(earlier, "0157")
    with psycopg.connect(earlier, autocommit=True) as connection:
        platform_id = platform_of(connection)
        insert_tokens(connection, platform_id, ROWS)
        migrate.upgrade(earlier, "0158")
        insert_tokens(connection, platform_id, 1)
        connection.execute("DELETE FROM api_tokens WHERE platform_id = %s", [platform_id])
        first = tokens(connection, platform_id)

        connection.execute("UPDATE alembic_version SET version_num = '0157'")
        migrate.upgrade(earlier, "0158")
        insert_tokens(connection, platform_id, 1)

        assert (first, tokens(connection, platform_id)) == (ROWS + 1, ROWS + 2)


_QUOTE = """
    INSERT INTO quotes (id, platform_id, customer_id, status, transaction_id, source_account_id,
        destination_account_id, sending_currency, receiving_currency, locked_side, sending_amount,
        receiving_amount, fee_amount, fee_fixed, fee_bps, rate_numerator, rate_denominator,
        created_at, expires_at, updated_at)
    SELECT gen_random_uuid(), %s, gen_random_uuid(), 'EXPIRED', gen_random_uuid(),
        gen_random_uuid(), gen_random_uuid(), 'USD', 'USD', 'SENDING', 1, 1, 0, 0, 0, 1, 1,
        now(), now(), now() FROM generate_series(1, %s)
"""


def test_quotes_that_an_earlier_release_deleted_do_not_count(earlier: DatabaseUrl) -> None:
    def quotes(connection: psycopg.Connection, platform_id: Id) -> int:
        [[rows]] = connection.execute(
            "SELECT sum(rows) FROM row_counts WHERE platform_id = %s AND resource = 'quotes'",
            [platform_id],
        )
        return int(rows)

    migrate.upgrade(earlier, "0136")
    with psycopg.connect(earlier, autocommit=True) as connection:
        some, none = platform_of(connection), platform_of(connection)
        for platform_id in (some, none):
            connection.execute(_QUOTE, [platform_id, ROWS])
        connection.execute("DELETE FROM quotes WHERE platform_id = %s", [none])
        connection.execute(
            "DELETE FROM quotes WHERE id IN (SELECT id FROM quotes WHERE platform_id = %s LIMIT 1)",
            [some],
        )
        before = [quotes(connection, platform_id) for platform_id in (some, none)]

        migrate.upgrade(earlier, "0140")
        after = [quotes(connection, platform_id) for platform_id in (some, none)]
        migrate.downgrade(earlier, "0136")
        connection.execute("DELETE FROM quotes WHERE platform_id = %s", [some])
        migrate.upgrade(earlier, "0140")

        assert (before, after) == ([ROWS, ROWS], [ROWS - 1, 0])
        assert [quotes(connection, platform_id) for platform_id in (some, none)] == [0, 0]


_TRANSFERS = """
    INSERT INTO transfers (id, customer_id, platform_id, source_account_id, destination_account_id,
        amount, currency, status, kind, origin_id, created_at, updated_at)
    SELECT gen_random_uuid(), %s, %s, gen_random_uuid(), gen_random_uuid(), 1, 'USD', 'PENDING',
        kind, gen_random_uuid(), now(), now() FROM unnest(%s::text[]) AS kind
"""


def test_what_an_earlier_engine_inserted_does_not_count(earlier: DatabaseUrl) -> None:
    def transfers(connection: psycopg.Connection, platform_id: Id) -> int:
        [[rows]] = connection.execute(
            "SELECT sum(rows) FROM row_counts WHERE platform_id = %s AND resource = 'transfers'",
            [platform_id],
        )
        return int(rows)

    migrate.upgrade(earlier, "0148")
    with psycopg.connect(earlier, autocommit=True) as connection:
        both, received = platform_of(connection), platform_of(connection)
        connection.execute(_TRANSFERS, [new_id(), both, ["OUT", "FEE", "INTERNAL"]])
        connection.execute(_TRANSFERS, [new_id(), received, ["RECEIVED"]])
        counts = [[transfers(connection, platform_id) for platform_id in (both, received)]]
        [[function]] = connection.execute("SELECT pg_get_functiondef('count_rows'::regproc)")

        for move, revision in ((migrate.upgrade, "0149"), (migrate.downgrade, "0148")):
            move(earlier, revision)
            connection.execute(_TRANSFERS, [new_id(), both, ["OUT", "RECEIVED"]])
            counts.append([transfers(connection, platform_id) for platform_id in (both, received)])

        assert counts == [[3, 1], [3, 0], [7, 1]]
        [[restored]] = connection.execute("SELECT pg_get_functiondef('count_rows'::regproc)")
        assert restored == function
