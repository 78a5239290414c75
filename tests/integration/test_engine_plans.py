"""What the engine reads does not depend on PostgreSQL's statistics, which lag behind the tables."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine import debts, reads
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage.engines import driver
from tests.world import Cardholder, World, open_world, outcomes_of

CUSTOMERS: Final = 500
PURCHASES: Final = 3_000
KEYS: Final = 50

Read = Callable[[psycopg.Connection[Any]], object]


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def crowd(world: World) -> Cardholder:
    """Return a cardholder, of whom there are copies with an account each."""
    cardholder = world.cardholder(world.platform(), 1_000)
    world.connection.execute(
        "CREATE TEMP TABLE copies AS SELECT gen_random_uuid() AS id, n"
        " FROM generate_series(1, %s) n",
        [CUSTOMERS],
    )
    names = "'platform_customer_id', k.id, 'uma_address', '$' || k.id || '@test'"
    _copy(world, cardholder, "customers", f"'id', k.id, {names}")
    _copy(world, cardholder, "internal_accounts", "'id', k.id, 'customer_id', k.id")
    return cardholder


def _copy(world: World, of: Cardholder, table: str, changed: str, rows: str = "copies k") -> None:
    world.connection.execute(
        f"INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object({changed}))).*"
        f" FROM {table} t, {rows}"
        " WHERE %s IN (to_jsonb(t) ->> 'id', to_jsonb(t) ->> 'customer_id')".encode(),
        [str(of.owner.customer_id)],
    )


def purchases(world: World, cardholder: Cardholder) -> None:
    """Have many copies of a card transaction that the engine has opened."""
    engine = world.engine()
    decided = world.process(engine, [(cardholder, world.authorization(cardholder, "T0", 100))])
    assert outcomes_of(decided) == ["APPLIED"]
    changed = "'id', gen_random_uuid(), 'issuer_transaction_token', 'T' || n"
    _copy(world, cardholder, "card_transactions", changed, f"generate_series(1, {PURCHASES}) n")


def fetched(world: World, read: Read) -> int:
    """Return how many rows of card_transactions PostgreSQL fetches for `read`.

    The first runs prepare the statement.
    """
    counts = [_fetched(world, read) for _ in range(4)]
    return counts[-1]


def _fetched(world: World, read: Read) -> int:
    with world.database.begin() as connection:
        before = _count(driver(connection))
        read(driver(connection))
        return _count(driver(connection)) - before


def _count(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE relname = 'card_transactions'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_card_transactions_are_found_by_their_keys_before_there_are_statistics(
    world: World,
) -> None:
    cardholder = crowd(world)
    world.connection.execute("ANALYZE")
    purchases(world, cardholder)
    customer, card = cardholder.owner.customer_id, cardholder.card_id
    keys = reads.columns([(customer, card, f"T{number}") for number in range(KEYS)])

    found = fetched(world, lambda connection: reads.roll_ups(connection, keys)())

    assert found == KEYS


def test_debts_are_found_by_their_accounts_although_most_have_come_since_the_statistics(
    world: World,
) -> None:
    cardholder = crowd(world)
    purchases(world, cardholder)
    # In no order: by an index in the order of the rows, many would seem to cost as little as one.
    world.connection.execute(
        "UPDATE card_transactions c SET account_id = k.id FROM copies k"
        " WHERE k.n = 1 + (hashtext(c.id::text) & 255)"
    )
    world.connection.execute("VACUUM (ANALYZE)")
    found: list[RollUp] = []

    def read(connection: psycopg.Connection[Any]) -> None:
        pages = debts.read(connection, [cardholder.owner.customer_id], debts.DEBTS_LIMIT)()
        found[:] = [roll_up for page in pages.values() for roll_up in page.roll_ups]

    assert fetched(world, read) == 0  # The plan is made, and kept.
    world.connection.execute(
        "UPDATE card_transactions SET status = 'EXCEPTION', debt_id = gen_random_uuid(),"
        " debt_since = now()"
    )
    world.connection.execute(
        "UPDATE card_transactions SET account_id = %s WHERE customer_id = %s"
        " AND issuer_transaction_token = 'T1'",
        [cardholder.account_id, cardholder.owner.customer_id],
    )

    assert fetched(world, read) == len(found) == 1
