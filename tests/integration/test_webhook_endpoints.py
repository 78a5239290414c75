"""Several endpoints, order, giving up, and the keys of webhooks: real servers, injected clock."""

import asyncio
import json
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row, select
from standardwebhooks import Webhook

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.sealed_columns import (
    ENDPOINT_SECRET,
    FORMER_ENDPOINT_SECRET,
    LATER_SIGNING_KEY,
)
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks import endpoints, replays, signatures, signing_keys
from cardledger.ledger.webhooks.fan_out import wants
from cardledger.ledger.webhooks.ordering import LATER
from cardledger.ledger.webhooks.replays import Window
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Arrival, Reply
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess
from cardledger.workers.signals.periodic_task import PeriodicTask
from tests.integration.test_webhooks import (
    KEYS,
    Platform,
    World,
    at_least,
    connected,
    world_in,
)
from tests.receiver import Receiver
from tests.waiting import Deadline, eventually, limit_s
from tests.world import SECRET_KEY

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def other() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def own_secret(world: World, platform: Platform, receiver: Receiver, **columns: object) -> Id:
    """Set up an endpoint with a secret of its own, which its receiver knows."""
    secret = signatures.new_webhook_secret()
    receiver.trust(platform.public_key, secret)
    key = new_id()
    sealed = KEYS.encrypt(secret.encode(), ENDPOINT_SECRET.of(platform.id, key))
    return world.endpoint(platform, receiver.url, id=key, secret=sealed, **columns)


def emit_in_sequence(
    world: World, platform: Platform, subject: Id, count: int, first: int = 1
) -> list[Id]:
    return [
        world.emit(platform, subject_id=subject, sequence=number, data={"sequence": number})
        for number in range(first, first + count)
    ]


def sequences(arrivals: Sequence[Arrival]) -> list[int]:
    return [arrival.content["sequence"] for arrival in arrivals]


# --- which endpoint receives which webhook -------------------------------------------------------


def test_every_endpoint_receives_the_same_id_signed_with_its_own_secret(
    world: World, receiver: Receiver, other: Receiver
) -> None:
    platform = connected(world, receiver)
    own_secret(world, platform, other)
    key = world.emit(platform)

    world.sender().run_once()

    [here], [there] = receiver.wait_for(at_least(1)), other.wait_for(at_least(1))
    assert here.webhook_id == there.webhook_id == f"Webhook:{key}"
    assert here.body == there.body
    assert (here.problem, there.problem) == (None, None)
    assert here.headers["webhook-signature"] != there.headers["webhook-signature"]
    eventually(lambda: [one.state for one in world.deliveries(key)] == ["DELIVERED"] * 2)


def test_an_endpoint_receives_the_types_of_its_filter(
    world: World, receiver: Receiver, other: Receiver
) -> None:
    platform = connected(world, receiver)
    own_secret(world, platform, other, event_types=["CARD_TRANSACTION.*", "CARD.STATE_CHANGE"])
    kinds = ["CARD.STATE_CHANGE", "VERIFICATION.APPROVED", "CARD_TRANSACTION.SETTLED"]
    for kind in kinds:
        world.emit(platform, type=kind)

    world.sender().run_once()

    assert {one.type for one in receiver.wait_for(at_least(3))} == set(kinds)
    assert {one.type for one in other.wait_for(at_least(2))} == {kinds[0], kinds[2]}


@pytest.mark.parametrize(
    ("event_types", "kind", "wanted"),
    [
        ([], "CARD.STATE_CHANGE", True),
        (["CARD.*"], "CARD.STATE_CHANGE", True),
        (["CARD.*"], "CARD_TRANSACTION.SETTLED", False),
        (["CARD_TRANSACTION.SETTLED"], "CARD_TRANSACTION.SETTLED", True),
        (["CARD_TRANSACTION.SETTLED"], "CARD_TRANSACTION.VOIDED", False),
    ],
)
def test_a_filter_selects_types_by_name_and_by_group(
    event_types: list[str], kind: str, *, wanted: bool
) -> None:
    assert wants(event_types, kind) is wanted


def test_a_webhook_without_a_subscriber_has_no_delivery(world: World, receiver: Receiver) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, event_types=["CARD.*"])
    key = world.emit(platform, type="VERIFICATION.APPROVED")

    assert world.dispatch() == 1

    assert world.deliveries(key) == []
    assert world.waiting() == 0


def test_dispatch_returns_whether_more_rows_are_waiting(world: World) -> None:
    one, crowd = world.platform("http://127.0.0.1:1/"), world.platform()
    for _ in range(2):
        world.endpoint(crowd, "http://127.0.0.1:1/")
    for platform in (one, crowd, crowd):
        world.emit(platform)

    def dispatch(limit: int) -> tuple[int, int, bool]:
        with world.engine.begin() as connection:
            made = webhook_dispatch.dispatch(connection, limit=limit, at=world.clock())
        return made.rows, made.deliveries, made.has_more

    assert dispatch(1) == (1, 1, True), "as many as were asked for"
    assert dispatch(3) == (1, 2, True), "and what there was no room for"
    assert dispatch(3) == (1, 2, False)
    assert dispatch(3) == (0, 0, False)


def test_a_worker_dispatches_until_the_outbox_is_empty(
    world: World, app_database_url: DatabaseUrl, redis_url: str
) -> None:
    platform = world.platform()
    for _ in range(2):  # So a round of 500 deliveries is less than 500 rows.
        world.endpoint(platform, "http://127.0.0.1:1/")
    for _ in range(600):
        world.emit(platform)
    never = 3600.0
    process = WorkerProcess(
        WorkerConfig(
            database_url=app_database_url,
            redis_url=redis_url,
            secret_key=SECRET_KEY,
            sweep_interval_s=never,
        )
    )

    process.start()  # Which wakes it, once.

    try:
        eventually(lambda: world.waiting() == 0)
    finally:
        process.stop()


def test_an_endpoint_receives_all_pending_webhooks_when_it_is_enabled_again(
    world: World, receiver: Receiver
) -> None:
    platform = connected(world, receiver)
    key = world.emit(platform)
    world.dispatch()
    world.change(platform.endpoint, **OFF)
    sender = world.sender()

    sender.deliver()
    assert world.delivery(key).state == "PENDING"
    assert receiver.received == []
    world.change(platform.endpoint, state="ENABLED", disabled_reason=None)
    sender.deliver()

    receiver.wait_for(at_least(1))
    assert world.attempted(key).state == "DELIVERED"


OFF = {"state": "DISABLED", "disabled_reason": "PLATFORM"}


def test_a_webhook_is_stored_once_for_all_disabled_endpoints(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    for _ in range(3):
        world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
    world.endpoint(platform, "http://127.0.0.1:9/", event_types=["VERIFICATION.*"], **OFF)
    keys = [world.emit(platform) for _ in range(2)]
    test = world.emit(platform, type="TEST", subject_id=platform.endpoint, data={})

    world.dispatch()

    for key in keys:
        rows = {(one.endpoint_id, one.state) for one in world.deliveries(key)}
        assert rows == {(platform.endpoint, "PENDING"), (None, "NO_ENDPOINT")}
        assert len(world.deliveries(key)) == 2
    assert world.delivery(test).endpoint_id == platform.endpoint
    listed = [one.webhook_id for one in all_deliveries(world, platform)]
    assert listed == sorted(listed), "in the order of their webhooks"


def all_deliveries(world: World, platform: Platform) -> list[Row[*tuple[Any, ...]]]:
    table = tables.webhook_deliveries
    wanted = select(table).where(table.c.platform_id == platform.id).order_by(table.c.id)
    with world.engine.connect() as connection:
        return list(connection.execute(wanted).all())


def replayed(world: World, url: DatabaseUrl, platform: Platform, **window: Any) -> int:  # noqa: ANN401
    """Replay what failed in the last hour; return how many are due again."""

    async def replay() -> int:
        engine = async_engine(url)
        an_hour_ago = world.clock() - timedelta(hours=1)
        values = {"endpoint_id": None, "until": None, "only_failed": True, "since": an_hour_ago}
        asked = Window(**values | window)
        async with engine.begin() as connection:
            done = await replays.replay(
                connection, platform_id=platform.id, window=asked, after=None, at=world.clock()
            )
        await engine.dispose()
        return done.count

    return asyncio.run(replay())


def test_a_replay_sends_what_disabled_endpoints_have_missed_once_and_in_order(
    world: World, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    fifo = world.endpoint(platform, "http://127.0.0.1:9/", mode="FIFO", **OFF)
    still_off = world.endpoint(platform, "http://127.0.0.1:9/", **OFF)
    cards_only = world.endpoint(
        platform, "http://127.0.0.1:9/", event_types=["VERIFICATION.*"], **OFF
    )
    subject = new_id()
    keys = [world.emit(platform, subject_id=subject, sequence=n) for n in (1, 2, 3)]
    world.dispatch()
    for endpoint in (fifo, cards_only):
        world.change(endpoint, state="ENABLED", disabled_reason=None)
    newer = world.endpoint(
        platform, "http://127.0.0.1:9/", created_at=world.clock() + timedelta(hours=1)
    )

    counts = [replayed(world, app_database_url, platform) for _ in range(2)]

    assert counts == [3, 0]
    mine = [one for one in all_deliveries(world, platform) if one.endpoint_id == fifo]
    assert [one.webhook_id for one in mine] == keys
    assert [one.next_attempt_at < LATER for one in mine] == [True, False, False]
    receivers = {one.endpoint_id for one in all_deliveries(world, platform)}
    assert receivers == {platform.endpoint, fifo, None}
    assert replayed(world, app_database_url, platform, endpoint_id=still_off) == 3, "it is named"
    assert replayed(world, app_database_url, platform, endpoint_id=newer) == 3, "it is named"


def test_a_test_goes_to_its_endpoint_alone_and_is_never_retried(
    world: World, receiver: Receiver, other: Receiver
) -> None:
    platform = connected(world, receiver)
    tested = own_secret(world, platform, other)
    other.reply(Reply(status=500))
    key = world.emit(platform, type="TEST", subject_id=tested, data={})

    world.sender().run_once()

    [arrival] = other.wait_for(at_least(1))
    assert arrival.content["data"] == {}
    assert world.attempted(key).state == "FAILED"
    assert receiver.received == []


# --- order -------------------------------------------------------------------------------------


def test_a_fifo_endpoint_waits_for_the_retry_of_a_failed_webhook(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    receiver.reply(Reply(status=500))
    subject, another = new_id(), new_id()
    first, *_, last = emit_in_sequence(world, platform, subject, 3)
    elsewhere = emit_in_sequence(world, platform, another, 1)[0]
    sender = world.sender(concurrency=1)

    sender.run_once()
    world.attempted(elsewhere)
    assert sorted(sequences(receiver.wait_for(at_least(2)))) == [1, 1], "of each resource the first"
    assert world.delivery(last).attempts == 0
    world.clock.advance(seconds=10)
    sender.run_once()
    receiver.wait_for(at_least(5))

    mine = [one for one in receiver.received if one.content["id"] != f"Webhook:{elsewhere}"]
    assert sequences(mine) == [1, 1, 2, 3]
    assert mine[0].webhook_id == mine[1].webhook_id == f"Webhook:{first}"
    eventually(lambda: world.delivery(last).state == "DELIVERED")


def test_a_parallel_endpoint_waits_for_nothing(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    receiver.reply(Reply(status=500))
    emit_in_sequence(world, platform, new_id(), 3)

    world.sender(concurrency=1).run_once()

    assert sequences(receiver.wait_for(at_least(3))) == [1, 2, 3]


def test_a_failed_delivery_makes_the_next_one_of_its_queue_due(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    receiver.reply(*[Reply(status=500)] * 10)
    first, second = emit_in_sequence(world, platform, new_id(), 2)
    sender = world.sender(retry_scale=1e-6)

    for number in range(1, 11):
        sender.run_once()
        world.attempted(first, number)
        world.clock.advance(seconds=1)
    eventually(lambda: world.delivery(second).state == "DELIVERED")

    assert world.delivery(first).state == "FAILED"
    assert sequences(receiver.received) == [1] * 10 + [2]


def test_order_holds_across_dispatches_and_with_many_senders_and_random_failures(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    subjects = [new_id() for _ in range(10)]
    for number in range(12):
        for subject in subjects:
            emit_in_sequence(world, platform, subject, 1, first=number + 1)
    receiver.reply(*(Reply(status=500 if number % 3 == 0 else 200) for number in range(170)))
    senders = [world.sender(retry_scale=1e-6, concurrency=4) for _ in range(3)]

    def step() -> bool:
        for sender in senders:
            sender.run_once()
        world.clock.advance(seconds=1)
        return False

    # As in production, a step that fails, because PostgreSQL is too slow, is tried again.
    task = PeriodicTask("steps", step, every_s=0.01)
    task.start()
    try:
        eventually(lambda: delivered(world, platform) == 120)
    finally:
        task.stop(limit_s(10))

    taken: dict[str, list[int]] = defaultdict(list)
    subject_of = {f"Webhook:{row.webhook_id}": row.subject_id for row in rows_of(world, platform)}
    for one in receiver.received:
        if one.status == 200:
            taken[str(subject_of[one.webhook_id])].append(one.content["sequence"])
    assert len(taken) == 10
    assert all(order == list(range(1, 13)) for order in taken.values()), taken


def delivered(world: World, platform: Platform) -> int:
    return sum(row.state == "DELIVERED" for row in rows_of(world, platform))


def rows_of(world: World, platform: Platform) -> Sequence[Row[*tuple[Any, ...]]]:
    deliveries = tables.webhook_deliveries
    with world.engine.connect() as connection:
        return connection.execute(
            select(deliveries).where(deliveries.c.platform_id == platform.id)
        ).all()


def test_webhooks_of_a_resource_without_sequence_are_ordered_by_age(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform()
    own_secret(world, platform, receiver, mode="FIFO")
    subject = new_id()
    for number in range(6):
        world.emit(platform, subject_id=subject, data={"number": number})
        world.dispatch(limit=1)
    sender = world.sender()

    sender.run_once()

    arrivals = receiver.wait_for(at_least(6))
    assert [one.content["data"]["number"] for one in arrivals] == list(range(6))
    assert all("sequence" not in one.content for one in arrivals)


# --- when it is too much -----------------------------------------------------------------------


def test_a_gone_endpoint_is_disabled_and_the_others_are_notified(
    world: World, receiver: Receiver, other: Receiver
) -> None:
    platform = connected(world, receiver)
    gone = own_secret(world, platform, other)
    other.reply(Reply(status=410))
    key = world.emit(platform)
    sender = world.sender()

    sender.run_once()
    eventually(lambda: state_of(world, gone) == ("DISABLED", "GONE"))
    world.emit(platform)
    sender.run_once()

    arrivals = receiver.wait_for(lambda all_: "WEBHOOK_ENDPOINT.DISABLED" in {a.type for a in all_})
    [sent_body] = [one for one in arrivals if one.type == "WEBHOOK_ENDPOINT.DISABLED"]
    assert sent_body.content["data"]["id"] == f"WebhookEndpoint:{gone}"
    assert sent_body.content["data"]["disabledReason"] == "GONE"
    assert len(other.received) == 1
    states = {row.endpoint_id: row.state for row in world.deliveries(key)}
    assert states[gone] == "FAILED"


def state_of(world: World, endpoint: Id | None) -> tuple[str, str | None]:
    columns = tables.webhook_endpoints.c
    with world.engine.connect() as connection:
        row = connection.execute(
            select(columns.state, columns.disabled_reason).where(columns.id == endpoint)
        ).one()
    return row.state, row.disabled_reason


def test_an_endpoint_that_fails_for_five_days_is_disabled(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    receiver.reply_always(Reply(status=500))
    sender = world.sender()

    def fail() -> None:
        key = world.emit(platform)
        sender.run_once()
        world.attempted(key)

    fail()
    world.clock.advance(days=4, hours=23)
    fail()
    assert state_of(world, platform.endpoint) == ("ENABLED", None)
    world.clock.advance(hours=2)
    world.emit(platform)
    sender.run_once()

    eventually(lambda: state_of(world, platform.endpoint) == ("DISABLED", "FAILING"))


def test_a_failed_test_does_not_set_failing_since(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    assert platform.endpoint is not None
    receiver.reply_always(Reply(status=500))
    sender = world.sender()

    # Set up before anything listened there; nothing happened for a week, and then one failure.
    for kind, subject in (("TEST", platform.endpoint), ("CARD.STATE_CHANGE", new_id())):
        key = world.emit(platform, type=kind, subject_id=subject)
        sender.run_once()
        world.attempted(key)
        world.clock.advance(days=7)
    sender.close()

    assert state_of(world, platform.endpoint) == ("ENABLED", None)
    world.emit(platform)
    world.sender().run_once()
    eventually(lambda: state_of(world, platform.endpoint) == ("DISABLED", "FAILING"))


def test_a_failed_test_does_not_end_the_five_days(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    receiver.reply_always(Reply(status=500))
    world.change(platform.endpoint, failing_since=world.clock() - timedelta(days=6))
    sender = world.sender()

    key = world.emit(platform, type="TEST", subject_id=platform.endpoint)
    sender.run_once()
    world.attempted(key)
    sender.close()

    assert state_of(world, platform.endpoint) == ("ENABLED", None)


def test_a_test_that_finds_an_endpoint_gone_disables_it(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    receiver.reply(Reply(status=410))

    world.emit(platform, type="TEST", subject_id=platform.endpoint)
    world.sender().run_once()

    eventually(lambda: state_of(world, platform.endpoint) == ("DISABLED", "GONE"))


def test_a_new_url_has_not_failed_so_far(
    world: World, receiver: Receiver, other: Receiver, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver)
    world.change(endpoint, failing_since=world.clock() - timedelta(days=6))

    change_endpoint(app_database_url, world, platform, endpoint, url=other.url)

    columns = tables.webhook_endpoints.c
    with world.engine.connect() as connection:
        since = connection.scalar(select(columns.failing_since).where(columns.id == endpoint))
    assert since is None


def test_a_new_url_is_not_disabled_because_the_former_one_is_gone(
    world: World, receiver: Receiver, other: Receiver, app_database_url: DatabaseUrl
) -> None:
    platform = world.platform()
    endpoint = own_secret(world, platform, receiver)
    receiver.reply(Reply(status=410, delay_s=0.3))
    key = world.emit(platform)
    sender = world.sender()
    sender.run_once()
    receiver.wait_for(at_least(1))

    change_endpoint(app_database_url, world, platform, endpoint, url=other.url)
    world.attempted(key)
    sender.close()

    assert state_of(world, endpoint) == ("ENABLED", None)


def change_endpoint(
    database: DatabaseUrl, world: World, platform: Platform, endpoint: Id, **changes: str
) -> None:
    """Change an endpoint as `PATCH /webhooks/endpoints/{id}` does."""

    async def change() -> None:
        engine = async_engine(database)
        async with engine.begin() as connection:
            await endpoints.change(
                connection,
                platform_id=platform.id,
                endpoint_id=endpoint,
                changes=changes,
                at=world.clock(),
            )
        await engine.dispose()

    asyncio.run(change())


def test_one_success_restarts_the_five_days(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    sender = world.sender()
    for status in (500, 200, 500):
        receiver.reply(Reply(status=status))
        key = world.emit(platform)
        sender.run_once()
        world.attempted(key)
        world.clock.advance(days=4)

    assert state_of(world, platform.endpoint) == ("ENABLED", None)


def test_retry_after_is_respected(world: World, receiver: Receiver) -> None:
    receiver.reply(Reply(status=503, headers=(("Retry-After", "100"),)))
    key = world.emit(connected(world, receiver))

    world.sender().run_once()

    pause = world.attempted(key).next_attempt_at - world.clock()
    assert pause == timedelta(seconds=100)


# --- keys --------------------------------------------------------------------------------------


def test_for_a_day_both_secrets_sign(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    new, endpoint = signatures.new_webhook_secret(), platform.endpoint
    assert endpoint is not None
    own = ENDPOINT_SECRET.of(platform.id, endpoint)
    formerly = FORMER_ENDPOINT_SECRET.of(platform.id, endpoint)
    world.change(
        endpoint,
        secret=KEYS.encrypt(new.encode(), own),
        former_secret=KEYS.encrypt(platform.secret.encode(), formerly),
        former_secret_until=world.clock() + timedelta(hours=24),
    )
    sender = world.sender()

    world.emit(platform)
    sender.run_once()
    [during] = receiver.wait_for(at_least(1))
    world.clock.advance(hours=25)
    world.emit(platform)
    sender.run_once()
    after = receiver.wait_for(at_least(2))[1]

    assert len(during.headers["webhook-signature"].split(" ")) == 2
    for secret in (new, platform.secret):
        assert Webhook(secret).verify(during.body, during.headers) == json.loads(during.body)
    assert len(after.headers["webhook-signature"].split(" ")) == 1


def test_a_new_signing_key_signs_from_its_start_time(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    private_key, public_key = signatures.new_signing_key()
    key_id = new_id()
    world.insert(
        tables.webhook_signing_keys,
        id=key_id,
        platform_id=platform.id,
        private_key=KEYS.encrypt(private_key, LATER_SIGNING_KEY.of(platform.id, key_id)),
        public_key=public_key,
        signs_from=world.clock() + timedelta(hours=24),
        former_until=world.clock() + timedelta(hours=48),
        created_at=world.clock(),
    )
    sender = world.sender()

    world.emit(platform)
    sender.run_once()
    [before] = receiver.wait_for(at_least(1))
    world.clock.advance(hours=24)
    world.emit(platform)
    sender.run_once()
    after = receiver.wait_for(at_least(2))[1]

    for arrival, key in ((before, platform.public_key), (after, public_key)):
        header = arrival.headers["x-grid-signature"]
        signatures.verify_grid(arrival.body, header, signatures.load_public_key(key))


def test_an_emergency_key_signs_within_seconds(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    sender = world.sender()
    world.emit(platform)
    sender.run_once()
    receiver.wait_for(at_least(1))
    private_key, public_key = signatures.new_signing_key()
    key_id = new_id()
    world.insert(
        tables.webhook_signing_keys,
        id=key_id,
        platform_id=platform.id,
        private_key=KEYS.encrypt(private_key, LATER_SIGNING_KEY.of(platform.id, key_id)),
        public_key=public_key,
        signs_from=world.clock(),
        former_until=world.clock(),
        created_at=world.clock(),
    )

    world.clock.advance(seconds=5)
    world.emit(platform)
    sender.run_once()
    after = receiver.wait_for(at_least(2))[1]

    header = after.headers["x-grid-signature"]
    signatures.verify_grid(after.body, header, signatures.load_public_key(public_key))


def test_next_current_and_former_keys_are_published() -> None:
    hour = timedelta(hours=1)
    keys = [("A", NOW, NOW), ("B", NOW + 24 * hour, NOW + 48 * hour)]

    def at(hours: int) -> list[tuple[str, str]]:
        return [
            (one.public_key, one.status) for one in signing_keys.publish(keys, NOW + hours * hour)
        ]

    assert at(0) == [("A", "CURRENT"), ("B", "NEXT")]
    assert at(24) == [("B", "CURRENT"), ("A", "FORMER")]
    assert at(48) == [("B", "CURRENT")]


# --- how much ----------------------------------------------------------------------------------


def test_one_worker_makes_thousands_of_deliveries_a_minute_beside_an_unreachable_endpoint(
    world: World, receiver: Receiver
) -> None:
    platform = connected(world, receiver)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # Takes connections, says nothing.
        world.endpoint(platform, f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        for _ in range(300):
            world.emit(platform)
        sender = world.sender(timeout_s=limit_s(2.5))
        deadline = Deadline(15)

        while sender.run_once():
            pass
        receiver.wait_for(at_least(300))

    assert not deadline.has_passed, "1,200 a minute on an idle machine"
