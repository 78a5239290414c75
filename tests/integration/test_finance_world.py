"""Three days of a network with any events and any edits of its files: the proof holds, always.

The days are those on which summer time and a month end.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardledger.install.settlement_files import Result
from tests.databases import OwnRoles
from tests.finance_world import Network, due
from tests.integration.office import Office, opened
from tests.settlement_files import Row
from tests.world import Cardholder

DAYS: Final = (date(2026, 10, 31), date(2026, 11, 1), date(2026, 11, 2))
EDITS: Final = (
    *("KEEP",) * 4,
    *("DROP", "TWICE", "AMOUNT", "TYPE", "CURRENCY", "NO_REFERENCE", "ONLY_CARD"),
    *("UNKNOWN", "NEXT_DAY", "LATE_EVENT", "SWAP", "OTHER_CARD"),
)

EXAMPLES: Final = int(os.environ.get("NETWORK_EXAMPLES", "12"))

Planned = tuple[str, int, int, str]

plans = st.lists(
    st.tuples(
        st.sampled_from(["CLEARING", "CLEARING", "RETURN", "CLEARING_REVERSAL"]),
        st.integers(1, 3),  # Equal amounts are likely.
        st.integers(0, len(DAYS) - 1),
        st.sampled_from(EDITS),
    ),
    min_size=1,
    max_size=9,
)


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(own_roles, tmp_path_factory.mktemp("world")) as made:
        yield made
        report = made.world.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def cardholder(office: Office) -> Cardholder:
    return office.world.cardholder(office.world.platform(), 10_000_000)


def events_of(network: Network, plan: list[Planned]) -> list[tuple[dict[str, Any], str, int]]:
    """Return an event for each part of the plan, with its edit and its day."""
    merchant = {"descriptor": "KIOSK", "mcc": "5411", "country": "US"}
    return [
        (
            network.event(
                kind,
                f"T{n}" if kind != "CLEARING" else f"T{n % 3}",
                amount * 100,
                DAYS[day],
                merchant=merchant,
                occurredAt=f"{DAYS[day]}T05:30:00Z",
            ),
            edit,
            day,
        )
        for n, (kind, amount, day, edit) in enumerate(plan)
    ]


def lines_of(network: Network, event: dict[str, Any], edit: str, day: int) -> list[tuple[int, Row]]:
    """Return the lines that the edited files have for an event, each with its day."""
    line = network.line(event, transaction_date=str(DAYS[day]))
    changes: dict[str, dict[str, str]] = {
        "AMOUNT": {"amount": str(event["amount"] + 7)},
        "TYPE": {"type": "CREDIT" if line["type"] != "CREDIT" else "PRESENTMENT"},
        "CURRENCY": {"currency": "EUR"},
        "NO_REFERENCE": {"reference": ""},
        "ONLY_CARD": {"reference": "", "token": ""},
        "UNKNOWN": {"reference": f"unknown-{event['reference']}", "token": ""},
        "OTHER_CARD": {"card_id": "Card:00000000-0000-7000-8000-000000000001"},
    }
    if edit == "DROP":
        return []
    if edit == "TWICE":
        return [(day, line), (day, line)]
    if edit == "NEXT_DAY":
        return [(min(day + 1, len(DAYS) - 1), line)]
    return [(day, line | changes.get(edit, {}))]


def ledger_of(network: Network, events: list[dict[str, Any]]) -> Counter[str]:
    """Return what the applied events of each settlement date add up to.

    A reversal that was parked is applied once its clearing comes.
    """
    applied = {
        reference
        for (reference,) in network.world.rows(
            "SELECT reference FROM finance.events WHERE event IN"
            " ('CLEARED', 'CLEARING_REVERSED', 'REFUNDED', 'REFUND_REVERSED')"
            " AND reference LIKE %s",
            f"{network.name}-%",
        )
    }
    found: Counter[str] = Counter()
    for event in events:
        if event["reference"] in applied:
            found[event["settlement"]["settlementDate"]] += due(event)
    return found


def check(result: Result, ledger: Counter[str]) -> None:
    for proof in result.proof:
        has = ledger[str(result.settlement_date)] if proof.currency == "USD" else 0
        assert proof.ledger == has
        assert proof.ledger + proof.difference == proof.file


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plan=plans)
def test_ledger_and_differences_are_the_file_for_any_edits(
    office: Office, cardholder: Cardholder, plan: list[Planned]
) -> None:
    network = Network(office.world, cardholder, office.anna)
    planned = events_of(network, plan)
    first = [event for event, edit, _ in planned if edit != "LATE_EVENT"]
    late = [event for event, edit, _ in planned if edit == "LATE_EVENT"]
    known = network.event("CLEARING", "known", 1, date(2026, 10, 1))  # The network is known.
    *outcomes, _ = network.send(*first, known)
    ledger = ledger_of(network, first)
    files: dict[int, list[Row]] = defaultdict(list)
    for event, edit, day in planned:
        for line_day, line in lines_of(network, event, edit, day):
            files[line_day].append(line)
            lines_to_swap = [line for each in files.values() for line in each][-2:]
            if edit == "SWAP" and len(lines_to_swap) > 1:
                one, other = lines_to_swap
                one["reference"], other["reference"] = other["reference"], one["reference"]
    data = {day: network.file(DAYS[day], files[day]) for day in sorted(files)}

    for day, content in data.items():
        result = network.take(content)
        assert result.lines == len(files[day])
        network.check_proof(result, files[day])
        check(result, ledger)
        edits = {edit for _, edit, _ in planned}
        if edits <= {"KEEP"} and set(outcomes) <= {"APPLIED"}:
            assert network.breaks() == []

    if late:
        network.send(*late)
        ledger = ledger_of(network, [*first, *late])
    network.rematch()
    for day, content in data.items():
        again = network.take(content)
        assert again.state == "ALREADY_IMPORTED"
        network.check_proof(again, files[day])
        # An event of a closed day is posted later, and is of its settlement date all the same.
        check(again, ledger)

    before = network.breaks()
    network.rematch()
    assert network.breaks() == before
    [(matched, lines, matched_events)] = office.world.rows(
        "SELECT count(*), count(DISTINCT (m.file_id, m.line)),"
        " count(DISTINCT (m.card_transaction_id, m.sequence))"
        " FROM line_matches m JOIN network_files f ON f.id = m.file_id WHERE f.network = %s",
        network.name,
    )
    assert matched == lines == matched_events
