"""Timeout reversals: an approval that was not reported in time is reversed, exactly and once."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.audit import acceptances, verification
from cardledger.ledger.engine.outcomes import find_by_key
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.queries import event_pages
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import first_id_at, new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from tests.integration.test_inbox import found
from tests.world import INBOX_KEY, Cardholder, World, open_world, outcomes_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE = NOON + timedelta(seconds=2)
HOUR = timedelta(hours=1)
Event = dict[str, Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def cardholder(world: World, platform: Id) -> Cardholder:
    return world.cardholder(platform, 1000)


def authorization(world: World, cardholder: Cardholder, amount: int, **fields: Any) -> Event:  # noqa: ANN401 - JSON
    return world.authorization(cardholder, "T1", amount, decideBy=DEADLINE.isoformat(), **fields)


def reversal_of(cardholder: Cardholder, event: Event) -> Message:
    asked = inbox.address(event, cardholder.owner, lane=Lane.LIVE, reply_to=None, at=NOON)
    return timeout_reversals.reversal_of(asked, at=NOON)


def process(
    world: World, cardholder: Cardholder, *steps: Event | Message, now: datetime = NOON
) -> list[Decided]:
    """Decide `steps` one by one, each in a batch of its own."""
    engine = world.engine(clock=lambda: now)
    decided = []
    for step in steps:
        message = step if isinstance(step, Message) else None
        if message is None:
            decided += world.process(engine, [(cardholder, step)])  # type: ignore[list-item]
        else:
            world.accept_messages([message])
            decided += world.drain(engine)
    return decided


def is_whole(world: World, cardholder: Cardholder) -> bool:
    world.check_books(cardholder)
    account = world.account(cardholder)
    return bool(account["balance"] == 1000 and not account["held"] and not account["owed"])


def test_an_approval_is_reversed_and_a_repetition_does_not_read_as_one(
    world: World, cardholder: Cardholder
) -> None:
    event = authorization(world, cardholder, 300)
    later = event | {"decideBy": (DEADLINE + timedelta(hours=1)).isoformat()}

    approved, reversed_, again = process(
        world, cardholder, event, reversal_of(cardholder, event), later
    )

    assert approved.outcome is OutcomeType.APPLIED
    assert (reversed_.outcome, reversed_.reason) == (OutcomeType.APPLIED, "DECISION_TIMEOUT")
    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert again.reason == "DECISION_TIMEOUT"
    looked_up = found(world, [again.message])[again.message.id]
    assert (looked_up.first_outcome, looked_up.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert again.roll_up is not None
    assert again.roll_up.state.status == "VOIDED"
    assert is_whole(world, cardholder)
    assert explained(world, again)[2] == (
        "3.00 USD of the authorization was reversed; 0.00 USD remains authorized."
        " The approval could not be reported before its deadline."
    )
    kinds = world.rows(
        "SELECT e.kind, o.source, o.reason FROM card_transaction_events e"
        " JOIN outcomes o USING (message_id) WHERE e.card_transaction_id = %s ORDER BY e.sequence",
        again.roll_up.identity.id,
    )
    assert kinds == [
        ("AUTHORIZED", "test", None),
        ("PULLED", "test", None),
        ("AUTHORIZATION_REVERSED", "decision-timeout", "DECISION_TIMEOUT"),
        ("RELEASED", "decision-timeout", "DECISION_TIMEOUT"),
    ]


def explained(world: World, decided: Decided) -> list[str]:
    """Return the explanations of the events of the card transaction of `decided`."""
    assert decided.roll_up is not None
    identity = decided.roll_up.identity

    async def read() -> list[str]:
        engine = async_engine(world.app_url, poolclass=NullPool)
        async with engine.connect() as connection:
            events = await event_pages.every(
                connection, platform_id=identity.platform_id, card_transaction_id=identity.id
            )
        assert events is not None
        return [event.explanation for event in events]

    return asyncio.run(read())


@pytest.mark.parametrize("order", sorted(permutations(("submission", "reversal", "repetition"))))
@pytest.mark.parametrize("batches", ["one", "many"])
def test_in_no_order_and_by_no_clock_is_an_approval_left(
    world: World, cardholder: Cardholder, order: tuple[str, ...], batches: str
) -> None:
    event = authorization(world, cardholder, 300)
    repetition = event | {"decideBy": (DEADLINE + timedelta(hours=1)).isoformat()}
    steps: dict[str, Event | Message] = {
        "submission": event,
        "reversal": reversal_of(cardholder, event),
        "repetition": repetition,
    }

    if batches == "one":
        engine = world.engine(clock=lambda: NOON)  # Which has not reached the deadline yet.
        for name in order:
            step = steps[name]
            if isinstance(step, Message):
                world.accept_messages([replace(step, id=new_id())])
            else:
                world.accept([(cardholder, step)])
        world.drain(engine)
    else:
        process(world, cardholder, *(steps[name] for name in order))

    assert is_whole(world, cardholder)
    [last] = process(world, cardholder, repetition)
    assert (last.outcome, last.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert last.reason == "DECISION_TIMEOUT"


def is_declined(decided: Decided | Outcome) -> bool:
    return (decided.outcome, decided.first_outcome, decided.reason) == (
        OutcomeType.DUPLICATE,
        OutcomeType.DECLINED,
        "DECISION_TIMEOUT",
    )


@pytest.mark.parametrize("batch_size", [1, 2], ids=["apart", "in one batch"])
@pytest.mark.parametrize("lane", Lane)
def test_a_repetition_that_is_decided_before_the_reversal_does_not_read_as_approved(
    world: World, cardholder: Cardholder, lane: Lane, batch_size: int
) -> None:
    """The reversal came first, and has a later id: the clock of its writer is ahead."""
    event = authorization(world, cardholder, 300)
    process(world, cardholder, event)
    later = event | {"decideBy": (DEADLINE + timedelta(hours=1)).isoformat()}
    ahead = first_id_at(datetime.now(UTC) + timedelta(seconds=1))
    world.accept_messages([replace(reversal_of(cardholder, event), lane=lane, id=ahead)])
    [again] = world.accept([(cardholder, later)])
    engine = world.engine(clock=lambda: NOON, batch_size=batch_size)
    steps: list[Decided] = []

    engine.step(Lane.LIVE, [cardholder.shard], steps.extend)
    looked_up = found(world, [again])[again.id]
    recorded = recorded_of(world, again)
    for each in Lane:
        world.drain(engine, each)

    assert is_declined(steps[0])
    assert is_declined(looked_up)
    assert recorded is OutcomeType.DECLINED
    assert is_whole(world, cardholder)


@pytest.mark.parametrize("batch_size", [1, 2, 500])
def test_a_first_submission_is_not_reported_as_approved_before_its_reversal(
    world: World, cardholder: Cardholder, batch_size: int
) -> None:
    """It was reported as approved, and reversed by a later message."""
    event = authorization(world, cardholder, 300)
    [message, _] = world.accept([(cardholder, event), (cardholder, event)])
    world.accept_messages([reversal_of(cardholder, event)])
    engine = world.engine(clock=lambda: NOON, batch_size=batch_size)
    steps: list[Decided] = []

    engine.step(Lane.LIVE, [cardholder.shard], steps.extend)
    looked_up = found(world, [message])[message.id]
    first, again, reversal = [*steps, *world.drain(engine)]

    assert (first.outcome, first.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert (looked_up.outcome, looked_up.wire["reason"]) == (
        OutcomeType.DECLINED,
        "DECISION_TIMEOUT",
    )
    assert is_declined(again)
    assert reversal.outcome is OutcomeType.APPLIED
    assert is_whole(world, cardholder)


def test_a_live_repetition_is_not_approved_while_the_reversal_waits_in_the_other_lane(
    world: World, cardholder: Cardholder
) -> None:
    """Many events at once go to the bulk lane, where the first submission waited too long."""
    event = authorization(world, cardholder, 300)
    [first] = world.accept([(cardholder, event)], lane=Lane.BULK)
    world.accept_messages([replace(reversal_of(cardholder, event), lane=Lane.BULK)])
    [again] = world.accept([(cardholder, event)])
    engine = world.engine(clock=lambda: NOON)

    [decided] = world.drain(engine)
    looked_up = found(world, [again])[again.id]
    recorded = recorded_of(world, again)
    world.drain(engine, Lane.BULK)

    assert (decided.outcome, decided.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert (looked_up.outcome, looked_up.wire["reason"]) == (
        OutcomeType.DECLINED,
        "DECISION_TIMEOUT",
    )
    assert recorded is OutcomeType.DECLINED
    assert is_declined(found(world, [first])[first.id])
    assert is_whole(world, cardholder)


@pytest.mark.parametrize("kind", [[], {}, None, 7])
def test_a_message_of_no_type_is_rejected_while_a_reversal_waits(
    world: World, cardholder: Cardholder, kind: object
) -> None:
    event = authorization(world, cardholder, 300)
    world.accept_messages([replace(reversal_of(cardholder, event), lane=Lane.BULK)])
    world.accept([(cardholder, authorization(world, cardholder, 100) | {"type": kind})])
    engine = world.engine(clock=lambda: NOON)

    [decided] = world.drain(engine)
    world.drain(engine, Lane.BULK)

    assert decided.outcome is OutcomeType.REJECTED


def test_a_forged_reversal_declines_nothing(world: World, cardholder: Cardholder) -> None:
    event = authorization(world, cardholder, 300)
    process(world, cardholder, event)
    later = replace(reversal_of(cardholder, event), id=first_id_at(datetime.now(UTC) + HOUR))
    inbox.accept(world.connection, [later], InboxKey("another key of at least 32 characters"))
    [again] = world.accept([(cardholder, event)])
    engine = world.engine(clock=lambda: NOON, batch_size=1)
    steps: list[Decided] = []

    engine.step(Lane.LIVE, [cardholder.shard], steps.extend)
    looked_up = found(world, [again])[again.id]
    world.drain(engine)

    assert [steps[0].first_outcome, looked_up.first_outcome] == [OutcomeType.APPLIED] * 2
    assert recorded_of(world, again) is OutcomeType.APPLIED
    assert world.account(cardholder)["held"] == 300


def recorded_of(world: World, message: Message) -> OutcomeType | None:
    """Return what `GET /network-events/{source}/{reference}` returns."""

    async def find() -> Outcome | None:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await find_by_key(
                connection,
                platform_id=message.platform_id,
                source=message.source,
                reference=message.reference,
                inbox_key=INBOX_KEY,
            )

    outcome = asyncio.run(find())
    return outcome.outcome if outcome else None


def test_an_approval_that_no_caller_received_is_read_by_a_repetition_and_reversed_by_the_network(
    world: World, cardholder: Cardholder
) -> None:
    """Its process died before it could answer, or write a timeout reversal."""
    event = authorization(world, cardholder, 300)
    later = event | {"decideBy": (DEADLINE + HOUR).isoformat()}

    _, again = process(world, cardholder, event, later)
    held = world.account(cardholder)["held"]
    process(world, cardholder, world.event("AUTHORIZATION_REVERSAL", cardholder, "T1", 300))

    assert (again.outcome, again.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.APPLIED)
    assert held == 300
    assert is_whole(world, cardholder)


def test_a_reversal_before_its_authorization_declines_it_for_good(
    world: World, cardholder: Cardholder
) -> None:
    event = authorization(world, cardholder, 300)

    first, late = process(world, cardholder, reversal_of(cardholder, event), event)

    assert (first.outcome, first.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert (late.outcome, late.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert world.account(cardholder)["transactions"]["T1"]["status"] == "DECLINED"


def test_a_reversal_of_what_would_be_rejected_declines_it_for_good(
    world: World, cardholder: Cardholder
) -> None:
    event = authorization(world, cardholder, 300, expectedSequence=2)

    process(world, cardholder, reversal_of(cardholder, event))
    other = world.authorization(cardholder, "T1", 10)
    _, late = process(world, cardholder, other, event)

    assert (late.outcome, late.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    assert world.balance(cardholder) == 990


def test_a_reversal_is_applied_once(world: World, cardholder: Cardholder) -> None:
    event = authorization(world, cardholder, 300)
    other = world.authorization(cardholder, "T1", 50)

    decided = process(
        world,
        cardholder,
        other,
        event,
        *(reversal_of(cardholder, event) for _ in range(3)),
    )

    assert outcomes_of(decided[2:]) == ["APPLIED", "DUPLICATE", "DUPLICATE"]
    assert world.account(cardholder)["held"] == 50
    world.check_books(cardholder)


def test_a_declined_authorization_is_left_alone(world: World, cardholder: Cardholder) -> None:
    event = authorization(world, cardholder, 5000)

    _, reversal, again = process(world, cardholder, event, reversal_of(cardholder, event), event)

    assert (reversal.outcome, reversal.reason) == (OutcomeType.IGNORED, "NOTHING_TO_REVERSE")
    assert (again.first_outcome, again.reason) == (OutcomeType.DECLINED, "INSUFFICIENT_FUNDS")


def test_another_event_under_the_same_key_is_left_alone(
    world: World, cardholder: Cardholder
) -> None:
    event = authorization(world, cardholder, 300)
    reused = event | {"amount": 200}

    decided = process(world, cardholder, event, reversal_of(cardholder, reused), reused)

    assert outcomes_of(decided) == ["APPLIED", "IGNORED", "REJECTED"]
    assert world.account(cardholder)["held"] == 300


# What comes between the approval of 100 and its timeout reversal, and what is left held and settled
# of it: an increment of 50 that was reported in time, clearings, and what the network takes back.
BETWEEN: dict[str, tuple[list[tuple[str, int | None]], int, int]] = {
    "nothing": ([], 0, 0),
    "increment": ([("AUTHORIZATION_INCREMENT", 50)], 50, 0),
    "partial clearing": ([("CLEARING", 60)], 0, 60),
    "increment and clearing": ([("AUTHORIZATION_INCREMENT", 50), ("CLEARING", 60)], 0, 60),
    "increment and small clearing": ([("AUTHORIZATION_INCREMENT", 50), ("CLEARING", 20)], 30, 20),
    "final clearing": ([("CLEARING", 100)], 0, 100),
    "reversal": ([("AUTHORIZATION_REVERSAL", 100)], 0, 0),
    "increment and reversal": (
        [("AUTHORIZATION_INCREMENT", 50), ("AUTHORIZATION_REVERSAL", 100)],
        50,
        0,
    ),
    "increment and partial reversal": (
        [("AUTHORIZATION_INCREMENT", 50), ("AUTHORIZATION_REVERSAL", 30)],
        50,
        0,
    ),
    "advice": ([("AUTHORIZATION_ADVICE", 120)], 120, 0),
    "expiry": ([("AUTHORIZATION_EXPIRY", None)], 0, 0),
    "expiry and authorization": ([("AUTHORIZATION_EXPIRY", None), ("AUTHORIZATION", 50)], 50, 0),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("batches", ["one", "many"])
def test_exactly_what_the_authorization_has_added_is_reversed(
    world: World, cardholder: Cardholder, between: str, batches: str
) -> None:
    event = authorization(world, cardholder, 100)
    steps, held, settled = BETWEEN[between]
    history = [event, *(world.event(kind, cardholder, "T1", amount) for kind, amount in steps)]

    if batches == "one":
        world.accept([(cardholder, step) for step in history])
        world.accept_messages([reversal_of(cardholder, event)])
        world.drain(world.engine(clock=lambda: NOON))
    else:
        process(world, cardholder, *history, reversal_of(cardholder, event))

    account = world.account(cardholder)
    assert (account["held"], account["transactions"]["T1"]["settled"]) == (held, settled)
    assert account["balance"] == 1000 - held - settled
    world.check_books(cardholder)


# Which authorization of 100 is late, and what was parked until it arrived.
PARKED: list[tuple[str, str, int]] = [
    ("AUTHORIZATION", "AUTHORIZATION_REVERSAL", 100),
    ("AUTHORIZATION", "AUTHORIZATION_REVERSAL", 40),
    ("FINANCIAL_AUTHORIZATION", "CLEARING_REVERSAL", 100),
]


@pytest.mark.parametrize("case", PARKED)
@pytest.mark.parametrize("batches", ["one", "many"])
def test_what_was_taken_back_before_it_arrived_is_not_reversed_again(
    world: World, cardholder: Cardholder, case: tuple[str, str, int], batches: str
) -> None:
    kind, taken_back, amount = case
    late = world.event(kind, cardholder, "T1", 100, decideBy=DEADLINE.isoformat())
    history = [
        world.event(taken_back, cardholder, "T1", amount),
        late,
        world.event(kind, cardholder, "T1", 50),
    ]

    if batches == "one":
        world.accept([(cardholder, step) for step in history])
        world.accept_messages([reversal_of(cardholder, late)])
        world.drain(world.engine(clock=lambda: NOON))
    else:
        process(world, cardholder, *history, reversal_of(cardholder, late))

    assert world.balance(cardholder) == 950
    world.check_books(cardholder)


def test_a_late_increment_is_reversed_without_its_authorization(
    world: World, cardholder: Cardholder
) -> None:
    first = world.authorization(cardholder, "T1", 100)
    late = world.event(
        "AUTHORIZATION_INCREMENT", cardholder, "T1", 50, decideBy=DEADLINE.isoformat()
    )

    process(world, cardholder, first, late, reversal_of(cardholder, late))

    account = world.account(cardholder)
    assert (account["held"], account["transactions"]["T1"]["status"]) == (100, "AUTHORIZED")


@pytest.mark.parametrize(
    ("between", "balance"),
    [
        ([], 1000),
        ([("CLEARING_REVERSAL", 300)], 1000),
        ([("RETURN", 300)], 1000),
        ([("RETURN", 300), ("RETURN_REVERSAL", 300)], 1000),
        ([("RETURN", 300), ("RETURN_REVERSAL", 100)], 1000),
    ],
)
def test_a_late_financial_authorization_gives_its_money_back(
    world: World,
    cardholder: Cardholder,
    between: list[tuple[str, int]],
    balance: int,
) -> None:
    event = world.event(
        "FINANCIAL_AUTHORIZATION", cardholder, "T1", 300, decideBy=DEADLINE.isoformat()
    )
    steps = [world.event(kind, cardholder, "T1", amount) for kind, amount in between]

    process(world, cardholder, event, *steps, reversal_of(cardholder, event))

    assert world.balance(cardholder) == balance
    world.check_books(cardholder)


def test_a_pull_that_awaits_confirmation_is_released(world: World, cardholder: Cardholder) -> None:
    event = authorization(world, cardholder, 300, merchant={"descriptor": "SHOP 005"})

    process(world, cardholder, event, reversal_of(cardholder, event))

    assert is_whole(world, cardholder)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"authorization": 1},
        {"authorization": {}},
        {"authorization": {"source": "s", "reference": "r"}},
        {"authorization": {"source": "s", "reference": "r", "type": "AUTHORIZATION"}},
    ],
)
def test_a_malformed_reversal_stops_nothing(
    world: World, cardholder: Cardholder, body: Event
) -> None:
    event = authorization(world, cardholder, 10)
    whole = reversal_of(cardholder, event)
    broken = replace(whole, body={"type": "TIMEOUT_REVERSAL", **body}, reference=str(whole.id))

    decided = process(world, cardholder, broken, event)

    assert decided[-1].outcome is OutcomeType.APPLIED
    assert decided[0].outcome in {OutcomeType.REJECTED, OutcomeType.DECLINED}


def test_every_message_is_accounted_for(world: World, cardholder: Cardholder) -> None:
    first = authorization(world, cardholder, 300)
    second = world.event("FINANCIAL_AUTHORIZATION", cardholder, "T2", 20)

    process(world, cardholder, reversal_of(cardholder, first), first, second, second)
    process(world, cardholder, *(reversal_of(cardholder, event) for event in (first, second)))

    with psycopg.connect(world.url) as connection:
        assert list(acceptances.differences(connection)) == []
        report = verification.verify_in_transaction(connection, lambda *_: None)
        assert report.differences == []
