"""Purchases in another currency than the card's: what the network says about them is kept."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.status import Status
from cardledger.ledger.projections import history
from cardledger.ledger.projections.card_transaction import RollUp, wire
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason
from tests.databases import as_role
from tests.integration.test_lives import Life
from tests.world import World, open_world


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made
        report = made.verify()  # Everything that was played here, from zero.
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def euros(amount: int, rate: str) -> dict[str, Any]:
    return {"merchantAmount": {"amount": amount, "currency": "EUR"}, "rate": rate}


def shown(roll_up: RollUp | None) -> Any:  # noqa: ANN401 - JSON
    assert roll_up is not None
    found = wire(roll_up).get("conversion")
    if found is None:
        return None
    assert found["merchantAmount"]["currency"]["code"] == "EUR"
    assert found["billingAmount"]["currency"]["code"] == "USD"
    return found["merchantAmount"]["amount"], found["billingAmount"]["amount"], found["rate"]


def test_the_clearing_may_bring_another_rate_and_each_event_keeps_its_own(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 50_000)

    asked = life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    cleared = life.submit("CLEARING", 10_910, conversion=euros(10_000, "1.091000"))
    refunded = life.submit("RETURN", 1_000)

    assert shown(asked.roll_up) == (10_000, 10_873, "1.0873")
    assert shown(cleared.roll_up) == (10_000, 10_910, "1.091")
    assert shown(refunded.roll_up) == (10_000, 10_910, "1.091")
    assert cleared.roll_up is not None
    assert cleared.roll_up.state.status is Status.SETTLED
    assert life.balance == 50_000 - 10_910 + 1_000
    key = cleared.roll_up.identity.id
    kept = world.rows(
        "SELECT sequence, merchant_amount, merchant_currency, billing_amount, rate"
        " FROM conversion_details WHERE card_transaction_id = %s ORDER BY sequence",
        key,
    )
    assert kept == [
        (1, 10_000, "EUR", 10_873, Decimal("1.0873")),
        (3, 10_000, "EUR", 10_910, Decimal("1.091")),
    ]


def test_a_version_of_the_past_has_the_conversion_of_its_time(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)
    asked = life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    life.submit("CLEARING", 10_910, conversion=euros(10_000, "1.091"))
    assert asked.roll_up is not None
    key = asked.roll_up.identity.id

    with world.database.begin() as outer:
        versions = history.at(driver(outer), [(key, 2), (key, 4)])

    assert shown(versions[key, 2]) == (10_000, 10_873, "1.0873")
    assert shown(versions[key, 4]) == (10_000, 10_910, "1.091")


def test_a_declined_purchase_and_a_parked_reversal_keep_their_conversions(
    world: World, platform: Id
) -> None:
    life = Life(world, platform, 100)

    declined = life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    parked = life.submit("AUTHORIZATION_REVERSAL", 54, "T2", conversion=euros(50, "1.08"))
    asked = life.submit("AUTHORIZATION", 100, "T2", conversion=euros(92, "1.087"))

    assert declined.outcome is OutcomeType.DECLINED
    assert shown(declined.roll_up) == (10_000, 10_873, "1.0873")
    assert (parked.outcome, parked.roll_up) == (OutcomeType.PARKED, None)
    assert shown(asked.roll_up) == (50, 54, "1.08")


def test_a_purchase_without_a_conversion_has_no_row(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)

    asked = life.submit("AUTHORIZATION", 100)

    assert shown(asked.roll_up) is None
    assert life.column("merchant_currency") is None


@pytest.mark.parametrize(
    "conversion",
    [
        {},
        {"rate": "1.1"},
        euros(0, "1.1"),
        euros(-1, "1.1"),
        euros(2**63, "1.1"),
        euros(100, "0"),
        euros(100, "0.000"),
        euros(100, "-1.1"),
        euros(100, "1e3"),
        euros(100, "NaN"),
        euros(100, "1.0000000000001"),
        {**euros(100, "1.1"), "rate": 1.1},
        {"merchantAmount": {"amount": 100, "currency": "ZZZ"}, "rate": "1.1"},
        {"merchantAmount": {"amount": 100, "currency": "eur"}, "rate": "1.1"},
        {**euros(100, "1.1"), "surplus": 1},
        "1.1",
        [],
    ],
)
def test_a_malformed_conversion_rejects_the_event(
    world: World, platform: Id, conversion: object
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    event = world.clearing(cardholder, "T1", 100, conversion=conversion)

    [decided] = world.process(world.engine(), [(cardholder, event)])

    assert (decided.outcome, decided.reason) == (OutcomeType.REJECTED, RejectionReason.MALFORMED)
    assert "conversion" in str(decided.detail)
    world.check_books(cardholder)


def test_an_expiry_has_no_amount_and_its_conversion_is_not_read(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)
    life.submit("AUTHORIZATION", 100)

    expired = life.submit("AUTHORIZATION_EXPIRY", conversion=euros(1, "1"))

    assert shown(expired.roll_up) is None


def test_the_largest_amounts_and_the_smallest_rate_are_kept(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)

    asked = life.submit("AUTHORIZATION", 1, conversion=euros(MAX_AMOUNT, "0.000000000001"))

    assert shown(asked.roll_up) == (MAX_AMOUNT, 1, "0.000000000001")


def test_finance_finds_the_conversion_of_each_entry(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)
    asked = life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    life.submit("CLEARING", 10_910, conversion=euros(10_000, "1.091"))
    assert asked.roll_up is not None

    with psycopg.connect(as_role(world.app_url, Role.FINANCE)) as finance:
        rows = finance.execute(
            "SELECT j.event, j.amount_decimal, c.merchant_amount_decimal, c.merchant_currency,"
            " c.rate, c.is_first FROM finance.journal j JOIN finance.conversions c"
            " ON c.card_transaction_id = j.subject_id AND c.sequence = j.sequence"
            " WHERE j.subject_id = %s ORDER BY j.sequence",
            [asked.roll_up.identity.id],
        ).fetchall()

    hundred, first, second = Decimal(100), Decimal("1.0873"), Decimal("1.091")
    assert rows == [
        ("PULLED", Decimal("108.73"), hundred, "EUR", first, False),
        ("PULLED", Decimal("0.37"), hundred, "EUR", second, True),
        ("CLEARED", Decimal("109.10"), hundred, "EUR", second, False),
    ]


def test_the_audit_finds_a_changed_conversion(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)
    life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    change = "UPDATE card_transactions SET conversion_rate = %s WHERE account_id = %s"

    world.connection.execute(change.encode(), ["1.08", life.cardholder.account_id])
    report = world.verify()
    world.connection.execute(change.encode(), ["1.0873", life.cardholder.account_id])

    assert not report.holds
    assert any("conversion_rate" in difference for difference in report.differences)


def test_outcomes_by_sql_have_the_conversion(world: World, platform: Id) -> None:
    life = Life(world, platform, 50_000)
    asked = life.submit("AUTHORIZATION", 10_873, conversion=euros(10_000, "1.0873"))
    assert asked.roll_up is not None

    [(resource,)] = world.rows("SELECT card_transaction_json(%s)", asked.roll_up.identity.id)

    assert resource["conversion"] == wire(asked.roll_up)["conversion"]
