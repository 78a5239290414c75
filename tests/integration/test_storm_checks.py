"""The checks of the storm that read the database find what they are for."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.payments.conversion import Rate
from cardledger.ledger.messaging.inbox import TRANSFER
from cardledger.ledger.storage.ids import new_id
from storm.checks import promises
from storm.checks.promises import Promise
from storm.checks.record import Accepted, Decision, Reader, Record
from storm.load.journal import Called, Journal
from storm.system import System
from tests.payments import DELAY, Conversion, Desk
from tests.world import World, open_world

Connection = psycopg.Connection[tuple[object, ...]]


class Direct:
    """The database of a system, in one database transaction that is never committed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def connect(self) -> AbstractContextManager[Connection]:
        return nullcontext(self.connection)

    def damage(self, statement: str) -> None:
        """Execute what the triggers refuse."""
        for table in ("transfers", "entries", "card_transactions", "internal_accounts"):
            self.connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER".encode())
        self.connection.execute(statement.encode())


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture
def system(database_url: DatabaseUrl) -> Iterator[Direct]:
    with psycopg.connect(database_url) as connection:
        yield Direct(connection)
        connection.rollback()


@pytest.fixture(scope="module")
def _played(world: World) -> None:
    """Payments of every kind have been made, and a purchase and a credit."""
    desk, platform = Desk(world), world.platform()
    desk.platform_account(platform)
    made, other = world.cardholder(platform, 50_000), world.cardholder(platform, 5_000)
    euros = world.another_account(made, currency="EUR")
    converted = Conversion("EUR", Rate(92, 100))
    for ending in ("002", "004", "005", "007", "111"):
        desk.out(made, 1_000, f"1234567{ending}")
        desk.out(
            made,
            2_000,
            f"DE89370400440532013{ending}",
            conversion=converted,
            fee_amount=7,
            quote_id=made.card_id,
        )
        desk.pull(made, 300, f"1234567{ending}")
    desk.exchange(made, euros, 4_000, converted, fee_amount=3)
    desk.pay(made, other, 150)
    desk.drain()
    for kind, token, amount in (
        ("AUTHORIZATION", "T1", 700),
        ("CLEARING", "T1", 800),
        ("CREDIT_AUTHORIZATION", "T2", 500),
        ("RETURN", "T2", 400),
    ):
        world.process(desk.engine, [(made, world.event(kind, made, token, amount))])


def violations(system: Direct) -> list[str]:
    reader = Reader(cast("System", system))
    reader.read(system.connection)
    return reader.violations


def paid(system: Direct) -> Promise:
    return promises.paid(cast("System", system))


@pytest.mark.usefixtures("_played")
def test_money_is_conserved_while_payments_are_under_way_and_when_they_have_ended(
    world: World, system: Direct
) -> None:
    desk = Desk(world)
    assert world.rows("SELECT FROM transfers WHERE due_at IS NOT NULL")
    under_way = violations(system)
    system.connection.rollback()

    desk.pass_time(DELAY)

    assert not under_way
    assert not violations(system)
    assert paid(system).broken == 0
    assert paid(system).checked > 15


@pytest.mark.usefixtures("_played")
@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        ("UPDATE internal_accounts SET balance = balance + 1 WHERE currency = 'EUR'", "EUR 1 "),
        (
            "UPDATE transfers SET received_amount = received_amount + 1 WHERE kind = 'EXCHANGE'",
            "EUR -1 ",
        ),
        ("UPDATE card_transactions SET refunded = refunded + 5", "USD -10 "),
    ],
)
def test_money_that_is_lost_is_named_with_its_currency(
    system: Direct, break_it: str, expected: str
) -> None:
    system.damage(break_it)

    assert violations(system)[0].startswith(expected), violations(system)


@pytest.mark.usefixtures("_played")
def test_a_payment_without_its_entries_breaks_a_promise(system: Direct) -> None:
    system.damage(
        "DELETE FROM entries WHERE subject_id IN (SELECT id FROM transfers WHERE kind = 'IN')"
    )

    assert paid(system).broken


@pytest.mark.usefixtures("_played")
def test_the_audit_at_the_end_finds_what_no_other_promise_looks_at(system: Direct) -> None:
    undamaged = promises.verified(cast("System", system))

    system.damage("UPDATE card_transactions SET created_at = created_at - interval '1 hour'")
    damaged = promises.verified(cast("System", system))

    assert (undamaged.broken, damaged.broken > 0) == (0, True), undamaged.examples
    assert undamaged.checked > 50
    assert not violations(system)


@pytest.mark.parametrize(
    ("insert", "name"),
    [
        (
            """SELECT enqueue('[{"type": "CLEARING", "source": "s", "reference": "r"}]')""",
            "enqueued events",
        ),
        (
            """
            INSERT INTO stalled_queues
            VALUES (0, 3, true, gen_random_uuid(), NULL, '42501', 1, now(), now())
            """,
            "stalled queues",
        ),
    ],
)
def test_what_waits_before_the_inbox_or_in_a_stalled_queue_is_stuck(
    system: Direct, insert: str, name: str
) -> None:
    system.connection.execute(insert.encode())

    left = promises.waiting(system.connection)

    assert left[name] == 1
    assert f"{name}: 1 waiting" in promises.stuck(left, Journal()).examples


def calls(*wanted: tuple[str, list[int]]) -> Journal:
    """Return a journal of requests by the end of their path and the statuses of their answers."""
    journal = Journal()
    for path, statuses in wanted:
        call = journal.add_call(Called("POST", path, {}, 0.0, statuses=statuses))
        if statuses[-1] == 201:
            call.answer = {}
        elif statuses[-1]:
            call.refusal = "INSUFFICIENT_FUNDS"
    return journal


def transfers(count: int) -> Record:
    """Return a record of `count` payments that were decided."""
    accepted, decisions = {}, {}
    for _ in range(count):
        message_id, customer_id = new_id(), new_id()
        key = ("engine", str(message_id))
        accepted[message_id] = Accepted(
            id=message_id,
            lane=0,
            shard=0,
            customer_id=customer_id,
            key=key,
            body={"type": TRANSFER},
            body_hash=b"",
            at=1,
        )
        decisions[key] = Decision(
            message_id=message_id,
            customer_id=customer_id,
            key=key,
            body_hash=b"",
            outcome="APPLIED",
            reason=None,
            subject_id=None,
            at=1,
        )
    return Record(accepted=accepted, decisions=decisions, rejections=[])


@pytest.mark.parametrize(
    ("statuses", "count", "broken"),
    [
        ([[201], [201]], 2, 0),
        ([[201], [201]], 3, 1),
        ([[201], [409]], 1, 0),
        # The one that was refused makes no room for a second payment of the other.
        ([[201], [409]], 2, 1),
        ([[201], [0]], 2, 0),
        ([[201], [503, 409]], 2, 0),
    ],
)
def test_one_payment_that_was_made_twice_breaks_a_promise(
    system: Direct, statuses: list[list[int]], count: int, broken: int
) -> None:
    journal = calls(*(("/transfer-out", each) for each in statuses))

    promise = promises.applied_twice(cast("System", system), journal, transfers(count))

    assert promise.broken == broken, promise.examples


def test_a_door_at_which_nothing_succeeded_breaks_a_promise(system: Direct) -> None:
    journal = calls(("/transfer-out", [201]), ("/quotes", [409]), ("/quotes", [400]))

    promise = promises.applied_twice(cast("System", system), journal, transfers(1))

    assert promise.examples == [
        "/quotes: none of its requests succeeded, so that nothing was checked"
    ]
