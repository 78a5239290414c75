"""Settlement files: matched with events, and what differs."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import errors

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import acting, settlement_files
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.network_files import reader
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.workers.process.mover import Mover
from tests.command_process import run_command
from tests.databases import OwnRoles
from tests.finance_world import Network, due
from tests.integration.office import Office, opened
from tests.settlement_files import Row
from tests.system.support import environment
from tests.waiting import eventually
from tests.world import INBOX_KEY, Cardholder

# A million takes minutes.
LINES: Final = int(os.environ.get("NETWORK_FILE_LINES", "30000"))

DAY: Final = date(2026, 10, 26)
NEXT: Final = DAY + timedelta(days=1)


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(own_roles, tmp_path_factory.mktemp("files")) as made:
        yield made
        report = made.world.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def cardholder(office: Office) -> Cardholder:
    return office.world.cardholder(office.world.platform(), 1_000_000)


@pytest.fixture
def network(office: Office, cardholder: Cardholder) -> Network:
    return Network(office.world, cardholder, office.anna)


def clearing(network: Network, token: str, amount: int = 1_000, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return network.event("CLEARING", token, amount, fields.pop("day", DAY), **fields)


def test_lines_and_events_that_are_the_same_leave_no_break(network: Network) -> None:
    bought = clearing(network, "T1", 1_000)
    returned = network.event("RETURN", "T2", 300, DAY)
    reversed_ = network.event("CLEARING_REVERSAL", "T1", 400, DAY)
    assert network.send(bought, returned, reversed_) == ["APPLIED"] * 3
    lines = [network.line(each) for each in (bought, returned, reversed_)]

    result = network.imported(DAY, lines)

    assert (result.state, result.lines, result.open_breaks) == ("IMPORTED", 3, 0)
    assert result.matched == {"REFERENCE": 3, "TOKEN": 0, "CARD": 0}
    assert result.breaks == []
    [proof] = result.proof
    assert (proof.currency, proof.ledger, proof.difference, proof.file) == ("USD", 300, 0, 300)
    assert proof.ledger == due(bought) + due(returned) + due(reversed_)


def test_what_differs_is_named_by_the_first_that_fits(network: Network) -> None:
    events = [clearing(network, f"T{n}", 1_000 + n) for n in range(5)]
    network.send(*events)
    lines = [
        network.line(events[0], amount="1500"),
        network.line(events[1], type="CREDIT", amount="99"),
        network.line(events[2], currency="EUR", type="CREDIT"),
        network.line(events[3]),
        network.line(events[3]),
        network.line(events[3], reference=f"{network.name}-unknown", token="none"),
    ]

    result = network.imported(DAY, lines)

    assert network.kinds() == {
        ("AMOUNT_DIFFERS", None, "open", 500): 1,
        ("TYPE_DIFFERS", None, "open", -99 - 1_001): 1,
        ("CURRENCY_DIFFERS", None, "open", -1_002): 1,
        ("DUPLICATE_LINE", None, "open", 1_003): 1,
        ("IN_FILE_ONLY", "NO_EVENT", "open", 1_003): 1,
        ("IN_LEDGER_ONLY", None, "open", -1_004): 1,
    }
    [differs] = [each for each in network.breaks() if each.kind == "CURRENCY_DIFFERS"]
    assert (differs.currency, differs.ledger_currency) == ("EUR", "USD")
    assert (differs.file_amount, differs.ledger_amount) == (-1_002, 1_002)
    assert (differs.difference, differs.ledger_difference) == (-1_002, -1_002)
    assert result.open_breaks == 6
    assert {each.currency: each.ledger for each in result.proof} == {
        "USD": sum(map(due, events)),
        "EUR": 0,
    }


def test_a_file_is_imported_once_whatever_its_bytes(network: Network) -> None:
    event = clearing(network, "T1")
    network.send(event)
    data = network.file(DAY, [network.line(event)], file_id="F")

    first = network.take(data)
    again = network.take(b"\xef\xbb\xbf" + data.replace(b"\r\n", b"\n"))

    assert (first.state, again.state) == ("IMPORTED", "ALREADY_IMPORTED")
    assert again.proof == first.proof
    with pytest.raises(RefusedError) as caught:
        network.take(network.file(DAY, [network.line(event, amount="1")], file_id="F"))
    assert (caught.value.code, caught.value.column) == (Code.FILE_ID_REUSED, "file_id")


def test_a_file_under_another_name_is_not_booked_again(network: Network) -> None:
    bought = clearing(network, "T1", 10_000)
    network.send(bought)
    fee = {"record": "D", "type": "FEE", "amount": "315", "currency": "USD"}
    shipment = network.line(bought, reference="", network_reference="N-1")
    lines = [network.line(bought, interchange="1"), fee]
    first = network.imported(DAY, lines, file_id=f"{network.name}-1")
    booked = "SELECT count(*) FROM settlement_bookings b JOIN network_files f ON f.id = b.file_id"
    of_network = f"{booked} WHERE f.network = %s"
    before = network.world.rows(of_network, network.name)
    assert before > [(0,)]

    with pytest.raises(RefusedError) as caught:
        network.take(network.file(DAY, lines[::-1], file_id=f"{network.name}-1-R"))

    assert (caught.value.code, caught.value.column) == (Code.FILE_REPEATED, "file_id")
    assert f"those of file '{network.name}-1', imported at" in str(caught.value)
    assert network.world.rows(of_network, network.name) == before
    others = [
        network.imported(DAY, lines, cycle="2"),
        network.imported(NEXT, lines),
        network.imported(DAY, [network.line(bought, interchange="2"), fee]),
        network.imported(DAY, [fee]),
        network.imported(DAY, [fee]),
        network.imported(DAY, [shipment]),
        network.imported(DAY, [shipment]),
    ]
    assert {each.state for each in (first, *others)} == {"IMPORTED"}


def test_of_two_imports_at_once_one_wins(network: Network) -> None:
    events = [clearing(network, f"T{n}") for n in range(20)]
    network.send(*events)
    data = network.file(DAY, list(map(network.line, events)))

    with ThreadPoolExecutor(2) as threads:
        states = [each.state for each in threads.map(network.take, [data, data])]

    assert sorted(states) == ["ALREADY_IMPORTED", "IMPORTED"]
    assert network.breaks() == []


def test_an_import_that_breaks_off_was_never_begun(network: Network, office: Office) -> None:
    event = clearing(network, "T1")
    network.send(event)
    data = network.file(DAY, [network.line(event)])
    tables = ("network_files", "network_lines", "line_matches", "breaks", "file_proofs")
    before = [office.world.count(table) for table in tables]

    with pytest.raises(RefusedError):
        network.take(data[:-1].rpartition(b"\r\n")[0])
    assert network.take(data, keep=False).state == "DRY_RUN"

    assert [office.world.count(table) for table in tables] == before
    assert network.take(data).state == "IMPORTED"


def test_a_line_is_found_by_acquirer_reference_token_and_card(network: Network) -> None:
    arn = "7" * 22 + "1"
    merchant = {"descriptor": "Green  Grocer", "mcc": "5411", "country": "US"}
    events = [
        clearing(network, "T1", 1_001, acquirer_reference=arn),
        clearing(network, "T2", 1_002),
        clearing(network, "T3", 1_003, merchant=merchant, occurredAt="2026-10-24T10:00:00Z"),
    ]
    assert network.send(*events) == ["APPLIED"] * 3
    by_card = {"reference": "", "token": "", "merchant": "GREEN GROCER"}

    result = network.imported(
        DAY,
        [
            network.line(events[0], reference=arn, token=""),
            network.line(events[1], reference=""),
            network.line(events[2], **by_card, transaction_date="2026-10-26"),
        ],
    )

    assert result.matched == {"REFERENCE": 1, "TOKEN": 1, "CARD": 1}
    assert network.breaks() == []


def test_equal_candidates_are_interchangeable_and_the_nearest_date_wins(network: Network) -> None:
    merchant = {"descriptor": "KIOSK", "mcc": "5411", "country": "US"}
    days = ["2026-10-20", "2026-10-20", "2026-10-23", "2026-10-25"]
    events = [
        clearing(network, f"T{n}", 700, merchant=merchant, occurredAt=f"{day}T12:00:00Z")
        for n, day in enumerate(days)
    ]
    network.send(*events)
    by_card = {"reference": "", "token": ""}
    lines = [
        network.line(events[0], **by_card, transaction_date=day)
        for day in ("2026-10-20", "2026-10-20", "2026-10-22", "2026-10-25")
    ]

    result = network.imported(DAY, lines)

    assert result.matched["CARD"] == 4
    assert network.breaks() == []


def test_unequal_candidates_that_tie_are_listed_and_never_guessed(network: Network) -> None:
    merchant = {"descriptor": "KIOSK", "mcc": "5411", "country": "US"}
    events = [
        clearing(network, f"T{n}", 800, merchant=merchant, occurredAt=f"{day}T12:00:00Z")
        for n, day in enumerate(("2026-10-22", "2026-10-24"))
    ]
    network.send(*events)
    line = network.line(events[0], reference="", token="", transaction_date="2026-10-23")

    network.imported(DAY, [line])

    assert network.kinds() == {
        ("AMBIGUOUS", None, "open", 800): 1,
        ("IN_LEDGER_ONLY", None, "open", -800): 2,
    }
    [(candidates,)] = network.world.rows(
        "SELECT candidates FROM breaks b JOIN network_files f ON f.id = b.file_id"
        " WHERE f.network = %s AND b.kind = 'AMBIGUOUS'",
        network.name,
    )
    assert len(candidates) == 2


def test_a_line_of_another_day_is_explained(network: Network) -> None:
    event = clearing(network, "T1", 1_000)
    network.send(event)
    network.imported(DAY, [network.line(event, amount="5", reference="none", token="none")])
    assert network.kinds() == {
        ("IN_FILE_ONLY", "NO_EVENT", "open", 5): 1,
        ("IN_LEDGER_ONLY", None, "open", -1_000): 1,
    }

    result = network.imported(NEXT, [network.line(event)])

    assert result.open_breaks == 0
    assert network.kinds() == {
        ("IN_FILE_ONLY", "NO_EVENT", "open", 5): 1,
        ("IN_LEDGER_ONLY", None, "explained", -1_000): 1,
        ("TIMING", None, "explained", 1_000): 1,
    }


def test_several_files_of_a_day_have_its_events_together(network: Network) -> None:
    events = [clearing(network, f"T{n}", 100 + n) for n in range(4)]
    network.send(*events)

    network.imported(DAY, [network.line(each) for each in events[:2]])
    second = network.imported(DAY, [network.line(each) for each in events[2:]])

    assert second.open_breaks == 0
    assert {each.state for each in network.breaks()} == {"explained"}
    assert {each.difference for each in network.breaks()} == {0}
    assert [each.ledger for each in second.proof] == [102 + 103]


def test_cycles_of_a_day_are_apart(network: Network) -> None:
    first, second = (clearing(network, f"T{n}", 100 + n, cycle=str(n)) for n in (1, 2))
    network.send(first, second)

    results = [
        network.imported(DAY, [network.line(each)], cycle=cycle)
        for each, cycle in ((first, "1"), (second, "2"))
    ]

    assert network.breaks() == []
    assert [each.proof[0].ledger for each in results] == [101, 102]


def test_an_event_without_settlement_details_is_of_the_day_of_its_line(network: Network) -> None:
    event = clearing(network, "T1", 1_000)
    del event["settlement"]
    known = clearing(network, "T2", 10)
    network.send(event, known)

    result = network.imported(DAY, [network.line(event), network.line(known)])

    assert network.breaks() == []
    assert [each.ledger for each in result.proof] == [1_010]


def test_a_late_event_explains_its_line(network: Network) -> None:
    event, other = clearing(network, "T1", 1_000), clearing(network, "T2", 50)
    known = clearing(network, "T3", 1)
    network.send(known)
    network.imported(DAY, [network.line(event, amount="900"), network.line(known)])
    assert network.kinds() == {("IN_FILE_ONLY", "NO_EVENT", "open", 900): 1}

    network.send(event, other)
    network.rematch()

    assert network.kinds() == {
        ("IN_FILE_ONLY", "NO_EVENT", "explained", 0): 1,
        ("AMOUNT_DIFFERS", None, "open", -100): 1,
        ("IN_LEDGER_ONLY", None, "open", -50): 1,
    }
    before = network.breaks()
    network.rematch()
    assert network.breaks() == before


def test_the_cause_of_a_missing_event_is_named(network: Network, office: Office) -> None:
    rejected = clearing(network, "T1", 100) | {"currency": "EUR"}
    parked = network.event("CLEARING_REVERSAL", "T9", 50, DAY)
    known = clearing(network, "T3", 1)
    assert network.send(rejected, parked, known) == ["REJECTED", "PARKED", "APPLIED"]

    network.imported(
        DAY, [network.line(rejected, currency="USD"), network.line(parked), network.line(known)]
    )

    found = network.kinds()
    assert {cause for _, cause, _, _ in found} == {"REJECTED:INVALID_CURRENCY", "PARKED"}
    assert office.world.count("breaks") >= 2


def test_a_network_without_calendar_and_events_is_unknown(network: Network) -> None:
    line: Row = network.line(clearing(network, "T1"))

    with pytest.raises(RefusedError) as caught:
        network.take(network.file(DAY, [line]))

    assert (caught.value.code, caught.value.column) == (Code.UNKNOWN_NETWORK, "network")


# --- who may do what ------------------------------------------------------------------------------


def test_people_work_on_a_break_and_another_person_resolves_it(
    network: Network, office: Office
) -> None:
    event = clearing(network, "T1", 1_000)
    network.send(event)
    network.imported(DAY, [network.line(event, amount="1001")])
    [found] = network.breaks()
    anna = psycopg.conninfo.conninfo_to_dict(str(office.anna))["user"]
    carla = psycopg.conninfo.conninfo_to_dict(str(office.carla))["user"]

    with acting.as_person(office.anna, may="prepare") as session:
        assert settlement_files.add_note(session, found.id, "asked") == "investigating"
        assert settlement_files.assign(session, found.id, str(carla), None) == "investigating"
    with (
        acting.as_person(office.carla, may="approve") as session,
        pytest.raises(Exception, match="another person must resolve it"),
    ):
        settlement_files.resolve(session, found.id, "resolved", "a cent")
    with acting.as_person(office.ben, may="approve") as session:
        assert settlement_files.resolve(session, found.id, "written_off", "a cent") == "written_off"

    history = network.world.rows(
        "SELECT action, note, owner, done_by FROM break_history WHERE break_id = %s ORDER BY id",
        found.id,
    )
    assert [row[0] for row in history] == ["NOTED", "ASSIGNED", "WRITTEN_OFF"]
    assert history[0][1:] == ("asked", None, anna)
    assert history[1][2] == carla
    assert network.kinds() == {("AMOUNT_DIFFERS", None, "written_off", 1): 1}


def test_nothing_can_be_imported_around_the_control_totals(
    network: Network, office: Office
) -> None:
    event = clearing(network, "T1", 1_000)
    network.send(event)
    platform = network.cardholder.owner.platform_id
    begin = "SELECT finance.begin_file(%s, %s, 'forged', %s, NULL)"
    values = [platform, network.name, DAY]
    with psycopg.connect(office.anna) as connection:
        connection.execute(begin, values)
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="not finished"):
            connection.commit()
    with psycopg.connect(office.anna) as connection:
        [key] = connection.execute(begin, values).fetchone() or [None]
        with pytest.raises(errors.InvalidParameterValue, match="do not add up"):
            connection.execute(
                "SELECT finance.finish_file(%s, %s, %s)",
                [key, "0" * 64, '{"USD": {"lines": 1, "amount": "5", "interchange": "0"}}'],
            )
        connection.rollback()
    with psycopg.connect(office.ben) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(begin, values)
    with psycopg.connect(office.anna) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("INSERT INTO cardledger.network_lines DEFAULT VALUES")


@pytest.mark.parametrize("name", ["candidate_events", "open_lines", "day_pairs", "new_matches"])
def test_a_table_of_the_caller_is_never_used(network: Network, office: Office, name: str) -> None:
    event = clearing(network, "T1", 1_000)
    network.send(event)
    data = network.file(DAY, [network.line(event)])

    with acting.as_person(office.anna, may="prepare") as session:
        session.connection.execute(f"CREATE TEMP TABLE {name} (line integer)".encode())
        with pytest.raises(psycopg.Error, match="already exists"):
            settlement_files.import_file(
                session,
                network.cardholder.owner.platform_id,
                reader.read(io.BytesIO(data)),
                keep=True,
            )


def test_breaks_and_missing_files_are_in_the_way_of_closing(
    network: Network, office: Office
) -> None:
    day = date.today().replace(day=1) - timedelta(days=2)  # noqa: DTZ011 - of the last month
    events = [clearing(network, f"T{n}", day=day - timedelta(days=n)) for n in (0, 1)]
    network.send(*events)
    network.imported(day - timedelta(days=1), [network.line(events[1], amount="7")])

    found = office.world.rows(
        "SELECT kind, detail FROM finance.in_the_way(%s, %s)", day.replace(day=1), day
    )

    of_network = {kind for kind, detail in found if network.name in detail}
    assert of_network == {"AMOUNT_DIFFERS", "MISSING_FILE"}


# --- the commands ---------------------------------------------------------------------------------


def test_the_commands_import_list_and_resolve(
    network: Network, office: Office, tmp_path: Path
) -> None:
    events = [clearing(network, f"T{n}", 1_000) for n in (1, 2)]
    network.send(*events)
    path = tmp_path / "file.csv"
    lines = [network.line(events[0], amount="1010"), network.line(events[1])]
    path.write_bytes(network.file(DAY, lines, file_id="F-1"))

    def run(url: DatabaseUrl, *arguments: str) -> tuple[int, list[Any]]:
        ended = run_command(*arguments, env=environment(DATABASE_URL=url), cwd=tmp_path)
        assert ended.stdout, ended.stderr
        return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]

    platform = str(network.cardholder.owner.platform_id)
    command = ("reconcile", str(path), "--platform", platform, "--json")
    assert run(office.anna, *command, "--dry-run") == (1, [expected(network, "DRY_RUN")])
    assert run(office.anna, *command) == (1, [expected(network, "IMPORTED")])
    assert run(office.anna, *command) == (1, [expected(network, "ALREADY_IMPORTED")])

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_bytes, path.read_bytes())
        dry = ("reconcile", str(pipe), "--platform", platform, "--json", "--dry-run")
        assert run(office.anna, *dry) == (1, [expected(network, "ALREADY_IMPORTED")])

    code, [found] = run(office.anna, "breaks", "list", "--network", network.name, "--json")
    assert code == 0
    key = found.pop("id")
    assert found.pop("ageDays") >= 0
    assert found.pop("cardTransaction")
    assert found == {
        "kind": "AMOUNT_DIFFERS",
        "cause": None,
        "state": "open",
        "network": network.name,
        "fileId": "F-1",
        "line": 3,
        "reference": events[0]["reference"],
        "issuerTransactionToken": events[0]["issuerTransactionToken"],
        "currency": "USD",
        "fileAmount": 1_010,
        "ledgerAmount": 1_000,
        "difference": 10,
        "settlementDate": str(DAY),
        "rule": "REFERENCE",
        "owner": None,
    }
    reported = run_command(
        *("report", "breaks", "--format", "csv", "--platform", platform),
        env=environment(DATABASE_URL=office.anna),
        cwd=tmp_path,
    )
    assert [row["break_id"] for row in csv.DictReader(reported.stdout.splitlines())].count(key) == 1
    note = ("--note", "a tip by letter", "--json")
    assert run(office.ben, "breaks", "resolve", key, *note) == (
        0,
        [{"id": key, "state": "resolved"}],
    )
    assert run(office.anna, *command)[0] == 0

    path.write_bytes(path.read_bytes().replace(b"1010", b"10.10", 1))
    code, [refused] = run(office.anna, *command)
    assert (code, refused["state"], refused["code"], refused["line"], refused["column"]) == (
        2,
        "REFUSED",
        "BAD_AMOUNT",
        3,
        "amount",
    )
    audit = network.world.rows(
        "SELECT action FROM finance.audit WHERE person = %s AND action LIKE 'FILE_%%'",
        office.anna.role,
    )
    assert ("FILE_REFUSED",) in audit
    assert ("FILE_IMPORTED",) in audit


def expected(network: Network, state: str) -> dict[str, Any]:
    return {
        "state": state,
        "fileId": "F-1",
        "network": network.name,
        "settlementDate": str(DAY),
        "cycle": None,
        "lines": 2,
        "matched": {"REFERENCE": 2, "TOKEN": 0, "CARD": 0},
        "breaks": [{"kind": "AMOUNT_DIFFERS", "currency": "USD", "count": 1, "difference": 10}],
        "proof": [{"currency": "USD", "ledger": 2_000, "difference": 10, "file": 2_010}],
        "openBreaks": 1,
    }


def test_the_queries_of_the_page_lead_from_a_line_to_its_entries(network: Network) -> None:
    event = clearing(network, "T1", 1_234)
    network.send(event)
    network.imported(DAY, [network.line(event)])
    page = (Path(__file__).parents[2] / "docs/network-files.md").read_text(encoding="utf-8")
    [query] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)

    with psycopg.connect(network.login) as connection:
        rows = connection.execute(f"{query} WHERE l.network = '{network.name}'".encode()).fetchall()

    assert [(row[2], row[3], row[6]) for row in rows] == [("REFERENCE", "CLEARED", 1_234)]


def test_a_missing_event_is_made_of_its_line_once(network: Network, office: Office) -> None:
    known, missing = clearing(network, "T1", 10), clearing(network, "T2", 700)
    network.send(known)
    line = network.line(missing, merchant="KIOSK", mcc="5411", transaction_date="2026-10-25")
    lines = [network.line(known), line | {"interchange": "1"}]
    network.imported(DAY, lines)
    [found] = network.breaks()
    assert found.cause == "NO_EVENT"

    with acting.as_person(office.ben, may="approve") as session:
        for _ in range(2):
            assert settlement_files.make_event(session, found.id, "lost") == "investigating"
    while Mover(network.world.database, INBOX_KEY, lambda _: None).move():
        pass
    network.world.drain(network.world.engine(), Lane.LIVE)
    assert network.world.count("duplicates") >= 1
    network.rematch()

    assert [(each.state, each.difference) for each in network.breaks()] == [("explained", 0)]
    count = network.world.rows(
        "SELECT count(*) FROM finance.lines WHERE network = %s AND rule = 'REFERENCE'", network.name
    )
    assert count == [(2,)]
    with (
        pytest.raises(CommandError, match="is explained IN_FILE_ONLY NO_EVENT"),
        acting.as_person(office.ben, may="approve") as session,
    ):
        settlement_files.make_event(session, found.id, "again")


def test_an_event_of_another_network_is_in_no_line(network: Network, office: Office) -> None:
    other = Network(office.world, network.cardholder, office.anna)
    fields = {"merchant": {"descriptor": "KIOSK", "mcc": "5411"}}
    by_reference, by_token, by_card = (
        clearing(network, f"T{n}", 60 + n, occurredAt=f"{DAY}T12:00:00Z", **fields)
        for n in range(3)
    )
    network.send(by_reference, by_token, by_card)
    other.send(clearing(other, "T1", 5, day=NEXT))

    other.imported(
        DAY,
        [
            network.line(by_reference),
            network.line(by_token, reference=""),
            network.line(by_card, reference="", token="", transaction_date=str(DAY)),
        ],
    )

    assert {(kind, state) for kind, _, state, _ in other.kinds()} == {("IN_FILE_ONLY", "open")}
    network.imported(DAY, [network.line(each) for each in (by_reference, by_token, by_card)])
    assert network.breaks() == []


def test_the_importer_of_a_file_makes_no_event_of_it(network: Network, office: Office) -> None:
    known, missing = clearing(network, "T1", 10), clearing(network, "T2", 700)
    network.send(known)
    Network(office.world, network.cardholder, office.carla, network.name).imported(
        DAY, [network.line(known), network.line(missing)]
    )
    [found] = network.breaks()

    with (
        pytest.raises(CommandError, match="another person than the one who imported"),
        acting.as_person(office.carla, may="approve") as session,
    ):
        settlement_files.make_event(session, found.id, "lost")


def test_no_event_is_made_with_a_source_that_is_guessed(network: Network, office: Office) -> None:
    missing, first = clearing(network, "T0", 700), clearing(network, "T1", 10, day=NEXT)
    second = clearing(network, "T2", 20, day=NEXT, source="other-cards")
    network.send(first, second)
    network.imported(DAY, [network.line(missing)])
    [found] = network.breaks()

    def refuses(because: str) -> None:
        with (
            pytest.raises(CommandError, match=because),
            acting.as_person(office.ben, may="approve") as session,
        ):
            settlement_files.make_event(session, found.id, "lost")

    refuses("no events of network")
    network.imported(NEXT, [network.line(first), network.line(second)])
    refuses("several sources")


def test_an_import_that_is_killed_was_never_begun(
    network: Network, office: Office, tmp_path: Path
) -> None:
    events = [clearing(network, f"T{n}", 100 + n) for n in range(3)]
    network.send(*events)
    count = LINES - len(events)
    unknown = [network.line(events[0], reference=f"u-{n}", token="") for n in range(count)]
    path = tmp_path / "file.csv"
    path.write_bytes(network.file(DAY, [*map(network.line, events), *unknown]))
    once = network.take(path.read_bytes(), keep=False)
    platform = str(network.cardholder.owner.platform_id)
    command = ("reconcile", str(path), "--platform", platform, "--json")
    running = subprocess.Popen(
        [sys.executable, "-m", "cardledger", *command],
        env=environment(DATABASE_URL=office.anna),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )

    def is_adding_lines() -> bool:
        found = office.world.rows(
            "SELECT FROM pg_stat_activity WHERE usename = %s AND query LIKE '%%add_lines%%'"
            " AND backend_xid IS NOT NULL",
            office.anna.role,
        )
        return bool(found)

    eventually(is_adding_lines)
    running.kill()
    running.wait()

    eventually(lambda: not is_adding_lines())
    assert network.breaks() == []
    result = network.take(path.read_bytes())
    assert (result.state, result.lines, result.open_breaks) == ("IMPORTED", LINES, count)
    assert result.matched["REFERENCE"] == len(events)
    assert replace(result, state="") == replace(once, state=""), "as in one run"


def test_who_had_a_break_assigned_does_not_resolve_it(network: Network, office: Office) -> None:
    event, missing = clearing(network, "T1", 1_000), clearing(network, "T2", 5)
    network.send(event)
    network.imported(DAY, [network.line(event, amount="1001"), network.line(missing)])
    differs, unknown = sorted(network.breaks(), key=lambda each: each.kind)

    for found in (differs, unknown):
        with acting.as_person(office.carla, may="prepare") as session:
            settlement_files.assign(session, found.id, office.carla.role, None)
            settlement_files.assign(session, found.id, office.anna.role, None)
        for state in ("written_off", "resolved"):
            with (
                pytest.raises(CommandError, match="who never worked on it"),
                acting.as_person(office.carla, may="approve") as session,
            ):
                settlement_files.resolve(session, found.id, state, "mine")
    with (
        pytest.raises(CommandError, match="who never worked on it"),
        acting.as_person(office.carla, may="approve") as session,
    ):
        settlement_files.make_event(session, unknown.id, "mine")
    with acting.as_person(office.ben, may="approve") as session:
        assert settlement_files.resolve(session, unknown.id, "resolved", "ok") == "resolved"


def test_a_missing_file_of_a_cycle_is_in_the_way_of_closing(
    network: Network, office: Office
) -> None:
    day = date.today().replace(day=1) - timedelta(days=2)  # noqa: DTZ011 - of the last month
    events = [clearing(network, f"T{n}", day=day, cycle=str(n)) for n in (1, 2)]
    network.send(*events)
    network.imported(day, [network.line(events[0])], cycle="1")

    def missing() -> list[Any]:
        return office.world.rows(
            "SELECT found, detail FROM finance.in_the_way(%s, %s)"
            " WHERE kind = 'MISSING_FILE' AND detail LIKE %s",
            day.replace(day=1),
            day,
            f"{network.name} of %",
        )

    [(count, detail)] = missing()
    assert (count, detail[-19:]) == (1, f"{day}, cycle 2")
    network.imported(day, [network.line(events[1])], cycle="2")
    assert missing() == []


def test_only_open_breaks_end_the_command_with_1(
    network: Network, office: Office, tmp_path: Path
) -> None:
    event = clearing(network, "T1")
    network.send(event)
    path = tmp_path / "file.csv"
    path.write_bytes(network.file(DAY, [network.line(event)]))
    bad = tmp_path / "bad.csv"
    bad.write_bytes(b"no header")
    away = office.anna.with_database("no-such-database")
    platform = str(network.cardholder.owner.platform_id)

    def refusal(url: DatabaseUrl, *arguments: str) -> str:
        command = ("reconcile", *arguments, "--json")
        ended = run_command(*command, env=environment(DATABASE_URL=url), cwd=tmp_path)
        assert ended.returncode == 2, ended
        assert not ended.stdout
        return ended.stderr

    unknown = "00000000-0000-7000-8000-000000000001"
    assert "there is no platform" in refusal(office.anna, str(path), "--platform", unknown)
    assert "PostgreSQL" in refusal(away, str(path), "--platform", platform)
    assert "PostgreSQL" in refusal(away, "--rematch")
    for file in (path, bad):
        message = refusal(office.ben, str(file), "--platform", platform)
        assert "lacks the right to prepare" in message
        assert "--may prepare" in message
