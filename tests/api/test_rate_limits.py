"""Who asks too often is told when to come again; nobody else notices."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest
from redis import Redis

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import RateLimits, stranger
from cardledger.api.http.sliding_window import Rate
from tests.api.support import (
    Api,
    Tenant,
    closed_port,
    new_tenant,
    ok,
    redeem,
    refused,
    server,
)
from tests.waiting import eventually, limit_s

LIMIT = 20
FAILURES = 5


@pytest.fixture(scope="module")
def limited(api_config: ApiConfig) -> ApiConfig:
    # Per day: no test sees a window turn, unless it runs at midnight, which lets in fewer.
    return replace(
        api_config, rate_limit=f"{LIMIT}/day", failure_limit=f"{FAILURES}/day", reply_timeout_s=1
    )


@pytest.fixture
def url(limited: ApiConfig, redis_url: str) -> Iterator[str]:
    # A server for each test, and nothing in Redis: all come from one address.
    with Redis.from_url(redis_url) as client:
        for key in client.scan_iter("cardledger:rate:*"):
            client.delete(key)
    with server(limited) as root:
        yield root


@pytest.fixture
def tenant(limited: ApiConfig) -> Tenant:
    return new_tenant(limited.database_url)


def test_one_too_many_is_told_when_to_come_again(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        for _ in range(LIMIT):
            ok(api.get("/config"))

        answer = api.get("/config")

    body = refused(answer, 429, "RATE_LIMITED")
    assert str(LIMIT) in body["message"]
    after_s, after_ms = int(answer.headers["retry-after"]), int(answer.headers["retry-after-ms"])
    assert after_s >= 1
    assert (after_s - 1) * 1000 < after_ms <= after_s * 1000


def test_another_token_of_the_same_platform_is_not_held_back(
    url: str, limited: ApiConfig, tenant: Tenant
) -> None:
    other = new_tenant(limited.database_url, of=tenant)
    with Api(url, tenant) as busy, Api(url, other) as freeze:
        while busy.get("/config").status_code != 429:
            pass

        ok(freeze.get("/config"))


def test_a_request_that_is_held_back_does_nothing(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        while api.get("/config").status_code != 429:
            pass

        refused(api.post("/customers", {"customerType": "INDIVIDUAL"}), 429, "RATE_LIMITED")
        refused(api.raw("POST", "/customers", b"{"), 429, "RATE_LIMITED")


def test_processes_share_a_limit(url: str, limited: ApiConfig, tenant: Tenant) -> None:
    with server(limited) as other_url, Api(url, tenant) as one, Api(other_url, tenant) as other:
        while one.get("/config").status_code != 429:
            pass

        def look() -> bool:
            return other.get("/config").status_code == 429

        begin = time.monotonic()
        assert eventually(look)
        # By what it hears, not by counting to the limit itself, for which it has to ask less often.
        assert time.monotonic() - begin < limit_s(5)


def test_without_redis_a_process_counts_by_itself(limited: ApiConfig, tenant: Tenant) -> None:
    alone = replace(limited, redis_url=f"redis://127.0.0.1:{closed_port()}")
    with server(alone) as url, Api(url, tenant) as api:
        answers = [api.get("/config").status_code for _ in range(LIMIT + 5)]

    assert answers == [200] * LIMIT + [429] * 5


def test_off_is_no_limit(api: Api) -> None:
    answers = {api.get("/config").status_code for _ in range(5 * LIMIT)}

    assert answers == {200}


# --- guesses ---------------------------------------------------------------------------------


def guess(url: str, tenant: Tenant, secret: str = "") -> httpx2.Response:
    with Api(url, replace(tenant, client_secret=secret)) as guesser:
        return guesser.get("/config")


def test_guessing_a_secret_ends_soon(url: str, tenant: Tenant) -> None:
    for number in range(FAILURES):
        refused(guess(url, tenant, f"guess {number}"), 401, "UNAUTHORIZED")

    refused(guess(url, tenant), 429, "RATE_LIMITED")
    # And a right guess looks like a wrong one.
    answer = guess(url, tenant, tenant.client_secret)
    refused(answer, 429, "RATE_LIMITED")
    assert int(answer.headers["retry-after"]) >= 1


def test_a_guesser_next_door_locks_out_nobody_who_is_known(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        ok(api.get("/config"))
        while guess(url, tenant).status_code != 429:
            pass

        ok(api.get("/config"))


def test_a_guesser_next_door_locks_out_no_other_token(
    url: str, limited: ApiConfig, tenant: Tenant
) -> None:
    others = [new_tenant(limited.database_url) for _ in range(3)]
    while guess(url, tenant).status_code != 429:
        pass

    answers = []
    for other in others:
        with Api(url, other) as api:
            answers.append(api.get("/config").status_code)

    # By 1 in 1,024 each, one of them has the place of the guessed one.
    assert answers.count(200) >= 2


def test_right_credentials_are_no_failures(url: str, tenant: Tenant) -> None:
    for _ in range(3 * FAILURES):
        with Api(url, tenant) as api:
            ok(api.get("/config"))

    refused(guess(url, tenant), 401, "UNAUTHORIZED")


def test_a_burst_of_first_requests_is_no_guess(url: str, tenant: Tenant) -> None:
    async def at_once() -> list[int]:
        access = (tenant.client_id, tenant.client_secret)
        limits = httpx2.Limits(max_connections=LIMIT)
        async with httpx2.AsyncClient(base_url=url, auth=access, limits=limits) as client:
            asked = [client.get(BASE_PATH + "/config") for _ in range(LIMIT)]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(at_once()) == [200] * LIMIT


def test_no_credentials_at_all_are_no_guess(url: str) -> None:
    for _ in range(3 * FAILURES):
        answer = httpx2.get(url + "/2025-10-13/config")
        refused(answer, 401, "UNAUTHORIZED")


def test_guessing_device_codes_ends_soon_and_right_ones_are_no_guess(
    url: str, tenant: Tenant
) -> None:
    with Api(url, tenant) as api:
        customer = api.customer()["id"]
        codes = [api.agent(customer)["deviceCode"]["code"] for _ in range(FAILURES + 2)]
    for code in codes[1:]:
        ok(redeem(url, code))

    for _ in range(FAILURES):
        refused(redeem(url, "AAAA-AAAA"), 404, "REFERENCE_NOT_FOUND")

    refused(redeem(url, "AAAA-AAAB"), 429, "RATE_LIMITED")
    refused(redeem(url, codes[0]), 429, "RATE_LIMITED")


def test_guessing_agents_tokens_locks_out_no_agent_that_is_known(url: str, tenant: Tenant) -> None:
    def look(token: str) -> httpx2.Response:
        header = {"authorization": f"Bearer {token}"}
        return httpx2.get(f"{url}{BASE_PATH}/agents/me", headers=header)

    with Api(url, tenant) as api:
        token = api.agent_token(api.customer()["id"])
    ok(look(token))
    for _ in range(FAILURES):
        refused(look("guess"), 401, "UNAUTHORIZED")
    refused(look("guess"), 429, "RATE_LIMITED")

    for _ in range(LIMIT - 1):
        ok(look(token))

    # And an agent is held to the limit on requests as a token is.
    refused(look(token), 429, "RATE_LIMITED")


def test_an_address_is_a_network_where_everybody_has_one() -> None:
    assert stranger("10.0.0.1", "x") != stranger("10.0.0.2", "x")
    assert stranger("10.0.0.1", "x") != stranger("10.0.0.1", "y")
    assert stranger("2001:db8::1", "x") == stranger("2001:db8::ffff:1", "x")
    assert stranger("2001:db8::1", "x") != stranger("2001:db8:0:1::1", "x")
    assert stranger("::ffff:10.0.0.1", "x") == stranger("10.0.0.1", "x")


# --- what it costs ---------------------------------------------------------------------------


def test_counting_costs_a_request_next_to_nothing(redis_url: str) -> None:
    async def act() -> float:
        async with RateLimits({"requests": Rate(10**9, 60)}, redis_url) as limits:
            begin = time.thread_time()
            for number in range(10_000):
                limits.admit("requests", f"token {number % 100}")
            return (time.thread_time() - begin) / 10_000

    assert asyncio.run(act()) < 0.0003


def test_what_is_past_is_forgotten(redis_url: str) -> None:
    now = 0.0

    async def act() -> int:
        nonlocal now
        limits = RateLimits({"requests": Rate(1, 1)}, redis_url, clock=lambda: now)
        for number in range(20_000):
            limits.admit("requests", f"token {number}")
        now = 100.0
        limits._forget()
        return len(limits._counts) + len(limits._untold)

    assert asyncio.run(act()) == 0


def test_counts_of_the_others_are_taken_over(redis_url: str) -> None:
    async def act() -> None:
        limits = {"requests": Rate(10, 3600)}
        at = time.time() // 3600 * 3600 + 1
        async with (
            RateLimits(limits, redis_url, clock=lambda: at) as one,
            RateLimits(limits, redis_url, clock=lambda: at) as other,
        ):
            for _ in range(6):
                one.admit("requests", "token")
            await one._tell()
            for _ in range(3):
                other.admit("requests", "token")
            await other._tell()
            other.admit("requests", "token")
            with pytest.raises(ApiError):
                other.admit("requests", "token")

    asyncio.run(act())
