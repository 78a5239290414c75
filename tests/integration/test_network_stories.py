"""Files of a network with every kind of break: exactly those are found, with causes and proofs.

NETWORK_SEEDS is the number of seeds, FIRST_NETWORK_SEED the first of them; with either, there is a
month of files for every second seed, which takes five times as long as all of the rest.
"""

import os
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any, Final

import pytest

from cardledger.install.settlement_files import Result
from tests.databases import OwnRoles
from tests.finance_world import Network
from tests.integration.office import Office, opened
from tests.network_plan import FileKey, Plan, Sent, found_breaks
from tests.network_stories import LATE_STORIES, STORIES, planned
from tests.world import Cardholder

FIRST_SEED: Final = int(os.environ.get("FIRST_NETWORK_SEED", "1"))
IS_LONG: Final = not {"NETWORK_SEEDS", "FIRST_NETWORK_SEED"}.isdisjoint(os.environ)
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("NETWORK_SEEDS", "2")))

END_OF_SUMMER_TIME: Final = [date(2026, 10, 31) + timedelta(days=n) for n in range(3)]
OCTOBER: Final = [
    day
    for day in (date(2026, 10, 1) + timedelta(days=n) for n in range(31))
    if day.isoweekday() <= 5
]


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(own_roles, tmp_path_factory.mktemp("stories")) as made:
        yield made
        report = made.world.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def cardholder(office: Office) -> Cardholder:
    return office.world.cardholder(office.world.platform(), 1_000_000_000)


@pytest.fixture
def network(office: Office, cardholder: Cardholder) -> Network:
    found = Network(office.world, cardholder, office.anna)
    office.world.connection.execute(
        "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, holidays)"
        " VALUES (%s, '2026-01-01', 'America/New_York', '17:00', '{1,2,3,4,5,6,7}', '{}')",
        [found.name],
    )
    return found


def send(plan: Plan, *, is_late: bool) -> None:
    events = [each for each in plan.events if each.is_late is is_late]
    outcomes = plan.network.send(*(each.body for each in events))
    wrong = [
        (each.body, outcome)
        for each, outcome in zip(events, outcomes, strict=True)
        if each.outcome != outcome
    ]
    assert not wrong


def imported(plan: Plan) -> dict[FileKey, bytes]:
    """Import the files of `plan` in their order; return them."""
    files = {}
    for file in plan.files:
        day, cycle = file
        rows = plan.rows(file)
        if rows:
            files[file] = plan.network.file(
                day, rows, cycle=cycle or "", file_id=f"{plan.network.name}-{day}-{cycle}"
            )
    results = {file: plan.network.take(data) for file, data in files.items()}
    assert {each.state for each in results.values()} == {"IMPORTED"}
    return files


def check(plan: Plan, files: dict[FileKey, bytes], *, is_late: bool) -> None:
    """Compare every break, match and proof with what must be."""
    network = plan.network
    ids = {f"{network.name}-{day}-{cycle}": (day, cycle) for day, cycle in files}
    found = found_breaks([each for each in network.breaks() if each.file_id in ids], ids)
    wanted = plan.wanted_breaks(is_late=is_late)
    wrong = [
        (which, plan.story_of(key), key)
        for which, of in (("found", found - wanted), ("lacks", wanted - found))
        for key in of.elements()
    ]
    assert not wrong
    actual = {key: match for key, match in matches(plan).items() if key[:2] in files}
    assert actual == wanted_matches(plan, is_late=is_late)
    for file, data in files.items():
        result = network.take(data)
        assert result.state == "ALREADY_IMPORTED"
        of_file = [key for key in wanted.elements() if key[:2] == file]
        assert result.open_breaks == sum(key[4] == "open" for key in of_file)
        assert proofs(result) == plan.wanted_proofs(file, is_late=is_late)


def proofs(result: Result) -> dict[str, Any]:
    found = {each.currency: each for each in result.proof}
    assert len(found) == len(result.proof)
    return found


def matches(plan: Plan) -> dict[tuple[date, str | None, int], tuple[str, str]]:
    """Return rule and reference of the event of each line that is matched."""
    rows = plan.network.world.rows(
        "SELECT f.settlement_date, f.cycle, m.line, m.rule, o.reference"
        " FROM line_matches m JOIN network_files f ON f.id = m.file_id"
        " JOIN card_transaction_events e ON e.card_transaction_id = m.card_transaction_id"
        " AND e.sequence = m.sequence JOIN outcomes o ON o.message_id = e.message_id"
        " WHERE f.network = %s",
        plan.network.name,
    )
    found = {(day, cycle, line): (rule, reference) for day, cycle, line, rule, reference in rows}
    assert len(found) == len(rows)
    return found


def wanted_matches(
    plan: Plan, *, is_late: bool
) -> dict[tuple[date, str | None, int], tuple[str, str]]:
    """Return the same as must be, of lines and events that are interchangeable as they are."""
    actual = matches(plan)
    found = {}
    for match in plan.wanted_matches(is_late=is_late):
        keys = sorted((*line.file, line.number) for line in match.lines)[: len(match.events)]
        left: list[Sent] = list(match.events)
        for key in keys:
            of_key = actual.get(key, (match.rule, ""))[1]
            event = next((each for each in left if each.body["reference"] == of_key), left[0])
            left.remove(event)
            found[key] = match.rule, event.body["reference"]
    return found


# A month takes twenty times as long as three days.
@pytest.mark.parametrize(
    ("days", "seed"),
    [pytest.param(END_OF_SUMMER_TIME, seed, id=f"clocks-{seed}") for seed in SEEDS]
    + [pytest.param(OCTOBER[:8], seed, id=f"weeks-{seed}") for seed in SEEDS[::2]]
    + [pytest.param(OCTOBER, seed, id=f"month-{seed}") for seed in SEEDS[::2] if IS_LONG],
)
def test_exactly_the_planned_breaks_are_found(
    network: Network, days: list[date], seed: int
) -> None:
    stories = STORIES if len(days) < 10 else STORIES * 2
    plan = planned(network, seed, days, stories)
    send(plan, is_late=False)

    files = imported(plan)

    check(plan, files, is_late=False)
    before = network.breaks()
    network.rematch()
    assert network.breaks() == before, "nothing has come meanwhile"

    send(plan, is_late=True)
    network.rematch()

    check(plan, files, is_late=True)
    before = network.breaks()
    network.rematch()
    assert network.breaks() == before


def test_a_later_file_resolves_what_late_events_explain(network: Network) -> None:
    plan = planned(network, FIRST_SEED, END_OF_SUMMER_TIME, LATE_STORIES)
    known = network.event("CLEARING", "known", 1, date(2026, 11, 3))
    network.send(known)
    send(plan, is_late=False)
    files = imported(plan)
    ids = {f"{network.name}-{day}-{cycle}": (day, cycle) for day, cycle in files}
    send(plan, is_late=True)

    network.take(network.file(date(2026, 11, 3), [network.line(known)]))

    # Events that are in no file are found by --rematch.
    wanted = [
        key for key in plan.wanted_breaks(is_late=True).elements() if key[2] != "IN_LEDGER_ONLY"
    ]
    found = found_breaks([each for each in network.breaks() if each.file_id in ids], ids)
    found_of_lines = [key for key in found.elements() if key[2] != "IN_LEDGER_ONLY"]
    assert sorted(map(str, found_of_lines)) == sorted(map(str, wanted))
    assert matches(plan).items() >= wanted_matches(plan, is_late=True).items()
    network.rematch()
    check(plan, files, is_late=True)
