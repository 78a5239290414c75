"""Statements of the bank: which line pays which days of networks, and what differs."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import acting, settlement_files
from cardledger.ledger.network_files.records import Code, RefusedError
from tests.bank_statements import line, mt940_of, statement_of
from tests.command_process import run_command
from tests.databases import OwnRoles
from tests.integration.banks import DAY, Bank, after, book, opened, proved
from tests.integration.office import FIRST, LAST, Office
from tests.system.support import COMMAND, environment, started
from tests.waiting import eventually, limit_s
from tests.world import World


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with proved(own_roles, tmp_path_factory.mktemp("bank")) as made:
        yield made


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


# --- lines that pay days --------------------------------------------------------------------------


def test_a_line_pays_a_day_and_is_booked_once_on_its_booking_date(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)

    result = bank.says(line(after(1), -1_000, "settlement"))
    outcomes = [book(office.world), book(office.world)]

    assert (result.state, result.open_breaks) == ("IMPORTED", 0)
    assert result.matched == {"REFERENCE": 0, "AMOUNT": 1, "NETWORK": 0, "REST": 0}
    assert outcomes == [["APPLIED"] * 2, []]
    assert bank.rows(
        "SELECT event, debit_kind, credit_kind, amount, posted_on FROM finance.journal"
        " WHERE platform_id = %s AND event = 'BANK_LINE'"
    ) == [("BANK_LINE", "NETWORK_SETTLEMENT", "SETTLEMENT_BANK", 1_000, after(1))]
    assert bank.days() == [(DAY, 1_000, 1_000, 0)]
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000
    assert "NETWORK_SETTLEMENT" not in bank.balances()


def test_a_line_pays_the_days_of_a_weekend(bank: Bank, office: Office) -> None:
    for day, amount in ((0, 1_000), (1, -300), (2, 50)):
        bank.owes(after(day), amount)

    result = bank.says(line(after(3), -750, f"{bank.network.name} settlement"))
    book(office.world)

    assert (result.open_breaks, result.matched["AMOUNT"]) == (0, 1)
    assert bank.days() == [
        (DAY, 1_000, 1_000, 0),
        (after(1), -300, -300, 0),
        (after(2), 50, 50, 0),
    ]


def test_the_network_pays_when_it_owes(bank: Bank, office: Office) -> None:
    bank.owes(DAY, -700)

    bank.says(line(after(1), 700))
    book(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == 700
    assert bank.days() == [(DAY, -700, -700, 0)]


def test_a_line_that_names_a_file_pays_that_one(bank: Bank) -> None:
    bank.says(line(after(-1), -1))  # Days from here on are asked for.
    bank.owes(DAY, 500)
    named = bank.owes(after(1), 500)

    result = bank.says(line(after(2), -500, f"SETTLEMENT {named.lower()}."))

    assert result.matched["REFERENCE"] == 1
    assert bank.rows(
        "SELECT settlement_date FROM finance.bank_payments p JOIN finance.files f"
        " USING (network_file_id, settlement_date) WHERE f.platform_id = %s"
    ) == [(after(1),)]
    assert bank.kinds() == {("NOT_PAID", "open", 500): 1, ("BANK_ONLY", "open", -1): 1}


def test_equal_days_are_paid_in_order_and_unequal_ones_are_not_guessed(bank: Bank) -> None:
    bank.owes(DAY, 100)
    bank.owes(after(1), 100)
    bank.owes(after(2), 200)

    first = bank.says(line(after(3), -200, "?"))

    assert first.breaks[0].kind == "BANK_ONLY"
    [(candidates,)] = bank.rows("SELECT candidates FROM finance.breaks WHERE platform_id = %s")
    assert len(candidates) == 2
    second = bank.says(line(after(3), -100, "a"), line(after(3), -100, "b"))
    assert second.matched["AMOUNT"] == 2
    assert bank.kinds() == {("BANK_ONLY", "explained", 0): 1}


# --- what differs ---------------------------------------------------------------------------------


def test_a_line_that_names_the_network_and_differs_is_paid_but_not_that(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)

    result = bank.says(line(after(1), -995, f"{bank.network.name} less charges"))
    book(office.world)

    assert result.open_breaks == 1
    assert bank.kinds() == {("BANK_DIFFERS", "open", 5): 1}
    assert bank.days() == [(DAY, 1_000, 995, 5)]
    rest = bank.says(line(after(3), -5, f"{bank.network.name} rest"))
    book(office.world)
    assert rest.matched["REST"] == 1
    assert bank.kinds() == {("BANK_DIFFERS", "explained", 0): 1}
    assert bank.days() == [(DAY, 1_000, 1_000, 0)]
    proofs = bank.rows(
        "SELECT p.ledger::bigint, p.difference::bigint, p.statement::bigint"
        " FROM finance.statement_proofs p JOIN finance.bank_statements s USING (statement_id)"
        " WHERE s.platform_id = %s ORDER BY p.proved_at, p.statement DESC, p.is_latest"
    )
    assert sorted(proofs) == sorted([(-1_000, 5, -995), (-995, 0, -995), (-5, 0, -5)])


def test_what_pays_nothing_is_a_break_and_is_not_booked(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)

    result = bank.says(line(after(1), -12, "=HYPERLINK(1)"), line(after(1), 4_000, "customer"))
    book(office.world)

    assert result.open_breaks == 2
    assert bank.kinds() == {("BANK_ONLY", "open", -12): 1, ("BANK_ONLY", "open", 4_000): 1}
    assert "SETTLEMENT_BANK" not in bank.balances()


def test_a_day_that_is_passed_over_is_not_paid_until_a_later_line_pays_it(
    bank: Bank, office: Office
) -> None:
    bank.says(line(after(-1), -1))
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 70)

    first = bank.says(line(after(2), -70))
    assert [(each.kind, each.difference) for each in first.breaks] == [("NOT_PAID", 1_000)]
    second = bank.says(line(after(4), -1_000))
    book(office.world)

    assert second.open_breaks == 0
    assert bank.kinds() == {("NOT_PAID", "explained", 0): 1, ("BANK_ONLY", "open", -1): 1}
    assert [row[-1] for row in bank.days()] == [0, 0]


def test_a_day_is_not_paid_after_five_days(bank: Bank) -> None:
    bank.owes(after(0), 1_000)
    assert bank.says(line(after(0), 1), line(after(4), 1)).open_breaks == 2
    bank.says(line(after(5), 1))

    assert bank.kinds()["NOT_PAID", "open", 1_000] == 1


def test_a_file_that_comes_after_its_payment_explains_it(bank: Bank, office: Office) -> None:
    assert bank.says(line(after(1), -1_000)).open_breaks == 1

    bank.owes(DAY, 1_000)
    book(office.world)

    assert bank.kinds() == {("BANK_ONLY", "explained", 0): 1}
    assert bank.days() == [(DAY, 1_000, 1_000, 0)]


def test_what_a_person_has_resolved_is_not_matched_any_more(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000))
    [(key,)] = bank.rows("SELECT break_id FROM finance.breaks WHERE platform_id = %s")
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "written_off", "not ours")

    bank.owes(DAY, 1_000)

    assert bank.kinds() == {("BANK_ONLY", "written_off", -1_000): 1}


def test_a_currency_is_matched_by_itself(bank: Bank) -> None:
    bank.owes(DAY, 1_000, currency="JPY")

    yen = bank.says(line(after(1), -1_000, currency="JPY"))
    usd = Bank(bank.office, bank.network).says(line(after(1), -1_000))

    assert (yen.open_breaks, usd.open_breaks) == (0, 1)


def test_greatest_amounts_are_taken(bank: Bank, office: Office) -> None:
    most = 2**63 - 1
    bank.owes(DAY, most)

    result = bank.says(line(after(1), -most))

    assert (result.open_breaks, result.closing) == (0, -most)
    book(office.world)
    assert bank.balances()["SETTLEMENT_BANK"] == -most


# --- identity -------------------------------------------------------------------------------------


def test_a_statement_is_taken_once_whatever_its_bytes(bank: Bank) -> None:
    lines = [line(after(1), -5, "a"), line(after(2), 7, "b, c")]
    data = statement_of(*lines)

    first = bank.take(data, statement_id="S")
    again = bank.take(b"\xef\xbb\xbf" + data.replace(b"\r\n", b"\n"), statement_id="S")

    assert (first.state, again.state) == ("IMPORTED", "ALREADY_IMPORTED")
    assert again.breaks == first.breaks
    with pytest.raises(RefusedError) as caught:
        bank.take(statement_of(lines[0]), statement_id="S")
    assert (caught.value.code, caught.value.column) == (Code.FILE_ID_REUSED, "statement_id")


def test_the_same_statement_under_another_name_or_account_books_nothing(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 1_000)
    # It nets to nothing: it would follow itself.
    lines = [line(after(1), -1_000, "a"), line(after(1), 1_000, "b")]

    bank.take(statement_of(*lines), statement_id="S")
    again = bank.take(statement_of(*lines), statement_id="T")
    others = [
        (Bank(office, bank.network), statement_of(*lines)),
        (bank, statement_of(*[each | {"description": "another format"} for each in lines])),
    ]
    for at, data in others:
        with pytest.raises(RefusedError) as caught:
            at.take(data, statement_id="U")
        assert caught.value.code == Code.STATEMENT_OVERLAPS
    book(office.world)

    assert again.state == "ALREADY_IMPORTED"
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_statements_that_overlap_and_share_a_line_are_refused_whole(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 1_000)
    bank.take(statement_of(line(after(0), 7), line(after(2), -1_000, "x")), statement_id="1")

    with pytest.raises(RefusedError) as caught:
        bank.take(
            statement_of(line(after(2), -1_000, "x"), line(after(3), 8), opening=7),
            statement_id="2",
        )
    book(office.world)

    assert caught.value.code == Code.STATEMENT_OVERLAPS
    assert "'1'" in caught.value.message
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000
    assert len(bank.rows("SELECT FROM finance.bank_statements WHERE platform_id = %s")) == 1


def test_statements_that_follow_each_other_may_share_a_day_and_equal_lines(bank: Bank) -> None:
    fee = line(after(1), -5, "fee")

    noon = bank.take(statement_of(fee, opening=100), statement_id="noon")
    evening = bank.take(statement_of(fee, opening=95), statement_id="evening")
    morning = bank.take(statement_of(fee, opening=105), statement_id="morning")

    assert [each.state for each in (noon, evening, morning)] == ["IMPORTED"] * 3
    with pytest.raises(RefusedError) as caught:
        bank.take(statement_of(line(after(1), -6, "fee")), statement_id="of another balance")
    assert caught.value.code == Code.STATEMENT_OVERLAPS


@pytest.mark.parametrize("order", list(permutations("123")))
def test_a_line_that_the_bank_dates_back_may_follow(bank: Bank, order: tuple[str, ...]) -> None:
    statements = {
        "1": statement_of(line(after(1), -5), line(after(3), -6)),
        "2": statement_of(line(after(4), -1), opening=-11),
        "3": statement_of(line(after(2), -7), line(after(5), -8), opening=-12),
    }
    # Without the one between them, nothing says that the balances follow each other.
    refused = [order[1]] if order[2] == "2" else []

    outcomes = []
    for name in (*order, *refused):
        try:
            outcomes.append(bank.take(statements[name], statement_id=name).state)
        except RefusedError as error:
            outcomes.append(f"{error.code} {error.message.split(': ')[-1]}")

    expected = ["IMPORTED"] * (3 + len(refused))
    if refused:
        missing = "export the days that are missing, or import first what is between them"
        expected[1] = f"{Code.STATEMENT_OVERLAPS} {missing}"
    assert outcomes == expected
    assert bank.take(statements["3"], statement_id="3").gap is None


@pytest.mark.parametrize("days", [(0, 2), (2, 3), (1, 1), (0, 4), (2, 2)])
def test_a_day_of_one_format_is_not_imported_again_in_another(
    bank: Bank, office: Office, days: tuple[int, int]
) -> None:
    """CSV says one thing about a line, MT940 another: the balances say that it is the same."""
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 1_000)
    moved = {0: 700, 1: -3, 2: -1_000, 3: -9, 4: 50}
    first, last = days

    def balance(day: int) -> int:
        return sum(amount for at, amount in moved.items() if at < day)

    bank.take(
        statement_of(*[line(after(n), moved[n], f"csv {n}") for n in (1, 2)], opening=balance(1)),
        statement_id="csv",
    )
    again = mt940_of(
        *[(after(n), moved[n], f"mt940 {n}") for n in range(first, last + 1)],
        opening=balance(first),
    )
    with pytest.raises(RefusedError) as caught:
        bank.take(again, statement_id="mt940")
    book(office.world)

    assert caught.value.code == Code.STATEMENT_OVERLAPS
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_the_next_day_in_another_format_is_imported(bank: Bank) -> None:
    bank.take(statement_of(line(after(1), -3, "csv")), statement_id="csv")

    result = bank.take(mt940_of((after(2), -4, "mt940"), opening=-3), statement_id="mt940")

    assert (result.state, result.gap) == ("IMPORTED", None)


def test_an_account_that_is_emptied_each_night_does_not_follow_itself(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 1_000)
    day = [line(after(2), 1_000, "from the other account"), line(after(2), -1_000, "paid")]
    bank.take(statement_of(line(after(1), 5), line(after(1), -5), *day), statement_id="1")

    with pytest.raises(RefusedError) as caught:
        bank.take(statement_of(*day, line(after(3), 8), line(after(3), -8)), statement_id="2")
    book(office.world)

    assert caught.value.code == Code.STATEMENT_OVERLAPS
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_of_two_overlapping_imports_at_once_one_is_refused(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 1_000)
    paid = line(after(2), -1_000, "x")
    statements = [statement_of(paid, line(after(n), n)) for n in (3, 4)]

    def outcome(data: bytes) -> str:
        try:
            return bank.take(data).state
        except RefusedError as error:
            return error.code

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(outcome, statements))
    book(office.world)

    assert outcomes == ["IMPORTED", "STATEMENT_OVERLAPS"]
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_a_gap_between_statements_is_reported(bank: Bank) -> None:
    first = bank.take(statement_of(line(after(1), -5), opening=100), statement_id="1")
    third = bank.take(statement_of(line(after(5), -5), opening=80), statement_id="3")
    second = bank.take(statement_of(line(after(3), -15), opening=95), statement_id="2")
    again = bank.take(statement_of(line(after(5), -5), opening=80), statement_id="3")

    assert [each.gap for each in (first, third, second, again)] == [None, -15, None, None]


def test_of_two_imports_at_once_one_wins(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    data = statement_of(line(after(1), -1_000))

    with ThreadPoolExecutor(2) as threads:
        states = [
            each.state for each in threads.map(lambda d: bank.take(d, statement_id="S"), [data] * 2)
        ]

    book(office.world)
    assert sorted(states) == ["ALREADY_IMPORTED", "IMPORTED"]
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_a_dry_run_keeps_nothing(bank: Bank) -> None:
    result = bank.take(statement_of(line(after(1), -5)), keep=False)

    assert (result.state, result.open_breaks) == ("DRY_RUN", 1)
    assert bank.rows("SELECT FROM finance.bank_statements WHERE platform_id = %s") == []


def test_people_cannot_write_the_tables(bank: Bank) -> None:
    with psycopg.connect(bank.network.login) as connection:
        for statement in (
            "INSERT INTO cardledger.bank_lines DEFAULT VALUES",
            "SELECT cardledger.match_bank(NULL, 'USD')",
            "SELECT finance.finish_statement(gen_random_uuid(), 'x')",
        ):
            with pytest.raises(psycopg.Error), connection.transaction():
                connection.execute(statement.encode())


def test_statements_are_proved_by_indexes(bank: Bank) -> None:
    connection = bank.office.world.connection
    [(source,)] = bank.office.world.rows(
        "SELECT prosrc FROM pg_proc WHERE oid = 'prove_statements(uuid, text)'::regprocedure"
    )
    proves = source[source.index("SELECT p.id") : source.rindex(";")]
    for name, value in (("platform", f"'{bank.platform}'::uuid"), ("currency_code", "'USD'")):
        proves = re.sub(rf"\b{name}\b", value, proves)

    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {proves}".encode()))

    # With other statistics the planner computes a sum twice.
    assert plan.count("breaks_statement_idx") >= 2, plan
    assert "bank_payments_rest_key" in plan
    assert "Seq Scan" not in plan


# --- the command ----------------------------------------------------------------------------------


def test_the_command_says_what_it_found(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    path = office.folder / f"{bank.account}.csv"
    path.write_bytes(statement_of(line(after(1), -1_000), line(after(2), -3)))
    arguments = ("bank", str(path), "--account", bank.account, "--platform", str(bank.platform))
    env = environment(DATABASE_URL=office.anna)

    dry = run_command(*arguments, "--dry-run", "--json", env=env, cwd=office.folder)
    done = run_command(*arguments, env=env, cwd=office.folder)
    again = run_command(*arguments, "--json", env=env, cwd=office.folder)
    listed = run_command(
        "breaks", "list", "--kind", "BANK_ONLY", "--json", env=env, cwd=office.folder
    )

    assert (dry.returncode, done.returncode, again.returncode) == (1, 1, 1), done.stderr
    assert json.loads(dry.stdout)["state"] == "DRY_RUN"
    assert json.loads(again.stdout) == {
        "state": "ALREADY_IMPORTED",
        "account": bank.account,
        "fileId": f"{after(1)}..{after(2)} USD",
        "currency": "USD",
        "firstDay": str(after(1)),
        "lastDay": str(after(2)),
        "opening": 0,
        "closing": -1_003,
        "gap": None,
        "lines": 2,
        "matched": {"REFERENCE": 0, "AMOUNT": 1, "NETWORK": 0, "REST": 0},
        "breaks": [{"kind": "BANK_ONLY", "currency": "USD", "count": 1, "difference": -3}],
        "proof": [{"currency": "USD", "ledger": -1_000, "difference": -3, "file": -1_003}],
        "openBreaks": 1,
    }
    assert "proof USD: expected -1000 + differences -3 = statement -1003" in done.stdout
    found = [json.loads(each) for each in listed.stdout.splitlines()]
    assert [
        (each["network"], each["fileAmount"], each["difference"])
        for each in found
        if each["fileId"] == f"{after(1)}..{after(2)} USD"
    ] == [(None, -3, -3)]


def test_a_refusal_is_in_the_audit_and_shows_no_card_number(bank: Bank, office: Office) -> None:
    path = office.folder / f"{bank.account}.csv"
    path.write_bytes(statement_of(line(after(1), -5, "card 4111 1111 1111 1111 paid")))
    env = environment(DATABASE_URL=office.anna)

    ended = run_command("bank", str(path), "--json", env=env, cwd=office.folder)

    assert ended.returncode == 2, ended.stderr
    assert json.loads(ended.stdout) == {
        "state": "REFUSED",
        "code": "PAN_FOUND",
        "line": 2,
        "column": "description",
        "message": "the field has a card number: files with card numbers are not kept",
    }
    assert "4111" not in ended.stdout + ended.stderr
    # An id may have four such digits.
    details = office.world.rows("SELECT detail::text FROM finance.audit")
    assert not [text for (text,) in details if "41111111" in text.replace(" ", "")]


def test_only_open_breaks_end_the_command_with_1(bank: Bank, office: Office) -> None:
    path = office.folder / f"{bank.account}.csv"
    path.write_bytes(statement_of(line(after(1), -5)))
    bad = office.folder / f"{bank.account}-bad.csv"
    bad.write_bytes(b"no header")
    away = office.anna.with_database("no-such-database")
    platform = ("--platform", str(bank.platform))

    def failure(url: DatabaseUrl, *arguments: str) -> str:
        env = environment(DATABASE_URL=url)
        ended = run_command("bank", *arguments, "--json", env=env, cwd=office.folder)
        assert ended.returncode == 2, ended
        assert not ended.stdout
        return ended.stderr

    unknown = "00000000-0000-7000-8000-000000000001"
    assert "there is no platform" in failure(office.anna, str(path), "--platform", unknown)
    assert "PostgreSQL" in failure(away, str(path), *platform)
    assert "PostgreSQL" in failure(away, "--rematch")
    assert "--account must have" in failure(office.anna, str(path), *platform, "--account", "")
    for file in (str(path), str(bad), "--rematch"):
        assert "lacks the right to prepare" in failure(office.ben, file)


# --- closing --------------------------------------------------------------------------------------


def test_unpaid_days_and_breaks_of_the_bank_are_in_the_way_of_a_closing(
    bank: Bank, office: Office
) -> None:
    bank.owes(after(-1), 500)  # Before the first statement: it is not asked for.
    bank.owes(DAY, 1_000)

    def in_the_way() -> set[tuple[str, int]]:
        return {
            (kind, found)
            for kind, found, detail in office.world.rows(
                "SELECT kind, found, detail FROM finance.in_the_way(%s, %s)", FIRST, LAST
            )
            if str(bank.platform) in detail
        }

    assert ("UNPAID_DAY", 1) not in in_the_way()
    bank.says(line(DAY, -1))
    assert ("UNPAID_DAY", 1) in in_the_way()
    bank.says(line(after(1), -1_000))
    assert ("UNPAID_DAY", 1) not in in_the_way()
    kinds = {
        kind
        for kind, _ in office.world.rows(
            "SELECT kind, found FROM finance.in_the_way(%s, %s)", FIRST, LAST
        )
    }
    assert "BANK_ONLY" in kinds


def test_an_import_that_is_killed_was_never_begun_and_can_be_repeated(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    lines = [line(after(1), 1 + n % 7, f"line {n}") for n in range(60_000)]
    path = office.folder / f"{bank.account}.csv"
    path.write_bytes(statement_of(*lines, line(after(1), -1_000)))
    arguments = ("bank", str(path), "--account", bank.account, "--platform", str(bank.platform))
    env = environment(DATABASE_URL=office.anna)

    with started([*COMMAND, *arguments], env=env, cwd=office.folder) as process:
        eventually(lambda: _is_importing(office.world))
        process.kill()
        process.wait(limit_s())
    eventually(lambda: not _is_importing(office.world))
    nothing = bank.rows("SELECT FROM finance.bank_statements WHERE platform_id = %s")
    ended = run_command(*arguments, "--json", env=env, cwd=office.folder)
    book(office.world)

    assert nothing == []
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["state"], found["lines"], found["openBreaks"]) == ("IMPORTED", 60_001, 60_000)
    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def _is_importing(world: World) -> bool:
    return bool(
        world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND query LIKE '%%add_statement_lines%%' AND pid <> pg_backend_pid()"
        )
    )
