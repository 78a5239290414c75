"""Passkeys: enrolled once, used for logins and accounts, refused when a single byte is wrong."""

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from cardledger.ledger.storage.ids import new_id
from tests.api.support import Api, ok, refused
from tests.api.test_sca import ADDRESS, CODE, Person, account_path, reason
from tests.passkeys import ORIGIN, Passkey, encoded


@pytest.fixture
def person(api: Api) -> Person:
    return Person(api).verify()


def enrolment(person: Person, passkey: Passkey, **changes: object) -> httpx2.Response:
    begun = ok(person.post("factors", {"type": "PASSKEY"}))
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": passkey.create(begun["options"])}
    return person.post("factors/confirm", proof | changes)


def enrolled(person: Person, **traits: Any) -> Passkey:  # noqa: ANN401 - fields of a passkey
    passkey = Passkey(**traits)
    ok(enrolment(person, passkey))
    return passkey


def begin_login(person: Person) -> dict[str, Any]:
    return dict(ok(person.post("login/start", {"factor": "PASSKEY"})))


def login(
    person: Person, assertion: dict[str, Any], *, origin: str = ORIGIN, **more: object
) -> httpx2.Response:
    body = {"factor": "PASSKEY", "endUserIpAddress": ADDRESS, "origin": origin}
    return person.post("login/complete", body | {"passkeyAssertion": assertion} | more)


def test_a_passkey_is_enrolled_listed_used_and_deleted(person: Person) -> None:
    begun = ok(person.post("factors", {"type": "PASSKEY"}))
    passkey = Passkey()
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": passkey.create(begun["options"])}

    made = ok(person.post("factors/confirm", proof))

    key = encoded(passkey.credential_id)
    assert begun["relyingPartyId"] == begun["options"]["rp"]["id"] == "localhost"
    assert ORIGIN in begun["allowedOrigins"]
    assert begun["options"]["authenticatorSelection"]["userVerification"] == "required"
    assert made == {"factor": {"factor": "PASSKEY", "credentialId": key}}
    assert ok(person.get("factors"))["factors"][-1] == made["factor"]
    started = begin_login(person)
    assert started["options"]["allowCredentials"][0]["id"] == key
    done = ok(login(person, passkey.use(started["options"]), challengeId=started["challengeId"]))
    assert done["status"] == "SUCCESS"
    gone = person.api.delete(f"/sca/factors/{key}?customerId={person.id}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert "PASSKEY" not in person.factors()
    refused(
        person.api.delete(f"/sca/factors/{key}?customerId={person.id}"),
        404,
        "REFERENCE_NOT_FOUND",
    )
    without = person.post("login/start", {"factor": "PASSKEY"})
    assert reason(without, 409, "CONFLICT") == "FACTOR_UNAVAILABLE"


def test_a_customer_has_one_passkey(person: Person) -> None:
    begun = ok(person.post("factors", {"type": "PASSKEY"}))
    enrolled(person)

    refused(person.post("factors", {"type": "PASSKEY"}), 409, "PASSKEY_ALREADY_ENROLLED")
    late = Passkey().create(begun["options"])
    proof = {"type": "PASSKEY", "origin": ORIGIN, "credential": late}
    refused(person.post("factors/confirm", proof), 409, "PASSKEY_ALREADY_ENROLLED")


@pytest.mark.parametrize(
    "traits",
    [
        {"rp_id": "evil.example"},
        {"origin": "https://evil.example"},
        {"verifies_user": False},
    ],
)
def test_a_registration_for_another_page_or_without_its_user_is_refused(
    person: Person, traits: dict[str, Any]
) -> None:
    answer = enrolment(person, Passkey(**traits))

    assert reason(answer, 400, "INVALID_INPUT") == "WRONG_PASSKEY"
    assert "PASSKEY" not in person.factors()


def test_a_registration_answers_its_challenge_from_the_named_page(person: Person) -> None:
    passkey = Passkey()
    elsewhere = enrolment(person, passkey, origin="http://localhost:8000")
    assert reason(elsewhere, 400, "INVALID_INPUT") == "WRONG_PASSKEY"
    other = passkey.create({"challenge": encoded(bytes(32))})
    assert reason(enrolment(person, passkey, credential=other), 400, "INVALID_INPUT") == (
        "WRONG_PASSKEY"
    )
    for broken in ({}, {"id": 1}, other | {"response": {"clientDataJSON": "!"}}):
        refused(enrolment(person, passkey, credential=broken), 400, "INVALID_INPUT")
    for missing in ("origin", "credential"):
        answer = enrolment(person, passkey, **{missing: None})
        error = refused(answer, 400, "INVALID_INPUT")
        assert [one["field"] for one in error["details"]["errors"]] == [missing]


def corrupted(assertion: dict[str, Any], name: str) -> dict[str, Any]:
    text = assertion["response"][name]
    changed = ("A" if text[10] != "A" else "B").join([text[:10], text[11:]])
    return assertion | {"response": assertion["response"] | {name: changed}}


@pytest.mark.parametrize("name", ["clientDataJSON", "authenticatorData", "signature"])
def test_an_assertion_with_one_wrong_character_is_refused_and_counted(
    person: Person, name: str
) -> None:
    passkey = enrolled(person)
    started = begin_login(person)

    answer = login(person, corrupted(passkey.use(started["options"]), name))

    details = refused(answer, 400, "INVALID_INPUT")["details"]
    assert (details["reason"], details["attemptsLeft"]) == ("WRONG_CODE", 4)


def test_an_assertion_counts_once_for_its_customer_and_its_key(api: Api, person: Person) -> None:
    passkey, other = enrolled(person), Person(api).verify()
    theirs = enrolled(other)
    started = begin_login(person)
    assertion = passkey.use(started["options"])
    foreign = replace(passkey, key=theirs.key)

    assert reason(login(other, assertion), 400, "INVALID_INPUT") == "CODE_EXPIRED"
    ok(login(person, assertion))
    assert reason(login(person, assertion), 400, "INVALID_INPUT") == "CODE_EXPIRED"
    started = begin_login(person)
    assert reason(login(person, foreign.use(started["options"])), 400, "INVALID_INPUT") == (
        "WRONG_CODE"
    )
    started = begin_login(person)
    unknown = login(person, passkey.use(started["options"]), challengeId=f"ScaChallenge:{new_id()}")
    assert reason(unknown, 400, "INVALID_INPUT") == "CODE_EXPIRED"


def test_a_copy_whose_counter_is_behind_is_refused(person: Person) -> None:
    passkey = enrolled(person)
    for _ in range(2):
        ok(login(person, passkey.use(begin_login(person)["options"])))
    passkey.counter = 0

    answer = login(person, passkey.use(begin_login(person)["options"]))

    assert reason(answer, 400, "INVALID_INPUT") == "WRONG_CODE"


def test_a_passkey_without_a_counter_is_used_again_and_again(person: Person) -> None:
    passkey = enrolled(person, counts=False)

    for _ in range(2):
        ok(login(person, passkey.use(begin_login(person)["options"])))


def test_five_wrong_assertions_lock_the_customer(person: Person) -> None:
    passkey = enrolled(person)

    statuses = []
    for _ in range(5):
        started = begin_login(person)
        wrong = corrupted(passkey.use(started["options"]), "signature")
        statuses.append(login(person, wrong).status_code)

    assert statuses == [400, 400, 400, 400, 423]


def test_a_passkey_trusts_an_account_as_a_code_does(api: Api, person: Person) -> None:
    passkey = enrolled(person)
    account = person.account()

    challenge = ok(api.post(account_path(account, "trust"), None))["scaChallenge"]

    assert challenge["availableFactors"] == ["SMS_OTP", "PASSKEY"]
    assert ORIGIN in challenge["passkeyAllowedOrigins"]
    proof = {
        "challengeId": challenge["id"],
        "passkeyAssertion": passkey.use(challenge["passkeyAssertionOptions"]),
        "origin": ORIGIN,
    }
    assert ok(api.post(account_path(account, "trust/confirm"), proof)) == {"trusted": True}
    back = ok(api.post(account_path(account, "untrust"), None))["scaChallenge"]
    answer = {"challengeId": back["id"], "code": CODE}
    assert ok(api.post(account_path(account, "untrust/confirm"), answer)) == {"trusted": False}


def test_an_assertion_for_one_account_trusts_no_other(api: Api, person: Person) -> None:
    passkey = enrolled(person)
    mine, other = person.account(), person.account()
    options = ok(api.post(account_path(mine, "trust"), None))["scaChallenge"]
    proof = {"passkeyAssertion": passkey.use(options["passkeyAssertionOptions"]), "origin": ORIGIN}

    stolen = api.post(account_path(other, "trust/confirm"), proof)

    assert reason(stolen, 400, "INVALID_INPUT") == "CODE_EXPIRED"
    assert ok(api.post(account_path(mine, "trust/confirm"), proof)) == {"trusted": True}


def test_a_deleted_customer_leaves_no_passkey(person: Person) -> None:
    enrolled(person)

    ok(person.api.delete(f"/customers/{person.id}"))

    refused(person.get("factors"), 404, "USER_NOT_FOUND")
