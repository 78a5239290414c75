"""The judge of attacks finds what it is for, and takes no attack that did not strike for a pass."""

import asyncio
import gc
import json
import socket
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack import judge, probes, wire
from attack.arena import Flood
from attack.judge import Finding, Measure, Sample, Strike
from attack.probes import Probe
from attack.report import Report
from storm.system import Process
from tests.waiting import eventually, limit_s

QUIET_MS: Final = 10.0


def samples(*seconds: float, status: int = 200) -> list[Sample]:
    return [Sample(float(number), taken, status) for number, taken in enumerate(seconds)]


def broken(measures: list[Measure]) -> list[str]:
    return [measure.name for measure in measures if not measure.holds]


def finding(**fields: Any) -> Finding:  # noqa: ANN401 - of `Finding`
    usual: dict[str, Any] = {
        "item": "A2",
        "name": "unknown fields",
        "aim": "block the event loop",
        "seconds": 60.0,
        "struck": 7,
        "proof": "7 x 400",
        "measures": [Measure(name="largest answer", value=900, limit=16_384, unit="B")],
    }
    return Finding(**usual | fields)


def report(*findings: Finding) -> Report:
    return Report(
        command="make attack",
        about="a machine",
        quiet_p50_ms=5,
        quiet_p99_ms=QUIET_MS,
        findings=findings,
    )


def test_figures_are_of_answered_samples_and_count_the_others() -> None:
    taken = [*samples(0.01, 0.02, 0.03), *samples(20.0, status=0), *samples(0.5, status=503)]

    found = judge.figures([*taken, *samples(0.1, status=429)])

    assert (found.count, found.failed, found.refused) == (6, 2, 1)
    assert found.longest_ms == pytest.approx(500)


@pytest.mark.parametrize(
    ("p99_ms", "names"), [(29.9, []), (30.0, []), (30.1, ["other platform's p99"])]
)
def test_three_times_the_quiet_p99_is_allowed(p99_ms: float, names: list[str]) -> None:
    taken = judge.figures(samples(*[0.005] * 200, *[p99_ms / 1000] * 4))

    assert broken(judge.of_victim(taken, QUIET_MS)) == names


@pytest.mark.parametrize("status", [0, 500, 503])
def test_one_authorization_that_fails_is_too_many(status: int) -> None:
    taken = judge.figures([*samples(*[0.005] * 200), *samples(0.005, status=status)])

    assert broken(judge.of_victim(taken, QUIET_MS)) == ["other platform's 5xx or unanswered"]


def test_a_refusal_of_the_other_platform_is_too_many() -> None:
    taken = judge.figures([*samples(*[0.005] * 200), *samples(0.005, status=429)])

    assert broken(judge.of_victim(taken, QUIET_MS)) == ["other platform's refusals"]


def test_without_samples_nothing_is_withstood() -> None:
    assert broken(judge.of_victim(judge.figures([]), QUIET_MS)) == ["times without samples"]


def test_a_sample_that_never_came_is_too_many() -> None:
    taken = judge.figures(samples(*[0.005] * 199), wanted=200)

    assert taken.missing == 1
    assert broken(judge.of_victim(taken, QUIET_MS)) == ["other platform's samples missing"]
    assert judge.figures(samples(*[0.005] * 201), wanted=200).missing == 0


@given(
    rate=st.sampled_from([1.0, 7.0, 20.0]),
    began=st.floats(0, 1000),
    seconds=st.floats(0, 100),
)
def test_as_many_samples_are_wanted_as_are_surely_due(
    rate: float, began: float, seconds: float
) -> None:
    times = [number / rate for number in range(int(rate * (began + seconds)) + 2)]
    taken = sum(began <= one < began + seconds for one in times)

    assert taken - 2 <= judge.due(rate, began, began + seconds) <= taken


def test_whole_seconds_want_every_sample() -> None:
    assert [judge.due(20, 0, 1.0001), judge.due(20, 5, 5)] == [20, 0]


def refusals(**statuses: list[int]) -> Strike:
    """Return the strike of requests by kind and what they got."""
    noted = judge.Refusals(statuses)
    for kind, found in statuses.items():
        for status in found:
            noted.note(kind, status)
    return noted.strike()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
def test_refusals_for_what_a_request_is_are_what_an_attack_should_get(status: int) -> None:
    strike = refusals(a=[status], b=[429, 404])

    assert (strike.struck, broken(list(strike.measures))) == (3, [])


@pytest.mark.parametrize("statuses", [[], [0], [429], [429, 503, 0]])
def test_a_request_that_was_refused_by_limits_only_has_tried_no_wall(statuses: list[int]) -> None:
    strike = refusals(a=[403], b=statuses)

    assert "kinds of requests not judged" in broken(list(strike.measures))


def test_one_request_that_succeeds_once_is_too_many() -> None:
    strike = refusals(a=[403, 403, 204], b=[404])

    assert broken(list(strike.measures)) == ["kinds of requests that succeeded"]
    assert strike.proof == "4 requests of 2 kinds; succeeded: a"


def test_a_refusal_that_is_an_error_of_the_service_is_too_many() -> None:
    assert broken(list(refusals(a=[400, 500]).measures)) == ["answers 5xx"]


def test_a_flood_that_reached_no_work_is_not_withstood() -> None:
    flood = Flood()
    flood.note(wire.Answer(429))

    assert broken(list(flood.strike(200, 429).measures)) == []
    assert broken(list(flood.strike(200, 429, processed=(200,)).measures)) == ["times without work"]
    flood.note(wire.Answer(200))
    assert broken(list(flood.strike(200, 429, processed=(200,)).measures)) == []


def test_an_attack_that_gets_another_answer_than_intended_is_not_withstood() -> None:
    flood = Flood()
    for status in (413, 413, 0):
        flood.note(wire.Answer(status))

    assert flood.strike(400, 413).struck == 2
    assert broken(list(flood.strike(400, 413).measures)) == []
    assert flood.strike(400).struck == 0
    assert broken(list(flood.strike(400).measures)) == ["answers of other statuses"]


def test_a_report_quotes_the_first_answer_of_each_status_that_was_not_intended() -> None:
    flood = Flood()
    for status, body in [(201, b"made"), (400, b"why"), (400, b"later"), (0, b"")]:
        flood.note(wire.Answer(status, body=body))

    assert flood.strike(201).proof == f"{flood.words()}; why"
    assert flood.strike(201, 400).proof == flood.words()


@pytest.mark.parametrize(
    ("found", "names"),
    [
        ([Probe(200, 0.1)] * 100, []),
        ([Probe(200, 0.1)] * 100 + [Probe(200, 4.0)], []),
        ([Probe(200, 0.1)] * 98 + [Probe(200, 0.6)] * 2, ["health checks, p99"]),
        ([Probe(200, 0.1), Probe(0, 0.1), Probe(503, 0.1)], ["health checks not answered"]),
        ([], ["times without health checks"]),
    ],
)
def test_health_checks_are_answered_and_soon(found: list[Probe], names: list[str]) -> None:
    assert broken(probes.prompt(found)) == names


def test_an_absolute_limit_judges_the_longest_wait() -> None:
    taken = judge.figures(samples(*[0.005] * 200, 2.1))

    assert broken(judge.of_victim(taken, QUIET_MS)) == []
    assert broken(judge.of_victim(taken, QUIET_MS, longest_ms=2000)) == ["longest decision"]


def test_one_spoilt_quiet_time_does_not_raise_the_limits() -> None:
    windows = [judge.figures(samples(taken)) for taken in (0.010, 0.011, 0.9)]

    assert judge.quiet_p99_ms(windows) == pytest.approx(11)


@pytest.mark.parametrize(("during_mb", "holds"), [(300.0, True), (301.0, False), (50.0, True)])
def test_memory_may_grow_by_200_mb(during_mb: float, *, holds: bool) -> None:
    assert judge.of_memory(100.0, during_mb).holds == holds


def test_a_process_that_ended_is_too_many_also_when_another_one_took_its_place() -> None:
    before = {"api": 0, "worker-1": 2, "Redis": 4711}

    assert broken([judge.of_processes(before, before)]) == []
    assert broken([judge.of_processes(before, before | {"api": 1, "Redis": 4712})]) == [
        "processes that ended ['Redis', 'api']"
    ]


def test_the_ends_of_a_process_are_counted_and_its_stop_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    short = Process("short", [sys.executable, "-c", "print(1)"], {}, log)
    long = Process("long", [sys.executable, "-c", "import time; time.sleep(600)"], {}, log)

    short.start()
    long.start()
    eventually(lambda: not short.is_running)
    ended = short.ends
    short.keep()
    eventually(lambda: not short.is_running)

    assert (ended, short.ends, long.ends) == (1, 2, 0)
    long.stop()
    long.keep()
    assert long.ends == 0


def test_an_attack_that_did_not_strike_is_not_withstood() -> None:
    assert finding().holds
    assert not finding(struck=0).holds
    assert not finding(error="TimeoutError").holds
    assert not finding(measures=[Measure(name="answers 500", value=1, limit=0)]).holds


def test_a_report_holds_when_every_attack_was_withstood_and_there_was_one() -> None:
    assert report(finding()).holds
    assert not report(finding(), finding(struck=0)).holds
    assert not report().holds


def test_the_table_shows_each_attack_its_effect_and_its_limit() -> None:
    above = Measure(name="largest answer", value=8_000_000, limit=16_384, unit="B")

    text = report(
        finding(), finding(measures=[above]), finding(struck=0), finding(error="OSError: no")
    ).text()

    assert "ok     A2   unknown fields (60 s): block the event loop" in text
    assert "8,000,000 B      16,384 B  <-- above its limit" in text
    assert "DID NOT STRIKE" in text
    assert "NOT PLAYED: OSError: no" in text
    assert "1 of 4 attacks withstood; again: make attack" in text


def test_the_report_is_json_with_every_verdict() -> None:
    content = json.loads(json.dumps(report(finding(), finding(struck=0)).json()))

    assert content["holds"] is False
    assert [one["holds"] for one in content["findings"]] == [True, False]
    assert content["findings"][0]["measures"][0]["holds"] is True


def test_every_answer_in_what_came_back_is_seen() -> None:
    both = b"HTTP/1.1 400 Bad Request\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n{}"

    assert wire.statuses(both) == [400, 200]
    assert wire.statuses(b"") == []


def test_a_request_is_well_formed() -> None:
    address = wire.Address("127.0.0.1", 1, "/base")

    whole = wire.request("POST", address, "/x", authorization="Basic a", body={"a": 1})

    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /base/x HTTP/1.1"
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"a": 1}'
    bare = wire.request("GET", replace(address, base=""), "/x")
    assert bare == b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("files", [1, 2])
def test_a_file_that_is_not_read_leaves_no_socket_open(files: int) -> None:
    gc.collect()  # What earlier tests have left is not to be found here.
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It accepts nothing and reads nothing.
        answers = asyncio.run(_answers_to_files(silent.getsockname(), files))

        assert [answer.status for answer in answers] == [wire.NO_ANSWER] * files
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
        assert [str(warning.message) for warning in caught] == []


async def _answers_to_files(listening: tuple[str, int], files: int) -> list[wire.Answer]:
    """Return the answers to as many files on one connection, aborted at the end."""
    address = wire.Address(*listening, "")
    connection = wire.Connection(address, timeout_s=0.2)
    file = wire.request("POST", address, "/", body=b"x" * (16 << 20))
    answers = [await connection.exchange(file) for _ in range(files)]
    connection.abort()
    return answers


def test_a_connection_that_has_sent_all_after_it_was_closed_can_be_aborted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(_aborted_after_all_was_read(server))


async def _aborted_after_all_was_read(server: socket.socket) -> None:
    host, port = server.getsockname()
    address = wire.Address(host, port, "")
    connection = wire.Connection(address, timeout_s=0.2)
    file = wire.request("POST", address, "/", body=b"x" * (16 << 20))
    await connection.exchange(file)  # Ends without an answer, and closes what is still sending.
    accepted, _ = server.accept()
    with accepted:
        while await asyncio.to_thread(accepted.recv, 1 << 20):
            pass
    connection.abort()


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    answers, opened = asyncio.run(_answers_of_a_server_that_closes())

    assert [answer.status for answer in answers] == [204, 204]
    assert opened == 2


async def _answers_of_a_server_that_closes() -> tuple[list[wire.Answer], int]:
    """Return two answers on one connection, which the server closes after each."""
    opened: list[asyncio.StreamWriter] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    address = wire.Address(host, port, "")
    connection = wire.Connection(address, timeout_s=limit_s(5))
    async with server:
        answers = []
        for _ in range(2):
            answers.append(await connection.exchange(wire.request("GET", address, "/")))
            assert connection._streams is not None
            await connection._streams[0].read()  # Until its end is known.
        connection.close()
    return answers, len(opened)
