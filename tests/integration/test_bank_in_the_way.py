"""Moves and lines of the bank that do not agree are in the way of closing, until allowed."""

from collections.abc import Iterator
from typing import Any

import pytest

from cardledger.install import acting, settlement_files
from tests.bank_statements import line
from tests.databases import OwnRoles
from tests.integration import office as offices
from tests.integration.banks import DAY, Bank, book_moves, opened
from tests.integration.office import FIRST, LAST, MONTH, TODAY, Office


@pytest.fixture
def office(own_roles: OwnRoles, tmp_path: Any) -> Iterator[Office]:  # noqa: ANN401 - a path
    with offices.opened(own_roles, tmp_path) as made:
        yield made


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


def in_the_way(office: Office, kind: str, to_day: Any = TODAY) -> list[tuple[Any, ...]]:  # noqa: ANN401 - a day
    return office.world.rows(
        "SELECT found, detail FROM finance.in_the_way(%s, %s) WHERE kind = %s", FIRST, to_day, kind
    )


def moved(bank: Bank, amount: int) -> Any:  # noqa: ANN401 - an id
    """Book a move of the bank that names no line."""
    key = bank.move(None, amount)
    bank.approve(key)
    book_moves(bank.office.world)
    return key


def test_a_move_without_a_line_is_in_the_way_once_a_statement_has_its_days(
    bank: Bank, office: Office
) -> None:
    first, second = moved(bank, 1_000), moved(bank, 7)
    assert in_the_way(office, "MOVE_WITHOUT_LINE") == []

    bank.says(line(DAY, -1_000, "fee"))

    expected = f"moves of platform {bank.platform} in USD, the first posted on {TODAY}"
    assert in_the_way(office, "MOVE_WITHOUT_LINE") == [(2, expected)]
    assert in_the_way(office, "MOVE_WITHOUT_LINE", LAST) == []
    assert office.world.verify().holds
    reversal = bank.reverse(first)
    assert in_the_way(office, "MOVE_WITHOUT_LINE") == [(2, expected)]
    bank.approve(reversal)
    book_moves(office.world)
    assert in_the_way(office, "MOVE_WITHOUT_LINE") == [(1, expected)]
    bank.approve(bank.reverse(second))
    book_moves(office.world)
    assert in_the_way(office, "MOVE_WITHOUT_LINE") == []


def test_a_move_of_before_the_first_day_of_the_statements_is_not_in_the_way(
    bank: Bank, office: Office
) -> None:
    moved(bank, 1_000)

    bank.says(line(TODAY + (DAY - FIRST), -5, "fee"))

    assert in_the_way(office, "MOVE_WITHOUT_LINE") == []


def test_what_a_closing_allowed_by_name_is_not_in_the_way_again(bank: Bank, office: Office) -> None:
    key = moved(bank, 1_000)
    bank.says(line(DAY, -5, "fee"))
    owner = office.world.connection

    with owner.transaction(force_rollback=True):
        for table in ("entries", "closings"):
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER".encode())
        owner.execute("UPDATE entries SET posted_on = %s WHERE subject_id = %s", [LAST, key])
        [(closing,)] = owner.execute(
            "INSERT INTO closings (id, kind, first_day, last_day, state, prepared_by, decided_at,"
            " decided_by) VALUES (gen_random_uuid(), 'CLOSE', %s, %s, 'APPROVED', 'a', now(), 'b')"
            " RETURNING id",
            [FIRST, LAST],
        ).fetchall()
        assert len(in_the_way(office, "MOVE_WITHOUT_LINE")) == 1
        owner.execute(
            "INSERT INTO closing_exceptions (closing_id, kind, reason, found)"
            " VALUES (%s, 'MOVE_WITHOUT_LINE', 'no statement has it', 1)",
            [closing],
        )
        assert in_the_way(office, "MOVE_WITHOUT_LINE") == []
        owner.execute("UPDATE closings SET prepared_at = now() - interval '1 day'")
        assert len(in_the_way(office, "MOVE_WITHOUT_LINE")) == 1
        owner.execute("UPDATE closings SET prepared_at = now(), state = 'REOPENED'")
        assert len(in_the_way(office, "MOVE_WITHOUT_LINE")) == 1


def test_a_line_that_is_written_off_is_in_the_way_until_it_is_booked_or_allowed(
    bank: Bank, office: Office
) -> None:
    bank.says(line(DAY, -1_000, "fee"))
    [(key, _)] = bank.keys("BANK_ONLY")
    assert in_the_way(office, "UNBOOKED_LINE") == []
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "written_off", "not ours")
    expected = [(1, f"lines of platform {bank.platform} in USD, the oldest of {DAY}")]
    assert in_the_way(office, "UNBOOKED_LINE", LAST) == expected

    assert office.verify().returncode == 0
    assert office.close(office.anna, MONTH).stdout.count("UNBOOKED_LINE") == 1
    reason = "a mistake of the bank"
    allowed = office.state(office.anna, MONTH, "--allow", "UNBOOKED_LINE", "--reason", reason)
    office.state(office.ben, "approve", allowed["id"])

    assert in_the_way(office, "UNBOOKED_LINE") == []
    bank.approve(bank.move(key, 400))
    book_moves(office.world)
    office.world.connection.execute("UPDATE breaks SET closed_at = now()")
    assert in_the_way(office, "UNBOOKED_LINE") == expected
    bank.approve(bank.move(key, 600))
    book_moves(office.world)
    assert in_the_way(office, "UNBOOKED_LINE") == []
