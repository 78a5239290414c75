"""The way in: accepted is durable, in order, and in the queue of its cardholder."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import NullPool

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine.outcomes import find
from cardledger.ledger.messaging import claims, inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.queue_positions import QueuePositions
from cardledger.ledger.messaging.sharing import Sharing
from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client.card_routes import CardRoutes
from cardledger.workers.client.parsing import Submission, parse
from tests.world import INBOX_KEY, Cardholder, World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def cardholder(world: World, platform: Id) -> Iterator[Cardholder]:
    yield world.cardholder(platform, 1000)
    for lane in Lane:
        world.drain(world.engine(), lane)


def in_shard(world: World, platform: Id, shard: int) -> Cardholder:
    """Return a new cardholder of `platform` in `shard`."""
    while (found := world.cardholder(platform, 1000)).shard != shard:
        pass
    return found


def claimed(world: World, cardholder: Cardholder, lane: Lane, limit: int = 500) -> list[Message]:
    with psycopg.connect(world.app_url) as connection:
        return claims.claim(connection, lane, [cardholder.shard], limit, INBOX_KEY).messages


def test_a_message_comes_out_as_it_went_in(world: World, cardholder: Cardholder) -> None:
    body = world.authorization(
        cardholder, "T1", 2**63 - 1, merchant={"descriptor": "CAFÉ ☕ \\ \" '"}, final=False
    )

    [accepted] = world.accept([(cardholder, body)])

    [message] = claimed(world, cardholder, Lane.LIVE)
    assert message == accepted
    assert message.body == body
    assert (message.source, message.reference) == (body["source"], body["reference"])
    assert message.customer_id == cardholder.owner.customer_id


@pytest.mark.parametrize("lane", Lane)
def test_messages_are_claimed_in_the_order_of_their_arrival(
    world: World, cardholder: Cardholder, lane: Lane
) -> None:
    events = [(cardholder, world.authorization(cardholder, f"T{n}", 1)) for n in range(300)]
    accepted = world.accept(events[:200], lane) + world.accept(events[200:], lane)

    assert claimed(world, cardholder, lane) == accepted
    assert claimed(world, cardholder, lane, limit=7) == accepted[:7]


def test_the_queues_that_have_waited_longest_come_first(world: World, platform: Id) -> None:
    by_shard: dict[int, Cardholder] = {}
    while len(by_shard) < inbox.SHARDS:
        one = world.cardholder(platform, 1000)
        by_shard.setdefault(one.shard, one)
    in_turn = [by_shard[shard] for shard in (7, 2, 11, 0, 14, 5)]
    events = [(one, world.authorization(one, f"T{n}", 1)) for n in range(5) for one in in_turn]
    accepted = world.accept(events, Lane.BULK)
    shards = [one.shard for one in in_turn]

    try:
        with psycopg.connect(world.app_url) as connection:
            claim = claims.claim(connection, Lane.BULK, sorted(shards), 8, INBOX_KEY)
        with psycopg.connect(world.app_url) as connection:
            whole = claims.claim(connection, Lane.BULK, sorted(shards), 500, INBOX_KEY)
    finally:
        world.drain(world.engine(), Lane.BULK)

    # A batch of eight takes two of each, and so of the first four queues.
    assert claim.messages == [message for message in accepted[:12] if message.shard in shards[:4]]
    assert claim.unfinished == sorted(shards)
    assert whole.messages == accepted
    assert whole.unfinished == []


def test_a_batch_is_shared_among_platforms_that_wait(world: World, platform: Id) -> None:
    first = world.cardholder(platform, 1000)
    queue = [first, *(in_shard(world, world.platform(), first.shard) for _ in range(2))]
    accepted = [
        world.accept(
            [(one, world.authorization(one, f"T{number}", 1)) for number in range(count)], Lane.BULK
        )
        for one, count in zip(queue, (100, 5, 30), strict=True)
    ]
    positions = QueuePositions(Sharing(clock=lambda: 0.0))

    def next_batch() -> list[Message]:
        with psycopg.connect(world.app_url) as connection:
            claim = claims.claim(
                connection, Lane.BULK, [first.shard], 20, INBOX_KEY, positions=positions
            )
            connection.rollback()
            return claim.messages

    try:
        as_they_came, shared = next_batch(), next_batch()
    finally:
        world.drain(world.engine(), Lane.BULK)

    assert as_they_came == accepted[0][:20]
    assert shared == [*accepted[0][:8], *accepted[1], *accepted[2][:7]]


def test_a_batch_is_shared_with_a_platform_that_waits_in_another_queue(
    world: World, platform: Id
) -> None:
    first, *others = (in_shard(world, platform, shard) for shard in range(4))
    alone = in_shard(world, world.platform(), 4)
    events = [
        (one, world.authorization(one, f"T{number}", 1))
        for one in (first, *others)
        for number in range(10)
    ]
    accepted = world.accept(events, Lane.BULK)
    [waiting] = world.accept([(alone, world.authorization(alone, "T1", 1))], Lane.BULK)
    positions = QueuePositions(Sharing(clock=lambda: 0.0))

    def next_batch() -> list[Message]:
        with psycopg.connect(world.app_url) as connection:
            claim = claims.claim(
                connection, Lane.BULK, list(range(5)), 20, INBOX_KEY, positions=positions
            )
            connection.rollback()
            return claim.messages

    try:
        as_they_came, shared = next_batch(), next_batch()
    finally:
        world.drain(world.engine(), Lane.BULK)

    # A batch of twenty takes five of each, and so of the first four queues.
    assert as_they_came == [accepted[10 * queue + n] for queue in range(4) for n in range(5)]
    assert waiting in shared
    assert len(shared) == 20


def test_a_lane_shows_its_own_messages_only(world: World, cardholder: Cardholder) -> None:
    world.accept([(cardholder, world.authorization(cardholder, "T1", 1))], Lane.BULK)

    assert claimed(world, cardholder, Lane.LIVE) == []
    assert len(claimed(world, cardholder, Lane.BULK)) == 1


def test_all_messages_of_a_cardholder_wait_in_one_shard(
    world: World, cardholder: Cardholder
) -> None:
    messages = world.accept(
        [(cardholder, world.authorization(cardholder, f"T{n}", 1)) for n in range(20)], Lane.BULK
    )

    assert {message.shard for message in messages} == {cardholder.shard}


def test_cardholders_are_spread_over_the_shards(world: World, platform: Id) -> None:
    shards = {world.cardholder(platform).shard for _ in range(200)}

    assert shards == set(range(inbox.SHARDS))


def test_a_message_that_is_not_committed_is_not_accepted(
    world: World, cardholder: Cardholder
) -> None:
    message = inbox.address(
        world.authorization(cardholder, "T1", 1),
        cardholder.owner,
        lane=Lane.LIVE,
        reply_to=None,
        at=datetime.now(UTC),
    )

    async def give_up() -> None:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            await inbox.accept_async(connection, [message], INBOX_KEY)
            await connection.rollback()

    asyncio.run(give_up())

    assert claimed(world, cardholder, Lane.LIVE) == []


def test_nothing_to_accept_is_no_error(world: World) -> None:
    assert world.accept([]) == []


def test_a_card_and_an_account_are_routed_to_their_owner(
    world: World, cardholder: Cardholder
) -> None:
    async def look() -> tuple[object, object, object]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            cards = await inbox.routes_of(connection, [cardholder.card_id, new_id()])
            account = await inbox.owner_of_account(connection, cardholder.account_id)
            unknown = await inbox.owner_of_account(connection, new_id())
        return cards, account, unknown

    address = inbox.CardRoute(cardholder.owner, "USD")
    assert asyncio.run(look()) == ({cardholder.card_id: address}, cardholder.owner, None)


def test_a_decided_message_has_left_the_inbox_and_a_waiting_one_has_no_outcome(
    world: World, cardholder: Cardholder
) -> None:
    [first] = world.accept([(cardholder, world.authorization(cardholder, "T1", 10))])
    assert found(world, [first]) == {}

    world.drain(world.engine())
    [second] = world.accept([(cardholder, world.clearing(cardholder, "T1", 12))])

    assert set(found(world, [first, second])) == {first.id}
    assert found(world, []) == {}


def test_outcomes_are_found_by_message(world: World, cardholder: Cardholder) -> None:
    asked = world.authorization(cardholder, "T1", 10)
    events = [asked, world.clearing(cardholder, "T1", 12), asked, asked | {"amount": 11}]
    events += [world.authorization(cardholder, "T2", 5000), world.deposit(cardholder, 5)]
    messages = world.accept([(cardholder, event) for event in events])
    [unrouted] = world.accept([(None, world.authorization(cardholder, "T3", 1))])
    world.drain(world.engine())

    outcomes = found(world, [*messages, unrouted])

    results = [outcomes[message.id] for message in [*messages, unrouted]]
    assert [outcome.outcome.value for outcome in results] == [
        "APPLIED",
        "APPLIED",
        "DUPLICATE",
        "REJECTED",
        "DECLINED",
        "APPLIED",
        "REJECTED",
    ]
    assert [outcome.reference for outcome in results[:2]] == [e["reference"] for e in events[:2]]
    assert results[2].first_outcome is OutcomeType.APPLIED
    assert [outcome.reason for outcome in results[3:]] == [
        "KEY_REUSED",
        "INSUFFICIENT_FUNDS",
        None,
        "UNKNOWN_CARD",
    ]
    statuses = [one.card_transaction and one.card_transaction.status for one in results]
    assert statuses == ["AUTHORIZED", "SETTLED", "SETTLED", None, "DECLINED", None, None]


def test_an_outcome_of_another_event_under_the_key_is_no_answer(
    world: World, cardholder: Cardholder
) -> None:
    asked = world.authorization(cardholder, "T1", 10, decideBy="2099-01-01T00:00:00+00:00")
    world.process(world.engine(), [(cardholder, asked)])
    reused, repeated = (
        inbox.address(body, cardholder.owner, lane=Lane.LIVE, reply_to=None, at=datetime.now(UTC))
        for body in (asked | {"amount": 11}, asked | {"decideBy": "2099-01-01T00:00:01+00:00"})
    )

    outcomes = found(world, [reused, repeated])

    assert reused.id not in outcomes, "it is not accepted yet, and will be KEY_REUSED"
    assert outcomes[repeated.id].outcome is OutcomeType.DUPLICATE


def test_a_parked_message_is_decided_and_a_malformed_one_is_rejected(
    world: World, cardholder: Cardholder
) -> None:
    parked = world.event("AUTHORIZATION_REVERSAL", cardholder, "T-early", 5)
    [early] = world.accept([(cardholder, parked)])
    broken = world.insert_unchecked(cardholder, '{"type": "dance"}', reference="broken")
    world.drain(world.engine())

    [message] = found(world, [early]).values()
    rejected = found(world, [replace(early, id=broken, source="test", reference="broken")])

    assert (message.outcome, message.reason) == (OutcomeType.PARKED, "WAITS")
    assert rejected[broken].outcome is OutcomeType.REJECTED


def found(world: World, messages: list[Message]) -> dict[Id, Outcome]:
    async def look() -> dict[Id, Outcome]:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await find(connection, messages, INBOX_KEY)

    return asyncio.run(look())


def test_an_event_without_an_owner_is_queued_too(world: World, cardholder: Cardholder) -> None:
    [message] = world.accept([(None, world.authorization(cardholder, "T1", 1))])

    assert message.customer_id == Id(bytes(16))
    assert (Lane.LIVE, message.shard) in world.engine().waiting()


def test_a_loaded_card_keeps_its_route_although_the_cache_is_cleared_meanwhile(
    world: World, cardholder: Cardholder
) -> None:
    async def owner() -> inbox.Owner:
        engine = async_engine(world.app_url, poolclass=NullPool)
        routes = CardRoutes(engine)
        async with engine.connect() as outer:
            connection = await driver_async(outer)
            loaded = await routes.load(connection, [cardholder.card_id])
            routes._routes.clear()
            submission = parse(world.event("CLEARING", cardholder, "T1", 10), None, Lane.BULK)
            assert isinstance(submission, Submission)
            return await routes.owner_of(connection, submission, loaded)

    assert asyncio.run(owner()) == cardholder.owner
