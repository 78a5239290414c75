"""The SQL functions `enqueue` and `outcome`, called with the login that submits."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cardledger.install import message_findings
from cardledger.install.findings import FAIL, OK
from cardledger.ledger.engine import outcomes
from cardledger.ledger.messaging import rejections
from cardledger.ledger.messaging.enqueued_events import CHANNEL
from cardledger.ledger.messaging.inbox import UNROUTED
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.process.mover import Mover
from tests.databases import as_role
from tests.shared_world import cardholder, world
from tests.world import INBOX_KEY, Cardholder, World

__all__ = ["cardholder", "world"]  # Fixtures.

NAMED: Final = {"type": "CLEARING", "source": "visa", "reference": "r"}


@pytest.fixture
def program(world: World) -> Iterator[psycopg.Connection]:
    """A program of the user's, in a database transaction, with nothing enqueued before."""
    Mover(world.database, INBOX_KEY, lambda _: None).move()
    with psycopg.connect(as_role(world.app_url, Role.SUBMIT)) as connection:
        yield connection


def enqueue(connection: psycopg.Connection, events: object, lane: str = "LIVE") -> object:
    row = connection.execute("SELECT enqueue(%s, %s)", [Jsonb(events), lane]).fetchone()
    assert row is not None
    return row[0]


def outcome(connection: psycopg.Connection, source: str, reference: str) -> Any:  # noqa: ANN401 - JSON
    row = connection.execute("SELECT outcome(%s, %s)", [source, reference]).fetchone()
    assert row is not None
    return row[0]


def decide(world: World) -> None:
    """Move what was enqueued, and decide it."""
    Mover(world.database, INBOX_KEY, lambda _: None).move()
    world.drain(world.engine())


# --- the caller's database transaction -----------------------------------------------------------


def test_events_are_enqueued_with_the_commit_and_not_at_all_after_a_rollback(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    events = [world.clearing(cardholder, "T1", 5), world.clearing(cardholder, "T1", 6)]

    number = enqueue(program, events)
    seen_before = world.count("enqueued_events")
    program.rollback()
    after_rollback = world.count("enqueued_events")
    enqueue(program, events)
    program.commit()

    assert (number, seen_before, after_rollback) == (2, 0, 0)
    rows = world.rows(
        "SELECT event, source, reference, lane, enqueued_by FROM enqueued_events ORDER BY position"
    )
    login = program.info.user
    assert rows == [(event, "test", event["reference"], 0, login) for event in events]


def test_a_commit_rings_only_when_no_event_waited(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    with psycopg.connect(as_role(world.app_url, Role.WORKER), autocommit=True) as worker:
        worker.execute(f"LISTEN {CHANNEL}".encode())
        rung = []
        for end in (program.rollback, program.commit, program.commit):
            enqueue(program, [world.clearing(cardholder, "T1", 5)])
            end()
            worker.execute("SELECT")  # What was sent before its answer has arrived then.
            rung.append(len(list(worker.notifies(timeout=0.01))))

    assert rung == [0, 1, 0]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (None, "events must be a JSON array"),
        ({}, "events must be a JSON array"),
        ([], "events has 0 elements; enqueue 1 to 10000"),
        ([NAMED] * 10_001, "events has 10001 elements"),
        ([NAMED, 7], "event 2 is not a JSON object"),
        ([NAMED | {"x": "y" * 65_536}], "event 1 is longer than 65536 bytes"),
        (
            [NAMED, NAMED, {"type": 1, "source": "", "other": 2}, {}],
            "event 3 needs a non-empty string as type, source, reference",
        ),
    ],
)
def test_a_call_that_is_wrong_is_refused_with_the_number_of_the_event(
    program: psycopg.Connection, events: object, message: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        enqueue(program, events)


def test_a_call_without_events_or_in_another_lane_is_refused(program: psycopg.Connection) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="events must be a JSON array"):
        program.execute("SELECT enqueue(NULL)")
    program.rollback()
    with pytest.raises(errors.InvalidParameterValue, match="lane must be LIVE or BULK"):
        enqueue(program, [NAMED], "fast")


def test_other_logins_may_not_enqueue(world: World) -> None:
    for role in (Role.API, Role.WORKER, Role.WEBHOOKS, Role.READER):
        with (
            psycopg.connect(as_role(world.app_url, role)) as connection,
            pytest.raises(errors.InsufficientPrivilege, match="permission denied for function"),
        ):
            enqueue(connection, [NAMED])


def test_a_million_events_that_wait_are_the_limit(
    world: World, program: psycopg.Connection
) -> None:
    enqueue(program, [NAMED])
    program.commit()
    [(position,)] = world.rows("SELECT max(position) FROM enqueued_events")
    restart = "ALTER TABLE enqueued_events ALTER position RESTART WITH "
    world.connection.execute(f"{restart}{position + 1_000_500}".encode())

    with pytest.raises(errors.ConfigurationLimitExceeded, match="more than 1000000 events wait"):
        enqueue(program, [NAMED])
    program.rollback()

    world.connection.execute(f"{restart}{position + 2_000_000}".encode())


def test_a_schema_of_the_caller_does_not_change_what_the_functions_use(
    world: World, program: psycopg.Connection
) -> None:
    program.execute("CREATE TEMPORARY TABLE enqueued_events (LIKE cardledger.outcomes)")
    program.execute("CREATE TEMPORARY TABLE outcomes (reference text)")
    program.execute("SET search_path = pg_temp, cardledger")

    program.execute("SELECT cardledger.enqueue(%s)", [Jsonb([NAMED])])
    program.commit()

    assert world.count("cardledger.enqueued_events") == 1


# --- outcomes ------------------------------------------------------------------------------------


def recorded(world: World, cardholder: Cardholder, reference: str) -> Outcome | None:
    """Return what `GET /network-events/{source}/{reference}` returns."""

    async def find(platform_id: Id) -> Outcome | None:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            decided = await outcomes.find_by_key(
                connection,
                platform_id=platform_id,
                source="test",
                reference=reference,
                inbox_key=INBOX_KEY,
            )
            return decided or await rejections.find_by_key(
                connection, platform_id=platform_id, source="test", reference=reference
            )

    platforms = (cardholder.owner.platform_id, UNROUTED.platform_id)
    found = [asyncio.run(find(platform)) for platform in platforms]
    return next(filter(None, found), None)


def test_outcomes_are_those_of_the_interface(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    merchant = {"merchant": {"descriptor": "CHEZ ROUX", "mcc": "5812", "country": "FR"}}
    events: Sequence[Mapping[str, Any]] = [
        world.authorization(cardholder, "open", 1250, **merchant),
        world.authorization(cardholder, "tip", 1250),
        world.clearing(cardholder, "tip", 1500),
        world.authorization(cardholder, "voided", 700),
        world.event("AUTHORIZATION_REVERSAL", cardholder, "voided"),
        world.authorization(cardholder, "expired", 700),
        world.event("AUTHORIZATION_EXPIRY", cardholder, "expired"),
        world.event("RETURN", cardholder, "refunded", 300),
        world.event("FINANCIAL_CREDIT_AUTHORIZATION", cardholder, "credited", 400),
        world.event("CREDIT_AUTHORIZATION", cardholder, "announced", 400),
        world.event("CREDIT_AUTHORIZATION", cardholder, "paid", 400),
        world.clearing(cardholder, "paid", 150),
        world.event("CLEARING_REVERSAL", cardholder, "unknown", 10),
        world.authorization(cardholder, "declined", 90_000),
        world.clearing(cardholder, "euro", 10, currency="EUR"),
        {**world.clearing(cardholder, "T", 10), "cardId": f"Card:{cardholder.account_id}"},
        {**world.clearing(cardholder, "T", 10), "amount": "10", "surplus": 1},
        world.clearing(cardholder, "owing", 90_000),
    ]
    # Of each card transaction the last event: later ones change what is shown.
    first = {"AUTHORIZATION", "CREDIT_AUTHORIZATION"}
    last = [event for event in events if event["type"] not in first]
    last += [e for e in events if e["issuerTransactionToken"] in {"open", "declined", "announced"}]
    enqueue(program, events)
    program.commit()
    decide(world)

    found = {e["reference"]: outcome(program, "test", e["reference"]) for e in last}

    expected = {e["reference"]: recorded(world, cardholder, e["reference"]) for e in last}
    assert found == {key: each.wire for key, each in expected.items() if each is not None}
    kinds = [found[e["reference"]]["outcome"] for e in last]
    applied = ["APPLIED"] * 6
    assert kinds == [
        *applied, "PARKED", *["REJECTED"] * 3, "APPLIED", "APPLIED", "APPLIED", "DECLINED"
    ]  # fmt: skip


def test_an_event_that_waits_is_accepted_and_an_unknown_one_has_no_outcome(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    event = world.clearing(cardholder, "waits", 5)
    expected = {"reference": event["reference"], "outcome": "ACCEPTED", "detail": "not decided yet"}

    before = outcome(program, "test", event["reference"])
    enqueue(program, [event])
    program.commit()
    enqueued = outcome(program, "test", event["reference"])
    Mover(world.database, INBOX_KEY, lambda _: None).move()
    in_inbox = outcome(program, "test", event["reference"])
    world.drain(world.engine())

    assert (before, enqueued, in_inbox) == (None, expected, expected)
    assert outcome(program, "test", event["reference"])["outcome"] == "APPLIED"


def test_a_key_of_several_cardholders_is_an_error(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    other = world.cardholder(cardholder.owner.platform_id, 100)
    fields = {"source": "test", "reference": "shared"}
    enqueue(program, [world.clearing(each, "S", 1) | fields for each in (cardholder, other)])
    program.commit()
    decide(world)

    with pytest.raises(errors.CardinalityViolation, match="several cardholders"):
        outcome(program, "test", "shared")


def test_an_approval_that_was_reversed_for_its_deadline_is_declined(
    world: World, cardholder: Cardholder, program: psycopg.Connection
) -> None:
    event = world.authorization(world.cardholder(cardholder.owner.platform_id, 100), "late", 5)
    enqueue(program, [event])
    program.commit()
    decide(world)
    world.connection.execute(
        "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash, message_id,"
        " outcome, recorded_at) SELECT customer_id, platform_id, 'decision-timeout',"
        " encode(body_hash, 'hex'), '', gen_random_uuid(), 'APPLIED', now() FROM outcomes"
        " WHERE reference = %s",
        [event["reference"]],
    )

    found = outcome(program, "test", event["reference"])

    expected = recorded(world, cardholder, event["reference"])
    assert expected is not None
    assert found == expected.wire
    assert (found["outcome"], found["reason"]) == ("DECLINED", "DECISION_TIMEOUT")


# --- doctor --------------------------------------------------------------------------------------


def test_doctor_fails_when_events_wait_and_are_not_moved(
    world: World, program: psycopg.Connection
) -> None:
    none = message_findings.enqueued(world.connection)
    enqueue(program, [NAMED])
    program.commit()
    some = message_findings.enqueued(world.connection)
    with world.connection.transaction(force_rollback=True):
        world.connection.execute("ALTER TABLE enqueued_events DISABLE TRIGGER append_only")
        long_ago = "now() - interval '1 min'"
        world.connection.execute(f"UPDATE enqueued_events SET enqueued_at = {long_ago}".encode())
        old = message_findings.enqueued(world.connection)

    assert (none.state, some.state, old.state) == (OK, OK, FAIL)
    assert "1 wait to be moved to the inbox, the oldest for 60." in old.detail
