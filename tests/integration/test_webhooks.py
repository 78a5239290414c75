"""Webhooks from the outbox to a receiver: real PostgreSQL, real sockets, an injected clock."""

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
import structlog
from sqlalchemy import Engine, Row, Table, func, insert, null, select, update
from standardwebhooks import Webhook

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import fold
from cardledger.ledger.projections import card_transaction as roll_up
from cardledger.ledger.projections import card_transaction_rows
from cardledger.ledger.projections.event_rows import EventRow, to_row
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing, SecretsError
from cardledger.ledger.storage.secrets.sealed_columns import SIGNING_KEY, WEBHOOK_SECRET
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks import leases, signatures
from cardledger.ledger.webhooks.claims import Capacity, PlatformCapacity
from cardledger.ledger.webhooks.leases import AttemptResult, BatchResult, Delivery
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.ledger.webhooks.signers import signer_for
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.webhooks.receiver import Reply
from cardledger.workers.webhooks.http_client import MAX_HEAD
from cardledger.workers.webhooks.sender import Sender
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s

KEYS = KeyRing("the key of a server that exists in tests only")
TIMEOUT_S = 1.0
NEVER_S = 3600.0
LEASE = timedelta(seconds=20)
ROOM = Capacity(total=100, share=100, shares={}, others=100, failing=100, busy=())

deliveries = tables.webhook_deliveries
attempts = tables.webhook_attempts


class Clock:
    """Stands still until `advance`; starts now, because receivers compare with their own clock."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


class SteppedSender(Sender):
    """A sender that polls only on request; attempts under way continue by themselves."""

    def run_once(self) -> int:
        """Dispatch a batch and start what is due; return how much that was, 0 when idle."""
        return self.dispatch().rows + self.deliver()


@dataclass
class Platform:
    id: Id
    public_key: str
    secret: str
    endpoint: Id | None = None


@dataclass
class World:
    """A database and a clock; everything is done as the application's own role."""

    engine: Engine
    clock: Clock
    senders: ExitStack = field(default_factory=ExitStack)

    def platform(self, endpoint: str | None = None, keys: KeyRing = KEYS) -> Platform:
        private_key, public_key = signatures.new_signing_key()
        platform = Platform(new_id(), public_key, signatures.new_webhook_secret())
        self.insert(
            tables.platforms,
            id=platform.id,
            name="Acme",
            supported_currencies=["USD"],
            signing_key=keys.encrypt(private_key, SIGNING_KEY.of(platform.id, platform.id)),
            public_key=public_key,
            webhook_secret=keys.encrypt(
                platform.secret.encode(), WEBHOOK_SECRET.of(platform.id, platform.id)
            ),
            created_at=self.clock(),
            updated_at=self.clock(),
        )
        if endpoint is not None:
            platform.endpoint = self.endpoint(platform, endpoint, is_default=True)
        return platform

    def endpoint(self, platform: Platform, url: str, **other: object) -> Id:
        key = Id(cast("bytes", other.pop("id", None)) or new_id())
        row = {
            "id": key,
            "platform_id": platform.id,
            "is_default": False,
            "url": url,
            "event_types": [],
            "mode": "PARALLEL",
            "state": "ENABLED",
            "created_at": self.clock(),
            "updated_at": self.clock(),
        }
        self.insert(tables.webhook_endpoints, **row | other)
        return key

    def change(self, endpoint: Id | None, **values: object) -> None:
        columns = tables.webhook_endpoints.c
        with self.engine.begin() as connection:
            connection.execute(
                update(tables.webhook_endpoints)
                .where(columns.id == endpoint)
                .values(updated_at=self.clock(), **values)
            )

    def insert(self, table: Table, **values: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(insert(table).values(**values))

    def emit(
        self,
        platform: Platform,
        *,
        subject_id: Id | None = None,
        data: object = None,
        **other: object,
    ) -> Id:
        key = new_id()
        row = {
            "id": key,
            "customer_id": new_id(),
            "platform_id": platform.id,
            "type": "CARD.STATE_CHANGE",
            "subject_id": subject_id or new_id(),
            "data": {"state": "ACTIVE"} if data is None else data,
            "recorded_at": self.clock(),
        }
        self.insert(tables.outbox, **row | other)
        return key

    def sender(
        self,
        *,
        keys: KeyRing = KEYS,
        timeout_s: float | None = None,
        retry_scale: float = 1.0,
        concurrency: int = 8,
        every_s: float = NEVER_S,
    ) -> SteppedSender:
        sender = SteppedSender(
            self.engine,
            keys,
            clock=self.clock,
            timeout_s=timeout_s or limit_s(5),
            retry_scale=retry_scale,
            every_s=every_s,
            concurrency=concurrency,
            allow_loopback=True,
        )
        sender.start()
        self.senders.enter_context(closing(sender))
        return sender

    def dispatch(self, limit: int = 500) -> int:
        with self.engine.begin() as connection:
            return webhook_dispatch.dispatch(connection, limit=limit, at=self.clock()).rows

    def claim(self, room: Capacity = ROOM, lease: timedelta = LEASE) -> list[Delivery]:
        return self.round([], room, lease).claimed

    def record(
        self, delivery: Delivery, attempt: Attempt, retry_at: datetime | None
    ) -> BatchResult:
        return self.round(
            [AttemptResult(delivery=delivery, attempt=attempt, retry_at=retry_at)], None
        )

    def round(
        self,
        ended: Sequence[AttemptResult],
        room: Capacity | PlatformCapacity | None = ROOM,
        lease: timedelta = LEASE,
    ) -> BatchResult:
        single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        with single.connect() as connection:
            return leases.record_and_claim(
                connection, ended, capacity=room, at=self.clock(), lease=lease
            )

    def delivery(self, key: Id) -> Row[*tuple[Any, ...]]:
        [delivery] = self.deliveries(key)
        return delivery

    def deliveries(self, key: Id) -> list[Row[*tuple[Any, ...]]]:
        """Return every delivery of a webhook."""
        wanted = select(deliveries).where(deliveries.c.webhook_id == key).order_by(deliveries.c.id)
        with self.engine.connect() as connection:
            return list(connection.execute(wanted).all())

    def attempts(self, key: Id) -> list[Row[*tuple[Any, ...]]]:
        """Return the attempts at a webhook that has one delivery."""
        wanted = (
            select(attempts)
            .join(deliveries, deliveries.c.id == attempts.c.delivery_id)
            .where(deliveries.c.webhook_id == key)
            .order_by(attempts.c.number)
        )
        with self.engine.connect() as connection:
            return list(connection.execute(wanted).all())

    def waiting(self) -> int:
        with self.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(tables.outbox)).scalar_one()

    def attempted(self, key: Id, times: int = 1) -> Row[*tuple[Any, ...]]:
        """Wait until a delivery has that many attempts, and return it."""
        eventually(lambda: len(self.attempts(key)) >= times)
        return self.delivery(key)


@pytest.fixture
def world(app_database_url: DatabaseUrl) -> Iterator[World]:
    with world_in(app_database_url) as world:
        yield world


@contextmanager
def world_in(url: DatabaseUrl) -> Iterator[World]:
    engine = sync_engine(url, pool_size=4, max_overflow=20)
    world = World(engine, Clock())
    with world.senders:
        yield world
    engine.dispose()
    # What one test leaves undelivered, the next would deliver. Some leave thousands, which may take
    # longer than a statement of the application may.
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM outbox")
        connection.execute(
            "UPDATE webhook_deliveries SET state = 'FAILED', next_attempt_at = NULL"
            " WHERE state = 'PENDING'"
        )


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def logs() -> Iterator[Sequence[MutableMapping[str, Any]]]:
    """Every line that is logged, whatever the tests want to see of it."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.configure(**configured)


def at_least(count: int) -> Callable[[Any], bool]:
    return lambda arrivals: len(arrivals) >= count


def connected(world: World, receiver: Receiver) -> Platform:
    platform = world.platform(receiver.url)
    receiver.trust(platform.public_key, platform.secret)
    return platform


@contextmanager
def scripted(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen, read each request to its end, and let `answer` do to the connection what it likes."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        request = b""
        try:
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            answer(connection)
        except OSError:
            pass
        finally:
            connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_connections.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_connections:
            connection.close()


# --- what arrives ------------------------------------------------------------------------------


def test_a_webhook_arrives_once_in_the_envelope_of_the_interface(
    world: World, receiver: Receiver
) -> None:
    platform = connected(world, receiver)
    data = {"id": "Card:1", "symbol": "€", "amount": 2**63 - 1}
    key = world.emit(platform, data=data, recorded_at=datetime(2026, 3, 1, 12, tzinfo=UTC))

    world.sender().run_once()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.body.decode() == (
        f'{{"id":"Webhook:{key}","type":"CARD.STATE_CHANGE",'
        '"timestamp":"2026-03-01T12:00:00.000000Z",'
        '"data":{"id":"Card:1","symbol":"€","amount":9223372036854775807}}'
    )
    assert arrival.headers["content-type"] == "application/json"
    assert arrival.headers["user-agent"].startswith("cardledger/")
    assert arrival.webhook_id == f"Webhook:{key}"
    delivery = world.attempted(key)
    assert (delivery.state, delivery.attempts, delivery.last_status) == ("DELIVERED", 1, 200)
    assert delivery.next_attempt_at is None
    assert delivery.delivered_at == world.clock()
    assert delivery.body.encode() == arrival.body
    assert world.waiting() == 0


def test_independent_code_verifies_both_signatures(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    world.emit(platform)

    world.sender().run_once()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.problem is None
    assert Webhook(platform.secret).verify(arrival.body, arrival.headers) == arrival.content


def test_a_receiver_with_other_keys_rejects_the_webhook(world: World, receiver: Receiver) -> None:
    platform = world.platform(receiver.url)
    receiver.trust(signatures.new_signing_key()[1], platform.secret)
    key = world.emit(platform)

    world.sender().run_once()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.problem is not None
    assert world.attempted(key).last_status == 401


def test_a_webhook_has_the_card_transaction_as_of_its_event(
    world: World, receiver: Receiver
) -> None:
    platform = connected(world, receiver)
    subject_id = tipped_card_transaction(world, platform)
    for kind, sequence in (("AUTHORIZED", 2), ("SETTLED", 4)):
        world.emit(
            platform,
            type=f"CARD_TRANSACTION.{kind}",
            subject_id=subject_id,
            sequence=sequence,
            data=null(),
        )

    world.sender().run_once()

    authorized, settled = (a.content["data"] for a in receiver.wait_for(at_least(2)))
    assert authorized["status"] == "AUTHORIZED"
    assert authorized["sequence"] == 2
    assert authorized["pullSummary"] == {"count": 1, "totalAmount": 1250, "pendingCount": 0}
    assert "settledAmount" not in authorized
    assert settled["status"] == "SETTLED"
    assert settled["sequence"] == 4
    assert settled["pullSummary"] == {"count": 2, "totalAmount": 1500, "pendingCount": 0}
    assert settled["settlementSummary"] == {"count": 1, "totalAmount": 1500}


def tipped_card_transaction(world: World, platform: Platform) -> Id:
    """Write an authorization of 1250 and a clearing of 1500, as the engine does."""
    return card_transaction_of(
        world,
        platform,
        [
            events.Authorized(amount=1250),
            events.Pulled(amount=1250),
            events.Pulled(amount=250),
            events.Cleared(amount=1500, unfunded=0, final=True),
        ],
    )


def card_transaction_of(
    world: World,
    platform: Platform,
    facts: Sequence[events.Event],
    without: Collection[int] = (),
) -> Id:
    """Write a card transaction with these events, of one message, and its cardholder.

    The rows of the events `without` are not written.
    """
    now = world.clock()
    customer_id, message_id = new_id(), new_id()
    world.insert(
        tables.customers,
        id=customer_id,
        platform_id=platform.id,
        platform_customer_id=str(customer_id),
        customer_type="INDIVIDUAL",
        kyc_status="APPROVED",
        uma_address=f"${customer_id}@example.com",
        currencies=["USD"],
        created_at=now,
        updated_at=now,
    )
    identity = roll_up.Identity(
        id=new_id(),
        customer_id=customer_id,
        platform_id=platform.id,
        platform_customer_id=str(customer_id),
        card_id=new_id(),
        account_id=new_id(),
        issuer_transaction_token="token-1",
        currency="USD",
        descriptor="RESTAURANT",
        mcc="5812",
        country="US",
        created_at=now,
    )
    done = roll_up.advance(
        roll_up.opened(identity), facts, fold(facts), message_id=message_id, recorded_at=now
    )
    columns = dict(
        zip(card_transaction_rows.COLUMNS, card_transaction_rows.to_row(done), strict=True)
    )
    world.insert(tables.card_transactions, **columns)
    rows = [
        {
            "card_transaction_id": identity.id,
            "sequence": sequence,
            "customer_id": customer_id,
            "message_id": message_id,
            "occurred_at": now,
            "recorded_at": now,
            **EventRow(*to_row(fact))._asdict(),
        }
        for sequence, fact in enumerate(facts, start=1)
        if sequence not in without
    ]
    with world.engine.begin() as connection:
        connection.execute(insert(tables.card_transaction_events), rows)
    return identity.id


def test_webhooks_of_one_resource_arrive_in_order(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    subjects = [new_id() for _ in range(3)]
    for number in range(30):
        world.emit(platform, subject_id=subjects[number % 3], data={"number": number})
    sender = world.sender()

    while sender.run_once():
        pass

    arrivals = receiver.wait_for(at_least(30))
    numbers = [arrival.content["data"]["number"] for arrival in arrivals]
    for subject in range(3):
        mine = [number for number in numbers if number % 3 == subject]
        assert mine == sorted(mine)


# --- where it goes -----------------------------------------------------------------------------


def test_without_an_endpoint_a_webhook_is_stored_and_not_sent(world: World) -> None:
    key = world.emit(world.platform(endpoint=None))

    world.sender().run_once()

    delivery = world.delivery(key)
    assert (delivery.state, delivery.endpoint_id) == ("NO_ENDPOINT", None)
    assert delivery.next_attempt_at is None
    assert f'"Webhook:{key}"' in delivery.body
    assert world.attempts(key) == []


def test_a_pending_delivery_goes_to_the_current_url_of_its_endpoint(
    world: World, receiver: Receiver
) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    receiver.trust(platform.public_key, platform.secret)
    key = world.emit(platform)
    world.dispatch()

    world.change(platform.endpoint, url=receiver.url)
    world.sender().run_once()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.webhook_id == f"Webhook:{key}"
    assert arrival.problem is None


def test_a_redirect_is_a_failure_and_is_not_followed(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    with Receiver() as elsewhere:
        receiver.reply(Reply(status=307, headers=(("Location", elsewhere.url),)))
        key = world.emit(platform)

        world.sender().run_once()

        delivery = world.attempted(key)
        assert (delivery.state, delivery.last_status) == ("PENDING", 307)
        assert elsewhere.received == []


# --- again -------------------------------------------------------------------------------------


def test_a_retry_sends_the_same_bytes_under_the_same_id(world: World) -> None:
    with Receiver(fail_first=2) as receiver:
        platform = connected(world, receiver)
        key = world.emit(platform)
        sender = world.sender()

        sender.run_once()
        world.attempted(key, 1)
        world.clock.advance(seconds=6)  # 5 s and a fifth of it.
        sender.run_once()
        world.attempted(key, 2)
        world.clock.advance(minutes=4)  # The receiver's own clock allows five.
        sender.run_once()
        assert len(receiver.received) == 2, "the second pause is five minutes, less a fifth"
        world.clock.advance(minutes=2)
        sender.run_once()
        world.attempted(key, 3)

        first, second, third = receiver.received
        assert first.body == second.body == third.body
        assert first.webhook_id == second.webhook_id == third.webhook_id
        assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
        assert [attempt.status for attempt in world.attempts(key)][:2] == [503, 503]
        assert [attempt.number for attempt in world.attempts(key)] == [1, 2, 3]


def test_a_delivery_fails_after_ten_attempts(world: World, receiver: Receiver) -> None:
    receiver.reply_always(Reply(status=500, body=b"out of order"))
    key = world.emit(connected(world, receiver))
    sender = world.sender(retry_scale=1e-6)

    for number in range(1, 11):
        sender.run_once()
        world.attempted(key, number)
        world.clock.advance(seconds=1)
    sender.run_once()

    delivery = world.delivery(key)
    assert (delivery.state, delivery.attempts, delivery.last_status) == ("FAILED", 10, 500)
    assert delivery.next_attempt_at is None
    assert len(receiver.received) == 10
    assert {attempt.response_head for attempt in world.attempts(key)} == {"out of order"}


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299, 409])
def test_these_statuses_count_as_delivered(world: World, receiver: Receiver, status: int) -> None:
    receiver.reply(Reply(status=status))
    key = world.emit(connected(world, receiver))

    world.sender().run_once()

    delivery = world.attempted(key)
    assert (delivery.state, delivery.last_status) == ("DELIVERED", status)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 429, 500, 503])
def test_these_statuses_are_retried(world: World, receiver: Receiver, status: int) -> None:
    receiver.reply(Reply(status=status))
    key = world.emit(connected(world, receiver))

    world.sender().run_once()

    delivery = world.attempted(key)
    assert (delivery.state, delivery.last_status) == ("PENDING", status)
    pause = delivery.next_attempt_at - world.clock()
    assert timedelta(seconds=4) <= pause <= timedelta(seconds=6)


# --- who sends ---------------------------------------------------------------------------------


def test_a_delivery_of_a_crashed_sender_is_sent_when_its_lease_ends(
    world: World, receiver: Receiver
) -> None:
    key = world.emit(connected(world, receiver))
    world.dispatch()
    [claimed] = world.claim(lease=LEASE)  # And then it dies.
    sender = world.sender()

    sender.run_once()
    world.clock.advance(seconds=19)
    sender.run_once()
    assert world.delivery(key).next_attempt_at == claimed.leased_until
    assert receiver.received == []
    world.clock.advance(seconds=2)
    sender.run_once()

    [arrival] = receiver.wait_for(at_least(1))
    assert arrival.webhook_id == claimed.webhook_id
    assert world.attempted(key).state == "DELIVERED"


def test_many_senders_at_once_send_every_webhook_once(world: World, receiver: Receiver) -> None:
    platform = connected(world, receiver)
    messages = {f"Webhook:{world.emit(platform)}" for _ in range(200)}
    senders = [world.sender(concurrency=4) for _ in range(4)]
    start = threading.Barrier(8)

    def run(sender: SteppedSender) -> None:
        start.wait()
        while sender.run_once():
            pass

    at_once(*(lambda sender=sender: run(sender) for sender in senders), threads=2)

    arrivals = receiver.wait_for(at_least(200))
    eventually(lambda: world.waiting() == 0)
    assert {arrival.webhook_id for arrival in arrivals} == messages
    assert len(receiver.received) == 200
    assert all(arrival.problem is None for arrival in arrivals)


def at_once(*works: Callable[[], None], threads: int) -> None:
    running = [threading.Thread(target=work) for work in works for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def test_an_unresponsive_platform_does_not_delay_others(world: World, receiver: Receiver) -> None:
    with Receiver() as silent:
        silent.reply_always(Reply(delay_s=60))
        dead, alive = connected(world, silent), connected(world, receiver)
        for _ in range(40):
            world.emit(dead)
        for _ in range(10):
            world.emit(alive)
        sender = world.sender(timeout_s=30)

        began = time.monotonic()
        sender.run_once()
        receiver.wait_for(at_least(10))
        took_s = time.monotonic() - began

        assert took_s < limit_s(10)
        assert len(silent.received) == 1, "who has never answered is asked one thing at a time"


def test_an_endpoint_that_stops_responding_keeps_a_quarter_of_the_threads_for_one_attempt(
    world: World, receiver: Receiver
) -> None:
    with Receiver() as silent:
        dead, alive = connected(world, silent), connected(world, receiver)
        sender = world.sender(timeout_s=limit_s(1), concurrency=8)
        for platform, answers in ((dead, silent), (alive, receiver)):
            key = world.emit(platform)
            sender.run_once()
            answers.wait_for(at_least(1))
            world.attempted(key)
        silent.reply_always(Reply(delay_s=60))
        for _ in range(40):
            world.emit(dead)
            world.emit(alive)

        sender.run_once()
        receiver.wait_for(at_least(41))

        assert len(silent.received) <= 1 + 2, "two of eight threads"
        silent.wait_for(at_least(4))
        assert len(silent.received) <= 1 + 2 + 1, "then one"


def test_a_platform_that_did_not_respond_gets_one_thread_until_it_does(world: World) -> None:
    with Receiver() as silent:
        silent.reply_always(Reply(delay_s=60))
        platform = connected(world, silent)
        for _ in range(20):
            world.emit(platform)
        sender = world.sender(timeout_s=limit_s(0.25))

        sender.run_once()
        silent.wait_for(at_least(1))
        began = time.monotonic()
        silent.wait_for(at_least(3))

        assert time.monotonic() - began > 0.6, "one at a time"
        silent.reply_always(None)
        eventually(lambda: len(silent.received) >= 20)


# --- receivers that misbehave ------------------------------------------------------------------


def test_a_slow_response_is_cut_off_in_time(world: World) -> None:
    def drip(connection: socket.socket) -> None:
        pause = threading.Event()
        for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 1000:
            connection.sendall(bytes([byte]))
            pause.wait(0.1)

    with scripted(drip) as url:
        key = world.emit(world.platform(url))
        began = time.monotonic()
        world.sender(timeout_s=TIMEOUT_S).run_once()
        delivery = world.attempted(key)
        took_s = time.monotonic() - began

    [attempt] = world.attempts(key)
    assert took_s < limit_s(TIMEOUT_S + 4)
    assert (delivery.state, attempt.status) == ("PENDING", None)
    assert attempt.error == "no response within 1 s"
    assert 900 <= attempt.duration_ms < limit_s(4) * 1000


def test_a_slow_body_changes_no_status_and_blocks_no_thread(world: World) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        pause = threading.Event()
        for _ in range(1000):
            connection.sendall(b"a")
            pause.wait(0.1)

    with scripted(drip) as url:
        key = world.emit(world.platform(url))
        world.sender(timeout_s=limit_s(TIMEOUT_S / 2)).run_once()
        delivery = world.attempted(key)

    [attempt] = world.attempts(key)
    assert delivery.state == "DELIVERED"
    assert attempt.response_head.startswith("aaa")
    assert attempt.duration_ms < limit_s(4) * 1000


def test_only_the_head_of_a_large_response_is_read(world: World) -> None:
    sent = threading.Event()

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        finally:
            sent.set()

    with scripted(flood) as url:
        key = world.emit(world.platform(url))
        world.sender().run_once()
        delivery = world.attempted(key)

        assert sent.wait(limit_s()), "the connection is closed, not read to its end"

    [attempt] = world.attempts(key)
    assert delivery.state == "DELIVERED"
    assert attempt.response_head == "x" * MAX_HEAD


def test_a_response_may_contain_any_bytes(world: World, receiver: Receiver) -> None:
    receiver.reply(Reply(status=500, body=b"\x00\xff\xfeabc"))
    key = world.emit(connected(world, receiver))

    world.sender().run_once()

    world.attempted(key)
    [attempt] = world.attempts(key)
    assert attempt.response_head == "\ufffd\ufffd\ufffdabc"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "ProtocolError"),
        (b"HTTP/1.1 20", "ProtocolError"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "ProtocolError"),
        (b"HTTP/1.1 999999 ?\r\n\r\n", "ProtocolError"),
    ],
)
def test_an_invalid_response_is_recorded_with_a_reason(
    world: World, sent: bytes, error: str
) -> None:
    with scripted(lambda connection: connection.sendall(sent)) as url:
        key = world.emit(world.platform(url))
        world.sender().run_once()
        delivery = world.attempted(key)

    [attempt] = world.attempts(key)
    assert (delivery.state, attempt.status) == ("PENDING", None)
    assert attempt.error.startswith(error)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://127.0.0.1:1/", "cannot connect"),
        ("http://receiver.invalid/", "forbidden: the host name does not resolve"),
        ("http://a..b/", "LocationParseError"),
        ("http://" + "a" * 70 + ".example/", ""),
        ("ftp://127.0.0.1/", "URLSchemeUnknown"),
        ("http://[::1", "LocationParseError"),
        ("not a url", ""),
        ("https://127.0.0.1:1/", "cannot connect"),
    ],
)
def test_an_attempt_at_an_unreachable_address_counts(world: World, url: str, error: str) -> None:
    key = world.emit(world.platform(url))

    world.sender().run_once()

    delivery = world.attempted(key)
    [attempt] = world.attempts(key)
    assert (delivery.state, delivery.attempts) == ("PENDING", 1)
    assert attempt.error.startswith(error)
    assert attempt.error


def test_a_receiver_without_tls_fails_the_attempt(world: World, receiver: Receiver) -> None:
    key = world.emit(world.platform(receiver.url.replace("http://", "https://")))

    world.sender().run_once()

    world.attempted(key)
    [attempt] = world.attempts(key)
    assert attempt.status is None
    assert attempt.error.startswith("TLS:")


# --- what is wrong with us ---------------------------------------------------------------------


def test_a_row_that_cannot_be_rendered_stays_and_stops_only_itself(
    world: World, receiver: Receiver, logs: Sequence[MutableMapping[str, Any]]
) -> None:
    platform = connected(world, receiver)
    world.emit(platform, data={"number": 1})
    poisoned = world.emit(platform, data={"name": "\ud800"})
    world.emit(platform, data={"number": 3})

    moved = world.dispatch()

    assert moved == 3
    assert world.waiting() == 1
    assert [log["webhook"] for log in logs] == [str(poisoned)]


def test_with_another_server_key_nothing_is_sent_and_no_attempt_counts(
    world: World, receiver: Receiver, logs: Sequence[MutableMapping[str, Any]]
) -> None:
    key = world.emit(connected(world, receiver))
    sender = world.sender(keys=KeyRing("another key that is long enough too"))

    sender.run_once()
    eventually(lambda: bool(logs))

    assert [log["event"] for log in logs] == ["webhook attempt failed"]
    assert world.delivery(key).state == "PENDING"
    assert world.attempts(key) == []
    assert receiver.received == []


def test_the_keys_of_a_platform_need_the_server_key(world: World) -> None:
    platform = world.platform("http://127.0.0.1:9/")
    assert platform.endpoint is not None

    other = KeyRing("another key, long enough, too " * 2)

    with world.engine.begin() as connection:
        signer = signer_for(connection, platform.endpoint, KEYS, at=world.clock())
        with pytest.raises(SecretsError):
            signer_for(connection, platform.endpoint, other, at=world.clock())

    assert signer.secret == platform.secret
    assert platform.secret not in repr(signer)


def test_logs_have_failures_and_no_secrets(
    world: World, receiver: Receiver, logs: Sequence[MutableMapping[str, Any]]
) -> None:
    receiver.reply(Reply(status=500), Reply(status=200))
    platform = world.platform(f"{receiver.url}?token=hush")
    receiver.trust(platform.public_key, platform.secret)
    key = world.emit(platform, data={"name": "Ada Lovelace"})
    sender = world.sender()

    sender.run_once()
    world.attempted(key, 1)
    world.clock.advance(seconds=6)
    sender.run_once()
    world.attempted(key, 2)
    sender.close()

    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("webhook not delivered", "warning"),
        ("webhook delivered", "debug"),
    ]
    written = repr(logs)
    for secret in (platform.secret, "hush", "Ada", "signature"):
        assert secret not in written


def test_closing_waits_for_attempts_under_way(world: World, receiver: Receiver) -> None:
    receiver.reply(Reply(delay_s=0.3))
    key = world.emit(connected(world, receiver))
    sender = world.sender()

    sender.run_once()
    receiver.wait_for(at_least(1))
    sender.close()

    assert world.delivery(key).state == "DELIVERED"
