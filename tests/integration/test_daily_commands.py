"""`transactions`, `explain` and `exceptions`, as the role that can only read."""

import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.command_process import run_command
from tests.databases import as_role
from tests.system.support import environment
from tests.world import Cardholder, World, open_world

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture
def platform(world: World) -> Id:
    return world.platform()


@pytest.fixture
def command(world: World, tmp_path: Path) -> Command:
    """The command in a directory without a system, on the reader's connection."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = environment(DATABASE_URL=as_role(world.app_url, Role.READER))
        return run_command(*arguments, env=env, cwd=tmp_path)

    return run


def as_json(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert finished.returncode == 0, finished.stderr
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


def key_of(world: World, cardholder: Cardholder, token: str) -> Id:
    [(key,)] = world.rows(
        "SELECT id FROM card_transactions WHERE card_id = %s AND issuer_transaction_token = %s",
        cardholder.card_id,
        token,
    )
    assert isinstance(key, Id)
    return key


def owing(world: World, cardholder: Cardholder, token: str, amount: int, *, days: int) -> Id:
    """Return a card transaction that cleared `amount` without funds, `days` ago."""
    then = datetime.now(UTC) - timedelta(days=days, minutes=1)
    clearing = world.clearing(cardholder, token, amount)
    world.process(world.engine(clock=lambda: then), [(cardholder, clearing)])
    return key_of(world, cardholder, token)


# --- transactions ------------------------------------------------------------------------------


def test_transactions_are_listed_page_by_page_newest_first(
    world: World, platform: Id, command: Command
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    engine = world.engine()
    for token in ("T1", "T2", "T3"):
        world.process(engine, [(cardholder, world.authorization(cardholder, token, 1250))])
    of_platform = ("transactions", "--json", "--platform", str(platform), "--limit", "2")

    first = as_json(command(*of_platform))
    second = as_json(command(*of_platform, "--after", first["nextCursor"]))

    tokens = [row["issuerTransactionToken"] for page in (first, second) for row in page["data"]]
    assert tokens == ["T3", "T2", "T1"]
    assert first["hasMore"]
    assert "nextCursor" not in second
    assert second["data"][0]["platformId"] == str(platform)
    assert second["data"][0]["authorizedAmount"]["amount"] == 1250


def test_transactions_are_filtered(world: World, platform: Id, command: Command) -> None:
    cardholder, other = world.cardholder(platform, 50_000), world.cardholder(platform, 50_000)
    engine = world.engine()
    for one in (cardholder, other):
        world.process(engine, [(one, world.authorization(one, "T1", 1250))])
    world.process(engine, [(cardholder, world.clearing(cardholder, "T1", 1500))])
    later = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()

    def listed(*filters: str) -> list[str]:
        found = as_json(command("transactions", "--json", "--platform", str(platform), *filters))
        return [row["cardId"] for row in found["data"]]

    settled, authorized = f"Card:{cardholder.card_id}", f"Card:{other.card_id}"
    assert listed("--status", "SETTLED") == [settled]
    assert listed("--status", "EXCEPTION") == []
    assert listed("--card", settled) == [settled]
    assert listed("--card", str(other.card_id)) == [authorized]
    assert listed("--customer", f"Customer:{other.owner.customer_id}") == [authorized]
    for since in ("2020-01-01", "0001-01-01T00:00:00Z"):
        assert set(listed("--since", since)) == {settled, authorized}
    assert listed("--since", "9999-12-31T23:59:59Z") == []
    assert listed("--since", later) == []


def test_a_row_of_the_table_has_an_id_that_explain_accepts(
    world: World, platform: Id, command: Command
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    world.process(world.engine(), [(cardholder, world.authorization(cardholder, "T1", 12345))])

    table = command("transactions", "--card", str(cardholder.card_id))
    key = table.stdout.splitlines()[1].split()[0]
    explained = command("explain", key)

    assert "123.45 USD" in table.stdout
    assert key == str(key_of(world, cardholder, "T1"))
    assert explained.returncode == 0
    assert explained.stdout.startswith(f"CardTransaction:{key}")


# --- explain -----------------------------------------------------------------------------------


def test_explain_tells_the_tip_with_figures_entries_and_webhooks(
    world: World, platform: Id, command: Command
) -> None:
    cardholder = world.cardholder(platform, 50_000)
    authorization = world.authorization(cardholder, "T1", 1250)
    clearing = world.clearing(cardholder, "T1", 1500)
    for event in (authorization, clearing):
        world.process(world.engine(), [(cardholder, event)])
    key = key_of(world, cardholder, "T1")

    text = command("explain", f"CardTransaction:{key}").stdout
    document = as_json(command("explain", str(key), "--json"))
    by_event = as_json(command("explain", f"test/{clearing['reference']}", "--json"))

    assert "12.50 USD was authorized." in text
    assert "clearing of 15.00 USD was settled" in text
    assert "pullSummary.totalAmount 12.50 USD" in text
    assert "entry 12.50 USD: debit CUSTOMER, credit CARD_HOLDS" in text
    assert f"caused by test/{clearing['reference']}" in text
    assert "CARD_TRANSACTION." in text
    assert document["cardTransaction"]["status"] == "SETTLED"
    assert [event["sequence"] for event in document["events"]] == list(
        range(1, len(document["events"]) + 1)
    )
    assert {webhook["state"] for webhook in document["webhooks"]} == {"NOT_DISPATCHED"}
    assert by_event["events"] == document["events"]
    assert by_event["outcome"]["outcome"] == "APPLIED"


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("test/\udcff", 2, "neither a card transaction nor an event"),
        ("/", 2, "neither a card transaction nor an event"),
        ("CardTransaction:x", 2, "write CardTransaction:<uuid>, the UUID alone, or"),
        ("01900000-0000-7000-8000-000000000000", 1, "no card transaction 01900000-"),
        ("test/unknown", 1, "no event test/unknown was decided"),
    ],
)
def test_explain_says_what_is_wrong_with_a_name(
    command: Command, name: str, code: int, message: str
) -> None:
    finished = command("explain", name)

    assert finished.returncode == code
    assert message in finished.stderr


def test_explain_says_that_an_event_was_a_deposit(
    world: World, platform: Id, command: Command
) -> None:
    cardholder = world.cardholder(platform)
    deposit = world.deposit(cardholder, 100)
    world.process(world.engine(), [(cardholder, deposit)])

    finished = command("explain", f"test/{deposit['reference']}")

    assert finished.returncode == 1
    assert "was APPLIED, without a card transaction" in finished.stderr


# --- exceptions --------------------------------------------------------------------------------


def test_exceptions_are_listed_oldest_first_with_sums_by_age(
    world: World, platform: Id, command: Command
) -> None:
    cardholder = world.cardholder(platform)
    days = {"T1": 0, "T2": 3, "T3": 30, "T4": 2}
    keys = {
        token: owing(world, cardholder, token, 100 * place, days=age)
        for place, (token, age) in enumerate(days.items(), start=1)
    }
    hold = world.event("STAND_IN_AUTHORIZATION", cardholder, "T5", 50)
    [held] = world.process(world.engine(), [(cardholder, hold)])
    assert held.roll_up is not None
    keys["T5"] = held.roll_up.identity.id
    of_platform = ("exceptions", "--platform", str(platform))

    first = as_json(command(*of_platform, "--json", "--limit", "3"))
    second = as_json(command(*of_platform, "--json", "--after", first["nextCursor"]))
    table = command(*of_platform).stdout

    listed = [row["cardTransaction"]["id"] for page in (first, second) for row in page["data"]]
    assert listed == [f"CardTransaction:{keys[token]}" for token in ("T3", "T2", "T4", "T1", "T5")]
    assert [row["owed"] for row in first["data"]] == [300, 200, 400]
    assert [(row["due"], row["owed"]) for row in second["data"]] == [(100, 100), (50, 0)]
    assert [row["ageDays"] for row in first["data"]] == [30, 3, 2]
    assert first["data"][0]["event"]["type"] == "CLEARED"
    assert first["data"][0]["event"]["source"] == "test"
    [sums] = first["sums"]
    assert sums == sums | {"currency": "USD", "due": 1050, "owed": 1000, "count": 5}
    assert sums["ages"] == [
        {"age": "0-1 days", "count": 2, "due": 150, "owed": 100},
        {"age": "2-3 days", "count": 2, "due": 600, "owed": 600},
        {"age": "over 14 days", "count": 1, "due": 300, "owed": 300},
    ]
    assert "10.50 USD due for 5 card transactions, 10.00 USD owed" in table
    assert all(str(key) in table for key in keys.values())


def test_no_exceptions_are_no_error(platform: Id, command: Command) -> None:
    finished = command("exceptions", "--platform", str(platform))

    assert (finished.returncode, finished.stdout) == (0, "none\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("transactions", "--status", "PAID"),
        ("transactions", "--limit", "0"),
        ("transactions", "--since", "yesterday"),
        ("transactions", "--card", "Card:1"),
        ("exceptions", "--after", "x"),
        ("exceptions", "--platform", "acme"),
    ],
)
def test_a_wrong_option_is_a_usage_error(command: Command, arguments: tuple[str, ...]) -> None:
    finished = command(*arguments)

    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
