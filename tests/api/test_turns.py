"""Requests that wait for locks: few of a caller hold a connection, and no other caller waits."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.http.errors import ApiError
from cardledger.api.http.in_flight import Turn, Turns
from cardledger.api.http.strangers import AT_AN_ADDRESS, AT_ONCE, MISS_S, looking_up, turns_of
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.platforms.api_tokens import TOKEN_LIMIT
from tests.api.support import (
    TIMEOUT_S,
    AgentApi,
    Api,
    Tenant,
    made,
    new_tenant,
    ok,
    redeem,
    refused,
    server,
)
from tests.waiting import eventually

REQUESTS = 100
PLATFORM_WRITERS = 12
CODE_WRITERS = 2
LOOK_UPS = 2
CARD_PAGES = 2  # Of one address.
KEY_READERS = 2

NEW_TOKEN = {"name": "x", "permissions": ["VIEW"]}

_WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def url(api_config: ApiConfig) -> Iterator[str]:
    with server(api_config) as root:
        yield root


@pytest.fixture
def tenant(api_config: ApiConfig) -> Tenant:
    return new_tenant(api_config.database_url)


@contextmanager
def locked_caps(database_url: DatabaseUrl, tenant: Tenant) -> Iterator[None]:
    """Hold the lock for which requests wait that create tokens of `tenant`."""
    with psycopg.connect(database_url) as connection:
        name = f"api_tokens/{tenant.platform_id}"
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        yield


@contextmanager
def locked_agents(database_url: DatabaseUrl, tenant: Tenant) -> Iterator[None]:
    """Hold the rows of the agents of `tenant`."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "SELECT FROM agents WHERE platform_id = %s FOR UPDATE", [tenant.platform_id]
        )
        yield


@contextmanager
def locked_table(database_url: DatabaseUrl, table: str) -> Iterator[None]:
    """Let everybody wait who reads `table`."""
    with psycopg.connect(database_url) as connection:
        connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        yield


def check_that_others_do_not_wait(
    database_url: DatabaseUrl, root: str, pending: list[Future[httpx2.Response]], *, most: int
) -> None:
    """Check that `most` of the `pending` requests wait in PostgreSQL, and no other platform."""
    with (
        psycopg.connect(database_url, autocommit=True) as observer,
        Api(root, new_tenant(database_url)) as other,
    ):

        def waiting() -> int:
            [(count,)] = observer.execute(_WAITING)
            return int(count)

        eventually(lambda: waiting() >= most)
        for _ in range(5):
            made(other.post("/tokens", NEW_TOKEN))
            ok(other.get("/config"))
            assert waiting() <= most
    assert not all(request.done() for request in pending)


def test_requests_that_wait_for_a_cap_leave_connections_to_other_platforms(
    url: str, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    with (
        Api(url, tenant) as api,
        ThreadPoolExecutor(REQUESTS) as pool,
        locked_caps(database_url, tenant),
    ):
        pending = [pool.submit(api.post, "/tokens", NEW_TOKEN) for _ in range(REQUESTS)]

        check_that_others_do_not_wait(database_url, url, pending, most=PLATFORM_WRITERS)

    # The first ones may have waited longer than a lock is waited for.
    assert {request.result().status_code for request in pending} <= {201, 409, 503}
    assert pending[-1].result().status_code in {201, 409}


@pytest.mark.parametrize("with_key", [False, True])
def test_a_platform_has_one_replay_at_a_time(
    url: str, tenant: Tenant, database_url: DatabaseUrl, *, with_key: bool
) -> None:
    endpoint = {"url": "https://hooks.example.com/", "state": "DISABLED"}
    with Api(url, tenant) as api, ThreadPoolExecutor(REQUESTS) as pool:
        body = {
            "since": "2020-01-01T00:00:00Z",
            "endpointId": made(api.post("/webhooks/endpoints", endpoint))["id"],
        }

        def replay() -> httpx2.Response:
            headers = {"Idempotency-Key": str(uuid4())} if with_key else {}
            return api.http.post("/webhooks/replay", json=body, headers=headers)

        with psycopg.connect(database_url) as other_session:
            other_session.execute(
                "SELECT FROM webhook_endpoints WHERE platform_id = %s FOR UPDATE",
                [tenant.platform_id],
            )
            pending = [pool.submit(replay) for _ in range(20)]

            check_that_others_do_not_wait(database_url, url, pending, most=1)

        answers = [request.result().status_code for request in pending]

    # One runs, one waits; they may have waited longer than a lock is waited for.
    assert answers.count(429) >= len(pending) - 2
    assert set(answers) <= {200, 429, 503}


@pytest.mark.parametrize("with_key", [False, True])
def test_requests_with_one_device_code_leave_connections_to_others(
    url: str, tenant: Tenant, database_url: DatabaseUrl, *, with_key: bool
) -> None:
    with Api(url, tenant) as api:
        code = api.agent(api.customer()["id"])["deviceCode"]["code"]

    def send() -> httpx2.Response:
        return redeem(url, code, **({"Idempotency_Key": str(uuid4())} if with_key else {}))

    with ThreadPoolExecutor(REQUESTS) as pool, locked_agents(database_url, tenant):
        pending = [pool.submit(send) for _ in range(REQUESTS)]

        check_that_others_do_not_wait(database_url, url, pending, most=CODE_WRITERS)

    statuses = [request.result().status_code for request in pending]
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 400, 503}


def test_agents_that_are_looked_up_leave_connections_to_others(
    url: str, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    with Api(url, tenant) as api:
        token = api.agent_token(api.customer()["id"])

    with (
        AgentApi(url, token) as agent,
        ThreadPoolExecutor(REQUESTS) as pool,
        locked_table(database_url, "agents"),
    ):
        pending = [pool.submit(agent.get, "/agents/me") for _ in range(REQUESTS)]

        check_that_others_do_not_wait(database_url, url, pending, most=LOOK_UPS)

    assert {request.result().status_code for request in pending} <= {200, 503}


def test_card_pages_leave_connections_to_others(url: str, database_url: DatabaseUrl) -> None:
    page = f"{url}/embed/cards/{'x' * 43}"

    with ThreadPoolExecutor(REQUESTS) as pool, locked_table(database_url, "card_reveals"):
        pending = [pool.submit(httpx2.get, page, timeout=TIMEOUT_S) for _ in range(REQUESTS)]

        check_that_others_do_not_wait(database_url, url, pending, most=CARD_PAGES)

    assert {request.result().status_code for request in pending} <= {404, 503}


def test_readers_of_published_keys_leave_connections_to_others(
    url: str, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    keys = f"{url}/.well-known/cardledger/webhook-keys/PlatformConfig:{tenant.platform_id}"

    with (
        Api(url, new_tenant(database_url)) as other,
        psycopg.connect(database_url, autocommit=True) as observer,
        ThreadPoolExecutor(REQUESTS) as pool,
        locked_table(database_url, "webhook_signing_keys"),
    ):
        pending = [pool.submit(httpx2.get, keys, timeout=TIMEOUT_S) for _ in range(REQUESTS)]

        def waiting() -> int:
            [(count,)] = observer.execute(_WAITING)
            return int(count)

        eventually(lambda: waiting() >= KEY_READERS)
        for _ in range(5):
            made(other.post("/tokens", NEW_TOKEN))
            assert waiting() <= KEY_READERS

    assert {request.result().status_code for request in pending} <= {200, 503}
    assert pending[-1].result().status_code == 200


@pytest.mark.parametrize(
    "page",
    [
        "/embed/invitations/ABCDEFGH",
        f"/embed/kyc/{'0' * 32}_{'x' * 43}",
        f"/embed/cards/{'x' * 43}",
    ],
)
def test_guesses_of_a_page_take_turns_that_are_kept(url: str, page: str) -> None:
    guesses = 8 * CARD_PAGES
    began = monotonic()

    with ThreadPoolExecutor(guesses) as pool:
        answers = list(pool.map(lambda _: httpx2.get(f"{url}{page}"), range(guesses)))

    assert {answer.status_code for answer in answers} == {404}
    assert monotonic() - began >= guesses / AT_AN_ADDRESS * MISS_S


def test_guesses_from_one_address_keep_no_other_waiting() -> None:
    async def act() -> tuple[int, int]:
        turns, guessed = Turns(), list[int]()

        async def guess(number: int) -> None:
            async with looking_up(turns, "pages", "192.0.2.1") as look_up:
                look_up.is_miss = True
            guessed.append(number)

        guesses = [asyncio.create_task(guess(number)) for number in range(20 * AT_ONCE)]
        await asyncio.sleep(0)
        async with looking_up(turns, "pages", "192.0.2.2"):
            before = len(guessed)
        await asyncio.gather(*guesses)
        return before, len(guessed)

    before, after = asyncio.run(act())

    assert before <= AT_ONCE
    assert after == 20 * AT_ONCE


def test_readers_of_published_keys_wait_and_are_not_refused(
    api_config: ApiConfig,
    tenant: Tenant,
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defaults = Turns.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "waiting_limit", 2)
    path = f"/.well-known/cardledger/webhook-keys/PlatformConfig:{tenant.platform_id}"

    with (
        server(api_config) as root,
        psycopg.connect(database_url, autocommit=True) as observer,
        ThreadPoolExecutor(20) as pool,
        locked_table(database_url, "webhook_signing_keys"),
    ):
        pending = [pool.submit(httpx2.get, root + path, timeout=TIMEOUT_S) for _ in range(20)]

        def waiting() -> int:
            [(count,)] = observer.execute(_WAITING)
            return int(count)

        eventually(lambda: waiting() >= KEY_READERS)
        another = pool.submit(httpx2.get, root + path, timeout=TIMEOUT_S)

    assert {each.result().status_code for each in [*pending, another]} <= {200, 503}


def test_readers_without_an_address_share_the_turn_of_all() -> None:
    everyone = turns_of("pages", "")
    first, second = turns_of("pages", "192.0.2.1"), turns_of("pages", "192.0.2.2")

    assert (first[-1:], second[-1:]) == (everyone, everyone)
    assert first[0].who != second[0].who
    assert everyone[0].at_once > first[0].at_once


def test_requests_in_progress_above_the_limit_are_refused_at_once(
    api_config: ApiConfig, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    with (
        server(replace(api_config, in_progress_limit=2)) as root,
        Api(root, tenant) as api,
        Api(root, new_tenant(database_url)) as other,
        ThreadPoolExecutor(5) as pool,
        locked_caps(database_url, tenant),
    ):
        pending = [pool.submit(api.post, "/tokens", NEW_TOKEN) for _ in range(5)]

        eventually(lambda: sum(request.done() for request in pending) >= 3)
        ok(api.get("/config"))  # Reads are counted apart.
        made(other.post("/tokens", NEW_TOKEN))

    refusal = next(each.result() for each in pending if each.result().status_code == 429)
    assert refused(refusal, 429, "RATE_LIMITED")["message"].startswith("2 requests of this caller")
    assert refusal.headers["Retry-After"] == "1"


# --- what needs no lock --------------------------------------------------------------------------


def test_a_code_that_cannot_be_redeemed_is_refused_without_a_lock(
    url: str, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    with Api(url, tenant) as api:
        agents = [api.agent(api.customer()["id"]) for _ in range(2)]
        redeemed, replaced = (agent["deviceCode"]["code"] for agent in agents)
        key = str(uuid4())
        first = redeem(url, redeemed, Idempotency_Key=key)
        made(api.http.post(f"/agents/{agents[1]['agent']['id']}/device-codes"))

        with locked_agents(database_url, tenant):
            spent = [redeem(url, redeemed), redeem(url, redeemed, Idempotency_Key=str(uuid4()))]
            spent.append(redeem(url, replaced, Idempotency_Key=str(uuid4())))
            repeated = redeem(url, redeemed, Idempotency_Key=key)
            connected = api.http.post(f"/agents/{agents[0]['agent']['id']}/device-codes")

    reasons = [refused(answer, 400, "INVALID_INPUT")["details"]["reason"] for answer in spent]
    assert reasons == ["CODE_REDEEMED", "CODE_REDEEMED", "CODE_REPLACED"]
    assert ok(repeated) == {
        name: value for name, value in ok(first).items() if name != "accessToken"
    }
    refused(connected, 409, "CONFLICT")


def test_a_platform_at_its_cap_is_refused_without_a_lock(
    url: str, tenant: Tenant, database_url: DatabaseUrl
) -> None:
    for _ in range(TOKEN_LIMIT - 1):
        new_tenant(database_url, of=tenant)

    with Api(url, tenant) as api, locked_caps(database_url, tenant):
        answer = api.post("/tokens", NEW_TOKEN)

    assert refused(answer, 409, "CONFLICT")["details"] == {"limit": TOKEN_LIMIT}


# --- turns ---------------------------------------------------------------------------------------


def test_turns_are_taken_in_order_and_too_many_that_wait_are_refused_at_once() -> None:
    async def act() -> tuple[list[int], ApiError]:
        turns, turn, order = Turns(waiting_limit=2), Turn("caller", 1), list[int]()
        free, begun = asyncio.Event(), asyncio.Event()

        async def write(number: int) -> None:
            async with turns.take(turn):
                order.append(number)
                begun.set()
                await free.wait()

        tasks = [asyncio.create_task(write(number)) for number in range(3)]
        await begun.wait()
        with pytest.raises(ApiError) as refusal:
            await write(3)
        async with turns.take(Turn("another caller", 1)):
            pass
        tasks[1].cancel()
        free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not turns._queues, "nothing is kept of callers without requests"
        return order, refusal.value

    order, refusal = asyncio.run(act())

    assert order == [0, 2]
    assert (refusal.status, refusal.headers["Retry-After"]) == (429, "1")
