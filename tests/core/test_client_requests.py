"""The client of the HTTP interface: what it sends, and how it reads what comes back. No network."""

import asyncio
import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from httpx2 import Response
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from cardledger_client import Error, sql
from cardledger_client.batches import LIVE_EVENTS, MAX_BYTES, MAX_EVENTS, Batch, Pending, batches
from cardledger_client.deadlines import Answers, Report
from cardledger_client.requests import Requests, identified, usual_headers
from cardledger_client.resources import Lane
from cardledger_client.responses import Lines, error_of, is_without_outcome, resource
from cardledger_client.retries import Attempts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def event(number: int, **fields: object) -> dict[str, Any]:
    return {"type": "CLEARING", "source": "visa", "reference": f"r{number}", **fields}


def asked(number: int, decide_by: datetime) -> dict[str, Any]:
    return event(number, type="AUTHORIZATION", decideBy=decide_by.isoformat())


def outcome(number: int, **fields: object) -> bytes:
    return json.dumps({"reference": f"r{number}", "outcome": "APPLIED", **fields}).encode()


def pending(*events: dict[str, Any]) -> Pending:
    [batch] = batches(events, None)
    return Pending(batch, began=NOW)


def references(batch: Batch) -> list[object]:
    return [line.reference for line in batch.lines]


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "lane", "expected", "sizes"),
    [
        (LIVE_EVENTS, None, "LIVE", [20]),
        (LIVE_EVENTS + 1, None, "BULK", [21]),
        (45, "LIVE", "LIVE", [20, 20, 5]),
        (3, "BULK", "BULK", [3]),
        (MAX_EVENTS + 5, None, "BULK", [MAX_EVENTS, 5]),
        (0, None, None, []),
    ],
)
def test_all_events_of_a_call_are_in_one_lane(
    count: int, lane: Lane | None, expected: Lane | None, sizes: list[int]
) -> None:
    made = list(batches((event(n) for n in range(count)), lane))

    assert [len(batch.lines) for batch in made] == sizes
    assert {batch.lane for batch in made} == ({expected} if sizes else set())
    assert [name for batch in made for name in references(batch)] == [f"r{n}" for n in range(count)]


def test_a_request_has_as_many_bytes_as_the_server_takes() -> None:
    large = [event(n, detail="x" * 60_000) for n in range(300)]

    made = list(batches(large, "BULK"))

    assert len(made) == 3
    assert all(len(Pending(batch, began=NOW).content) <= MAX_BYTES for batch in made)


def test_what_is_not_json_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        list(batches([event(1, amount=float("nan"))], None))


# --- outcomes, and what is sent again ------------------------------------------------------------


def test_only_events_without_an_outcome_are_sent_again() -> None:
    sent = pending(event(1), event(2), event(3))

    sent.take(outcome(1))
    sent.repeat(now=NOW + SECOND)

    assert [json.loads(line)["reference"] for line in sent.content.splitlines()] == ["r2", "r3"]
    assert not sent.is_complete
    assert sent.incomplete().may_retry


def test_a_duplicate_has_the_result_of_the_first_submission() -> None:
    sent = pending(event(1), event(2))
    sent.repeat(now=NOW)

    first = sent.take(outcome(1, outcome="DUPLICATE", firstOutcome="APPLIED")).outcome
    second = sent.take(outcome(2, outcome="DUPLICATE", firstOutcome="DECLINED", new=1)).outcome

    assert (first.result, first.is_approval) == ("APPLIED", True)
    assert (second.result, second.is_approval) == ("DECLINED", False)
    assert sent.is_complete


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("x" * 300, "x" * 255),
        ("x" * 255, "x" * 255),
        ("x", None),  # The server cannot read the line.
        ("x\0", None),
        ("\ud800", None),
        (17, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("kind", ["REJECTED", "ACCEPTED"])
def test_the_outcome_of_a_malformed_event_has_as_much_of_its_reference_as_the_server_keeps(
    sent: object, received: str | None, kind: str
) -> None:
    waiting = pending(event(1, reference=sent), event(2))

    malformed = waiting.take(outcome(1, outcome=kind, reference=received)).outcome
    applied = waiting.take(outcome(2)).outcome

    assert (malformed.outcome, malformed.reference) == (kind, received)
    assert applied.reference == "r2"


@pytest.mark.parametrize(
    "received",
    [
        {"reference": "x" * 255},
        {"reference": None},
        {"reference": "x" * 254, "outcome": "REJECTED"},
        {"reference": "r2", "outcome": "REJECTED"},
    ],
)
def test_an_outcome_with_less_of_the_reference_is_of_another_event(received: Any) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(Error, match="INVALID_RESPONSE"):
        pending(event(1, reference="x" * 300)).take(outcome(1, **received))


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"reference":"r1"}', outcome(2)])
def test_another_line_than_the_next_outcome_is_an_error(content: bytes) -> None:
    with pytest.raises(Error, match="INVALID_RESPONSE"):
        pending(event(1)).take(content)


def test_an_authorization_is_not_sent_again_after_its_deadline() -> None:
    sent = pending(event(1), asked(2, NOW + SECOND))

    sent.repeat(now=NOW + SECOND / 2)
    with pytest.raises(Error, match="DECIDE_BY_PASSED") as caught:
        sent.repeat(now=NOW + SECOND)

    assert caught.value.details == {"references": ["r2"]}
    assert not caught.value.may_retry


@pytest.mark.parametrize("fields", [{}, {"outcome": "DUPLICATE", "firstOutcome": "APPLIED"}])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_an_approval_is_reported_before_its_deadline_only(
    fields: dict[str, str],
    is_repeated: bool,  # noqa: FBT001
) -> None:
    sent = pending(asked(1, NOW + SECOND), event(2))
    if is_repeated:
        sent.repeat(now=NOW)
    report = Report()

    approved, cleared = sent.take(outcome(1, **fields)), sent.take(outcome(2))
    late = report.outcome(approved, now=NOW + SECOND)

    assert approved.at(NOW + SECOND / 2).is_approval
    assert (late.outcome, late.reference, late.is_approval) == ("DECIDE_BY_PASSED", "r1", False)
    assert report.outcome(cleared, now=NOW + 2 * SECOND).outcome == "APPLIED"
    with pytest.raises(Error, match="DECIDE_BY_PASSED") as caught:
        report.finish()
    assert caught.value.details == {"references": ["r1"]}


def test_a_call_that_ends_after_a_deadline_has_all_other_outcomes() -> None:
    sent = pending(asked(1, NOW + SECOND), event(2), asked(3, NOW + SECOND))
    answers = Answers()
    for line in (outcome(1), outcome(2), outcome(3, outcome="DECLINED")):
        answers.add(sent.take(line))

    in_time = answers.outcomes(now=NOW)
    with pytest.raises(Error, match="DECIDE_BY_PASSED") as caught:
        answers.outcomes(now=NOW + SECOND)

    assert [each.outcome for each in in_time] == ["APPLIED", "APPLIED", "DECLINED"]
    assert caught.value.details == {"references": ["r1"]}
    found = [(each.reference, each.outcome) for each in caught.value.outcomes]
    assert found == [("r1", "DECIDE_BY_PASSED"), ("r2", "APPLIED"), ("r3", "DECLINED")]


def test_a_call_that_fails_has_the_outcomes_that_arrived() -> None:
    sent = pending(event(1), asked(2, NOW + SECOND), asked(3, NOW + SECOND))
    answers = Answers()
    for line in (outcome(1), outcome(2)):
        answers.add(sent.take(line))
    with pytest.raises(Error, match="DECIDE_BY_PASSED") as unanswered:
        sent.repeat(now=NOW + SECOND)

    lost = answers.error(failure(), now=NOW)
    late = answers.error(failure(), now=NOW + SECOND)
    both = answers.error(unanswered.value, now=NOW + SECOND)

    assert (lost.code, [each.reference for each in lost.outcomes]) == ("NO_RESPONSE", ["r1", "r2"])
    assert (late.code, late.details) == ("DECIDE_BY_PASSED", {"references": ["r2"]})
    assert both.details == {"references": ["r2", "r3"]}
    assert [each.outcome for each in both.outcomes] == ["APPLIED", "DECIDE_BY_PASSED"]


def test_the_deadline_of_an_authorization_limits_the_wait() -> None:
    asks, tells = pending(asked(1, NOW + 2 * SECOND)), pending(event(1))

    assert (asks.patience_s(30, now=NOW), tells.patience_s(30, now=NOW)) == (3, 30)
    assert (asks.pause_s(5, now=NOW), tells.pause_s(5, now=NOW)) == (2, 5)
    assert asks.pause_s(5, now=NOW + 3 * SECOND) == 0


def test_an_authorization_that_is_first_sent_after_its_deadline_is_waited_for() -> None:
    sent = pending(asked(1, NOW + SECOND))  # Of a call with many events before it.

    assert sent.patience_s(30, now=NOW + SECOND) == 30
    assert sent.take(outcome(1, outcome="DECLINED")).at(NOW + 2 * SECOND).outcome == "DECLINED"


def test_a_file_of_old_authorizations_may_be_sent_again() -> None:
    sent = pending(asked(1, NOW - SECOND))

    sent.repeat(now=NOW)

    assert sent.patience_s(30, now=NOW) == 30
    assert sent.take(outcome(1)).at(NOW + SECOND).outcome == "APPLIED"


def test_a_deadline_is_read_as_the_server_reads_it() -> None:
    sent = pending(event(1, type="AUTHORIZATION", decideBy="2026-03-01t12:00:02.5z"))

    assert sent.pause_s(5, now=NOW) == 2.5


# --- attempts ------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failure(**fields: Any) -> Error:  # noqa: ANN401
    return Error("NO_RESPONSE", "lost", **({"may_retry": True} | fields))


def test_delays_double_until_the_limit_ends() -> None:
    clock = Clock()
    attempts = Attempts(10, clock=clock)
    delays: list[float] = []

    def fail_again_and_again() -> None:
        while True:
            delays.append(attempts.delay_s(failure()))
            clock.now += delays[-1]

    with pytest.raises(Error, match="lost"):
        fail_again_and_again()

    assert all(later <= 5 for later in delays)
    assert delays[0] <= 0.1 < delays[-1]
    assert clock.now < 10


def test_progress_begins_the_time_limit_anew() -> None:
    clock = Clock()
    attempts = Attempts(10, clock=clock)
    clock.now = 9.5
    attempts.progressed()

    assert attempts.left_s == 10
    assert attempts.delay_s(failure()) <= 0.1


def test_the_server_says_how_long_to_wait() -> None:
    assert Attempts(10, clock=Clock()).delay_s(failure(retry_after_s=3)) == 3
    with pytest.raises(Error, match="lost"):
        Attempts(10, clock=Clock()).delay_s(failure(retry_after_s=30))


def test_what_would_fail_again_is_not_repeated() -> None:
    with pytest.raises(Error, match="lost"):
        Attempts(10, clock=Clock()).delay_s(failure(may_retry=False))


# --- responses -----------------------------------------------------------------------------------


def error(status: int, body: object, *, is_repeatable: bool = True, **headers: str) -> Error:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of(Response(status, headers=named, json=body), is_repeatable=is_repeatable)


def test_an_error_has_what_the_server_says() -> None:
    body = {"status": 429, "code": "RATE_LIMITED", "message": "Wait.", "details": {"limit": 1}}

    caught = error(429, body, retry_after="2", x_request_id="abc")

    assert (caught.code, caught.status, caught.message) == ("RATE_LIMITED", 429, "Wait.")
    assert (caught.details, caught.request_id) == ({"limit": 1}, "abc")
    assert (caught.may_retry, caught.retry_after_s) == (True, 2)
    assert vars(pickle.loads(pickle.dumps(caught))) == vars(caught)  # noqa: S301 - ours


@pytest.mark.parametrize(
    ("status", "may_retry"), [(400, False), (409, False), (429, True), (500, False), (503, True)]
)
def test_some_statuses_are_worth_another_attempt(status: int, may_retry: bool) -> None:  # noqa: FBT001
    body = {"status": status, "code": "X", "message": "x"}

    assert error(status, body).may_retry is may_retry
    assert not error(status, body, x_should_retry="false").may_retry


@pytest.mark.parametrize("status", [200, 302, 404, 502])
def test_the_page_of_a_proxy_is_no_answer(status: int) -> None:
    with pytest.raises(Error) as caught:
        resource(Response(status, content=b"<html>"))

    assert caught.value.code == "INVALID_RESPONSE"
    assert caught.value.may_retry is (status == 502)


@pytest.mark.parametrize(
    ("status", "body", "headers", "may_retry"),
    [
        (429, {"code": "RATE_LIMITED"}, {}, True),
        (429, None, {}, True),
        (503, {"code": "SERVICE_UNAVAILABLE"}, {}, True),
        (503, {"code": "SERVICE_UNAVAILABLE"}, {"x_should_retry": "false"}, False),
        (503, {"code": "SERVICE_UNAVAILABLE", "status": 502}, {}, False),
        (503, None, {}, False),
        (502, {"code": "X"}, {}, False),
        (504, None, {}, False),
        (500, {"code": "X"}, {}, False),
    ],
)
def test_a_request_with_another_effect_the_second_time_is_repeated_when_it_was_refused(
    status: int,
    body: dict[str, Any] | None,
    headers: dict[str, str],
    may_retry: bool,  # noqa: FBT001
) -> None:
    sent = None if body is None else {"status": status, "message": "x"} | body

    assert error(status, sent, is_repeatable=False, **headers).may_retry is may_retry


NO_OUTCOME = {"status": 404, "code": "REFERENCE_NOT_FOUND", "message": "x"}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, NO_OUTCOME | {"details": {"source": "visa", "reference": "r1"}}, True),
        (404, NO_OUTCOME | {"details": {"source": "visa", "reference": "r2"}}, False),
        (404, NO_OUTCOME, False),
        (404, NO_OUTCOME | {"details": []}, False),
        (404, {"details": {"source": "visa", "reference": "r1"}}, False),
        (404, "<html>", False),
        (409, {"status": 409, "code": "CONFLICT", "message": "x"}, False),
    ],
)
def test_the_server_names_the_event_that_has_no_outcome(
    status: int,
    body: object,
    expected: bool,  # noqa: FBT001
) -> None:
    assert is_without_outcome(error(status, body), "visa", "r1") is expected


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_cut_at_newlines_wherever_the_stream_is_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=5).map(sorted))
    splitter = Lines()
    found: list[bytes] = []
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])

    assert found == lines


# --- addresses and credentials -------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    ["http://host:1", "http://host:1/", "http://host:1/2025-10-13", "http://host:1/2025-10-13/"],
)
def test_the_base_url_may_end_with_the_version(base_url: str) -> None:
    requests = Requests(base_url)

    assert requests.outcome("a/b", "c d", None).url == "http://host:1/network-events/a%2Fb/c%20d"
    assert requests.call("GET", "/cards", None, {}).url == "http://host:1/2025-10-13/cards"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_does_not_arrive_in_a_path_is_refused(name: str) -> None:
    requests = Requests("http://host")

    with pytest.raises(ValueError, match="path"):
        requests.outcome("visa", name, None)
    with pytest.raises(ValueError, match="path"):
        requests.outcome(name, "r1", None)
    with pytest.raises(ValueError, match="path"):
        identified(name)


def test_a_post_has_an_idempotency_key_of_its_own() -> None:
    requests = Requests("https://host/prefix")

    first, second = (requests.call("POST", "/cards", {}, {}) for _ in range(2))

    assert first.url == "https://host/prefix/2025-10-13/cards"
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]
    assert "Idempotency-Key" in requests.call("post", "/cards", {}, {}).headers
    assert not requests.call("delete", "/tokens/1", None, {}).is_repeatable


@pytest.mark.parametrize("token", ["id:secret", ("id", "secret")])
def test_a_token_is_a_pair_or_its_two_parts(token: str | tuple[str, str]) -> None:
    assert usual_headers(token)["Authorization"] == "Basic aWQ6c2VjcmV0"


@pytest.mark.parametrize("token", ["", "id", "id:", ":secret", ("id", "")])
def test_half_a_token_is_refused(token: str | tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="client secret"):
        usual_headers(token)


@pytest.mark.parametrize("base_url", ["", "host:8000", "ftp://host", "http://"])
def test_the_base_url_is_an_http_url(base_url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Requests(base_url)


# --- database transactions -----------------------------------------------------------------------


def test_what_is_no_connection_of_a_known_library_is_refused() -> None:
    with pytest.raises(TypeError, match="object is not a connection or session of SQLAlchemy"):
        sql.enqueue(cast("Any", object()), [event(1)])


def test_a_connection_for_an_event_loop_and_one_that_is_not_are_told_apart() -> None:
    of_loop = create_async_engine("postgresql+psycopg://")
    for connection in (AsyncSession(of_loop), AsyncConnection(of_loop)):
        with pytest.raises(TypeError, match="is for an event loop: await enqueue_async"):
            sql.enqueue(cast("Any", connection), [event(1)])

    with pytest.raises(TypeError, match="Session is not for an event loop: call enqueue"):
        asyncio.run(sql.enqueue_async(cast("Any", Session()), [event(1)]))


@pytest.mark.parametrize("events", [event(1), ["x"], [[1, 2]]])
def test_what_is_not_a_list_of_events_is_named(events: object) -> None:
    with pytest.raises(TypeError, match=r"an event is a mapping, not (str|list); pass a list"):
        list(batches(cast("Any", events), None))


@pytest.mark.parametrize("schema", ["", "a b", 'a"b', "Ledger", "1st"])
def test_a_schema_is_a_plain_name(schema: str) -> None:
    engine = create_engine("postgresql+psycopg://")

    with pytest.raises(ValueError, match="schema"), Session(engine) as session:
        sql.enqueue(session, [event(1)], schema=schema)
