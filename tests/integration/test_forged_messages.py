"""Rows of the inbox that no process of this installation has accepted.

Decided are only those whose MAC was made with the server key; the others are kept apart.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import message_findings
from cardledger.install.findings import FAIL
from cardledger.ledger.audit import acceptances
from cardledger.ledger.engine import key_proof
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.key_proof import KeyProof
from cardledger.ledger.engine.timers import Timers
from cardledger.ledger.messaging import canaries, forged_messages, inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import migrate
from cardledger.schema.ids import Id
from tests.databases import as_psql
from tests.waiting import eventually
from tests.world import INBOX_KEY, RAIL, Cardholder, World, open_world, outcomes_of

WRONG_KEY: Final = InboxKey("the key of another installation, of 32 characters")

KEYS: Final = Path(__file__).parents[2] / "docs" / "keys.md"

_INSERT: Final = f"INSERT INTO inbox VALUES ({', '.join(['%s'] * 12)})"


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def worker(world: World, platform: Id) -> Engine:
    """A worker that has decided messages of this installation."""
    engine = world.engine()
    world.cardholder(platform, 1, engine=engine)
    return engine


def addressed(cardholder: Cardholder, body: dict[str, Any]) -> Message:
    now = datetime.now(UTC)
    return inbox.address(body, cardholder.owner, lane=Lane.LIVE, reply_to=None, at=now)


def insert(world: World, row: tuple[Any, ...]) -> None:
    """Insert `row` into the inbox as who has the password of the application's role."""
    with psycopg.connect(world.app_url) as connection:
        connection.execute(_INSERT, row)


def insert_forged(world: World, victims: Sequence[Cardholder], count: int) -> set[Id]:
    """Insert `count` deposits to the `victims` in turn, signed with another key; return their ids.

    With the password of the application's role.
    """
    in_turn = itertools.islice(itertools.cycle(victims), count)
    messages = [addressed(one, world.deposit(one, 1)) for one in in_turn]
    with psycopg.connect(world.app_url) as connection, connection.cursor() as cursor:
        cursor.executemany(_INSERT, [inbox.row_of(each, WRONG_KEY) for each in messages])
    return {message.id for message in messages}


def forged_ids(world: World) -> set[Id]:
    return {key for (key,) in world.rows("SELECT message_id FROM forged_messages")}


def unbalanced(world: World) -> list[str]:
    with psycopg.connect(world.url) as connection:
        return list(acceptances.differences(connection))


def with_another_amount(row: tuple[Any, ...], _: Cardholder) -> tuple[Any, ...]:
    body = json.loads(row[7]) | {"amount": 90_000}
    return *row[:7], json.dumps(body), *row[8:]


def of_another_customer(row: tuple[Any, ...], other: Cardholder) -> tuple[Any, ...]:
    body = json.loads(row[7]) | {"accountId": str(other.account_id)}
    owner = other.owner
    moved = (row[0], other.shard, row[2], owner.customer_id, owner.platform_id)
    return *moved, *row[5:7], json.dumps(body), *row[8:]


FORGERIES: Final[dict[str, Callable[[tuple[Any, ...], Cardholder], tuple[Any, ...]]]] = {
    "without a MAC": lambda row, _: (*row[:-1], None),
    "with a short MAC": lambda row, _: (*row[:-1], b""),
    "with another key": lambda row, _: (*row[:-1], WRONG_KEY.mac(row[:-1])),
    "a copy": lambda row, _: (*row[:2], new_id(), *row[3:6], "again", *row[7:]),
    "with another amount": with_another_amount,
    "of another customer": of_another_customer,
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_row_is_kept_apart_and_its_neighbours_are_decided(
    world: World,
    platform: Id,
    worker: Engine,
    forge: Callable[[tuple[Any, ...], Cardholder], tuple[Any, ...]],
) -> None:
    victim, other = world.cardholder(platform), world.cardholder(world.platform())
    genuine = addressed(victim, world.deposit(victim, 100))
    forged = forge(inbox.row_of(genuine, INBOX_KEY), other)
    insert(world, forged)

    decided = world.process(worker, [(victim, world.deposit(victim, 7))])

    assert outcomes_of(decided) == ["APPLIED"]
    assert (world.balance(victim), world.balance(other)) == (7, 0)
    assert forged[2] in forged_ids(world)
    assert world.count("inbox") == 0
    assert not world.rows("SELECT FROM outcomes WHERE message_id = %s", forged[2])
    assert unbalanced(world) == []


def test_any_number_of_forged_rows_stops_no_queue(
    world: World, platform: Id, worker: Engine
) -> None:
    victims = [world.cardholder(platform) for _ in range(3)]
    before = len(forged_ids(world))
    insert_forged(world, victims, 600)

    decided = world.process(worker, [(one, world.deposit(one, 5)) for one in victims])

    assert outcomes_of(decided) == ["APPLIED"] * 3
    assert [world.balance(one) for one in victims] == [5] * 3
    assert len(forged_ids(world)) - before == 600
    assert world.count("stalled_queues") == 0


def test_a_worker_with_the_wrong_key_refuses_nothing(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform)
    mistaken = Engine(world.database, key=WRONG_KEY, rail=RAIL, batch_size=500)
    before = forged_ids(world)
    [message] = world.accept([(cardholder, world.deposit(cardholder, 100))])

    assert world.drain(mistaken) == []

    [(error,)] = world.rows("SELECT error FROM stalled_queues WHERE shard = %s", cardholder.shard)
    assert "CARDLEDGER_SECRET_KEY" in error
    decided = world.drain(world.engine())
    assert [each.message.id for each in decided] == [message.id]
    assert world.balance(cardholder) == 100
    assert forged_ids(world) == before
    mistaken.waiting()  # Notices that nothing waits any more.
    assert world.count("stalled_queues") == 0


def test_messages_of_the_ledger_itself_prove_no_key_right(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform)
    mistaken = Engine(world.database, key=WRONG_KEY, rail=RAIL, batch_size=500)
    canary = canaries.canary((Lane.LIVE, cardholder.shard), datetime.now(UTC))
    insert(world, inbox.row_of(canary, WRONG_KEY))
    [message] = world.accept([(cardholder, world.deposit(cardholder, 100))])

    world.drain(mistaken)

    assert message.id not in forged_ids(world)
    decided = world.drain(world.engine())
    assert message.id in {each.message.id for each in decided}
    assert world.balance(cardholder) == 100


def test_a_message_that_was_refused_by_mistake_is_accepted_again(
    world: World, platform: Id, worker: Engine
) -> None:
    [statement] = re.findall(r"```sql\n(.*?INSERT INTO inbox.*?)```", KEYS.read_text(), re.DOTALL)
    cardholder = world.cardholder(platform)
    mistaken = Engine(world.database, key=WRONG_KEY, rail=RAIL, batch_size=500)
    insert(world, inbox.row_of(addressed(cardholder, world.deposit(cardholder, 1)), WRONG_KEY))
    [message] = world.accept([(cardholder, world.deposit(cardholder, 100))])
    world.drain(mistaken)
    assert message.id in forged_ids(world)
    assert world.balance(cardholder) == 1

    since = f"SELECT refused_at FROM forged_messages WHERE message_id = '{message.id.hex()}'"
    with as_psql(world.url) as owner:
        owner.execute(statement.replace("'2026-11-23 10:00Z'", f"({since})").encode())
    world.drain(worker)

    assert world.balance(cardholder) == 101
    assert unbalanced(world) == []


def test_a_worker_that_has_just_started_looks_behind_forged_rows(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform)
    forged = addressed(cardholder, world.deposit(cardholder, 100))
    insert(world, inbox.row_of(forged, WRONG_KEY))
    started = Engine(world.database, key=INBOX_KEY, rail=RAIL, batch_size=1)
    world.accept([(cardholder, world.deposit(cardholder, 1))])

    world.drain(started)

    assert world.balance(cardholder) == 1
    assert forged.id in forged_ids(world)


def test_a_worker_that_has_just_started_looks_behind_any_number_of_forged_rows(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_proof, "_ROWS", 5)
    monkeypatch.setattr(key_proof, "_STEP_S", -1.0)  # One look at each attempt.
    cardholder = world.cardholder(platform)
    before = forged_ids(world)
    forged = insert_forged(world, [cardholder], 23)
    started = Engine(world.database, key=INBOX_KEY, rail=RAIL, batch_size=3)
    world.accept([(cardholder, world.deposit(cardholder, 10))])

    first = world.drain(started)
    refused_before = forged_ids(world) - before
    eventually(lambda: world.drain(started), message="the queue is not tried again")

    assert (first, refused_before) == ([], set())
    assert world.balance(cardholder) == 10
    assert forged_ids(world) - before == forged
    assert world.count("stalled_queues") == 0


def attempts_until_it_holds(proof: KeyProof, world: World, forged: Sequence[Message]) -> int:
    """Return how often `proof` is asked, at most 20 times, until it holds."""
    with psycopg.connect(world.url) as connection:
        for number in range(1, 21):
            if proof.holds(connection, Lane.LIVE, forged, []):
                return number
    return 0


def test_each_attempt_looks_further_into_the_queues_of_forged_rows_and_then_begins_again(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_proof, "_ROWS", 6)
    monkeypatch.setattr(key_proof, "_STEP_S", -1.0)
    victims = [world.cardholder(platform) for _ in range(2)]
    forged = [addressed(victims[n % 2], world.deposit(victims[n % 2], 1)) for n in range(30)]
    for each in forged:
        insert(world, inbox.row_of(each, WRONG_KEY))

    proof = KeyProof(INBOX_KEY)
    in_vain = attempts_until_it_holds(proof, world, forged)
    world.accept([(victims[0], world.deposit(victims[0], 10))])
    found_after = attempts_until_it_holds(proof, world, forged)

    world.drain(world.engine())
    assert (in_vain, world.balance(victims[0])) == (0, 10)
    assert 1 < found_after <= 7, "15 or 16 rows of each queue, 3 at a time"


def test_what_waits_before_forged_rows_or_is_held_proves_nothing(
    world: World, platform: Id
) -> None:
    former = InboxKey("the former server key, of 32 characters..")
    held, victim = (world.cardholder(platform) for _ in range(2))
    before, forged, after = (
        addressed(one, world.deposit(one, 5)) for one in (victim, victim, held)
    )
    insert(world, inbox.row_of(before, former))
    insert(world, inbox.row_of(forged, WRONG_KEY))
    insert(world, inbox.row_of(replace(after, shard=victim.shard), former))
    without = [held.owner.customer_id]
    with psycopg.connect(world.url) as connection:
        holds = KeyProof(former).holds(connection, Lane.LIVE, [forged], without)
        would_hold = KeyProof(former).holds(connection, Lane.LIVE, [forged], [])

    world.connection.execute("DELETE FROM inbox")
    assert (holds, would_hold) == (False, True)


def test_a_look_does_not_go_on_before_the_forged_rows_of_now(world: World, platform: Id) -> None:
    former = InboxKey("the former server key, of 32 characters..")
    proof, victim = KeyProof(former), world.cardholder(platform)
    early, before, forged = (addressed(victim, world.deposit(victim, 5)) for _ in range(3))
    proof._looked[Lane.LIVE, victim.shard] = early.id
    insert(world, inbox.row_of(before, former))
    insert(world, inbox.row_of(forged, WRONG_KEY))
    with psycopg.connect(world.url) as connection:
        holds = proof.holds(connection, Lane.LIVE, [forged], [])

    world.connection.execute("DELETE FROM inbox")
    assert not holds


def test_rows_without_a_mac_are_decided_until_the_deployment_is_finished(
    world: World, platform: Id, worker: Engine
) -> None:
    cardholder = world.cardholder(platform)

    def insert_unsigned(amount: int) -> Id:
        message = addressed(cardholder, world.deposit(cardholder, amount))
        insert(world, (*inbox.row_of(message, INBOX_KEY)[:-1], None))
        return message.id

    try:
        world.connection.execute("UPDATE inbox_macs SET is_required = false")
        insert_unsigned(10)
        world.accept([(cardholder, world.deposit(cardholder, 200))])
        insert_unsigned(3_000)
        decided = world.drain(worker)
    finally:
        migrate.finish(world.url)
    refused = insert_unsigned(40_000)
    world.drain(worker)

    assert outcomes_of(decided) == ["APPLIED"] * 3
    assert world.balance(cardholder) == 3_210
    assert refused in forged_ids(world)


def test_the_application_role_does_not_say_that_no_mac_is_needed(world: World) -> None:
    for change in (
        "UPDATE inbox_macs SET is_required = false",
        "DELETE FROM inbox_macs",
        "INSERT INTO inbox_macs VALUES (false)",
        "DELETE FROM forged_messages",
    ):
        with (
            psycopg.connect(world.app_url) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(change)


def test_a_forged_transfer_does_not_fail_the_one_that_it_names(
    world: World, platform: Id, worker: Engine
) -> None:
    source = world.cardholder(platform, 100)
    destination = world.another_account(source)
    body = world.transfer(source, destination, 60)
    insert(world, inbox.row_of(addressed(source, body), WRONG_KEY))

    world.drain(worker)
    [status] = world.rows("SELECT status FROM transfers WHERE id = %s", body["transferId"])
    decided = world.process(worker, [(source, body)])

    assert status == ("PROCESSING",)
    assert outcomes_of(decided) == ["APPLIED"]


def test_a_forged_row_does_not_take_the_place_of_an_expiry(
    world: World, platform: Id, worker: Engine
) -> None:
    cardholder = world.cardholder(platform, 100)
    world.process(worker, [(cardholder, world.authorization(cardholder, "T1", 60))])
    [(expires_at,)] = world.rows(
        "SELECT expires_at FROM card_transactions WHERE account_id = %s", cardholder.account_id
    )
    with psycopg.connect(world.app_url) as connection:
        Timers(INBOX_KEY).enqueue_due(connection, expires_at)
    [expiry] = world.rows("DELETE FROM inbox RETURNING *")
    insert(world, (*expiry[:7], json.dumps({"type": "DANCE"}), *expiry[8:]))
    world.drain(worker, Lane.BULK)
    assert expiry[2] in forged_ids(world)

    world.run_timers(world.engine(clock=lambda: expires_at), expires_at)

    assert world.balance(cardholder) == 100


@pytest.mark.parametrize("received_at", ["infinity", "-infinity", "10000-01-01 00:00Z"])
def test_a_time_that_no_process_can_read_stays_out_of_the_inbox(
    world: World, platform: Id, received_at: str
) -> None:
    cardholder = world.cardholder(platform)
    row = list(inbox.row_of(addressed(cardholder, world.deposit(cardholder, 1)), INBOX_KEY))
    row[10] = received_at

    with pytest.raises(psycopg.errors.CheckViolation):
        insert(world, tuple(row))


# --- what is signed, and contradicts itself -------------------------------------------------------


def test_deposits_are_refused_outside_the_sandbox(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform)

    [decided] = world.process(
        world.engine(rail=None), [(cardholder, world.deposit(cardholder, 100))]
    )

    assert (decided.outcome, decided.reason) == ("REJECTED", "SOURCE_NOT_ALLOWED")
    assert world.balance(cardholder) == 0


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("AUTHORIZATION", "engine"),
        ("CLEARING", "schedule"),
        ("AUTHORIZATION_EXPIRY", "cards"),
        ("DEPOSIT", "transfers"),
        ("RECOVERY", "network"),
        ("SUSPENSE", "network"),
        ("TRANSFER", "network"),
        ("CARD_CLOSED", "schedule"),
        ("PULL_CONFIRMATION", "network"),
        ("TIMEOUT_REVERSAL", "network"),
    ],
)
def test_a_source_sends_messages_of_its_own_types_only(
    world: World, platform: Id, worker: Engine, kind: str, source: str
) -> None:
    cardholder = world.cardholder(platform)
    body = world.clearing(cardholder, "T1", 10) | {"type": kind, "source": source}

    [decided] = world.process(worker, [(cardholder, body)])

    assert (decided.outcome, decided.reason) == ("REJECTED", "SOURCE_NOT_ALLOWED")


def test_a_message_does_not_reach_the_resources_of_another_platform(
    world: World, platform: Id, worker: Engine
) -> None:
    cardholder = world.cardholder(platform, 100)
    destination = world.another_account(cardholder)
    bodies = [
        (world.deposit(cardholder, 50), "UNKNOWN_ACCOUNT"),
        (world.authorization(cardholder, "T1", 10), "UNKNOWN_CARD"),
        (world.transfer(cardholder, destination, 10), "UNKNOWN_TRANSFER"),
    ]
    elsewhere = replace(cardholder, owner=replace(cardholder.owner, platform_id=world.platform()))

    decided = world.process(worker, [(elsewhere, body) for body, _ in bodies])

    assert [each.reason for each in decided] == [reason for _, reason in bodies]
    assert world.balance(cardholder) == 100


# --- what operators see ---------------------------------------------------------------------------


def test_forged_messages_are_reported_for_a_day(world: World, platform: Id, worker: Engine) -> None:
    cardholder = world.cardholder(platform)
    before = recently_forged(world, datetime.now(UTC))
    insert(world, inbox.row_of(addressed(cardholder, world.deposit(cardholder, 1)), WRONG_KEY))

    world.drain(worker)

    assert recently_forged(world, datetime.now(UTC)) == before + 1
    assert recently_forged(world, datetime.now(UTC) + timedelta(days=1, minutes=1)) == 0
    finding = message_findings.forged(world.connection)
    assert finding.state == FAIL
    assert f"{before + 1} message(s)" in finding.detail
    assert finding.fix is not None
    shown = world.connection.execute(finding.fix.split("'")[1].encode()).fetchall()
    assert cardholder.owner.customer_id in shown[0]


def recently_forged(world: World, now: datetime) -> int:
    async def count() -> int:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await forged_messages.recent(connection, now)

    return asyncio.run(count())
