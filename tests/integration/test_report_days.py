"""The days of reports are those of the calendar of the books."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries import report_snapshot
from cardledger.schema.roles import Role
from tests.command_process import run_command
from tests.databases import as_role
from tests.system.support import environment
from tests.world import World, open_world

# Fourteen hours ahead of UTC: most of the time it has another date.
FAR: ZoneInfo = ZoneInfo("Pacific/Kiritimati")


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def test_a_report_is_about_today_in_the_time_zone_of_the_books(
    world: World, tmp_path: Path
) -> None:
    world.connection.execute(
        "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days)"
        " VALUES ('BOOKS', '2020-01-01', 'UTC', '00:00', '{1,2,3,4,5,6,7}'),"
        " ('BOOKS', '2020-02-01', %s, '00:00', '{1,2,3,4,5,6,7}'),"
        " ('BOOKS', '2999-01-01', 'UTC', '00:00', '{1,2,3,4,5,6,7}')",
        [FAR.key],
    )
    env = environment(DATABASE_URL=as_role(world.app_url, Role.FINANCE))
    before = datetime.now(FAR).date()

    finished = run_command("report", "trial-balance", "--format", "json", env=env, cwd=tmp_path)

    document = json.loads(finished.stdout)
    assert document["timeZone"] == FAR.key
    assert document["on"] in {str(before), str(datetime.now(FAR).date())}


def test_a_day_begins_at_the_cut_off_and_a_holiday_rolls_forward(world: World) -> None:
    first = datetime.now(UTC).date() + timedelta(days=1)
    holidays = [first + timedelta(days=number) for number in range(3)]
    # Later than the version of the test above, which it replaces.
    world.connection.execute(
        "INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, holidays)"
        " VALUES ('BOOKS', '2020-03-01', 'UTC', '00:01', '{1,2,3,4,5,6,7}', %s)",
        [holidays],
    )

    with report_snapshot.opened(as_role(world.app_url, Role.FINANCE)) as snapshot:
        is_after_cut_off = (snapshot.at.hour, snapshot.at.minute) >= (0, 1)

    expected = first + timedelta(days=3) if is_after_cut_off else snapshot.at.date()
    assert snapshot.today == expected
    assert snapshot.time_zone == "UTC"
