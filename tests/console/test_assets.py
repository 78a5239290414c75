"""Files and templates of the console: nothing is inline, and nothing comes from elsewhere."""

import json
import re
import zlib
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from cardledger.api.console import ROOT
from cardledger.api.console.html import assets, rendering
from cardledger.api.console.html.headers import POLICY
from tests.console.person import Person

TEMPLATES = sorted(path for path in rendering.TEMPLATES.iterdir() if path.is_file())


def test_every_file_of_others_is_as_its_manifest_says() -> None:
    vendored = json.loads((assets.DIRECTORY / "vendored.json").read_text())

    assert [each["file"] for each in vendored] == ["htmx.min.js"]
    for each in vendored:
        content = (assets.DIRECTORY / each["file"]).read_bytes()
        assert sha256(content).hexdigest() == each["sha256"]
        assert each["version"].encode() in content
        assert {"name", "version", "licence", "source"} <= set(each)


def test_the_console_adds_less_than_two_hundred_kilobytes_to_the_wheel() -> None:
    folder = assets.DIRECTORY.parent
    files = [
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    ]

    # A wheel is compressed, file by file.
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < 200_000


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_anything_inline_or_from_elsewhere(path: Path) -> None:
    text = path.read_text()

    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|hx-vals=.js:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"(?:src|href|action)=[\"'](?:https?:)?//", text)
    assert "|safe" not in text.replace(" ", "")


def test_a_file_is_kept_by_its_address_and_has_the_policy(root: str) -> None:
    for name in assets.assets():
        answer = httpx2.get(f"{root}{assets.url_of(name)}")
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "vendored.json", "..%2fassets.py", "%2e%2e/x"])
def test_no_other_file_is_served(root: str, name: str) -> None:
    assert httpx2.get(f"{root}{ROOT}/static/{name}").status_code in {303, 404}


def test_every_name_in_a_template_must_be_known(person: Person) -> None:
    template = rendering.environment().from_string("{{ unknown }}")

    with pytest.raises(Exception, match="unknown"):
        template.render()
    assert person.get("").status_code == 200
