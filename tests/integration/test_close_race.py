"""Days are closed while other processes book events of their last minute at full speed.

`CARDLEDGER_CLOSE_ROUNDS=20` repeats it as often; the suite does so a few times.
"""

import os
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pytest

from cardledger.ledger.books import closings, periods
from tests.databases import OwnRoles
from tests.integration import office as offices
from tests.integration.office import FIRST, Office
from tests.waiting import eventually
from tests.world import Cardholder, World

ROUNDS: Final = int(os.environ.get("CARDLEDGER_CLOSE_ROUNDS", "3"))
WRITERS: Final = 2
BATCH: Final = 20
ALLOWED: Final = dict.fromkeys(("INBOX", "UNVERIFIED"), "the day is still being booked")


@pytest.fixture
def office(own_roles: OwnRoles, tmp_path: Path) -> Iterator[Office]:
    with offices.opened(own_roles, tmp_path) as made:
        yield made


def book(  # noqa: PLR0913, PLR0917 - what a process is given
    url: str,
    app_url: str,
    cardholder: Cardholder,
    day: Any,  # noqa: ANN401 - a number that processes share
    stopped: Any,  # noqa: ANN401 - an event that processes share
    booked: Any,  # noqa: ANN401 - the same as `day`
) -> None:
    """Book events of the last minute of `day` until `stopped`; count them in `booked`."""
    world = World(url, app_url)
    engine = world.engine()
    number = 0
    while not stopped.is_set():
        at = f"{date.fromordinal(day.value)}T23:59:{number % 60:02}Z"
        events = [
            world.clearing(cardholder, f"T{number}-{each}", 100, occurredAt=at)
            | {"reference": f"{number}-{each}"}  # Not that of the deposit.
            for each in range(BATCH)
        ]
        world.process(engine, [(cardholder, event) for event in events])
        number += 1
        with booked.get_lock():
            booked.value += BATCH
    world.close()


def test_no_entry_comes_into_a_day_after_its_seal_and_none_is_lost(office: Office) -> None:
    world = office.world
    cardholders = [world.cardholder(world.platform(), 10**9) for _ in range(WRITERS)]
    processes = get_context("spawn")
    day = processes.Value("i", FIRST.toordinal())
    booked, stopped = processes.Value("i", 0), processes.Event()
    writers = [
        processes.Process(target=book, args=(world.url, world.app_url, each, day, stopped, booked))
        for each in cardholders
    ]
    for writer in writers:
        writer.start()
    try:
        for number in range(ROUNDS):
            enough = booked.value + 2 * WRITERS * BATCH
            eventually(partial(is_reached, booked, enough))
            close(office, FIRST + timedelta(days=number))
            day.value += 1
    finally:
        stopped.set()
        for writer in writers:
            writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS

    applied = world.rows(
        "SELECT count(*), count(DISTINCT reference) FROM outcomes WHERE outcome = 'APPLIED'"
        " AND customer_id = %s OR customer_id = %s",
        *(each.owner.customer_id for each in cardholders),
    )
    cleared = world.rows(
        "SELECT count(*), sum(amount) FROM finance.journal WHERE event = 'CLEARED'"
    )
    assert cleared == [(booked.value, 100 * booked.value)]
    assert applied[0][0] == booked.value + WRITERS, "with a deposit each"
    later = world.rows(
        "SELECT p.last_day, count(*) FROM finance.periods p JOIN entries e"
        " ON e.posted_on BETWEEN p.first_day AND p.last_day AND e.recorded_at > p.decided_at"
        " GROUP BY 1"
    )
    assert later == []
    assert world.rows("SELECT count(*), bool_and(entries > 0) FROM finance.periods") == [
        (ROUNDS, True)
    ]
    assert world.rows("SELECT count(*) > 0 FROM entries WHERE late_from IS NOT NULL") == [(True,)]
    assert world.count("rejections") == world.count("stalled_queues") == 0
    report = world.verify()
    assert report.holds, report.differences


def is_reached(booked: Any, enough: int) -> bool:  # noqa: ANN401 - a number that processes share
    return bool(booked.value >= enough)


def close(office: Office, day: date) -> None:
    with closings.opened(office.anna) as books:
        made = books.prepare(periods.day(str(day)), ALLOWED)
    with closings.opened(office.ben) as books:
        assert books.approve(made) == "SEALED"
