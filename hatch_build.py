"""Build hook: compile the rules for wheels when CARDLEDGER_COMPILE=1 (docs/decisions/0023).

Needs a C compiler and Python's headers. In an isolated build environment pip installs the
dependencies of the package, whose types mypy reads.
"""

import ast
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface[Any]):
    """Compiles modules with mypyc and adds the extension modules to the wheel."""

    def dependencies(self) -> list[str]:
        if not _is_wanted():
            return []
        return [
            *self.build_config.builder.metadata.core.dependencies,
            "mypy>=1.14",
            "setuptools>=77",
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install imports the sources.
        if version == "editable" or not _is_wanted():
            return
        # A temporary directory, deleted after the wheel is written or compiling has failed.
        self._built = tempfile.TemporaryDirectory(prefix="cardledger-compiled-")
        built = Path(self._built.name)
        root = Path(self.root)
        sources = [
            str(path.relative_to(root))
            for pattern in self.config["modules"]
            for path in sorted(root.glob(pattern))
        ]
        _compile(root, self.build_config.packages, sources, built)
        for module in built.rglob("*.so"):
            build_data["force_include"][str(module)] = str(module.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _is_wanted() -> bool:
    return os.environ.get("CARDLEDGER_COMPILE", "0") not in {"", "0"}


def _compile(root: Path, packages: list[str], sources: list[str], built: Path) -> None:
    """Compile `sources`, paths relative to `root`, into extension modules below `built`."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only installed for compiling
    from setuptools import Distribution  # type: ignore[import-untyped]  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        before = Path.cwd()
        copy = Path(scratch, "sources")
        for package in packages:
            shutil.copytree(root / package, copy / package)
        shutil.copy(root / "pyproject.toml", copy)  # The configuration of mypy.
        for source in sources:
            path = copy / source
            path.write_text(with_constructors(path.read_text("utf-8")), "utf-8")
        os.chdir(copy)
        try:
            extensions = mypycify(sources, target_dir=scratch, group_name="cardledger")
            command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
            command.build_lib, command.build_temp = str(built), scratch
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)


def with_constructors(source: str) -> str:
    """Return `source` with the `__init__` of its dataclasses written out.

    `@dataclass` generates `__init__` at import, where mypyc cannot compile it: interpreted, it is
    many times slower. The written `__init__` replaces the blank line after the fields, so that line
    numbers do not change.

    Raises: ValueError for a dataclass whose constructor would differ from the declared one.
    """
    lines = source.split("\n")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Name) and called.id == "dataclass":
                    _write_constructor(lines, node, decorator)
    return "\n".join(lines)


def _write_constructor(lines: list[str], node: ast.ClassDef, decorator: ast.expr) -> None:
    fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
    if not fields or node.bases or any(isinstance(field.value, ast.Call) for field in fields):
        return  # Inherited fields or default factories: not constructed for every message.
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
    after = fields[-1].end_lineno or 0
    if problem := _unsupported(lines, node, decorator, after):
        raise ValueError(f"cannot write a constructor for {node.name}: {problem}")
    names = [ast.unparse(field.target) for field in fields]
    parameters = [_parameter(field) for field in fields]
    if options.get("kw_only") == "True":
        parameters.insert(0, "*")
    body = "; ".join(f"self.{name} = {name}" for name in names)
    # Only the constructor sets the fields of a frozen dataclass.
    ignore = "  # type: ignore[misc]" if options.get("frozen") == "True" else ""
    lines[after] = f"    def __init__(self, {', '.join(parameters)}) -> None: {body}{ignore}"
    arguments = ", ".join(f"{name}={value}" for name, value in {**options, "init": "False"}.items())
    lines[decorator.lineno - 1] = f"@dataclass({arguments})"


_OWN_CONSTRUCTORS: Final = {"__init__", "__post_init__"}
_PSEUDO_FIELDS: Final = ("ClassVar", "InitVar", "KW_ONLY")


def _unsupported(
    lines: list[str], node: ast.ClassDef, decorator: ast.expr, after: int
) -> str | None:
    """Return why the constructor of a dataclass cannot be written; None: it can."""
    methods = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    annotations = " ".join(
        ast.unparse(statement.annotation)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    )
    if methods & _OWN_CONSTRUCTORS or "init=" in ast.unparse(decorator).replace(" ", ""):
        return "it has a constructor of its own, or a __post_init__"
    if any(name in annotations for name in _PSEUDO_FIELDS):
        return "ClassVar, InitVar and KW_ONLY are not fields"
    if decorator.end_lineno != decorator.lineno:
        return "its decorator has more than one line"
    if after >= len(lines) or lines[after].strip():
        return "its fields are not followed by a blank line"
    return None


def _parameter(field: ast.AnnAssign) -> str:
    parameter = f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)}"
    return parameter if field.value is None else f"{parameter} = {ast.unparse(field.value)}"
