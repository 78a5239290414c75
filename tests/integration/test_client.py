"""The client: submit events and wait for their outcomes."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import structlog
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, Pool, text
from sqlalchemy.ext.asyncio import create_async_engine

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import NETWORK_EVENT, body_of
from cardledger.schema.wire.outcomes import Outcome, OutcomeType, RejectionReason
from cardledger.workers.client import Client, submit
from cardledger.workers.client.errors import UnavailableError
from cardledger.workers.process.main import WorkerProcess
from storm.proxy import Trap
from tests.integration.workers import dead_redis, outcome_types, references, with_client, working
from tests.proxy import Proxy, proxy_to, through
from tests.waiting import eventually, limit_s
from tests.world import SECRET_KEY, Cardholder, World, open_world

__all__ = ["dead_redis"]  # A fixture.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def worker(world: World, redis_url: str) -> Iterator[WorkerProcess]:
    with working(world, redis_url) as process:
        yield process


@pytest.mark.usefixtures("worker")
def test_outcomes_are_returned_in_the_order_of_the_events(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholders = [world.cardholder(platform, 10_000) for _ in range(10)]
    events = [
        world.authorization(cardholders[n % 10], f"T{n}", 30_000 if n % 7 == 0 else 10)
        for n in range(700)
    ]

    outcomes = with_client(world, redis_url, lambda client: client.submit(events))

    assert references(outcomes) == [event["reference"] for event in events]
    assert outcome_types(outcomes) == [
        "DECLINED" if event["amount"] == 30_000 else "APPLIED" for event in events
    ]
    for cardholder in cardholders:
        world.check_books(cardholder)


@pytest.mark.usefixtures("worker")
def test_a_tip_submitted_one_event_at_a_time_settles_with_two_pulls(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 50_000)

    async def tip(client: Client) -> list[Outcome]:
        authorized = await client.submit([world.authorization(cardholder, "T1", 1250)])
        cleared = await client.submit([world.clearing(cardholder, "T1", 1500)])
        return authorized + cleared

    authorized, cleared = with_client(world, redis_url, tip)

    assert authorized.card_transaction is not None
    assert cleared.card_transaction is not None
    assert authorized.card_transaction.status == "AUTHORIZED"
    assert cleared.card_transaction.status == "SETTLED"
    assert cleared.card_transaction.pull_summary.count == 2
    assert cleared.card_transaction.sequence == 4


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("lane", Lane)
def test_each_lane_returns_outcomes(world: World, platform: Id, redis_url: str, lane: Lane) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 10)

    outcomes = with_client(world, redis_url, lambda client: client.submit([event], lane=lane))

    assert outcome_types(outcomes) == ["APPLIED"]


@pytest.mark.usefixtures("worker")
def test_parsed_events_and_json_objects_are_accepted(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 10)
    parsed = NETWORK_EVENT.validate_python(event)

    outcomes = with_client(world, redis_url, lambda client: client.submit([event, parsed]))

    assert outcome_types(outcomes) == ["APPLIED", "DUPLICATE"]


@pytest.mark.usefixtures("worker")
def test_a_written_body_is_the_same_event_as_its_source(
    world: World, platform: Id, redis_url: str
) -> None:
    event = world.authorization(world.cardholder(platform, 1000), "T1", 10)
    written = body_of(NETWORK_EVENT.validate_python(event))

    async def twice(client: Client) -> list[Outcome]:
        return [
            *await client.submit_written([written], platform_id=platform),
            *await client.submit([event], platform_id=platform),
        ]

    outcomes = with_client(world, redis_url, twice)

    assert outcome_types(outcomes) == ["APPLIED", "DUPLICATE"]


@pytest.mark.usefixtures("worker")
def test_a_program_without_an_event_loop_can_submit(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    outcomes = submit(
        [world.authorization(cardholder, "T1", 10)],
        database_url=world.app_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
    )

    assert outcome_types(outcomes) == ["APPLIED"]


async def _submit_in_a_loop(url: str, redis_url: str, event: Mapping[str, Any]) -> list[Outcome]:
    return submit([event], database_url=url, redis_url=redis_url, secret_key=SECRET_KEY)


@pytest.mark.usefixtures("worker")
def test_submit_works_where_an_event_loop_runs(world: World, platform: Id, redis_url: str) -> None:
    event = world.authorization(world.cardholder(platform, 10_000), "T1", 100)

    outcomes = asyncio.run(_submit_in_a_loop(world.api_url, redis_url, event))

    assert outcome_types(outcomes) == ["APPLIED"]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("poolclass", [None, NullPool])
def test_a_client_takes_any_engine_of_psycopg_and_changes_nothing_of_it(
    world: World, platform: Id, redis_url: str, poolclass: type[Pool] | None
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    event = world.authorization(cardholder, "T1", 100)
    broken = {**world.clearing(cardholder, "T1", 100), "amount": "100"}
    # As of a project that knows nothing of the PostgreSQL schema of the ledger.
    place = conninfo_to_dict(world.api_url, options="")

    async def use() -> tuple[list[Outcome], list[Any]]:
        foreign = create_async_engine(
            "postgresql+psycopg://", connect_args=place, poolclass=poolclass
        )
        async with Client(foreign, redis_url, secret_key=SECRET_KEY) as client:
            outcomes = await client.submit([event, event, broken])
        async with foreign.connect() as connection:
            names = ("search_path", "lock_timeout", "enable_seqscan")
            own = [await connection.scalar(text(f"SHOW {name}")) for name in names]
        await foreign.dispose()
        return outcomes, own

    outcomes, own = asyncio.run(use())

    assert outcome_types(outcomes) == ["APPLIED", "DUPLICATE", "REJECTED"]
    assert own == ['"$user", public', "0", "on"]
    world.check_books(cardholder)


def test_no_events_have_no_outcomes(world: World, redis_url: str) -> None:
    assert with_client(world, redis_url, lambda client: client.submit([])) == []


@pytest.mark.usefixtures("worker")
def test_a_platform_reaches_its_own_cards_only(world: World, platform: Id, redis_url: str) -> None:
    other_platform = world.platform()
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 10)

    async def three(client: Client) -> list[Outcome]:
        return [
            *await client.submit([event], platform_id=other_platform),
            *await client.submit([event | {"cardId": f"Card:{uuid4()}"}]),
            *await client.submit([event], platform_id=platform),
        ]

    foreign, unknown, own = with_client(world, redis_url, three)

    assert foreign.reason == unknown.reason == RejectionReason.UNKNOWN_CARD
    assert foreign.card_transaction is None
    assert own.outcome is OutcomeType.APPLIED


@pytest.mark.usefixtures("worker")
def test_deposits_reach_the_platforms_own_accounts_only(
    world: World, platform: Id, redis_url: str
) -> None:
    other_platform = world.platform()
    cardholder = world.cardholder(platform)
    account = cardholder.account_id

    async def deposits(client: Client) -> list[Outcome]:
        terms: dict[str, Any] = {"amount": 700, "source": "sandbox"}
        return [
            await client.deposit(
                platform_id=other_platform, account_id=account, reference="a", **terms
            ),
            await client.deposit(platform_id=platform, account_id=new_id(), reference="b", **terms),
            await client.deposit(platform_id=platform, account_id=account, reference="c", **terms),
            await client.deposit(platform_id=platform, account_id=account, reference="c", **terms),
        ]

    outcomes = with_client(world, redis_url, deposits)

    assert outcome_types(outcomes) == ["REJECTED", "REJECTED", "APPLIED", "DUPLICATE"]
    assert outcomes[0].reason == outcomes[1].reason == RejectionReason.UNKNOWN_ACCOUNT
    assert world.account(cardholder)["balance"] == 700


circle: dict[str, Any] = {}
circle["me"] = circle
MALFORMED: dict[str, Any] = {
    "text": "AUTHORIZATION",
    "nothing": None,
    "empty": {},
    "list": [1, 2],
    "type": {"type": "DANCE", "source": "s", "reference": "type"},
    "nul type": {"type": "a\x00b"},
    "nul field": {"type": "CLEARING", "a\x00b": 1},
    "half a pair": {"type": "CLEARING", "\ud800": 1, "source": "\ud800", "reference": "a\x00b"},
    "endless number": {"type": "CLEARING", "amount": 10**5000},
    "bytes": {"type": b"CLEARING"},
    "keys": {("type",): "CLEARING"},
    "a circle": circle,
    "long": {"type": "CLEARING", "reference": "r" * 5000, "source": "s" * 5000},
}


@pytest.mark.usefixtures("worker")
def test_malformed_input_is_kept_with_its_reason_and_its_neighbours_are_applied(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    good = [world.authorization(cardholder, f"T{n}", 1) for n in range(len(MALFORMED) + 1)]
    mixed: list[Any] = [good[0]]
    for event, malformed in zip(good[1:], MALFORMED.values(), strict=True):
        mixed += [malformed, event]
    for amount in (0, -1, 12.5, "12", 2**63, True, None):
        mixed.append(world.authorization(cardholder, "TX", 1) | {"amount": amount})
    before = world.count("rejections")

    outcomes = with_client(world, redis_url, lambda client: client.submit(mixed))

    rejected = [outcome for outcome in outcomes if outcome.outcome is OutcomeType.REJECTED]
    assert {outcome.reason for outcome in rejected} == {RejectionReason.MALFORMED}
    assert all(outcome.detail for outcome in rejected)
    assert len(rejected) == len(MALFORMED) + 7
    assert outcome_types(outcomes[: 2 * len(MALFORMED) + 1 : 2]) == ["APPLIED"] * len(good)
    assert world.count("rejections") - before == len(rejected)
    assert world.account(cardholder)["balance"] == 1000 - len(good)


@pytest.mark.usefixtures("worker")
def test_outcomes_looked_up_equal_outcomes_replied(
    world: World, platform: Id, redis_url: str, dead_redis: str
) -> None:
    first, second = (world.cardholder(platform, 2000) for _ in range(2))

    replied = with_client(world, redis_url, lambda client: one_of_each(world, first, client))
    looked_up = with_client(world, dead_redis, lambda client: one_of_each(world, second, client))

    assert replied == looked_up
    assert {outcome["outcome"] for outcome in replied} == {
        "APPLIED",
        "DECLINED",
        "DUPLICATE",
        "REJECTED",
    }


@pytest.mark.usefixtures("worker")
def test_without_redis_a_reused_key_is_rejected_as_the_record_says(
    world: World, platform: Id, dead_redis: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    events = [world.authorization(cardholder, f"T{n}", 1) for n in range(8)]
    reused = [event | {"amount": 2} for event in events]

    async def twice(client: Client) -> list[list[Outcome]]:
        await client.submit(events)
        with psycopg.connect(world.url) as outsider:
            outsider.execute("LOCK TABLE inbox IN SHARE MODE")  # No event is accepted meanwhile.
            submitted = [asyncio.create_task(client.submit(batch)) for batch in (reused, events)]
            blocked = "SELECT 1 FROM pg_locks WHERE NOT granted"
            await asyncio.to_thread(eventually, lambda: world.rows(blocked))
            await client._lookup.poll()
            is_answered = [task.done() for task in submitted]
        assert is_answered == [False, False], "what is not accepted has no outcome"
        return [await task for task in submitted]

    rejected, repeated = with_client(world, dead_redis, twice)

    assert {outcome.reason for outcome in rejected} == {RejectionReason.KEY_REUSED}
    assert set(outcome_types(rejected)) == {"REJECTED"}
    assert set(outcome_types(repeated)) == {"DUPLICATE"}


@pytest.mark.usefixtures("worker")
def test_a_repetition_may_have_a_deadline_of_its_own(
    world: World, platform: Id, redis_url: str
) -> None:
    event = world.authorization(world.cardholder(platform, 1000), "T1", 10)
    deadlines = ["2099-01-01T00:00:00Z", "2099-01-01T00:00:05Z"]

    async def twice(client: Client) -> list[Outcome]:
        return [
            outcome
            for deadline in deadlines
            for outcome in await client.submit([event | {"decideBy": deadline}])
        ]

    outcomes = with_client(world, redis_url, twice)

    assert outcome_types(outcomes) == ["APPLIED", "DUPLICATE"]


async def one_of_each(world: World, cardholder: Cardholder, client: Client) -> list[dict[str, Any]]:
    """Return outcomes of every type, without ids and times."""
    authorization = world.authorization(cardholder, "T1", 1250, merchant={"descriptor": "CAFE"})
    events = [
        authorization,
        world.authorization(cardholder, "T2", 5000),
        world.clearing(cardholder, "T1", 1500),
        authorization,
        authorization | {"amount": 1},
        world.authorization(cardholder, "T3", 10, currency="EUR"),
        world.clearing(cardholder, "T4", 600),
        authorization | {"amount": 0},
    ]
    outcomes = await client.submit(events)
    again = await client.submit(events[:3])
    names = {event["reference"]: f"event {n}" for n, event in enumerate(events)}
    return [comparable(outcome.wire, names) for outcome in outcomes + again]


def comparable(wire: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    changing = {"id", "cardId", "customerId", "platformCustomerId", "accountId"}
    changing |= {"authorizedAt", "createdAt", "updatedAt", "lastEventAt", "expiresAt"}
    card_transaction = wire.get("cardTransaction")
    stable = {**wire, "reference": names[wire["reference"]]}
    if card_transaction:
        stable["cardTransaction"] = {
            name: value for name, value in card_transaction.items() if name not in changing
        }
        stable["present"] = sorted(changing & set(card_transaction))
    return stable


def test_a_log_that_fails_does_not_keep_callers_waiting(
    world: World, platform: Id, app_database_url: DatabaseUrl, redis_url: str
) -> None:
    event = world.authorization(world.cardholder(platform, 10_000), "T1", 100)

    async def submit_after_the_loss(proxy: Proxy) -> None:
        engine = async_engine(through(app_database_url, proxy))
        async with Client(engine, redis_url, secret_key=SECRET_KEY) as client:
            structlog.configure(processors=[_fail], wrapper_class=structlog.BoundLogger)
            proxy.cut_at(b"INSERT INTO inbox", Trap.BEFORE)
            async with asyncio.timeout(limit_s()):
                with pytest.raises(UnavailableError):
                    await client.enqueue([event])
        await engine.dispose()

    with proxy_to(app_database_url) as proxy:
        asyncio.run(submit_after_the_loss(proxy))


def _fail(*_: object) -> dict[str, Any]:
    raise OSError("the log's disk is full")
