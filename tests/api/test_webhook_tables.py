"""What a person sees of `cardledger webhooks`: whole lines, and nothing that a terminal obeys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.commands.cli import app
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, new_tenant, ok
from tests.receiver import Receiver


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture
def ready_file(own: Api, tmp_path: Path) -> Path:
    path = tmp_path / "ready.json"
    access = {
        "baseUrl": own.root + BASE_PATH,
        "clientId": own.tenant.client_id,
        "clientSecret": own.tenant.client_secret,
    }
    path.write_text(json.dumps(access))
    return path


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


def run(ready_file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["webhooks", *arguments, "--ready-file", str(ready_file)])


def sent_body(ready_file: Path, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    finished = run(ready_file, *arguments, "--json")
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.output)


def test_people_get_a_table_whose_lines_are_whole_and_harmless(
    own: Api, ready_file: Path, receiver: Receiver
) -> None:
    receiver.reply_always(Reply(status=500, body=b"\x1b[31mred \xc2\x9b alert"))
    key = made(own.post("/webhooks/endpoints", {"url": receiver.url}))["id"]
    tested = run(ready_file, "test", key)
    delivery = ok(own.get("/webhooks/deliveries", state="FAILED"))["data"][0]

    listed = run(ready_file, "endpoints").output
    deliveries = run(ready_file, "deliveries", "--limit", "1").output
    shown = run(ready_file, "show", delivery["id"]).output

    assert tested.exit_code == 1
    assert "responseStatus  500" in tested.output
    assert key in listed
    assert receiver.url in listed
    assert len(deliveries.splitlines()) == 2
    assert "red" in shown
    assert not any(sign in tested.output + shown for sign in "\x1b\x9b")
