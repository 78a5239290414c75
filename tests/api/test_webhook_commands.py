"""`cardledger webhooks`: what a person types and reads, against a real interface and worker."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, closed_port
from tests.api.test_webhooks import arrived, deliveries, endpoint, own, receiver
from tests.command_process import run_command
from tests.receiver import Receiver
from tests.waiting import eventually

__all__ = ["own", "receiver"]

CHANGE = "CARD.STATE_CHANGE"

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(own: Api, tmp_path: Path) -> Command:
    """The command, with a file that says which platform asks."""
    access = tmp_path / "ready.json"
    output = {
        "baseUrl": str(own.http.base_url).rstrip("/"),
        "clientId": own.tenant.client_id,
        "clientSecret": own.tenant.client_secret,
    }
    access.write_text(json.dumps(output), encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command("webhooks", *arguments, "--ready-file", str(access), cwd=tmp_path)

    return run


def printed(command: Command, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    return json.loads(command(*arguments, "--json").stdout)


def test_deliveries_are_listed_per_endpoint_and_shown_with_their_attempts(
    own: Api, receiver: Receiver, command: Command
) -> None:
    answers = endpoint(own, receiver.url, description="books", eventTypes=["CARD.*"])
    silent = endpoint(own, f"http://127.0.0.1:{closed_port()}/", mode="FIFO")
    card = own.active_card(balance=0)
    eventually(lambda: sum(one["attempts"] > 0 for one in _about(own, card)) == 2)

    endpoints = command("endpoints").stdout
    listed = command("deliveries", "--subject", card["id"]).stdout
    [failing] = printed(command, "deliveries", "--endpoint", silent["id"], "--type", CHANGE)
    shown = command("show", failing["id"]).stdout

    assert all(one["id"] in endpoints for one in (answers, silent))
    assert all(word in endpoints for word in ("FIFO", "PARALLEL", "CARD.*", "all"))
    lines = listed.splitlines()
    assert len(lines) == 1 + 2, "a heading, and a line for each endpoint"
    assert all(any(one["id"] in line for line in lines) for one in (answers, silent))
    assert card["id"] in shown
    assert "cannot connect" in shown
    assert '"state": "ACTIVE"' in shown


def _about(api: Api, card: dict[str, Any]) -> list[dict[str, Any]]:
    return deliveries(api, subjectId=card["id"])


def test_what_failed_is_sent_again_by_name_or_by_time(
    own: Api, receiver: Receiver, command: Command
) -> None:
    own.active_card(balance=0)
    [kept] = eventually(lambda: deliveries(own, type=CHANGE))
    without_endpoint = command("retry", kept["id"])
    own.patch("/config", {"webhookEndpoint": receiver.url})

    everything = printed(command, "replay", "--since", kept["createdAt"], "--all")
    [delivered] = eventually(lambda: deliveries(own, type=CHANGE, state="DELIVERED"))
    again = command("retry", delivered["id"])
    nothing = command("replay", "--since", "2999-01-01T00:00:00Z")

    assert without_endpoint.returncode == 1
    assert "POST /webhooks/replay" in without_endpoint.stderr
    assert everything["count"] >= 1
    assert again.stdout == f"{kept['webhookId']} is on its way again\n"
    assert len(arrived(receiver, CHANGE, count=2)) == 2
    assert nothing.stdout == "0 are on their way again\n"


def test_a_test_ends_with_1_when_it_was_not_taken(
    own: Api, receiver: Receiver, command: Command
) -> None:
    key = endpoint(own, receiver.url)["id"]

    taken = command("test", key)
    receiver.reply_always(Reply(status=500, body=b"\x1b[31mno\x07"))
    refused = command("test", key)
    unset = command("test")

    assert taken.returncode == 0
    assert (refused.returncode, unset.returncode) == (1, 1)
    assert "500" in refused.stdout
    assert "\x1b" not in refused.stdout, "a terminal does not do what a stranger answers"
    assert "set one with PATCH /config" in unset.stderr


def test_a_new_secret_is_all_that_is_printed(
    own: Api, receiver: Receiver, command: Command
) -> None:
    key = endpoint(own, receiver.url)["id"]

    output = command("rotate-secret", key).stdout

    assert output.startswith("whsec_")
    assert output.count("\n") == 1


def test_a_file_without_credentials_is_refused_in_words(command: Command, tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text("{}", encoding="utf-8")

    output = command("endpoints")

    assert output.returncode == 2
    assert "is not a JSON file with baseUrl, clientId and clientSecret" in output.stderr
    assert "Traceback" not in output.stderr
