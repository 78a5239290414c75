"""Dates of entries, settlement details and calendars: what the engine stores, what is refused."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.entries import ChartAccount
from cardledger.schema.wire.common import CURRENCIES
from tests.command_process import run_command
from tests.system.support import environment
from tests.world import Cardholder, World, open_world, outcomes_of

TODAY: Final = datetime.now(UTC).date()
FIRST_OPEN_DAY: Final = TODAY - timedelta(days=20)
FAR: Final = "2039-01-01"
ARN: Final = "74537606033123456789012"


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        made.connection.execute("UPDATE books SET first_open_day = %s", [FIRST_OPEN_DAY])
        yield made


@pytest.fixture
def cardholder(world: World) -> Cardholder:
    return world.cardholder(world.platform(), 50_000)


def days_ago(days: int) -> date:
    return TODAY - timedelta(days=days)


def noon(day: date) -> str:
    return f"{day}T12:00:00.000000Z"


def settlement(day: date | str, **details: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"network": "VISA", "settlementDate": str(day), **details}


def process(world: World, cardholder: Cardholder, *events: Mapping[str, Any]) -> list[str]:
    return outcomes_of(world.process(world.engine(), [(cardholder, event) for event in events]))


def posted(world: World, event: Mapping[str, Any]) -> set[date]:
    """Return on which days the entries of `event` are posted."""
    return {
        day
        for (day,) in world.rows(
            "SELECT n.posted_on FROM outcomes o JOIN card_transaction_events e"
            " ON e.message_id = o.message_id JOIN entries n"
            " ON n.subject_id = e.card_transaction_id AND n.sequence = e.sequence"
            " WHERE o.reference = %s",
            event["reference"],
        )
    }


def details(world: World, event: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return world.rows(
        "SELECT s.* FROM settlement_details s JOIN outcomes o USING (message_id)"
        " WHERE o.reference = %s",
        event["reference"],
    )


# --- posting days ---------------------------------------------------------------------------------


def test_an_entry_is_posted_on_the_day_of_its_movement(
    world: World, cardholder: Cardholder
) -> None:
    now = world.authorization(cardholder, "T1", 1_000)
    before = world.clearing(cardholder, "T1", 1_500, occurredAt=noon(days_ago(3)))

    assert process(world, cardholder, now, before) == ["APPLIED", "APPLIED"]

    assert posted(world, now) <= {TODAY, TODAY + timedelta(days=1)}
    assert posted(world, before) == {days_ago(3)}
    times = world.rows(
        "SELECT DISTINCT n.occurred_at FROM entries n JOIN card_transactions t"
        " ON t.id = n.subject_id WHERE t.card_id = %s AND n.sequence > 2",
        cardholder.card_id,
    )
    assert times == [(datetime.fromisoformat(noon(days_ago(3))),)]


@pytest.mark.parametrize(
    ("fields", "day"),
    [
        ({"settlement": settlement(days_ago(2))}, days_ago(2)),
        (
            {"settlement": settlement(days_ago(2)), "occurredAt": "2019-06-07T08:00:00Z"},
            days_ago(2),
        ),
        ({"settlement": settlement(FIRST_OPEN_DAY - timedelta(days=1))}, FIRST_OPEN_DAY),
        ({"occurredAt": "2019-06-07T08:00:00Z"}, FIRST_OPEN_DAY),
        ({"occurredAt": "0001-01-01T00:00:00Z"}, FIRST_OPEN_DAY),
    ],
)
def test_a_day_that_is_not_open_any_more_is_posted_on_the_first_open_day(
    world: World, cardholder: Cardholder, fields: dict[str, Any], day: date
) -> None:
    event = world.clearing(cardholder, "T1", 500, **fields)

    assert process(world, cardholder, event) == ["APPLIED"]

    assert posted(world, event) == {day}


@pytest.mark.parametrize(
    "fields", [{"occurredAt": f"{FAR}T00:00:00Z"}, {"settlement": settlement(FAR)}]
)
def test_the_future_is_recorded_and_posted_on_the_day_of_recording(
    world: World, cardholder: Cardholder, fields: dict[str, Any]
) -> None:
    event = world.clearing(cardholder, "T1", 500, **fields)

    assert process(world, cardholder, event) == ["APPLIED"]

    [(recorded,)] = world.rows(
        "SELECT recorded_at FROM outcomes WHERE reference = %s", event["reference"]
    )
    assert posted(world, event) == {recorded.astimezone(UTC).date()}


def test_all_that_a_message_causes_is_posted_on_its_day(
    world: World, cardholder: Cardholder
) -> None:
    """A refund frees money that pays the debt of another purchase."""
    debt = world.clearing(cardholder, "T1", 60_000)
    refund = world.event(
        "RETURN", cardholder, "T2", 60_000, settlement=settlement(days_ago(4), cycle="2")
    )

    assert process(world, cardholder, debt, refund) == ["APPLIED", "APPLIED"]

    [(tokens,)] = world.rows(
        "SELECT array_agg(DISTINCT t.issuer_transaction_token ORDER BY t.issuer_transaction_token)"
        " FROM outcomes o JOIN card_transaction_events e USING (message_id)"
        " JOIN card_transactions t ON t.id = e.card_transaction_id WHERE o.reference = %s",
        refund["reference"],
    )
    assert tokens == ["T1", "T2"]
    assert posted(world, refund) == {days_ago(4)}
    assert len(details(world, refund)) == 1


def test_a_parked_message_keeps_its_dates(world: World, cardholder: Cardholder) -> None:
    reversal = world.event(
        "CLEARING_REVERSAL", cardholder, "T1", 300, settlement=settlement(days_ago(5))
    )
    clearing = world.clearing(cardholder, "T1", 900, settlement=settlement(days_ago(1)))

    assert process(world, cardholder, reversal, clearing) == ["PARKED", "APPLIED"]

    assert posted(world, reversal) == {days_ago(5)}
    assert posted(world, clearing) == {days_ago(1)}
    assert [len(details(world, each)) for each in (reversal, clearing)] == [1, 1]


def test_a_deposit_and_a_transfer_have_dates(world: World, cardholder: Cardholder) -> None:
    savings = world.another_account(cardholder)
    deposit = world.deposit(cardholder, 700) | {
        "occurredAt": noon(days_ago(6)),
        "externalReference": "MT103 4711",
    }
    transfer = world.transfer(cardholder, savings, 100)

    assert process(world, cardholder, deposit, transfer) == ["APPLIED", "APPLIED"]

    stored = world.rows(
        "SELECT d.external_reference, d.occurred_at, e.occurred_at, e.posted_on FROM deposits d"
        " JOIN entries e ON e.subject_id = d.id WHERE d.account_id = %s AND d.amount = 700",
        cardholder.account_id,
    )
    moment = datetime.fromisoformat(noon(days_ago(6)))
    assert stored == [("MT103 4711", moment, moment, days_ago(6))]
    [(lines, days)] = world.rows(
        "SELECT count(*), count(DISTINCT posted_on) FROM entries WHERE subject_id = %s",
        transfer["transferId"],
    )
    assert (lines, days) == (2, 1)


# --- settlement details ---------------------------------------------------------------------------


def test_settlement_details_are_kept_as_the_network_sent_them(
    world: World, cardholder: Cardholder
) -> None:
    event = world.clearing(
        cardholder,
        "T1",
        1_500,
        settlement=settlement(
            days_ago(1),
            institutionId="400123",
            cycle="1",
            acquirerReference=ARN,
            networkReference="386033501234567",
            merchantAmount={"amount": 1_386, "currency": "EUR"},
            interchange="-0.231501",
            feeProgram="CPS/Retail",
        ),
    )

    assert process(world, cardholder, event, event) == ["APPLIED", "DUPLICATE"]

    [row] = details(world, event)
    assert row[1:3] == (1, cardholder.owner.customer_id)
    assert row[5:15] == (
        "VISA",
        "400123",
        days_ago(1),
        "1",
        ARN,
        "386033501234567",
        1_386,
        "EUR",
        Decimal("-0.231501"),
        "CPS/Retail",
    )


def test_an_event_without_settlement_details_leaves_none(
    world: World, cardholder: Cardholder
) -> None:
    before = world.count("settlement_details")
    asked = world.event(
        "FINANCIAL_AUTHORIZATION", cardholder, "T2", 10**9, settlement=settlement(TODAY)
    )

    found = process(world, cardholder, world.clearing(cardholder, "T1", 5), asked)

    assert found == ["APPLIED", "DECLINED"], "a decline moves no money"
    assert world.count("settlement_details") == before


def test_an_approval_that_moves_money_has_settlement_details(
    world: World, cardholder: Cardholder
) -> None:
    event = world.event(
        "FINANCIAL_AUTHORIZATION", cardholder, "T1", 400, settlement=settlement(days_ago(1))
    )

    assert process(world, cardholder, event) == ["APPLIED"]

    assert len(details(world, event)) == 1
    assert posted(world, event) == {days_ago(1)}


def test_other_settlement_details_are_another_event(world: World, cardholder: Cardholder) -> None:
    event = world.clearing(cardholder, "T1", 5, settlement=settlement(days_ago(1)))
    other = event | {"settlement": settlement(days_ago(2))}

    [_, second] = world.process(world.engine(), [(cardholder, event), (cardholder, other)])

    assert second.reason == "KEY_REUSED"
    assert posted(world, event) == {days_ago(1)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"network": "VISA"},
        [],
        "VISA",
        settlement("tomorrow"),
        settlement(TODAY, acquirerReference="1" * 22),
        settlement(TODAY, interchange=0.5),
        settlement(TODAY, cycle="a\0b"),
    ],
)
def test_invalid_settlement_details_in_the_inbox_reject_the_message(
    world: World, cardholder: Cardholder, wrong: object
) -> None:
    """The row was not written by the client, which would have refused it."""
    event = world.clearing(cardholder, "T1", 5, settlement=wrong)
    world.insert_unchecked(cardholder, json.dumps(event), reference=event["reference"])

    [decided] = world.drain(world.engine())

    assert decided.reason == "MALFORMED"
    assert decided.detail is not None
    assert decided.detail.startswith("Malformed event: settlement: ")
    assert posted(world, event) == set()


# --- calendars ------------------------------------------------------------------------------------


def command(world: World, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = environment(DATABASE_URL=world.app_url)
    return run_command("calendar", *arguments, env=env, cwd=folder)


def test_a_running_engine_posts_by_a_new_calendar_at_once(
    world: World, cardholder: Cardholder, tmp_path: Path
) -> None:
    engine, tomorrow = world.engine(), TODAY + timedelta(days=1)
    details_of = settlement(tomorrow) | {"network": "MC"}
    events = [world.clearing(cardholder, f"T{n}", 5, settlement=details_of) for n in range(2)]
    world.process(engine, [(cardholder, world.clearing(cardholder, "T", 5))])
    weekday = f"{tomorrow:%a}".lower()

    added = command(world, tmp_path, "set", "MC", "--days", weekday, "--json")
    world.process(engine, [(cardholder, event) for event in events])

    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout) == {
        "name": "MC",
        "validFrom": str(FIRST_OPEN_DAY),
        "timeZone": "UTC",
        "cutOff": "00:00",
        "days": weekday,
        "holidays": [],
        "createdAt": json.loads(added.stdout)["createdAt"],
        "createdBy": DatabaseUrl(world.app_url).role,
    }
    assert [posted(world, event) for event in events] == [{tomorrow}] * 2
    report = world.verify()
    assert report.holds, report.differences


def test_a_calendar_that_is_in_use_changes_after_today(
    world: World, cardholder: Cardholder, tmp_path: Path
) -> None:
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    (tmp_path / "days").write_text("2027-12-25\n2026-12-25\n")
    event = world.clearing(cardholder, "T1", 5, settlement=settlement(TODAY) | {"network": "AMEX"})
    process(world, cardholder, event)
    zone = ("set", "AMEX", "--time-zone", "America/New_York", "--cut-off", "17:00")

    refused = command(world, tmp_path, *zone, "--valid-from", str(TODAY))
    added = command(world, tmp_path, *zone, "--days", "mon-fri", "--holidays", "days")
    again = command(world, tmp_path, *zone)
    shown = command(world, tmp_path, "show", "AMEX")

    assert refused.returncode == 2
    assert refused.stderr.strip() == (
        "cardledger: calendar AMEX has been used without one: a change must be valid from"
        f" {tomorrow} or later, so that it moves nothing that is posted"
    )
    assert added.stdout == (
        f"AMEX  from {tomorrow}  America/New_York  cut-off 17:00  mon-fri  2 holidays"
        f"  by {DatabaseUrl(world.app_url).role}\n"
    )
    assert again.returncode == 2
    assert "a version is never changed; use another --valid-from" in again.stderr
    assert shown.stdout.splitlines()[1:] == ["  holiday 2026-12-25 Fri", "  holiday 2027-12-25 Sat"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("X", "--time-zone", "Mars/Base"), "--time-zone: 'Mars/Base' is not a time zone"),
        (("X", "--days", ""), "--days: '' does not name days of the week"),
        (("X", "--holidays", "none.txt"), "none.txt cannot be read"),
        (("x",), "'x' is not the name of a network; write it in capitals"),
        (("X", "--valid-from", "soon"), "--valid-from: 'soon' is not a date"),
    ],
)
def test_a_calendar_that_cannot_be_is_refused(
    world: World, tmp_path: Path, options: tuple[str, ...], problem: str
) -> None:
    refused = command(world, tmp_path, "set", *options)

    assert refused.returncode == 2
    assert problem in refused.stderr


def test_who_added_a_version_is_written_by_the_database(world: World) -> None:
    insert = "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, {}) VALUES {}"
    with psycopg.connect(world.app_url, autocommit=True) as login:
        for column, value in (("created_by", "'another'"), ("created_at", "'2020-01-01'")):
            values = f"('Z', '2026-01-01', 'UTC', '00:00', '{{1}}', {value})"
            with pytest.raises(errors.InsufficientPrivilege):
                login.execute(insert.format(column, values).encode())
        with pytest.raises(errors.InsufficientPrivilege):
            login.execute("UPDATE calendars SET cut_off = '01:00'")
        with pytest.raises(errors.CheckViolation):
            login.execute(
                insert.format(
                    "holidays", "('Z', '2026-01-01', 'UTC', '00:00', '{}', '{}')"
                ).encode()
            )


# --- the chart ------------------------------------------------------------------------------------


def test_every_account_of_the_chart_has_a_class_and_a_normal_side(world: World) -> None:
    rows = world.rows("SELECT kind, class, normal_side FROM chart_of_accounts")
    chart = {kind: (group, side) for kind, group, side in rows}

    assert set(chart) == set(ChartAccount)
    assert chart["SETTLEMENT_BANK"] == ("ASSET", "D")
    assert chart["SUSPENSE"] == ("LIABILITY", "C")
    assert chart["INTERCHANGE"] == ("INCOME", "C")
    assert chart["NETWORK_FEES"] == ("EXPENSE", "D")


def test_a_platform_has_every_system_account_for_every_currency(world: World) -> None:
    platform = world.platform()

    kinds = world.rows(
        "SELECT currency, array_agg(kind ORDER BY kind) FROM system_accounts"
        " WHERE platform_id = %s GROUP BY currency",
        platform,
    )

    assert kinds
    for _, found in kinds:
        assert found == sorted(set(ChartAccount) - {ChartAccount.CUSTOMER})


def test_the_currencies_are_those_of_the_wire(world: World) -> None:
    assert dict(world.rows("SELECT code, decimals FROM currencies")) == {
        code: info.decimals for code, info in CURRENCIES.items()
    }


def test_the_books_of_all_this_are_proven(world: World) -> None:
    report = world.verify()

    assert report.holds, report.differences
