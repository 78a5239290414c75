"""Strong customer authentication: factors, logins, the lock, resets, trusted accounts."""

import re
from base64 import b32decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx2
import psycopg
import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, at_once, made, new_tenant, ok, refused, server
from tests.external_accounts import body as external_account
from tests.external_accounts import info, new_account_number

CODE, WRONG = "123456", "000000"
EUROPEAN = {"region": "DE", "email": "ada@example.com", "phoneNumber": "+4915112345678"}
ADDRESS = "192.0.2.1"


class Clock:
    """The time of a server, which tests move."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Person:
    """A customer of the European Economic Area, as its platform calls for it."""

    def __init__(self, api: Api, **fields: object) -> None:
        self.api = api
        self.id = str(api.customer(**EUROPEAN | fields)["id"])

    def verify(self, *channels: str) -> "Person":
        for channel in channels or ("email", "phone"):
            path = f"/customers/{self.id}/verify-{channel}"
            assert self.api.post(path, None).status_code == 204
            ok(self.api.post(path + "/confirm", {"code": CODE}))
        return self

    def post(self, path: str, body: object) -> httpx2.Response:
        return self.api.post(f"/sca/{path}?customerId={self.id}", body)

    def get(self, path: str) -> httpx2.Response:
        return self.api.get(f"/sca/{path}", customerId=self.id)

    def factors(self) -> list[str]:
        return [factor["factor"] for factor in ok(self.get("factors"))["factors"]]

    def enrol(self) -> tuple[dict[str, str], list[str]]:
        """Enrol an authenticator; returns its secret and the recovery codes."""
        started: dict[str, str] = ok(self.post("factors", {"type": "TOTP"}))
        proof = {"type": "TOTP", "secret": started["secret"], "code": CODE}
        return started, ok(self.post("factors/confirm", proof))["recoveryCodes"]

    def login(self, code: str = CODE, factor: str = "SMS_OTP", **more: object) -> httpx2.Response:
        body = {"factor": factor, "code": code, "endUserIpAddress": ADDRESS}
        return self.post("login/complete", body | more)

    def account(self, number: str | None = None) -> str:
        details = info("USD_ACCOUNT", accountNumber=number or new_account_number())
        wish = external_account("USD_ACCOUNT", accountInfo=details, customerId=self.id)
        return str(made(self.api.post("/customers/external-accounts", wish))["id"])


@pytest.fixture
def person(api: Api) -> Person:
    return Person(api).verify()


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


def reason(answer: httpx2.Response, status: int, code: str) -> str:
    return str(refused(answer, status, code)["details"]["reason"])


def code_of(secret_base32: str, at: datetime) -> str:
    """Return what an authenticator shows, by a library of others."""
    secret = b32decode(secret_base32)
    return TOTP(secret, 6, SHA1(), 30).generate(at.timestamp()).decode()  # noqa: S303 - RFC 6238


# --- factors -------------------------------------------------------------------------------------


def test_factors_follow_from_verified_contacts_and_enrolment(api: Api) -> None:
    person = Person(api)
    assert person.factors() == []

    assert person.verify("phone").factors() == ["SMS_OTP"]
    assert person.verify("email").factors() == ["SMS_OTP", "EMAIL_OTP"]
    person.enrol()
    assert person.factors() == ["SMS_OTP", "EMAIL_OTP", "TOTP"]


def test_an_authenticator_gets_a_secret_and_recovery_codes_once(person: Person) -> None:
    started, recovery_codes = person.enrol()

    assert b32decode(started["secretBase32Encoded"]) == bytes.fromhex(started["secret"])
    assert started["totpUri"].startswith("otpauth://totp/")
    assert f"secret={started['secretBase32Encoded']}" in started["totpUri"]
    assert len(set(recovery_codes)) == 10
    assert all(re.fullmatch("[2-9A-Z]{5}-[2-9A-Z]{5}", one) for one in recovery_codes)
    again = person.post("factors", {"type": "TOTP"})
    assert reason(again, 409, "CONFLICT") == "ALREADY_ENROLLED"


def test_an_authenticator_shows_codes_of_rfc_6238_and_each_is_accepted_once(
    person: Person,
) -> None:
    started = ok(person.post("factors", {"type": "TOTP"}))
    secret = started["secretBase32Encoded"]
    now = code_of(secret, datetime.now(UTC))
    later = code_of(secret, datetime.now(UTC) + timedelta(seconds=30))
    proof = {"type": "TOTP", "secret": started["secret"], "code": now}

    ok(person.post("factors/confirm", proof))

    assert reason(person.login(now, "TOTP"), 400, "INVALID_INPUT") == "WRONG_CODE"
    ok(person.login(later, "TOTP"))
    assert reason(person.login(later, "TOTP"), 400, "INVALID_INPUT") == "WRONG_CODE"


def test_a_confirmation_needs_the_secret_and_a_code(person: Person) -> None:
    early = {"type": "TOTP", "secret": "00", "code": CODE}
    assert reason(person.post("factors/confirm", early), 409, "CONFLICT") == "NOT_STARTED"
    secret = ok(person.post("factors", {"type": "TOTP"}))["secret"]

    for body, field in (
        ({"type": "TOTP", "secret": "00" * 20, "code": CODE}, "secret"),
        ({"type": "TOTP", "secret": secret, "code": WRONG}, "code"),
        ({"type": "TOTP", "secret": secret}, "code"),
        ({"type": "TOTP", "code": CODE}, "secret"),
        ({"secret": secret, "code": CODE}, "type"),
    ):
        error = refused(person.post("factors/confirm", body), 400, "INVALID_INPUT")
        assert [one["field"] for one in error["details"]["errors"]] == [field]
    assert "TOTP" not in person.factors()


def test_secrets_are_not_repeated_with_an_idempotency_key(person: Person) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    path = f"/sca/factors?customerId={person.id}"

    first = person.api.http.post(path, json={"type": "TOTP"}, headers=key)
    again = person.api.http.post(path, json={"type": "TOTP"}, headers=key)

    assert set(ok(first)) == {"secret", "secretBase32Encoded", "totpUri"}
    assert again.json() == {}


def test_the_database_has_no_secret_in_the_clear(person: Person, database_url: str) -> None:
    started, recovery_codes = person.enrol()
    ok(person.post("login/start", {"factor": "SMS_OTP"}))

    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT a::text FROM customer_authentication a"
            " UNION ALL SELECT c::text FROM authentication_challenges c"
        ).fetchall()

    written = "".join(row for (row,) in rows)
    assert started["secret"] not in written
    assert not [one for one in recovery_codes if one in written or one.encode().hex() in written]
    assert CODE.encode().hex() not in written


# --- logins --------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", ["SMS_OTP", "EMAIL_OTP"])
def test_a_login_with_a_sent_code_opens_a_session_of_180_days(person: Person, factor: str) -> None:
    started = ok(person.post("login/start", {"factor": factor}))

    done = ok(person.login(factor=factor, challengeId=started["challengeId"]))

    assert started["challengeId"].startswith("ScaChallenge:")
    assert done["status"] == "SUCCESS"
    ends = datetime.fromisoformat(done["sessionExpiresAt"]) - datetime.now(UTC)
    assert timedelta(days=179, hours=23) < ends <= timedelta(days=180)
    again = person.login(factor=factor, challengeId=started["challengeId"])
    assert reason(again, 400, "INVALID_INPUT") == "CODE_EXPIRED"


def test_a_recovery_code_is_accepted_once_in_the_place_of_the_authenticator(
    person: Person,
) -> None:
    _, recovery_codes = person.enrol()
    assert ok(person.post("login/start", {"factor": "TOTP"})) == {"factor": "TOTP"}

    ok(person.login(recovery_codes[3].lower(), "TOTP"))

    assert reason(person.login(recovery_codes[3], "TOTP"), 400, "INVALID_INPUT") == "WRONG_CODE"
    ok(person.login(recovery_codes[4], "TOTP"))


def test_a_factor_that_the_customer_does_not_have_is_409(api: Api) -> None:
    person = Person(api)

    for factor in ("SMS_OTP", "EMAIL_OTP", "TOTP"):
        started = person.post("login/start", {"factor": factor})
        assert reason(started, 409, "CONFLICT") == "FACTOR_UNAVAILABLE"
        assert reason(person.login(factor=factor), 409, "CONFLICT") == "FACTOR_UNAVAILABLE"


def test_a_challenge_of_another_customer_or_another_factor_does_not_count(
    api: Api, person: Person
) -> None:
    other = Person(api).verify()
    theirs = ok(other.post("login/start", {"factor": "SMS_OTP"}))["challengeId"]
    by_mail = ok(person.post("login/start", {"factor": "EMAIL_OTP"}))["challengeId"]

    for challenge in (theirs, by_mail, f"ScaChallenge:{new_id()}"):
        answer = person.login(challengeId=challenge)
        error = refused(answer, 400, "INVALID_INPUT")["details"]
        assert (error["reason"], error["errors"][0]["field"]) == ("CODE_EXPIRED", "challengeId")


def test_the_fifth_wrong_code_locks_the_customer_and_nobody_else(api: Api, person: Person) -> None:
    other = Person(api).verify()
    for one in (person, other):
        ok(one.post("login/start", {"factor": "SMS_OTP"}))

    left = [
        refused(person.login(WRONG), 400, "INVALID_INPUT")["details"]["attemptsLeft"]
        for _ in range(4)
    ]
    locks = refused(person.login(WRONG), 423, "ACCOUNT_LOCKED")["details"]

    assert left == [4, 3, 2, 1]
    assert (locks["suspended"], locks["failedAttempts"]) == (True, 5)
    until = datetime.fromisoformat(locks["lockedUntil"]) - datetime.now(UTC)
    assert timedelta(minutes=29) < until <= timedelta(minutes=30)
    assert refused(person.login(), 423, "ACCOUNT_LOCKED")["details"] == locks
    event = {"eventType": "FAILED_LOGIN_ATTEMPT"}
    assert refused(person.post("record-event", event), 423, "ACCOUNT_LOCKED")["details"] == locks
    ok(other.login())


def test_a_hundred_guesses_at_once_are_five_and_the_rest_is_locked_out(
    api: Api, person: Person
) -> None:
    other = Person(api).verify()
    for one in (person, other):
        ok(one.post("login/start", {"factor": "SMS_OTP"}))

    answers = at_once(100, lambda: person.login(WRONG))

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [400] * 4 + [423] * 96
    refused(person.login(), 423, "ACCOUNT_LOCKED")
    ok(other.login())


def test_new_codes_do_not_give_new_attempts(person: Person) -> None:
    for _ in range(4):
        ok(person.post("login/start", {"factor": "SMS_OTP"}))
        refused(person.login(WRONG), 400, "INVALID_INPUT")
    ok(person.post("login/start", {"factor": "SMS_OTP"}))

    refused(person.login(WRONG), 423, "ACCOUNT_LOCKED")


def test_an_idempotency_key_does_not_take_a_failed_attempt_back(person: Person) -> None:
    ok(person.post("login/start", {"factor": "SMS_OTP"}))
    body = {"factor": "SMS_OTP", "code": WRONG, "endUserIpAddress": ADDRESS}
    path = f"/sca/login/complete?customerId={person.id}"

    def guess() -> httpx2.Response:
        key = {"Idempotency-Key": str(uuid4())}
        first = person.api.http.post(path, json=body, headers=key)
        assert person.api.http.post(path, json=body, headers=key).json() == first.json()
        return first

    assert [guess().status_code for _ in range(6)] == [400, 400, 400, 400, 423, 423]


def test_the_lock_ends_after_half_an_hour_and_a_success_ends_the_count(
    timed: Api, clock: Clock
) -> None:
    person = Person(timed).verify()
    event = {"eventType": "FAILED_LOGIN_ATTEMPT"}
    counts = [ok(person.post("record-event", event)) for _ in range(5)]
    assert [one["failedAttempts"] for one in counts] == [1, 2, 3, 4, 5]
    assert [one["suspended"] for one in counts] == [False] * 4 + [True]
    assert "lockedUntil" in counts[4]
    assert "lockedUntil" not in counts[3]

    clock.ahead += timedelta(minutes=30, seconds=1)

    after = ok(person.post("record-event", event))
    assert (after["failedAttempts"], after["suspended"]) == (1, False)
    ok(person.post("login/start", {"factor": "SMS_OTP"}))
    ok(person.login())
    assert ok(person.post("record-event", event))["failedAttempts"] == 1


def test_a_new_password_ends_the_session_and_the_count(person: Person, database_url: str) -> None:
    ok(person.post("login/start", {"factor": "SMS_OTP"}))
    ok(person.login())
    ok(person.post("record-event", {"eventType": "FAILED_LOGIN_ATTEMPT"}))

    reset = ok(person.post("record-event", {"eventType": "RESET_PASSWORD_COMPLETED"}))

    assert reset == {
        "eventType": "RESET_PASSWORD_COMPLETED",
        "suspended": False,
        "failedAttempts": 0,
    }
    with psycopg.connect(database_url) as connection:
        [(session,)] = connection.execute(
            "SELECT session_expires_at FROM customer_authentication WHERE id = %s",
            [person.id.removeprefix("Customer:")],
        )
    assert session is None


def test_a_customer_gets_thirty_codes_an_hour(timed: Api) -> None:
    person = Person(timed).verify()
    for _ in range(30):
        ok(person.post("login/start", {"factor": "SMS_OTP"}))

    answer = person.post("login/start", {"factor": "EMAIL_OTP"})

    refused(answer, 429, "RATE_LIMITED")
    assert int(answer.headers["retry-after"]) > 3_500


# --- resets --------------------------------------------------------------------------------------


def test_a_lost_authenticator_is_taken_away_and_enrolled_anew(person: Person) -> None:
    _, recovery_codes = person.enrol()

    started = made(person.post("factors/reset", {"factor": "TOTP"}))
    reset = f"factors/reset/{started['resetId']}"
    before = ok(person.get(reset))
    done = person.post(reset + "/complete", {})

    assert (before["status"], before["factor"]) == ("LIVENESS_PASSED", "TOTP")
    assert (done.status_code, done.content) == (204, b"")
    after = ok(person.get(reset))
    assert (after["status"], after["enrollmentStatus"]) == ("COMPLETED", "PENDING")
    assert "TOTP" not in person.factors()
    assert reason(person.post(reset + "/complete", {}), 409, "CONFLICT") == "RESET_NOT_READY"
    _, fresh = person.enrol()
    assert ok(person.get(reset))["enrollmentStatus"] == "ENROLLED"
    assert reason(person.login(recovery_codes[0], "TOTP"), 400, "INVALID_INPUT") == "WRONG_CODE"
    ok(person.login(fresh[0], "TOTP"))


def test_a_lost_phone_is_replaced_and_has_to_be_verified(person: Person) -> None:
    reset_id = made(person.post("factors/reset", {"factor": "SMS_OTP"}))["resetId"]
    complete = f"factors/reset/{reset_id}/complete"
    mobile = {"countryCode": "+33", "number": "612345678"}
    assert reason(person.post(complete, {}), 400, "INVALID_INPUT") == "MOBILE"
    for wrong in ({"countryCode": "33", "number": "1"}, {"countryCode": "+33", "number": "1" * 14}):
        refused(person.post(complete, {"mobile": wrong}), 400, "INVALID_INPUT")

    assert person.post(complete, {"mobile": mobile}).status_code == 204

    customer = ok(person.api.get(f"/customers/{person.id}"))
    assert customer["phoneNumber"] == "+33612345678"
    assert customer["contactVerification"]["phone"] == "PENDING"
    assert person.factors() == ["EMAIL_OTP"]
    assert person.verify("phone").factors() == ["SMS_OTP", "EMAIL_OTP"]


def test_a_sixth_reset_within_a_day_is_429(timed: Api, clock: Clock) -> None:
    person = Person(timed).verify()
    for _ in range(5):
        made(person.post("factors/reset", {"factor": "SMS_OTP"}))

    answer = person.post("factors/reset", {"factor": "SMS_OTP"})

    refused(answer, 429, "RATE_LIMITED")
    assert 86_000 < int(answer.headers["retry-after"]) <= 86_400
    clock.ahead += timedelta(hours=24, seconds=1)
    made(person.post("factors/reset", {"factor": "SMS_OTP"}))


def test_a_reset_expires_after_a_day(timed: Api, clock: Clock) -> None:
    person = Person(timed).verify()
    reset_id = made(person.post("factors/reset", {"factor": "SMS_OTP"}))["resetId"]
    clock.ahead += timedelta(hours=24, seconds=1)

    assert ok(person.get(f"factors/reset/{reset_id}"))["status"] == "EXPIRED"
    mobile = {"mobile": {"countryCode": "+33", "number": "612345678"}}
    late = person.post(f"factors/reset/{reset_id}/complete", mobile)
    assert reason(late, 409, "CONFLICT") == "RESET_NOT_READY"


def test_what_cannot_be_reset(api: Api, person: Person) -> None:
    theirs = made(Person(api).verify().post("factors/reset", {"factor": "SMS_OTP"}))["resetId"]

    for factor in ("EMAIL_OTP", "PASSKEY"):
        answer = person.post("factors/reset", {"factor": factor})
        assert reason(answer, 400, "INVALID_INPUT") == "NOT_RESETTABLE"
    none = person.post("factors/reset", {"factor": "TOTP"})
    assert reason(none, 409, "CONFLICT") == "FACTOR_UNAVAILABLE"
    for reset_id in (theirs, f"ScaReset:{new_id()}"):
        refused(person.get(f"factors/reset/{reset_id}"), 404, "REFERENCE_NOT_FOUND")
        answer = person.post(f"factors/reset/{reset_id}/complete", {})
        refused(answer, 404, "REFERENCE_NOT_FOUND")


# --- trusted accounts ----------------------------------------------------------------------------


def account_path(account_id: str, end: str) -> str:
    return f"/customers/external-accounts/{account_id}/{end}"


def test_an_account_is_trusted_and_not_trusted_any_more_by_a_code(api: Api, person: Person) -> None:
    account = person.account()

    for way, trusted in (("trust", True), ("untrust", False)):
        challenge = ok(api.post(account_path(account, way), None))["scaChallenge"]
        assert challenge["id"].startswith("ScaChallenge:")
        assert (challenge["factor"], challenge["availableFactors"]) == ("SMS_OTP", ["SMS_OTP"])
        assert challenge["purpose"] == way.upper()
        answer = {"challengeId": challenge["id"], "code": CODE}
        confirm = account_path(account, f"{way}/confirm")
        assert ok(api.post(confirm, answer)) == {"trusted": trusted}
        assert ok(api.post(account_path(account, way), None)) == {}
        assert reason(api.post(confirm, answer), 400, "INVALID_INPUT") == "CODE_EXPIRED"


def test_the_code_for_one_account_trusts_no_other(api: Api, person: Person) -> None:
    mine, other = person.account(), person.account()
    challenge = ok(api.post(account_path(mine, "trust"), None))["scaChallenge"]["id"]

    for answer in ({"code": CODE}, {"code": CODE, "challengeId": challenge}):
        refused(api.post(account_path(other, "trust/confirm"), answer), 400, "INVALID_INPUT")
    refused(api.post(account_path(mine, "untrust/confirm"), {"code": CODE}), 400, "INVALID_INPUT")
    assert ok(api.post(account_path(mine, "trust/confirm"), {"code": CODE})) == {"trusted": True}


def test_wrong_codes_for_accounts_lock_the_customer_too(api: Api, person: Person) -> None:
    account = person.account()
    ok(api.post(account_path(account, "trust"), None))
    confirm = account_path(account, "trust/confirm")

    statuses = [api.post(confirm, {"code": WRONG}).status_code for _ in range(6)]

    assert statuses == [400, 400, 400, 400, 423, 423]
    refused(person.login(), 423, "ACCOUNT_LOCKED")


def test_trust_needs_a_verified_phone_and_a_code(api: Api, person: Person) -> None:
    unverified = Person(api)
    account = unverified.account()

    started = api.post(account_path(account, "trust"), None)
    assert reason(started, 409, "CONFLICT") == "FACTOR_UNAVAILABLE"
    confirm = account_path(person.account(), "trust/confirm")
    refused(api.post(confirm, {}), 400, "INVALID_INPUT")
    passkey = {"passkeyAssertion": {}, "origin": "https://x.example"}
    refused(api.post(confirm, passkey), 400, "INVALID_INPUT")


# --- where it is not required --------------------------------------------------------------------


OPERATIONS: list[Callable[[Person], httpx2.Response]] = [
    lambda one: one.get("factors"),
    lambda one: one.post("factors", {"type": "TOTP"}),
    lambda one: one.post("factors/confirm", {"type": "TOTP", "secret": "00", "code": CODE}),
    lambda one: one.api.delete(f"/sca/factors/x?customerId={one.id}"),
    lambda one: one.post("login/start", {"factor": "SMS_OTP"}),
    lambda one: one.login(),
    lambda one: one.post("record-event", {"eventType": "FAILED_LOGIN_ATTEMPT"}),
    lambda one: one.post("factors/reset", {"factor": "SMS_OTP"}),
    lambda one: one.get(f"factors/reset/ScaReset:{new_id()}"),
    lambda one: one.post(f"factors/reset/ScaReset:{new_id()}/complete", {}),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_outside_the_european_economic_area_every_operation_is_409(
    api: Api, operation: Callable[[Person], httpx2.Response]
) -> None:
    assert reason(operation(Person(api, region="US")), 409, "CONFLICT") == "NOT_REQUIRED"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_unknown_customer_is_404_in_every_operation(
    api: Api, operation: Callable[[Person], httpx2.Response]
) -> None:
    person = Person(api)
    person.id = f"Customer:{new_id()}"

    refused(operation(person), 404, "USER_NOT_FOUND")


@pytest.mark.parametrize("end", ["trust", "untrust", "trust/confirm", "untrust/confirm"])
def test_accounts_of_others_are_not_trusted(api: Api, end: str) -> None:
    body = {"code": CODE} if "confirm" in end else None
    american = Person(api, region="US").account()
    details = info("USD_ACCOUNT", accountNumber=new_account_number())
    wish = external_account("USD_ACCOUNT", accountInfo=details)
    platforms = made(api.post("/platform/external-accounts", wish))["id"]

    for account in (american, platforms):
        answer = api.post(account_path(account, end), body)
        assert reason(answer, 409, "CONFLICT") == "NOT_REQUIRED"
    unknown = api.post(account_path(f"ExternalAccount:{new_id()}", end), body)
    refused(unknown, 404, "REFERENCE_NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("login/complete", {"factor": "SMS_OTP", "code": CODE}),
        ("login/complete", {"factor": "SMS_OTP", "code": CODE, "endUserIpAddress": "home"}),
        ("login/complete", {"factor": "SMS_OTP", "endUserIpAddress": ADDRESS}),
        ("login/complete", {"factor": "FAX", "code": CODE, "endUserIpAddress": ADDRESS}),
        ("login/start", {"factor": "FAX"}),
        ("login/start", {}),
        ("record-event", {"eventType": "LOGIN"}),
        ("factors", {"type": "SMS_OTP"}),
        ("factors/reset", {"factor": "FAX"}),
    ],
)
def test_a_bad_body_is_400(person: Person, path: str, body: object) -> None:
    refused(person.post(path, body), 400, "INVALID_INPUT")


def test_the_customer_is_required(api: Api) -> None:
    refused(api.get("/sca/factors"), 400, "INVALID_INPUT")
    refused(api.get("/sca/factors", customerId="x"), 400, "INVALID_INPUT")


def test_a_deleted_customer_leaves_no_secret(person: Person, database_url: str) -> None:
    person.enrol()
    made(person.post("factors/reset", {"factor": "TOTP"}))

    ok(person.api.delete(f"/customers/{person.id}"))

    refused(person.get("factors"), 404, "USER_NOT_FOUND")
    key = person.id.removeprefix("Customer:")
    with psycopg.connect(database_url) as connection:
        for table, column in (
            ("customer_authentication", "id"),
            ("authentication_challenges", "customer_id"),
            ("authentication_resets", "customer_id"),
        ):
            statement = f"SELECT count(*) FROM {table} WHERE {column} = %s"
            [(count,)] = connection.execute(statement.encode(), [key])
            assert count == 0, table


def test_a_token_that_reads_sees_factors_and_changes_nothing(
    root: str, person: Person, api_config: ApiConfig
) -> None:
    reader = new_tenant(api_config.database_url, permissions=("VIEW",), of=person.api.tenant)
    with Api(root, reader) as looking:
        path = f"/sca/factors?customerId={person.id}"
        ok(looking.http.get(path))
        refused(looking.post(path, {"type": "TOTP"}), 403, "FORBIDDEN")
        refused(looking.post(account_path(person.account(), "trust"), None), 403, "FORBIDDEN")
