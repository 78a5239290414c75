"""Rejections: listed, and retried once, with the body that was kept."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine import rejections as kept
from cardledger.ledger.engine.records import Decided, RejectionRecord
from cardledger.ledger.messaging import rejections
from cardledger.ledger.messaging.inbox import SUSPENSE, UNROUTED, Lane
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.messaging.rejections import Filter, Retries
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import DEBIT_AUTHORIZATIONS, EventType
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from cardledger.workers.client import parsing
from cardledger.workers.client.parsing import Malformed
from tests.command_process import run_command
from tests.system.support import environment
from tests.waiting import eventually
from tests.world import INBOX_KEY, SECRET_KEY, Cardholder, World, open_world, outcomes_of

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def asked(world: World, work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Return the result of `work` in a database transaction of the application."""

    async def run() -> Result:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            return await work(connection)

    return asyncio.run(run())


async def retried(connection: Connection, which: Filter) -> Retries:
    found = await rejections.find(connection, which, limit=100)
    return await rejections.retry(connection, found, INBOX_KEY, now=datetime.now(UTC))


def retry(world: World, *ids: Id, platform_id: Id | None = None) -> Retries:
    which = Filter(ids=ids, platform_id=platform_id)
    return asked(world, lambda connection: retried(connection, which))


def rejected(world: World, cardholder: Cardholder, key: InboxKey = INBOX_KEY) -> Id:
    """Keep a clearing of 10.00 USD as quarantined, as an earlier release did for its own faults."""
    body = world.clearing(cardholder, "T1", 1000)
    record = RejectionRecord(
        id=new_id(),
        customer_id=cardholder.owner.customer_id,
        platform_id=cardholder.owner.platform_id,
        source=body["source"],
        reference=body["reference"],
        body=json.dumps(body),
        reason=RejectionReason.INTERNAL_ERROR,
        detail="Internal processing error.",
        recorded_at=datetime.now(UTC),
    )
    asked(world, lambda connection: kept.keep(connection, [record], key))
    return record.id


def submitted(
    world: World, body: dict[str, Any], platform_id: Id, reason: str, key: InboxKey = INBOX_KEY
) -> Id:
    """Keep `body` as the client keeps what it does not accept."""
    record = RejectionRecord(
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=platform_id,
        source=body.get("source"),
        reference=body.get("reference"),
        body=json.dumps(body),
        reason=reason,
        detail=None,
        recorded_at=datetime.now(UTC),
    )
    asked(world, lambda connection: kept.keep(connection, [record], key))
    return record.id


def test_a_retried_event_is_applied_once(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 5000)
    key = rejected(world, cardholder)

    first = retry(world, key)
    again = retry(world, key)
    decided = drained(world)

    assert list(first.accepted) == [key]
    assert again.accepted == {}
    assert again.refused == {key: "Already retried."}
    assert outcomes_of(decided) == ["APPLIED"]
    assert decided[0].message.id == first.accepted[key]
    assert world.account(cardholder)["balance"] == 4000
    [row] = asked(world, lambda connection: rejections.find(connection, Filter(ids=[key]), limit=1))
    assert row.retried_as == first.accepted[key]
    world.check_books(cardholder)


def drained(world: World) -> list[Decided]:
    """Return what is decided, without the messages that book what the rejected events moved."""
    decided = world.drain(world.engine(), Lane.BULK)
    return [each for each in decided if each.message.body["type"] != SUSPENSE]


def test_two_retries_at_once_accept_the_event_once(world: World, platform: Id) -> None:
    key = rejected(world, world.cardholder(platform, 5000))

    async def both() -> list[Retries]:
        connect = psycopg.AsyncConnection.connect
        async with await connect(world.app_url) as one, await connect(world.app_url) as other:
            first = await retried(one, Filter(ids=[key]))
            second = asyncio.create_task(retried(other, Filter(ids=[key])))
            # The second has read that there is no retry yet: it waits for the first.
            await asyncio.to_thread(eventually, lambda: is_waiting(world))
            await one.commit()
            return [first, await second]

    first, second = asyncio.run(both())

    assert list(first.accepted) == [key]
    assert (second.accepted, second.refused) == ({}, {key: "Already retried."})
    assert outcomes_of(drained(world)) == ["APPLIED"]


def is_waiting(world: World) -> bool:
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%%INSERT INTO rejection_retries%%'"
        )
    )


def test_what_a_large_malformed_event_has_moved_is_booked_and_its_rest_is_not_retried(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 5000)
    malformed = parsing.read(world.clearing(cardholder, "T1", 1000) | {"unknown": "x" * 60_000})
    assert isinstance(malformed, Malformed)
    record = malformed.rejection(new_id(), datetime.now(UTC), platform)
    asked(world, lambda connection: kept.keep(connection, [record], INBOX_KEY))
    world.drain(world.engine(), Lane.BULK)

    retries = retry(world, record.id)

    assert len(record.body) < 4_096
    assert retries.refused == {
        record.id: "The event was too large to be kept whole; submit a corrected one."
    }
    assert world.rows("SELECT amount, reason FROM suspense_items WHERE id = %s", record.id) == [
        (1000, "MALFORMED")
    ]
    report = world.verify()
    assert report.holds, report.differences


def test_an_event_of_a_card_that_is_known_by_now_is_applied(world: World, platform: Id) -> None:
    cardholder = world.cardholder(platform, 5000)
    body = world.clearing(cardholder, "T1", 1000)
    key = submitted(world, body, platform, RejectionReason.UNKNOWN_CARD)

    retries = retry(world, key)

    assert list(retries.accepted) == [key]
    assert outcomes_of(drained(world)) == ["APPLIED"]


@pytest.mark.parametrize("kind", EventType)
def test_only_what_has_happened_is_retried_once_its_card_exists(
    world: World, platform: Id, kind: EventType
) -> None:
    cardholder = world.cardholder(platform, 10_000)
    amount = None if kind is EventType.AUTHORIZATION_EXPIRY else 5000
    body = world.event(kind, cardholder, "T1", amount)
    key = submitted(world, body, platform, RejectionReason.UNKNOWN_CARD)

    retries = retry(world, key)
    decided = drained(world)

    if kind in DEBIT_AUTHORIZATIONS:
        why = "The network was refused this authorization by the rejection; it has to ask again."
        assert (retries.accepted, retries.refused) == ({}, {key: why})
        assert retries.answered == {key}
        assert decided == []
        assert world.account(cardholder)["balance"] == 10_000
    else:
        assert list(retries.accepted) == [key]
        assert len(decided) == 1
    world.check_books(cardholder)


def test_rejections_after_one_come_the_oldest_first(world: World) -> None:
    """As `rejections retry` goes through them: a credit is authorized before it clears."""
    platform = world.platform()
    cardholder = world.cardholder(platform, 5000)
    keys = [
        submitted(world, world.clearing(cardholder, token, 100), platform, "UNKNOWN_CARD")
        for token in ("T1", "T2", "T3")
    ]

    def found(after: Id) -> list[Id]:
        which = Filter(platform_id=platform, after=after)
        page = asked(world, lambda connection: rejections.find(connection, which, limit=2))
        return [each.id for each in page]

    assert [found(Id(bytes(16))), found(keys[1])] == [keys[:2], keys[2:]]


def test_a_rejected_credit_is_retried_as_a_credit(world: World, platform: Id) -> None:
    """Without its authorization, what clears would be taken from the customer."""
    cardholder = world.cardholder(platform, 10_000)
    keys = [
        submitted(world, world.event(kind, cardholder, "T1", 5000), platform, "UNKNOWN_CARD")
        for kind in (EventType.CREDIT_AUTHORIZATION, EventType.CLEARING)
    ]

    retries = retry(world, *keys)

    assert list(retries.accepted) == keys
    assert outcomes_of(drained(world)) == ["APPLIED", "APPLIED"]
    assert world.account(cardholder)["balance"] == 15_000
    world.check_books(cardholder)


@pytest.mark.parametrize("reason", ["MALFORMED", "INVALID_CURRENCY", "INTERNAL_ERROR"])
def test_an_authorization_is_not_retried_whatever_it_was_rejected_for(
    world: World, platform: Id, reason: str
) -> None:
    body = world.authorization(world.cardholder(platform, 10_000), "T1", 5000)
    key = submitted(world, body, platform, reason)

    retries = retry(world, key)

    assert (retries.accepted, retries.answered) == ({}, {key})


def test_what_its_sender_accepts_to_be_rejected_is_retried_after_an_error_of_the_ledger_only(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 5000)
    body = world.clearing(cardholder, "T1", 1000, expectedSequence=0)
    unknown = submitted(world, body, platform, RejectionReason.UNKNOWN_CARD)
    internal = submitted(world, body, platform, RejectionReason.INTERNAL_ERROR)

    retries = retry(world, unknown, internal)

    assert list(retries.accepted) == [internal]
    assert retries.answered == {unknown}
    assert outcomes_of(drained(world)) == ["APPLIED"]


def test_what_a_platform_has_made_up_is_never_accepted_by_a_retry(
    world: World, platform: Id
) -> None:
    cardholder, foreign = world.cardholder(platform, 5000), world.cardholder(world.platform(), 5000)
    forged = [
        world.deposit(cardholder, 10**9),
        {**world.clearing(cardholder, "T1", 10), "type": "PULL_CONFIRMATION", "succeeded": True},
        {**world.clearing(cardholder, "T1", 10), "unknown": 1},
        world.clearing(foreign, "T1", 10),
    ]
    keys = [submitted(world, body, platform, RejectionReason.MALFORMED) for body in forged]

    retries = retry(world, *keys)

    assert retries.accepted == {}
    assert set(retries.refused) == set(keys)
    assert retries.refused[keys[3]].startswith("Unknown card")
    assert world.rows("SELECT count(*) FROM inbox WHERE source <> 'engine'") == [(0,)]


def test_a_rejection_that_no_process_of_the_installation_has_kept_is_not_retried(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 5000)
    stranger = InboxKey("the key of another installation, of 32 characters")
    genuine = rejected(world, cardholder)
    copied = new_id()
    with psycopg.connect(world.app_url) as connection:
        connection.execute(
            "INSERT INTO rejections SELECT %s, customer_id, platform_id, source, reference,"
            " body, reason, detail, recorded_at, mac FROM rejections WHERE id = %s",
            [copied, genuine],
        )
        unsigned = new_id()
        connection.execute(
            "INSERT INTO rejections SELECT %s, customer_id, platform_id, source, reference,"
            " body, reason, detail, recorded_at FROM rejections WHERE id = %s",
            [unsigned, genuine],
        )
    forged = [rejected(world, cardholder, stranger), copied, unsigned]
    forged.append(
        submitted(
            world,
            world.clearing(cardholder, "T1", 9),
            platform,
            RejectionReason.MALFORMED,
            stranger,
        )
    )

    retries = retry(world, genuine, *forged)

    assert list(retries.accepted) == [genuine]
    assert retries.refused.keys() == {*forged}
    assert {"submit the event again" in why for why in retries.refused.values()} == {True}
    assert outcomes_of(drained(world)) == ["APPLIED"]


def test_what_the_client_and_the_engine_have_rejected_is_retried(
    world: World, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 5000)
    [decided] = world.process(
        world.engine(),
        [(cardholder, world.clearing(cardholder, "T9", 10) | {"currency": "EUR"})],
    )
    assert decided.outcome is OutcomeType.REJECTED

    retries = retry(world, decided.message.id)

    assert list(retries.accepted) == [decided.message.id]
    drained(world)


def test_a_platform_neither_sees_nor_retries_the_rejections_of_another(
    world: World, platform: Id
) -> None:
    key = rejected(world, world.cardholder(platform, 5000))
    other = world.platform()

    seen = asked(
        world, lambda connection: rejections.find(connection, Filter(platform_id=other), limit=9)
    )
    retries = retry(world, key, platform_id=other)

    assert seen == []
    assert (retries.accepted, retries.refused) == ({}, {})


def test_the_command_line_lists_and_retries(world: World, platform: Id, tmp_path: Path) -> None:
    cardholder = world.cardholder(platform, 5000)
    key = rejected(world, cardholder)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = environment(DATABASE_URL=world.app_url, CARDLEDGER_SECRET_KEY=SECRET_KEY)
        return run_command("rejections", *arguments, env=env, cwd=tmp_path)

    listed = run("list", "--reason", "INTERNAL_ERROR", "--limit", "1")
    as_json = run("list", "--json", "--limit", "1")
    done = run("retry", str(key))
    again = run("retry", str(key))
    neither = run("retry")

    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith(f"{key}  ")
    assert json.loads(as_json.stdout)[0]["id"] == str(key)
    assert (done.returncode, done.stdout) == (0, "1 enqueued again, 0 not\n"), done.stderr
    assert again.returncode == 1
    assert "Already retried." in again.stdout
    assert neither.returncode == 2
    [decided] = [
        each for each in drained(world) if each.message.customer_id == cardholder.owner.customer_id
    ]
    assert decided.outcome is OutcomeType.APPLIED


def test_the_command_line_passes_over_authorizations_of_a_reason_and_counts_them(
    world: World, platform: Id, tmp_path: Path
) -> None:
    cardholder = world.cardholder(platform, 5000)
    reason = RejectionReason.TOO_MANY_PARKED  # Of no other test.
    submitted(world, world.clearing(cardholder, "T1", 1000), platform, reason)
    asking = submitted(world, world.authorization(cardholder, "T2", 1000), platform, reason)
    env = environment(DATABASE_URL=world.app_url, CARDLEDGER_SECRET_KEY=SECRET_KEY)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command("rejections", "retry", *arguments, env=env, cwd=tmp_path)

    together, alone = run("--reason", reason), run(str(asking))

    assert (together.returncode, together.stdout) == (
        0,
        "1 enqueued again, 0 not; 1 passed over, to which the rejection was the answer\n",
    ), together.stderr
    assert alone.returncode == 1
    assert alone.stdout.endswith("it has to ask again.\n0 enqueued again, 1 not\n"), alone.stdout
    assert outcomes_of(drained(world)) == ["APPLIED"]
