"""Network events over HTTP: accepted together, decided in order, applied once."""

import asyncio
import gzip
import json
import socket
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.ingestion.bodies import MAX_BODY, MAX_EVENTS, NDJSON
from cardledger.api.ingestion_limits import LIVE_EVENTS, UNDECIDED
from cardledger.api.loop_turns import LoopTurns
from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.client import Client
from tests.api.support import Api, new_tenant, ok, refused, server
from tests.waiting import eventually

Json = dict[str, Any]

MANY_CLEARINGS = 600  # Of many parts.
_ROUNDS = 2_000  # Of the event loop.
_WRITE_S = 0.02


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def event(kind: str, card: Json, reference: str, amount: int, **fields: object) -> Json:
    return {
        "type": kind,
        "source": "visa",
        "reference": reference,
        "issuerTransactionToken": "T1",
        "cardId": card["id"],
        "amount": amount,
        "currency": "USD",
        **fields,
    }


def as_lines(events: Sequence[Json | str]) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    return "\n".join(lines).encode()


def post(api: Api, content: bytes, kind: str = NDJSON, **query: str) -> httpx2.Response:
    return api.http.post(
        f"{api.root}/network-events",
        content=content,
        headers={"content-type": kind},
        params=query,
    )


def outcomes(response: httpx2.Response) -> list[Json]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == NDJSON
    return [json.loads(line) for line in response.content.splitlines()]


def sent(api: Api, *events: Json | str, **query: str) -> list[Json]:
    return outcomes(post(api, as_lines(events), **query))


def look_up(api: Api, source: str, reference: str, **query: str) -> httpx2.Response:
    path = f"/network-events/{quote(source, safe='')}/{quote(reference, safe='')}"
    return api.http.get(api.root + path, params=query)


# --- accepted and decided ------------------------------------------------------------------------


def test_events_are_decided_in_their_order(own: Api) -> None:
    card = own.active_card()

    authorized, cleared = sent(
        own,
        event("AUTHORIZATION", card, "a1", 1250),
        event("CLEARING", card, "c1", 1500, final=True),
    )

    assert (authorized["reference"], authorized["outcome"]) == ("a1", "APPLIED")
    assert authorized["cardTransaction"]["status"] == "AUTHORIZED"
    assert (cleared["reference"], cleared["outcome"]) == ("c1", "APPLIED")
    assert cleared["cardTransaction"]["status"] == "SETTLED"
    assert cleared["cardTransaction"]["settledAmount"]["amount"] == 1500


def test_an_array_gets_an_array(own: Api) -> None:
    card = own.active_card()
    events = [event("CLEARING", card, f"c{n}", 10) for n in range(3)]

    response = post(own, json.dumps(events, indent=2).encode(), "application/json")

    assert response.headers["content-type"] == "application/json"
    assert [each["outcome"] for each in response.json()] == ["APPLIED"] * 3


@pytest.mark.parametrize("lane", [None, "BULK"])
def test_a_file_is_decided_in_its_order(own: Api, lane: str | None) -> None:
    card = own.active_card()
    events = [event("CLEARING", card, f"c{n}", 1) for n in range(MANY_CLEARINGS)]

    results = sent(own, *events, **({} if lane is None else {"lane": lane}))

    assert [each["reference"] for each in results] == [each["reference"] for each in events]
    assert {each["outcome"] for each in results} == {"APPLIED"}
    settled = [each["cardTransaction"]["settledAmount"]["amount"] for each in results]
    assert settled == list(range(1, MANY_CLEARINGS + 1))


@pytest.mark.parametrize(("lane", "count", "rests"), [("BULK", 120, 2), ("LIVE", LIVE_EVENTS, 0)])
def test_a_file_rests_between_its_parts_and_live_events_never(
    own: Api, monkeypatch: pytest.MonkeyPatch, lane: str, count: int, rests: int
) -> None:
    """For as long as each took until its commit: its rows keep more than this process busy."""
    rested: list[float] = []
    accept = Client.accept

    async def rest(_turns: LoopTurns, worked_s: float) -> None:
        rested.append(worked_s)

    async def accept_slowly(client: Client, events: Any, **options: Any) -> object:  # noqa: ANN401
        await asyncio.sleep(_WRITE_S)
        return await accept(client, events, **options)

    monkeypatch.setattr(LoopTurns, "rest", rest)
    monkeypatch.setattr(Client, "accept", accept_slowly)

    response = post(own, as_lines(["x"] * count), lane=lane, wait="false")

    assert response.status_code == 202, response.text
    assert len(rested) == rests
    assert all(worked_s >= _WRITE_S for worked_s in rested)


def test_one_body_of_a_platform_is_split_at_a_time(
    own: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, most, running = LoopTurns.run, 0, 0

    async def run(turns: LoopTurns, steps: Generator[None, None, Any], **options: bool) -> object:
        nonlocal most, running
        running += 1
        most = max(most, running)
        try:
            for _ in range(_ROUNDS):  # Another one would begin meanwhile.
                await asyncio.sleep(0)
            return await split(turns, steps, **options)
        finally:
            running -= 1

    monkeypatch.setattr(LoopTurns, "run", run)
    content = as_lines([{"unknown": "x" * 1_000}] * 5)

    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda _: post(own, content, wait="false"), range(8)))

    assert [response.status_code for response in responses] == [202] * 8
    assert most == 1


def test_a_broken_line_is_rejected_and_stops_no_other(own: Api) -> None:
    card = own.active_card()

    first, broken, wrong, last = sent(
        own,
        event("CLEARING", card, "c1", 10),
        "",
        '{"type": "CLEARING", "amount": ',
        {**event("CLEARING", card, "c2", 10), "amount": "ten"},
        event("CLEARING", card, "c3", 10),
    )

    assert (first["outcome"], last["outcome"]) == ("APPLIED", "APPLIED")
    assert (broken["outcome"], broken["reason"]) == ("REJECTED", "MALFORMED")
    assert broken["detail"].startswith("line 3: not JSON")
    assert (wrong["reference"], wrong["reason"]) == ("c2", "MALFORMED")
    assert "amount" in wrong["detail"]
    listed = ok(own.get("/rejections"))["data"]
    assert len(listed) == 2


def test_an_event_that_is_sent_again_is_applied_once(own: Api) -> None:
    card = own.active_card()
    clearing = event("CLEARING", card, "c1", 10)

    sent(own, clearing)
    again, reused = sent(own, clearing, {**clearing, "amount": 11})

    assert (again["outcome"], again["firstOutcome"]) == ("DUPLICATE", "APPLIED")
    assert (reused["outcome"], reused["reason"]) == ("REJECTED", "KEY_REUSED")
    assert again["cardTransaction"]["settledAmount"]["amount"] == 10


def test_without_waiting_events_are_accepted_and_decided_later(own: Api) -> None:
    card = own.active_card()

    response = post(own, as_lines([event("CLEARING", card, "c1", 10), "{"]), wait="false")

    assert ok(response, 202) == {"accepted": 1, "rejected": 1}
    eventually(lambda: look_up(own, "visa", "c1").status_code == 200)


def test_events_of_a_client_that_has_left_are_decided(own: Api) -> None:
    card = own.active_card()
    body = as_lines([event("CLEARING", card, f"c{n}", 1) for n in range(MANY_CLEARINGS)])
    request = own.http.build_request(
        "POST", f"{own.root}/network-events", content=body, headers={"content-type": NDJSON}
    )
    [signed] = [next(own.http.auth.sync_auth_flow(request))] if own.http.auth else [request]
    head = "".join(f"{name}: {value}\r\n" for name, value in signed.headers.items())
    address = urlsplit(own.root)
    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        connection.sendall(f"POST /network-events HTTP/1.1\r\n{head}\r\n".encode() + body)
        connection.recv(1)  # The response has begun: everything is accepted.

    last = eventually(lambda: found(own, f"c{MANY_CLEARINGS - 1}"))

    assert last["cardTransaction"]["settledAmount"]["amount"] == MANY_CLEARINGS


def found(api: Api, reference: str) -> Json | None:
    response = look_up(api, "visa", reference)
    return ok(response) if response.status_code == 200 else None


def test_the_card_of_another_platform_is_unknown(own: Api, api: Api) -> None:
    foreign = api.active_card()

    [outcome] = sent(own, event("AUTHORIZATION", foreign, "a1", 10))

    assert (outcome["outcome"], outcome["reason"]) == ("REJECTED", "UNKNOWN_CARD")


def test_events_are_accepted_outside_the_sandbox(own: Api, api_config: ApiConfig) -> None:
    card = own.active_card()

    with server(replace(api_config, sandbox=False)) as root, Api(root, own.tenant) as live:
        [outcome] = sent(live, event("AUTHORIZATION", card, "a1", 10))

    assert outcome["outcome"] == "APPLIED"


# --- outcomes, looked up -------------------------------------------------------------------------


def test_the_outcome_of_an_event_is_kept(own: Api, api: Api) -> None:
    card = own.active_card()
    sent(
        own,
        event("AUTHORIZATION", card, "a1", 10),
        event("CLEARING", card, "c1", 10, final=True),
        event("CLEARING", {"id": f"Card:{uuid4()}"}, "lost", 10),
    )

    authorized = ok(look_up(own, "visa", "a1"))
    rejected = ok(look_up(own, "visa", "lost"))

    assert authorized["outcome"] == "APPLIED"
    assert authorized["cardTransaction"]["status"] == "AUTHORIZED"  # As the event left it.
    assert ok(look_up(own, "visa", "c1"))["cardTransaction"]["status"] == "SETTLED"
    assert (rejected["outcome"], rejected["reason"]) == ("REJECTED", "UNKNOWN_CARD")
    for asked, source, reference in (
        (own, "visa", "c2"),
        (own, "mastercard", "a1"),
        (api, "visa", "a1"),
        (own, "a/b ?", "1/2#%2F ä"),
    ):
        error = refused(look_up(asked, source, reference), 404, "REFERENCE_NOT_FOUND")
        assert error["details"] == {"source": source, "reference": reference}


def test_sources_and_references_may_have_any_characters(own: Api) -> None:
    card = own.active_card()
    key = {"source": "a/b ?", "reference": "1/2#%2F ä"}

    sent(own, event("CLEARING", card, "", 10) | key)

    assert ok(look_up(own, **key))["reference"] == key["reference"]


def test_of_events_with_the_same_key_the_card_chooses(own: Api) -> None:
    ada, bob = own.active_card(), own.active_card()
    sent(own, event("CLEARING", ada, "c1", 10), event("CLEARING", bob, "c1", 20))

    refused(look_up(own, "visa", "c1"), 409, "CONFLICT")
    chosen = ok(look_up(own, "visa", "c1", cardId=bob["id"]))

    assert chosen["cardTransaction"]["settledAmount"]["amount"] == 20


# --- refused -------------------------------------------------------------------------------------


def test_a_request_with_too_much_in_it_accepts_nothing(own: Api) -> None:
    card = own.active_card()
    first = json.dumps(event("CLEARING", card, "c1", 1))

    too_many = post(own, as_lines([first, *["{}"] * MAX_EVENTS]))
    too_long = post(own, as_lines([first]) + b"\n" * (3 * MAX_EVENTS))
    too_large = own.http.post(
        f"{own.root}/network-events",
        content=iter([first.encode(), *[b" " * (1 << 20)] * (MAX_BODY >> 20)]),
        headers={"content-type": NDJSON},
    )
    too_live = post(own, as_lines([first] * (LIVE_EVENTS + 1)), lane="LIVE")

    assert "10000 events" in refused(too_many, 400, "INVALID_INPUT")["message"]
    assert "20000 lines" in refused(too_long, 400, "INVALID_INPUT")["message"]
    refused(too_large, 413, "INVALID_INPUT")
    assert "lane=LIVE" in refused(too_live, 400, "INVALID_INPUT")["message"]
    refused(look_up(own, "visa", "c1"), 404, "REFERENCE_NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    ['[{"a": 1}, {"b": ', '[{"a": 1} {"b": 2}]', '[{"a": 1}] x', '{"a": 1}', "[]", "", "nil"],
)
def test_an_array_that_is_not_valid_accepts_nothing(own: Api, body: str) -> None:
    card = own.active_card(balance=0)
    first = json.dumps(event("CLEARING", card, "c1", 1))

    response = post(own, body.replace('{"a": 1}', first).encode(), "application/json")

    refused(response, 400, "INVALID_INPUT")
    refused(look_up(own, "visa", "c1"), 404, "REFERENCE_NOT_FOUND")


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"content-type": "text/plain"}, "Content-Type"),
        ({"content-type": f"{NDJSON}; charset=latin-1"}, "Content-Type"),
        ({"content-type": NDJSON, "content-encoding": "gzip"}, "Content-Encoding"),
    ],
)
def test_another_form_is_refused(own: Api, headers: dict[str, str], named: str) -> None:
    body = gzip.compress(b"{}")

    response = own.http.post(f"{own.root}/network-events", content=body, headers=headers)

    assert refused(response, 400, "INVALID_INPUT")["details"] == {"header": named}


def test_a_token_needs_a_permission_of_its_own(own: Api, api_config: ApiConfig) -> None:
    others = tuple(each for each in ("VIEW", "TRANSACT", "MANAGE", "TOKENS", "AGENTS"))
    without = new_tenant(api_config.database_url, permissions=others, of=own.tenant)
    only = new_tenant(api_config.database_url, permissions=("INGEST",), of=own.tenant)
    card = own.active_card()
    body = as_lines([event("CLEARING", card, "c1", 1)])

    with Api(own.root, without) as denied, Api(own.root, only) as ingesting:
        refused(post(denied, body), 403, "FORBIDDEN")
        refused(look_up(denied, "visa", "c1"), 403, "FORBIDDEN")
        [outcome] = outcomes(post(ingesting, body))
        refused(ingesting.get("/transactions"), 403, "FORBIDDEN")

    assert outcome["outcome"] == "APPLIED"


# --- while nothing is decided --------------------------------------------------------------------


@contextmanager
def locked_queues(database_url: str) -> Iterator[None]:
    """Keep every queue locked, so that no worker decides."""
    with psycopg.connect(database_url) as outsider:
        outsider.execute("SELECT FROM inbox_shards FOR UPDATE")
        yield
        outsider.rollback()


def test_an_authorization_without_an_outcome_is_declined_by_its_deadline(
    own: Api, app_database_url: str
) -> None:
    card = own.active_card()
    decide_by = datetime.now(UTC) + timedelta(seconds=1)
    authorization = event("AUTHORIZATION", card, "a1", 10, decideBy=decide_by.isoformat())

    with locked_queues(app_database_url):
        [declined] = sent(own, authorization)
    settled = eventually(lambda: found(own, "a1"))

    for each in (declined, settled):
        assert (each["outcome"], each["reason"]) == ("DECLINED", "DECISION_TIMEOUT")


def test_an_authorization_that_comes_after_its_deadline_is_declined(own: Api) -> None:
    card = own.active_card()
    late = event("AUTHORIZATION", card, "a1", 10, decideBy="2026-01-31T12:00:00Z")

    declined, cleared = sent(own, late, event("CLEARING", card, "c1", 10))

    assert (declined["outcome"], declined["reason"]) == ("DECLINED", "DECISION_TIMEOUT")
    assert cleared["outcome"] == "APPLIED"
    assert ok(look_up(own, "visa", "a1"))["reason"] == "DECISION_TIMEOUT"


@pytest.mark.parametrize("lane", ["LIVE", "BULK"])
def test_an_approval_that_is_sent_again_after_its_deadline_is_kept(own: Api, lane: str) -> None:
    card = own.active_card()
    authorization = event("FINANCIAL_AUTHORIZATION", card, "a1", 10)
    sent(own, authorization)

    [again] = sent(own, {**authorization, "decideBy": "2026-01-31T12:00:00Z"}, lane=lane)

    assert (again["outcome"], again["firstOutcome"]) == ("DUPLICATE", "APPLIED")
    assert again["cardTransaction"]["status"] == "SETTLED"
    assert ok(look_up(own, "visa", "a1"))["outcome"] == "APPLIED"


@contextmanager
def failing_inserts(database_url: str, condition: str, *, after_s: float = 0) -> Iterator[None]:
    """Let each insert into the inbox fail whose row meets `condition`, after some time."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(
            f"CREATE FUNCTION cardledger.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF {condition} THEN PERFORM pg_sleep({after_s}); RAISE query_canceled; END IF;"
            f" RETURN NEW; END $$".encode()
        )
        owner.execute(
            "CREATE TRIGGER fail BEFORE INSERT ON cardledger.inbox"
            " FOR EACH ROW EXECUTE FUNCTION cardledger.fail()"
        )
        try:
            yield
        finally:
            owner.execute("DROP FUNCTION cardledger.fail CASCADE")


@pytest.mark.parametrize("wait", ["true", "false"])
def test_nothing_is_acknowledged_before_all_of_it_is_committed(
    own: Api, database_url: str, wait: str
) -> None:
    """A deadline that passes while the write stalls settles its own authorization only."""
    card = own.active_card()
    decide_by = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    events = [
        event("AUTHORIZATION", card, "a1", 10, decideBy=decide_by),
        event("CLEARING", card, "stalls", 20),
    ]

    with failing_inserts(database_url, "NEW.reference = 'stalls'", after_s=2):
        refused(post(own, as_lines(events), wait=wait), 503, "SERVICE_UNAVAILABLE")

    refused(look_up(own, "visa", "stalls"), 404, "REFERENCE_NOT_FOUND")
    assert sent(own, events[1])[0]["outcome"] == "APPLIED"


def test_a_reversal_that_is_not_written_yet_refuses_no_event_of_another_platform(
    own: Api, api: Api, app_database_url: str, database_url: str
) -> None:
    mine, other = own.active_card(), api.active_card()
    decide_by = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()

    with failing_inserts(database_url, "NEW.source = 'decision-timeout'"):
        with locked_queues(app_database_url):
            declined = post(
                own, as_lines([event("AUTHORIZATION", mine, "same", 10, decideBy=decide_by)])
            )
            again = post(own, as_lines([event("AUTHORIZATION", mine, "same", 10)]))
        [outcome] = sent(api, event("AUTHORIZATION", other, "same", 10))

    assert outcome["outcome"] == "APPLIED"
    assert "not approved" in outcomes(declined)[0]["detail"]
    refused(again, 503, "SERVICE_UNAVAILABLE")


def test_events_that_are_not_decided_in_time_are_accepted(
    own: Api, api_config: ApiConfig, app_database_url: str
) -> None:
    card = own.active_card()
    impatient = replace(api_config, reply_timeout_s=0.5)
    clearings = [event("CLEARING", card, f"c{n}", 1) for n in range(3)]

    with server(impatient) as root, Api(root, own.tenant) as client:
        with locked_queues(app_database_url):
            waiting = sent(client, *clearings)
            refused(look_up(client, "visa", "c0"), 404, "REFERENCE_NOT_FOUND")
        last = eventually(lambda: found(own, "c2"))

    assert [each["outcome"] for each in waiting] == ["ACCEPTED"] * 3
    assert last["cardTransaction"]["settledAmount"]["amount"] == 3


def test_a_platform_has_so_many_undecided_events_and_others_are_accepted(
    own: Api, api: Api, app_database_url: str
) -> None:
    card, other = own.active_card(), api.active_card()
    limit = UNDECIDED[Lane.LIVE]

    def live(api: Api, card: Json, name: str) -> httpx2.Response:
        events = [event("CLEARING", card, f"{name}-{n}", 1) for n in range(LIVE_EVENTS)]
        return post(api, as_lines(events), lane="LIVE", wait="false")

    with locked_queues(app_database_url):
        for turn in range(limit // LIVE_EVENTS):
            ok(live(own, card, str(turn)), 202)
        refused(live(own, card, "more"), 429, "RATE_LIMITED")
        ok(live(api, other, "other"), 202)

    eventually(lambda: live(own, card, "more").status_code == 202)
