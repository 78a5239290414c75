"""The answer to an acceptance is lost: an authorization with a deadline has an outcome by then."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.messaging.timeout_reversals import SOURCE
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, UnavailableError
from storm.proxy import Trap
from tests.integration.workers import Result, working
from tests.proxy import Proxy, proxy_to, through
from tests.waiting import eventually, limit_s
from tests.world import SECRET_KEY, Cardholder, World, open_world

_END_WRITES = f"""
CREATE TABLE written (reference text);
CREATE TABLE ending (tests int);
CREATE FUNCTION end_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    IF EXISTS (SELECT FROM ending) AND
        EXISTS (SELECT FROM written WHERE reference = NEW.reference)
    THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    INSERT INTO written VALUES (NEW.reference);
    RETURN NEW;
END $$;
CREATE TRIGGER end_write BEFORE INSERT ON inbox FOR EACH ROW
    WHEN (NEW.source <> '{SOURCE}') EXECUTE FUNCTION end_write();
"""
"""Ends the connection of each acceptance of an event that was accepted before, if it is to."""


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        made.connection.execute(_END_WRITES)
        yield made


@pytest.fixture(scope="module", autouse=True)
def worker(world: World, redis_url: str) -> Iterator[None]:
    with working(world, redis_url, sweep_interval_s=0.05):
        yield


@pytest.fixture
def ended_repetitions(world: World) -> Iterator[None]:
    """No event is accepted twice: the connection ends meanwhile."""
    world.connection.execute("INSERT INTO ending VALUES (1)")
    yield
    world.connection.execute("DELETE FROM ending")


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    with proxy_to(world.api_url) as made:
        yield made


Use = Callable[[Client], Awaitable[Result]]
Submit = Callable[[Client, dict[str, Any]], Awaitable[Outcome]]


async def submitted(client: Client, event: dict[str, Any]) -> Outcome:
    [outcome] = await client.submit([event])
    return outcome


async def enqueued(client: Client, event: dict[str, Any]) -> Outcome:
    [outcome] = await client.enqueue([event], lane=Lane.LIVE)
    return await outcome


def run_behind(proxy: Proxy, world: World, redis_url: str, use: "Use[Result]") -> Result:
    """Return what `use` does with a client whose connections to PostgreSQL `proxy` passes on."""

    async def run() -> Result:
        engine = async_engine(through(world.api_url, proxy), keyed=True)
        try:
            async with Client(
                engine, redis_url, secret_key=SECRET_KEY, reply_timeout_s=limit_s()
            ) as client:
                return await use(client)
        finally:
            await engine.dispose()

    return asyncio.run(run())


@pytest.fixture
def behind(proxy: Proxy, world: World, redis_url: str) -> "Callable[[Use[Result]], Result]":
    """`run_behind` with the Redis of the worker."""
    return partial(run_behind, proxy, world, redis_url)


def without_replies(redis_url: str) -> str:
    """Return another database of the same Redis: the worker's replies do not arrive there."""
    parts = urlsplit(redis_url)
    return parts._replace(path=f"/{int(parts.path.removeprefix('/') or 0) + 1}").geturl()


def authorization(
    world: World, client: Client, cardholder: Cardholder, *, within_s: float
) -> dict[str, Any]:
    decide_by = client.now() + timedelta(seconds=within_s)
    return world.authorization(cardholder, "T1", 100, decideBy=decide_by.isoformat())


def kinds(world: World, cardholder: Cardholder) -> list[str]:
    rows = world.rows(
        "SELECT kind FROM card_transaction_events WHERE customer_id = %s ORDER BY sequence",
        cardholder.owner.customer_id,
    )
    return [kind for (kind,) in rows]


@pytest.mark.parametrize("trap", Trap)
@pytest.mark.parametrize("submit", [submitted, enqueued])
def test_an_authorization_is_approved_although_its_acceptance_was_cut(
    world: World,
    proxy: Proxy,
    behind: "Callable[[Use[Outcome]], Outcome]",
    trap: Trap,
    submit: Submit,
) -> None:
    """Cut after the acceptance, the caller had an error, the engine approved, and the hold stayed.

    The caller does not repeat it.
    """
    cardholder = world.cardholder(world.platform(), 1000)

    async def cut(client: Client) -> Outcome:
        event = authorization(world, client, cardholder, within_s=limit_s(10))
        proxy.cut_at(b'"reference":', trap)
        return await submit(client, event)

    outcome = behind(cut)
    eventually(lambda: not world.count("inbox"))

    assert proxy.trapped == 1
    assert outcome.is_approval
    assert kinds(world, cardholder) == ["AUTHORIZED", "PULLED"]
    assert world.balance(cardholder) == 900


@pytest.mark.usefixtures("ended_repetitions")
@pytest.mark.parametrize("submit", [submitted, enqueued])
def test_what_was_accepted_after_all_is_read_from_the_record(
    world: World, proxy: Proxy, redis_url: str, submit: Submit
) -> None:
    cardholder = world.cardholder(world.platform(), 1000)

    async def cut(client: Client) -> Outcome:
        event = authorization(world, client, cardholder, within_s=limit_s(2))
        proxy.cut_at(b'"reference":', Trap.AFTER)
        return await submit(client, event)

    outcome = run_behind(proxy, world, without_replies(redis_url), cut)

    assert proxy.trapped == 1
    assert outcome.outcome is OutcomeType.APPLIED
    assert world.balance(cardholder) == 900


@pytest.mark.usefixtures("ended_repetitions")
@pytest.mark.parametrize("submit", [submitted, enqueued])
def test_what_may_be_accepted_is_settled_at_its_deadline(
    world: World, behind: "Callable[[Use[Outcome]], Outcome]", submit: Submit
) -> None:
    cardholder = world.cardholder(world.platform(), 1000)

    async def without_an_answer(client: Client) -> Outcome:
        event = authorization(world, client, cardholder, within_s=1)
        world.connection.execute("INSERT INTO written VALUES (%s)", [event["reference"]])
        return await submit(client, event)

    outcome = behind(without_an_answer)
    eventually(lambda: kinds(world, cardholder) == ["DECLINED"])

    assert (outcome.outcome, outcome.reason) == (OutcomeType.DECLINED, "DECISION_TIMEOUT")
    world.check_books(cardholder)


def test_without_a_deadline_the_caller_learns_that_the_answer_was_lost(
    world: World, proxy: Proxy, behind: "Callable[[Use[None]], None]"
) -> None:
    event = world.authorization(world.cardholder(world.platform(), 1000), "T1", 100)

    async def cut(client: Client) -> None:
        proxy.cut_at(b'"reference":', Trap.AFTER)
        with pytest.raises(UnavailableError):
            await client.submit([event])

    behind(cut)
