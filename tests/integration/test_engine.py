"""The engine on a real database: one batch, one commit, and nothing that shakes it."""

import gc
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any, NamedTuple, Self
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.status import Status
from cardledger.ledger.engine import writes
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.debts import DEBTS_LIMIT
from cardledger.ledger.engine.failures import UnavailableError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import SHARDS, Lane, Message
from cardledger.ledger.projections import history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import Story, arbitrary, duplicated, hostile, tight
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from tests.core.test_lifecycles import events_of, playable
from tests.waiting import limit_s
from tests.world import INBOX_KEY, RAIL, Cardholder, World, open_world, outcomes_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Event = dict[str, Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def engine(world: World) -> Engine:
    return world.engine()


def rolled_up(decided: Decided) -> RollUp:
    assert decided.roll_up is not None
    return decided.roll_up


def mine(cardholder: Cardholder, events: list[Event]) -> list[tuple[Cardholder | None, Event]]:
    return [(cardholder, event) for event in events]


def tell_all(model: Model, events: list[Event]) -> list[str]:
    return [model.submit(event) for event in events]


# --- what it is for -----------------------------------------------------------------------------


def test_the_restaurant_tip(world: World, platform: Id, engine: Engine) -> None:
    cardholder = world.cardholder(platform, 50_000)

    [asked] = world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 1250))])
    [taken] = world.process(engine, [(cardholder, world.clearing(cardholder, "T1", 1500))])

    assert (asked.outcome, taken.outcome) == (OutcomeType.APPLIED, OutcomeType.APPLIED)
    assert rolled_up(asked).state.status is Status.AUTHORIZED
    state = rolled_up(taken).state
    assert (state.status, state.pull_count, state.settled) == (Status.SETTLED, 2, 1500)
    assert world.account(cardholder)["balance"] == 48_500
    world.check_books(cardholder)


def test_the_tip_in_one_batch_is_the_tip_in_two(world: World, platform: Id, engine: Engine) -> None:
    cardholder = world.cardholder(platform, 50_000)
    tip = [world.authorization(cardholder, "T1", 1250), world.clearing(cardholder, "T1", 1500)]

    decided = world.process(engine, mine(cardholder, tip))

    assert [rolled_up(one).state.status for one in decided] == [Status.AUTHORIZED, Status.SETTLED]
    assert world.account(cardholder)["balance"] == 48_500
    world.check_books(cardholder)


def test_each_submitted_event_sends_one_webhook_with_its_sequence(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    tip = [world.authorization(cardholder, "T1", 1250), world.clearing(cardholder, "T1", 1500)]

    [first, _] = world.process(engine, mine(cardholder, tip))

    webhooks = world.rows(
        "SELECT type, sequence, data IS NULL FROM outbox WHERE subject_id = %s ORDER BY id",
        rolled_up(first).identity.id,
    )
    assert webhooks == [
        ("CARD_TRANSACTION.AUTHORIZED", 2, True),
        ("CARD_TRANSACTION.SETTLED", 4, True),
    ]
    balances = world.rows(
        "SELECT sequence, data->>'balance' FROM outbox WHERE subject_id = %s ORDER BY id",
        cardholder.account_id,
    )
    assert balances == [(1, "50000"), (3, "48500")]


@pytest.mark.parametrize("lifecycle", list(playable()))
def test_a_life_cycle_has_exactly_its_numbers_in_the_tables(
    world: World, platform: Id, engine: Engine, lifecycle: dict[str, Any]
) -> None:
    cardholder = world.cardholder(platform)
    start, *played = events_of(lifecycle, cardholder.scene)
    assert start is not None
    world.process(engine, [(cardholder, start)])

    for step, event in zip(lifecycle["steps"], played, strict=True):
        if event is None:
            world.connection.execute(
                "UPDATE cards SET state = 'FROZEN' WHERE id = %s", [cardholder.card_id]
            )
            assert world.account(cardholder) == step["expect"]
            continue

        [decided] = world.process(engine, [(cardholder, event)])

        assert world.account(cardholder) == step["expect"]
        assert (decided.outcome is OutcomeType.DUPLICATE) == ("repeatOf" in step)
        if "declineReason" in step:
            assert decided.reason == step["declineReason"]
        if decided.roll_up:
            assert decided.roll_up == refolded(world, decided.roll_up)
    world.check_books(cardholder)


def refolded(world: World, answered: RollUp) -> RollUp:
    """Return the fold, out of the database, of the events that `answered` is about."""
    place = answered.identity.id, answered.state.sequence
    with psycopg.connect(world.app_url) as connection:
        return history.at(connection, [place])[place]


# --- batches ------------------------------------------------------------------------------------


def test_a_batch_of_500_is_one_commit(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1_000_000)
    events = [world.authorization(cardholder, f"T{n}", 10 + n) for n in range(1201)]
    world.accept(mine(cardholder, events))
    commits: list[int] = []

    total = world.engine(batch_size=500).drain(
        Lane.LIVE, [cardholder.shard], lambda decided: commits.append(len(decided))
    )

    assert (total, commits) == (1201, [500, 500, 201])
    stamps = world.rows(
        "SELECT count(DISTINCT e.xmin::text) FROM card_transaction_events e"
        " JOIN card_transactions t ON t.id = e.card_transaction_id WHERE t.account_id = %s",
        cardholder.account_id,
    )
    assert stamps == [(3,)]
    world.check_books(cardholder)


def test_messages_of_many_queues_are_one_commit(world: World, platform: Id) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(12)]
    world.accept(
        [(h, world.authorization(h, f"T{n}", 10 + n)) for n in range(5) for h in cardholders],
        Lane.BULK,
    )
    decided: list[list[Decided]] = []

    world.engine(batch_size=50).drain(Lane.BULK, range(SHARDS), decided.append)

    sizes = [len(batch) for batch in decided]
    assert sum(sizes) == 60
    assert max(sizes) <= 50
    assert len(sizes) < len({cardholder.shard for cardholder in cardholders}), (
        "not one for each queue"
    )
    for batch in decided:
        ids = [one.message.id for one in batch]
        assert ids == sorted(ids), "by age, over all the queues"
    assert all(queue[0] is not Lane.BULK for queue in world.engine().waiting())
    for cardholder in cardholders:
        world.check_books(cardholder)


def test_a_long_queue_is_drained_to_its_end_beside_short_ones(world: World, platform: Id) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(4)]
    long, *short = cardholders
    events = [(long, world.authorization(long, f"L{n}", 1)) for n in range(100)]
    events += [(cardholder, world.authorization(cardholder, "S", 1)) for cardholder in short]
    world.accept(events, Lane.BULK)
    decided: list[list[Decided]] = []

    world.engine(batch_size=20).drain(Lane.BULK, range(SHARDS), decided.append)

    assert sum(map(len, decided)) == 103
    assert max(map(len, decided)) <= 20
    tokens = [
        one.message.body["issuerTransactionToken"]
        for batch in decided
        for one in batch
        if one.message.customer_id == long.owner.customer_id
    ]
    assert tokens == [f"L{n}" for n in range(100)], "each queue in its order"


def test_a_batch_leaves_nothing_to_the_garbage_collector(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1_000_000)
    engine.drain(Lane.LIVE, [cardholder.shard], lambda _: None)  # Whatever is made the first time.
    world.accept(
        mine(cardholder, [world.authorization(cardholder, f"G{n}", 10) for n in range(100)])
    )
    gc.collect()
    gc.disable()

    try:
        engine.drain(Lane.LIVE, [cardholder.shard], lambda _: None)
        left = gc.collect()
    finally:
        gc.enable()

    # A batch that pointed to itself would live on, with thousands of objects, until it came.
    assert left < 100


def test_the_number_of_statements_does_not_grow_with_the_batch(world: World, platform: Id) -> None:
    large, small = (sent_for(world, platform, size) for size in (250, 1))

    assert large.statements == small.statements <= 20


def test_a_small_batch_takes_few_round_trips(world: World, platform: Id) -> None:
    sent_for(world, platform, 1)  # Whatever is prepared the first time.

    # BEGIN, the claim, what is read, the accounts of the system, what is written, COMMIT.
    assert sent_for(world, platform, 1).round_trips == 6
    # 40 clearings and 40 authorizations, which have two events each.
    assert sent_for(world, platform, 40).round_trips == 6
    # Each COPY waits for PostgreSQL to ask for the rows, and again when it has them.
    assert sent_for(world, platform, 50).round_trips > 10


def test_a_message_that_adds_many_rows_is_copied(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1_000_000)
    purchases = [world.authorization(cardholder, f"old-{n}", 10) for n in range(140)]
    world.process(world.engine(), mine(cardholder, purchases))
    closed = "UPDATE cards SET state = 'CLOSED' WHERE id = %s"
    world.connection.execute(closed, [cardholder.card_id])

    sent = sent_for_events(world, cardholder, [world.card_closed(cardholder)])

    assert sent.round_trips > 10


def sent_for(world: World, platform: Id, size: int) -> "Sent":
    """Return what is sent to clear `size` purchases and to authorize as many others."""
    cardholder = world.cardholder(platform, 1_000_000)
    old = [world.authorization(cardholder, f"old-{n}", 10) for n in range(size)]
    world.process(world.engine(), mine(cardholder, old))
    both = [world.clearing(cardholder, f"old-{n}", 10) for n in range(size)]
    both += [world.authorization(cardholder, f"new-{n}", 10) for n in range(size)]
    return sent_for_events(world, cardholder, both)


def test_transfers_and_deposits_cost_as_many_statements_as_one_of_each(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1_000_000)
    other = world.another_account(cardholder)

    def both(size: int) -> int:
        events = [world.transfer(cardholder, other, 10) for _ in range(size)]
        events += [world.deposit(cardholder, 10) for _ in range(size)]
        return sent_for_events(world, cardholder, events).statements

    # Beside what every batch does, with the clock: the transfers, the names, the deposits, and what
    # became of it.
    assert both(100) == both(1) <= 21


class Sent(NamedTuple):
    """What an engine sends to PostgreSQL for a batch."""

    statements: int
    round_trips: int


def sent_for_events(world: World, cardholder: Cardholder, events: list[dict[str, Any]]) -> Sent:
    """Return what is sent to decide `events` in one batch."""
    world.accept(mine(cardholder, events))
    with world.database.connect() as connection, TemporaryFile("w+b") as trace:
        raw: Any = connection.connection.driver_connection
        raw.pgconn.trace(trace.fileno())  # libpq's own record of what it sends.
        engine = Engine(
            OneConnection(connection),  # type: ignore[arg-type] # All that it uses of a database.
            key=INBOX_KEY,
            rail=RAIL,
            batch_size=len(events) + 1,
        )
        engine.drain(Lane.LIVE, [cardholder.shard], lambda _: None)
        raw.pgconn.untrace()
        trace.seek(0)
        sent = [line.strip().split(b"\t") for line in trace]
    # A statement of several lines continues on lines without fields.
    messages = [line for line in sent if len(line) > 3]
    kinds = Counter(line[3] for line in messages if line[1] == b"F")
    return Sent(
        statements=kinds[b"Execute"] + kinds[b"Query"],
        round_trips=kinds[b"Sync"] + kinds[b"Query"] + kinds[b"CopyDone"],
    )


def test_a_batch_reads_by_key_and_changes_balances_in_place(world: World, platform: Id) -> None:
    cardholders = [world.cardholder(platform, 1_000) for _ in range(20)]
    world.process(
        world.engine(), [(one, world.authorization(one, "old", 10)) for one in cardholders]
    )
    for one in cardholders:
        world.accept([(one, world.clearing(one, "old", 10))])
        world.accept([(one, world.authorization(one, "new", 10))])

    with world.database.connect() as connection:
        database = CountingConnection(connection)
        engine = Engine(
            database,  # type: ignore[arg-type] # All that it uses of a database.
            key=INBOX_KEY,
            rail=RAIL,
            batch_size=500,
        )
        engine.step(Lane.LIVE, range(SHARDS), lambda _: None)

    assert {name: one.scanned for name, one in database.tables.items() if one.scanned} == {}
    balances = database.tables["internal_accounts"]
    # In place (HOT): no index learns of a new version of the row.
    assert balances.updated == balances.updated_in_place == len(cardholders)


class OneConnection:
    """A database that has one connection, which is there already."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execution_options(self, **_: str) -> Self:
        """Return itself: it is used in transactions only."""
        return self

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self._connection.begin():
            yield self._connection


class Touched(NamedTuple):
    """What was done to a table."""

    scanned: int  # As a whole, not by key.
    updated: int
    updated_in_place: int


class CountingConnection(OneConnection):
    """One that knows what its last database transaction did to every table."""

    tables: dict[str, Touched]

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with super().begin() as connection:
            before = touched(connection)  # Of what was committed and not added up yet.
            yield connection
            self.tables = {
                name: Touched(*(now - then for now, then in zip(after, before[name], strict=True)))
                for name, after in touched(connection).items()
            }


def touched(connection: Connection) -> dict[str, Touched]:
    """Return what `connection` has done to every table since the server last added it up."""
    rows = connection.exec_driver_sql(
        "SELECT relname, seq_scan, n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables"
    )
    return {name: Touched(*numbers) for name, *numbers in rows}


def addressed(cardholder: Cardholder, story: Story) -> list[Event]:
    """Return `story` about `cardholder`."""
    names = {"cardId": f"Card:{cardholder.card_id}", "accountId": str(cardholder.account_id)}
    return [{**event, **{k: v for k, v in names.items() if k in event}} for event in story]


def rows_of(world: World, cardholder: Cardholder) -> list[list[tuple[Any, ...]]]:
    """Return everything recorded about `cardholder` but ids and times."""
    customer = cardholder.owner.customer_id
    return [
        world.rows(query, customer)
        for query in (
            (
                "SELECT issuer_transaction_token, status, sequence, authorized, settled,"
                " settlement_count, refunded, refund_count, pulled, pull_count, pending,"
                " pending_count, open_pull, unpaid, released, release_count, closed_by,"
                " declined, decline_reason,"
                " descriptor, expires_at IS NULL, debt_id IS NULL FROM card_transactions"
                " WHERE customer_id = %s ORDER BY 1"
            ),
            (
                "SELECT t.issuer_transaction_token, e.sequence, e.kind, e.amount, e.unfunded,"
                " e.final, e.reason FROM card_transaction_events e"
                " JOIN card_transactions t ON t.id = e.card_transaction_id"
                " WHERE e.customer_id = %s ORDER BY 1, 2"
            ),
            (
                "SELECT t.issuer_transaction_token, e.sequence, e.line, d.kind, c.kind, e.amount,"
                " e.account_version, e.balance_after FROM entries e"
                " LEFT JOIN card_transactions t ON t.id = e.subject_id"
                " LEFT JOIN system_accounts d ON d.id = e.debit_account_id"
                " LEFT JOIN system_accounts c ON c.id = e.credit_account_id"
                " WHERE e.customer_id = %s ORDER BY 1, e.account_version, 2, 3, 4, 5, 6"
            ),
            (
                "SELECT balance, held, owed, pending, version FROM internal_accounts"
                " WHERE customer_id = %s"
            ),
            (
                "SELECT issuer_transaction_token, body->>'reference' FROM parked"
                " WHERE customer_id = %s ORDER BY 1, id"
            ),
            (
                "SELECT issuer_transaction_token, sequence, amount, succeeds FROM pending_pulls"
                " WHERE customer_id = %s ORDER BY 1, 2"
            ),
            (
                "SELECT outcome, reason, sequence, count(*) FROM outcomes WHERE customer_id = %s"
                " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
            ),
            "SELECT reason, count(*) FROM rejections WHERE customer_id = %s GROUP BY 1 ORDER BY 1",
            (
                "SELECT type, sequence, count(*) FROM outbox WHERE customer_id = %s"
                " AND type LIKE 'CARD_TRANSACTION.%%' GROUP BY 1, 2 ORDER BY 1, 2"
            ),
        )
    ]


@settings(max_examples=40)
@given(arbitrary() | tight() | duplicated(tight()), st.randoms(use_true_random=False))
def test_any_split_into_batches_leaves_the_same_rows(
    world: World, platform: Id, story: Story, chance: random.Random
) -> None:
    one_by_one, split, at_once = (world.cardholder(platform) for _ in range(3))
    model = Model()
    events = {
        cardholder: addressed(cardholder, story) for cardholder in (one_by_one, split, at_once)
    }
    expected = tell_all(model, events[one_by_one])

    decided = world.process(world.engine(batch_size=1), mine(one_by_one, events[one_by_one]))
    rest = mine(split, events[split])
    while rest:
        size = chance.randint(1, len(rest))
        world.process(world.engine(), rest[:size], chance.choice(list(Lane)))
        rest = rest[size:]
    at_once_decided = world.process(world.engine(), mine(at_once, events[at_once]))

    assert outcomes_of(decided) == outcomes_of(at_once_decided) == expected
    assert rows_of(world, one_by_one) == rows_of(world, split) == rows_of(world, at_once)
    for cardholder in events:
        world.check_books(cardholder, model)
    for one in decided:
        if one.roll_up and one.outcome is not OutcomeType.DUPLICATE:
            assert one.roll_up == refolded(world, one.roll_up)


@settings(max_examples=40)
@given(hostile())
def test_whatever_comes_the_books_add_up_and_nothing_fails_inside(
    world: World, platform: Id, story: Story
) -> None:
    cardholder = world.cardholder(platform)

    decided = world.process(world.engine(), mine(cardholder, addressed(cardholder, story)))

    assert len(decided) == len(story)
    assert not any(one.reason == RejectionReason.INTERNAL_ERROR for one in decided)
    world.check_books(cardholder)


def test_a_crowd_of_cardholders_in_shared_batches_equals_their_models(
    world: World, platform: Id, engine: Engine
) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    models = {world.cardholder(platform, 400): Model(money=400) for _ in range(20)}
    crowd: list[tuple[Cardholder | None, Event]] = []
    expected = []
    for _ in range(3000):
        cardholder = chance.choice(list(models))
        token, amount = f"T{chance.randint(1, 12)}", chance.randint(1, 120)
        event = chance.choices(
            [
                world.authorization(cardholder, token, amount),
                world.clearing(cardholder, token, amount, final=chance.random() < 0.5),
                world.deposit(cardholder, amount),
                world.event(chance.choice(REST), cardholder, token, amount),
                world.event("AUTHORIZATION_EXPIRY", cardholder, token),
            ],
            [4, 3, 2, 4, 1],
        )[0]
        crowd.append((cardholder, event))
        expected.append(models[cardholder].submit(event))

    decided = world.process(engine, crowd)

    assert outcomes_of(decided) == expected
    assert set(expected) == {"APPLIED", "DECLINED", "PARKED", "IGNORED"}
    assert {"EXCEPTION", "SETTLED", "PARTIALLY_SETTLED", "REFUNDED", "VOIDED"} <= {
        model.status(name) for model in models.values() for name in model.purchases
    }
    for cardholder, model in models.items():
        world.check_books(cardholder, model)


REST = [
    "AUTHORIZATION_INCREMENT",
    "AUTHORIZATION_ADVICE",
    "AUTHORIZATION_REVERSAL",
    "STAND_IN_AUTHORIZATION",
    "FINANCIAL_AUTHORIZATION",
    "CLEARING_REVERSAL",
    "RETURN",
    "RETURN_REVERSAL",
]


# --- the same event again -----------------------------------------------------------------------


def test_a_duplicate_in_the_same_batch_changes_nothing_and_repeats_the_first_answer(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 600)

    first, second = world.process(engine, mine(cardholder, [event, event]))

    assert (first.outcome, second.outcome) == (OutcomeType.APPLIED, OutcomeType.DUPLICATE)
    assert second.first_outcome is OutcomeType.APPLIED
    assert rolled_up(second) == rolled_up(first)
    assert world.account(cardholder)["balance"] == 400


@pytest.mark.parametrize("lane", Lane)
def test_a_duplicate_in_a_later_batch_of_any_lane_changes_nothing(
    world: World, platform: Id, engine: Engine, lane: Lane
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 1600)
    world.process(engine, mine(cardholder, [event]))
    before = rows_of(world, cardholder)

    [again] = world.process(engine, mine(cardholder, [event]), lane)

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert again.reason == "INSUFFICIENT_FUNDS"
    assert rows_of(world, cardholder) == before


def test_a_duplicate_shows_where_its_card_transaction_stands_now(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 2000)
    event = world.authorization(cardholder, "T1", 1250)
    world.process(engine, mine(cardholder, [event, world.clearing(cardholder, "T1", 1500)]))

    [again] = world.process(engine, mine(cardholder, [event]))

    assert rolled_up(again).state.status is Status.SETTLED


def test_a_deposit_that_comes_twice_brings_its_money_once(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform)
    event = world.deposit(cardholder, 700)

    decided = world.process(engine, mine(cardholder, [event, event, event | {"amount": 701}]))

    assert outcomes_of(decided) == ["APPLIED", "DUPLICATE", "REJECTED"]
    assert world.account(cardholder)["balance"] == 700


def test_the_same_reference_of_another_sender_is_another_event(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 100)

    decided = world.process(engine, mine(cardholder, [event, event | {"source": "mastercard"}]))

    assert outcomes_of(decided) == ["APPLIED", "APPLIED"]


# --- poison -------------------------------------------------------------------------------------


BODIES: dict[str, Callable[[Event], object]] = {
    "null": lambda _: None,
    "number": lambda _: 7,
    "string": lambda _: "AUTHORIZATION",
    "list": lambda body: [body],
    "empty": lambda _: {},
    "no-type": lambda body: {k: v for k, v in body.items() if k != "type"},
    "no-type-of-any-release": lambda body: body | {"type": "dance"},
    "type-list": lambda body: body | {"type": ["AUTHORIZATION"]},
    "type-object": lambda body: body | {"type": {}},
    "no-amount": lambda body: {k: v for k, v in body.items() if k != "amount"},
    "float": lambda body: body | {"amount": 12.5},
    "round-float": lambda body: body | {"amount": 12.0},
    "text": lambda body: body | {"amount": "12"},
    "zero": lambda body: body | {"amount": 0},
    "negative": lambda body: body | {"amount": -12},
    "beyond": lambda body: body | {"amount": 2**63},
    "far-beyond": lambda body: body | {"amount": 10**40},
    "boolean": lambda body: body | {"amount": True},
    "nothing": lambda body: body | {"amount": None},
    "list-amount": lambda body: body | {"amount": [12]},
    "no-card": lambda body: {k: v for k, v in body.items() if k != "cardId"},
    "card-number": lambda body: body | {"cardId": 7},
    "card-words": lambda body: body | {"cardId": "Card:mine"},
    "unknown-card": lambda body: body | {"cardId": f"Card:{uuid4()}"},
    "no-token": lambda body: {k: v for k, v in body.items() if k != "issuerTransactionToken"},
    "token-list": lambda body: body | {"issuerTransactionToken": ["T9"]},
    "token-object": lambda body: body | {"issuerTransactionToken": {}},
    "no-currency": lambda body: {k: v for k, v in body.items() if k != "currency"},
    "euro": lambda body: body | {"currency": "EUR"},
    "currency-object": lambda body: body | {"currency": {"code": "USD"}},
    "merchant-text": lambda body: body | {"merchant": "SHOP"},
    "merchant-list": lambda body: body | {"merchant": ["SHOP"]},
    "descriptor-number": lambda body: body | {"merchant": {"descriptor": 7}},
    "mcc-words": lambda body: body | {"merchant": {"descriptor": "SHOP", "mcc": "food"}},
    "occurred-words": lambda body: body | {"occurredAt": "yesterday"},
    "occurred-number": lambda body: body | {"occurredAt": 7},
    "decide-words": lambda body: body | {"decideBy": "soon"},
    "decide-naive": lambda body: body | {"decideBy": "2099-01-01T00:00:00"},
    "deposit-nowhere": lambda body: {**body, "type": "DEPOSIT", "accountId": str(uuid4())},
    "deposit-words": lambda body: {**body, "type": "DEPOSIT", "accountId": "mine"},
    "closed-number": lambda body: body | {"type": "CARD_CLOSED", "cardId": 7},
    "closed-nothing": lambda body: {
        k: v for k, v in (body | {"type": "CARD_CLOSED"}).items() if k != "cardId"
    },
    "surrogate": lambda body: body | {"type": "\ud800"},
    "nul": lambda body: body | {"type": "a\x00b"},
    "endless": lambda _: None,
    "deep": lambda _: None,
    "token-number": lambda body: body | {"issuerTransactionToken": 7},
    "token-null": lambda body: body | {"issuerTransactionToken": None},
    "token-nul": lambda body: body | {"issuerTransactionToken": "a\x00b"},
    "token-surrogate": lambda body: body | {"issuerTransactionToken": "\ud800"},
    "mcc-number": lambda body: body | {"merchant": {"descriptor": "SHOP", "mcc": 5812}},
    "country-list": lambda body: body | {"merchant": {"descriptor": "SHOP", "country": ["US"]}},
    "descriptor-nul": lambda body: body | {"merchant": {"descriptor": "a\x00b"}},
    "descriptor-surrogate": lambda body: body | {"merchant": {"descriptor": "\ud800"}},
    "occurred-naive": lambda body: body | {"occurredAt": "2026-01-01T00:00:00"},
    "final-text": lambda body: body | {"type": "CLEARING", "final": "true"},
    "final-number": lambda body: body | {"type": "CLEARING", "final": 1},
    "final-empty": lambda body: body | {"type": "CLEARING", "final": []},
    "succeeded-text": lambda body: body | {"type": "PULL_CONFIRMATION", "succeeded": "yes"},
    "succeeded-null": lambda body: body | {"type": "PULL_CONFIRMATION", "succeeded": None},
    "early-words": lambda body: body | {"type": "AUTHORIZATION_REVERSAL", "occurredAt": "x"},
}
"""Bodies that no door lets in, made of a good one."""

TEXTS = {"endless": f'{{"amount": {"9" * 5000}}}', "deep": "[" * 3000 + "]" * 3000}
"""Bodies that Python cannot even read, and PostgreSQL can."""

DEADLY: dict[str, Callable[[Event], Event]] = {
    "token-long": lambda body: body | {"issuerTransactionToken": token_hex(8_000)},
}
"""Bodies that the rules can live with and the database cannot: the whole batch fails on them."""


def test_only_the_poison_messages_among_500_are_rejected(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1_000_000)
    model = Model(money=1_000_000)
    # A key that is taken: only its second use is poison.
    taken = world.authorization(cardholder, "T0", 5)
    model.submit(taken)
    world.process(engine, mine(cardholder, [taken]))
    good: list[Event] = []
    poison: dict[Id, str] = {}
    kinds = list(BODIES.items())
    for n in range(500 - len(kinds) - 1):
        event = world.authorization(cardholder, f"T{n % 40}", 10 + n)
        good.append(event)
        world.accept(mine(cardholder, [event])) if n % 20 == 0 else smuggle(
            world, cardholder, event
        )
        if n % 7 == 5 and kinds:
            name, spoil = kinds.pop()
            body = TEXTS.get(name) or json.dumps(
                spoil(world.authorization(cardholder, f"P{n}", 12))
            )
            poison[world.insert_unchecked(cardholder, body, reference=f"poison-{name}-{n}")] = name
            if '"type": "CLEARING"' in body:
                model.rejected.append({"type": "CLEARING", "amount": 12})
    smuggle(world, cardholder, taken | {"amount": 6})
    assert not kinds
    commits: list[list[Decided]] = []

    engine.drain(Lane.LIVE, [cardholder.shard], commits.append)

    [decided] = commits  # One commit: nothing had to be tried alone.
    assert len(decided) == 500
    refused = [one for one in decided if one.outcome is OutcomeType.REJECTED]
    assert {one.message.id for one in refused} >= set(poison)
    assert len(refused) == len(poison) + 1
    assert outcomes_of(one for one in decided if one not in refused) == tell_all(model, good)
    kept = world.rows("SELECT id, reason, body FROM rejections WHERE customer_id = %s",
                      cardholder.owner.customer_id)  # fmt: skip
    assert {key for key, _, _ in kept} >= set(poison)
    reasons = {poison.get(key, "taken"): reason for key, reason, _ in kept}
    special = {
        "taken": RejectionReason.KEY_REUSED,
        "unknown-card": RejectionReason.UNKNOWN_CARD,
        "euro": RejectionReason.INVALID_CURRENCY,
        "currency-object": RejectionReason.INVALID_CURRENCY,
        "deposit-nowhere": RejectionReason.UNKNOWN_ACCOUNT,
    }
    for name, reason in reasons.items():
        assert reason == special.get(name, RejectionReason.MALFORMED), name
    for _, _, body in kept:
        json.loads(body)  # It can be parsed, and resubmitted after a fix.
    world.check_books(cardholder, model)


def smuggle(world: World, cardholder: Cardholder, event: Event) -> Id:
    return world.insert_unchecked(cardholder, json.dumps(event), reference=event["reference"])


@pytest.mark.parametrize("name", list(DEADLY))
def test_a_row_that_the_database_refuses_is_quarantined_and_its_neighbours_are_applied(
    world: World, platform: Id, engine: Engine, name: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    model = Model(money=1000)
    good = [world.authorization(cardholder, f"T{n}", 10) for n in range(6)]
    for event in good[:3]:
        smuggle(world, cardholder, event)
    body = json.dumps(DEADLY[name](world.authorization(cardholder, "P", 12)))
    key = world.insert_unchecked(cardholder, body, reference=f"deadly-{name}")
    for event in good[3:]:
        smuggle(world, cardholder, event)

    decided = world.drain(engine)

    assert outcomes_of(decided) == ["APPLIED"] * 3 + ["REJECTED"] + ["APPLIED"] * 3
    [(reason,)] = world.rows("SELECT reason FROM rejections WHERE id = %s", key)
    assert reason == RejectionReason.INTERNAL_ERROR
    tell_all(model, good)
    world.check_books(cardholder, model)
    assert world.drain(engine) == []


def test_several_that_drain_a_queue_set_aside_only_what_fails(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    for n in range(8):
        event = world.authorization(cardholder, f"T{n}", 10)
        smuggle(world, cardholder, DEADLY["token-long"](event) if n == 2 else event)
    decided: list[Decided] = []

    with ThreadPoolExecutor(3) as pool:
        for engine in [world.engine() for _ in range(3)]:
            pool.submit(engine.drain, Lane.LIVE, [cardholder.shard], decided.extend)
    # Each ends when another holds the queue.
    decided += world.drain(world.engine())

    assert len(decided) == 8
    ordered = sorted(decided, key=lambda decision: decision.message.id)
    assert outcomes_of(ordered) == ["APPLIED"] * 2 + ["REJECTED"] + ["APPLIED"] * 5
    assert world.account(cardholder)["balance"] == 930
    world.check_books(cardholder)


def test_a_reference_too_long_for_its_index_does_not_stop_the_queue(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1000)
    body = world.authorization(cardholder, "P", 12)
    endless = "".join(random.Random(3).choices("0123456789abcdef", k=40_000))  # noqa: S311 - no secret
    world.insert_unchecked(cardholder, json.dumps(body), reference=endless)
    good = world.authorization(cardholder, "T", 10)
    smuggle(world, cardholder, good)

    decided = world.drain(engine)

    assert outcomes_of(decided) == ["REJECTED", "APPLIED"]


def test_a_rejected_event_leaves_its_card_transaction_and_its_key_free(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 10)

    [refused] = world.process(engine, mine(cardholder, [event | {"currency": "EUR"}]))
    [applied] = world.process(engine, mine(cardholder, [event]))

    assert refused.reason == RejectionReason.INVALID_CURRENCY
    assert applied.outcome is OutcomeType.APPLIED


def test_a_card_of_another_cardholder_is_unknown(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder, other = world.cardholder(platform, 1000), world.cardholder(platform, 1000)

    [refused] = world.process(engine, [(other, world.authorization(cardholder, "T1", 10))])
    [unrouted] = world.process(engine, [(None, world.authorization(cardholder, "T1", 10))])

    assert refused.reason == unrouted.reason == RejectionReason.UNKNOWN_CARD
    assert world.account(cardholder)["balance"] == world.account(other)["balance"] == 1000


def test_a_card_of_another_cardholder_cannot_be_closed(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder, other = world.cardholder(platform, 1000), world.cardholder(platform)
    while other.shard != cardholder.shard:
        other = world.cardholder(platform)
    world.process(engine, [(cardholder, world.authorization(cardholder, "T1", 10))])

    world.process(engine, [(other, world.card_closed(cardholder))])
    both = [
        (cardholder, world.authorization(cardholder, "T2", 5)),
        (other, world.card_closed(cardholder)),
    ]
    world.process(engine, both)

    assert world.account(cardholder)["balance"] == 985
    assert world.rows(
        "SELECT count(*) FROM rejections WHERE customer_id = %s", other.owner.customer_id
    ) == [(0,)]
    world.check_books(cardholder)


# --- the range of the books ---------------------------------------------------------------------


def test_a_total_beyond_63_bits_is_rejected_and_leaves_no_trace(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, MAX_AMOUNT)
    events = [
        world.deposit(cardholder, 1),
        world.clearing(cardholder, "T1", MAX_AMOUNT, final=False),
        world.clearing(cardholder, "T1", 1),
        world.clearing(cardholder, "T2", MAX_AMOUNT),
        world.clearing(cardholder, "T3", 1),
        world.deposit(cardholder, 1),
    ]

    decided = world.process(engine, mine(cardholder, events))

    assert outcomes_of(decided) == [
        "REJECTED",
        "APPLIED",
        "REJECTED",
        "APPLIED",
        "REJECTED",
        "APPLIED",
    ]
    refused = {one.reason for one in decided if one.outcome is OutcomeType.REJECTED}
    assert refused == {RejectionReason.AMOUNT_OUT_OF_RANGE}
    account = world.account(cardholder)
    assert (account["balance"], account["owed"]) == (1, MAX_AMOUNT)
    world.check_books(cardholder)


def test_a_deposit_is_applied_although_the_pull_that_it_pays_exceeds_the_range(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, MAX_AMOUNT)
    events = [
        # Pulls are counted gross, so that what was released is still counted.
        world.authorization(cardholder, "T1", MAX_AMOUNT),
        world.clearing(cardholder, "T1", 1, final=True),
        world.clearing(cardholder, "T2", MAX_AMOUNT - 1),
        world.clearing(cardholder, "T1", 5),
        world.deposit(cardholder, 10),
    ]

    decided = world.process(engine, mine(cardholder, events))

    assert outcomes_of(decided) == ["APPLIED", "APPLIED", "APPLIED", "REJECTED", "APPLIED"]
    assert decided[3].reason == RejectionReason.AMOUNT_OUT_OF_RANGE
    assert world.account(cardholder)["balance"] == 10
    world.check_books(cardholder)


# --- the order of recovery ----------------------------------------------------------------------


def test_open_pulls_are_paid_oldest_first_and_none_is_skipped(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform, 10)
    short = [world.clearing(cardholder, f"T{n}", amount) for n, amount in enumerate((50, 20, 30))]
    world.process(engine, mine(cardholder, short))

    world.process(engine, mine(cardholder, [world.deposit(cardholder, 30)]))
    assert world.account(cardholder)["balance"] == 40  # Enough for the second, but the first waits.

    world.process(engine, mine(cardholder, [world.deposit(cardholder, 31)]))
    account = world.account(cardholder)
    statuses = [account["transactions"][f"T{n}"]["status"] for n in range(3)]
    assert statuses == ["SETTLED", "SETTLED", "EXCEPTION"]
    assert (account["balance"], account["owed"]) == (1, 30)
    world.check_books(cardholder)


def test_a_queue_longer_than_a_batch_looks_at_is_paid_to_its_end_in_its_order(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform)
    debts = 2 * DEBTS_LIMIT + 5
    world.process(
        engine, mine(cardholder, [world.clearing(cardholder, f"T{n}", 2) for n in range(debts)])
    )

    world.process(engine, mine(cardholder, [world.deposit(cardholder, 2 * debts - 1)]))
    while world.drain(engine, Lane.LIVE):
        pass

    account = world.account(cardholder)
    statuses = [account["transactions"][f"T{n}"]["status"] for n in range(debts)]
    assert statuses == ["SETTLED"] * (debts - 1) + ["EXCEPTION"]
    assert (account["balance"], account["owed"]) == (1, 2)
    world.check_books(cardholder)


def test_debts_queue_in_the_order_in_which_they_were_opened_not_sent(
    world: World, platform: Id, engine: Engine
) -> None:
    cardholder = world.cardholder(platform)
    sent_first = mine(cardholder, [world.clearing(cardholder, "sent first", 100)])
    world.accept(sent_first, Lane.BULK)
    world.process(engine, mine(cardholder, [world.clearing(cardholder, "opened first", 100)]))
    world.drain(engine, Lane.BULK)

    world.process(engine, mine(cardholder, [world.deposit(cardholder, 100)]))

    standing = world.account(cardholder)["transactions"]
    assert standing["opened first"]["status"] == "SETTLED"
    assert standing["sent first"]["status"] == "EXCEPTION"


def test_a_batch_that_waits_for_an_account_is_recorded_when_it_has_it(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 100)
    before, after = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    now = [before]
    engine = world.engine(clock=lambda: now[0])
    world.accept(mine(cardholder, [world.authorization(cardholder, "T1", 1)]))

    with ThreadPoolExecutor(1) as pool, psycopg.connect(world.url) as other:
        other.execute(
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE", [cardholder.account_id]
        )
        drained = pool.submit(world.drain, engine, Lane.LIVE)
        while not world.rows(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database() AND query LIKE %s",
            "%internal_accounts%FOR UPDATE%",
        ):
            assert not drained.done(), "the batch did not wait"
        now[0] = after
        other.rollback()
        [decided] = drained.result(limit_s())

    assert rolled_up(decided).updated_at == after


def test_an_engine_that_is_to_stop_ends_after_the_batch_it_is_at(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 100)
    engine = world.engine(batch_size=10)
    world.accept(mine(cardholder, [world.authorization(cardholder, f"T{n}", 1) for n in range(30)]))
    decided: list[Decided] = []

    def stop_meanwhile(batch: list[Decided]) -> None:
        decided.extend(batch)
        engine.stop()

    engine.drain(Lane.LIVE, [cardholder.shard], stop_meanwhile)

    assert len(decided) == 10
    assert world.drain(engine, Lane.LIVE) == [], "it begins no other"
    assert len(world.drain(world.engine(), Lane.LIVE)) == 20


def test_a_release_pays_open_pulls_too(world: World, platform: Id, engine: Engine) -> None:
    cardholder = world.cardholder(platform, 100)
    world.process(engine, mine(cardholder, [world.authorization(cardholder, "T1", 100)]))
    world.process(engine, mine(cardholder, [world.clearing(cardholder, "T2", 40)]))

    world.process(engine, mine(cardholder, [world.clearing(cardholder, "T1", 60, final=True)]))

    account = world.account(cardholder)
    assert (account["balance"], account["owed"]) == (0, 0)
    assert account["transactions"]["T2"]["status"] == "SETTLED"
    world.check_books(cardholder)


def test_what_is_owed_cannot_be_authorized_away(world: World, platform: Id, engine: Engine) -> None:
    cardholder = world.cardholder(platform, 100)
    world.process(engine, mine(cardholder, [world.clearing(cardholder, "T1", 150)]))

    decided = world.process(engine, mine(cardholder, [world.authorization(cardholder, "T2", 1)]))

    assert decided[0].reason == "INSUFFICIENT_FUNDS"
    assert world.account(cardholder)["balance"] == 100


# --- the deadline -------------------------------------------------------------------------------


def test_an_authorization_after_its_deadline_is_declined(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    late = (NOON - timedelta(seconds=1)).isoformat()

    [decided] = world.process(
        world.engine(clock=lambda: NOON),
        mine(cardholder, [world.authorization(cardholder, "T1", 10, decideBy=late)]),
    )

    assert (decided.outcome, decided.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert world.account(cardholder)["balance"] == 1000


def test_an_approval_is_never_given_after_its_deadline_however_late_the_clock_jumps(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    soon = (NOON + timedelta(seconds=2)).isoformat()
    later = (NOON + timedelta(hours=2)).isoformat()
    clock = jumping(NOON, NOON + timedelta(seconds=3))

    decided = world.process(
        world.engine(clock=clock),
        mine(
            cardholder,
            [
                world.authorization(cardholder, "T1", 10, decideBy=soon),
                world.authorization(cardholder, "T2", 20, decideBy=later),
                world.authorization(cardholder, "T3", 40),
            ],
        ),
    )

    assert [one.reason for one in decided] == ["DECISION_TIMEOUT", None, None]
    account = world.account(cardholder)
    assert account["balance"] == 940
    assert account["transactions"]["T1"]["status"] == "DECLINED"
    world.check_books(cardholder)


def test_deadlines_that_pass_again_and_again_end_in_declines_and_timely_approvals(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    events = [
        world.authorization(
            cardholder, f"T{n}", 10, decideBy=(NOON + timedelta(seconds=2 * n + 0.5)).isoformat()
        )
        for n in range(5)
    ]
    clock = jumping(*(NOON + timedelta(seconds=n) for n in range(60)))

    decided = world.process(world.engine(clock=clock), mine(cardholder, events))

    reasons = [one.reason for one in decided]
    assert reasons == ["DECISION_TIMEOUT"] * 3 + [None] * 2
    world.check_books(cardholder)


def test_short_deadlines_that_keep_arriving_delay_no_neighbour(world: World, platform: Id) -> None:
    """Every attempt had the newest authorizations, too, so none came to its end."""
    neighbour = world.cardholder(platform, 1000)
    senders = [world.cardholder(platform, 1000) for _ in range(60)]
    arriving = iter(senders)
    readings = 0

    def clock() -> datetime:
        """Ten milliseconds pass between two readings, and one authorization arrives."""
        nonlocal readings
        readings += 1
        at = NOON + readings * timedelta(milliseconds=10)
        if (sender := next(arriving, None)) is not None:
            soon = (at + timedelta(milliseconds=15)).isoformat()
            world.accept(mine(sender, [world.authorization(sender, "T1", 10, decideBy=soon)]))
        return at

    clock()
    [own] = world.accept(mine(neighbour, [world.authorization(neighbour, "T1", 20)]))
    engine, committed = world.engine(clock=clock), list[Decided]()
    queues = sorted({one.shard for one in (neighbour, *senders)})
    engine.step(Lane.LIVE, queues, committed.extend)

    assert own.id in {one.message.id for one in committed}
    assert readings < 10
    world.drain(engine)
    assert {world.account(one)["balance"] for one in senders} <= {990, 1000}
    world.check_books(neighbour)


def test_a_decision_made_in_time_is_repeated_after_the_deadline(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(
        cardholder, "T1", 10, decideBy=(NOON + timedelta(seconds=2)).isoformat()
    )
    world.process(world.engine(clock=lambda: NOON), mine(cardholder, [event]))

    [again] = world.process(
        world.engine(clock=lambda: NOON + timedelta(days=1)), mine(cardholder, [event])
    )

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.APPLIED)


def test_an_outcome_of_an_earlier_release_is_found_by_the_hash_with_the_deadline(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 10, decideBy="2099-01-01T00:00:00+00:00")
    with_deadline = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
    world.rows(
        "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash, message_id,"
        " outcome, recorded_at) VALUES (%s, %s, %s, %s, %s, %s, 'APPLIED', now()) RETURNING 1",
        cardholder.owner.customer_id,
        platform,
        event["source"],
        event["reference"],
        blake2b(with_deadline, digest_size=16).digest(),
        new_id(),
    )

    [again] = world.process(world.engine(), mine(cardholder, [event]))
    [reused] = world.process(world.engine(), mine(cardholder, [event | {"amount": 11}]))

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.APPLIED)
    assert reused.reason == "KEY_REUSED"


def jumping(*times: datetime) -> Callable[[], datetime]:
    """Return a clock that shows `times` one after the other, then always the last."""
    rest = list(times)
    return lambda: rest.pop(0) if len(rest) > 1 else rest[0]


# --- many at once -------------------------------------------------------------------------------


def test_racing_lanes_never_overdraw_an_account_and_the_books_add_up(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 2_000)
    chance = random.Random(11)  # noqa: S311 - no secret
    crowd = {
        lane: [
            world.authorization(cardholder, f"T{chance.randint(1, 60)}", chance.randint(1, 60))
            if chance.random() < 0.6
            else world.clearing(cardholder, f"T{chance.randint(1, 60)}", chance.randint(1, 60))
            for _ in range(300)
        ]
        for lane in Lane
    }
    for lane, events in crowd.items():
        world.accept(mine(cardholder, events), lane)
        world.accept(mine(cardholder, crowd[Lane.LIVE][:50]), lane)  # Everybody sends these again.
    start = threading.Barrier(4)

    def race(lane: Lane) -> list[Decided]:
        decided: list[Decided] = []
        start.wait()
        world.engine(batch_size=9).drain(lane, [cardholder.shard], decided.extend)
        return decided

    with ThreadPoolExecutor(4) as threads:
        lanes = [*Lane, *Lane]
        decided = [one for part in threads.map(race, lanes) for one in part]

    assert len(decided) == 700
    assert sum(one.outcome is OutcomeType.DUPLICATE for one in decided) == 100
    account = world.account(cardholder)
    assert account["balance"] >= 0
    world.check_books(cardholder)
    decisions = world.rows(
        "SELECT count(*), count(DISTINCT (reference, source)) FROM outcomes WHERE customer_id = %s",
        cardholder.owner.customer_id,
    )
    assert decisions == [(601, 601)]  # And the first deposit.


def test_two_lanes_that_open_one_card_transaction_at_once_open_it_once(
    world: World, platform: Id
) -> None:
    engine = world.engine()
    for _ in range(10):
        cardholder = world.cardholder(platform, 1000)
        world.accept(mine(cardholder, [world.authorization(cardholder, "T1", 100)]), Lane.LIVE)
        world.accept(mine(cardholder, [world.clearing(cardholder, "T1", 120)]), Lane.BULK)
        start = threading.Barrier(2)

        def race(
            lane: Lane, cardholder: Cardholder = cardholder, start: threading.Barrier = start
        ) -> None:
            start.wait()
            engine.drain(lane, [cardholder.shard], lambda _: None)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(race, Lane))

        account = world.account(cardholder)
        assert account["balance"] == 880
        assert account["transactions"]["T1"]["settled"] == 120
        world.check_books(cardholder)


def test_two_engines_on_one_queue_decide_every_message_once_and_in_order(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 100_000)
    events = [world.authorization(cardholder, "T1", n) for n in range(1, 201)]
    messages = world.accept(mine(cardholder, events))
    start = threading.Barrier(3)
    order: list[Id] = []

    def race(_: int) -> None:
        start.wait()
        engine = world.engine(batch_size=3)
        engine.drain(Lane.LIVE, [cardholder.shard], lambda _: None)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(race, range(3)))

    order = [
        key
        for (key,) in world.rows(
            "SELECT e.message_id FROM card_transaction_events e JOIN card_transactions t"
            " ON t.id = e.card_transaction_id WHERE t.account_id = %s AND e.kind = 'AUTHORIZED'"
            " ORDER BY e.sequence",
            cardholder.account_id,
        )
    ]
    assert order == [message.id for message in messages]
    world.check_books(cardholder)


# --- PostgreSQL goes away -----------------------------------------------------------------------


def test_a_lost_connection_is_unavailable_and_the_next_drain_succeeds(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 1000)
    world.accept(mine(cardholder, [world.authorization(cardholder, "T1", 10)]))
    fatal = killing_clock(world)

    with pytest.raises(UnavailableError):
        world.engine(clock=fatal).drain(Lane.LIVE, [cardholder.shard], lambda _: None)

    assert world.account(cardholder)["balance"] == 1000
    [decided] = drained_at_last(world, cardholder)
    assert decided.outcome is OutcomeType.APPLIED
    assert world.account(cardholder)["balance"] == 990
    world.check_books(cardholder)


def killing_clock(world: World) -> Callable[[], datetime]:
    """Return a clock whose reading costs every connection of the application its life."""

    def read() -> datetime:
        world.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return datetime.now(UTC)

    return read


def drained_at_last(world: World, cardholder: Cardholder) -> list[Decided]:
    """Drain as the sweeper does: again after every failure; connections of the pool have died."""
    engine = world.engine()
    for _ in range(10):
        decided: list[Decided] = []
        try:
            engine.drain(Lane.LIVE, [cardholder.shard], decided.extend)
        except UnavailableError:
            continue
        return decided
    pytest.fail("the engine does not recover")


def test_a_batch_that_cannot_commit_leaves_nothing(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 1000)
    before = rows_of(world, cardholder)
    events = [world.authorization(cardholder, f"T{n}", 10) for n in range(20)]
    world.accept(mine(cardholder, events))

    with pytest.raises(UnavailableError):
        world.engine(clock=killing_clock(world)).drain(
            Lane.LIVE, [cardholder.shard], lambda _: None
        )

    assert rows_of(world, cardholder) == before
    assert len(drained_at_last(world, cardholder)) == 20


def test_a_queue_is_waiting_until_it_is_drained(world: World, platform: Id, engine: Engine) -> None:
    cardholder = world.cardholder(platform, 1000)
    world.accept(mine(cardholder, [world.authorization(cardholder, "T1", 10)]), Lane.BULK)

    assert (Lane.BULK, cardholder.shard) in engine.waiting()

    world.drain(engine, Lane.BULK)

    assert engine.waiting() == []


def test_a_batch_that_is_too_slow_for_its_time_limits_is_tried_with_fewer_messages(
    world: World, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was repeated at its full size, and nothing was decided any more."""
    cardholder = world.cardholder(platform, 10_000)
    engine = world.engine(batch_size=40)
    write, sizes = writes.write, []

    def slow(*arguments: Any, decided: Sequence[Message]) -> None:  # noqa: ANN401
        sizes.append(len(decided))
        if len(decided) > 10:
            raise psycopg.errors.QueryCanceled
        write(*arguments, decided=decided)

    world.accept([(cardholder, world.authorization(cardholder, f"T{n}", 1)) for n in range(100)])
    with monkeypatch.context() as patch:
        patch.setattr(writes, "write", slow)
        for _ in range(2):
            with pytest.raises(UnavailableError):
                world.drain(engine)
        decided: list[Decided] = []
        with pytest.raises(UnavailableError):
            engine.drain(Lane.LIVE, [cardholder.shard], decided.extend)
    decided += world.drain(engine)

    assert sizes == [40, 20, 10, 20]
    assert outcomes_of(decided) == ["APPLIED"] * 100
