"""Contact verification: where it is required it works, with the sandbox's code; elsewhere 409."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, at_once, new_tenant, ok, refused, server

RIGHT, WRONG = {"code": "123456"}, {"code": "000000"}
EUROPEAN = {"region": "DE", "email": "ada@example.com", "phoneNumber": "+4915112345678"}
CHANNELS = [("email", "email"), ("phone", "phone")]


class Clock:
    """The time of a server, which tests move."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def timed(api_config: ApiConfig, clock: Clock) -> Iterator[Api]:
    """The interface of a server whose clock tests move."""
    with (
        server(api_config, clock=clock) as url,
        Api(url, new_tenant(api_config.database_url)) as client,
    ):
        yield client


@pytest.fixture
def european(api: Api) -> dict[str, Any]:
    return api.customer(**EUROPEAN)


def path_of(customer: dict[str, Any], channel: str) -> str:
    return f"/customers/{customer['id']}/verify-{channel}"


def start(api: Api, customer: dict[str, Any], channel: str) -> None:
    answer = api.post(path_of(customer, channel), None)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


@pytest.mark.parametrize(("channel", "field"), CHANNELS)
def test_a_contact_is_verified_by_the_code_that_was_sent(
    api: Api, european: dict[str, Any], channel: str, field: str
) -> None:
    assert european["contactVerification"] == {"email": "PENDING", "phone": "PENDING"}
    start(api, european, channel)

    verified = ok(api.post(path_of(european, channel) + "/confirm", RIGHT))

    other = {"email": "phone", "phone": "email"}[field]
    assert verified["contactVerification"] == {field: "VERIFIED", other: "PENDING"}
    assert ok(api.get(f"/customers/{european['id']}")) == verified
    listed = ok(api.get("/customers", platformCustomerId=european["platformCustomerId"]))["data"]
    assert listed == [verified]


@pytest.mark.parametrize(("channel", "_field"), CHANNELS)
def test_a_verified_contact_is_not_verified_again(
    api: Api, european: dict[str, Any], channel: str, _field: str
) -> None:
    start(api, european, channel)
    ok(api.post(path_of(european, channel) + "/confirm", RIGHT))

    for answer in (
        api.post(path_of(european, channel), None),
        api.post(path_of(european, channel) + "/confirm", RIGHT),
    ):
        assert refused(answer, 409, "CONFLICT")["details"] == {"reason": "ALREADY_VERIFIED"}


@pytest.mark.parametrize("region", [None, "US", "GB", "CH"])
def test_outside_the_european_economic_area_every_operation_is_409(
    api: Api, region: str | None
) -> None:
    customer = api.customer(**EUROPEAN | {"region": region})
    assert "contactVerification" not in customer

    for channel, _ in CHANNELS:
        for answer in (
            api.post(path_of(customer, channel), None),
            api.post(path_of(customer, channel) + "/confirm", RIGHT),
        ):
            assert refused(answer, 409, "CONFLICT")["details"] == {"reason": "NOT_REQUIRED"}


def test_without_a_sender_of_codes_no_customer_needs_it(api_config: ApiConfig) -> None:
    config = replace(api_config, sandbox=False)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as real:
        customer = real.customer(**EUROPEAN)

        answer = real.post(path_of(customer, "email"), None)

    refused(answer, 409, "CONFLICT")


@pytest.mark.parametrize("end", ["", "/confirm"])
@pytest.mark.parametrize(("channel", "_field"), CHANNELS)
def test_an_unknown_customer_is_404_and_a_bad_body_400(
    api: Api, european: dict[str, Any], channel: str, _field: str, end: str
) -> None:
    unknown = {"id": f"Customer:{new_id()}"}
    gone = api.customer(**EUROPEAN)
    ok(api.delete(f"/customers/{gone['id']}"))
    body = RIGHT if end else None

    for customer in (unknown, gone):
        refused(api.post(path_of(customer, channel) + end, body), 404, "USER_NOT_FOUND")
    bad: list[object] = [{"code": 123456}, {"code": ""}, {"code": "1" * 65}, {}, {"x": 1}, []]
    for wrong in bad if end else [{"code": "123456"}]:
        refused(api.post(path_of(european, channel) + end, wrong), 400, "INVALID_INPUT")


def test_a_wrong_code_is_400_and_after_five_the_code_is_void(
    api: Api, european: dict[str, Any]
) -> None:
    start(api, european, "email")
    confirm = path_of(european, "email") + "/confirm"

    left = [refused(api.post(confirm, WRONG), 400, "INVALID_INPUT")["details"] for _ in range(5)]

    assert [one["attemptsLeft"] for one in left] == [4, 3, 2, 1, 0]
    assert {one["reason"] for one in left} == {"WRONG_CODE"}
    assert [one["errors"][0]["field"] for one in left] == ["code"] * 5
    locked = refused(api.post(confirm, RIGHT), 423, "ACCOUNT_LOCKED")
    assert locked["details"]["failedAttempts"] == 5


def test_wrong_codes_lock_the_customer_for_thirty_minutes(timed: Api, clock: Clock) -> None:
    european = timed.customer(**EUROPEAN)
    for channel in ("email", "phone"):  # The attempts of both count together.
        start(timed, european, channel)
    for channel, count in (("email", 3), ("phone", 2)):
        for _ in range(count):
            refused(
                timed.post(path_of(european, channel) + "/confirm", WRONG), 400, "INVALID_INPUT"
            )
    start(timed, european, "email")  # Another code is no way around the lock.

    locked = timed.post(path_of(european, "email") + "/confirm", RIGHT)
    clock.ahead += timedelta(minutes=30, seconds=1)
    start(timed, european, "email")

    refused(locked, 423, "ACCOUNT_LOCKED")
    ok(timed.post(path_of(european, "email") + "/confirm", RIGHT))


def test_a_repetition_with_an_idempotency_key_does_not_take_the_count_back(
    api: Api, european: dict[str, Any]
) -> None:
    start(api, european, "email")
    confirm = path_of(european, "email") + "/confirm"

    def guess() -> dict[str, Any]:
        key = {"Idempotency-Key": str(uuid4())}
        first = api.http.post(confirm, json=WRONG, headers=key)
        again = api.http.post(confirm, json=WRONG, headers=key)
        assert again.json() == first.json()
        return dict(refused(first, 400, "INVALID_INPUT")["details"])

    assert [guess()["attemptsLeft"] for _ in range(5)] == [4, 3, 2, 1, 0]
    assert refused(api.post(confirm, RIGHT), 423, "ACCOUNT_LOCKED")


def test_a_hundred_guesses_at_once_count_as_five(api: Api, european: dict[str, Any]) -> None:
    start(api, european, "phone")
    other = api.customer(**EUROPEAN)
    start(api, other, "phone")
    confirm = path_of(european, "phone") + "/confirm"

    answers = at_once(20, lambda: api.post(confirm, WRONG))

    assert sorted(answer.status_code for answer in answers) == [400] * 5 + [423] * 15
    for answer in answers:
        if answer.status_code == 400:
            assert answer.json()["details"]["reason"] == "WRONG_CODE"
    ok(api.post(path_of(other, "phone") + "/confirm", RIGHT))


def test_a_contact_gets_five_codes_an_hour(timed: Api, clock: Clock) -> None:
    european = timed.customer(**EUROPEAN)
    for _ in range(5):
        start(timed, european, "email")

    answer = timed.post(path_of(european, "email"), None)

    refused(answer, 429, "RATE_LIMITED")
    assert 3_500 < int(answer.headers["retry-after"]) <= 3_600
    start(timed, european, "phone")
    clock.ahead += timedelta(hours=1, seconds=1)
    start(timed, european, "email")


def test_a_code_expires_after_five_minutes(timed: Api, clock: Clock) -> None:
    european = timed.customer(**EUROPEAN)
    start(timed, european, "email")
    clock.ahead += timedelta(minutes=5, seconds=1)

    late = timed.post(path_of(european, "email") + "/confirm", RIGHT)

    assert refused(late, 400, "INVALID_INPUT")["details"]["reason"] == "CODE_EXPIRED"


def test_without_a_start_there_is_nothing_to_confirm(api: Api, european: dict[str, Any]) -> None:
    answer = api.post(path_of(european, "email") + "/confirm", RIGHT)

    assert refused(answer, 400, "INVALID_INPUT")["details"]["reason"] == "CODE_EXPIRED"


def test_a_new_address_has_to_be_verified_and_an_old_code_does_not_do_it(
    api: Api, european: dict[str, Any]
) -> None:
    start(api, european, "email")
    change = {"customerType": "INDIVIDUAL", "email": "eve@example.com"}

    changed = ok(api.patch(f"/customers/{european['id']}", change))

    assert changed["contactVerification"]["email"] == "PENDING"
    refused(api.post(path_of(european, "email") + "/confirm", RIGHT), 400, "INVALID_INPUT")
    start(api, european, "email")
    verified = ok(api.post(path_of(european, "email") + "/confirm", RIGHT))
    assert verified["contactVerification"]["email"] == "VERIFIED"
    back = {"customerType": "INDIVIDUAL", "email": "ada@example.com"}
    again = ok(api.patch(f"/customers/{european['id']}", back))
    assert again["contactVerification"]["email"] == "PENDING"


def test_only_a_token_that_manages_may_verify(
    root: str, api: Api, european: dict[str, Any], api_config: ApiConfig
) -> None:
    reader = new_tenant(api_config.database_url, permissions=("VIEW", "TRANSACT"), of=api.tenant)
    with Api(root, reader) as looking:
        refused(looking.post(path_of(european, "email"), None), 403, "FORBIDDEN")
        refused(looking.post(path_of(european, "email") + "/confirm", RIGHT), 403, "FORBIDDEN")
