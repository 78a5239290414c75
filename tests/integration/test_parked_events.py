"""Parked events: listed by key, each with its platform, also those of an earlier release."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging import parked_events
from cardledger.ledger.messaging.parked_events import Filter, ParkedEvent
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from cardledger.schema.ids import Id
from tests.command_process import run_command
from tests.databases import fresh_database
from tests.system.support import environment
from tests.world import SECRET_KEY, World, open_world, outcomes_of

BEFORE, FILLED, NOW = "0029", "0030", "0032"


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def parked(world: World, platform: Id, *tokens: str) -> list[Id]:
    """Park a clearing reversal for each of `tokens`; return the messages, oldest first."""
    cardholder = world.cardholder(platform, 1_000)
    events = [world.event("CLEARING_REVERSAL", cardholder, token, 5) for token in tokens]
    decided = world.process(world.engine(), [(cardholder, event) for event in events])
    assert outcomes_of(decided) == ["PARKED"] * len(tokens)
    return [each.message.id for each in decided]


def found(world: World, which: Filter, *, limit: int = 10) -> list[ParkedEvent]:
    async def run() -> list[ParkedEvent]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await parked_events.find(connection, which, limit=limit)

    return asyncio.run(run())


def test_a_platform_finds_its_own_newest_first_and_page_by_page(world: World) -> None:
    platform, other = world.platform(), world.platform()
    keys = parked(world, platform, "T1", "T2", "T3")
    [foreign] = parked(world, other, "T1")

    page = found(world, Filter(platform_id=platform), limit=2)
    rest = found(world, Filter(platform_id=platform, before=page[-1].id), limit=2)

    assert [each.id for each in page + rest] == keys[::-1]
    assert page[0].platform_id == platform
    assert (page[0].type, page[0].issuer_transaction_token) == ("CLEARING_REVERSAL", "T3")
    assert found(world, Filter(platform_id=platform, id=foreign)) == []
    assert [each.id for each in found(world, Filter(platform_id=other))] == [foreign]
    assert {*keys, foreign} <= {each.id for each in found(world, Filter(), limit=100)}


def test_an_applied_event_is_not_listed_any_more(world: World) -> None:
    platform = world.platform()
    cardholder = world.cardholder(platform, 1_000)
    reversal = world.event("CLEARING_REVERSAL", cardholder, "T1", 5)
    engine = world.engine()
    world.process(engine, [(cardholder, reversal)])
    before = found(world, Filter(platform_id=platform))

    world.process(engine, [(cardholder, world.clearing(cardholder, "T1", 5))])

    assert [each.reference for each in before] == [reversal["reference"]]
    assert found(world, Filter(platform_id=platform)) == []


def test_the_command_line_lists_them(world: World, tmp_path: Path) -> None:
    older, newer = parked(world, world.platform(), "T1", "T2")

    def run(*arguments: str) -> tuple[int, str]:
        env = environment(DATABASE_URL=world.app_url, CARDLEDGER_SECRET_KEY=SECRET_KEY)
        finished = run_command("parked", "list", *arguments, env=env, cwd=tmp_path)
        return finished.returncode, finished.stdout or finished.stderr

    listed = run("--limit", "1")
    as_json = run("--json", "--limit", "1", "--before", str(newer))
    wrong = run("--before", "yesterday")

    assert listed[0] == 0, listed[1]
    assert listed[1].startswith(f"{newer}  ")
    [shown] = json.loads(as_json[1])
    assert (shown["id"], shown["type"]) == (str(older), "CLEARING_REVERSAL")
    assert shown["event"]["amount"] == 5
    assert wrong == (2, "cardledger: yesterday is not the id of a parked event\n")


# --- events that an earlier release has parked ---------------------------------------------------


@pytest.fixture
def earlier(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database of the previous release."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url, BEFORE)
        yield url
        migrate.downgrade(url, "base")  # The roles belong to the server and would stay.


def park_as_before(connection: psycopg.Connection, card: tuple[Id, Id], count: int) -> None:
    """Insert rows of `parked` as the previous release does."""
    connection.execute(
        "INSERT INTO parked (id, customer_id, card_id, issuer_transaction_token, body, received_at)"
        " SELECT gen_random_uuid(), %s, %s, 'T' || n, '{}', now() FROM generate_series(1, %s) n",
        [*card, count],
    )


def test_events_parked_before_and_beside_the_migration_get_their_platform(
    earlier: DatabaseUrl,
) -> None:
    customer, card, platform = new_id(), new_id(), new_id()
    with psycopg.connect(earlier, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO platforms (id, name, supported_currencies, signing_key, public_key,"
            " webhook_secret, created_at, updated_at)"
            " VALUES (%s, 'Acme', '{USD}', '', '', '', now(), now())",
            [platform],
        )
        connection.execute(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " VALUES (%s, %s, 'ada', 'INDIVIDUAL', 'APPROVED', '$ada@test', '{USD}', now(), now())",
            [customer, platform],
        )
        connection.execute(
            "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form,"
            " currency, funding_sources, processor_ref, issuer_ref, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'K', 'ACTIVE', 'VIRTUAL', 'USD', '{}', 'p', 'i', now(), now())",
            [card, customer, platform],
        )
        park_as_before(connection, (customer, card), 1_001)  # More than a page.
        migrate.upgrade(earlier, FILLED)
        park_as_before(connection, (customer, card), 1)
        between = connection.execute(
            "SELECT count(*) FROM parked WHERE platform_id = %s", [platform]
        ).fetchone()

        migrate.upgrade(earlier, NOW)

        filled = connection.execute(
            "SELECT count(*) FROM parked WHERE platform_id = %s", [platform]
        ).fetchone()
    assert (between, filled) == ((1,), (1_002,))
