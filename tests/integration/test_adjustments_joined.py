"""Adjustments of debts, which are written off, and of items of suspense, which are resolved."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Final

import psycopg
import pytest

from cardledger.ledger.audit.verification import verify_in_transaction
from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id
from tests.databases import OwnRoles
from tests.integration.test_adjust_commands import adjust
from tests.integration.test_adjustments import APPROVE, book, enqueue, row
from tests.integration.workers import dead_redis, working
from tests.people_of_finance import Office, call, open_office
from tests.world import Cardholder, World, open_world

__all__ = ["dead_redis"]  # A fixture.

WRITE_OFF: Final = "SELECT finance.prepare_write_off(%s, %s, 'bankrupt')"
RESOLVE: Final = "SELECT finance.prepare_suspense_resolution(%s, 'credited by letter')"


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles) -> Iterator[Office]:
    with open_office(own_roles) as made:
        yield made


@pytest.fixture(scope="module")
def world(office: Office) -> Iterator[World]:
    """A world whose books are proved once everything has happened in it."""
    with open_world(office.owner, office.app) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture
def debtor(world: World) -> Cardholder:
    """A cardholder who owes 6.00 USD and has nothing."""
    made = world.cardholder(world.platform())
    world.process(world.engine(), [(made, world.clearing(made, "T", 600))])
    assert world.account(made)["owed"] == 600
    return made


def debt(world: World, debtor: Cardholder) -> Id:
    [(key,)] = world.rows(
        "SELECT id FROM card_transactions WHERE customer_id = %s", debtor.owner.customer_id
    )
    found: Id = key
    return found


def sides(world: World, key: Id) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT debit_kind, credit_kind, amount FROM finance.journal WHERE subject_id = %s"
        " ORDER BY recorded_at, sequence, line",
        key,
    )


# --- write-offs -----------------------------------------------------------------------------------


def test_a_debt_is_given_up_once_two_people_agree(
    world: World, office: Office, debtor: Cardholder
) -> None:
    transaction = debt(world, debtor)
    key = call(office.anna, WRITE_OFF, transaction, 250)
    assert world.account(debtor)["owed"] == 600
    call(office.ben, APPROVE, key)

    outcomes = [book(world), book(world)]

    assert outcomes == [["APPLIED"], []]
    assert row(world, key)["state"] == "BOOKED"
    assert world.account(debtor)["owed"] == 350
    assert sides(world, transaction)[-1] == ("OPERATOR_LOSS", "RECEIVABLE", 250)
    assert sides(world, key) == []


def test_what_is_not_owed_any_more_is_refused(
    world: World, office: Office, debtor: Cardholder
) -> None:
    key = call(office.anna, WRITE_OFF, debt(world, debtor), 600)
    world.process(world.engine(), [(debtor, world.deposit(debtor, 600))])
    assert world.account(debtor)["owed"] == 0
    call(office.ben, APPROVE, key)

    assert book(world) == ["DECLINED"]

    found = row(world, key)
    assert (found["state"], found["booked_at"]) == ("REFUSED", None)
    assert found["refusal"].startswith("The card transaction owes 0.00 USD now")


def test_of_two_write_offs_of_one_debt_the_second_finds_what_the_first_left(
    world: World, office: Office, debtor: Cardholder
) -> None:
    transaction = debt(world, debtor)
    keys = [call(office.anna, WRITE_OFF, transaction, 400) for _ in range(2)]
    for key in keys:
        call(office.ben, APPROVE, key)

    assert book(world) == ["APPLIED", "DECLINED"]

    assert [row(world, key)["state"] for key in keys] == ["BOOKED", "REFUSED"]
    assert world.account(debtor)["owed"] == 200


def test_the_command_says_what_is_owed(world: World, office: Office, debtor: Cardholder) -> None:
    transaction = debt(world, debtor)
    name = f"CardTransaction:{transaction}"

    too_much = adjust(office.anna, "write-off", name, "--amount", "6.01", "--reason", "x")
    made = adjust(office.anna, "write-off", name, "--amount", "6.00", "--reason", "x")

    assert too_much.returncode == 1
    assert f"{name} owes 6.00 USD: at most that can be written off" in too_much.stderr
    assert made.returncode == 0, made.stderr


def test_the_command_says_why_an_approved_write_off_was_refused(
    world: World, office: Office, debtor: Cardholder, dead_redis: str
) -> None:
    key = str(call(office.anna, WRITE_OFF, debt(world, debtor), 600))
    world.process(world.engine(), [(debtor, world.deposit(debtor, 600))])

    with working(world, dead_redis):
        approved = adjust(office.ben, "approve", key, "--json")

    assert approved.returncode == 1
    assert json.loads(approved.stdout) == {"id": key, "state": "REFUSED"}
    assert "was refused: The card transaction owes 0.00 USD now" in approved.stderr


# --- items of suspense ----------------------------------------------------------------------------


def suspended(world: World) -> tuple[Cardholder, dict[str, Any], Id]:
    """Return a cardholder, a clearing that was rejected, and its item of suspense."""
    cardholder = world.cardholder(world.platform(), 5_000)
    event = world.clearing(cardholder, "T", 700)
    world.process(world.engine(), [(cardholder, event | {"final": "perhaps"})])
    [(key,)] = world.rows(
        "SELECT id FROM suspense_items WHERE customer_id = %s", cardholder.owner.customer_id
    )
    return cardholder, event, key


def test_an_item_of_suspense_is_taken_back_once_two_people_agree(
    world: World, office: Office
) -> None:
    _, _, item = suspended(world)
    key = call(office.anna, RESOLVE, item)
    call(office.ben, APPROVE, key)

    outcomes = [book(world), book(world)]

    assert outcomes == [["APPLIED"], []]
    assert row(world, key)["state"] == "BOOKED"
    assert row(world, key)["amount"] == 700
    assert world.rows("SELECT resolved_by FROM suspense_items WHERE id = %s", item) == [(key,)]
    assert sides(world, item) == [
        ("SUSPENSE", "NETWORK_SETTLEMENT", 700),
        ("NETWORK_SETTLEMENT", "SUSPENSE", 700),
    ]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is resolved already"):
        call(office.anna, RESOLVE, item)


def test_an_item_that_was_applied_meanwhile_is_refused(world: World, office: Office) -> None:
    cardholder, event, item = suspended(world)
    key = call(office.anna, RESOLVE, item)
    [applied] = world.process(world.engine(), [(cardholder, event)])
    assert applied.outcome == "APPLIED"
    call(office.ben, APPROVE, key)

    assert book(world) == ["DECLINED"]

    assert row(world, key)["refusal"] == "The item of suspense is resolved already."
    assert len(sides(world, item)) == 2
    assert world.drain(world.engine(), Lane.BULK) == []


def test_a_network_day_has_what_stands_in_suspense_until_its_message_is_corrected(
    world: World, office: Office
) -> None:
    world.connection.execute("UPDATE books SET first_open_day = '2026-01-01'")
    cardholder = world.cardholder(world.platform(), 5_000)
    event = world.clearing(cardholder, "T", 700, settlement=of_visa(date(2026, 2, 3)))
    lost = world.clearing(cardholder, "T2", 40, settlement=of_visa(date(2026, 2, 4)))
    process = partial(world.process, world.engine())
    process([(cardholder, each | {"final": "perhaps"}) for each in (event, lost)])
    assert network_days(world, cardholder) == {
        (date(2026, 2, 3), "VISA"): (700, 700),
        (date(2026, 2, 4), "VISA"): (40, 40),
    }

    world.connection.execute("UPDATE books SET first_open_day = '2026-03-01'")
    process([(cardholder, event)])
    [(item,)] = world.rows(
        "SELECT id FROM suspense_items WHERE resolved_at IS NULL AND customer_id = %s",
        cardholder.owner.customer_id,
    )
    call(office.ben, APPROVE, call(office.anna, RESOLVE, item))
    book(world)

    assert network_days(world, cardholder) == {
        (date(2026, 2, 3), "VISA"): (700, 700),
        (date(2026, 2, 4), "VISA"): (40, 40),
        (datetime.now(UTC).date(), "VISA"): (-40, -40),
    }


def of_visa(day: date) -> dict[str, str]:
    return {"network": "VISA", "settlementDate": str(day)}


def network_days(world: World, cardholder: Cardholder) -> dict[tuple[date, str], tuple[int, int]]:
    """Return presentments and net of each day and network of the platform."""
    rows = world.rows(
        "SELECT settlement_date, network, presentments, net FROM finance.network_days"
        " WHERE platform_id = %s",
        cardholder.owner.platform_id,
    )
    return {(day, network): (presented, net) for day, network, presented, net in rows}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE adjustments SET amount = amount + 1 WHERE id = '{}'",
        "UPDATE adjustments SET suspense_id = gen_random_uuid() WHERE id = '{}'",
        "UPDATE adjustments SET booked_at = booked_at - interval '1 second' WHERE id = '{}'",
        "UPDATE suspense_items SET resolved_by = gen_random_uuid() WHERE resolved_by = '{}'",
    ],
)
def test_a_resolution_that_does_not_match_its_item_is_found(
    world: World, office: Office, change: str
) -> None:
    _, _, item = suspended(world)
    key = call(office.anna, RESOLVE, item)
    call(office.ben, APPROVE, key)
    assert book(world) == ["APPLIED"]
    assert world.verify().holds

    with psycopg.connect(world.url) as connection:
        connection.execute("ALTER TABLE adjustments DISABLE TRIGGER history")
        connection.execute("ALTER TABLE suspense_items DISABLE TRIGGER resolved_once")
        connection.execute(change.format(key).encode())
        report = verify_in_transaction(connection, lambda _done, _total: None)
        connection.rollback()

    assert any(f"Adjustment {key}: state is BOOKED" in problem for problem in report.differences)


@pytest.mark.parametrize("together", [True, False])
def test_a_repetition_of_what_people_have_resolved_is_not_booked_again(
    world: World, office: Office, *, together: bool
) -> None:
    cardholder, event, item = suspended(world)
    used = event | {"reference": f"{event['reference']}-used"}
    sent = [used, used | {"amount": 800}]
    world.process(world.engine(), [(cardholder, each) for each in sent])
    [(of_used_key,)] = world.rows(
        "SELECT id FROM suspense_items WHERE reference = %s", used["reference"]
    )
    for each in (item, of_used_key):
        call(office.ben, APPROVE, call(office.anna, RESOLVE, each))
    repetitions = [event | {"final": "perhaps"}, used | {"amount": 800}]
    if together:
        enqueue(world)
    else:
        book(world)
    world.accept([(cardholder, each) for each in repetitions], Lane.BULK)

    world.drain(world.engine(), Lane.BULK)

    assert len(sides(world, item)) == len(sides(world, of_used_key)) == 2
    owner = cardholder.owner.customer_id
    assert world.rows("SELECT count(*) FROM suspense_items WHERE customer_id = %s", owner) == [(2,)]
    listed = world.rows(
        "SELECT u.message_id FROM finance.unapplied u JOIN rejections r ON r.id = u.message_id"
        " WHERE r.customer_id = %s",
        owner,
    )
    assert listed == []
    report = world.verify()
    assert report.holds, report.differences
    [applied] = world.process(world.engine(), [(cardholder, event)])
    assert applied.outcome == "APPLIED"
    world.check_books(cardholder)
