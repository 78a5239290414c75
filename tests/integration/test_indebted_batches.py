"""Batches whose cardholders owe much: what they read and walk is bounded, what they pay is not."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine import debts, snapshots
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.debts import BATCH_LIMIT, DEBTS_LIMIT, limit_of
from cardledger.ledger.engine.decisions import recovery
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import RECOVERY, Lane
from cardledger.schema.ids import Id
from tests.world import Cardholder, World, open_world

OWED = 10  # By each debt.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def engine(world: World) -> Engine:
    return world.engine()


def indebted(world: World, platform: Id, number: int, *, debts: int) -> list[Cardholder]:
    """Return cardholders that have nothing and owe `debts` clearings each."""
    made = [world.cardholder(platform, 0) for _ in range(number)]
    engine = world.engine()
    for cardholder in made:
        short = [world.clearing(cardholder, f"T{n:03}", OWED) for n in range(debts)]
        world.process(engine, [(cardholder, event) for event in short])
    return made


def refunds(world: World, cardholders: Sequence[Cardholder], amount: int) -> list[Any]:
    return [(each, world.event("RETURN", each, "refund", amount)) for each in cardholders]


def decide_at_once(world: World, engine: Engine, events: Sequence[Any]) -> list[list[Decided]]:
    """Accept `events` and decide all that is in their queues; return each batch."""
    world.accept(events)
    batches: list[list[Decided]] = []
    shards: Sequence[int] = sorted({cardholder.shard for cardholder, _ in events})
    while shards:
        shards = engine.step(Lane.LIVE, shards, batches.append)
    return batches


def standing(world: World, cardholder: Cardholder) -> tuple[int, list[str]]:
    """Return the balance of `cardholder`, and the debts that are paid, in the order of payment."""
    paid = world.rows(
        "SELECT t.issuer_transaction_token FROM entries e"
        " JOIN card_transactions t ON t.id = e.subject_id"
        " WHERE e.account_id = %s AND e.debit_account_id = e.account_id"
        " ORDER BY e.account_version",
        cardholder.account_id,
    )
    return world.account(cardholder)["balance"], [token for (token,) in paid]


@contextmanager
def read_by_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return how many debts each batch inside has loaded."""
    counts: list[int] = []

    def counted(**fields: Any) -> BatchSnapshot:  # noqa: ANN401 - as it is called
        snapshot = BatchSnapshot(**fields)
        counts.append(sum(len(page.roll_ups) for page in snapshot.debts.values()))
        return snapshot

    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "BatchSnapshot", counted)
        yield counts


@contextmanager
def lines_of_recovery() -> Iterator[list[int]]:
    """Return how many lines of the module that pays debts are run inside, of all threads."""
    count = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - as it is called
        if frame.f_code.co_filename != recovery.__file__:
            return None
        count[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    ("cardholders", "of_each"),
    [(1, DEBTS_LIMIT), (10, DEBTS_LIMIT), (50, 20), (100, 10), (500, 10), (5_000, 10)],
)
def test_the_debts_that_a_batch_loads_are_shared_among_its_cardholders(
    cardholders: int, of_each: int
) -> None:
    assert limit_of(cardholders) == of_each


def test_a_batch_of_many_who_owe_much_reads_a_share_of_each_and_pays_all_in_order(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "BATCH_LIMIT", 30)
    together = indebted(world, platform, 6, debts=14)
    alone = indebted(world, platform, 6, debts=14)
    enough = 13 * OWED + OWED - 1

    with read_by_batches(monkeypatch) as read:
        batches = decide_at_once(world, engine, refunds(world, together, enough))
    for event in refunds(world, alone, enough):
        decide_at_once(world, engine, [event])

    first, *later = batches
    assert len(first) == 6
    assert read[0] == 6 * 10  # As few of each as is sensible.
    assert sum(len(batch) for batch in later) == 6
    assert all(each.message.body["type"] == RECOVERY for batch in later for each in batch)
    expected = (OWED - 1, [f"T{n:03}" for n in range(13)])
    assert [standing(world, each) for each in together] == [expected] * 6
    assert [standing(world, each) for each in alone] == [expected] * 6
    for cardholder in together:
        world.check_books(cardholder)


def test_what_others_do_not_need_is_read_of_who_owes_more(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "BATCH_LIMIT", 40)
    short = indebted(world, platform, 4, debts=2)
    [long] = indebted(world, platform, 1, debts=14)

    with read_by_batches(monkeypatch) as read:
        batches = decide_at_once(world, engine, refunds(world, [*short, long], 14 * OWED))

    assert (len(batches), read) == (1, [4 * 2 + 14])
    assert standing(world, long) == (0, [f"T{n:03}" for n in range(14)])


def test_the_steps_of_a_batch_grow_with_the_debts_of_its_cardholders_and_not_their_square(
    world: World, platform: Id, engine: Engine
) -> None:
    counted = []
    for number in (6, 12):
        made = indebted(world, platform, number, debts=9)
        with lines_of_recovery() as lines:
            [batch] = decide_at_once(world, engine, refunds(world, made, 9 * OWED))
        assert len(batch) == number
        counted.append(lines[0])

    few, many = counted
    assert few > 0
    assert many < 2.2 * few


def test_a_queue_of_debts_that_goes_on_is_followed_up_once_a_batch_and_at_once(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "DEBTS_LIMIT", 10)
    [cardholder] = indebted(world, platform, 1, debts=14)
    # The second of them is about a debt beyond those that are loaded.
    last = world.event("RETURN", cardholder, "T013", OWED)
    events = [*refunds(world, [cardholder], 13 * OWED), (cardholder, last)]

    first, *later = decide_at_once(world, engine, events)

    assert [list(each.wakes) for each in first] == [[cardholder.shard], []]
    assert [[each.message.body["type"] for each in batch] for batch in later] == [[RECOVERY]]
    assert standing(world, cardholder) == (0, [f"T{n:03}" for n in range(14)])
    world.check_books(cardholder)


def test_a_batch_without_debts_reads_none_and_looks_once(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [world.cardholder(platform, 100) for _ in range(3)]
    asked: list[int] = []
    read = debts.read

    def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as it is called
        asked.append(1)
        return read(*arguments, **options)

    monkeypatch.setattr(debts, "read", counted)
    with read_by_batches(monkeypatch) as loaded:
        decide_at_once(world, engine, refunds(world, made, 5))

    assert (loaded, asked) == ([0], [1])
    assert BATCH_LIMIT >= DEBTS_LIMIT


def test_what_ends_the_loaded_debts_pays_those_that_were_not_loaded(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "DEBTS_LIMIT", 2)
    cardholder = world.cardholder(platform, 0)
    for token, amount in (("T0", 100), ("T1", 100), ("T2", 10)):
        world.process(engine, [(cardholder, world.clearing(cardholder, token, amount))])
    world.process(engine, [(cardholder, world.event("RETURN", cardholder, "refund", 50))])

    decide_at_once(
        world,
        engine,
        [
            (cardholder, world.event("CLEARING_REVERSAL", cardholder, token, 100))
            for token in ("T0", "T1")
        ],
    )

    assert standing(world, cardholder) == (40, ["T2"])
    assert world.account(cardholder)["owed"] == 0


def test_a_debt_that_comes_back_is_behind_those_that_were_not_loaded(
    world: World, platform: Id, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debts, "DEBTS_LIMIT", 2)
    [cardholder] = indebted(world, platform, 1, debts=3)

    decide_at_once(
        world,
        engine,
        [
            (cardholder, world.event("RETURN", cardholder, "refund", 2 * OWED)),
            (cardholder, world.clearing(cardholder, "T001", OWED)),
            (cardholder, world.event("RETURN", cardholder, "another", OWED)),
        ],
    )

    assert standing(world, cardholder) == (0, ["T000", "T001", "T002"])
