"""Deliveries of webhooks and signing keys are deleted after some time, and nothing else is."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError, ProgrammingError
from structlog.testing import capture_logs

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.engines import sync_engine
from cardledger.ledger.storage.ids import first_id_at
from cardledger.ledger.webhooks import retention, signing_keys
from cardledger.schema import connections
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from cardledger.workers.webhooks import retention as worker_retention
from cardledger.workers.webhooks.retention import Retention
from tests.databases import as_role
from tests.integration.workers import working
from tests.waiting import eventually, limit_s
from tests.worker_process import worker_process
from tests.world import SECRET_KEY, Cardholder, World, open_world

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KEPT = timedelta(days=30)
OLD, RECENT = NOW - KEPT - timedelta(minutes=1), NOW - KEPT + timedelta(minutes=1)


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        made.connection.execute("TRUNCATE webhook_deliveries, webhook_signing_keys")
        yield made


@pytest.fixture
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def senders(world: World) -> Iterator[Engine]:
    """The database as the senders of webhooks use it."""
    engine = sync_engine(as_role(world.app_url, Role.WEBHOOKS), keyed=True, waits_for_disk=False)
    yield engine
    engine.dispose()


def id_at(at: datetime) -> Id:
    """Return a new id of that time."""
    return Id(bytes(first_id_at(at))[:8] + uuid4().bytes[:8])


def deliver(world: World, platform: Id, state: str, at: datetime) -> Id:
    """Insert a delivery with an attempt; return its id."""
    key, customer = id_at(at), id_at(at)
    world.connection.execute(
        "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body,"
        " state, attempts, next_attempt_at, created_at, webhook_id)"
        " VALUES (%s, %s, %s, 'X', %s, '{}', %s, 1, %s, %s, %s)",
        [key, customer, platform, key, state, NOW if state == "PENDING" else None, at, key],
    )
    world.connection.execute(
        "INSERT INTO webhook_attempts VALUES (%s, 1, %s, %s, 5, 200, NULL, NULL)",
        [key, customer, at],
    )
    return key


def kept(world: World, table: str, column: str) -> set[object]:
    return {row[0] for row in world.connection.execute(f"SELECT {column} FROM {table}".encode())}


def keeper(senders: Engine, *, page: int = retention.PAGE) -> Retention:
    return Retention(senders, KEPT, clock=lambda: NOW, page=page)


def test_old_deliveries_that_are_over_are_deleted_with_their_attempts(
    world: World, platform: Id, senders: Engine
) -> None:
    before = kept(world, "webhook_attempts", "delivery_id")
    for state in ("DELIVERED", "FAILED", "NO_ENDPOINT"):
        deliver(world, platform, state, OLD)
    stay = {deliver(world, platform, state, RECENT) for state in ("DELIVERED", "FAILED")}
    stay.add(deliver(world, platform, "PENDING", OLD))

    keeper(senders).run()

    assert kept(world, "webhook_deliveries", "id") == stay
    assert kept(world, "webhook_attempts", "delivery_id") - before == stay


def test_a_delivery_that_is_requested_again_meanwhile_stays(
    world: World, platform: Id, senders: Engine
) -> None:
    key, neighbour = (deliver(world, platform, "FAILED", OLD) for _ in range(2))
    with psycopg.connect(world.url) as caller:
        caller.execute(
            "UPDATE webhook_deliveries SET state = 'PENDING', next_attempt_at = now()"
            " WHERE id = %s",
            [key],
        )
        keeper(senders).run()  # It waits for no lock, and goes on with the others.
        assert kept(world, "webhook_deliveries", "id") == {key}
    keeper(senders).run()

    assert neighbour not in kept(world, "webhook_attempts", "delivery_id")
    assert key in kept(world, "webhook_deliveries", "id")
    assert key in kept(world, "webhook_attempts", "delivery_id")


def test_deliveries_with_many_attempts_are_deleted_in_smaller_pages(
    world: World, platform: Id, senders: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = sorted(deliver(world, platform, "DELIVERED", OLD) for _ in range(5))
    world.connection.execute("UPDATE webhook_deliveries SET attempts = 100")
    monkeypatch.setattr(retention, "_ATTEMPTS", 150)
    after: Id | None = retention.FIRST
    left = []

    while after is not None:
        with senders.begin() as connection:
            after = retention.delete_old(connection, before=NOW - KEPT, after=after, page=10)
        left.append(len(kept(world, "webhook_deliveries", "id")))

    assert left == [3, 1, 0]
    assert not kept(world, "webhook_attempts", "delivery_id") & set(keys)


def test_a_run_is_bounded_and_the_next_one_goes_on(
    world: World, platform: Id, senders: Engine
) -> None:
    for _ in range(25):
        deliver(world, platform, "DELIVERED", OLD)
    pages = keeper(senders, page=2)

    pages.run()
    first = len(kept(world, "webhook_deliveries", "id"))
    pages.run()

    assert first == 5
    assert not kept(world, "webhook_deliveries", "id")


def test_deliveries_that_wait_are_looked_at_once_in_an_hour(
    world: World, platform: Id, senders: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = sorted(deliver(world, platform, "PENDING", OLD) for _ in range(25))
    pages = keeper(senders, page=2)
    pages.run()  # Ten pages; the next run looks at the others.
    for key in (waiting[0], waiting[24]):
        world.connection.execute(
            "UPDATE webhook_deliveries SET state = 'FAILED', next_attempt_at = NULL WHERE id = %s",
            [key],
        )

    pages.run()
    later = kept(world, "webhook_deliveries", "id")
    monkeypatch.setattr(worker_retention, "_AGAIN_S", 0.0)
    pages.run()

    assert later == set(waiting[:24])
    assert kept(world, "webhook_deliveries", "id") == set(waiting[1:24])


def test_what_cannot_be_deleted_keeps_nothing_else(
    senders: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As deliveries that take too long to read."""
    deleted: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise OperationalError("DELETE", None, Exception("canceled"))

    monkeypatch.setattr(retention, "delete_old", fail)
    monkeypatch.setattr(signing_keys, "delete_ended", lambda *_, **__: deleted.append("keys"))

    with pytest.raises(OperationalError):
        keeper(senders).run()

    assert deleted == ["keys"]


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (OperationalError("DELETE", None, Exception("connection refused")), 0),
        (ProgrammingError("DELETE", None, Exception("permission denied")), 1),
    ],
    ids=["an outage", "a missing right"],
)
def test_a_further_error_is_logged_once_and_one_of_an_outage_is_not(
    senders: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, lines: int
) -> None:
    """Each run of an outage logged two lines, twice a second."""

    def fail(*_: object, **__: object) -> None:
        raise error

    for module, name in (
        (retention, "delete_old"),
        (retention, "delete_expired_credentials"),
        (signing_keys, "delete_ended"),
    ):
        monkeypatch.setattr(module, name, fail)
    pages = keeper(senders)

    with capture_logs() as logged:
        for _ in range(3):
            with pytest.raises(type(error)):
                pages.run()

    assert len(logged) == lines


def test_a_run_deletes_more_after_one_that_was_not_enough(
    world: World, platform: Id, senders: Engine
) -> None:
    for _ in range(70):
        deliver(world, platform, "DELIVERED", OLD)
    pages = keeper(senders, page=1)

    left = []
    for _ in range(3):
        pages.run()
        left.append(len(kept(world, "webhook_deliveries", "id")))

    assert left == [60, 40, 0]


def test_nothing_is_deleted_after_the_stop(world: World, platform: Id, senders: Engine) -> None:
    for _ in range(60):
        deliver(world, platform, "DELIVERED", OLD)
    pages = keeper(senders, page=1)
    pages.start()
    pages.stop(limit_s())
    before = kept(world, "webhook_deliveries", "id")

    pages.run()

    assert kept(world, "webhook_deliveries", "id") == before != set()


def test_the_process_that_sends_webhooks_deletes_what_is_old(
    world: World, platform: Id, redis_url: str
) -> None:
    now = datetime.now(UTC)
    deliver(world, platform, "DELIVERED", now - timedelta(days=3))
    stay = deliver(world, platform, "DELIVERED", now - timedelta(days=1))
    config = WorkerConfig(
        database_url=world.webhooks_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.WEBHOOKS,
        webhook_retention=timedelta(days=2),
    )

    with worker_process(config):
        eventually(lambda: kept(world, "webhook_deliveries", "id") == {stay})


@pytest.mark.parametrize(
    "change", ["UPDATE webhook_attempts SET status = 500", "TRUNCATE webhook_attempts"]
)
def test_an_attempt_is_never_changed(world: World, platform: Id, change: str) -> None:
    deliver(world, platform, "DELIVERED", OLD)

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        world.connection.execute(change.encode())


# --- pages of card numbers, and device codes ---


def add_reveal(world: World, cardholder: Cardholder, expired: timedelta) -> bytes:
    """Insert a page of a card's number that has expired so long ago; return its hash."""
    key, at = uuid4().bytes, datetime.now(UTC) - expired
    world.connection.execute(
        "INSERT INTO card_reveals (token_hash, card_id, api_token_id, created_at, expires_at)"
        " VALUES (%s, %s, %s, %s, %s)",
        [key, cardholder.card_id, uuid4(), at, at],
    )
    return key


def add_code(world: World, agent: Id, expired: timedelta, *, redeemed: bool = False) -> bytes:
    """Insert a device code that has expired so long ago; return its hash."""
    key, at = uuid4().bytes, datetime.now(UTC) - expired
    world.connection.execute(
        "INSERT INTO agent_device_codes (code_hash, agent_id, created_at, expires_at, redeemed_at,"
        " replaced_at) VALUES (%s, %s, %s, %s, %s, %s)",
        [key, agent, at, at, at if redeemed else None, None if redeemed else at],
    )
    return key


def test_expired_pages_and_unused_codes_are_deleted_and_who_was_connected_stays(
    world: World, platform: Id, senders: Engine
) -> None:
    cardholder = world.cardholder(platform, 0)
    agent = world.agent(cardholder)
    before = kept(world, "card_reveals", "token_hash")
    before |= kept(world, "agent_device_codes", "code_hash")
    for _ in range(3):
        add_reveal(world, cardholder, timedelta(days=401))
        add_code(world, agent, timedelta(days=31))
    stay = {
        add_reveal(world, cardholder, timedelta(days=399)),
        add_code(world, agent, timedelta(days=29)),
        add_code(world, agent, timedelta(days=3000), redeemed=True),
    }

    keeper(senders, page=2).run()

    found = kept(world, "card_reveals", "token_hash")
    found |= kept(world, "agent_device_codes", "code_hash")
    assert found - before == stay


def test_a_run_deletes_more_credentials_after_one_that_was_not_enough(
    world: World, platform: Id, senders: Engine
) -> None:
    cardholder = world.cardholder(platform, 0)
    keeper(senders).run()
    stay = len(kept(world, "card_reveals", "token_hash"))
    for _ in range(70):
        add_reveal(world, cardholder, timedelta(days=401))
    pages = keeper(senders, page=1)

    left = []
    for _ in range(3):
        pages.run()
        left.append(len(kept(world, "card_reveals", "token_hash")) - stay)

    assert left == [60, 40, 0]


@pytest.mark.parametrize("role", [Role.WEBHOOKS, Role.APP])
@pytest.mark.parametrize("table", ["card_reveals", "agent_device_codes"])
def test_no_process_deletes_who_has_seen_a_number_by_itself(
    world: World, role: Role, table: str
) -> None:
    with (
        psycopg.connect(as_role(world.app_url, role)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(f"DELETE FROM {table}".encode())


# --- signing keys --------------------------------------------------------------------------------

HOUR = timedelta(hours=1)


def add_key(world: World, platform: Id, name: str, *, signs_from: datetime, until: datetime) -> str:
    """Insert a signing key; the previous one is published `until` then."""
    world.connection.execute(
        "INSERT INTO webhook_signing_keys (id, platform_id, private_key, public_key, signs_from,"
        " former_until, created_at) VALUES (%s, %s, '', %s, %s, %s, %s)",
        [id_at(signs_from), platform, name, signs_from, until, signs_from],
    )
    return name


def test_keys_that_ended_are_deleted_and_those_that_are_published_stay(
    world: World, platform: Id, senders: Engine
) -> None:
    another = world.platform()
    ended = NOW - 2 * signing_keys.KEPT
    add_key(world, platform, "ended", signs_from=ended - HOUR, until=ended - HOUR)
    add_key(world, platform, "ended, too", signs_from=ended - HOUR / 2, until=ended - HOUR / 2)
    stay = {
        # Replaced less than an hour ago: a sender whose clock is behind signs with it.
        add_key(world, platform, "recent", signs_from=ended, until=ended),
        add_key(world, platform, "replaced", signs_from=NOW - HOUR / 2, until=NOW - HOUR / 2),
        add_key(world, platform, "former", signs_from=NOW - HOUR / 3, until=NOW - HOUR / 3),
        add_key(world, platform, "current", signs_from=NOW - HOUR / 4, until=NOW + HOUR),
        add_key(world, platform, "next", signs_from=NOW + HOUR, until=NOW + 3 * HOUR),
        add_key(world, another, "of another platform", signs_from=ended, until=ended),
    }

    keeper(senders).run()

    assert kept(world, "webhook_signing_keys", "public_key") == stay


def test_a_key_stays_while_the_one_before_it_is_published(
    world: World, platform: Id, senders: Engine
) -> None:
    ended = NOW - 3 * HOUR
    stay = {
        add_key(world, platform, "former", signs_from=ended - HOUR, until=ended - HOUR),
        # Known to others, so it was replaced at once; the one before it is published all the same.
        add_key(world, platform, "known to others", signs_from=ended, until=NOW + HOUR),
        add_key(world, platform, "current", signs_from=ended + HOUR, until=ended + HOUR),
    }

    keeper(senders).run()

    assert kept(world, "webhook_signing_keys", "public_key") == stay


def test_deliveries_are_deleted_where_the_role_may_delete_no_keys(
    world: World, platform: Id, senders: Engine
) -> None:
    deliver(world, platform, "DELIVERED", OLD)
    role = connections.parameters(as_role(world.app_url, Role.WEBHOOKS))["user"]
    world.connection.execute(f'REVOKE DELETE ON webhook_signing_keys FROM "{role}"'.encode())
    try:
        with pytest.raises(ProgrammingError, match="permission denied"):
            keeper(senders).run()
    finally:
        world.connection.execute(f'GRANT DELETE ON webhook_signing_keys TO "{role}"'.encode())

    assert not kept(world, "webhook_deliveries", "id")


@pytest.mark.parametrize("days", [-365, 365])
def test_a_sender_whose_clock_is_a_year_off_deletes_what_is_old_and_nothing_else(
    world: World, platform: Id, redis_url: str, days: int
) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    old = deliver(world, platform, "DELIVERED", now - KEPT - day)
    recent = deliver(world, platform, "DELIVERED", now - day)
    cardholder = world.cardholder(platform, 100)
    world.process(world.engine(), [(cardholder, world.authorization(cardholder, "T1", 1))])

    with working(
        world,
        redis_url,
        clock=lambda: datetime.now(UTC) + timedelta(days=days),
        role=WorkerRole.WEBHOOKS,
        webhook_retention=KEPT,
    ):
        eventually(lambda: world.count("outbox") == 0)
        eventually(lambda: old not in kept(world, "webhook_deliveries", "id"))

    stay = kept(world, "webhook_deliveries", "id")
    assert recent in stay
    # Retention, lists and replays look for them by the time in their ids.
    dispatched = [key for key in stay if isinstance(key, Id) and key != recent]
    assert dispatched
    assert all(first_id_at(now - day) < key < first_id_at(now + day) for key in dispatched)
