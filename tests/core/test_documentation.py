"""Examples run unchanged, compose keeps its stores to itself, the threat model names its tests."""

import re
import unittest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs_unchanged(number: int) -> None:
    names: dict[str, Any] = {"__name__": f"example_{number}"}

    exec(compile(EXAMPLES[number], f"{PAGE.name}:{number}", "exec"), names)  # noqa: S102 - ours

    tests = [value for name, value in names.items() if name.lower().startswith("test")]
    assert tests
    for test in tests:
        if isinstance(test, type) and issubclass(test, unittest.TestCase):
            result = unittest.TextTestRunner().run(test("runTest"))
            assert result.wasSuccessful()
        else:
            test()


def test_there_is_an_example_for_each_tool() -> None:
    assert len(EXAMPLES) == 2


def test_compose_publishes_no_store_and_has_no_default_password() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    section = text.partition("\nservices:")[2].partition("\nvolumes:")[0]
    _, *parts = re.split(r"^  (\w+):$", section, flags=re.MULTILINE)
    services = dict(zip(parts[::2], parts[1::2], strict=True))

    assert [name for name, service in services.items() if "ports:" in service] == ["api"]
    assert "POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:?" in services["postgres"]
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    users = (ROOT / "docs" / "redis-users.acl").read_text(encoding="utf-8")
    for name in re.findall(r">(\w+_PASSWORD)", users):
        assert f'"s|>{name}|>$$REDIS_{name}|"' in services["redis"]
        assert f"REDIS_{name}: ${{REDIS_{name}:?" in services["redis"]
        assert f"REDIS_{name}=\n" in example
    assert "redis://redis" not in text


def threat_rows() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("### Who may do what\n")[2].partition("\n### ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", threat_rows())
def test_a_row_of_the_threat_model_is_shown_by_tests_that_exist(row: str) -> None:
    cells = row.strip("| ").split(" | ")
    proofs = re.findall(r"`(tests/[a-z_/0-9]+\.py)::(test_\w+)`", cells[-1])

    assert len(cells) == 5
    assert proofs
    for file, name in proofs:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (file, name)


def test_every_test_in_the_security_policy_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    for file, name in re.findall(r"`(tests/[a-z_/0-9]+\.py)::(test_\w+)`", text):
        assert f"def {name}(" in (ROOT / file).read_text(), (file, name)
    for page in ("README.md", "docs/README.md"):
        assert "SECURITY.md)" in (ROOT / page).read_text()
