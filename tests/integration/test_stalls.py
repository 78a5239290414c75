"""A failure that is ours rejects nothing: what it concerns waits, and goes on after the repair."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

import psycopg
import pytest
import structlog
from psycopg import sql
from structlog.testing import capture_logs

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import databases
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.decisions import sources
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.failures import is_canary
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import canaries, inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.schema.ids import Id
from tests.waiting import eventually
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

Event = dict[str, Any]

PARKED_OTHERWISE = """UPDATE parked SET body = replace(body::text, '"type"', '"kind"')::json"""
PARKED_AS_EVER = """UPDATE parked SET body = replace(body::text, '"kind"', '"type"')::json"""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def drain_until(world: World, engine: Engine, count: int) -> list[Decided]:
    """Drain until `count` messages are decided, in their order of arrival."""
    decided: list[Decided] = []

    def is_done() -> bool:
        decided.extend(world.drain(engine))
        return len(decided) >= count

    eventually(is_done)
    return sorted(decided, key=lambda decision: decision.message.id)


def stalls(world: World) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT lane, shard, is_whole_queue, customer_id, message_id, error FROM stalled_queues"
    )


def neighbours(world: World, platform: Id, count: int, balance: int = 1000) -> list[Cardholder]:
    """Return cardholders in the same queue."""
    first = world.cardholder(platform, balance)
    found = [first]
    while len(found) < count:
        other = world.cardholder(platform)
        if other.shard == first.shard:
            world.process(world.engine(), [(other, world.deposit(other, balance))])
            found.append(other)
    return found


@contextmanager
def logged() -> Iterator[list[Any]]:
    """Collect what is logged, which the tests' configuration drops."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.stdlib.BoundLogger)
    try:
        with capture_logs() as logs:
            yield logs
    finally:
        structlog.configure(**before)


@contextmanager
def revoked(world: World, right: str) -> Iterator[None]:
    """Take `right`, of the form "INSERT ON entries", from the workers for a while."""
    role = sql.Identifier(databases.role_of(world.worker_url))
    world.connection.execute(sql.SQL(f"REVOKE {right} FROM {{}}").format(role))
    try:
        yield
    finally:
        world.connection.execute(sql.SQL(f"GRANT {right} TO {{}}").format(role))


@contextmanager
def cursed(world: World, reference: str) -> Iterator[None]:
    """Let the outcome of the message with `reference` fail by a trigger."""
    world.connection.execute(
        sql.SQL(
            "CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.reference = {} THEN RAISE object_not_in_prerequisite_state; END IF;"
            " RETURN NEW; END $$"
        ).format(reference)
    )
    world.connection.execute(
        "CREATE TRIGGER curse BEFORE INSERT ON outcomes FOR EACH ROW EXECUTE FUNCTION curse()"
    )
    try:
        yield
    finally:
        world.connection.execute("DROP TRIGGER curse ON outcomes")
        world.connection.execute("DROP FUNCTION curse")


# --- systemic ------------------------------------------------------------------------------------


def test_a_revoked_right_stops_the_queue_and_rejects_nothing(world: World, platform: Id) -> None:
    cardholders = neighbours(world, platform, 5)
    events = [
        (cardholder, world.clearing(cardholder, f"T{n}", 10))
        for n in range(10)
        for cardholder in cardholders
    ]
    engine = world.engine()

    with revoked(world, "INSERT ON entries"):
        messages = world.accept(events)
        with logged() as logs:
            for _ in range(5):
                assert world.drain(engine) == []
        stopped = stalls(world)
        waiting = world.count("inbox")
    decided = drain_until(world, engine, len(events))

    assert waiting == len(events)
    shard = cardholders[0].shard
    [(*queue, message_id, error)] = [row for row in stopped if row[2]]
    assert queue == [0, shard, True, Id(bytes(16))]
    assert message_id in {message.id for message in messages}
    assert error.startswith("42501: permission denied for table entries")
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) <= 5  # Four cardholders and the queue: once each, whatever was tried since.
    assert next(entry for entry in errors if "customer_id" not in entry)["shard"] == shard
    assert not any("exc_info" in entry for entry in logs)
    assert [decision.message.id for decision in decided] == [message.id for message in messages]
    assert outcomes_of(decided) == ["APPLIED"] * len(events)
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])
    for cardholder in cardholders:
        world.check_books(cardholder)


@pytest.mark.parametrize("with_canary", [False, True], ids=["", "beside-canaries"])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_queue_in_which_every_cardholder_fails_stays_stopped_until_the_repair(
    world: World, platform: Id, count: int, *, with_canary: bool
) -> None:
    cardholders = neighbours(world, platform, count)
    shard = cardholders[0].shard
    engine = world.engine()
    states: list[bool] = []

    def have_been_tried_again() -> bool:
        if with_canary:
            send_canary(world, shard)
        world.drain(engine)
        known = stalls(world)
        states.append(any(row[1] == shard and row[2] for row in known))
        attempts = world.rows("SELECT attempts FROM stalled_queues WHERE NOT is_whole_queue")
        return len(attempts) == count and all(tries >= 3 for (tries,) in attempts)

    with revoked(world, "INSERT ON entries"):
        # As with little traffic: each batch has one cardholder.
        for cardholder in cardholders:
            world.accept([(cardholder, world.clearing(cardholder, "T", 10))])
            assert outcomes_of(world.drain(engine)) == []
        eventually(have_been_tried_again)
    decided = [each for each in drain_until(world, engine, count) if not is_canary(each.message)]

    assert all(states)
    assert engine.stopped_queues() == 0
    assert outcomes_of(decided) == ["APPLIED"] * count
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_after_the_repair_a_locked_cardholder_does_not_keep_a_queue_stopped(
    world: World, platform: Id
) -> None:
    locked, free = neighbours(world, platform, 2)
    engine = world.engine()

    with revoked(world, "INSERT ON entries"):
        for cardholder in (locked, free):
            world.accept([(cardholder, world.clearing(cardholder, "T", 10))])
            assert world.drain(engine) == []
        assert engine.stopped_queues() == 1
    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE", [locked.account_id]
        )
        [first] = drain_until(world, engine, 1)
        outsider.rollback()

    assert first.message.customer_id == free.owner.customer_id
    assert engine.stopped_queues() == 0
    assert outcomes_of(drain_until(world, engine, 1)) == ["APPLIED"]
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_after_the_repair_many_locked_cardholders_do_not_keep_a_queue_stopped(
    world: World, platform: Id
) -> None:
    *locked, free = neighbours(world, platform, 9)
    engine = world.engine()
    events = [(each, world.clearing(each, "T", 10)) for each in (*locked, free)]

    with revoked(world, "INSERT ON entries"):
        world.accept(events)
        while engine.stopped_queues() == 0:
            assert world.drain(engine) == []
    with psycopg.connect(world.url) as outsider:
        outsider.execute(
            "SELECT FROM internal_accounts WHERE id = ANY(%s) FOR UPDATE",
            [[each.account_id for each in locked]],
        )
        [first] = drain_until(world, engine, 1)
        outsider.rollback()

    assert first.message.customer_id == free.owner.customer_id
    assert outcomes_of(drain_until(world, engine, len(locked))) == ["APPLIED"] * len(locked)
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_a_defect_whose_text_names_a_row_is_one_cause_for_all(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    cardholders = neighbours(world, platform, 3)
    engine = world.engine()

    def fail(_self: object, message: Message) -> NoReturn:
        raise KeyError(message.customer_id)

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "_dispatch", fail)
        for cardholder in cardholders:
            world.accept([(cardholder, world.clearing(cardholder, "T", 10))])
            assert world.drain(engine) == []
        assert engine.stopped_queues() == 1
    decided = drain_until(world, engine, len(cardholders))

    assert outcomes_of(decided) == ["APPLIED"] * len(cardholders)
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_a_stopped_queue_keeps_its_canaries(world: World, platform: Id) -> None:
    """They passed through it: where stalls cannot be written, health checks saw nothing."""
    cardholders = neighbours(world, platform, 3)
    shard = cardholders[0].shard
    engine = world.engine()

    with revoked(world, "INSERT ON entries"), revoked(world, "INSERT ON stalled_queues"):
        world.accept([(each, world.clearing(each, "T", 10)) for each in cardholders])
        with logged() as logs:
            while engine.stopped_queues() == 0:
                assert world.drain(engine) == []
            send_canary(world, shard)
            for _ in range(5):
                assert world.drain(engine) == []
        assert stalls(world) == []
    decided = drain_until(world, engine, len(cardholders) + 1)

    shown = [each for each in logs if each["event"] == "stalled queues are not shown to others"]
    assert len(shown) == 1
    assert outcomes_of(decided) == ["APPLIED"] * len(cardholders) + ["IGNORED"]
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_a_stopped_queue_whose_messages_another_worker_has_decided_goes_on(
    world: World, platform: Id
) -> None:
    cardholders = neighbours(world, platform, 3)
    shard = cardholders[0].shard
    engine, other = world.engine(), world.engine()
    with revoked(world, "INSERT ON entries"):
        world.accept([(each, world.clearing(each, "T", 10)) for each in cardholders])
        while engine.stopped_queues() == 0:
            assert world.drain(engine) == []
    drain_until(world, other, len(cardholders))
    send_canary(world, shard)

    assert outcomes_of(drain_until(world, engine, 1)) == ["IGNORED"]
    assert engine.stopped_queues() == 0


def test_an_event_decided_in_another_queue_lets_a_stopped_one_go_on(
    world: World, platform: Id
) -> None:
    strangers = neighbours(world, platform, 2)
    other = next(
        found
        for found in iter(lambda: world.cardholder(platform, 100), None)
        if found.shard != strangers[0].shard
    )
    engine = world.engine()
    world.connection.execute("ALTER TABLE cards DROP CONSTRAINT IF EXISTS cards_state_check")
    keys = [cardholder.card_id for cardholder in strangers]
    world.connection.execute("UPDATE cards SET state = 'HIBERNATING' WHERE id = ANY(%s)", [keys])
    for cardholder in strangers:
        world.accept([(cardholder, world.clearing(cardholder, "T", 10))])
        assert world.drain(engine) == []
    stopped = engine.stopped_queues()

    world.accept([(other, world.clearing(other, "T", 10))])
    engine.drain(Lane.LIVE, [other.shard], lambda _: None)
    after = engine.stopped_queues()
    world.connection.execute("UPDATE cards SET state = 'ACTIVE' WHERE id = ANY(%s)", [keys])

    assert (stopped, after) == (1, 0)
    assert outcomes_of(drain_until(world, engine, 2)) == ["APPLIED"] * 2
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_cardholders_who_fail_alike_while_others_succeed_stop_no_queue(
    world: World, platform: Id
) -> None:
    strange, other, stranger = neighbours(world, platform, 3)
    engine = world.engine()
    for cardholder in (strange, stranger):
        world.connection.execute("ALTER TABLE cards DROP CONSTRAINT IF EXISTS cards_state_check")
        world.connection.execute(
            "UPDATE cards SET state = 'HIBERNATING' WHERE id = %s", [cardholder.card_id]
        )
    for cardholder in (strange, other, stranger, other):
        world.accept([(cardholder, world.clearing(cardholder, "T", 10))])
        world.drain(engine)

    stopped = engine.stopped_queues()
    world.connection.execute("UPDATE cards SET state = 'ACTIVE'")
    drain_until(world, engine, 2)

    assert stopped == 0
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def send_canary(world: World, shard: int) -> None:
    """Have a canary wait in the queue."""
    message = canaries.canary((Lane.LIVE, shard), datetime.now(UTC))
    with psycopg.connect(world.app_url) as connection:
        inbox.accept(connection, [message], INBOX_KEY)


def test_forged_messages_that_are_moved_away_do_not_hide_that_all_others_fail(
    world: World, platform: Id
) -> None:
    cardholders = neighbours(world, platform, 5)
    engine = world.engine()
    world.process(engine, [(cardholders[0], world.deposit(cardholders[0], 1))])
    stranger = InboxKey("the key of another installation, of 32 characters")
    insert = f"INSERT INTO inbox VALUES ({', '.join(['%s'] * 12)})".encode()

    with revoked(world, "INSERT ON entries"):
        for cardholder in cardholders:
            forged = inbox.address(
                world.deposit(cardholder, 1),
                cardholder.owner,
                lane=Lane.LIVE,
                reply_to=None,
                at=datetime.now(UTC),
            )
            world.connection.execute(insert, inbox.row_of(forged, stranger))
            world.accept([(cardholder, world.deposit(cardholder, 10))])
        for _ in range(5):
            world.drain(engine)
        stopped = [row[1] for row in stalls(world) if row[2]]
        waiting = world.count("inbox")
    decided: list[Decided] = []

    def are_decided() -> bool:
        decided.extend(each for each in world.drain(engine) if not each.is_forged)
        return len(decided) == len(cardholders)

    eventually(are_decided)
    assert stopped == [cardholders[0].shard]
    assert waiting >= len(cardholders)
    assert outcomes_of(decided) == ["APPLIED"] * len(cardholders)


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        (
            (
                "ALTER TABLE card_transaction_events ADD COLUMN added int NOT NULL DEFAULT 0;"
                " ALTER TABLE card_transaction_events ALTER COLUMN added DROP DEFAULT"
            ),
            "ALTER TABLE card_transaction_events DROP COLUMN added",
        ),
        (
            "ALTER TABLE entries RENAME COLUMN line TO place",
            "ALTER TABLE entries RENAME COLUMN place TO line",
        ),
        (
            (
                "DROP VIEW cardledger_api.outcomes; ALTER TABLE outcomes"
                " ALTER COLUMN outcome TYPE varchar(3) USING left(outcome, 3)"
            ),
            "ALTER TABLE outcomes ALTER COLUMN outcome TYPE text",
        ),
        (
            "ALTER TABLE inbox RENAME COLUMN reply_to TO answer_to",
            "ALTER TABLE inbox RENAME COLUMN answer_to TO reply_to",
        ),
    ],
    ids=["not-null", "undefined-column", "narrowed", "unreadable-queue"],
)
def test_a_schema_of_another_release_rejects_nothing(
    world: World, platform: Id, broken: str, repaired: str
) -> None:
    cardholders = [world.cardholder(platform, 1000) for _ in range(3)]
    messages = world.accept(
        [(each, world.clearing(each, f"T{n}", 10)) for n in range(4) for each in cardholders]
    )
    engine = world.engine()
    queues = engine.waiting()
    decided_early: list[Decided] = []

    world.connection.execute(broken.encode())
    try:
        for _ in range(3):
            for lane, shard in queues:
                engine.drain(lane, [shard], decided_early.extend)
    finally:
        world.connection.execute(repaired.encode())
    decided = drain_until(world, engine, len(messages))

    assert decided_early == []
    assert outcomes_of(decided) == ["APPLIED"] * len(messages)


def test_a_worker_that_is_started_later_clears_what_an_earlier_one_has_left(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    world.accept([(cardholder, world.clearing(cardholder, "T1", 10))])
    with revoked(world, "INSERT ON entries"):
        assert world.drain(world.engine()) == []
        assert stalls(world)

    successor = world.engine()
    decided = drain_until(world, successor, 1)
    successor.waiting()

    assert outcomes_of(decided) == ["APPLIED"]
    assert stalls(world) == []


# --- one cardholder ------------------------------------------------------------------------------


def test_a_value_of_a_newer_release_holds_back_its_cardholder_alone(
    world: World, platform: Id
) -> None:
    strange, other = neighbours(world, platform, 2)
    world.connection.execute("ALTER TABLE cards DROP CONSTRAINT IF EXISTS cards_state_check")
    world.connection.execute(
        "UPDATE cards SET state = 'HIBERNATING' WHERE id = %s", [strange.card_id]
    )
    first = [(strange, world.clearing(strange, f"T{n}", 10)) for n in range(3)]
    second = [(other, world.clearing(other, f"T{n}", 10)) for n in range(3)]
    sent = [event for pair in zip(first, second, strict=True) for event in pair]
    engine = world.engine()
    world.accept(sent)

    others = drain_until(world, engine, 3)
    [row] = stalls(world)
    world.connection.execute("UPDATE cards SET state = 'ACTIVE' WHERE id = %s", [strange.card_id])
    its_own = drain_until(world, engine, 3)

    assert {decision.message.customer_id for decision in others} == {other.owner.customer_id}
    assert row[2:4] == (False, strange.owner.customer_id)
    assert row[5].startswith("KeyError: 'HIBERNATING' (reads.py:")
    assert outcomes_of(others + its_own) == ["APPLIED"] * 6
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def test_a_type_of_a_newer_release_holds_back_its_cardholders_alone(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, also_mine, other = neighbours(world, platform, 3)
    older = world.engine()
    world.accept(
        [
            (mine, world.clearing(mine, "T1", 10)),
            (mine, world.clearing(mine, "T2", 10)),
            (also_mine, world.clearing(also_mine, "T1", 10)),
        ]
    )

    with monkeypatch.context() as before:
        before.setattr(sources, "_KNOWN", {*sources._KNOWN} - {"CLEARING"})
        assert world.drain(older) == []
        rows = stalls(world)
        world.accept([(other, world.authorization(other, "T", 10))])
        [of_other] = world.drain(older)
    decided = drain_until(world, world.engine(), 3)

    assert of_other.message.customer_id == other.owner.customer_id
    cardholders = {mine.owner.customer_id, also_mine.owner.customer_id}
    assert {row[2:4] for row in rows} == {(False, key) for key in cardholders}
    error = "UnknownTypeError: messages of type CLEARING are of a newer release"
    assert all(row[5].startswith(error) for row in rows)
    assert outcomes_of(decided) == ["APPLIED"] * 3
    eventually(lambda: older.waiting() == [] and stalls(world) == [])
    world.check_books(mine)


def test_what_a_newer_release_has_parked_rejects_nothing(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    engine = world.engine()
    world.process(engine, [(cardholder, world.event("CLEARING_REVERSAL", cardholder, "T1", 10))])
    world.connection.execute(PARKED_OTHERWISE)
    world.accept([(cardholder, world.clearing(cardholder, "T1", 10))])

    decided_early = world.drain(engine)
    [row] = stalls(world)
    world.connection.execute(PARKED_AS_EVER)
    decided = drain_until(world, engine, 1)

    assert decided_early == []
    assert row[5].startswith("KeyError: 'type' (network_events.py:")
    assert outcomes_of(decided) == ["APPLIED"]
    assert world.count("parked") == 0
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])
    world.check_books(cardholder)


def test_a_message_that_a_constraint_refuses_waits_for_the_repair_with_those_behind_it(
    world: World, platform: Id
) -> None:
    cardholder, other = neighbours(world, platform, 2)
    events = [world.clearing(cardholder, f"T{n}", 10) for n in range(4)]
    engine = world.engine()
    world.connection.execute(
        sql.SQL("ALTER TABLE outcomes ADD CONSTRAINT curse CHECK (reference <> {})").format(
            events[1]["reference"]
        )
    )
    try:
        world.accept(
            [(cardholder, event) for event in events] + [(other, world.clearing(other, "T", 10))]
        )
        before = drain_until(world, engine, 2)
        for _ in range(3):
            assert world.drain(engine) == []
    finally:
        world.connection.execute("ALTER TABLE outcomes DROP CONSTRAINT curse")

    after = drain_until(world, engine, 3)

    assert outcomes_of(before) == ["APPLIED"] * 2
    assert [decision.message.reference for decision in after] == [
        event["reference"] for event in events[1:]
    ]
    assert outcomes_of(after) == ["APPLIED"] * 3
    world.check_books(cardholder)


def test_a_trigger_that_fails_for_one_message_is_no_outage(world: World, platform: Id) -> None:
    """Its SQLSTATE, 55000, is one of psycopg's operational errors, as that of a lost server is."""
    cardholder, other = neighbours(world, platform, 2)
    event = world.clearing(cardholder, "T1", 10)
    engine = world.engine()
    with cursed(world, event["reference"]):
        world.accept([(cardholder, event), (other, world.clearing(other, "T", 10))])
        before = drain_until(world, engine, 1)
    after = drain_until(world, engine, 1)

    assert [one.message.customer_id for one in (*before, *after)] == [
        other.owner.customer_id,
        cardholder.owner.customer_id,
    ]
    assert outcomes_of([*before, *after]) == ["APPLIED"] * 2


def test_a_poison_message_without_neighbours_waits_until_one_succeeds(
    world: World, platform: Id
) -> None:
    cardholder, other = neighbours(world, platform, 2)
    key = world.insert_unchecked(
        cardholder,
        json.dumps(world.card_closed(cardholder)),
        reference="".join(f"{n:05}" for n in range(30_000)),
    )
    engine = world.engine()

    alone = world.drain(engine)
    world.accept([(other, world.clearing(other, "T", 10))])
    decided = drain_until(world, engine, 2)

    assert alone == []
    assert {str(decision.outcome) for decision in decided} == {"REJECTED", "APPLIED"}
    assert world.rows("SELECT reason FROM rejections WHERE id = %s", key) == [("INTERNAL_ERROR",)]


def test_a_stall_stays_while_another_worker_has_the_queue(world: World, platform: Id) -> None:
    """Nothing was claimed there, which was taken for: others have decided it."""
    cardholders = neighbours(world, platform, 3)
    shard = cardholders[0].shard
    engine = world.engine()
    with revoked(world, "INSERT ON entries"):
        world.accept([(each, world.clearing(each, "T", 10)) for each in cardholders])
        while engine.stopped_queues() == 0:
            assert world.drain(engine) == []
        before = {row[3] for row in stalls(world)}
        other = (shard + 1) % inbox.SHARDS
        with psycopg.connect(world.url) as outsider:
            outsider.execute("SELECT FROM inbox_shards WHERE shard = %s FOR UPDATE", [shard])
            for _ in range(20):
                engine.step(Lane.LIVE, [other, shard], lambda _: None)

        assert engine.stopped_queues() == 1
        assert {row[3] for row in stalls(world)} == before

    assert len(drain_until(world, engine, len(cardholders))) == len(cardholders)
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


@pytest.mark.parametrize("cause", ["queue", "cardholder"])
def test_a_stall_stays_while_batches_pass_over_its_cardholder(
    world: World, platform: Id, cause: str
) -> None:
    """A batch that could not claim its messages was taken for one that had decided them."""
    stalled, other = neighbours(world, platform, 2)
    event = world.clearing(stalled, "T1", 10)
    elsewhere = (stalled.shard + 1) % inbox.SHARDS
    engine = world.engine()
    lock, key = {
        "queue": ("SELECT FROM inbox_shards WHERE shard = %s FOR UPDATE", stalled.shard),
        "cardholder": (
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE",
            stalled.account_id,
        ),
    }[cause]
    with cursed(world, event["reference"]):
        world.accept([(stalled, event), (other, world.clearing(other, "T", 10))])
        drain_until(world, engine, 1)
        with psycopg.connect(world.url) as outsider:
            outsider.execute(lock, [key])
            for _ in range(20):
                before = attempts(world)
                make_due(engine)
                engine.step(Lane.LIVE, [elsewhere, stalled.shard], lambda _: None)
                assert attempts(world) >= before
                assert [customer for customer, _ in before] == [stalled.owner.customer_id]

    [decided] = drain_until(world, engine, 1)

    assert outcomes_of([decided]) == ["APPLIED"]
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])
    world.check_books(stalled)


def test_decisions_before_a_failure_are_answered_one_by_one(world: World, platform: Id) -> None:
    """They were answered after the failure: callers waited for the commits of all others."""
    cursed_one, other = neighbours(world, platform, 2)
    event = world.clearing(cursed_one, "T1", 10)
    engine = world.engine()
    before = world.count("outcomes")
    events = [(other, world.clearing(other, f"T{n}", 1)) for n in range(60)]
    events[49:49] = [(cursed_one, event)]
    answered: list[Decided] = []
    written: list[int] = []  # Outcomes, at each answer.

    def answer(decided: list[Decided]) -> None:
        answered.extend(decided)
        written.append(world.count("outcomes") - before)

    with cursed(world, event["reference"]):
        accepted = world.accept(events)
        engine.step(Lane.LIVE, [other.shard], answer)
        assert written == [*range(1, 50)]
        assert [one.message.id for one in answered] == [one.id for one in accepted[:49]]
    eventually(lambda: [engine.step(Lane.LIVE, [other.shard], answer)] and len(answered) == 61)

    assert sorted(one.message.id for one in answered) == sorted(one.id for one in accepted)
    eventually(lambda: engine.waiting() == [] and stalls(world) == [])


def attempts(world: World) -> list[tuple[Any, ...]]:
    return world.rows("SELECT customer_id, attempts FROM stalled_queues")


def make_due(engine: Engine) -> None:
    """Let every stalled cardholder of `engine` be tried by the next batch."""
    engine._stalls._next_retries.clear()
    for stall in engine._stalls._stalls.values():
        stall.retry_at = 0.0
