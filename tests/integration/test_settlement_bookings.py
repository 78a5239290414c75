"""Interchange and fees of settlement files: booked once, on their day, and proved."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn

import psycopg
import pytest

from cardledger.ledger.engine import rejections as kept
from cardledger.ledger.engine.decisions.settlements import Settlements
from cardledger.ledger.engine.due_settlements import DueSettlements
from cardledger.ledger.engine.parsing import RejectedError
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging import rejections
from cardledger.ledger.messaging.inbox import UNROUTED, Lane
from cardledger.ledger.messaging.rejections import Filter, Retries
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import RejectionReason
from tests.databases import OwnRoles
from tests.due import enqueue_due
from tests.finance_world import Network
from tests.integration.office import FIRST, OPEN, Office, opened
from tests.settlement_files import Row, head, text_of
from tests.world import INBOX_KEY, Cardholder, World

DAY: Final = FIRST + timedelta(days=9)


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(own_roles, tmp_path_factory.mktemp("bookings")) as made:
        yield made
        book(made.world)
        report = made.world.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def cardholder(office: Office) -> Cardholder:
    return office.world.cardholder(office.world.platform(), 1_000_000)


@pytest.fixture
def network(office: Office, cardholder: Cardholder) -> Network:
    found = Network(office.world, cardholder, office.anna)
    office.world.connection.execute(
        "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, holidays)"
        " VALUES (%s, '2019-01-01', 'UTC', '00:00', '{1,2,3,4,5,6,7}', '{}')",
        [found.name],
    )
    return found


def enqueue(world: World) -> int:
    with psycopg.connect(world.worker_url) as connection:
        return enqueue_due(connection, DueSettlements(INBOX_KEY), datetime.now(UTC))


def book(world: World) -> list[str]:
    """Enqueue what is due, and decide it; return the outcomes."""
    enqueue(world)
    return [str(each.outcome) for each in world.drain(world.engine(), Lane.BULK)]


def line(kind: str, amount: int, **changes: str) -> Row:
    return {"record": "D", "type": kind, "amount": str(amount), "currency": "USD"} | changes


def entries(world: World, network: Network) -> set[tuple[Any, ...]]:
    """Return what was booked of the files of `network`."""
    return set(
        world.rows(
            "SELECT j.event, j.debit_kind, j.credit_kind, j.amount, j.currency, j.posted_on,"
            " j.late_from FROM finance.journal j JOIN finance.bookings b"
            " ON b.booking_id = j.subject_id JOIN finance.files f USING (network_file_id)"
            " WHERE f.network = %s",
            network.name,
        )
    )


def test_interchange_and_fees_are_booked_once_on_the_day_of_the_file(
    network: Network, office: Office
) -> None:
    lines = [
        line("PRESENTMENT", 1_000, interchange="12"),
        line("FEE", 70, reference="fee-1"),
        line("FEE", 5),
        line("FEE_REVERSAL", 30),
        line("FEE", 9, currency="JPY"),
    ]

    network.imported(DAY, lines)
    before = entries(office.world, network)
    outcomes = [book(office.world), book(office.world)]

    assert (before, outcomes) == (set(), [["APPLIED"] * 4, []])
    assert entries(office.world, network) == {
        ("INTERCHANGE", "NETWORK_SETTLEMENT", "INTERCHANGE", 1_200, "USD", DAY, None),
        ("NETWORK_FEES", "NETWORK_FEES", "NETWORK_SETTLEMENT", 75, "USD", DAY, None),
        ("NETWORK_FEES", "NETWORK_SETTLEMENT", "NETWORK_FEES", 30, "USD", DAY, None),
        ("NETWORK_FEES", "NETWORK_FEES", "NETWORK_SETTLEMENT", 9, "JPY", DAY, None),
    }


def test_fees_are_in_the_proof_and_no_break(network: Network) -> None:
    lines = [line("PRESENTMENT", 1_000), line("FEE", 70), line("FEE_REVERSAL", 30)]

    result = network.imported(DAY, lines)

    assert network.kinds() == {("IN_FILE_ONLY", "NO_EVENT", "open", 1_000): 1}
    [proof] = result.proof
    assert (proof.ledger, proof.difference, proof.file) == (40, 1_000, 1_040)
    network.rematch()
    assert network.kinds() == {("IN_FILE_ONLY", "NO_EVENT", "open", 1_000): 1}


def test_a_fee_that_is_charged_again_is_a_break_and_is_not_booked(
    network: Network, office: Office
) -> None:
    fee = line("FEE", 70, reference="fee-1")
    first = network.imported(DAY, [fee, fee, line("FEE", 70, reference="fee-2"), line("FEE", 70)])
    second = network.imported(DAY + timedelta(days=1), [fee, line("FEE", 71, reference="fee-1")])

    book(office.world)

    assert (first.open_breaks, second.open_breaks) == (1, 1)
    assert network.kinds() == {("DUPLICATE_LINE", None, "open", 70): 2}
    amounts = sorted(row[3] for row in entries(office.world, network))
    assert amounts == [71, 210]


@pytest.mark.parametrize("days", [(0, 1), (1, 0)])
def test_a_fee_is_booked_once_by_the_file_that_was_imported_first(
    network: Network, office: Office, days: tuple[int, int]
) -> None:
    """The order of days would book it twice: what the first import has booked stays booked."""
    first, second = (DAY + timedelta(days=each) for each in days)
    fee = line("FEE", 70, reference="fee-1")

    network.imported(first, [fee])
    assert book(office.world) == ["APPLIED"]
    network.imported(second, [fee])
    network.rematch()

    assert book(office.world) == []
    assert [(row[3], row[5]) for row in entries(office.world, network)] == [(70, first)]
    assert network.kinds() == {("DUPLICATE_LINE", None, "open", 70): 1}


@pytest.mark.parametrize(
    ("interchange", "booked"),
    [
        ("0.005", None),
        ("0.015", 2),
        ("0.025", 2),
        ("-0.025", -2),
        ("-0.035", -4),
        ("0.025001", 3),
        ("-1.2", -120),
    ],
)
def test_interchange_is_rounded_once_half_even(
    network: Network, office: Office, interchange: str, booked: int | None
) -> None:
    total = {
        "record": "T",
        "currency": "USD",
        "count": "1",
        "amount": "500",
        "interchange": interchange,
    }
    top = head(network=network.name, settlement_date=str(DAY), cycle="", file_id=network.name)
    rows = [top, line("PRESENTMENT", 500, interchange=interchange), total]

    network.take(text_of(rows).encode())
    book(office.world)

    found = [
        row[3] if row[1] == "NETWORK_SETTLEMENT" else -row[3]
        for row in entries(office.world, network)
    ]
    assert found == ([] if booked is None else [booked])


def test_a_file_of_a_closed_day_is_booked_on_the_first_open_one(
    network: Network, office: Office
) -> None:
    day = FIRST - timedelta(days=3)

    network.imported(day, [line("FEE", 70)])
    book(office.world)

    assert {row[-2:] for row in entries(office.world, network)} == {(FIRST, day)}


def test_a_file_of_a_day_to_come_is_booked_today(network: Network, office: Office) -> None:
    day = OPEN + timedelta(days=80)

    network.imported(day, [line("FEE", 70)])
    book(office.world)

    assert {row[-2:] for row in entries(office.world, network)} == {
        (datetime.now(UTC).date(), None)
    }


def test_two_processes_book_once(network: Network, office: Office) -> None:
    network.imported(DAY, [line("FEE", n, currency=c) for n, c in ((1, "USD"), (2, "EUR"))])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(enqueue, [office.world] * 2))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(book, [office.world] * 2))

    assert sorted(row[3] for row in entries(office.world, network)) == [1, 2]


@pytest.fixture
def refused(network: Network, office: Office, monkeypatch: pytest.MonkeyPatch) -> Id:
    """Reject the message of a booking, as earlier releases did with unknown types."""

    def refuse(*_: object) -> NoReturn:
        raise RejectedError(RejectionReason.MALFORMED, "unknown type")

    book(office.world)
    network.imported(DAY, [line("FEE", 70)])
    with monkeypatch.context() as older:
        older.setattr(Settlements, "book", refuse)
        assert book(office.world) == ["REJECTED"]
    assert book(office.world) == []
    [[key]] = office.world.rows(
        "SELECT r.id FROM rejections r JOIN settlement_bookings b ON r.reference = b.id::text"
        " WHERE b.network = %s",
        network.name,
    )
    found: Id = key
    return found


def test_a_booking_whose_message_was_rejected_is_booked_by_a_retry_once(
    network: Network, office: Office, refused: Id
) -> None:
    first, again = retry(office.world, refused), retry(office.world, refused)

    assert list(first.accepted) == [refused], first.refused
    assert again.refused == {refused: "Already retried."}
    assert [book(office.world), book(office.world)] == [["APPLIED"], []]
    assert [row[3] for row in entries(office.world, network)] == [70]


def test_only_the_message_of_a_booking_that_is_due_is_retried(
    network: Network, office: Office, refused: Id
) -> None:
    world = office.world
    [[platform, text]] = world.rows(
        "SELECT platform_id, body FROM rejections WHERE id = %s", refused
    )
    body = json.loads(text)
    made_up = str(new_id())
    forged = [
        submitted(world, body, world.platform()),
        submitted(world, body | {"amount": 1}, platform),
        submitted(world, body | {"reference": "other"}, platform),
        submitted(world, body | {"source": "network"}, platform),
        submitted(world, body | {"bookingId": made_up, "reference": made_up}, platform),
    ]

    none = retry(world, *forged)
    retry(world, refused)
    outcomes = book(world)
    late = retry(world, submitted(world, body, platform))

    assert (none.accepted, set(none.refused)) == ({}, set(forged))
    assert outcomes == ["APPLIED"]
    assert late.accepted == {}
    assert [row[3] for row in entries(world, network)] == [70]


def retry(world: World, *ids: Id) -> Retries:
    async def run() -> Retries:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            found = await rejections.find(connection, Filter(ids=ids), limit=len(ids))
            return await rejections.retry(connection, found, INBOX_KEY, now=datetime.now(UTC))

    return asyncio.run(run())


def submitted(world: World, body: dict[str, Any], platform_id: Id) -> Id:
    """Keep `body` as the client keeps what it does not accept."""
    record = RejectionRecord(
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=platform_id,
        source=body["source"],
        reference=body["reference"],
        body=json.dumps(body),
        reason=RejectionReason.MALFORMED,
        detail=None,
        recorded_at=datetime.now(UTC),
    )

    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(world.app_url) as connection:
            await kept.keep(connection, [record], INBOX_KEY)

    asyncio.run(run())
    return record.id


def test_network_days_have_interchange_fees_and_net(network: Network, office: Office) -> None:
    event = network.event("CLEARING", "T1", 1_000, DAY)
    event["settlement"]["interchange"] = "0.1234"
    network.send(event)
    columns = "presentments, fees, interchange, net, paid, open"
    days = f"SELECT {columns} FROM finance.network_days WHERE network = %s"
    before = office.world.rows(days, network.name)

    network.imported(DAY, [network.line(event, interchange="2"), line("FEE", 30)])
    book(office.world)

    assert before == [(1_000, 0, Decimal("12.34"), 1_000, 0, 1_000)]
    assert office.world.rows(days, network.name) == [(1_000, 30, 200, 830, 0, 830)]


def test_the_greatest_fee_is_booked(network: Network, office: Office) -> None:
    network.imported(DAY, [line("FEE", 2**63 - 1), line("CREDIT", 1)])

    assert book(office.world) == ["APPLIED"]
    assert {row[3] for row in entries(office.world, network)} == {2**63 - 1}


@pytest.mark.parametrize(
    ("lines", "column"),
    [
        ([line("FEE", 2**63 - 1), line("FEE", 1), line("CREDIT", 2**63 - 1)], "amount"),
        (
            [line("PRESENTMENT", 1, interchange="999999999999", currency="KWD")] * 10_000,
            "interchange",
        ),
    ],
)
def test_what_an_entry_cannot_hold_is_refused(
    network: Network, lines: list[Row], column: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        network.take(network.file(DAY, lines))

    assert (caught.value.code, caught.value.column) == (Code.BAD_AMOUNT, column)


def test_people_and_workers_cannot_change_a_booking(network: Network, office: Office) -> None:
    network.imported(DAY, [line("FEE", 70)])
    for url, statement in (
        (office.anna, "INSERT INTO cardledger.settlement_bookings DEFAULT VALUES"),
        (office.world.worker_url, "UPDATE settlement_bookings SET amount = 1"),
        (office.world.worker_url, "DELETE FROM settlement_bookings"),
    ):
        with (
            psycopg.connect(url) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement.encode())
    book(office.world)
    with psycopg.connect(office.world.worker_url) as connection, pytest.raises(psycopg.Error):
        connection.execute("UPDATE settlement_bookings SET booked_at = now()")
