import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.client import Numbered, Unreadable, jsonl
from cardledger.workers.client.jsonl import Splitter
from tests.system import support
from tests.system.support import COMMAND, Up, outcomes, purchases, started, write_lines
from tests.waiting import eventually, limit_s, processor_s

pytestmark = pytest.mark.slow

_IS_HELD = "SELECT held > 0 FROM internal_accounts WHERE id = %s"


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: DatabaseUrl, redis_url: str
) -> Iterator[Up]:
    with support.own_database(postgres_url) as database_url:
        env = support.environment(DATABASE_URL=database_url, REDIS_URL=redis_url)
        with support.up(tmp_path_factory.mktemp("up"), env) as running:
            yield running


@pytest.fixture(scope="module")
def cards(system: Up) -> list[str]:
    with system.api() as api:
        return [support.cardholder(api, funds=10_000_000)["card"] for _ in range(4)]


def test_ten_thousand_events_with_duplicates_get_ten_thousand_outcomes_in_order(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    dice = random.Random(5)  # noqa: S311 - the same duplicates every time
    events = purchases(cards, 9_900, prefix="many")
    for _ in range(100):
        place = dice.randrange(100, len(events))
        events.insert(place, events[dice.randrange(place)])

    submitted = system.submit(write_lines(tmp_path / "events.jsonl", events))

    assert submitted.returncode == 0, submitted.stderr
    printed = outcomes(submitted)
    assert [one["reference"] for one in printed] == [event["reference"] for event in events]
    assert Counter(one["outcome"] for one in printed) == {"APPLIED": 9_900, "DUPLICATE": 100}
    assert "10,000 events" in submitted.stderr
    assert system.verify().returncode == 0


def test_kill_9_of_the_worker_in_the_middle_loses_no_event_and_applies_none_twice(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    events = purchases(cards, 3_000, prefix="killed")
    file = write_lines(tmp_path / "events.jsonl", events)
    command = [*COMMAND, "submit", "--data-dir", str(system.data_dir), file]
    with started(command, env=system.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [json.loads(process.stdout.readline())]
        os.kill(system.ready["pids"]["worker-1"], signal.SIGKILL)
        printed += [json.loads(line) for line in process.stdout]

    assert process.returncode == 0
    assert [one["reference"] for one in printed] == [event["reference"] for event in events]
    assert {one["outcome"] for one in printed} == {"APPLIED"}
    assert system.verify().returncode == 0
    again = outcomes(system.submit(file))
    assert {one["outcome"] for one in again} == {"DUPLICATE"}
    assert {one["cardTransaction"]["settlementSummary"]["count"] for one in again} == {1}


def test_lines_that_are_no_events_are_rejected_in_their_place(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    good = purchases(cards, 2, prefix="mixed")
    content = [
        json.dumps(good[0]).encode(),
        b"",
        b"{not json",
        b'{"type": "CLEARING", "type": "CLEARING"}',
        b"[1, 2]",
        b'{"amount": NaN}',
        b'{"a":' * 50 + b"1" + b"}" * 50,
        b'{"reference": "' + b"x" * 70_000 + b'"}',
        b'{"reference": "\xff"}',
        b"\x00",
        json.dumps(good[0] | {"reference": "mixed-float", "amount": 12.5}).encode(),
        json.dumps(good[0] | {"reference": "mixed-0"} | {"amount": 999}).encode(),
        json.dumps(good[1]).encode(),
    ]
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"\r\n".join(content))  # And no end of the last line.

    submitted = system.submit(str(file))
    added = system.submit("--fail-on", "parked", str(file))
    not_waited = system.submit("--no-wait", str(file))
    allowed = system.submit("--fail-on", "none", str(file))

    assert submitted.returncode == 1
    assert "10 event(s) were rejected" in submitted.stderr
    assert "cardledger rejections list" in submitted.stderr
    assert (added.returncode, "10 event(s) were rejected" in added.stderr) == (1, True)
    assert (not_waited.returncode, not_waited.stdout) == (1, "")
    assert "rejected so far" in not_waited.stderr
    assert allowed.returncode == 0, allowed.stderr
    printed = outcomes(submitted)
    assert [one["outcome"] for one in printed] == ["APPLIED", *["REJECTED"] * 10, "APPLIED"]
    assert [one["reason"] for one in printed[1:10]] == ["MALFORMED"] * 9
    assert printed[10]["reason"] == "KEY_REUSED"
    assert printed[1]["detail"].startswith("line 3: not JSON")
    assert "comes twice" in printed[2]["detail"]
    assert printed[9]["reference"] == "mixed-float"
    assert printed[9]["detail"].startswith("line 11: amount must be a JSON integer")
    with psycopg.connect(system.ready["databaseUrl"]) as connection:
        kept = connection.execute("SELECT count(*) FROM rejections WHERE detail LIKE 'line %'")
        assert kept.fetchone() == (36,)  # Of four submissions.


def test_the_exit_code_follows_the_outcomes_that_are_named(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    declined, settled = purchases(cards, 2, prefix="failing")
    events = [
        declined | {"amount": 2**62},
        settled | {"type": "CLEARING_REVERSAL", "issuerTransactionToken": "unseen"},
    ]
    file = write_lines(tmp_path / "events.jsonl", events)

    codes = {
        named: system.submit(*named, file)
        for named in (
            (),
            ("--fail-on", "rejected"),
            ("--fail-on", "declined"),
            ("--fail-on", "parked", "--fail-on", "rejected"),
            ("--fail-on", "none"),
            ("--fail-on", "none", "--fail-on", "parked"),
            ("--fail-on", "parked", "--no-wait"),
            ("--fail-on", "applied"),
        )
    }

    # Also of the repetitions, which are duplicates.
    assert [finished.returncode for finished in codes.values()] == [0, 0, 1, 1, 0, 2, 2, 2]
    assert "1 authorization(s) were declined" in codes["--fail-on", "declined"].stderr
    assert {one["outcome"] for one in outcomes(codes["--fail-on", "none"])} == {"DUPLICATE"}


def test_outcomes_are_lines_that_no_terminal_obeys(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    [event, _] = purchases(cards, 2, prefix="café\u2028\x9b1m")

    submitted = system.submit(write_lines(tmp_path / "events.jsonl", [event]))

    assert submitted.stdout.isascii()
    [line] = submitted.stdout.splitlines()
    assert json.loads(line)["reference"] == event["reference"]


def test_standard_input_is_answered_line_by_line(system: Up, cards: list[str]) -> None:
    first, second = purchases(cards, 2, prefix="typed")
    command = [*COMMAND, "submit", "--data-dir", str(system.data_dir), "-"]
    with started(
        command, env=system.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        printed = []
        for event in (first, second):
            process.stdin.write(json.dumps(event) + "\n")
            process.stdin.flush()
            printed.append(json.loads(process.stdout.readline()))
        process.stdin.close()

    assert process.returncode == 0
    assert [one["cardTransaction"]["status"] for one in printed] == ["AUTHORIZED", "SETTLED"]


def test_expire_takes_any_time_and_refuses_invalid_ones(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    [authorization, *_] = purchases(cards, 2, prefix="forgotten")
    file = write_lines(tmp_path / "one.jsonl", [authorization])
    where = ("--data-dir", str(system.data_dir))
    [printed] = outcomes(support.run("submit", *where, file, env=system.env))
    path = f"/transactions/{printed['cardTransaction']['id']}"

    early = support.run("expire", *where, env=system.env)
    never = support.run("expire", "--at", "tomorrow", *where, env=system.env)
    late = support.run("expire", "--at", "2099-01-01T00:00:00Z", *where, env=system.env)

    assert (early.returncode, early.stdout.split(" due")[0]) == (0, "0")
    assert (never.returncode, never.stdout) == (2, "")
    assert "--at tomorrow: not a time" in never.stderr
    assert late.returncode == 0, late.stderr
    with system.api() as api:
        expired = eventually(lambda: (seen := api.get(path).json())["status"] == "VOIDED" and seen)
    assert expired["statusReason"] == "EXPIRED"


def test_no_wait_returns_when_everything_is_accepted(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    events = purchases(cards, 20, prefix="trusting")

    submitted = system.submit("--no-wait", write_lines(tmp_path / "events.jsonl", events))

    assert (submitted.returncode, submitted.stdout) == (0, "")
    assert "20 events" in submitted.stderr
    with psycopg.connect(system.ready["databaseUrl"], autocommit=True) as connection:
        count = "SELECT count(*) FROM outcomes WHERE reference LIKE 'trusting-%'"
        eventually(lambda: connection.execute(count).fetchone() == (20,))


def test_a_reader_that_leaves_is_no_error_message(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "events.jsonl", purchases(cards, 3_000, prefix="piped"))
    command = [*COMMAND, "submit", "--data-dir", str(system.data_dir), file]
    with started(
        command, env=system.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None

        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert process.returncode == 141, errors
    assert "Traceback" not in errors
    assert "Broken pipe" not in errors


def test_a_card_of_another_platform_is_unknown_to_a_platform(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "events.jsonl", purchases(cards, 1, prefix="foreign"))

    submitted = system.submit("--platform", "0193b5c4-0000-7000-8000-000000000000", file)

    assert [one["reason"] for one in outcomes(submitted)] == ["UNKNOWN_CARD"]


def test_an_approval_that_waited_for_other_outcomes_until_its_deadline_is_reversed(
    system: Up, tmp_path: Path
) -> None:
    with system.api() as api:
        [held, locked] = [support.cardholder(api) for _ in range(2)]
    [authorization] = purchases([held["card"]], 1, prefix="late")
    [_, clearing] = purchases([locked["card"]], 2, prefix="stalled")
    account_id = held["account"].partition(":")[2]
    with (
        psycopg.connect(system.ready["databaseUrl"], autocommit=True) as connection,
        psycopg.connect(system.ready["databaseUrl"]) as lock,
    ):

        def is_true(query: str, *arguments: object) -> bool:
            row = connection.execute(query.encode(), arguments).fetchone()
            return row is not None and row[0]

        lock.execute(
            "SELECT FROM internal_accounts WHERE id = %s FOR UPDATE",
            [locked["account"].partition(":")[2]],
        )
        # Later than the command has started, and before its patience ends.
        decide_by = datetime.now(UTC) + timedelta(seconds=8)
        events = [clearing, authorization | {"decideBy": decide_by.isoformat()}]
        file = write_lines(tmp_path / "events.jsonl", events)
        command = [*COMMAND, "submit", "--data-dir", str(system.data_dir), file]
        with started(command, env=system.env, stdout=subprocess.PIPE, text=True) as process:
            eventually(lambda: is_true(_IS_HELD, account_id))
            assert is_true("SELECT clock_timestamp() < %s", decide_by), "approved too late"
            eventually(lambda: is_true("SELECT clock_timestamp() > %s", decide_by))
            lock.rollback()
            printed = [
                json.loads(line) for line in process.communicate(timeout=limit_s())[0].splitlines()
            ]

        assert process.returncode == 0
        assert [one["reference"] for one in printed] == ["stalled-1", "late-0"]
        assert (printed[0]["outcome"], printed[1]["outcome"]) == ("APPLIED", "DECLINED")
        assert printed[1]["reason"] == "DECISION_TIMEOUT"
        eventually(lambda: not is_true(_IS_HELD, account_id))
    assert system.verify().returncode == 0


def test_without_a_worker_the_time_out_says_that_nothing_is_lost(
    postgres_url: DatabaseUrl, tmp_path: Path
) -> None:
    with support.own_database(postgres_url) as database_url:
        env = support.environment(DATABASE_URL=database_url, CARDLEDGER_SECRET_KEY="k" * 40)
        assert support.run("migrate", env=env).returncode == 0
        file = write_lines(
            tmp_path / "events.jsonl",
            purchases(["Card:0193b5c4-0000-7000-8000-000000000000"], 1, prefix="alone"),
        )

        submitted = support.run("submit", "--timeout", "1", file, env=env)

    assert submitted.returncode == 1
    assert "no event is applied twice" in submitted.stderr
    assert "Traceback" not in submitted.stderr


def test_submit_waits_while_postgresql_is_unavailable(passable_dir: Path) -> None:
    with support.up(passable_dir, support.environment()) as system:
        with system.api() as api:
            cards = [support.cardholder(api, funds=10_000_000)["card"] for _ in range(2)]
        events = purchases(cards, 4_000, prefix="outage")
        command = [*COMMAND, "submit", "--data-dir", str(system.data_dir), "-"]
        with started(
            command, env=system.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            printed: list[dict[str, Any]] = []
            reader = threading.Thread(
                target=lambda: printed.extend(map(json.loads, process.stdout or ()))
            )
            reader.start()

            _write(process, events[:2_000])
            eventually(lambda: len(printed) > 500)
            os.kill(system.ready["pids"]["postgres"], signal.SIGKILL)
            _write(process, events[2_000:])
            process.stdin.close()
            reader.join(limit_s())

        assert process.returncode == 0
        assert [one["reference"] for one in printed] == [event["reference"] for event in events]
        assert {one.get("firstOutcome", one["outcome"]) for one in printed} == {"APPLIED"}
        verified = eventually(lambda: _verified(system))
        assert verified["cardTransactions"] == 2_000


def test_a_line_is_split_where_it_ends_however_it_arrives() -> None:
    splitter = Splitter()
    data = b'\xef\xbb\xbf{"a": 1}\n\n{"b": 2}'

    found = [line for byte in data for line in splitter.feed(bytes([byte]))]
    found += splitter.finish()

    assert list(jsonl.parse(found)) == [Numbered(1, {"a": 1}), Numbered(3, {"b": 2})]


def test_a_line_without_end_costs_no_memory() -> None:
    splitter = Splitter()

    found = [line for _ in range(100) for line in splitter.feed(b"x" * 10_000)]
    [last] = splitter.finish()

    assert not found
    assert len(last.content) == jsonl.MAX_LINE + 1
    [event] = jsonl.parse([last])
    assert isinstance(event, Unreadable)
    assert "longer than" in event.detail


def _write(process: "subprocess.Popen[str]", events: list[dict[str, Any]]) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{json.dumps(event)}\n" for event in events))
    process.stdin.flush()


def _verified(system: Up) -> dict[str, Any] | None:
    finished = support.run("verify", "--json", "--data-dir", str(system.data_dir))
    report: dict[str, Any] = json.loads(finished.stdout) if finished.returncode == 0 else {}
    return report or None


def test_a_line_with_very_many_keys_costs_no_time() -> None:
    names = [f"{number:x}" for number in range(7_000)]
    content = json.dumps(dict.fromkeys(names, 0), separators=(",", ":")).replace("}", ',"1b57":0}')
    assert len(content) < jsonl.MAX_LINE
    line = f"{content}\n".encode()

    [found] = jsonl.parse(Splitter().feed(line))

    assert isinstance(found, Unreadable)
    assert found.detail == 'line 1: the key "1b57" comes twice'
    # Comparing each key with each other would take hundreds of times as long.
    cost_s = processor_s(lambda: list(jsonl.parse(Splitter().feed(line))))
    assert cost_s < 50 * processor_s(lambda: json.loads(content))


def test_standard_input_begins_where_it_stands(
    system: Up, cards: list[str], tmp_path: Path
) -> None:
    events = purchases(cards, 4, prefix="rest")
    file = write_lines(tmp_path / "events.jsonl", events)
    script = 'read -r first; exec "$@" submit --data-dir "$DATA" -'
    with Path(file).open() as source:
        submitted = subprocess.run(
            ["/bin/bash", "-c", script, "bash", *COMMAND],
            env=system.env | {"DATA": str(system.data_dir)},
            stdin=source,
            capture_output=True,
            check=True,
            text=True,
        )

    assert [one["reference"] for one in outcomes(submitted)] == ["rest-1", "rest-2", "rest-3"]
