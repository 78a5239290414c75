"""Adjustments: prepared by one person, approved by another, and booked once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Barrier
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors

from cardledger.ledger.audit import verification
from cardledger.ledger.engine.approved_adjustments import ApprovedAdjustments
from cardledger.ledger.engine.failures import UnavailableError
from cardledger.ledger.messaging.inbox import UNROUTED, Lane
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.roles import Right, Role
from cardledger.workers.signals.roles import WorkerRole
from tests.databases import OwnRoles
from tests.due import enqueue_due
from tests.integration.workers import config_of, dead_redis, working
from tests.people_of_finance import Office, call, open_office
from tests.waiting import eventually
from tests.worker_process import WorkerChild
from tests.world import INBOX_KEY, World, open_world

__all__ = ["dead_redis"]  # A fixture.

MOVE: Final = "SELECT finance.prepare_move(%s, %s, %s, %s, %s, %s)"
APPROVE: Final = "SELECT finance.approve_adjustment(%s)"
REJECT: Final = "SELECT finance.reject_adjustment(%s, %s)"
REFUSED: Final = (errors.InsufficientPrivilege, errors.ObjectNotInPrerequisiteState)
NOW: Final = datetime.now(UTC)


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles) -> Iterator[Office]:
    with open_office(own_roles) as made:
        yield made


@pytest.fixture(scope="module")
def world(office: Office) -> Iterator[World]:
    """A world whose books are proved once everything has happened in it."""
    with open_world(office.owner, office.app) as made:
        yield made
        book(made)
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def move(  # noqa: PLR0913 - what a move is, by name
    url: str,
    platform: Id,
    amount: int = 1_234,
    *,
    debit: str = "NETWORK_SETTLEMENT",
    credit: str = "SETTLEMENT_BANK",
    currency: str = "USD",
    reason: str = "paid by hand",
) -> Id:
    key: Id = call(url, MOVE, platform, debit, credit, amount, currency, reason)
    return key


def enqueue(world: World) -> int:
    with psycopg.connect(world.worker_url) as connection:
        return enqueue_due(connection, ApprovedAdjustments(INBOX_KEY), datetime.now(UTC))


def book(world: World) -> list[Any]:
    """Enqueue what is approved, and decide it; return the outcomes."""
    enqueue(world)
    return [decided.outcome for decided in world.drain(world.engine(), Lane.BULK)]


def row(world: World, key: Id) -> dict[str, Any]:
    columns = "state", "prepared_by", "decided_by", "booked_at", "refusal", "amount", "kind"
    [values] = world.rows(f"SELECT {', '.join(columns)} FROM adjustments WHERE id = %s", key)
    return dict(zip(columns, values, strict=True))


def entries(world: World, key: Id) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT sequence, line, customer_id, d.kind, c.kind, amount, account_id FROM entries e"
        " JOIN system_accounts d ON d.id = debit_account_id"
        " JOIN system_accounts c ON c.id = credit_account_id WHERE subject_id = %s",
        key,
    )


# --- one adjustment -------------------------------------------------------------------------------


def test_a_move_is_booked_once_two_people_agree(world: World, office: Office, platform: Id) -> None:
    key = move(office.anna, platform)
    assert book(world) == []
    assert row(world, key)["state"] == "PREPARED"

    state = call(office.ben, APPROVE, key)
    before = entries(world, key)
    outcomes = [book(world), book(world)]

    assert (state, before, outcomes) == ("APPROVED", [], [["APPLIED"], []])
    assert entries(world, key) == [
        (0, 0, UNROUTED.customer_id, "NETWORK_SETTLEMENT", "SETTLEMENT_BANK", 1_234, None)
    ]
    found = row(world, key)
    assert (found["state"], found["prepared_by"], found["decided_by"]) == (
        "BOOKED",
        office.anna.role,
        office.ben.role,
    )
    [(recorded_at, occurred_at, stamp)] = world.rows(
        "SELECT recorded_at, occurred_at, xmin::text FROM entries WHERE subject_id = %s", key
    )
    assert recorded_at == occurred_at == found["booked_at"]
    assert world.rows("SELECT FROM adjustments WHERE id = %s AND xmin::text = %s", key, stamp)


def test_a_move_counts_on_the_day_on_which_it_is_booked(
    world: World, office: Office, platform: Id
) -> None:
    key = move(office.anna, platform)
    call(office.ben, APPROVE, key)
    enqueue(world)
    later = datetime.now(UTC) + timedelta(days=3)

    world.drain(world.engine(clock=lambda: later), Lane.BULK)

    assert world.rows(
        "SELECT posted_on, occurred_at, recorded_at FROM entries WHERE subject_id = %s", key
    ) == [(later.date(), later, later)]


def test_finance_reads_the_whole_history(world: World, office: Office, platform: Id) -> None:
    key = move(office.anna, platform, 5, reason="=HYPERLINK(1)")
    call(office.ben, REJECT, key, "not ours")

    with psycopg.connect(office.as_role(Role.FINANCE)) as connection:
        rows = connection.execute(
            "SELECT state, from_kind, to_kind, amount, amount_decimal::text, reason, prepared_by,"
            " decided_by, booked_at, refusal FROM finance.adjustments WHERE adjustment_id = %s",
            [key],
        ).fetchall()

    assert rows == [
        (
            *("REJECTED", "NETWORK_SETTLEMENT", "SETTLEMENT_BANK", 5, "0.05", "=HYPERLINK(1)"),
            *(office.anna.role, office.ben.role, None, "not ours"),
        )
    ]
    assert book(world) == []
    assert entries(world, key) == []


# --- who may --------------------------------------------------------------------------------------


def test_the_person_who_prepared_it_decides_nothing(
    world: World, office: Office, platform: Id
) -> None:
    key = move(office.dora, platform)

    for statement, values in ((APPROVE, (key,)), (REJECT, (key, "no"))):
        with pytest.raises(errors.CheckViolation, match="adjustments_two_people_check"):
            call(office.dora, statement, *values)

    assert row(world, key)["state"] == "PREPARED"
    assert call(office.ben, APPROVE, key) == "APPROVED"


def test_each_person_calls_the_functions_of_its_right_alone(office: Office, platform: Id) -> None:
    key = move(office.anna, platform)

    for statement, values in ((APPROVE, (key,)), (REJECT, (key, "no"))):
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function"):
            call(office.anna, statement, *values)
    with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function"):
        move(office.ben, platform)
    assert call(office.carl, REJECT, key, "no") == "REJECTED"


FUNCTIONS: Final = {
    "prepare_move": "NULL, NULL, NULL, NULL, NULL, NULL",
    "prepare_bank_move": "NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "prepare_reversal": "NULL, NULL",
    "prepare_write_off": "NULL, NULL, NULL",
    "prepare_suspense_resolution": "NULL, NULL",
    "approve_adjustment": "NULL",
    "reject_adjustment": "NULL, NULL",
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_role_of_a_process_acts_for_a_person(office: Office, role: Role, function: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        call(office.as_role(role), f"SELECT finance.{function}({FUNCTIONS[function]})")


def test_exactly_one_right_calls_each_function(world: World, office: Office) -> None:
    database = office.owner.database
    rows = world.rows(
        "SELECT p.proname, array_agg(acl.grantee::regrole::text ORDER BY acl.grantee)"
        " FROM pg_proc p, aclexplode(p.proacl) acl"
        " WHERE p.pronamespace = 'finance'::regnamespace AND acl.grantee <> p.proowner"
        " AND p.proname = ANY(%s) GROUP BY 1",
        [*FUNCTIONS],
    )

    assert dict(rows) == {
        name: [f"{database}_{Right.PREPARE if name.startswith('prepare') else Right.APPROVE}"]
        for name in FUNCTIONS
    }


DEEDS: Final = (
    "INSERT INTO cardledger.adjustments (kind, currency, amount) VALUES ('MOVE', 'USD', 1)",
    "UPDATE cardledger.adjustments SET state = 'APPROVED'",
    "UPDATE cardledger.adjustments SET amount = amount + 1",
    "UPDATE cardledger.adjustments SET decided_by = 'ben', decided_at = now()",
    "UPDATE cardledger.adjustments SET prepared_by = 'someone'",
    "DELETE FROM cardledger.adjustments",
    "TRUNCATE cardledger.adjustments",
)


@pytest.mark.parametrize("deed", DEEDS)
def test_only_the_functions_change_what_was_decided(
    world: World, office: Office, platform: Id, deed: str
) -> None:
    key = move(office.anna, platform)
    before = world.rows("SELECT * FROM adjustments ORDER BY id")

    logins = [office.anna, office.ben, office.dora, *map(office.as_role, Role)]
    for url in logins:
        with psycopg.connect(url) as connection, pytest.raises(REFUSED):
            connection.execute(deed.encode())

    assert world.rows("SELECT * FROM adjustments ORDER BY id") == before
    call(office.ben, REJECT, key, "no")


@pytest.mark.parametrize("role", [Role.WORKER, Role.APP])
def test_a_worker_books_or_refuses_what_is_approved_and_changes_nothing_else(
    world: World, office: Office, platform: Id, role: Role
) -> None:
    prepared, rejected, approved = (move(office.anna, platform) for _ in range(3))
    call(office.ben, REJECT, rejected, "no")
    call(office.ben, APPROVE, approved)
    changes = [
        (prepared, "state = 'APPROVED'"),
        (prepared, "state = 'BOOKED', booked_at = now()"),
        (rejected, "state = 'BOOKED', booked_at = now(), refusal = NULL"),
        (rejected, "state = 'PREPARED', refusal = NULL"),
        (rejected, "refusal = 'other words'"),
        (approved, "state = 'PREPARED'"),
        (approved, "state = 'REJECTED', refusal = 'x'"),
        (approved, "refusal = 'x'"),
    ]

    with psycopg.connect(office.as_role(role), autocommit=True) as connection:
        for key, change in changes:
            with pytest.raises(REFUSED):
                connection.execute(f"UPDATE adjustments SET {change} WHERE id = %s", [key])
        connection.execute(
            "UPDATE adjustments SET state = 'REFUSED', refusal = 'x' WHERE id = %s", [approved]
        )
        for change in ("state = 'BOOKED', booked_at = now(), refusal = NULL", "refusal = 'y'"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(f"UPDATE adjustments SET {change} WHERE id = %s", [approved])
    states = [row(world, key)["state"] for key in (prepared, rejected, approved)]
    assert states == ["PREPARED", "REJECTED", "REFUSED"]


@pytest.mark.parametrize("deed", ["DELETE FROM adjustments", "TRUNCATE adjustments"])
@pytest.mark.parametrize("replica", ["origin", "replica"])
def test_the_owner_deletes_nothing(office: Office, deed: str, replica: str) -> None:
    with psycopg.connect(office.owner) as connection:
        connection.execute(f"SET session_replication_role = {replica}".encode())
        with pytest.raises(errors.InsufficientPrivilege, match="adjustments is append-only"):
            connection.execute(deed.encode())


@pytest.mark.parametrize("column", ["amount", "platform_id", "reason", "prepared_by", "kind"])
def test_the_owner_changes_nothing_that_was_prepared(
    office: Office, platform: Id, column: str
) -> None:
    key = move(office.anna, platform)
    value = "amount + 1" if column == "amount" else f"'{new_id()}'"

    with psycopg.connect(office.owner) as connection:
        connection.execute("SET session_replication_role = replica")
        with pytest.raises(errors.InsufficientPrivilege, match="cannot be changed"):
            connection.execute(
                f"UPDATE adjustments SET state = 'APPROVED', {column} = {value}"
                " WHERE id = %s".encode(),
                [key],
            )


def test_the_owner_prepares_in_no_other_name(office: Office, platform: Id) -> None:
    with (
        psycopg.connect(office.owner) as connection,
        pytest.raises(errors.InsufficientPrivilege, match="by the login of the session"),
    ):
        connection.execute(
            "INSERT INTO adjustments (kind, platform_id, currency, amount, from_kind, to_kind,"
            " reason, prepared_by) VALUES ('MOVE', %s, 'USD', 1, 'INTERCHANGE', 'SETTLEMENT_BANK',"
            " 'x', 'anna')",
            [platform],
        )


# --- what cannot be prepared ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "account",
    ["CARD_HOLDS", "RECEIVABLE", "CUSTOMER", "SUSPENSE", "TRANSFERS", "SANDBOX_FUNDING", "x", None],
)
@pytest.mark.parametrize("side", ["debit", "credit"])
def test_what_is_proved_from_sub_ledgers_is_not_moved(
    office: Office, platform: Id, account: str | None, side: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="cannot be moved by hand"):
        move(office.anna, platform, **{side: account})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"amount": 0}, "amount must be 1 to"),
        ({"amount": -5}, "amount must be 1 to"),
        ({"amount": None}, "amount must be 1 to"),
        ({"credit": "NETWORK_SETTLEMENT"}, "to itself"),
        ({"currency": "KWD"}, "has no account NETWORK_SETTLEMENT in KWD"),
        ({"reason": "  "}, "1 to 1000 characters"),
        ({"reason": None}, "1 to 1000 characters"),
        ({"reason": "x" * 1001}, "1 to 1000 characters"),
    ],
)
def test_what_makes_no_sense_is_refused(
    office: Office, platform: Id, changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=match):
        move(office.anna, platform, **changes)


def test_an_amount_beyond_a_bigint_is_refused(office: Office, platform: Id) -> None:
    with pytest.raises(psycopg.Error):
        move(office.anna, platform, 2**63)


def test_an_unknown_card_transaction_is_refused(office: Office) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="there is no card transaction"):
        call(office.anna, "SELECT finance.prepare_write_off(%s, 1, 'x')", new_id())


def test_an_unknown_adjustment_has_no_state(office: Office) -> None:
    assert call(office.ben, APPROVE, new_id()) is None
    assert call(office.ben, REJECT, new_id(), "x") is None


# --- twice, and at once ---------------------------------------------------------------------------


def test_a_decision_is_made_once(world: World, office: Office, platform: Id) -> None:
    approved, rejected = move(office.anna, platform), move(office.anna, platform)
    call(office.ben, APPROVE, approved)
    call(office.ben, REJECT, rejected, "no")

    for url in (office.ben, office.carl):
        for key in (approved, rejected):
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"by {office.ben.role}"):
                call(url, APPROVE, key)
            with pytest.raises(errors.ObjectNotInPrerequisiteState):
                call(url, REJECT, key, "no")
    book(world)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is BOOKED already"):
        call(office.carl, APPROVE, approved)

    assert [len(entries(world, key)) for key in (approved, rejected)] == [1, 0]


def at_once(*deeds: Callable[[], Any]) -> list[Any]:
    """Return the results of `deeds`, begun together; an error that is expected is None."""
    barrier = Barrier(len(deeds))

    def run(deed: Callable[[], Any]) -> Any:  # noqa: ANN401 - of any type
        barrier.wait()
        try:
            return deed()
        except errors.ObjectNotInPrerequisiteState:
            return None

    with ThreadPoolExecutor(len(deeds)) as pool:
        return [*pool.map(run, deeds)]


def test_of_two_who_approve_at_once_one_does(world: World, office: Office, platform: Id) -> None:
    for _ in range(10):
        key = move(office.anna, platform)

        results = at_once(*(partial(call, url, APPROVE, key) for url in (office.ben, office.carl)))

        assert sorted(map(str, results)) == ["APPROVED", "None"]
        book(world)
        assert len(entries(world, key)) == 1


def test_of_an_approval_and_a_rejection_at_once_one_holds(
    world: World, office: Office, platform: Id
) -> None:
    for _ in range(10):
        key = move(office.anna, platform)

        approved, rejected = at_once(
            partial(call, office.ben, APPROVE, key), partial(call, office.carl, REJECT, key, "no")
        )

        assert (approved is None) != (rejected is None)
        book(world)
        assert len(entries(world, key)) == (approved is not None)


def test_processes_that_enqueue_at_once_write_one_message(
    world: World, office: Office, platform: Id
) -> None:
    keys = [move(office.anna, platform) for _ in range(20)]
    for key in keys:
        call(office.ben, APPROVE, key)

    written = at_once(*(lambda: enqueue(world) for _ in range(4)))
    again = enqueue(world)

    assert sum(written) == len(keys)
    assert again == 0
    assert book(world) == ["APPLIED"] * len(keys)
    assert [len(entries(world, key)) for key in keys] == [1] * len(keys)


# --- a crash between two steps --------------------------------------------------------------------


def test_a_crash_before_any_commit_books_nothing_and_later_once(
    world: World, office: Office, platform: Id
) -> None:
    key = move(office.anna, platform)
    call(office.ben, APPROVE, key)

    with psycopg.connect(world.worker_url) as connection:
        assert ApprovedAdjustments(INBOX_KEY).enqueue_due(connection, NOW) == 1
        connection.rollback()  # The process that enqueues dies.
    assert enqueue(world) == 1
    with _failing_commits(world):
        with pytest.raises(UnavailableError):  # The batch dies with its entries.
            world.drain(world.engine(), Lane.BULK)
        assert entries(world, key) == []
        assert row(world, key)["state"] == "APPROVED"
        assert enqueue(world) == 0

    eventually(lambda: book(world) == ["APPLIED"])

    assert len(entries(world, key)) == 1
    assert book(world) == []


class _failing_commits:  # noqa: N801 - read as a statement
    """The state of adjustments cannot be written: what a batch has appended is rolled back."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._world.connection.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'crash' USING ERRCODE = 'admin_shutdown'; END $$"
        )
        self._world.connection.execute(
            "CREATE TRIGGER fail BEFORE UPDATE ON adjustments FOR EACH ROW EXECUTE FUNCTION fail()"
        )

    def __exit__(self, *_: object) -> None:
        self._world.connection.execute("DROP FUNCTION fail() CASCADE")


def test_an_adjustment_whose_message_was_rejected_is_refused(
    world: World, office: Office, platform: Id
) -> None:
    key = move(office.anna, platform)
    call(office.ben, APPROVE, key)
    enqueue(world)
    with world.connection.transaction():
        world.connection.execute(
            "WITH gone AS (DELETE FROM inbox WHERE reference = %s RETURNING *)"
            " INSERT INTO rejections (id, customer_id, platform_id, source, reference, body,"
            " reason, detail, recorded_at) SELECT id, customer_id, platform_id, source, reference,"
            " body::text, 'INTERNAL_ERROR', 'broken', now() FROM gone",
            [str(key)],
        )

    assert book(world) == []

    found = row(world, key)
    assert (found["state"], found["refusal"]) == (
        "REFUSED",
        "Its message was rejected (INTERNAL_ERROR): broken",
    )
    assert entries(world, key) == []


def test_a_message_that_is_not_of_an_approved_adjustment_is_rejected(
    world: World, office: Office, platform: Id
) -> None:
    prepared = move(office.anna, platform)
    cardholder = world.cardholder(platform)
    body = {"type": "ADJUSTMENT", "source": "adjustments"}

    decided = world.process(
        world.engine(),
        [
            (cardholder, body | {"reference": "a", "adjustmentId": str(prepared)}),
            (cardholder, body | {"reference": "b", "adjustmentId": str(new_id())}),
            (cardholder, body | {"reference": "c"}),
            (cardholder, body | {"reference": "d", "source": "visa", "adjustmentId": "x"}),
        ],
    )

    assert [each.reason for each in decided] == [*["MALFORMED"] * 3, "SOURCE_NOT_ALLOWED"]
    assert row(world, prepared)["state"] == "PREPARED"


def test_a_page_of_messages_that_wait_keeps_no_others_back(
    world: World, office: Office, platform: Id, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cardledger.ledger.engine.approved_adjustments.PAGE_LIMIT", 2)
    approved = ApprovedAdjustments(INBOX_KEY)
    for _ in range(5):
        call(office.ben, APPROVE, move(office.anna, platform))

    written = []
    for _ in range(6):
        with psycopg.connect(world.worker_url) as connection:
            written.append(approved.enqueue_due(connection, NOW))

    assert written == [2, 2, 1, 0, 0, 0]
    assert book(world) == ["APPLIED"] * 5


# --- a worker, and the audit ----------------------------------------------------------------------


def test_a_worker_books_what_is_approved_at_once(
    world: World, office: Office, platform: Id, dead_redis: str
) -> None:
    key = move(office.anna, platform)
    with working(world, dead_redis):
        call(office.ben, APPROVE, key)
        eventually(lambda: row(world, key)["state"] == "BOOKED", timeout_s=10)

    [(took,)] = world.rows("SELECT booked_at - decided_at FROM adjustments WHERE id = %s", key)
    assert took < timedelta(seconds=10)


def _exceeds(count: Callable[[], int], least: int) -> bool:
    return count() > least


def test_workers_that_are_killed_again_and_again_book_each_once(
    world: World, office: Office, platform: Id, dead_redis: str
) -> None:
    keys: list[Id] = []

    def booked() -> int:
        return len(
            world.rows("SELECT FROM adjustments WHERE id = ANY(%s) AND state = 'BOOKED'", keys)
        )

    for _ in range(4):
        before = len(keys)
        keys += [move(office.anna, platform) for _ in range(10)]
        worker = WorkerChild(config_of(world, dead_redis, role=WorkerRole.EVENTS))
        try:
            for key in keys[before:]:
                call(office.ben, APPROVE, key)
            eventually(partial(_exceeds, booked, before))
        finally:
            worker.kill()
    with working(world, dead_redis):
        eventually(lambda: booked() == len(keys))

    assert [len(entries(world, key)) for key in keys] == [1] * len(keys)


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("UPDATE entries SET amount = amount + 1 WHERE subject_id = %(key)s", "do not match"),
        ("DELETE FROM entries WHERE subject_id = %(key)s", "its 0 entries do not match"),
        (
            "UPDATE entries SET sequence = 1 WHERE subject_id = %(key)s",
            "is of nothing that makes entries",
        ),
        ("DELETE FROM adjustments WHERE id = %(key)s", "is of no adjustment"),
        (
            (
                "UPDATE adjustments SET state = 'REFUSED', booked_at = NULL, refusal = 'x'"
                " WHERE id = %(key)s"
            ),
            "its recorded outcome is APPLIED",
        ),
        ("UPDATE adjustments SET amount = 1 WHERE id = %(key)s", "its sub-ledger gives"),
    ],
)
def test_the_audit_finds_what_was_changed(
    world: World, office: Office, platform: Id, tampering: str, found: str
) -> None:
    key = move(office.anna, platform)
    call(office.ben, APPROVE, key)
    book(world)

    with world.connection.transaction(force_rollback=True):
        for table in ("entries", "adjustments"):
            world.connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL".encode())
        world.connection.execute(tampering.encode(), {"key": key})
        report = verification.verify_in_transaction(world.connection, lambda _done, _total: None)

    assert any(found in difference for difference in report.differences), report.differences
