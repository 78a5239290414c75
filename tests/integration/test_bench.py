"""What the benchmark compares with: the rows of the engine, and a history like the engine's."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from benchmarks import compare, run, workbench, workload
from benchmarks.parts import engine, finance, floor, growth, proof, stored_events
from benchmarks.results.figures import Figure
from benchmarks.run import Options
from benchmarks.workbench import Bench
from cardledger.commands import verify
from cardledger.config import gc_tuning
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from tests.databases import OwnRoles
from tests.system.support import environment
from tests.waiting import eventually, limit_s

_BENCH = [sys.executable, "-m", "benchmarks"]

# The command with a tenth of the events, of which the table says nothing.
_SMALL_BENCH = """
import runpy
from benchmarks.parts import engine, smoke
engine.CARDHOLDERS, smoke._COUNT = 400, 600
runpy.run_module("benchmarks", run_name="__main__")
"""


@pytest.fixture(autouse=True)
def few_cardholders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with hundreds of cardholders where a real run has thousands."""
    monkeypatch.setattr(engine, "CARDHOLDERS", 400)
    monkeypatch.setattr(growth, "_CARDHOLDERS", 400)
    monkeypatch.setattr(proof, "_CARDHOLDERS", 400)
    monkeypatch.setattr(finance, "_CARDHOLDERS", 100)


@pytest.fixture
def bench(own_roles: OwnRoles) -> Iterator[Bench]:
    with own_roles.fresh() as owner_url, workbench.bench_on(owner_url) as made:
        yield made


# --- the engine ---------------------------------------------------------------------------------


def test_several_processes_decide_all_that_waits(bench: Bench) -> None:
    figure = engine.several(bench, bench.cardholders(40), rounds=1, count=400)

    assert min(figure.values) > 0


# --- the floor ----------------------------------------------------------------------------------


def test_the_floor_benchmark_copies_every_row_of_the_authorizations(bench: Bench) -> None:
    with psycopg.connect(bench.owner_url) as connection:
        batches = floor.decided_rows(bench, connection, count=700)
        rate = floor.Twins(connection, batches).append()

        assert rate > 0
        assert len(batches) == 2
        for table in floor.APPENDED:
            query: LiteralString = "SELECT t::text FROM {} t"
            copied = _rows(connection, query, floor.twin(table))
            query += _OF_AUTHORIZATIONS[table]
            assert copied == _rows(connection, query, sql.Identifier(table)), table
        kinds = _rows(connection, "SELECT DISTINCT type FROM {}", floor.twin("outbox"))
        assert kinds == ["CARD_TRANSACTION.AUTHORIZED", "INTERNAL_ACCOUNT.BALANCE_UPDATED"]


# Deposits brought the money before: an account's first entry and its webhook.
_OF_AUTHORIZATIONS: dict[str, LiteralString] = {
    "card_transaction_events": "",
    "entries": " WHERE sequence > 0",
    "outcomes": " WHERE subject_id IN (SELECT id FROM card_transactions)",
    "card_transactions": "",
    "outbox": " WHERE recorded_at > (SELECT max(recorded_at) FROM deposits)",
}


def _rows(
    connection: psycopg.Connection[tuple[str]], query: LiteralString, table: sql.Identifier
) -> list[str]:
    return sorted(row for (row,) in connection.execute(sql.SQL(query).format(table)))


# --- stored events ------------------------------------------------------------------------------

# Everything about a purchase but its ids, times, and which amounts exactly.
_SHAPES = (
    """
    SELECT status, sequence, authorizations, authorized > 0, settled - authorized - pulled
        + authorized, settlement_count, refunded, pull_count, pending, open_pull, unpaid,
        released, closed_by, declined, decline_reason, descriptor, mcc, country, currency,
        expires_at, debt_id, last_event_at = updated_at, created_at < updated_at
    FROM card_transactions
    """,
    """
    SELECT sequence, kind, amount > 0, unfunded, final, reason,
        first_value(message_id) OVER (PARTITION BY card_transaction_id ORDER BY sequence)
            = message_id
    FROM card_transaction_events
    """,
    """
    SELECT e.sequence, line, d.kind, c.kind, e.debit_account_id = e.account_id,
        account_version IS NULL, balance_after IS NULL
    FROM entries e LEFT JOIN system_accounts d ON d.id = debit_account_id
    LEFT JOIN system_accounts c ON c.id = credit_account_id WHERE e.sequence > 0
    """,
    """
    SELECT source, length(reference), length(body_hash), outcome, reason, o.sequence
    FROM outcomes o WHERE subject_id IS NOT NULL
    """,
)


def test_stored_events_have_the_shape_of_what_the_engine_writes(
    bench: Bench, own_roles: OwnRoles
) -> None:
    with own_roles.fresh() as owner_url, workbench.bench_on(owner_url) as engine_bench:
        cardholders = engine_bench.cardholders(1)
        wanted = workload.purchases(cardholders, 2, seed=1)
        for messages in (workload.authorizations(wanted), workload.clearings(wanted)):
            engine_bench.accept(messages)
            engine_bench.drain()
        expected = _shapes(engine_bench)

    stored_events.write(bench, bench.cardholders(1), 7, lambda _events: None)

    assert _shapes(bench) == expected


def _shapes(bench: Bench) -> list[list[str]]:
    with psycopg.connect(bench.owner_url) as connection:
        return [sorted(str(row) for row in connection.execute(query)) for query in _SHAPES]


def test_a_ledger_with_stored_events_passes_the_audit_and_goes_on(bench: Bench) -> None:
    cardholders = bench.cardholders(3)
    written: list[int] = []

    first = stored_events.write(bench, cardholders, 50, written.append)
    second = stored_events.write(bench, cardholders, 50, written.append)

    wanted = workload.purchases(cardholders, 30, seed=1)
    bench.accept(workload.authorizations(wanted))
    assert bench.drain().messages == 30
    audit = verify.books(bench.app_url)
    assert (audit.holds, audit.differences) == (True, [])
    assert first >= 50 <= second
    assert sum(written) == first + second
    assert audit.events == first + second + 60


def test_ids_of_stored_events_rise_and_have_no_meaning_in_the_sandbox(bench: Bench) -> None:
    stored_events.write(bench, bench.cardholders(1), 500, lambda _events: None)

    with psycopg.connect(bench.owner_url) as connection:
        # In the order in which they were written, deposits apart.
        written = connection.execute(
            "SELECT message_id FROM outcomes WHERE subject_id IS NOT NULL ORDER BY ctid"
        ).fetchall()
    ids: list[Id] = [key for (key,) in written]
    assert len(set(ids)) == len(ids) > 200
    assert ids == sorted(ids)
    assert {key[6] >> 4 for key in ids} == {7}
    assert {str(key)[-3:] for key in ids} == {"abc"}


def test_growth_is_measured_on_a_large_record_and_on_an_empty_one(
    postgres_url: DatabaseUrl,
) -> None:
    log: list[str] = []

    figures = {
        figure.name: figure
        for figure in growth.measure(
            postgres_url, millions=0.01, rounds=2, progress=log.append, count=40
        )
    }

    for kind in ("authorizations", "clearings"):
        empty = figures[f"{kind}, empty, beside 0.01 million"]
        full = figures[f"{kind}, 0.01 million events"]
        against = figures[f"{kind}, 0.01 million events to empty"]
        ratios = [large / small for small, large in zip(empty.values, full.values, strict=True)]
        assert against.values == ratios
        assert len(ratios) == 2, "the first round only warms up"
        assert against.least == 0.85
    assert figures["bytes of log (WAL) an authorization, 0.01 million events"].median > 500
    assert log[0] == "growth: writing 0.01 million events"


def test_the_audit_benchmark_runs_the_check_of_the_verify_command(bench: Bench) -> None:
    figures = {
        figure.name: figure
        for figure in proof.measure(bench, rounds=1, progress=lambda _: None, events=1_000)
    }

    assert figures["verify, a million events"].median > 0
    assert figures["roll-ups rebuilt from their events"].median > 0
    [memory] = [figure for name, figure in figures.items() if name.startswith("memory of verify")]
    assert 20 < memory.median < 1_000, "it is a Python process, in megabytes"


def test_the_benchmark_of_finance_exports_the_journal_in_each_format(bench: Bench) -> None:
    figures = {
        figure.name: figure
        for figure in finance.measure(bench, rounds=1, progress=lambda _: None, entries=1_000)
    }

    assert figures["trial balance"].median > 0
    for name in ("csv", "parquet", "xlsx"):
        assert figures[f"the journal as {name}, a million rows"].median > 0
        assert 20 < figures[f"memory of the journal as {name} at most"].median < 300


# --- the command --------------------------------------------------------------------------------


def test_an_interrupted_run_leaves_no_database_and_no_role(postgres_url: DatabaseUrl) -> None:
    name = f"interrupted {uuid4()}"
    command = [*_BENCH, "--part", "engine"]
    env = environment(DATABASE_URL=postgres_url, PGAPPNAME=name)
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:

            def database() -> str | None:
                assert process.poll() is None, process.communicate()
                row = connection.execute(
                    "SELECT datname FROM pg_stat_activity JOIN pg_roles"
                    " ON rolname = datname || '_app'"
                    " WHERE application_name = %s AND datname LIKE 'bench!_%%' ESCAPE '!'",
                    [name],
                ).fetchone()
                return None if row is None else str(row[0])

            made = eventually(database)
            process.terminate()
            printed, errors = process.communicate(timeout=limit_s())
        finally:
            process.kill()
        left = connection.execute(
            "SELECT datname::text FROM pg_database WHERE datname = %(name)s"
            " UNION ALL SELECT rolname FROM pg_roles WHERE starts_with(rolname, %(name)s)",
            {"name": made},
        ).fetchall()

    assert left == []
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert printed == "", "the table comes at the end"


def test_an_interrupted_run_prints_and_writes_what_it_has_measured(
    postgres_url: DatabaseUrl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def floor_part(*_: object) -> Iterator[Figure]:
        yield Figure(part="floor", name="rows copied", unit="/s", values=[4_000.0])

    def engine_part(*_: object) -> Iterator[Figure]:
        yield Figure(part="engine", name="rows decided", unit="/s", values=[1_000.0])
        signal.raise_signal(signal.SIGINT)
        yield Figure(part="engine", name="rows never decided", unit="/s", values=[1.0])

    file = tmp_path / "run.json"
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setattr(gc_tuning, "freeze", lambda: None)
    monkeypatch.setitem(run._PARTS, "floor", floor_part)
    monkeypatch.setitem(run._PARTS, "engine", engine_part)

    code = run.run(Options(parts=("floor", "engine", "growth"), json_file=file))

    printed, written = capsys.readouterr().out, json.loads(file.read_text())
    assert code == 130
    assert [figure["name"] for figure in written["figures"]] == ["rows copied", "rows decided"]
    assert written["stopped_in"] == "engine"
    assert list(written["seconds"]) == ["floor", "engine"]
    assert printed.count("rows copied") == printed.count("rows decided") == 1
    assert "INCOMPLETE: the run stopped in part engine." in printed


def test_a_run_prints_its_table_once_and_writes_what_it_says(
    postgres_url: DatabaseUrl, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    options = ["--part", "smoke", "--rounds", "1", "--json", str(file)]
    command = [sys.executable, "-c", _SMALL_BENCH, *options]

    done = subprocess.run(
        command,
        env=environment(DATABASE_URL=postgres_url),
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(),
    )

    written = json.loads(file.read_text())
    assert done.returncode in {0, 1}, done.stderr  # Whether bars hold is for `make bench-smoke`.
    assert "s  smoke: round 1 of 1" in done.stderr
    assert "round" not in done.stdout.partition("bars hold")[0]
    assert " of 3 bars hold." in done.stdout
    for figure in written["figures"]:
        assert done.stdout.count(figure["name"]) == 1
        assert len(figure["values"]) == 1
    expected = "python -m benchmarks --part smoke --rounds 1 --millions 1"
    assert written["about"]["command"] == expected
    assert written["about"]["postgres"]["fsync"] == "on"
    assert written["seconds"]["smoke"] > 0
    assert written["stopped_in"] is None
    assert "INCOMPLETE" not in done.stdout


def test_the_patch_that_takes_the_walls_out_applies() -> None:
    root = Path(compare.__file__).parent.parent

    subprocess.run(
        ["git", "apply", "--check", "benchmarks/without_walls.patch"],  # noqa: S607
        cwd=root,
        check=True,
    )


def test_a_revision_is_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of_the_sources()

    figures = compare.measured([path, path], ("engine", "0.1", "20"), 2, alone=False)
    compare.show(["before", "after"], figures)

    assert set(figures[0]) == {
        "authorizations, rate",
        "authorizations, WAL bytes",
        "clearings, rate",
        "clearings, WAL bytes",
    }
    assert all(len(values) == 2 for each in figures for values in each.values())
    printed = capsys.readouterr().out
    assert "before" in printed
    assert "ratio 1.000 (quartiles 1.000 to 1.000)" in printed


def test_a_revision_is_measured_in_a_process_of_its_own() -> None:
    [figures] = compare.measured([path_of_the_sources()], ("engine", "0.1", "20"), 1, alone=True)

    assert len(figures) == 4
    assert all(len(values) == 1 for values in figures.values())


def path_of_the_sources() -> str:
    root = Path(compare.__file__).parent.parent
    return f"{root}:{root / 'client'}"
