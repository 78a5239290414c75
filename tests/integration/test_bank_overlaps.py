"""Statements that say the same lines otherwise: put together, dated a day later, renamed."""

from collections.abc import Iterator

import pytest

from cardledger.ledger.network_files.records import Code, RefusedError
from tests.bank_statements import line, mt940_of, statement_of
from tests.databases import OwnRoles
from tests.integration.banks import Bank, after, opened, proved
from tests.integration.office import Office

Moved = list[tuple[int, int]]
"""Days and amounts of lines."""

BOTH = [(0, 1), (1, 0)]


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with proved(own_roles, tmp_path_factory.mktemp("bank")) as made:
        yield made


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


def taken(bank: Bank, *statements: Moved) -> list[str]:
    """Import statements that begin with nothing; return what becomes of each."""
    outcomes = []
    for n, moved in enumerate(statements):
        lines = [line(after(day), amount, f"format {n}") for day, amount in sorted(moved)]
        try:
            outcomes.append(bank.take(statement_of(*lines), statement_id=f"{n}").state)
        except RefusedError as error:
            outcomes.append(error.code)
    return outcomes


@pytest.mark.parametrize("order", BOTH)
@pytest.mark.parametrize(
    "others",
    [
        pytest.param([(2, 1_000), (2, -1_000)], id="one line for two"),
        pytest.param([(2, 1_000), (3, -1_000)], id="paid out a day later"),
        pytest.param([(2, 995), (2, -995)], id="less a fee"),
        pytest.param([(2, 1_000), (3, -1_000), (3, 70), (4, -70)], id="all paid out a day later"),
        pytest.param([(4, 4), (4, 5), (5, -9)], id="the last day, paid out a day later"),
        pytest.param([(4, 10), (4, -1), (4, -9)], id="the last day, gross"),
        pytest.param([(1, 5), (2, -5), (2, 1_000), (3, -1_000)], id="from the first day on"),
        pytest.param([(3, 71), (3, -1), (4, -70)], id="gross, and a day later"),
    ],
)
def test_what_another_format_says_of_an_emptied_account_is_refused(
    bank: Bank, order: tuple[int, int], others: Moved
) -> None:
    first = [(1, 5), (1, -5), (2, 600), (2, 400), (2, -1_000), (3, 70), (3, -70), (4, 9), (4, -9)]
    both = [first, others]

    outcomes = taken(bank, *[both[n] for n in order])

    assert outcomes == ["IMPORTED", Code.STATEMENT_OVERLAPS]


@pytest.mark.parametrize("order", BOTH)
def test_days_that_only_one_statement_pays_out_a_day_later_are_refused(
    bank: Bank, order: tuple[int, int]
) -> None:
    """The balances at the beginning of the common days differ, as days are dated otherwise."""
    late = [(1, 5), (2, -5), (2, 600), (3, -600), (3, 70), (4, -70)]
    both = [late, [(2, 600), (2, -600), (3, 70), (3, -70)]]

    outcomes = taken(bank, *[both[n] for n in order])

    assert outcomes == ["IMPORTED", Code.STATEMENT_OVERLAPS]


@pytest.mark.parametrize("order", BOTH)
@pytest.mark.parametrize(
    "others",
    [
        pytest.param([(4, 8), (4, -8)], id="the day after"),
        pytest.param([(3, 50), (4, -50)], id="the evening of the last day"),
        pytest.param([(2, 7), (4, -7)], id="a line that is dated back"),
        pytest.param([(0, 7), (1, -3), (1, -4)], id="the morning of the first day"),
    ],
)
def test_other_lines_of_an_emptied_account_are_imported(
    bank: Bank, order: tuple[int, int], others: Moved
) -> None:
    first = [(1, 5), (1, -5), (2, 600), (2, 400), (2, -1_000), (3, 70), (3, -70)]
    both = [first, others]

    assert taken(bank, *[both[n] for n in order]) == ["IMPORTED"] * 2


@pytest.mark.parametrize(
    ("days", "opening", "outcome"),
    [
        pytest.param([2, 3], 97, Code.STATEMENT_OVERLAPS, id="they share a day"),
        pytest.param([1, 2, 3], 100, Code.STATEMENT_OVERLAPS, id="one has all days of the other"),
        pytest.param([3], 90, "IMPORTED", id="they follow each other"),
        pytest.param([2, 3], 96, "IMPORTED", id="accounts with other balances"),
    ],
)
def test_an_account_under_two_names_is_found_by_the_lines_of_common_days(
    bank: Bank, days: list[int], opening: int, outcome: str
) -> None:
    moved = {1: [-3], 2: [-5, -2], 3: [11]}
    export = [line(after(day), amount, "csv") for day in (1, 2) for amount in moved[day]]
    bank.account = "SETTLEMENT"
    bank.take(statement_of(*export, opening=100), statement_id="csv")
    lines = [(after(day), amount, "mt940") for day in days for amount in moved[day]]
    bank.account = "12345678/0001234567"

    try:
        found = bank.take(mt940_of(*lines, opening=opening), statement_id="mt940").state
    except RefusedError as error:
        found = error.code

    assert found == outcome


def test_two_accounts_with_equal_sums_of_a_day_are_two(bank: Bank) -> None:
    bank.take(statement_of(line(after(1), -5), line(after(1), -2)), statement_id="1")
    bank.account = "another"

    other = bank.take(statement_of(line(after(1), -4), line(after(1), -3)), statement_id="2")

    assert other.state == "IMPORTED"
