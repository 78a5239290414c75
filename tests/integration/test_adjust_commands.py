"""`cardledger adjust`: what people see of adjustments, and what each may do."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role
from tests.command_process import run_command
from tests.databases import OwnRoles
from tests.integration.workers import dead_redis, working
from tests.people_of_finance import Office, open_office
from tests.system.support import environment
from tests.world import World, open_world

__all__ = ["dead_redis"]  # A fixture.

Finished = subprocess.CompletedProcess[str]

MOVE: Final = (
    *("move", "--from", "NETWORK_SETTLEMENT", "--to", "SETTLEMENT_BANK"),
    *("--currency", "USD", "--reason", "paid by hand"),
)


@pytest.fixture(scope="module")
def office(own_roles: OwnRoles) -> Iterator[Office]:
    with open_office(own_roles) as made:
        yield made


@pytest.fixture(scope="module")
def world(office: Office, dead_redis: str) -> Iterator[World]:
    """A world with a worker, whose books are proved once everything has happened in it."""
    with open_world(office.owner, office.app) as made:
        with working(made, dead_redis):
            yield made
        report = made.verify()
        assert report.holds, report.differences


@pytest.fixture(scope="module")
def platform(world: World) -> Id:
    return world.platform()


def adjust(url: str, *arguments: str) -> Finished:
    return run_command("adjust", *arguments, env=environment(DATABASE_URL=url))


def prepared(office: Office, *arguments: str) -> str:
    """Return the id of a move that Anna prepares."""
    finished = adjust(office.anna, *MOVE, "--amount", "12.34", "--json", *arguments)
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document.keys() == {"id", "state"}
    assert document["state"] == "PREPARED"
    return str(document["id"])


def shown(office: Office, key: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(adjust(office.ben, "show", key, "--json").stdout)
    return document


def refused(finished: Finished, sentence: str, *, code: int = 1) -> None:
    assert finished.returncode == code, finished
    assert sentence in finished.stderr
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    assert finished.stdout == ""


def test_two_people_book_a_move(world: World, office: Office, platform: Id) -> None:
    key = prepared(office)

    approved = adjust(office.ben, "approve", key, "--json")

    assert approved.returncode == 0, approved.stderr
    assert json.loads(approved.stdout) == {"id": key, "state": "BOOKED"}
    document = shown(office, key)
    assert document.pop("preparedAt") < document.pop("decidedAt") < document.pop("bookedAt")
    assert document == {
        "id": key,
        "state": "BOOKED",
        "kind": "MOVE",
        "platformId": str(platform),
        "amount": 1_234,
        "currency": "USD",
        "from": "NETWORK_SETTLEMENT",
        "to": "SETTLEMENT_BANK",
        "reason": "paid by hand",
        "preparedBy": office.anna.role,
        "decidedBy": office.ben.role,
    }
    assert world.rows("SELECT amount FROM entries WHERE subject_id = %s", key) == [(1_234,)]


def test_two_people_take_back_a_move_of_the_bank(office: Office, platform: Id) -> None:
    key = prepared(office)
    refused(adjust(office.anna, "reverse", key, "--reason", "x"), "nothing is booked that could be")
    assert adjust(office.ben, "approve", key).returncode == 0

    reversal = adjust(office.anna, "reverse", key, "--reason", "a statement has it", "--json")

    assert reversal.returncode == 0, reversal.stderr
    document = json.loads(reversal.stdout)
    assert document["state"] == "PREPARED"
    assert adjust(office.ben, "approve", document["id"]).returncode == 0
    found = shown(office, document["id"])
    assert (found["from"], found["to"]) == ("SETTLEMENT_BANK", "NETWORK_SETTLEMENT")
    assert (found["amount"], found["reversesId"]) == (1_234, key)
    assert f"\nreverses  {key}\n" in adjust(office.ben, "show", document["id"]).stdout
    assert found["platformId"] == str(platform)


def test_the_words_of_people_say_the_same(office: Office, platform: Id) -> None:
    assert platform
    key = prepared(office)
    rejected = adjust(office.ben, "reject", key, "--reason", "not ours\x1b[31m")

    text = adjust(office.anna, "show", key).stdout
    listing = adjust(office.anna, "list", "--state", "REJECTED").stdout

    assert rejected.stdout == f"adjustment {key} REJECTED\n"
    assert f"{key}  REJECTED  12.34 USD  MOVE NETWORK_SETTLEMENT -> SETTLEMENT_BANK" in text
    assert f"  {office.anna.role}\nrejected  " in text
    assert "because   not ours?[31m" in text
    [line] = [line for line in listing.splitlines() if line.startswith(key)]
    assert line.endswith(
        f"REJECTED  12.34 USD  MOVE NETWORK_SETTLEMENT -> SETTLEMENT_BANK  {office.anna.role}"
    )


def test_a_list_is_of_one_state_or_of_all(office: Office, platform: Id) -> None:
    assert platform
    first, second = prepared(office), prepared(office)
    adjust(office.carl, "reject", second, "--reason", "twice")

    def ids(*arguments: str) -> list[str]:
        found = json.loads(adjust(office.anna, "list", "--json", *arguments).stdout)
        return [each["id"] for each in found]

    assert ids()[:2] == [second, first]
    assert first in ids("--state", "PREPARED")
    assert second not in ids("--state", "PREPARED")
    assert ids("--limit", "1") == [second]
    assert adjust(office.anna, "list", "--state", "LOST").returncode == 2


def test_each_mistake_is_one_clear_line(office: Office, platform: Id) -> None:
    assert platform
    mine = adjust(office.dora, *MOVE, "--amount", "1", "--json")
    own = str(json.loads(mine.stdout)["id"])
    key, unknown = prepared(office), str(new_id())
    adjust(office.ben, "reject", key, "--reason", "no")

    refused(adjust(office.dora, "approve", own), "was prepared by this person")
    refused(adjust(office.dora, "reject", own, "--reason", "x"), "was prepared by this person")
    refused(
        adjust(office.carl, "approve", key),
        f"is REJECTED already: it was rejected by {office.ben.role}",
    )
    refused(adjust(office.ben, "approve", unknown), f"there is no adjustment {unknown}")
    refused(adjust(office.ben, "show", unknown), f"there is no adjustment {unknown}")
    refused(adjust(office.ben, "approve", "x"), "is not the id of an adjustment", code=2)
    refused(adjust(office.anna, "approve", own), "cardledger person add NAME --may approve")
    refused(adjust(office.ben, *MOVE, "--amount", "1"), "person add NAME --may prepare")
    refused(adjust(office.as_role(Role.FINANCE), *MOVE, "--amount", "1"), "role")
    refused(adjust(office.carl, "reject", own, "--reason", " "), "1 to 1000 characters")
    assert adjust(office.carl, "reject", own, "--reason", "done").returncode == 0
    refused(adjust(office.carl, "reject", own, "--reason", "x"), "is REJECTED already")


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        (("--amount", "12.345"), "USD has 2 decimals", 2),
        (("--amount", "0"), "more than 0", 2),
        (("--amount", "92233720368547758.08"), "at most 9223372036854775807", 2),
        (("--amount", "1", "--currency", "XXX"), "not a currency of the books", 2),
        (("--amount", "1", "--platform", "x"), "not an id", 2),
        (("--amount", "1", "--from", "RECEIVABLE"), "cannot be moved by hand", 1),
        (("--amount", "1", "--to", "customer"), "cannot be moved by hand", 1),
        (("--amount", "1", "--to", "NETWORK_SETTLEMENT"), "to itself", 1),
        (("--amount", "1", "--from", "CASH"), "no platform has an account 'CASH' in USD", 1),
        (("--amount", "1", "--platform", str(new_id())), "has no account", 1),
        (("--amount", "1", "--reason", ""), "1 to 1000 characters", 1),
    ],
)
def test_a_move_that_makes_no_sense_is_refused_before_anyone_approves(
    office: Office, platform: Id, arguments: tuple[str, ...], sentence: str, code: int
) -> None:
    assert platform

    refused(adjust(office.anna, *MOVE, *arguments), sentence, code=code)


def test_amounts_have_the_decimals_of_their_currency(
    world: World, office: Office, platform: Id
) -> None:
    for currency, decimals in (("KWD", 3), ("JPY", 0)):
        world.connection.execute(
            "INSERT INTO currencies VALUES (%s, %s) ON CONFLICT DO NOTHING", [currency, decimals]
        )
        for kind in ("NETWORK_SETTLEMENT", "SETTLEMENT_BANK"):
            world.connection.execute(
                "INSERT INTO system_accounts (id, platform_id, currency, kind)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [new_id(), platform, currency, kind],
            )

    made = [
        adjust(office.anna, *MOVE, "--currency", currency, "--amount", amount, "--json")
        for currency, amount in (("KWD", "1.234"), ("JPY", "1234"))
    ]
    keys = [json.loads(finished.stdout)["id"] for finished in made]
    booked = [adjust(office.ben, "approve", key) for key in keys]

    assert [finished.returncode for finished in booked] == [0, 0]
    assert [shown(office, key)["amount"] for key in keys] == [1_234, 1_234]
    assert "1.234 KWD" in adjust(office.anna, "show", keys[0]).stdout
    assert "1,234 JPY" in adjust(office.anna, "show", keys[1]).stdout


def test_several_platforms_need_a_name(world: World, office: Office, platform: Id) -> None:
    world.platform()

    ambiguous = adjust(office.anna, *MOVE, "--amount", "1")

    refused(ambiguous, "add --platform", code=2)
    assert prepared(office, "--platform", str(platform))


def test_without_a_worker_an_approval_stands_and_is_said(own_roles: OwnRoles) -> None:
    with open_office(own_roles) as idle, open_world(idle.owner, idle.app) as empty:
        empty.platform()
        first, second = prepared(idle), prepared(idle)

        at_once = adjust(idle.ben, "approve", first, "--no-wait", "--json")
        waited = adjust(idle.ben, "approve", second)

        assert json.loads(at_once.stdout) == {"id": first, "state": "APPROVED"}
        assert (at_once.returncode, waited.returncode) == (0, 1)
        assert waited.stdout == f"adjustment {second} APPROVED\n"
        assert "not booked after 10 s" in waited.stderr
        assert empty.rows("SELECT state FROM adjustments") == [("APPROVED",), ("APPROVED",)]
