"""An empty project with modules named like our folders, and the installed client in it.

Its tests are `project/tip.py`: one run of pytest with one system, in an environment that has the
two wheels and nothing else of ours.
"""

import os
import re
import shutil
import subprocess
import tarfile
import xml.etree.ElementTree as ET  # Of a report that pytest has written here.
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.environment import CLIENT, ROOT, Environment, build, run
from tests.waiting import limit_s

PROJECT: Final = Path(__file__).parent / "project"
PAGE: Final = ROOT / "docs" / "testing.md"
OPTIONS: Final = ("-q", "-p", "no:schemathesis", "-p", "no:anyio", "-p", "no:cacheprovider")

DOORS: Final = (
    "http",
    "http_in_an_event_loop",
    "a_session_of_sqlalchemy",
    "a_connection_of_sqlalchemy",
    "an_async_session_of_sqlalchemy",
    "a_connection_of_psycopg",
    "an_async_connection_of_psycopg",
    "plain_sql",
    "django",
)


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(CLIENT, "wheel", tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def environment(client_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with both wheels, as a project has them after `pip install`."""
    made = Environment(tmp_path_factory.mktemp("project") / "environment")
    system_wheel = build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))
    made.install(system_wheel, client_wheel, compiled=True)
    return made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with modules of its own that have the names of our folders."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "api").mkdir()
    for name in ("api/__init__", "workers", "ledger"):
        (folder / f"{name}.py").write_text("OWNER = 'project'\n")
    shutil.copy(PROJECT / "tip.py", folder / "test_tip.py")
    [example] = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "test_example.py").write_text(example)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n")
    return folder


@pytest.fixture(scope="module")
def results(environment: Environment, project: Path) -> dict[str, ET.Element]:
    """The results of the project's tests, by their names."""
    report = project / "report.xml"
    command = [str(environment.python), "-m", "pytest", *OPTIONS, f"--junit-xml={report}"]
    with (project / "output.txt").open("wb") as output:
        subprocess.run(
            command,
            cwd=project,
            env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=limit_s(120),
            check=False,
        )
    assert report.exists(), (project / "output.txt").read_text()
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - as above
    return {case.attrib["name"].removeprefix("test_"): case for case in cases}


def check_passed(case: ET.Element) -> None:
    skipped, failed = case.find("skipped"), [*case.iter("failure"), *case.iter("error")]
    assert not failed, "\n".join(each.text or "" for each in failed)
    if skipped is not None:
        pytest.skip(skipped.attrib["message"])


@pytest.mark.parametrize("door", DOORS)
def test_a_project_sends_the_tip(results: dict[str, ET.Element], door: str) -> None:
    check_passed(results[door])


def test_the_other_tests_of_the_project_pass(results: dict[str, ET.Element]) -> None:
    others = {name: case for name, case in results.items() if name not in DOORS}

    assert len(others) >= 5
    for case in others.values():
        check_passed(case)


def test_a_run_of_pytest_without_the_fixture_imports_nothing_of_ours(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('cardledger')\n"
        "    ours = [name for name in sys.modules if name.startswith(('cardledger', 'httpx2'))]\n"
        "    assert not ours\n"
    )

    output = run(environment.python, "-m", "pytest", *OPTIONS, cwd=tmp_path)

    assert "1 passed" in output


def test_the_client_is_installed_without_the_system(client_wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install(client_wheel)

    version = environment.execute(
        "import cardledger_client, importlib.metadata as metadata, sys\n"
        "from cardledger_client import sql, webhooks\n"
        "libraries = {'cardledger', 'sqlalchemy', 'psycopg', 'django', 'cryptography'}\n"
        "assert not libraries & set(sys.modules), libraries & set(sys.modules)\n"
        "print(cardledger_client.__version__, metadata.version('cardledger-client'))"
    )

    assert version == "0.1.0 0.1.0"


def test_both_distributions_have_one_version() -> None:
    ours = (ROOT / "pyproject.toml").read_text()
    version = (CLIENT / "cardledger_client" / "version.py").read_text()

    assert 'version = "0.1.0"' in ours
    assert 'VERSION: Final = "0.1.0"' in version


def test_the_sdist_of_the_client_has_its_files_only(tmp_path: Path) -> None:
    sdist = build(CLIENT, "sdist", tmp_path)

    with tarfile.open(sdist) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()}

    assert {Path("pyproject.toml"), Path("README.md"), Path("pytest_cardledger.py")} < names
    assert Path("cardledger_client/webhooks/__init__.py") in names
    assert Path("cardledger_client/py.typed") in names
