"""Enqueued events become messages or rejections: exactly once, in order, with a trace."""

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb
from sqlalchemy import NullPool
from sqlalchemy.exc import DBAPIError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging import enqueued_events
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage import batch_connections
from cardledger.ledger.storage.engines import driver
from cardledger.schema import migrate
from cardledger.schema.roles import Role
from cardledger.workers.process.mover import Mover
from cardledger.workers.signals.doorbell import Doorbell
from tests.databases import as_role, fresh_database
from tests.integration.workers import captured, dead_redis, working
from tests.waiting import eventually
from tests.world import INBOX_KEY, Cardholder, World, open_world

__all__ = ["dead_redis"]  # A fixture.

TAIL: Final = slice(8, None)  # What the id of a message has of that of its event.


@pytest.fixture
def world(postgres_url: DatabaseUrl, template_database: DatabaseUrl) -> Iterator[World]:
    with fresh_database(postgres_url, template=template_database.database) as url:
        app_url = url.with_user(migrate.app_role(template_database), "app")
        with open_world(url, app_url) as made:
            yield made


@pytest.fixture
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 50_000)


def enqueue(world: World, *events: Mapping[str, Any] | str, lane: Lane = Lane.LIVE) -> None:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in events]
    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as program:
        program.execute("SELECT enqueue(%s::jsonb, %s)", [f"[{','.join(texts)}]", lane.name])


def mover(world: World, *, limit: int = 1_000) -> Mover:
    return Mover(world.database, INBOX_KEY, lambda _: None, limit=limit)


def test_events_become_messages_in_their_order_under_ids_with_a_trace(
    world: World, cardholder: Cardholder
) -> None:
    events = [world.clearing(cardholder, f"T{n}", 5) for n in range(25)]
    enqueue(world, *events[:20])
    enqueue(world, *events[20:], lane=Lane.BULK)
    ids = [key for (key,) in world.rows("SELECT id FROM enqueued_events ORDER BY position")]
    rung: list[Doorbell] = []
    by_tens = Mover(world.database, INBOX_KEY, rung.extend, limit=10)

    moves = [by_tens.move() for _ in range(4)]

    rows = world.rows("SELECT id, reference, lane, reply_to FROM inbox ORDER BY id")
    assert moves == [True, True, True, False]
    assert [row[1:] for row in rows] == [
        (event["reference"], int(number >= 20), None) for number, event in enumerate(events)
    ]
    assert [key[TAIL] for key, *_ in rows] == [key[TAIL] for key in ids]
    assert {bell.args for bell in rung} == {(0, cardholder.shard), (1, cardholder.shard)}
    assert [d.outcome for lane in Lane for d in world.drain(world.engine(), lane)] == [
        "APPLIED"
    ] * 25
    report = world.verify()
    assert report.holds, report.differences
    assert world.count("enqueued_events") == 0


def test_a_file_does_not_delay_events_of_the_live_lane(
    world: World, cardholder: Cardholder
) -> None:
    enqueue(world, *(world.clearing(cardholder, f"T{n}", 5) for n in range(9)), lane=Lane.BULK)
    live = world.authorization(cardholder, "live", 5)
    enqueue(world, live)

    mover(world, limit=3).move()

    assert world.rows("SELECT reference FROM inbox WHERE lane = 0") == [(live["reference"],)]
    assert len(world.rows("SELECT FROM inbox WHERE lane = 1")) == 2


def test_what_is_no_event_is_rejected_and_kept_and_the_others_go_on(
    world: World, cardholder: Cardholder
) -> None:
    good = world.clearing(cardholder, "T", 5)
    named = {"type": "CLEARING", "source": "visa"}
    deep: Any = {}
    for _ in range(40):
        deep = {"x": deep}
    enqueue(
        world,
        {**named, "reference": "r1"},
        good,
        {**named, "reference": "r2", "extra": deep},
        json.dumps({**good, "reference": "r3", "amount": 7}).replace(": 7", f": 1{'0' * 5000}"),
    )

    mover(world).move()

    details = world.rows("SELECT source, reference, reason, detail FROM rejections ORDER BY id")
    assert [row[:3] for row in details] == [
        ("visa", "r1", "MALFORMED"), ("visa", "r2", "MALFORMED"), ("test", "r3", "MALFORMED"),
    ]  # fmt: skip
    assert "issuerTransactionToken is required; cardId is required" in details[0][3]
    assert (details[1][3], details[2][3]) == (
        "nested deeper than 32 levels", "a number is too long",
    )  # fmt: skip
    assert [d.outcome for d in world.drain(world.engine())] == ["APPLIED"]
    report = world.verify()
    assert report.holds, report.differences


def test_movers_of_several_workers_move_each_event_once(
    world: World, cardholder: Cardholder
) -> None:
    enqueue(world, *(world.clearing(cardholder, f"T{n}", 5) for n in range(200)))

    def work(_: int) -> None:
        one = mover(world, limit=7)
        while world_has_events():
            one.move()

    def world_has_events() -> bool:
        with psycopg.connect(world.app_url) as connection:
            return enqueued_events.waiting(connection).count > 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert len(world.drain(world.engine())) == 200
    report = world.verify()
    assert report.holds, report.differences


def test_an_event_of_a_long_database_transaction_is_decided_before_later_ones(
    world: World, cardholder: Cardholder
) -> None:
    engine = world.engine()
    long, short = (world.clearing(cardholder, "T", amount) for amount in (5, 6))
    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as program:
        program.execute("SELECT enqueue(%s)", [Jsonb([long])])
        for n in range(3):  # Meanwhile others are enqueued, moved and decided.
            enqueue(world, world.clearing(cardholder, f"T{n}", 5))
            mover(world).move()
            world.drain(engine)
    enqueue(world, short)

    mover(world).move()

    assert [d.message.reference for d in world.drain(engine)] == [
        long["reference"], short["reference"]
    ]  # fmt: skip


def test_an_event_cannot_be_deleted_without_a_trace(world: World, cardholder: Cardholder) -> None:
    enqueue(world, world.clearing(cardholder, "T", 5))

    for url in (world.worker_url, world.app_url, world.url):
        with (
            psycopg.connect(url) as connection,
            pytest.raises(errors.InsufficientPrivilege, match="neither in the inbox nor rejected"),
        ):
            connection.execute("DELETE FROM enqueued_events")
    with psycopg.connect(world.url) as owner:
        owner.execute("SET session_replication_role = replica")
        for deed in ("DELETE FROM enqueued_events", "TRUNCATE enqueued_events",
                     "UPDATE enqueued_events SET event = '{}'"):  # fmt: skip
            with pytest.raises(errors.InsufficientPrivilege), owner.transaction():
                owner.execute(deed.encode())

    assert world.count("enqueued_events") == 1


def test_a_failure_of_the_database_rejects_nothing_and_is_repeated(
    world: World, cardholder: Cardholder
) -> None:
    role = f"{world.worker_url}".partition("//")[2].partition(":")[0]
    enqueue(world, *(world.clearing(cardholder, f"T{n}", 5) for n in range(3)))
    world.connection.execute(f'REVOKE INSERT ON inbox FROM "{role}"'.encode())
    one = mover(world)

    with pytest.raises(errors.InsufficientPrivilege):
        one.move()
    waiting = world.count("enqueued_events")
    world.connection.execute(f'GRANT INSERT ON inbox TO "{role}"'.encode())
    one.move()

    assert (waiting, world.count("rejections"), world.count("inbox")) == (3, 0, 3)


def test_an_event_that_fails_by_itself_is_passed_over(world: World, cardholder: Cardholder) -> None:
    events = [world.clearing(cardholder, f"T{n}", 5) for n in range(3)]
    enqueue(world, *events)
    world.connection.execute(
        "ALTER TABLE inbox ADD CONSTRAINT poison CHECK (reference <> '{}')".format(
            events[0]["reference"]
        ).encode()
    )
    one = mover(world)

    while one.move():
        pass

    assert world.rows("SELECT reference FROM enqueued_events") == [(events[0]["reference"],)]
    assert len(world.drain(world.engine())) == 2


def refuse(world: World, *events: Mapping[str, Any]) -> None:
    """Let the inbox refuse `events`, as a defect or another schema would."""
    references = ", ".join(f"'{event['reference']}'" for event in events)
    world.connection.execute(
        f"ALTER TABLE inbox ADD CONSTRAINT poison CHECK (reference NOT IN ({references}))".encode()
    )


def moved(world: World) -> list[str]:
    return [found for (found,) in world.rows("SELECT reference FROM inbox ORDER BY id")]


def test_any_number_of_events_that_fail_by_themselves_stop_no_others(
    world: World, cardholder: Cardholder
) -> None:
    events = [world.clearing(cardholder, f"T{n}", 5) for n in range(21)]
    enqueue(world, *events)
    refuse(world, *events[:18])
    one = mover(world)

    with captured() as lines:
        while one.move():
            pass

    assert moved(world) == [event["reference"] for event in events[18:]], "in their order"
    assert world.count("enqueued_events") == 18
    passed_over = [line for line in lines if line["event"] == "enqueued event passed over"]
    assert len({line["position"] for line in passed_over}) == 18
    world.connection.execute("ALTER TABLE inbox DROP CONSTRAINT poison")
    while mover(world).move():  # Of a process that has started since.
        pass
    assert len(world.drain(world.engine())) == 21


@pytest.mark.parametrize("is_live", [False, True])
def test_failing_events_of_a_source_and_a_lane_do_not_stop_others(
    world: World, cardholder: Cardholder, *, is_live: bool
) -> None:
    """The newest of the source and the lane fails as well."""
    events = [world.clearing(cardholder, f"T{n}", 5) for n in range(20)]
    others = [{**world.clearing(cardholder, f"O{n}", 5), "source": "other"} for n in range(2)]
    enqueue(world, *events[:10])
    enqueue(world, *others, lane=Lane.LIVE if is_live else Lane.BULK)
    enqueue(world, *events[10:])
    refuse(world, *events)
    one = mover(world)

    while len(moved(world)) < len(others):
        assert one.move()

    assert moved(world) == [event["reference"] for event in others]
    assert world.count("enqueued_events") == 20


def test_a_program_that_begins_within_a_turn_loses_nothing(
    world: World, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueued_events, "UPDATE_AFTER", timedelta(0))
    event = json.dumps([world.clearing(cardholder, "T", 5)])
    program = psycopg.connect(as_role(world.app_url, Role.SUBMIT))
    one = mover(world)
    assert not one.move()
    with world.database.begin() as outer:
        connection = driver(outer)
        connection.execute("SELECT FROM enqueued_events_progress FOR UPDATE")
        # The newest id is that of a transaction that still runs, and no later one has ended.
        program.execute("SELECT enqueue(%s::jsonb, 'LIVE')", [event])
        turn = enqueued_events.take_turn(connection)
        assert turn is not None
        enqueued_events.update_progress(connection, turn, [], are_all=True)
    for _ in range(3):
        assert not one.move()

    program.commit()
    program.close()

    assert one.move()
    assert len(world.drain(world.engine())) == 1


def test_a_frozen_mover_is_ended_like_a_batch(world: World, cardholder: Cardholder) -> None:
    enqueue(world, world.clearing(cardholder, "T", 5))
    frozen = batch_connections.batch_engine(world.worker_url, "frozen", poolclass=NullPool)
    watch = batch_connections.watch_engine(world.worker_url, "other")

    with frozen.connect() as outer:
        assert enqueued_events.take_turn(driver(outer)) is not None
        held = not mover(world).move()
        with watch.begin() as watching:
            eventually(lambda: batch_connections.end_stale(driver(watching)))
            eventually(lambda: mover(world).move())
        with pytest.raises(psycopg.OperationalError):
            driver(outer).execute("SELECT")
    watch.dispose()

    assert held


def test_a_worker_is_woken_by_the_commit_and_decides(
    world: World, cardholder: Cardholder, dead_redis: str
) -> None:
    events = [world.authorization(cardholder, "T1", 1250), world.clearing(cardholder, "T1", 1500)]

    with working(world, dead_redis, sweep_interval_s=0.05):
        for event in events:
            enqueue(world, event)
        eventually(lambda: world.count("outcomes") == 3)  # With the deposit.

    [found] = world.rows("SELECT outcome('test', %s)", events[1]["reference"])
    assert found[0]["cardTransaction"]["status"] == "SETTLED"
    assert world.account(cardholder)["balance"] == 48_500


def test_events_of_concurrent_programs_are_all_moved_in_order(
    world: World, cardholder: Cardholder, dead_redis: str
) -> None:
    def program(number: int) -> None:
        with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as connection:
            for step in range(10):
                event = world.clearing(cardholder, f"P{number}", 1)
                event["reference"] = json.dumps([number, step])
                connection.execute("SELECT enqueue(%s)", [Jsonb([event])])
                connection.commit()

    with working(world, dead_redis, sweep_interval_s=0.05):
        threads = [threading.Thread(target=program, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: world.count("outcomes") == 41)

    order = [json.loads(reference) for (reference,) in world.rows(
        "SELECT o.reference FROM outcomes o JOIN card_transaction_events e USING (message_id)"
        " WHERE e.kind = 'CLEARED' ORDER BY o.message_id")]  # fmt: skip
    for number in range(4):
        assert [step for by, step in order if by == number] == list(range(10))


def test_a_mover_begins_behind_what_no_database_transaction_can_add_to(
    world: World, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueued_events, "UPDATE_AFTER", timedelta(0))
    one = mover(world)

    def begins_at() -> int:
        [(position,)] = world.rows("SELECT begins_at FROM enqueued_events_progress")
        return int(position)

    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as program:
        late = world.clearing(cardholder, "late", 5)
        program.execute("SELECT enqueue(%s)", [Jsonb([late])])
        for n in range(4):
            enqueue(world, world.clearing(cardholder, f"T{n}", 5))
            one.move()
        while_it_is_open = begins_at()
    moved_late = one.move()
    # Database transactions of other databases have ids of the same server: they have to end, too.
    eventually(lambda: one.move() or begins_at() > 1)

    [(position,)] = world.rows("SELECT last_value FROM enqueued_events_position_seq")
    assert (while_it_is_open, moved_late) == (0, True)
    assert 1 < begins_at() <= position + 1
    assert world.count("enqueued_events") == 0


def test_a_mover_with_nothing_to_move_writes_nothing(
    world: World, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueued_events, "UPDATE_AFTER", timedelta(0))
    one = mover(world)

    def is_idle() -> bool:
        with world.database.begin() as connection:
            return enqueued_events.is_idle(driver(connection))

    def row() -> list[tuple[Any, ...]]:
        # A lock of the row sets its xmax, an update its xmin.
        return world.rows("SELECT xmin::text, xmax::text FROM enqueued_events_progress")

    before = is_idle()
    eventually(lambda: one.move() or is_idle())
    at_rest = row()
    one.move()
    after_a_look = row()
    enqueue(world, world.clearing(cardholder, "T", 5))

    assert (before, is_idle()) == (False, False)
    assert after_a_look == at_rest
    assert one.move()
    assert row() != at_rest


def test_large_events_are_moved_a_megabyte_at_a_time(world: World, cardholder: Cardholder) -> None:
    large = [{**world.clearing(cardholder, f"T{n}", 5), "x": [[]] * 15_000} for n in range(60)]
    enqueue(world, *large, world.clearing(cardholder, "T", 5))
    one = mover(world)

    moves = [one.move() for _ in range(5)]

    counts = (world.count("rejections"), world.count("inbox"))
    assert moves == [True, True, True, True, False]
    assert counts == (60, 61)  # And a message that books what each rejected one has moved.


def test_no_other_login_can_keep_the_mover_from_its_turn(
    world: World, cardholder: Cardholder
) -> None:
    enqueue(world, world.clearing(cardholder, "T", 5))
    lock = "SELECT FROM enqueued_events_progress FOR UPDATE"

    for role in (Role.SUBMIT, Role.READER, Role.API, Role.WEBHOOKS):
        with (
            psycopg.connect(as_role(world.app_url, role)) as connection,
            pytest.raises(errors.InsufficientPrivilege),
        ):
            connection.execute(lock)

    assert mover(world).move()


def test_the_progress_of_a_restored_database_is_that_of_its_events(
    world: World, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueued_events, "UPDATE_AFTER", timedelta(0))
    one = mover(world)
    before = world.rows("SELECT * FROM enqueued_events_progress")
    for n in range(5):
        enqueue(world, world.clearing(cardholder, f"T{n}", 5))
        one.move()
    # As a server is that was promoted without the last commits.
    world.connection.execute("ALTER SEQUENCE enqueued_events_position_seq RESTART")
    world.connection.execute("DELETE FROM enqueued_events_progress")
    world.connection.execute(
        "INSERT INTO enqueued_events_progress VALUES (%s, %s, %s, %s, %s, %s)", before[0]
    )

    enqueue(world, world.clearing(cardholder, "T", 5))

    assert one.move()


def test_the_way_back_waits_for_events_that_are_not_committed(
    world: World, cardholder: Cardholder
) -> None:
    migrate.downgrade(world.url, "0034")
    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as program:
        program.execute("SELECT enqueue(%s)", [Jsonb([world.clearing(cardholder, "T", 5)])])
        with ThreadPoolExecutor(1) as pool:
            back = pool.submit(migrate.downgrade, world.url, "0033")
            eventually(
                lambda: (
                    back.done()
                    or world.rows(
                        "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
                    )
                )
            )
            program.commit()
            with pytest.raises(DBAPIError, match="events wait in enqueued_events"):
                back.result()

    assert world.count("enqueued_events") == 1
