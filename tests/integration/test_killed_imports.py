"""An import that is killed while lines are matched was never begun, and can be repeated."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.bank_statements import line as bank_line
from tests.bank_statements import statement_of
from tests.command_process import run_command
from tests.databases import OwnRoles
from tests.integration import office as offices
from tests.integration.banks import DAY, Bank, after, book, opened
from tests.integration.office import Office
from tests.system.support import COMMAND, environment, started
from tests.waiting import eventually, limit_s

# A million takes minutes.
LINES: Final = int(os.environ.get("NETWORK_FILE_LINES", "5000"))


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with offices.opened(own_roles, tmp_path_factory.mktemp("killed")) as made:
        yield made
        book(made.world)
        # By the command: connections of the world have the settings of batches, not of reports.
        verified = made.verify()
        assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


@contextmanager
def no_breaks_are_written(office: Office) -> Iterator[None]:
    """Let matching wait where it writes its breaks: lines are there and matched, not committed."""
    with psycopg.connect(office.world.url) as connection:
        connection.execute("LOCK TABLE breaks IN SHARE MODE")
        yield
        connection.rollback()


def kill_while_matching(office: Office, function: str, *arguments: str) -> None:
    """Start a command, and kill it with -9 while `function` of its database session waits."""

    def is_running(condition: str = "") -> bool:
        return bool(
            office.world.rows(
                "SELECT FROM pg_stat_activity WHERE usename = %s AND query LIKE %s"
                " AND backend_xid IS NOT NULL " + condition,
                office.anna.role,
                f"%{function}%",
            )
        )

    env = environment(DATABASE_URL=office.anna)
    with (
        no_breaks_are_written(office),
        started([*COMMAND, *arguments], env=env, cwd=office.folder) as process,
    ):
        eventually(lambda: is_running("AND wait_event_type = 'Lock'"))
        process.kill()
        process.wait(limit_s())
    # The session finishes its statement, and finds no client to commit it.
    eventually(lambda: not is_running())


def test_a_settlement_file_is_killed_while_it_is_matched(
    bank: Bank, office: Office, tmp_path: Path
) -> None:
    network = bank.network
    events = [network.event("CLEARING", f"T{n}", 1_000 + n, DAY) for n in range(5)]
    network.send(*events)
    unknown = [
        network.line(events[0], reference=f"u-{n}", token="") for n in range(LINES - len(events))
    ]
    path = tmp_path / "file.csv"
    path.write_bytes(network.file(DAY, [*map(network.line, events), *unknown]))
    once = network.take(path.read_bytes(), keep=False)

    command = ("reconcile", str(path), "--platform", str(bank.platform), "--json")
    kill_while_matching(office, "finish_file", *command)
    nothing = office.world.rows("SELECT FROM finance.files WHERE network = %s", network.name)
    result = network.take(path.read_bytes())

    assert nothing == []
    assert (result.state, result.lines) == ("IMPORTED", LINES)
    assert replace(result, state="") == replace(once, state=""), "as in one run"


def test_a_statement_is_killed_while_it_is_matched(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 70)
    lines = [bank_line(after(2), 1 + n % 7, f"line {n}") for n in range(min(LINES, 50_000))]
    data = statement_of(*lines, bank_line(after(2), -1_000), bank_line(after(3), -70))
    path = office.folder / f"{bank.account}.csv"
    path.write_bytes(data)
    once = bank.take(data, keep=False)

    command = ("bank", str(path), "--account", bank.account, "--platform", str(bank.platform))
    kill_while_matching(office, "finish_statement", *command)
    nothing = bank.rows("SELECT FROM finance.bank_statements WHERE platform_id = %s")
    ended = run_command(
        *command, "--json", env=environment(DATABASE_URL=office.anna), cwd=office.folder
    )
    outcomes = [book(office.world), book(office.world)]

    assert nothing == []
    found = json.loads(ended.stdout)
    assert (found["state"], found["lines"]) == ("IMPORTED", len(lines) + 2)
    assert found["matched"] == once.matched
    assert found["openBreaks"] == once.open_breaks == len(lines)
    assert outcomes[1] == []
    assert bank.balances()["SETTLEMENT_BANK"] == -1_070
    assert [row[-1] for row in bank.days()] == [0, 0]
