"""Every module can be imported, in any environment that the package allows."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.import_everything import import_everything

ROOT = Path(__file__).parents[2]
FOLDERS = ("api", "cardledger", "ledger", "schema", "workers")


def test_every_module_can_be_imported() -> None:
    names = import_everything()

    assert {"cardledger.api.app", "cardledger.workers.client", "cardledger.ledger.core.events"} < {
        *names
    }


def private_imports() -> Iterator[tuple[str, Path]]:
    """Yield each package of others of which a module imports something private, and the module."""
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                package, *modules = node.module.split(".")
                names = [*modules, *(alias.name for alias in node.names)]
                is_private = any(name[0] == "_" and name[:2] != "__" for name in names)
                if is_private and package not in {"__future__", "cardledger"}:
                    yield package, path


def requirements() -> dict[str, Requirement]:
    """Return what the package needs, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parsed = map(Requirement, project["dependencies"])
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def test_packages_of_which_private_parts_are_used_have_an_upper_bound() -> None:
    used = {canonicalize_name(package) for package, _ in private_imports()}

    assert {"dramatiq", "redis"} <= used
    for package in used:
        bounds = {specifier.operator for specifier in requirements()[package].specifier}
        assert "<" in bounds, package


@pytest.mark.parametrize("lock", ["constraints.txt", "constraints-dev.txt"])
def test_the_locks_meet_the_bounds(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    versions = dict(line.split(" ")[0].split("==") for line in lines if "==" in line.split(" ")[0])

    for name, requirement in requirements().items():
        assert requirement.specifier.contains(versions[name], prereleases=True), name
