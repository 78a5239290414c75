"""A line of the bank pays what it pays exactly, whichever file came first."""

from collections.abc import Iterator

import psycopg
import pytest

from cardledger.install import acting, bank_statements, database_findings, settlement_files
from cardledger.install.findings import FAIL, OK, Finding
from tests.bank_statements import line
from tests.databases import OwnRoles
from tests.integration.banks import DAY, Bank, after, book, opened, proved
from tests.integration.office import FIRST, Office


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with proved(own_roles, tmp_path_factory.mktemp("bank")) as made:
        yield made


@pytest.fixture
def bank(office: Office) -> Bank:
    return opened(office)


@pytest.mark.parametrize("late", [-1, 1])
@pytest.mark.parametrize("first", ["file", "line"])
def test_a_day_that_a_line_pays_exactly_wins_whichever_came_first(
    bank: Bank, office: Office, late: int, first: str
) -> None:
    bank.says(line(after(-2), -1))
    bank.owes(DAY, 1_000)
    paid = line(after(2), -995, f"{bank.network.name} settlement")

    if first == "line":
        assert bank.says(paid).matched["NETWORK"] == 1
        book(office.world)
        bank.owes(after(late), 995)
    else:
        bank.owes(after(late), 995)
        assert bank.says(paid).matched["AMOUNT"] == 1
    book(office.world)

    assert bank.days() == sorted([(DAY, 1_000, 0, 1_000), (after(late), 995, 995, 0)])
    assert [(kind, state) for kind, state, _ in bank.open_breaks()] == (
        [("BANK_ONLY", "open")] + ([("NOT_PAID", "open")] if late > 0 else [])
    )
    assert bank.balances()["SETTLEMENT_BANK"] == -995
    assert bank.rows(
        "SELECT p.ledger::bigint, p.difference::bigint FROM finance.statement_proofs p"
        " JOIN finance.bank_statements s USING (statement_id)"
        " WHERE s.platform_id = %s AND p.is_latest AND s.closing = -996 "
    ) == [(-995 + (-1_000 if late > 0 else 0), 1_000 if late > 0 else 0)]


def test_a_day_that_a_line_leaves_is_paid_by_the_line_that_pays_it_exactly(
    bank: Bank, office: Office
) -> None:
    day = bank.owes(DAY, 1_000)
    bank.says(line(after(1), -995, f"{bank.network.name} settlement"))
    bank.says(line(after(2), -1_000, "?"))
    assert len(bank.open_breaks()) == 2

    bank.owes(after(-1), 995)
    book(office.world)

    assert bank.days() == [(after(-1), 995, 995, 0), (DAY, 1_000, 1_000, 0)]
    assert bank.open_breaks() == []
    [(note,)] = bank.rows(
        "SELECT h.note FROM finance.break_history h JOIN finance.breaks b USING (break_id)"
        " WHERE b.platform_id = %s AND h.action = 'NOTED'"
    )
    assert note == f"it does not pay {day} any more: it pays others exactly"


def test_a_line_may_pay_the_day_that_it_had_and_a_late_one_together(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.says(line(after(2), -1_100, f"{bank.network.name} settlement"))
    assert bank.kinds() == {("BANK_DIFFERS", "open", -100): 1}

    bank.owes(after(1), 100)
    book(office.world)

    assert bank.days() == [(DAY, 1_000, 1_000, 0), (after(1), 100, 100, 0)]
    assert bank.open_breaks() == []


def test_where_a_late_day_leaves_several_answers_the_line_keeps_its_days(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(2), 1_000)
    bank.says(line(after(4), -1_100, f"{bank.network.name} settlement"))

    bank.owes(after(1), 100)
    book(office.world)

    assert [paid for _, _, paid, _ in bank.days()] == [1_100, 0, 0]
    assert bank.kinds() == {("BANK_DIFFERS", "open", -100): 1}


def test_what_a_person_has_resolved_keeps_its_days(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    bank.says(line(after(1), -995, f"{bank.network.name} settlement"))
    [(key, _)] = bank.keys("BANK_DIFFERS")
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "written_off", "charges")

    bank.owes(after(-1), 995)
    book(office.world)

    assert bank.days() == [(after(-1), 995, 0, 995), (DAY, 1_000, 995, 5)]


def test_a_line_keeps_its_days_while_a_person_works_on_its_break(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.says(line(after(1), -995, f"{bank.network.name} settlement"))
    [(key, _)] = bank.keys("BANK_DIFFERS")
    with acting.as_person(office.anna, may="prepare") as session:
        settlement_files.assign(session, key, office.anna.role, None)

    bank.owes(after(-1), 995)
    book(office.world)

    assert bank.days() == [(after(-1), 995, 0, 995), (DAY, 1_000, 995, 5)]
    assert bank.kinds()["BANK_DIFFERS", "investigating", 5] == 1


def test_a_line_does_not_leave_a_day_of_a_closed_period(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 500)
    bank.says(line(after(2), -1_495, f"{bank.network.name} settlement"))
    owner = office.world.connection

    owner.execute("UPDATE books SET first_open_day = %s", [after(1)])
    try:
        bank.owes(after(2), 1_495)
    finally:
        owner.execute("UPDATE books SET first_open_day = %s", [FIRST])

    assert bank.kinds() == {("BANK_DIFFERS", "open", 5): 1}
    with acting.as_person(office.anna, may="prepare", reply_limit_s=None) as session:
        bank_statements.rematch(session)  # The period is open again.
    assert bank.kinds()["BANK_DIFFERS", "open", 5] == 0


def test_what_people_had_decided_of_a_day_is_open_again_when_its_line_leaves_it(
    bank: Bank, office: Office
) -> None:
    bank.says(line(after(-3), -1))
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 70)
    bank.says(line(after(2), -70), statement_id="not paid")
    [(key, _)] = bank.keys("NOT_PAID")
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "resolved", "paid by another bank")
    bank.says(line(after(3), -995, f"{bank.network.name} settlement"))
    assert bank.kinds()["NOT_PAID", "resolved", 0] == 1

    bank.owes(after(-1), 995)

    assert bank.kinds()["NOT_PAID", "open", 1_000] == 1
    assert bank.rows(
        "SELECT p.ledger::bigint, p.difference::bigint FROM finance.statement_proofs p"
        " JOIN finance.bank_statements s USING (statement_id)"
        " WHERE s.platform_id = %s AND p.is_latest AND s.bank_statement_id = 'not paid'"
    ) == [(-1_070, 1_000)]


def test_a_day_that_a_line_leaves_is_not_paid_again(bank: Bank, office: Office) -> None:
    bank.says(line(after(-3), -1))
    bank.owes(DAY, 1_000)
    bank.owes(after(1), 70)
    bank.says(line(after(2), -70))
    bank.says(line(after(3), -995, f"{bank.network.name} settlement"))
    assert bank.kinds()["NOT_PAID", "explained", 0] == 1

    bank.owes(after(-1), 995)
    book(office.world)

    assert bank.kinds()["NOT_PAID", "open", 1_000] == 1
    assert bank.days()[1] == (DAY, 1_000, 0, 1_000)
    bank.says(line(after(4), -1_000))
    assert bank.kinds()["NOT_PAID", "explained", 0] == 1


def test_payments_that_agree_are_not_taken_back(bank: Bank, office: Office) -> None:
    bank.owes(DAY, 1_000)
    bank.says(line(after(1), -1_000))

    with pytest.raises(psycopg.Error, match="bank_payments is append-only"):
        office.world.connection.execute("DELETE FROM bank_payments WHERE rule = 'AMOUNT'")


def test_payments_of_a_break_that_is_not_open_are_not_taken_back(
    bank: Bank, office: Office
) -> None:
    bank.owes(DAY, 1_000)
    bank.says(line(after(1), -995, f"{bank.network.name} settlement"))
    [(key, _)] = bank.keys("BANK_DIFFERS")
    of_line = "DELETE FROM bank_payments p USING breaks k WHERE k.id = %s AND p.line = k.line"
    of_line += " AND p.statement_id = k.statement_id RETURNING p.rule"
    owner = office.world.connection

    with owner.transaction(force_rollback=True):
        assert owner.execute(of_line.encode(), [key]).fetchall() == [("NETWORK",)]
    with acting.as_person(office.ben, may="approve") as session:
        settlement_files.resolve(session, key, "written_off", "charges")
    with pytest.raises(psycopg.Error, match="bank_payments is append-only"):
        owner.execute(of_line.encode(), [key])


def test_the_guard_of_payments_is_examined(office: Office) -> None:
    owner = office.world.connection

    def examined() -> Finding:
        found = database_findings.of_schema(owner, is_running=False)
        [finding] = [each for each in found if each.name == "append-only"]
        return finding

    assert examined().state == OK
    with owner.transaction(force_rollback=True):
        owner.execute("ALTER TABLE bank_payments ENABLE TRIGGER only_differing")
        finding = examined()
    assert (finding.state, finding.detail) == (
        FAIL,
        "trigger disabled or missing on bank_payments",
    )
    assert "bank_payments ENABLE ALWAYS TRIGGER only_differing" in str(finding.fix)
