"""No approval is reported after its deadline, and what was not reported is reversed."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import psycopg
import pytest

from cardledger.commands.submit import Submission
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install.discovery import Place
from cardledger.ledger.audit import acceptances
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.messaging.timeout_reversals import SOURCE
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, UnavailableError, parsing, submit
from cardledger.workers.process.main import WorkerProcess
from tests.integration.workers import Result, outcome_types, with_client, working
from tests.waiting import eventually, limit_s
from tests.world import SECRET_KEY, Cardholder, World, open_world

_STALL = """
CREATE TABLE stalls (id int);
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    WHILE EXISTS (SELECT FROM stalls WHERE id = 1) LOOP PERFORM pg_sleep(0.005); END LOOP;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER stall AFTER INSERT ON outcomes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION stall();
"""
"""Holds every commit of the engine at its end, after the engine's own check of the deadline."""


TRIES = 100  # Of a submission, which a stalled database refuses.


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        made.connection.execute(_STALL)
        made.connection.execute(_STALL_REVERSALS)
        made.connection.execute(_SLOW_CLOCK)
        yield made


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def worker(world: World, redis_url: str) -> Iterator[WorkerProcess]:
    with working(world, redis_url, sweep_interval_s=0.05) as process:
        yield process


_STALL_REVERSALS = f"""
CREATE FUNCTION stall_reversal() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    WHILE EXISTS (SELECT FROM stalls WHERE id = 2) LOOP PERFORM pg_sleep(0.005); END LOOP;
    RETURN NEW;
END $$;
CREATE TRIGGER stall BEFORE INSERT ON inbox FOR EACH ROW WHEN (NEW.source = '{SOURCE}')
    EXECUTE FUNCTION stall_reversal();
"""
"""Holds the acceptance of timeout reversals, and of nothing else."""


_SLOW_CLOCK = """
CREATE SCHEMA slow;
GRANT USAGE ON SCHEMA slow TO PUBLIC;
CREATE TABLE slow.readings (seconds float);
GRANT SELECT ON slow.readings TO PUBLIC;
CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(seconds) FROM slow.readings;
    RETURN pg_catalog.clock_timestamp();
END $$;
"""
"""Shadows PostgreSQL's own function: while there is a row, a question takes long to arrive."""

_ON_A_SLOW_CLOCK = "-c search_path=slow,cardledger,pg_catalog"


@contextmanager
def slow_readings(world: World, seconds: float) -> Iterator[None]:
    world.connection.execute("INSERT INTO slow.readings VALUES (%s)", [seconds])
    try:
        yield
    finally:
        world.connection.execute("DELETE FROM slow.readings")


@contextmanager
def stalled_reversals(world: World) -> Iterator[None]:
    world.connection.execute("INSERT INTO stalls VALUES (2)")
    try:
        yield
    finally:
        world.connection.execute("DELETE FROM stalls")


@contextmanager
def stalled_commits(world: World) -> Iterator[None]:
    world.connection.execute("INSERT INTO stalls VALUES (1)")
    try:
        yield
    finally:
        world.connection.execute("DELETE FROM stalls WHERE id = 1")


def authorization(
    world: World, client: Client, cardholder: Cardholder, token: str, within_s: float
) -> dict[str, Any]:
    decide_by = client.now() + timedelta(seconds=within_s)
    return world.authorization(cardholder, token, 100, decideBy=decide_by.isoformat())


def without_replies(redis_url: str) -> str:
    """Return another database of the same Redis: the worker's replies do not arrive there."""
    parts = urlsplit(redis_url)
    return parts._replace(path=f"/{int(parts.path.removeprefix('/') or 0) + 1}").geturl()


def is_idle(world: World) -> bool:
    return not world.count("inbox")


def kinds(world: World, cardholder: Cardholder) -> list[str]:
    rows = world.rows(
        "SELECT kind FROM card_transaction_events WHERE customer_id = %s"
        " ORDER BY card_transaction_id, sequence",
        cardholder.owner.customer_id,
    )
    return [kind for (kind,) in rows]


@pytest.mark.usefixtures("worker")
def test_an_approval_whose_commit_stalls_is_reported_as_declined_and_reversed(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    events: list[dict[str, Any]] = []

    async def submitting(client: Client) -> Outcome:
        events.append(authorization(world, client, cardholder, "T1", 0.7))
        [outcome] = await client.submit(events)
        return outcome

    async def again(client: Client) -> Outcome:
        later = client.now() + timedelta(seconds=30)
        [outcome] = await client.submit([events[0] | {"decideBy": later.isoformat()}])
        return outcome

    with stalled_commits(world):
        first = with_client(world, redis_url, submitting)
        assert world.count("inbox"), "the commit was not held"
    eventually(lambda: is_idle(world))
    repeated = with_client(world, redis_url, again)

    assert (first.outcome, first.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert first.detail is not None
    assert kinds(world, cardholder) == [
        "AUTHORIZED",
        "PULLED",
        "AUTHORIZATION_REVERSED",
        "RELEASED",
    ]
    assert world.balance(cardholder) == 1000
    world.check_books(cardholder)
    assert (repeated.outcome, repeated.first_outcome) == (
        OutcomeType.DUPLICATE,
        OutcomeType.DECLINED,
    )
    assert repeated.reason == "DECISION_TIMEOUT"


@pytest.mark.usefixtures("worker")
def test_a_program_without_an_event_loop_is_answered_in_time_too(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)
    [(now,)] = world.rows("SELECT clock_timestamp()")
    decide_by = (now + timedelta(seconds=1)).isoformat()

    with stalled_commits(world):
        [outcome] = submit(
            [world.authorization(cardholder, "T1", 100, decideBy=decide_by)],
            database_url=world.app_url,
            redis_url=redis_url,
            secret_key=SECRET_KEY,
        )
    eventually(lambda: is_idle(world))

    assert (outcome.outcome, outcome.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert world.balance(cardholder) == 1000


@pytest.mark.usefixtures("worker")
def test_an_approval_whose_reply_is_lost_is_read_from_the_record_in_time(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submitting(client: Client) -> tuple[Outcome, bool]:
        event = authorization(world, client, cardholder, "T1", 0.9)
        [outcome] = await client.submit([event])
        return outcome, client.now().isoformat() < event["decideBy"]

    outcome, is_in_time = with_client(world, without_replies(redis_url), submitting)

    assert outcome.outcome is OutcomeType.APPLIED
    assert is_in_time
    assert kinds(world, cardholder) == ["AUTHORIZED", "PULLED"]


@pytest.mark.usefixtures("worker")
def test_a_deadline_is_kept_although_a_slow_reading_of_the_clock_says_it_has_passed(
    world: World, platform: Id, redis_url: str
) -> None:
    """Taken for late, it was not watched; the engine approved it, and the reply was lost."""
    cardholder = world.cardholder(platform, 1000)
    reported: list[Outcome] = []

    async def submitting(client: Client) -> None:
        [(now,)] = world.rows("SELECT clock_timestamp()")
        decide_by = now + timedelta(seconds=0.5)
        assert client.now() > decide_by, "the reading was not slow"
        event = world.authorization(cardholder, "T1", 100, decideBy=decide_by.isoformat())
        with suppress(UnavailableError):
            reported.extend(await client.submit([event]))

    with slow_readings(world, 0.7):
        on_slow_clock(world, without_replies(redis_url), submitting)
    eventually(lambda: is_idle(world))

    assert [outcome.outcome for outcome in reported if outcome.is_approval] == []
    assert world.balance(cardholder) == 1000
    world.check_books(cardholder)


@pytest.mark.usefixtures("worker")
def test_before_the_first_reading_of_the_clock_no_deadline_is_accepted(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submitting(client: Client) -> list[Outcome]:
        event = authorization(world, client, cardholder, "T1", limit_s())
        with pytest.raises(UnavailableError, match="the time of PostgreSQL is not known"):
            await client.submit([event])
        without_deadline = await client.submit([world.authorization(cardholder, "T2", 100)])
        world.connection.execute("DELETE FROM slow.readings")
        _, outcome = await accepted(world, client, cardholder, "T1", limit_s)
        return [*without_deadline, outcome]

    with slow_readings(world, 10 * limit_s()):
        outcomes = on_slow_clock(world, redis_url, submitting)

    assert outcome_types(outcomes) == ["APPLIED", "APPLIED"]


def on_slow_clock(
    world: World, redis_url: str, use: Callable[[Client], Awaitable[Result]]
) -> Result:
    """Return what `use` does with a client whose readings of the clock may be slow."""

    async def run() -> Result:
        engine = async_engine(world.api_url, keyed=True, settings=_ON_A_SLOW_CLOCK)
        try:
            async with Client(engine, redis_url, secret_key=SECRET_KEY) as client:
                return await use(client)
        finally:
            await engine.dispose()

    return asyncio.run(run())


@pytest.mark.usefixtures("worker")
def test_a_process_that_stood_still_reports_no_approval_after_the_deadline(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submitting(client: Client) -> Outcome:
        event = authorization(world, client, cardholder, "T1", 1.0)
        with stalled_commits(world):
            waiting = asyncio.create_task(client.submit([event]))
            await asyncio.to_thread(eventually, lambda: world.count("inbox"))
        # The event loop stands still; the reply waits for it.
        eventually(lambda: is_decided(world, cardholder))
        eventually(lambda: client.now().isoformat() > event["decideBy"])
        [outcome] = await waiting
        return outcome

    outcome = with_client(world, redis_url, submitting)
    eventually(lambda: is_reversed(world, cardholder) and is_idle(world))

    assert (outcome.outcome, outcome.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert world.balance(cardholder) == 1000
    world.check_books(cardholder)


@pytest.mark.usefixtures("worker")
def test_an_acceptance_that_stalls_is_not_reported_as_declined_and_leaves_no_hold(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submitting(client: Client) -> None:
        with psycopg.connect(world.url) as outsider:
            outsider.execute("LOCK TABLE inbox IN SHARE MODE")
            with pytest.raises(UnavailableError, match="reversal is not recorded yet"):
                await client.submit([authorization(world, client, cardholder, "T1", 0.3)])
        await asyncio.to_thread(eventually, lambda: is_decided(world, cardholder))

    with_client(world, redis_url, submitting)
    eventually(lambda: is_idle(world))

    assert kinds(world, cardholder) == ["DECLINED"]
    world.check_books(cardholder)


def is_decided(world: World, cardholder: Cardholder) -> bool:
    return bool(kinds(world, cardholder))


def is_reversed(world: World, cardholder: Cardholder) -> bool:
    return "AUTHORIZATION_REVERSED" in kinds(world, cardholder)


@pytest.mark.usefixtures("worker")
def test_a_repetition_is_not_approved_while_the_reversal_is_not_recorded(
    world: World, platform: Id, redis_url: str
) -> None:
    """It was reported as a duplicate of an approval, and the approval was reversed after that."""
    cardholder = world.cardholder(platform, 1000)
    event = world.authorization(cardholder, "T1", 100)

    def attempt(client: Client, *, within_s: float) -> dict[str, Any]:
        return {**event, "decideBy": (client.now() + timedelta(seconds=within_s)).isoformat()}

    async def is_refused(client: Client) -> None:
        with pytest.raises(UnavailableError, match="reversal is not recorded yet"):
            await client.submit([attempt(client, within_s=0.3)])

    async def submitting(client: Client) -> Outcome:
        with stalled_reversals(world):
            with stalled_commits(world):
                await is_refused(client)
            await asyncio.to_thread(eventually, lambda: is_decided(world, cardholder))
            await is_refused(client)
        await asyncio.to_thread(eventually, lambda: is_reversed(world, cardholder))
        [outcome] = await client.submit([attempt(client, within_s=2)])
        return outcome

    outcome = with_client(world, redis_url, submitting)

    assert (outcome.outcome, outcome.first_outcome) == (OutcomeType.DUPLICATE, OutcomeType.DECLINED)
    world.check_books(cardholder)


@pytest.mark.usefixtures("worker")
def test_a_client_that_stops_leaves_no_reversal_unwritten(
    world: World, platform: Id, redis_url: str
) -> None:
    cardholder = world.cardholder(platform, 1000)

    async def submitting(client: Client) -> None:
        event = authorization(world, client, cardholder, "T1", 0.3)
        with psycopg.connect(world.url) as outsider:
            outsider.execute("LOCK TABLE inbox IN SHARE MODE")
            with pytest.raises(UnavailableError):
                await client.submit([event])

    with_client(world, redis_url, submitting)
    eventually(lambda: is_decided(world, cardholder))

    assert kinds(world, cardholder) == ["DECLINED"]


@pytest.mark.usefixtures("worker")
def test_the_command_for_files_waits_for_a_reversal_that_is_not_recorded_at_once(
    world: World, platform: Id, redis_url: str
) -> None:
    """It ended in the middle of a file."""
    cardholder = world.cardholder(platform, 1000)
    command = Submission(
        cast(Place, None),
        secret_key=ServerKey(SECRET_KEY),
        wait=True,
        platform_id=None,
        timeout_s=limit_s(),
        tell=lambda _: None,
    )
    tries: list[object] = []

    async def submitting(client: Client) -> Outcome:
        reported = client.reported

        async def counted(batch: Any) -> list[Outcome]:  # noqa: ANN401 - as `reported` takes
            tries.append(batch)
            return await reported(batch)

        client.reported = counted  # type: ignore[method-assign]
        [event] = client.put(
            [authorization(world, client, cardholder, "T1", 3600)], None, Lane.BULK
        )
        assert (await event.outcome).is_approval
        assert isinstance(event, parsing.Submission)
        event.report_by = elapsed_s() - 1
        with stalled_reversals(world):
            waiting = asyncio.create_task(command._reported(client, [event]))
            await asyncio.to_thread(eventually, lambda: len(tries) > 1 or waiting.done())
        [outcome] = await waiting
        return outcome

    outcome = with_client(world, redis_url, submitting)
    eventually(lambda: is_reversed(world, cardholder) and is_idle(world))

    assert (outcome.outcome, outcome.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    assert world.balance(cardholder) == 1000


async def accepted(
    world: World,
    client: Client,
    cardholder: Cardholder,
    token: str,
    within_s: Callable[[], float],
) -> tuple[dict[str, Any], Outcome]:
    """Submit an authorization, again while it is not accepted before its deadline.

    Returns the event that was accepted, and its outcome.
    """
    for _ in range(TRIES):
        event = authorization(world, client, cardholder, token, within_s())
        with suppress(UnavailableError):
            [outcome] = await client.submit([event])
            return event, outcome
        await asyncio.sleep(0.01)  # It may be refused at once.
    raise AssertionError(f"{token} was not accepted in {TRIES} tries")


@pytest.mark.usefixtures("worker")
def test_no_approval_is_reported_late_while_commits_stall_at_random(
    world: World, platform: Id, redis_url: str
) -> None:
    chance = random.Random(14)  # noqa: S311 - reproducible stalls
    cardholders = [world.cardholder(platform, 100_000) for _ in range(16)]
    reported: dict[str, tuple[Cardholder, Outcome, bool]] = {}

    def was_declined() -> bool:
        return any(not outcome.is_approval for _, outcome, _ in reported.values())

    async def ask(client: Client, number: int) -> None:
        cardholder = cardholders[number % len(cardholders)]
        within_s = partial(chance.uniform, 0.2, 0.8)
        event, outcome = await accepted(world, client, cardholder, f"S{number}", within_s)
        is_late = client.now().isoformat() > event["decideBy"]
        reported[f"S{number}"] = (cardholder, outcome, is_late)

    async def stall(stop: asyncio.Event) -> None:
        while not stop.is_set():
            with stalled_commits(world):
                await _pause(stop, chance.uniform(0.0, 0.6))
            await _pause(stop, chance.uniform(0.0, 0.3))

    async def run(client: Client) -> None:
        stop = asyncio.Event()
        stalling = asyncio.create_task(stall(stop))
        while len(reported) < 400 or not was_declined():
            assert len(reported) < 8000, "no commit has stalled for long enough"
            first = len(reported)
            await asyncio.gather(*(ask(client, number) for number in range(first, first + 20)))
        stop.set()
        await stalling

    with_client(world, redis_url, run)
    eventually(lambda: is_idle(world))

    outcomes = [outcome for _, outcome, _ in reported.values()]
    assert len(outcomes) >= 400
    assert set(outcome_types(outcomes)) == {"APPLIED", "DECLINED"}
    assert not [
        token for token, (_, outcome, late) in reported.items() if late and outcome.is_approval
    ]
    states = dict(world.rows("SELECT issuer_transaction_token, authorized FROM card_transactions"))
    for token, (_, outcome, _) in reported.items():
        assert states[token] == (100 if outcome.is_approval else 0), token
    for cardholder in cardholders:
        world.check_books(cardholder)
    with psycopg.connect(world.url) as connection:
        assert list(acceptances.differences(connection)) == []


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
