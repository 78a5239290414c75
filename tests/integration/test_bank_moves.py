"""A line of the bank is booked once: by the days that it pays, or by moves of two people."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cardledger.config.errors import CommandError
from cardledger.install import acting, adjustments, bank_statements, settlement_files
from cardledger.ledger.audit import settlements
from tests.bank_statements import line
from tests.databases import OwnRoles
from tests.integration.banks import DAY, Bank, after, book, book_moves, opened, proved
from tests.integration.office import Office
from tests.waiting import eventually, limit_s


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with proved(own_roles, tmp_path_factory.mktemp("bank")) as made:
        yield made


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


def prepare(connection: psycopg.Connection, bank: Bank, key: Any, amount: int) -> Any:  # noqa: ANN401 - ids
    """Prepare a move of the line of a break in the open database transaction of `connection`."""
    move = (bank.platform, "NETWORK_FEES", "SETTLEMENT_BANK", amount, "USD", "charges", key)
    statement = f"SELECT finance.prepare_bank_move({', '.join(['%s'] * len(move))})"
    row = connection.execute(statement.encode(), move).fetchone()
    assert row is not None
    return row[0]


def waits(office: Office, function: str) -> bool:
    """Return whether a call of `function` waits for a lock."""
    found = office.world.rows(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        " AND datname = current_database()",
        f"%{function}%",
    )
    return bool(found)


def line_that_would_be_matched(bank: Bank, office: Office) -> Any:  # noqa: ANN401 - an id
    """Return the break of a line that the next matching finds to pay a day."""
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    first = bank.move(key, 1_000)
    bank.owes(DAY, 1_000)
    with acting.as_person(office.ben, may="approve") as session:
        adjustments.reject(session, first, "it is of the network")
    return key


def test_a_line_that_a_move_books_is_not_matched_whichever_came_first(
    bank: Bank, office: Office
) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    prepared = bank.move(key, 1_000)

    bank.owes(DAY, 1_000)  # The line would pay it.
    bank.approve(prepared)
    book_moves(office.world)
    book(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000
    assert bank.days() == [(DAY, 1_000, 0, 1_000)]
    assert bank.rows(
        "SELECT rule, booking_id, moved::bigint FROM finance.bank_lines WHERE platform_id = %s"
    ) == [(None, None, -1_000)]
    with pytest.raises(CommandError, match="moves of it have 1000"):
        bank.move(key, 1)
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "resolved", "booked by a move")
    with pytest.raises(CommandError, match="moves of it have 1000"):
        bank.move(key, 1)


def test_a_line_that_pays_a_day_is_not_booked_by_a_move(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    bank.owes(DAY, 1_000)
    book(office.world)

    with pytest.raises(CommandError, match="pays days of a network"):
        bank.move(key, 1_000)


def test_a_move_that_is_rejected_leaves_the_line(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    prepared = bank.move(key, 1_000)
    bank.owes(DAY, 1_000)
    book(office.world)
    assert bank.days() == [(DAY, 1_000, 0, 1_000)]

    with acting.as_person(office.ben, may="approve") as session:
        adjustments.reject(session, prepared, "it is VISA")
    with acting.as_person(office.anna, may="prepare", reply_limit_s=None) as session:
        bank_statements.rematch(session)
    book(office.world)

    assert bank.days() == [(DAY, 1_000, 1_000, 0)]
    assert bank.open_breaks() == []


def test_a_line_is_booked_in_parts_and_never_more_than_it_moved(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), 1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")

    prepared = [bank.move(key, 600, is_in=True), bank.move(key, 400, is_in=True)]
    for each in prepared:
        bank.approve(each)
    book_moves(office.world)

    with pytest.raises(CommandError, match="moved 1000 minor units of USD, and moves of it have"):
        bank.move(key, 1, is_in=True)
    assert bank.balances()["SETTLEMENT_BANK"] == 1_000


def test_the_break_of_a_line_is_resolved_when_moves_have_booked_all_of_it(
    bank: Bank, office: Office
) -> None:
    bank.says(line(after(1), 1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")

    def resolve() -> str:
        with acting.as_person(office.ben, may="approve") as session:
            return settlement_files.resolve(session, key, "resolved", "charges")

    def refuses(booked: int) -> None:
        expected = f"moved 1000 minor units of USD, and moves have booked {booked} .* written_off"
        with pytest.raises(CommandError, match=expected):
            resolve()

    refuses(0)
    first, second = bank.move(key, 600, is_in=True), bank.move(key, 400, is_in=True)
    bank.approve(first)
    refuses(0)  # Not booked yet.
    book_moves(office.world)
    refuses(600)
    with acting.as_person(office.ben, may="approve") as session:
        adjustments.reject(session, second, "another account")
    refuses(600)
    bank.approve(bank.move(key, 400, is_in=True))
    book_moves(office.world)
    assert resolve() == "resolved"


def test_of_two_moves_of_a_line_at_once_one_is_prepared(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")

    with psycopg.connect(office.anna) as first, ThreadPoolExecutor(1) as threads:
        prepare(first, bank, key, 600)
        second = threads.submit(bank.move, key, 600)
        eventually(lambda: waits(office, "prepare_bank_move"))
        first.commit()

        with pytest.raises(CommandError, match="moves of it have 600"):
            second.result(limit_s())


def test_a_move_of_the_bank_names_a_line_of_its_platform_and_direction(
    bank: Bank, office: Office
) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    other = opened(office)
    bank.owes(DAY, 500)
    bank.says(line(after(1), -480, f"{bank.network.name}"))
    [(differs, _)] = bank.keys("BANK_DIFFERS")

    def refuses(sentence: str, *arguments: Any, at: Bank = bank, **changes: Any) -> None:  # noqa: ANN401 - of `move`
        with pytest.raises(CommandError, match=sentence):
            at.move(*arguments, **changes)

    refuses("names the break BANK_ONLY of the line", None, 1_000)
    refuses("there is no break BANK_ONLY", bank.platform, 1_000)
    refuses("there is no break BANK_ONLY", differs, 480)
    refuses("left the bank: SETTLEMENT_BANK is credited", key, 1_000, is_in=True)
    refuses("is booked by a move of", key, 5, bank_account="INTERCHANGE")
    refuses("is booked by a move of SETTLEMENT_BANK of platform", key, 5, at=other)


def test_without_a_statement_two_people_move_what_the_bank_has(bank: Bank, office: Office) -> None:
    bank.approve(bank.move(None, 1_000))
    book_moves(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000
    bank.says(line(after(1), -5, "?"))
    assert office.world.verify().holds


def test_a_move_from_before_the_first_statement_is_not_approved_after_it(
    bank: Bank, office: Office
) -> None:
    prepared = bank.move(None, 1_000)
    bank.owes(DAY, 1_000)
    bank.says(line(after(1), -1_000, "?"))

    with pytest.raises(CommandError, match="names the break BANK_ONLY of the line"):
        bank.approve(prepared)
    with acting.as_person(office.ben, may="approve") as session:
        assert adjustments.reject(session, prepared, "its line is there") == "REJECTED"
    book(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_a_move_that_the_first_statement_says_as_well_is_reversed_and_its_line_booked(
    bank: Bank, office: Office
) -> None:
    move = bank.move(None, 1_000)
    bank.approve(move)
    book_moves(office.world)
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")

    bank.approve(bank.reverse(move))
    bank.approve(bank.move(key, 1_000))
    book_moves(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000
    assert bank.rows(
        "SELECT from_kind, to_kind, amount, currency, reverses_id FROM finance.adjustments"
        " WHERE platform_id = %s AND reverses_id IS NOT NULL"
    ) == [("SETTLEMENT_BANK", "NETWORK_FEES", 1_000, "USD", move)]


def test_a_move_is_reversed_once_and_only_one_of_the_bank_without_a_line(
    bank: Bank, office: Office
) -> None:
    move = bank.move(None, 1_000)
    with pytest.raises(CommandError, match="is PREPARED: nothing is booked"):
        bank.reverse(move)
    fees = bank.move(None, 5, bank_account="INTERCHANGE")
    for each in (move, fees):
        bank.approve(each)
    book_moves(office.world)
    reversal = bank.reverse(move)

    for key in (fees, reversal):
        with pytest.raises(CommandError, match="is no move of SETTLEMENT_BANK without a line"):
            bank.reverse(key)
    with pytest.raises(CommandError, match=f"{move} is reversed by adjustment {reversal} already"):
        bank.reverse(move)
    with pytest.raises(CommandError, match="there is no adjustment"):
        bank.reverse(bank.platform)
    with acting.as_person(office.ben, may="approve") as session:
        adjustments.reject(session, reversal, "no statement has it")
    bank.approve(bank.reverse(move))
    book_moves(office.world)
    assert "SETTLEMENT_BANK" not in bank.balances()


def test_of_two_reversals_at_once_one_is_prepared(bank: Bank, office: Office) -> None:
    move = bank.move(None, 1_000)
    bank.approve(move)
    book_moves(office.world)

    with psycopg.connect(office.anna) as first, ThreadPoolExecutor(1) as threads:
        first.execute("SELECT finance.prepare_reversal(%s, 'twice')", [move])
        second = threads.submit(bank.reverse, move)
        eventually(lambda: waits(office, "prepare_reversal"))
        first.commit()

        with pytest.raises(CommandError, match="is reversed by adjustment"):
            second.result(limit_s())


def test_no_move_is_prepared_while_an_import_runs(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")

    with (
        acting.as_person(office.anna, may="prepare") as session,
        settlement_files.alone(session),
        pytest.raises(CommandError, match="is being imported: prepare the move when"),
    ):
        bank.move(key, 1_000)


def test_no_move_without_a_line_is_approved_while_an_import_runs(
    bank: Bank, office: Office
) -> None:
    prepared = bank.move(None, 1_000)

    with (
        acting.as_person(office.anna, may="prepare") as session,
        settlement_files.alone(session),
        pytest.raises(CommandError, match="is being imported: approve the move when"),
    ):
        bank.approve(prepared)


def test_the_audit_names_the_break_of_a_move_and_the_move_that_is_reversed(
    bank: Bank, office: Office
) -> None:
    moved = bank.move(None, 1_000)
    bank.approve(moved)
    book_moves(office.world)
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    named = {bank.move(key, 1_000): ("break", key), bank.reverse(moved): ("reverses", moved)}

    for adjustment, (name, value) in named.items():
        [(detail,)] = office.world.rows(
            "SELECT detail FROM finance.audit WHERE action = 'ADJUSTMENT_PREPARED'"
            " AND subject = %s",
            str(adjustment),
        )
        assert {"break", "reverses"} & detail.keys() == {name}
        assert detail[name] == str(value)


def test_a_matching_waits_for_a_move_that_is_being_prepared(bank: Bank, office: Office) -> None:
    key = line_that_would_be_matched(bank, office)

    with (
        psycopg.connect(office.anna) as preparing,
        psycopg.connect(office.anna, autocommit=True) as matching,
        ThreadPoolExecutor(1) as threads,
    ):
        prepared = prepare(preparing, bank, key, 1_000)
        matched = threads.submit(matching.execute, "SELECT finance.rematch_bank()")
        eventually(lambda: waits(office, "rematch_bank"))
        preparing.commit()
        matched.result(limit_s())
    bank.approve(prepared)
    book_moves(office.world)
    book(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_a_matching_with_an_older_snapshot_does_not_take_the_line_of_a_move(
    bank: Bank, office: Office
) -> None:
    key = line_that_would_be_matched(bank, office)

    with psycopg.connect(office.anna) as matching:
        matching.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        matching.execute("SELECT 1")
        bank.approve(bank.move(key, 1_000))
        with pytest.raises(psycopg.errors.SerializationFailure):
            matching.execute("SELECT finance.rematch_bank()")
    book_moves(office.world)
    book(office.world)

    assert bank.balances()["SETTLEMENT_BANK"] == -1_000


def test_a_line_that_is_booked_twice_is_found_by_the_audit(bank: Bank, office: Office) -> None:
    bank.says(line(after(1), -1_000, "?"))
    [(key, _)] = bank.keys("BANK_ONLY")
    bank.approve(bank.move(key, 600))
    book_moves(office.world)

    def differences(change: str) -> str:
        connection = office.world.connection
        with connection.transaction(force_rollback=True):
            for table in ("adjustments", "bank_statements"):
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER".encode())
            connection.execute(change.encode(), [bank.platform])
            return "\n".join(settlements.differences(connection))

    named = f"Platform {bank.platform} in USD: statements less unbooked lines give"
    assert differences("SELECT %s::uuid") == ""
    twice = differences(
        "INSERT INTO bank_payments (statement_id, line, file_id, currency, amount, expected, rule)"
        " SELECT s.id, l.line, s.id, 'USD', -1000, -1000, 'AMOUNT' FROM bank_statements s"
        " JOIN bank_lines l ON l.statement_id = s.id WHERE s.platform_id = %s"
    )
    assert "-1000 has moves of -600, and pays 1 files" in twice
    more = differences("UPDATE adjustments SET amount = 1001 WHERE platform_id = %s")
    assert "-1000 has moves of -1001, and pays 0 files" in more
    assert f"{named} -1001; SETTLEMENT_BANK has -600" in more
    untied = differences("UPDATE bank_statements SET closing = closing - 7 WHERE platform_id = %s")
    assert f"{named} -607; SETTLEMENT_BANK has -600" in untied
