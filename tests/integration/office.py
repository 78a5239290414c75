"""The books of a month that is over, and the commands with which two people close it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from cardledger.embedded.servers import DatabaseUrl
from tests.command_process import run_command
from tests.databases import OwnRoles
from tests.people_of_finance import open_office
from tests.system.support import environment
from tests.world import Cardholder, World, open_world, outcomes_of

TODAY: Final = datetime.now(UTC).date()
OPEN: Final = TODAY.replace(day=1)
LAST: Final = OPEN - timedelta(days=1)
FIRST: Final = LAST.replace(day=1)
"""First day of the last month, the first that can be closed."""
MONTH: Final = f"{FIRST:%Y-%m}"


@dataclass(frozen=True, slots=True)
class Office:
    """A database whose books are open from `FIRST` on, and the logins of its people."""

    world: World
    anna: DatabaseUrl  # May prepare.
    ben: DatabaseUrl  # May approve.
    carla: DatabaseUrl  # May do both.
    folder: Path

    def close(self, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = environment(DATABASE_URL=url)
        return run_command("close", *arguments, env=env, cwd=self.folder)

    def state(self, url: str, *arguments: str) -> dict[str, str]:
        ended = self.close(url, *arguments, "--json")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found: dict[str, str] = json.loads(ended.stdout)
        assert found.keys() == {"id", "state"}
        return found

    def refusal(self, url: str, *arguments: str, code: int = 1) -> str:
        ended = self.close(url, *arguments)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr
        return ended.stderr

    def verify(self) -> subprocess.CompletedProcess[str]:
        env = environment(DATABASE_URL=self.world.app_url)
        return run_command("verify", "--json", env=env, cwd=self.folder)

    def closed(self) -> str:
        """Close the last month; return the closing."""
        verified = self.verify()
        assert verified.returncode == 0, verified.stdout
        key = self.state(self.anna, MONTH)["id"]
        assert self.state(self.ben, "approve", key) == {"id": key, "state": "SEALED"}
        return key

    def first_open_day(self) -> date:
        [(day,)] = self.world.rows("SELECT first_open_day FROM books")
        found: date = day
        return found

    def process(self, cardholder: Cardholder, *events: dict[str, Any]) -> list[str]:
        sent = [(cardholder, event) for event in events]
        return outcomes_of(self.world.process(self.world.engine(), sent))

    def dates(self, event: dict[str, Any]) -> set[tuple[date, date | None]]:
        """Return the posting days of the entries of `event`, and from which day they are late."""
        return set(
            self.world.rows(
                "SELECT n.posted_on, n.late_from FROM outcomes o JOIN card_transaction_events e"
                " ON e.message_id = o.message_id JOIN entries n"
                " ON n.subject_id = e.card_transaction_id AND n.sequence = e.sequence"
                " WHERE o.reference = %s",
                event["reference"],
            )
        )


@contextmanager
def opened(own_roles: OwnRoles, folder: Path) -> Iterator[Office]:
    """Yield books of their own, which begin with the last month."""
    with open_office(own_roles) as people:
        with psycopg.connect(people.owner, autocommit=True) as connection:
            connection.execute("UPDATE books SET first_open_day = %s", [FIRST])
        with open_world(people.owner, people.app) as world:
            yield Office(world, people.anna, people.ben, people.dora, folder)
