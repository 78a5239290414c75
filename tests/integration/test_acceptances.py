"""What was accepted is provable: the audit names every message that is missing."""

import json
import os
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from psycopg import errors

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit.acceptances import Totals
from cardledger.ledger.audit.verification import Report
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from cardledger.schema.ids import Id
from tests.command_process import run_command
from tests.databases import fresh_database
from tests.world import Cardholder, World, open_world

INTO_INBOX: Final = """
    INSERT INTO inbox VALUES (0, 0, %s, %s, %s, 'network', 'r', '{}', '', NULL, now())
"""


@pytest.fixture
def world(postgres_url: DatabaseUrl, template_database: DatabaseUrl) -> Iterator[World]:
    with fresh_database(postgres_url, template=template_database.database) as url:
        app_url = url.with_user(migrate.app_role(template_database), "app")
        with open_world(url, app_url) as made:
            yield made


@pytest.fixture
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 50_000)


def accepted(world: World) -> list[Id]:
    return [key for (key,) in world.rows("SELECT unnest(ids) FROM acceptances")]


def delete_from_inbox(world: World, *ids: Id) -> int:
    """Do what the engine may do: delete messages with the role of the application."""
    with psycopg.connect(world.app_url) as connection:
        return connection.execute("DELETE FROM inbox WHERE id = ANY(%s)", [list(ids)]).rowcount


# --- the audit -----------------------------------------------------------------------------------


def test_a_message_deleted_while_it_waits_is_named(world: World, cardholder: Cardholder) -> None:
    lost, kept = world.accept(
        [
            (cardholder, world.clearing(cardholder, "T1", 700)),
            (cardholder, world.clearing(cardholder, "T2", 800)),
        ]
    )

    deleted = delete_from_inbox(world, lost.id)

    report = world.verify()
    assert deleted == 1
    assert [text.partition(" at ")[0] for text in report.differences] == [
        f"Message {lost.id}: accepted"
    ]
    assert report.messages == Totals(accepted=3, decided=1, waiting=1)  # Decided: the deposit.
    assert kept.id in accepted(world)


def test_the_command_names_the_message_and_fails(world: World, cardholder: Cardholder) -> None:
    [lost] = world.accept([(cardholder, world.clearing(cardholder, "T1", 700))])
    delete_from_inbox(world, lost.id)

    done = run_command("verify", "--json", env=os.environ | {"DATABASE_URL": world.app_url})

    report = json.loads(done.stdout)
    assert done.returncode == 1
    numbers = [report[name] for name in ("accepted", "decided", "waiting", "rejected")]
    assert (report["holds"], numbers) == (False, [2, 1, 0, 0])
    assert f"Message {lost.id}: accepted" in report["differences"][0]


def test_decided_rejected_parked_repeated_and_waiting_messages_are_accounted_for(
    world: World, cardholder: Cardholder
) -> None:
    engine = world.engine()
    clearing = world.clearing(cardholder, "T1", 700)
    events = [
        clearing,
        clearing,  # A duplicate in the same batch,
        {**clearing, "amount": 1},  # a reuse of its key,
        world.event("CLEARING_REVERSAL", cardholder, "unknown", 5),  # parked,
        world.clearing(cardholder, "T1", 700, currency="EUR"),  # rejected.
    ]
    first = world.process(engine, [(cardholder, event) for event in events])
    again = world.process(engine, [(cardholder, clearing)])  # And one in a later batch.
    world.accept([(cardholder, world.clearing(cardholder, "T3", 5))])

    report = world.verify()

    assert [decided.outcome for decided in first + again] == [
        "APPLIED", "DUPLICATE", "REJECTED", "PARKED", "REJECTED", "DUPLICATE"
    ]  # fmt: skip
    assert report.holds, report.differences
    assert report.messages == Totals(accepted=1 + 6 + 1, decided=5, waiting=1, rejected=2)


def test_a_message_accepted_again_under_its_id_must_be_decided_again(
    world: World, cardholder: Cardholder
) -> None:
    event = world.clearing(cardholder, "T1", 700)
    [decided] = world.process(world.engine(), [(cardholder, event)])
    with psycopg.connect(world.app_url) as app:
        app.execute(
            "INSERT INTO inbox SELECT 0, %s, message_id, customer_id, platform_id, source,"
            " reference, '{}', body_hash, NULL, now() FROM outcomes WHERE message_id = %s",
            [cardholder.shard, decided.message.id],
        )

    deleted = delete_from_inbox(world, decided.message.id)

    assert deleted == 1
    assert world.verify().difference_count == 1


def test_an_outcome_of_a_message_that_was_never_accepted_is_found(
    world: World, cardholder: Cardholder
) -> None:
    forged = new_id()
    with psycopg.connect(world.app_url) as app:
        app.execute(
            "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash,"
            " message_id, outcome, recorded_at) VALUES (%s, %s, 'network', 'r', '', %s, 'IGNORED',"
            " now())",
            [cardholder.owner.customer_id, cardholder.owner.platform_id, forged],
        )

    report = world.verify()

    assert report.differences == [f"Message {forged}: decided or waiting, but never accepted"]


def test_a_message_that_is_decided_and_rejected_too_is_found(
    world: World, cardholder: Cardholder
) -> None:
    """Only too few records of a message were found, not too many."""
    event = world.clearing(cardholder, "T1", 700)
    [decided] = world.process(world.engine(), [(cardholder, event)])
    key = decided.message.id
    with psycopg.connect(world.app_url) as app:
        app.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
            " SELECT message_id, customer_id, platform_id, '{}', 'MALFORMED', now() FROM outcomes"
            " WHERE message_id = %s",
            [key],
        )

    report = world.verify()

    numbers = "accepted 1, decided 1, waiting 0, rejected 1"
    assert report.differences == [f"Message {key}: recorded more often than accepted ({numbers})"]
    assert report.messages == Totals(accepted=2, decided=2, rejected=1)


# --- the record ----------------------------------------------------------------------------------


def test_an_insert_that_bypasses_our_code_is_recorded(world: World, cardholder: Cardholder) -> None:
    key = world.insert_unchecked(cardholder, "{}", reference="by hand")

    assert key in accepted(world)


def test_a_write_of_several_messages_is_one_row(world: World, cardholder: Cardholder) -> None:
    before = world.count("acceptances")

    messages = world.accept(
        [(cardholder, world.clearing(cardholder, f"T{number}", 5)) for number in range(600)]
    )

    [(ids,)] = world.rows(f"SELECT ids FROM acceptances OFFSET {before}")
    assert ids == [message.id for message in messages]


def test_the_trigger_is_not_skipped_in_the_role_of_a_replica(
    world: World, cardholder: Cardholder
) -> None:
    world.connection.execute("SET session_replication_role = replica")

    key = world.insert_unchecked(cardholder, "{}", reference="by hand")

    assert key in accepted(world)


@pytest.mark.parametrize(
    "deed",
    [
        "INSERT INTO acceptances VALUES ('{}', now())",
        "UPDATE acceptances SET ids = '{}'",
        "DELETE FROM acceptances",
        "TRUNCATE acceptances",
        "ALTER TABLE inbox DISABLE TRIGGER acceptance",
        "DROP FUNCTION record_acceptance() CASCADE",
    ],
)
def test_the_application_may_not_write_acceptances_itself(world: World, deed: str) -> None:
    with psycopg.connect(world.app_url) as app, pytest.raises(errors.InsufficientPrivilege):
        app.execute(deed.encode())


def test_a_table_of_the_same_name_of_the_caller_gets_nothing(world: World) -> None:
    with psycopg.connect(world.app_url) as app:
        app.execute("CREATE TEMPORARY TABLE acceptances (ids uuid[], recorded_at timestamptz)")
        app.execute("SET search_path = pg_temp, cardledger")
        app.execute(INTO_INBOX, [key := new_id(), new_id(), new_id()])

    assert key in accepted(world)


# --- installations of earlier releases -----------------------------------------------------------


BEFORE = "0010"


@pytest.fixture
def earlier(postgres_url: DatabaseUrl) -> Iterator[DatabaseUrl]:
    """A database of an earlier release: a message is decided, one waits, a clock was ahead."""
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url, BEFORE)
        with psycopg.connect(url) as connection:
            for reference, age in (("decided", "1 day"), ("ahead", "-8 days")):
                connection.execute(
                    "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash,"
                    " message_id, outcome, recorded_at)"
                    " VALUES (%s, %s, 'network', %s, '', %s, 'IGNORED', now() - %s::interval)",
                    [new_id(), new_id(), reference, new_id(), age],
                )
            connection.execute(INTO_INBOX, [new_id(), new_id(), new_id()])
        yield url
        migrate.downgrade(url, "base")  # The role belongs to the server and would stay.


def audited(url: DatabaseUrl) -> Report:
    with open_world(url, url) as world:
        return world.verify()


def test_what_was_decided_before_the_migration_is_not_reported(earlier: DatabaseUrl) -> None:
    migrate.upgrade(earlier)

    report = audited(earlier)

    assert report.holds, report.differences
    assert report.messages == Totals(accepted=2, decided=1, waiting=1)


def test_what_waited_at_the_migration_counts_as_accepted(earlier: DatabaseUrl) -> None:
    migrate.upgrade(earlier)
    with psycopg.connect(earlier) as connection:
        connection.execute("DELETE FROM inbox")

    report = audited(earlier)

    assert report.difference_count == 1


def test_acceptances_are_recorded_after_the_tables_have_moved(postgres_url: DatabaseUrl) -> None:
    with fresh_database(postgres_url) as url:
        migrate.upgrade(url.with_schema("public"))

        migrate.upgrade(url)

        with psycopg.connect(url) as connection:
            connection.execute(INTO_INBOX, [new_id(), new_id(), new_id()])
        report = audited(url)
        migrate.downgrade(url, "base")
    assert (report.holds, report.messages) == (True, Totals(accepted=1, waiting=1))
