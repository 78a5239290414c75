"""Examples run unchanged, compose keeps its stores to itself, the threat model names its tests."""

import os
import re
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pydantic import SecretStr

from attack import run
from cardledger.config.settings import Settings
from cardledger.install import exposure
from cardledger.supervisor import children, processes
from cardledger.workers.process.end import END_S

ROOT = Path(__file__).parents[2]
PAGES = ("testing.md", "tutorials/3-your-tests.md")
EXAMPLES = {
    f"{page}:{number}": example
    for page in PAGES
    for number, example in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)
    )
}


@pytest.fixture
def brief() -> Iterator[None]:
    """Try few examples, except nightly: the tests of the rules search the same with more."""
    before = settings.get_current_profile_name()
    if before == "ci":
        settings.load_profile("brief")
    yield
    settings.load_profile(before)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_unchanged(name: str) -> None:
    names: dict[str, Any] = {"__name__": "example"}

    exec(compile(EXAMPLES[name], name, "exec"), names)  # noqa: S102 - ours

    tests = [value for name, value in names.items() if name.lower().startswith("test")]
    assert tests
    for test in tests:
        if isinstance(test, type) and issubclass(test, unittest.TestCase):
            result = unittest.TextTestRunner().run(test("runTest"))
            assert result.wasSuccessful()
        else:
            test()


def test_there_is_an_example_for_each_tool() -> None:
    assert len(EXAMPLES) == 3 + 3


def test_the_values_of_the_sandbox_are_on_its_page() -> None:
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    ends = {value for row in rows for cell in row for value in re.findall(r"`(\d{3})`", cell)}

    sources = (ROOT / "ledger" / "sandbox").glob("*.py")
    assert ends == {
        value for path in sources for value in re.findall(r'"(\d{3})"', path.read_text("utf-8"))
    }


COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def parts_of(section: str) -> dict[str, str]:
    """Return the entries below a key of the compose file."""
    text = re.split(r"^\w", COMPOSE.partition(f"\n{section}:\n")[2], maxsplit=1, flags=re.MULTILINE)
    _, *parts = re.split(r"^  (\w+):$", text[0], flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def networks_of(service: str) -> set[str]:
    [names] = re.findall(r"^    networks: \[(.*)\]$", service, re.MULTILINE)
    return set(names.split(", "))


def test_compose_keeps_its_stores_in_networks_without_a_way_in_or_out() -> None:
    services, networks = parts_of("services"), parts_of("networks")
    reached = {name: networks_of(service) for name, service in services.items()}
    internal = {name for name, network in networks.items() if "internal: true" in network}

    assert internal == {"database", "notifications"}
    assert set().union(*reached.values()) == set(networks)
    assert (reached["postgres"], reached["redis"]) == ({"database"}, {"notifications"})
    assert {name for name, found in reached.items() if not found <= internal} == {"api", "webhooks"}
    assert not reached["api"] & reached["webhooks"] - internal


def test_compose_hardens_every_container() -> None:
    hardened = COMPOSE.partition("x-hardened: &hardened\n")[2].partition("\n\n")[0]

    for line in ("read_only: true", "cap_drop: [ALL]", '["no-new-privileges:true"]'):
        assert line in hardened
    assert "x-app: &app\n  <<: *hardened\n" in COMPOSE
    for service in parts_of("services").values():
        assert service.startswith(("\n    <<: *hardened\n", "\n    <<: *app\n"))
    for store in ("postgres", "redis"):
        assert f"\n    user: {store}\n" in parts_of("services")[store]


def test_compose_limits_the_memory_and_the_processes_of_every_container() -> None:
    services = parts_of("services")
    hardened = COMPOSE.partition("x-hardened: &hardened\n")[2].partition("\n\n")[0]
    app = COMPOSE.partition("x-app: &app\n")[2].partition("\n\n")[0]

    assert "\n  pids_limit: " in hardened
    assert "\n  mem_limit: " in app
    for store in ("postgres", "redis"):
        assert "\n    mem_limit: " in services[store]
    assert "--maxmemory $$REDIS_MAXMEMORY" in services["redis"]


def test_compose_waits_longer_than_a_process_takes_to_end() -> None:
    for name, end_s in (("api", processes.API_END_S), ("worker", END_S), ("webhooks", END_S)):
        [grace_s] = re.findall(r"stop_grace_period: (\d+)s", parts_of("services")[name])

        assert int(grace_s) > end_s, name
    assert children._API_STOP_S > processes.API_END_S


def test_compose_runs_two_workers_of_each_kind_for_one_of_them_may_be_frozen() -> None:
    services = parts_of("services")

    assert "\n    deploy: &two\n      replicas: 2\n" in services["worker"]
    assert "\n    deploy: *two\n" in services["webhooks"]


def test_compose_starts_with_the_example_and_with_nothing_else_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    api = parts_of("services")["api"]
    [of_compose] = re.findall(r"ACCEPT_UNSAFE: (\S+),\$\{CARDLEDGER_ACCEPT_UNSAFE:-\}", COMPOSE)
    [of_example] = re.findall(r"^CARDLEDGER_ACCEPT_UNSAFE=(.*)$", example, re.MULTILINE)
    [host] = re.findall(r"CARDLEDGER_HOST: (\S+)", api)
    [sandbox] = re.findall(r"^CARDLEDGER_SANDBOX=(.*)$", example, re.MULTILINE)
    for name in list(os.environ):
        if name.startswith(("CARDLEDGER_", "PG")):
            monkeypatch.delenv(name)

    settings = Settings(
        sandbox=sandbox == "true",
        accept_unsafe=f"{of_compose},{of_example}",
        database_url=SecretStr("postgresql://cardledger_api:word@postgres:5432/cardledger"),
        redis_url=SecretStr("redis://cardledger_api:word@redis:6379/0"),
    )
    accepted = exposure.check(settings, listens_on=exposure.beyond_loopback(host, 8000))

    assert {hazard.name for hazard in accepted} == {of_compose, *of_example.split(",")}


def test_compose_hands_the_settings_of_the_example_to_every_process() -> None:
    services = parts_of("services")
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    common = COMPOSE.partition("x-app-environment: &app-environment\n")[2].partition("\n\n")[0]
    processes_of_image = [name for name, text in services.items() if "\n    <<: *app\n" in text]

    assert processes_of_image == ["migrate", "api", "worker", "webhooks"]
    for name in processes_of_image:
        environment = services[name].partition("\n    environment:\n")[2]
        lines = [line for line in environment.splitlines() if not line.lstrip().startswith("#")]
        assert lines[0] == "      <<: *app-environment", name
    for key in ("SECRET_KEY", "FORMER_SECRET_KEYS", "NEXT_SECRET_KEY", "SANDBOX"):
        assert re.search(rf"^  CARDLEDGER_{key}: \$\{{CARDLEDGER_{key}:", common, re.MULTILINE)
    for variable in re.findall(r"^(\w+)=", example, re.MULTILINE):
        assert f"${{{variable}:" in COMPOSE, variable


def test_images_are_pinned_by_digest() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    images += re.findall(r"^ +image: (?!cardledger:local$)(\S+)", COMPOSE, re.MULTILINE)

    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z]+:[0-9][0-9.]+[0-9a-z.-]*@sha256:[0-9a-f]{64}", image), image


def test_compose_publishes_no_store_and_has_no_default_password() -> None:
    text, services = COMPOSE, parts_of("services")

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


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/security.md"])
def test_every_test_that_a_page_about_security_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    named = re.findall(r"`(tests/[a-z_/0-9]+\.py)(?:::(test_\w+))?`", text)

    assert named
    for file, name in named:
        assert not name or f"def {name}(" in (ROOT / file).read_text(), (file, name)
        assert (ROOT / file).exists(), file


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table below a heading of docs/security.md."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


@pytest.mark.parametrize("heading", ["OWASP API Security Top 10, 2023", "ASVS 5.0, level 2"])
def test_each_row_of_a_list_of_the_owasp_names_a_test(heading: str) -> None:
    rows = rows_of(heading)

    assert rows
    for row in rows:
        assert len(row) == 3, row
        assert re.search(r"`tests/[a-z_/0-9]+\.py(::test_\w+)?`", row[-1]), row[0]


def test_the_ten_risks_of_apis_are_all_there() -> None:
    risks = [row[0].split()[0] for row in rows_of("OWASP API Security Top 10, 2023")]

    assert risks == [f"API{number}" for number in range(1, 11)]


def test_every_attack_is_described_and_every_described_attack_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    part = text.partition("| item | attack |")[2].partition("\n\n")[0]
    names = [cell for line in part.splitlines()[2:] for cell in line.split(" | ")[1:2]]

    described = {name for cell in names for name in re.findall(r"`([^`]+)`", cell)}

    assert described == set(run.ATTACKS)


def test_the_pages_about_security_are_linked() -> None:
    for page in ("README.md", "docs/README.md"):
        assert "SECURITY.md)" in (ROOT / page).read_text()
