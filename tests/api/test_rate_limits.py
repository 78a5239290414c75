"""Callers over their rate limit get 429 with the time to retry; other callers are unaffected."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import httpx2
import pytest
from redis import Redis

from cardledger.api.app import ApiConfig
from cardledger.api.http import rate_limits
from cardledger.api.http.authentication import REFUSAL_PAUSE_S
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.http.routing import MAX_BODY
from cardledger.api.http.sliding_window import Rate
from cardledger.workers.signals.shared_counts import (
    EXCHANGE_LIMIT,
    SharedCountsUnavailableError,
)
from tests.api.support import (
    SECRET_KEY,
    AgentApi,
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
    return replace(api_config, rate_limit=f"{LIMIT}/day", failure_limit=f"{FAILURES}/day")


@pytest.fixture
def url(limited: ApiConfig, redis_url: str) -> Iterator[str]:
    # A server for each test, and nothing in Redis: all come from one address.
    with Redis.from_url(redis_url) as client:
        for key in client.scan_iter("cardledger:counts:*"):
            client.delete(key)
    with server(limited) as root:
        yield root


@pytest.fixture
def tenant(limited: ApiConfig) -> Tenant:
    return new_tenant(limited.database_url)


def test_a_request_over_the_limit_returns_when_to_retry(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        for _ in range(LIMIT):
            ok(api.get("/config"))

        answer = api.get("/config")

    body = refused(answer, 429, "RATE_LIMITED")
    assert str(LIMIT) in body["message"]
    after_s, after_ms = int(answer.headers["retry-after"]), int(answer.headers["retry-after-ms"])
    assert after_s >= 1
    assert (after_s - 1) * 1000 < after_ms <= after_s * 1000


def test_a_form_counts_by_its_size(url: str, tenant: Tenant) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    begin = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    with Api(url, tenant) as api:
        # As a body of 64 KiB each: 15 requests more.
        answer = api.http.post(
            "/customers/bulk/csv", content=begin + b"x" * (15 * MAX_BODY), headers=headers
        )
        others = [api.get("/config").status_code for _ in range(LIMIT - 15)]

    refused(answer, 400, "INVALID_INPUT")
    assert others == [200] * (LIMIT - 16) + [429]


@pytest.mark.parametrize(
    ("lane", "events"),
    [
        ("BULK", [{"a": "x" * (MAX_BODY - 100)}] * 15),
        ("LIVE", [{"a": 1}] * 15),
        ("BULK", [{"a": 1}] * 1500),
    ],
    ids=["large", "live", "many"],
)
def test_events_count_by_their_number_or_by_their_bytes(
    url: str, tenant: Tenant, lane: str, events: list[object]
) -> None:
    # 15 requests: of 64 KiB, of an event that others wait for, of 100 events of a file.
    content = "\n".join(map(json.dumps, events)).encode()
    headers = {"content-type": "application/x-ndjson"}
    with Api(url, tenant) as api:
        answer = api.http.post(
            f"{url}/network-events?lane={lane}", content=content, headers=headers
        )
        others = [api.get("/config").status_code for _ in range(LIMIT - 14)]

    assert {json.loads(line)["outcome"] for line in answer.text.splitlines()} == {"REJECTED"}
    assert others == [200] * (LIMIT - 15) + [429]


def test_the_tokens_of_a_platform_share_its_limit(
    url: str, limited: ApiConfig, tenant: Tenant
) -> None:
    second, stranger = new_tenant(limited.database_url, of=tenant), new_tenant(limited.database_url)
    with Api(url, tenant) as api, Api(url, second) as same, Api(url, stranger) as other:
        for _ in range(LIMIT):
            ok(api.get("/config"))

        refused(same.get("/config"), 429, "RATE_LIMITED")
        ok(other.get("/config"))


def test_the_agents_of_a_platform_share_a_limit_of_their_own(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        customer = api.customer()["id"]
        busy, other = (AgentApi(url, api.agent_token(customer)) for _ in range(2))
        with busy, other:
            for _ in range(LIMIT):
                ok(busy.get("/agents/me"))

            refused(other.get("/agents/me"), 429, "RATE_LIMITED")
            ok(api.get("/config"))


def test_a_rate_limited_request_has_no_effect(url: str, tenant: Tenant) -> None:
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


def test_off_disables_the_limit(api: Api) -> None:
    answers = {api.get("/config").status_code for _ in range(5 * LIMIT)}

    assert answers == {200}


# --- guesses ---------------------------------------------------------------------------------


def guess(url: str, tenant: Tenant, secret: str = "") -> httpx2.Response:
    with Api(url, replace(tenant, client_secret=secret)) as guesser:
        return guesser.get("/config")


def unknown(tenant: Tenant) -> Tenant:
    """Return credentials with an id that has never existed."""
    return replace(tenant, client_id=f"clid_{uuid4().hex[:24]}")


def test_wrong_secrets_of_an_id_are_rate_limited_and_its_right_secret_passes(
    url: str, tenant: Tenant
) -> None:
    for number in range(FAILURES):
        refused(guess(url, tenant, f"guess {number}"), 401, "UNAUTHORIZED")

    answer = guess(url, tenant, "one more")
    refused(answer, 429, "RATE_LIMITED")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.elapsed.total_seconds() >= REFUSAL_PAUSE_S
    ok(guess(url, tenant, tenant.client_secret))
    refused(guess(url, tenant, "and one more"), 429, "RATE_LIMITED")


def test_wrong_secrets_of_an_id_are_not_counted_for_other_ids(
    url: str, limited: ApiConfig, tenant: Tenant
) -> None:
    while guess(url, tenant).status_code != 429:
        pass

    other = new_tenant(limited.database_url)

    refused(guess(url, other), 401, "UNAUTHORIZED")
    refused(guess(url, unknown(tenant)), 401, "UNAUTHORIZED")


def test_unknown_ids_are_counted_by_address_and_known_ids_are_not(url: str, tenant: Tenant) -> None:
    for _ in range(FAILURES):
        refused(guess(url, unknown(tenant)), 401, "UNAUTHORIZED")

    refused(guess(url, unknown(tenant)), 429, "RATE_LIMITED")
    # Credentials that this process has never seen.
    refused(guess(url, tenant), 401, "UNAUTHORIZED")
    ok(guess(url, tenant, tenant.client_secret))


def test_valid_credentials_are_not_counted_as_failures(url: str, tenant: Tenant) -> None:
    for _ in range(3 * FAILURES):
        with Api(url, tenant) as api:
            ok(api.get("/config"))

    refused(guess(url, tenant), 401, "UNAUTHORIZED")


def test_missing_credentials_are_not_counted_as_guesses(url: str) -> None:
    for _ in range(3 * FAILURES):
        answer = httpx2.get(url + "/2025-10-13/config")
        refused(answer, 401, "UNAUTHORIZED")


def test_wrong_device_codes_are_rate_limited_and_right_codes_pass(url: str, tenant: Tenant) -> None:
    with Api(url, tenant) as api:
        code, spent = (api.agent(api.customer()["id"])["deviceCode"]["code"] for _ in range(2))
    ok(redeem(url, spent))

    for _ in range(FAILURES):
        refused(redeem(url, "AAAAA-AAAAA-AAAAA"), 404, "REFERENCE_NOT_FOUND")

    refused(redeem(url, "AAAAA-AAAAA-AAAAB"), 429, "RATE_LIMITED")
    # A code that has been used up is counted by itself.
    for _ in range(FAILURES):
        refused(redeem(url, spent), 400, "INVALID_INPUT")
    answer = redeem(url, spent)
    refused(answer, 429, "RATE_LIMITED")
    assert answer.elapsed.total_seconds() >= REFUSAL_PAUSE_S
    ok(redeem(url, code))


def test_wrong_bearer_tokens_lock_out_no_agent(url: str, tenant: Tenant) -> None:
    def look(token: str) -> httpx2.Response:
        with AgentApi(url, token) as agent:
            return agent.get("/agents/me")

    with Api(url, tenant) as api:
        first, second = (api.agent_token(api.customer()["id"]) for _ in range(2))
    for _ in range(FAILURES):
        refused(look("guess"), 401, "UNAUTHORIZED")
    refused(look("guess"), 429, "RATE_LIMITED")
    wrong = first[:-8] + "x" * 8
    for _ in range(FAILURES):
        refused(look(wrong), 401, "UNAUTHORIZED")

    refused(look(wrong), 429, "RATE_LIMITED")
    refused(look(second[:-8] + "x" * 8), 401, "UNAUTHORIZED")
    ok(look(first))  # This process has not seen them before.
    ok(look(second))


# --- what it costs ---------------------------------------------------------------------------


def test_counting_costs_a_request_next_to_nothing(redis_url: str) -> None:
    async def act() -> float:
        async with RateLimits({"requests": Rate(10**9, 60)}, redis_url, SECRET_KEY) as limits:
            begin = time.thread_time()
            for number in range(10_000):
                limits.admit("requests", f"token {number % 100}")
            return (time.thread_time() - begin) / 10_000

    assert asyncio.run(act()) < 0.0003


def test_expired_counts_are_dropped(redis_url: str) -> None:
    now = 0.0

    async def act() -> int:
        nonlocal now
        limits = RateLimits({"requests": Rate(1, 1)}, redis_url, SECRET_KEY, clock=lambda: now)
        for number in range(20_000):
            limits.admit("requests", f"token {number}")
        now = 100.0
        limits._prune()
        return len(limits._counts["requests"]) + len(limits._unsent["requests"])

    assert asyncio.run(act()) == 0


def test_counts_are_bounded_and_a_flood_of_addresses_displaces_no_platform(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_COUNT_LIMIT", 100)
    day = Rate(1, 86_400)

    async def act() -> tuple[int, int]:
        limits = RateLimits({"requests": day, "failures": day}, redis_url, SECRET_KEY)
        limits.admit("requests", "platform")
        limits.admit("failures", "10.0.0.1")
        for number in range(1000):
            limits.admit("failures", f"network {number}")
            with pytest.raises(ApiError):
                limits.admit("failures", "10.0.0.1")  # In use, so it is not displaced.
        with pytest.raises(ApiError):
            limits.admit("requests", "platform")
        return len(limits._counts["failures"]), len(limits._unsent["failures"])

    assert asyncio.run(act()) == (100, 100)


def test_counts_of_other_processes_are_included(redis_url: str) -> None:
    async def act() -> None:
        limits = {"requests": Rate(10, 3600)}
        at = time.time() // 3600 * 3600 + 1
        async with (
            RateLimits(limits, redis_url, SECRET_KEY, clock=lambda: at) as one,
            RateLimits(limits, redis_url, SECRET_KEY, clock=lambda: at) as other,
        ):
            for _ in range(6):
                one.admit("requests", "token")
            await one._exchange()
            for _ in range(3):
                other.admit("requests", "token")
            await other._exchange()
            other.admit("requests", "token")
            with pytest.raises(ApiError):
                other.admit("requests", "token")

    asyncio.run(act())


def test_few_unsent_counts_of_a_past_window_are_dropped_too(redis_url: str) -> None:
    now = 0.0

    async def act() -> list[tuple[str, int]]:
        nonlocal now
        limits = RateLimits({"requests": Rate(9, 1)}, redis_url, SECRET_KEY, clock=lambda: now)
        limits.admit("requests", "expired")
        now = 2.0
        limits.admit("requests", "present")
        limits._prune()
        return list(limits._unsent["requests"])

    assert asyncio.run(act()) == [("present", 2)]


def test_a_flood_against_one_limit_delays_the_counts_of_no_other(redis_url: str) -> None:
    day = Rate(1_000, 86_400)

    async def act() -> tuple[int, list[int]]:
        limits = RateLimits({"failures": day, "requests": day}, redis_url, SECRET_KEY)
        for number in range(2 * EXCHANGE_LIMIT):
            limits.admit("failures", f"network {number}")
        limits.admit("requests", "platform")
        await limits._exchange()
        sent = len(limits._unsent["requests"]), [len(limits._unsent["failures"])]
        while limits._has_unsent.is_set():
            await limits._exchange()
            sent[1].append(len(limits._unsent["failures"]))
        await limits._shared.close()
        return sent

    unsent, flood = asyncio.run(act())

    assert unsent == 0
    assert flood == [3 * EXCHANGE_LIMIT // 2, EXCHANGE_LIMIT, EXCHANGE_LIMIT // 2, 0]


def test_counts_that_could_not_be_sent_are_sent_later() -> None:
    async def act() -> dict[tuple[str, int], int]:
        limits = RateLimits(
            {"requests": Rate(9, 86_400)}, f"redis://127.0.0.1:{closed_port()}", SECRET_KEY
        )
        limits.admit("requests", "platform")
        limits.admit("requests", "platform")
        with pytest.raises(SharedCountsUnavailableError):
            await limits._exchange()
        assert limits._has_unsent.is_set()
        return dict(limits._unsent["requests"])

    assert list(asyncio.run(act()).values()) == [2]
