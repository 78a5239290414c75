"""Write-offs in the database: the engine applies them, and all books agree."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.projections import card_transaction, history
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import written_off
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.schema.wire.outcomes import OutcomeType
from tests.databases import OwnRoles, as_role
from tests.integration.test_adjustments import APPROVE, enqueue
from tests.people_of_finance import Office, call, open_office
from tests.world import Cardholder, World, open_world, outcomes_of


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles) -> Iterator[Office]:
    with open_office(own_roles) as made:
        yield made


@pytest.fixture(scope="module")
def world(office: Office) -> Iterator[World]:
    with open_world(office.owner, office.app) as made:
        yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture(scope="module")
def engine(world: World) -> Engine:
    return world.engine()


@pytest.fixture
def cardholder(world: World, platform: Id) -> Cardholder:
    return world.cardholder(platform, 0)


def write_off(
    world: World, office: Office, cardholder: Cardholder, token: str, amount: int
) -> Decided:
    """Have two people write off `amount` of what a card transaction owes."""
    [(key,)] = world.rows(
        "SELECT id FROM card_transactions WHERE customer_id = %s AND issuer_transaction_token = %s",
        cardholder.owner.customer_id,
        token,
    )
    prepared = call(
        office.anna, "SELECT finance.prepare_write_off(%s, %s, 'bankrupt')", key, amount
    )
    call(office.ben, APPROVE, prepared)
    enqueue(world)
    [decided] = world.drain(world.engine(), Lane.BULK)
    return decided


def written_off_by(decided: Decided) -> RollUp:
    """Return the card transaction after the write-off."""
    assert decided.outcome == OutcomeType.APPLIED
    assert decided.roll_up is not None
    return decided.roll_up


def unpaid(world: World, engine: Engine, cardholder: Cardholder, **amounts: int) -> None:
    """Clear each of `amounts` without funds, by its token."""
    events = [
        (cardholder, world.clearing(cardholder, token, amount, final=True))
        for token, amount in amounts.items()
    ]
    assert outcomes_of(world.process(engine, events)) == ["APPLIED"] * len(amounts)


def send(world: World, engine: Engine, cardholder: Cardholder, *events: Mapping[str, Any]) -> None:
    decided = world.process(engine, [(cardholder, event) for event in events])
    assert outcomes_of(decided) == ["APPLIED"] * len(events)


def balances(world: World, cardholder: Cardholder) -> dict[str, int]:
    """Return the balances of system accounts that are due to `cardholder`, debits less credits."""
    rows = world.rows(
        "SELECT s.kind, sum(CASE WHEN e.debit_account_id = s.id THEN e.amount"
        " ELSE -e.amount END)::bigint FROM entries e JOIN system_accounts s"
        " ON s.id IN (e.debit_account_id, e.credit_account_id)"
        " WHERE e.customer_id = %s GROUP BY s.kind",
        cardholder.owner.customer_id,
    )
    return {kind: balance for kind, balance in rows if balance}


def test_an_amount_is_written_off_and_not_collected_any_more(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100)

    after = written_off_by(write_off(world, office, cardholder, "T1", 60))

    assert (after.state.owed, after.state.open_pull, after.state.written_off) == (40, 40, 60)
    assert card_transaction.wire(after)["writtenOffAmount"]["amount"] == 60
    assert balances(world, cardholder) == {
        "NETWORK_SETTLEMENT": -100, "OPERATOR_LOSS": 60, "RECEIVABLE": 40,
    }  # fmt: skip
    world.check_books(cardholder)

    send(world, engine, cardholder, world.deposit(cardholder, 100))

    assert world.account(cardholder)["balance"] == 60
    assert world.account(cardholder)["owed"] == 0
    assert world.account(cardholder)["transactions"]["T1"]["status"] == "SETTLED"
    world.check_books(cardholder)


def test_what_comes_back_makes_good_the_loss(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100, T2=100)
    write_off(world, office, cardholder, "T1", 100)
    write_off(world, office, cardholder, "T2", 100)

    send(
        world,
        engine,
        cardholder,
        world.event("CLEARING_REVERSAL", cardholder, "T1", 100),
        world.event("RETURN", cardholder, "T2", 120),
    )

    assert balances(world, cardholder) == {"NETWORK_SETTLEMENT": 20}
    assert world.balance(cardholder) == 20
    world.check_books(cardholder)


def test_later_debts_are_paid_when_an_older_one_is_written_off(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100, T2=30)
    send(world, engine, cardholder, world.deposit(cardholder, 50))
    assert world.account(cardholder)["owed"] == 130  # The oldest first, and none is skipped.

    write_off(world, office, cardholder, "T1", 100)

    account = world.account(cardholder)
    assert (account["balance"], account["owed"]) == (20, 0)
    world.check_books(cardholder)


def test_a_kept_refund_is_written_off_and_comes_back_with_its_clearing(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    send(
        world,
        engine,
        cardholder,
        world.deposit(cardholder, 100),
        world.clearing(cardholder, "T1", 100, final=True),
        world.event("RETURN", cardholder, "T1", 100),
        world.clearing(cardholder, "T2", 100, final=True),
        world.event("RETURN_REVERSAL", cardholder, "T1", 100),
    )

    after = written_off_by(write_off(world, office, cardholder, "T1", 100))
    world.check_books(cardholder)
    send(world, engine, cardholder, world.event("CLEARING_REVERSAL", cardholder, "T1", 100))

    assert after.state.debits_written_off == 100
    assert "OPERATOR_LOSS" not in balances(world, cardholder)
    assert world.balance(cardholder) == 0
    world.check_books(cardholder)


@settings(max_examples=30)
@given(st.data())
def test_after_any_story_with_write_offs_all_books_are_those_of_the_model(
    world: World, office: Office, engine: Engine, platform: Id, data: st.DataObject
) -> None:
    cardholder, model = world.cardholder(platform, 0), Model()

    for event in data.draw(written_off(cardholder.scene, max_size=8)):
        expected = model.submit(event)
        if event["type"] != "WRITE_OFF":
            assert outcomes_of(world.process(engine, [(cardholder, event)])) == [expected]
        elif expected == "APPLIED":
            token, amount = event["issuerTransactionToken"], event["amount"]
            written_off_by(write_off(world, office, cardholder, token, amount))

    world.check_books(cardholder, model)
    [(lost,)] = world.rows(
        "SELECT sum(written_off)::bigint FROM card_transactions WHERE account_id = %s",
        cardholder.account_id,
    )
    assert lost == model.written_off()


def test_more_than_is_owed_changes_nothing(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100)

    decided = write_off(world, office, cardholder, "T1", 101)

    assert decided.outcome == OutcomeType.DECLINED
    assert world.rows("SELECT refusal FROM adjustments WHERE state = 'REFUSED'") == [
        ("The card transaction owes 1.00 USD now; at most that can be written off.",)
    ]
    assert world.account(cardholder)["owed"] == 100
    world.check_books(cardholder)


def test_finance_and_history_have_what_is_written_off(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100)
    after = written_off_by(write_off(world, office, cardholder, "T1", 60))
    key = after.identity.id

    with psycopg.connect(as_role(world.app_url, Role.FINANCE)) as finance:
        [row] = finance.execute(
            "SELECT held, owed, written_off FROM finance.card_transactions"
            " WHERE card_transaction_id = %s", [key],
        )  # fmt: skip
        [due] = finance.execute(
            "SELECT owed, written_off FROM finance.receivables WHERE card_transaction_id = %s",
            [key],
        )
        [known] = finance.execute(
            "SELECT owed FROM finance.receivables(NULL, NULL) WHERE card_transaction_id = %s", [key]
        )
        kinds = finance.execute(
            "SELECT event FROM finance.events WHERE card_transaction_id = %s ORDER BY sequence",
            [key],
        ).fetchall()
        [loss] = finance.execute(
            "SELECT sum(net) FROM finance.trial_balance(NULL, NULL) WHERE account = 'OPERATOR_LOSS'"
        )
        [sub_ledger] = finance.execute("SELECT sum(written_off) FROM finance.card_transactions")
    assert (row, due, known) == ((0, 40, 60), (40, 60), (40,))
    assert [kind for (kind,) in kinds] == ["PULL_OPENED", "CLEARED", "WRITTEN_OFF"]
    assert loss == sub_ledger
    with psycopg.connect(world.worker_url) as connection:
        folded = history.at(connection, [(key, 2), (key, 3)])
    assert folded[key, 2].state.written_off == 0
    assert folded[key, 3] == after


def test_the_outcome_by_sql_is_the_card_transaction_of_the_api(
    world: World, office: Office, engine: Engine, cardholder: Cardholder
) -> None:
    unpaid(world, engine, cardholder, T1=100)
    after = written_off_by(write_off(world, office, cardholder, "T1", 60))

    [(resource,)] = world.rows("SELECT card_transaction_json(%s)", after.identity.id)

    assert resource == card_transaction.wire(after)


def test_the_largest_hold_beside_a_loss_of_the_same_card_transaction_can_be_read(
    world: World, office: Office, engine: Engine, platform: Id
) -> None:
    cardholder = world.cardholder(platform, 0)
    saved = world.another_account(cardholder)
    given = [
        world.event("RETURN", cardholder, "T1", 100),
        world.transfer(cardholder, saved, 100),
        world.event("RETURN_REVERSAL", cardholder, "T1", 100),
    ]
    world.process(engine, [(cardholder, event) for event in given])
    after = written_off_by(write_off(world, office, cardholder, "T1", 100))
    largest = [
        world.deposit(cardholder, MAX_AMOUNT),
        world.authorization(cardholder, "T1", MAX_AMOUNT),
    ]

    world.process(engine, [(cardholder, event) for event in largest])

    assert world.account(cardholder)["held"] == MAX_AMOUNT
    assert world.verify().holds
    key = after.identity.id
    with psycopg.connect(as_role(world.app_url, Role.FINANCE)) as finance:
        row = finance.execute(
            "SELECT held, owed FROM finance.card_transactions WHERE card_transaction_id = %s", [key]
        ).fetchone()
    [(resource,)] = world.rows("SELECT card_transaction_json(%s)", key)
    assert row == (MAX_AMOUNT, 0)
    assert resource["status"] == "AUTHORIZED"


@pytest.mark.parametrize(
    ("lost", "of_debits"), [(-1, 0), (10, -1), (10, 11)], ids=["negative", "part", "more"]
)
def test_the_database_refuses_an_impossible_write_off(
    world: World, engine: Engine, cardholder: Cardholder, lost: int, of_debits: int
) -> None:
    unpaid(world, engine, cardholder, T1=100)

    with pytest.raises(psycopg.errors.CheckViolation, match="written_off"):
        world.connection.execute(
            "UPDATE card_transactions SET written_off = %s, debits_written_off = %s"
            " WHERE customer_id = %s",
            [lost, of_debits, cardholder.owner.customer_id],
        )


@pytest.mark.parametrize("change", ["written_off = written_off - 1", "written_off = 0"])
def test_the_audit_finds_a_changed_write_off(
    world: World, office: Office, engine: Engine, cardholder: Cardholder, change: str
) -> None:
    unpaid(world, engine, cardholder, T1=100)
    after = written_off_by(write_off(world, office, cardholder, "T1", 60))
    statement = f"UPDATE card_transactions SET {change} WHERE id = %s"
    world.connection.execute(statement.encode(), [after.identity.id])

    report = world.verify()

    restored = "UPDATE card_transactions SET written_off = 60 WHERE id = %s"
    world.connection.execute(restored, [after.identity.id])
    found = "\n".join(report.differences)
    assert f"CardTransaction:{after.identity.id}: stored written_off" in found
    assert "(OPERATOR_LOSS USD): its entries give" in found
    assert "(RECEIVABLE USD): its entries give" in found
    assert world.verify().holds
