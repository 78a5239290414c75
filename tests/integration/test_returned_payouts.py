"""Payouts that a bank returns after their customer was deleted: in suspense until resolved."""

from collections.abc import Iterator

import pytest

from cardledger.ledger.audit import suspense as audit
from cardledger.ledger.core.payments.conversion import Rate
from cardledger.ledger.storage.ids import new_id
from tests.databases import OwnRoles
from tests.integration.test_adjustments import APPROVE, book, row
from tests.integration.test_adjustments_joined import RESOLVE, sides
from tests.payments import DELAY, Conversion, Desk
from tests.people_of_finance import Office, call, open_office
from tests.world import World, open_world


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles) -> Iterator[Office]:
    with open_office(own_roles) as made:
        yield made


@pytest.fixture(scope="module")
def world(office: Office) -> Iterator[World]:
    with open_world(office.owner, office.app) as made:
        yield made


def test_what_was_returned_to_a_deleted_customer_leaves_the_ledger_once_two_people_agree(
    world: World, office: Office
) -> None:
    desk, payer = Desk(world), world.cardholder(world.platform(), 1_000)
    world.another_account(payer, currency="EUR")
    payment = desk.out(
        payer,
        1_000,
        "DE89370400440532013005",
        conversion=Conversion("EUR", Rate(92, 100)),
        fee_amount=50,
        quote_id=payer.card_id,
    )
    desk.platform_account(payer.owner.platform_id)
    desk.drain()
    world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s", [payer.account_id]
    )
    desk.pass_time(DELAY)
    [(item,)] = world.rows(
        "SELECT id FROM suspense_items WHERE customer_id = %s", payer.owner.customer_id
    )
    stands = desk.totals(payer.owner.platform_id)
    held = world.verify()

    key = call(office.anna, RESOLVE, item)
    call(office.ben, APPROVE, key)

    assert book(world) == ["APPLIED"]
    assert desk.stored(payment).refund_status == "FAILED"
    assert row(world, key)["amount"] == 874
    assert sides(world, item) == [
        ("OUTBOUND_CLEARING", "SUSPENSE", 874),
        ("SUSPENSE", "SANDBOX_FUNDING", 874),
    ]
    ended = desk.totals(payer.owner.platform_id)
    assert (stands["SUSPENSE", "EUR"], stands.get(("SANDBOX_FUNDING", "EUR"), 0)) == (874, 0)
    assert ("SUSPENSE", "EUR") not in ended
    assert ended["SANDBOX_FUNDING", "EUR"] == 874
    assert held.holds, held.differences
    report = world.verify()
    assert report.holds, report.differences


def test_verify_names_a_return_in_suspense_that_no_payout_explains(world: World) -> None:
    desk, payer = Desk(world), world.cardholder(world.platform(), 1_000)
    payment = desk.out(payer, 1_000, "1234567005", quote_id=payer.card_id)
    desk.drain()
    world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s", [payer.account_id]
    )
    desk.pass_time(DELAY)
    [(item,)] = world.rows(
        "SELECT id FROM suspense_items WHERE customer_id = %s", payer.owner.customer_id
    )
    rename = "UPDATE suspense_items SET reference = %s WHERE id = %s"
    with world.connection.transaction(force_rollback=True):
        world.connection.execute("ALTER TABLE suspense_items DISABLE TRIGGER resolved_once")
        world.connection.execute(rename, [f"{new_id()}/return", item])

        found = list(audit.differences(world.connection))

    assert found == [f"Item of suspense {item}: no payout was returned whose account is closed"]
    assert desk.stored(payment).refund_status == "FAILED"


def test_comments_of_suspense_are_true_for_returns(world: World) -> None:
    """Columns that hold something else for a return, or nothing, say so."""
    found = {
        (table, column): text
        for table, column, text in world.rows(
            "SELECT c.relnamespace::regnamespace::text || '.' || c.relname, a.attname,"
            " d.description"
            " FROM pg_description d JOIN pg_class c ON c.oid = d.objoid"
            " LEFT JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.objoid, d.objsubid)"
            " AND a.attnum > 0"
            " WHERE d.classoid = 'pg_class'::regclass AND c.relname IN ('suspense',"
            " 'suspense_items') AND c.relkind IN ('r', 'v')"
        )
    }
    of_returns = {
        key
        for key, text in found.items()
        if any(word in text for word in ("return", "clos", "CLOS"))
    }

    columns = {None, "card_id", "cause", "currency", "customer_id", "reason", "resolved_at", "type"}
    for view in {table for table, _ in found if table.endswith((".suspense", ".suspense_items"))}:
        if not view.endswith("_api.suspense_items"):
            named = {column for table, column in of_returns if table == view}
            assert columns <= named, (view, columns - named)
    assert ("finance.suspense", "cause") in found


@pytest.mark.parametrize("is_resolved", [False, True])
def test_verify_names_a_return_that_is_held_twice(world: World, *, is_resolved: bool) -> None:
    desk, payer = Desk(world), world.cardholder(world.platform(), 1_000)
    payment = desk.out(payer, 1_000, "1234567005", quote_id=payer.card_id)
    desk.drain()
    world.connection.execute(
        "UPDATE internal_accounts SET status = 'CLOSED' WHERE id = %s", [payer.account_id]
    )
    desk.pass_time(DELAY)
    [(item,)] = world.rows(
        "SELECT id FROM suspense_items WHERE customer_id = %s", payer.owner.customer_id
    )
    second = new_id()
    with world.connection.transaction(force_rollback=True):
        held = list(audit.differences(world.connection))
        world.connection.execute("SET LOCAL session_replication_role = replica")
        world.connection.execute(_AGAIN, [second, is_resolved, is_resolved, second, item])

        found = set(audit.differences(world.connection))

    assert not held
    twice = f"{payment}/return stands or stood in suspense 2 times instead of once"
    assert f"Item of suspense {item}: {twice}" in found
    assert f"Item of suspense {second}: no payout was returned whose account is closed" in found


_AGAIN = """
    INSERT INTO suspense_items SELECT (jsonb_populate_record(i, jsonb_build_object('id', %s::uuid,
        'resolved_at', CASE WHEN %s THEN now() END, 'resolved_by', CASE WHEN %s THEN %s::uuid END
    ))).* FROM suspense_items i WHERE i.id = %s
"""
