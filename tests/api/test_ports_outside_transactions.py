"""Systems outside are asked before a database transaction begins, and told after its commit."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.http import code_deliveries
from cardledger.api.http.outside_calls import THREADS_OF_PLATFORM, OutsideCalls
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.ports import SystemUnavailableError, UmaReceiver
from cardledger.ledger.sandbox.code_sender import SandboxCodeSender
from cardledger.ledger.sandbox.funding_instructions import SandboxFundingInstructions
from cardledger.ledger.sandbox.uma_network import SandboxUmaNetwork
from cardledger.schema.ids import Id
from tests.api.support import TIMEOUT_S, Api, made, new_tenant, ok, refused
from tests.api.test_documents import upload
from tests.api.test_quotes import Payer, payer_of
from tests.api.test_sca import CODE, EUROPEAN
from tests.waiting import eventually

_OPEN = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND state LIKE 'idle in transaction%'
"""
DEFAULT_THREADS = min(32, (os.cpu_count() or 1) + 4)  # Of an event loop.
ELSEWHERE = "$success.eur@sandbox.uma.money"


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    tenant = new_tenant(api_config.database_url, currencies=("USD", "EUR"))
    with Api(root, tenant) as client:
        yield client


def none_is_open(url: str) -> bool:
    """Wait until no session has a database transaction open.

    Others end soon; one of the request that waits for this would not.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        return eventually(lambda: connection.execute(_OPEN).fetchone() == (0,))


def blocks_no_loop() -> bool:
    """Return whether this thread runs no event loop, whose requests would all wait."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("has_key", [False, True])
def test_a_code_is_sent_after_the_commit_that_makes_it(
    own: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    seen: list[tuple[int, bool]] = []

    def send(*_: object) -> None:
        with psycopg.connect(database_url) as connection:
            query = "SELECT count(*) FROM authentication_challenges WHERE platform_id = %s"
            [row] = connection.execute(query, [own.tenant.platform_id]).fetchall()
        seen.append((int(row[0]), none_is_open(database_url)))

    monkeypatch.setattr(SandboxCodeSender, "send", send)
    customer = own.customer(region="DE", email="a@example.com", phoneNumber="+4915112345678")
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}

    answer = own.http.post(f"/customers/{customer['id']}/verify-email", headers=headers)

    assert answer.status_code == 204
    assert eventually(lambda: seen) == [(1, True)]


@pytest.mark.parametrize("has_key", [False, True])
def test_a_code_is_sent_while_institutions_hang(
    own: Api, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    """It was dropped when its request had waited for ten seconds, and no repetition sent it."""
    answers, asked, sent = threading.Event(), list[str](), list[object]()

    def hanging(_: SandboxUmaNetwork, address: str) -> None:
        asked.append(address)
        assert answers.wait(TIMEOUT_S)

    customer = own.customer(region="DE", email="a@example.com", phoneNumber="+4915112345678")
    path = f"/customers/{customer['id']}/verify-email"
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}
    payer = payer_of(own)
    lookup = ok(own.get(f"/receiver/uma/{ELSEWHERE}"))["lookupId"]
    to = {"destinationType": "UMA_ADDRESS", "umaAddress": ELSEWHERE}
    monkeypatch.setattr(SandboxUmaNetwork, "find", hanging)
    monkeypatch.setattr(SandboxCodeSender, "send", lambda *given: sent.append(given))
    with ThreadPoolExecutor(THREADS_OF_PLATFORM) as pool:
        try:
            for _ in range(THREADS_OF_PLATFORM):
                pool.submit(payer.asks, to, lookupId=lookup)
            eventually(lambda: len(asked) == THREADS_OF_PLATFORM)
            answer = own.http.post(path, headers=headers)
            eventually(lambda: len(sent) == 1)
        finally:
            answers.set()

    assert answer.status_code == 204


@pytest.mark.parametrize("has_key", [False, True])
def test_a_code_that_cannot_be_sent_is_refused_before_its_challenge_is_committed(
    own: Api, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    answers, sent = threading.Event(), list[object]()

    def hanging(*given: object) -> None:
        assert answers.wait(TIMEOUT_S)
        sent.append(given)

    customer = own.customer(region="DE", email="a@example.com", phoneNumber="+4915112345678")
    email, phone = (f"/customers/{customer['id']}/verify-{one}" for one in ("email", "phone"))
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}
    limit = code_deliveries.THREADS_OF_PLATFORM + 2
    monkeypatch.setattr(code_deliveries, "WAITING_OF_PLATFORM", limit)
    monkeypatch.setattr(SandboxCodeSender, "send", hanging)
    try:
        # No answer waits for the provider.
        made_before = [own.post(email, None).status_code for _ in range(limit)]
        # Of five that a contact gets in an hour, none is used up.
        for _ in range(5):
            refused(own.http.post(phone, headers=headers), 503, "SERVICE_UNAVAILABLE")
    finally:
        answers.set()
    eventually(lambda: len(sent) == limit)
    eventually(lambda: own.http.post(phone, headers=headers).status_code == 204)
    eventually(lambda: len(sent) == limit + 1)

    assert made_before == [204] * limit


def test_no_code_is_sent_of_what_is_rolled_back(own: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    monkeypatch.setattr(SandboxCodeSender, "send", lambda *given: sent.append(given))
    customer = own.customer(region="DE", email="a@example.com", phoneNumber="+4915112345678")

    path = f"/customers/{customer['id']}/verify-email"
    for _ in range(5):
        assert own.post(path, None).status_code == 204

    refused(own.post(path, None), 429, "RATE_LIMITED")
    assert eventually(lambda: len(sent) == 5)


@pytest.mark.parametrize("has_key", [False, True])
def test_an_institution_is_asked_before_a_transaction_begins(
    own: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    seen: list[tuple[str, bool, bool]] = []
    find, accept = SandboxUmaNetwork.find, SandboxUmaNetwork.accept

    def note(what: str) -> None:
        seen.append((what, none_is_open(database_url), blocks_no_loop()))

    def noted_find(network: SandboxUmaNetwork, address: str) -> UmaReceiver | None:
        note("find")
        return find(network, address)

    def noted_accept(network: SandboxUmaNetwork, address: str) -> None:
        note("accept")
        accept(network, address)

    monkeypatch.setattr(SandboxUmaNetwork, "find", noted_find)
    monkeypatch.setattr(SandboxUmaNetwork, "accept", noted_accept)
    payer = payer_of(own)
    lookup = ok(own.get(f"/receiver/uma/{ELSEWHERE}"))["lookupId"]
    body: dict[str, Any] = {
        "source": {"sourceType": "ACCOUNT", "accountId": payer.usd},
        "destination": {"destinationType": "UMA_ADDRESS", "umaAddress": ELSEWHERE},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 100,
        "lookupId": lookup,
    }
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}

    first = made(own.http.post("/quotes", json=body, headers=headers))
    if has_key:
        assert made(own.http.post("/quotes", json=body, headers=headers)) == first

    # The look-up asks, and so does the quote, once; a repetition does not.
    assert seen == [("find", True, True), ("find", True, True), ("accept", True, True)]


@pytest.mark.parametrize("has_key", [False, True])
def test_instructions_are_asked_before_a_transaction_begins(
    own: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    seen: list[tuple[str, bool, bool]] = []
    for_quote = SandboxFundingInstructions.for_quote

    def noted(
        port: SandboxFundingInstructions, currency: str, network: str | None, reference: str
    ) -> Sequence[Mapping[str, Any]] | None:
        seen.append((reference, none_is_open(database_url), blocks_no_loop()))
        return for_quote(port, currency, network, reference)

    monkeypatch.setattr(SandboxFundingInstructions, "for_quote", noted)
    payer = payer_of(own)
    body = funded_by(payer)
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}

    quote = made(own.http.post("/quotes", json=body, headers=headers))
    if has_key:
        assert made(own.http.post("/quotes", json=body, headers=headers)) == quote
    [way] = quote["paymentInstructions"]
    reference = way["accountOrWalletInfo"]["reference"]
    read = ok(own.get(f"/quotes/{quote['id']}"))

    # The quote asks once, a repetition does not, and a reader asks for the same quote.
    assert quote["id"].replace("-", "")[-12:].upper() == reference[1:]
    assert seen == [(reference, True, True)] * 2
    assert read == quote


@pytest.mark.parametrize("has_key", [False, True])
def test_an_authorization_asks_for_instructions_before_its_transaction(
    own: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    european: dict[str, Any] = {**EUROPEAN}
    payer = payer_of(own, **european)
    for channel in ("email", "phone"):
        path = f"/customers/{payer.id}/verify-{channel}"
        assert own.post(path, None).status_code == 204
        ok(own.post(path + "/confirm", {"code": CODE}))
    quote = ok(own.post("/quotes", funded_by(payer)), 202)
    seen: list[tuple[str, bool, bool]] = []
    for_quote = SandboxFundingInstructions.for_quote

    def noted(
        port: SandboxFundingInstructions, currency: str, network: str | None, reference: str
    ) -> Sequence[Mapping[str, Any]] | None:
        seen.append((reference, none_is_open(database_url), blocks_no_loop()))
        return for_quote(port, currency, network, reference)

    monkeypatch.setattr(SandboxFundingInstructions, "for_quote", noted)
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}
    answer = {"challengeId": quote["scaChallenge"]["id"], "code": CODE}

    authorized = ok(own.http.post(f"/quotes/{quote['id']}/authorize", json=answer, headers=headers))

    [way] = authorized["paymentInstructions"]
    assert seen == [(way["accountOrWalletInfo"]["reference"], True, True)]


def test_a_bank_is_not_asked_about_a_quote_that_is_refused(
    own: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(SandboxFundingInstructions, "for_quote", lambda *given: asked.append(given))
    body = funded_by(payer_of(own))
    stranger = {**body["source"], "customerId": f"Customer:{uuid4()}"}

    refused(own.post("/quotes", {**body, "lockedCurrencyAmount": -1}), 400, "AMOUNT_OUT_OF_RANGE")
    refused(own.post("/quotes", {**body, "lockedCurrencySide": "BOTH"}), 400, "INVALID_INPUT")
    refused(own.post("/quotes", {**body, "source": stranger}), 400, "INVALID_CURRENCY")
    own.http.post("/quotes", json=[])

    assert asked == []


@pytest.mark.parametrize("has_key", [False, True])
def test_a_bank_that_does_not_answer_is_503_and_no_quote_is_made(
    own: Api, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    payer = payer_of(own)
    body, headers = funded_by(payer), {"Idempotency-Key": str(uuid4())} if has_key else {}

    def fail(*_: object) -> None:
        raise SystemUnavailableError("time-out")

    with monkeypatch.context() as patched:
        patched.setattr(SandboxFundingInstructions, "for_quote", fail)
        refused(own.http.post("/quotes", json=body, headers=headers), 503, "SERVICE_UNAVAILABLE")
    quote = made(own.http.post("/quotes", json=body, headers=headers))
    with monkeypatch.context() as patched:
        patched.setattr(SandboxFundingInstructions, "for_quote", fail)
        refused(own.get(f"/quotes/{quote['id']}"), 503, "SERVICE_UNAVAILABLE")

    assert ok(own.get(f"/quotes/{quote['id']}")) == quote


def funded_by(payer: Payer) -> dict[str, Any]:
    """Return the body of a quote that is paid from outside."""
    return {
        "source": {"sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": payer.id},
        "destination": {"destinationType": "ACCOUNT", "accountId": payer.iban()},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 100,
    }


def test_a_system_that_hangs_for_one_platform_keeps_nothing_else_waiting(
    own: Api, other_platform: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, run = SandboxUmaNetwork.find, OutsideCalls.run
    answers, calls, asked = threading.Event(), list[Id](), list[str]()

    def hanging(network: SandboxUmaNetwork, address: str) -> UmaReceiver | None:
        if address == ELSEWHERE:
            asked.append(address)
            assert answers.wait(TIMEOUT_S)
        return find(network, address)

    async def noted(outside: OutsideCalls, platform_id: Id, call: Callable[[], object]) -> object:
        calls.append(platform_id)
        return await run(outside, platform_id, call)

    payer, holder = payer_of(own), other_platform.customer()["id"]
    lookup = ok(own.get(f"/receiver/uma/{ELSEWHERE}"))["lookupId"]
    to = {"destinationType": "UMA_ADDRESS", "umaAddress": ELSEWHERE}
    monkeypatch.setattr(SandboxUmaNetwork, "find", hanging)
    monkeypatch.setattr(OutsideCalls, "run", noted)
    with ThreadPoolExecutor(2 * DEFAULT_THREADS) as pool:
        try:
            waiting = [
                pool.submit(payer.asks, to, lookupId=lookup) for _ in range(2 * DEFAULT_THREADS)
            ]
            eventually(lambda: len(calls) == len(waiting))
            upload(other_platform, holder)
            ok(other_platform.get("/receiver/uma/$success.usd@sandbox.uma.money"))
            held = len(asked)
        finally:
            answers.set()
    statuses = {each.result().status_code for each in waiting}

    assert held == THREADS_OF_PLATFORM
    assert 201 in statuses
    assert statuses <= {201, 503}  # On a slow machine some give up.


def test_an_institution_is_not_asked_without_a_look_up(
    own: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(SandboxUmaNetwork, "find", lambda *given: asked.append(given))
    payer = payer_of(own)
    to = {"destinationType": "UMA_ADDRESS", "umaAddress": ELSEWHERE}

    refused(payer.asks(to), 400, "INVALID_INPUT")
    refused(payer.asks(to, lookupId=f"Lookup:{uuid4()}"), 404, "LOOKUP_REQUEST_NOT_FOUND")
    own.http.post("/quotes", json=[])
    own.http.post("/quotes", json={"destination": 5, "lookupId": {}})

    assert asked == []
