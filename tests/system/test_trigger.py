"""Stories on a running sandbox: `cardledger trigger`, and those that the documentation tells."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cardledger.commands.daily.stories import STORIES
from cardledger.embedded.servers import DatabaseUrl
from tests import tutorials
from tests.system import support
from tests.system.support import Up
from tests.waiting import limit_s

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: DatabaseUrl, redis_url: str
) -> Iterator[Up]:
    with support.own_database(postgres_url) as database_url:
        env = support.environment(DATABASE_URL=database_url, REDIS_URL=redis_url)
        with support.up(tmp_path_factory.mktemp("up"), env) as running:
            yield running


def command(system: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    return support.run(*arguments, "--data-dir", str(system.data_dir))


def triggered(system: Up, *arguments: str) -> dict[str, Any]:
    finished = command(system, "trigger", *arguments, "--json")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_with_its_figures(system: Up, name: str) -> None:
    played = triggered(system, name)

    last = STORIES[name].steps[-1].expected
    assert played["deviations"] == []
    assert played["steps"][-1]["account"]["balance"] == last.balance
    assert played["steps"][-1]["cardTransaction"]["status"] == last.status


@pytest.mark.parametrize(
    "arguments",
    [
        "transactions",
        "transactions --json",
        "exceptions",
        "top",
        "parked list",
        "rejections list",
        "webhooks deliveries",
    ],
)
def test_a_reader_that_has_left_is_one_exit_code(system: Up, arguments: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as nowhere:
        finished = subprocess.run(
            [*support.COMMAND, *arguments.split(), "--data-dir", str(system.data_dir)],
            stdout=nowhere,
            stderr=subprocess.PIPE,
            env=system.env,
            check=False,
            text=True,
            timeout=limit_s(),
        )

    assert (finished.returncode, finished.stderr) == (141, "")


def test_a_story_can_be_played_on_an_existing_card(system: Up) -> None:
    first = triggered(system, "tip")

    second = triggered(system, "tip", "--card", first["cardId"])
    declined = triggered(system, "insufficient-funds", "--card", first["cardId"])

    assert second["cardId"] == declined["cardId"] == first["cardId"]
    assert second["steps"][-1]["account"]["balance"] == 50_000 - 2 * 1_500
    assert declined["steps"][-1]["cardTransaction"]["status"] == "DECLINED"


def test_the_last_line_is_the_command_that_explains_the_story(system: Up) -> None:
    text = command(system, "trigger", "tip").stdout

    name, *explain = text.splitlines()[-1].split()
    explained = support.run(*explain)

    assert name == "cardledger"
    assert "AUTHORIZATION 12.50 USD" in text
    assert explained.returncode == 0, explained.stderr
    assert "12.50 USD was authorized." in explained.stdout
    assert "clearing of 15.00 USD was settled" in explained.stdout


def test_the_lists_show_what_the_stories_made(system: Up) -> None:
    made = triggered(system, "hotel")

    listed = json.loads(command(system, "transactions", "--json", "--limit", "1").stdout)
    owed = command(system, "exceptions", "--json")
    sample = json.loads(command(system, "top", "--once", "--json").stdout)

    assert listed["data"][0]["id"] == made["cardTransactionId"]
    assert json.loads(owed.stdout)["data"] == []
    assert sample["decisionsPerSecond"]["APPLIED"] > 0
    assert sample["missing"] == []


def test_an_unknown_card_is_a_failure(system: Up) -> None:
    finished = command(system, "trigger", "tip", "--card", "01900000-0000-7000-8000-000000000000")

    assert finished.returncode == 1
    assert "was answered 404" in finished.stderr


# --- pages of the documentation ------------------------------------------------------------------

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("curl", "jq", "psql"))), reason="curl, jq or psql is not installed"
)


def check_commands(page: str, system: Up, directory: Path, **variables: str) -> None:
    """Assert that the commands of a page print what it says."""
    shutil.copy(system.ready_file, directory / "ready.json")
    text = (tutorials.ROOT / page).read_text(encoding="utf-8")
    steps = tutorials.steps(text.partition("\n## What is in it\n")[0])
    environment = {**system.env, "CARDLEDGER_DATA_DIR": str(system.data_dir), **variables}

    printed = tutorials.execute(steps, directory, environment)

    for step, output in zip(steps, printed, strict=True):
        tutorials.check(step, output)
    assert any(step.printed for step in steps)


@needs_tools
@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/1-the-tip.md"])
def test_the_commands_of_a_page_print_what_it_says(system: Up, page: str, tmp_path: Path) -> None:
    check_commands(page, system, tmp_path)


@needs_tools
def test_the_service_of_the_tutorial_commits_a_bill_with_its_events(
    system: Up, tmp_path: Path
) -> None:
    owner = DatabaseUrl(system.env["DATABASE_URL"])
    service = owner.with_user("bistro", "secret").replace("postgresql://", "postgresql+psycopg://")
    try:
        check_commands(
            "docs/tutorials/2-your-service.md",
            system,
            tmp_path,
            OWNER_URL=owner,
            SERVICE_URL=service,
        )
    finally:
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS public.bills")
            connection.execute("DROP ROLE IF EXISTS bistro")
