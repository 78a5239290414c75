"""`cardledger report` on real books, as the role of a person in finance and as the reader."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Any, Final

import duckdb
import openpyxl
import psycopg
import pytest

from cardledger.commands.reports import as_csv
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries import report_snapshot
from cardledger.ledger.queries.report_definitions import AGES, JOURNAL, REPORTS
from cardledger.ledger.queries.report_snapshot import Scope
from cardledger.schema.finance import VERSION
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.command_process import run_command
from tests.databases import as_role
from tests.system.support import COMMAND, environment
from tests.waiting import limit_s
from tests.world import Cardholder, World, open_world

Command = Callable[..., subprocess.CompletedProcess[str]]

FORMULA: Final = '=HYPERLINK("http://x","click")'
LARGE: Final = 2**53 + 1
MANY: Final = 100_000
TODAY: Final = datetime.now(UTC).date()


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    """Two platforms: a tip of a merchant called like a formula, a hold, and a debt."""
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture(scope="module")
def cardholder(world: World) -> Cardholder:
    platform = world.platform()
    ada, ben = world.cardholder(platform, LARGE), world.cardholder(platform, 400)
    merchant = {"descriptor": FORMULA, "mcc": "5812", "country": "FR"}
    events = [
        (ada, world.authorization(ada, "T1", 1_250, merchant=merchant)),
        (ada, world.clearing(ada, "T1", 1_500)),
        (ada, world.authorization(ada, "T2", 700)),
        (ben, world.clearing(ben, "T3", 1_000)),
        (ben, world.event("CLEARING_REVERSAL", ben, "T4", 333)),
    ]
    world.process(world.engine(), events)
    return ada


@pytest.fixture(scope="module")
def platform(cardholder: Cardholder) -> Id:
    return cardholder.owner.platform_id


@pytest.fixture
def report(world: World, cardholder: Cardholder, tmp_path: Path) -> Command:
    """The command in a directory without a system, on the connection of finance."""
    assert cardholder.card_id

    def run(*arguments: str, role: Role = Role.FINANCE) -> subprocess.CompletedProcess[str]:
        env = environment(DATABASE_URL=as_role(world.app_url, role))
        return run_command("report", *arguments, env=env, cwd=tmp_path)

    return run


def as_json(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


def rows_of(finished: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_json(finished)["rows"]
    return rows


# --- what reports say ------------------------------------------------------------------------


def test_a_trial_balance_says_what_it_is_about_and_balances(world: World, report: Command) -> None:
    document = as_json(report("trial-balance", "--format", "json"))

    rows = {(row["account"], row["currency"]): row for row in document["rows"]}
    assert [*document] == ["report", "version", "database", "on", "known", "timeZone", "rows"]
    assert (document["report"], document["version"]) == ("trial-balance", VERSION)
    assert document["on"] == str(TODAY)
    assert {*document["rows"][0]} == {"account", "class", "currency", "debits", "credits", "net"}
    assert sum(row["net"] for row in rows.values()) == 0
    assert all(row["debits"] - row["credits"] == row["net"] for row in rows.values())
    assert rows["NETWORK_SETTLEMENT", "USD"]["net"] == -2_167
    assert rows["CARD_HOLDS", "USD"]["net"] == -700
    assert rows["RECEIVABLE", "USD"]["net"] == 1_000
    assert rows["SANDBOX_FUNDING", "USD"]["class"] == "ASSET"
    [(total,)] = world.rows("SELECT sum(amount) FROM entries")
    assert sum(row["debits"] for row in rows.values()) == total


def test_a_journal_has_every_entry_with_exact_amounts(world: World, report: Command) -> None:
    rows = rows_of(report("journal", "--format", "json"))

    [(count, total)] = world.rows("SELECT count(*), sum(amount) FROM entries")
    assert (len(rows), sum(row["amount"] for row in rows)) == (count, total)
    assert [*rows[0]] == [column.name for column in REPORTS["journal"].columns]
    [deposit] = [row for row in rows if row["amount"] == LARGE]
    assert deposit["amount_decimal"] == "90071992547409.93"
    assert deposit["posted_on"] == str(TODAY)
    assert {row["merchant"] for row in rows} >= {FORMULA}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", deposit["recorded_at"])


def test_reports_are_limited_to_a_currency_a_platform_and_an_account(
    world: World, report: Command, platform: Id, cardholder: Cardholder
) -> None:
    other = world.platform()
    stranger = world.cardholder(other, 12_345)

    def amounts(*options: str) -> list[int]:
        return [row["amount"] for row in rows_of(report("journal", "--format", "json", *options))]

    account = f"InternalAccount:{stranger.account_id}"
    assert amounts("--platform", f"Platform:{other}") == [12_345]
    assert amounts("--account", account) == [12_345]
    assert amounts("--account", account, "--currency", "usd") == [12_345]
    assert amounts("--account", account, "--currency", "EUR") == []
    assert 12_345 not in amounts("--platform", str(platform))
    assert LARGE in amounts("--account", str(cardholder.account_id))
    of_platform = rows_of(report("trial-balance", "--format", "json", "--platform", str(other)))
    moved = {row["account"]: row["debits"] for row in of_platform if row["debits"]}
    assert moved == {"SANDBOX_FUNDING": 12_345}


def test_a_statement_opens_and_ends_with_the_balance(
    world: World, report: Command, cardholder: Cardholder
) -> None:
    account = f"InternalAccount:{cardholder.account_id}"

    rows = rows_of(
        report("statement", "--account", account, "--from", str(TODAY), "--format", "json")
    )

    [(balance,)] = world.rows(
        "SELECT balance FROM internal_accounts WHERE id = %s", cardholder.account_id
    )
    assert (rows[0]["event"], rows[0]["balance"], rows[0]["amount"]) == ("OPENING", 0, None)
    assert rows[-1]["balance"] == balance
    assert {row["currency"] for row in rows} == {"USD"}
    for before, after in pairwise(rows):
        change = after["amount"] if after["side"] == "C" else -after["amount"]
        assert after["balance"] == before["balance"] + change


def test_a_system_account_is_named_by_its_kind(report: Command, platform: Id) -> None:
    named = ("statement", "--account", "CARD_HOLDS", "--format", "json")

    one = rows_of(report(*named, "--currency", "USD", "--platform", str(platform)))
    several = report(*named)

    assert one[-1]["balance"] == 700
    assert several.returncode == 2
    assert "--account CARD_HOLDS is more than one account; add --currency" in several.stderr


@pytest.mark.parametrize(
    ("name", "amount", "account"),
    [("holds", "held", "CARD_HOLDS"), ("receivables", "owed", "RECEIVABLE")],
)
def test_open_amounts_tie_to_their_account_at_any_day_and_time(
    report: Command, name: str, amount: str, account: str
) -> None:
    last = as_json(report("journal", "--format", "json"))["known"]

    for options in ([], ["--known", last], ["--on", str(TODAY - timedelta(days=1))]):
        rows = rows_of(report(name, "--format", "json", *options))
        books = rows_of(report("trial-balance", "--format", "json", *options))
        net = sum(row["net"] for row in books if row["account"] == account)
        assert sum(row[amount] for row in rows) == abs(net)

    rows = rows_of(report(name, "--format", "json", "--on", str(TODAY + timedelta(days=9))))
    assert [(row["age_days"], row["age"]) for row in rows] == [(9, "8-14")]


def test_nothing_is_known_before_it_was_recorded(report: Command) -> None:
    for name in ("journal", "holds", "receivables"):
        assert rows_of(report(name, "--known", "2020-01-01", "--format", "json")) == []
        assert (
            rows_of(report(name, "--known", "2020-01-01T00:00:00+01:00", "--format", "json")) == []
        )


def test_network_days_are_what_is_due_to_the_network(report: Command, platform: Id) -> None:
    [day] = rows_of(report("network-days", "--format", "json", "--from", str(TODAY)))

    assert (day["settlement_date"], day["currency"]) == (str(TODAY), "USD")
    # Less a parked reversal of 333, which stands in SUSPENSE.
    assert (day["presentments"], day["reversals"], day["net"]) == (2_500, 333, 2_167)
    assert (day["paid"], day["open"]) == (0, 2_167)
    assert day["platform_id"] == str(platform)
    before = str(TODAY - timedelta(days=1))
    assert rows_of(report("network-days", "--format", "json", "--to", before)) == []


def test_unapplied_messages_are_listed_with_their_amounts(report: Command) -> None:
    [row] = rows_of(report("unapplied", "--format", "json"))

    assert (row["state"], row["type"]) == ("PARKED", "CLEARING_REVERSAL")
    assert (row["amount"], row["currency"], row["age_days"]) == (333, "USD", 0)


def test_every_cent_of_a_card_transaction_is_explained(
    world: World, report: Command, cardholder: Cardholder
) -> None:
    [(key,)] = world.rows(
        "SELECT id FROM card_transactions WHERE card_id = %s AND issuer_transaction_token = 'T1'",
        cardholder.card_id,
    )
    name = f"CardTransaction:{key}"

    rows = rows_of(report("explain", name, "--format", "json"))
    text = report("explain", name).stdout

    sentences = [row["explanation"] for row in rows]
    assert sentences[0] == "12.50 USD was authorized."
    assert all(sentence in text for sentence in sentences)
    assert text.startswith("explain on ")
    moved = [
        (row["debit_kind"], row["credit_kind"], row["amount"]) for row in rows if row["amount"]
    ]
    entries = world.rows("SELECT count(*), sum(amount) FROM entries WHERE subject_id = %s", key)
    assert entries == [(len(moved), sum(amount for _, _, amount in moved))]
    assert moved[-1] == ("CARD_HOLDS", "NETWORK_SETTLEMENT", 1_500)


@pytest.mark.parametrize("name", [name for name in REPORTS if name not in {"statement", "breaks"}])
def test_every_report_is_a_table_with_its_head_first(report: Command, name: str) -> None:
    finished = report(name)

    assert finished.returncode == 0, finished.stderr
    head, names, *_ = finished.stdout.splitlines()
    assert head.startswith(f"{name} on {TODAY}, known at ")
    assert head.endswith(f"columns of version {VERSION}")
    assert names.split()[0] == REPORTS[name].columns[0].name


def test_the_ages_of_the_reports_have_no_gap() -> None:
    assert AGES == ("0-1", "2-3", "4-7", "8-14", "15-30", "over 30")


NASTY: Final = (
    FORMULA,
    "line\nbreak",
    "carriage\r\nreturn",
    "carriage\ralone",
    'quote " and, comma',
    '"',
    " blanks around ",
    "line separator \u2028 and \x85",
    "\\.",
    "\\N",
    "tab\tand back\\slash",
    "caf\u00e9 \U0001f4b3",
)


def test_postgresql_writes_the_lines_that_we_write(world: World, cardholder: Cardholder) -> None:
    events = [
        (
            cardholder,
            world.clearing(cardholder, f"N{number}", 1, merchant={"descriptor": name}),
        )
        for number, name in enumerate(NASTY)
    ]
    assert {d.outcome for d in world.process(world.engine(), events)} == {"APPLIED"}
    # An empty name is none on the wire.
    world.connection.execute(
        "UPDATE card_transactions SET descriptor = '' WHERE issuer_transaction_token = 'N0'"
    )
    scope = Scope(on=TODAY, known=datetime.now(UTC) + timedelta(days=1))

    with report_snapshot.opened(as_role(world.app_url, Role.FINANCE)) as snapshot:
        for report in (REPORTS["journal"], REPORTS["trial-balance"], REPORTS["network-days"]):
            rows = [row for batch in snapshot.rows(report, scope, texts=True) for row in batch]
            ours = "".join(map(as_csv.line, rows)).encode()
            out = io.BytesIO()
            as_csv.write_lines(out, report.columns, snapshot.lines(report, scope))
            header, _, theirs = out.getvalue().partition(b"\r\n")
            assert header.decode().split(",") == [column.name for column in report.columns]
            assert theirs == ours
            assert len(rows) == len(list(csv.reader(io.StringIO(ours.decode(), newline=""))))
    world.connection.execute(
        "UPDATE card_transactions SET descriptor = %s WHERE issuer_transaction_token = 'N0'",
        [FORMULA],
    )


@pytest.mark.usefixtures("cardholder")
def test_a_report_is_one_snapshot(world: World) -> None:
    scope = Scope(on=TODAY, known=datetime.now(UTC) + timedelta(days=1))

    with report_snapshot.opened(as_role(world.app_url, Role.FINANCE)) as snapshot:
        world.cardholder(world.platform(), 777)
        rows = [row for batch in snapshot.rows(JOURNAL, scope, texts=True) for row in batch]

    amounts = {row[12] for row in rows}
    assert LARGE in amounts
    assert 777 not in amounts


def test_a_report_writes_nothing(world: World) -> None:
    with (
        report_snapshot.opened(as_role(world.app_url, Role.FINANCE)) as snapshot,
        pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
    ):
        snapshot.connection.execute("CREATE TEMP TABLE x ()")


# --- formats ---------------------------------------------------------------------------------


def test_csv_survives_copy_and_adds_up(world: World, report: Command, tmp_path: Path) -> None:
    finished = report("journal", "--output", "journal.csv")

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.startswith(f"journal on {TODAY}, known at ")
    with (tmp_path / "journal.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    columns = ", ".join(f"{name} text" for name in header)
    psql = which("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    script = (
        f"CREATE TEMP TABLE j ({columns});\n"
        r"\copy j FROM 'journal.csv' WITH (FORMAT csv, HEADER)" + "\n"
        "SELECT count(*), sum(amount::bigint), sum(amount_decimal::numeric),"
        ' count(*) FILTER (WHERE merchant = \'=HYPERLINK("http://x","click")\') FROM j;\n'
    )
    printed = subprocess.run(
        [psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", str(world.url)],
        input=script,
        text=True,
        capture_output=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    [(total,)] = world.rows("SELECT sum(amount) FROM entries")
    formulas = sum(row[17] == FORMULA for row in rows)
    assert formulas
    assert printed.strip() == f"{len(rows)}|{total}|{Decimal(int(total)).scaleb(-2)}|{formulas}"


def test_a_spreadsheet_has_numbers_and_no_formula(report: Command, tmp_path: Path) -> None:
    finished = report("journal", "--output", "journal.xlsx")

    assert finished.returncode == 0, finished.stderr
    book = openpyxl.load_workbook(tmp_path / "journal.xlsx")
    cells = [cell for line in book["journal"].iter_rows() for cell in line]
    assert {cell.data_type for cell in cells} <= {"s", "n", "d"}
    assert FORMULA in {cell.value for cell in cells}
    assert 12.5 in {cell.value for cell in cells}
    about = {name.value: value.value for name, value in book["about"].iter_rows()}
    assert about["amounts as text"].startswith("1: ")
    assert "90071992547409.93" in {cell.value for cell in cells}


def test_sums_of_parquet_equal_those_of_postgresql(
    world: World, report: Command, tmp_path: Path
) -> None:
    finished = report("journal", "--output", "journal.parquet")

    assert finished.returncode == 0, finished.stderr
    [found] = duckdb.execute(
        "SELECT count(*), sum(amount), sum(amount_decimal), count(DISTINCT entry_id)"
        f" FROM '{tmp_path / 'journal.parquet'}'"
    ).fetchall()
    [(count, total)] = world.rows("SELECT count(*), sum(amount) FROM entries")
    assert found == (count, total, Decimal(int(total)) / 100, count)


def test_a_file_replaces_the_one_before(report: Command, tmp_path: Path) -> None:
    file = tmp_path / "books.json"
    file.write_text("before")

    finished = report("trial-balance", "--output", "books.json")

    assert finished.stdout == ""
    assert json.loads(file.read_text())["report"] == "trial-balance"
    assert [path.name for path in tmp_path.iterdir()] == ["books.json"]


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("journal --from 2026-13-01", 2, "--from 2026-13-01: not a day; write it like 2026-10-31"),
        ("journal --to 20261031", 2, "--to 20261031: not a day"),
        ("journal --from 2026-10-02 --to 2026-10-01", 2, "--from 2026-10-02 is after --to"),
        ("trial-balance --on today", 2, "--on today: not a day"),
        ("trial-balance --known x", 2, "--known x: not a time"),
        ("trial-balance --known 9999-12-31T00:00:00Z", 2, "is in the future"),
        ("trial-balance --currency XXX", 2, "--currency XXX: not a currency of the books"),
        ("trial-balance --platform x", 2, "--platform x: not an id"),
        ("trial-balance --account CARD_HOLDS", 2, "No such option"),
        ("trial-balance --format pdf", 2, "'pdf' is not one of"),
        ("trial-balance --output /no/such/directory/x.csv", 2, "/no/such/directory is not a"),
        ("trial-balance --output .", 2, "--output .: is a directory"),
        ("statement", 2, "Missing option '--account'"),
        ("statement --account Card:x", 2, "--account Card:x: not an account"),
        ("statement --account NO_SUCH", 1, "there is no account NO_SUCH in the books"),
        (f"statement --account {Id(bytes(16))}", 1, "there is no account 00000000-"),
        (f"journal --platform {Id(bytes(16))}", 1, "there is no platform 00000000-"),
        ("explain", 2, "Missing argument"),
        ("explain Card:x", 2, "ID Card:x: not an id"),
        (f"explain {Id(bytes(16))}", 1, "there is no card transaction 00000000-"),
        ("no-such-report", 2, "No such command"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_code(
    report: Command, arguments: str, code: int, message: str
) -> None:
    finished = report(*arguments.split())

    assert finished.returncode == code, finished.stderr
    assert message in finished.stderr
    assert finished.stdout == ""
    assert "Traceback" not in finished.stderr


def test_a_role_without_the_right_is_told_who_has_it(report: Command) -> None:
    finished = report("trial-balance", role=Role.API)

    assert finished.returncode == 1
    assert "this role may not read the books" in finished.stderr


@pytest.mark.parametrize("format_name", ["xlsx", "parquet"])
def test_a_terminal_gets_no_binary(world: World, format_name: str) -> None:
    leader, terminal = pty.openpty()
    env = environment(DATABASE_URL=as_role(world.app_url, Role.FINANCE))

    finished = subprocess.run(
        [*COMMAND, "report", "journal", "--format", format_name],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=env,
        check=False,
        timeout=limit_s(),
    )

    os.close(terminal)
    os.close(leader)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"cardledger: --format {format_name} is binary".encode())


# --- many rows -------------------------------------------------------------------------------

_PEAK: Final = """
import re, sys
from cardledger.commands import cli
try:
    cli.main()
except SystemExit as end:
    assert not end.code, end.code
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
"""


def peak_mib(world: World, *arguments: str) -> float:
    """Run a report in a process of its own; return how much memory it had at most."""
    finished = subprocess.run(
        [sys.executable, "-c", _PEAK, "report", *arguments],
        env=environment(DATABASE_URL=as_role(world.app_url, Role.FINANCE)),
        capture_output=True,
        check=True,
        timeout=limit_s(60),
    )
    return int(finished.stderr.split()[-1]) / 1024


@pytest.fixture(scope="module")
def many(world: World, platform: Id) -> Id:
    """A platform with `MANY` entries that no card transaction has."""
    other = world.platform()
    world.connection.execute(
        "INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,"
        " credit_account_id, amount, recorded_at, occurred_at, posted_on)"
        " SELECT gen_random_uuid(), 0, 0, '00000000-0000-0000-0000-000000000000', d.id, c.id, n,"
        " now(), now(), current_date FROM generate_series(1, %s) n, system_accounts d,"
        " system_accounts c WHERE (d.platform_id, d.currency, d.kind)"
        " = (%s, 'USD', 'SANDBOX_FUNDING')"
        " AND (c.platform_id, c.currency, c.kind) = (%s, 'USD', 'TRANSFERS')",
        [MANY, other, other],
    )
    assert platform
    return other


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize(("format_name", "limit_mib"), [("csv", 20), ("parquet", 90)])
def test_memory_does_not_grow_with_the_rows(
    world: World, many: Id, tmp_path: Path, format_name: str, limit_mib: int
) -> None:
    file = tmp_path / f"journal.{format_name}"
    options = ("journal", "--platform", str(many), "--output", str(file))

    few = peak_mib(world, *options, "--to", str(TODAY - timedelta(days=1)))
    all_rows = peak_mib(world, *options)

    assert file.stat().st_size > 2 * MANY
    assert all_rows - few < limit_mib


def test_a_reader_that_leaves_ends_the_command_quietly(world: World, many: Id) -> None:
    env = environment(DATABASE_URL=as_role(world.app_url, Role.FINANCE))
    command = [*COMMAND, "report", "journal", "--format", "csv", "--platform", str(many)]

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(limit_s())

    assert first.startswith(b"entry_id,platform_id,posted_on")
    assert code == 141
    assert len(errors.splitlines()) <= 1
