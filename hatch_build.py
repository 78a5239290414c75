"""Compiles the rules for wheels when it is asked to: CARDLEDGER_COMPILE=1 (docs/decisions/0023).

Needs a C compiler and Python's headers. Where the build has an environment of its own, pip puts
there what mypy has to see of what we depend on.
"""

import ast
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface[Any]):
    """Puts extension modules beside the sources of which mypyc makes them."""

    def dependencies(self) -> list[str]:
        if not _is_wanted():
            return []
        return [
            *self.build_config.builder.metadata.core.dependencies,
            "mypy>=1.14",
            "setuptools>=77",
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install runs what is being edited.
        if version == "editable" or not _is_wanted():
            return
        # Until the wheel is written; also when compiling fails.
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
    """Leave the extension modules of `sources`, which are relative to `root`, below `built`."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only whoever compiles has them
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

    `@dataclass` makes it when the module is imported, where mypyc does not see it: it would stay
    interpreted, and take many times as long. It is put in the blank line after the fields, so that
    every line keeps its number.

    Raises: ValueError for a dataclass of which it would make another one.
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
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    if not fields or node.bases or any(isinstance(one.value, ast.Call) for one in fields):
        return  # Fields of others, or factories of defaults: nothing that every message needs.
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    options = {one.arg: ast.unparse(one.value) for one in keywords}
    after = fields[-1].end_lineno or 0
    if oddity := _oddity(lines, node, decorator, after):
        raise ValueError(f"{node.name} cannot get a constructor: {oddity}")
    names = [ast.unparse(one.target) for one in fields]
    taken = [_parameter(one) for one in fields]
    if options.get("kw_only") == "True":
        taken.insert(0, "*")
    body = "; ".join(f"self.{name} = {name}" for name in names)
    # Nobody may set the fields of a frozen one, but this.
    excuse = "  # type: ignore[misc]" if options.get("frozen") == "True" else ""
    lines[after] = f"    def __init__(self, {', '.join(taken)}) -> None: {body}{excuse}"
    said = ", ".join(f"{name}={value}" for name, value in {**options, "init": "False"}.items())
    lines[decorator.lineno - 1] = f"@dataclass({said})"


_OTHERWISE_KNOWN: Final = {"__init__", "__post_init__"}
_NO_FIELDS: Final = ("ClassVar", "InitVar", "KW_ONLY")


def _oddity(lines: list[str], node: ast.ClassDef, decorator: ast.expr, after: int) -> str | None:
    """Return what about a dataclass is more than fields; None: nothing."""
    methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    annotations = " ".join(
        ast.unparse(one.annotation) for one in node.body if isinstance(one, ast.AnnAssign)
    )
    if methods & _OTHERWISE_KNOWN or "init=" in ast.unparse(decorator).replace(" ", ""):
        return "it has one of its own, or something to do after it"
    if any(name in annotations for name in _NO_FIELDS):
        return "not all that looks like a field is one"
    if decorator.end_lineno != decorator.lineno:
        return "its decorator takes more than one line"
    if after >= len(lines) or lines[after].strip():
        return "there is no blank line after its fields"
    return None


def _parameter(field: ast.AnnAssign) -> str:
    said = f"{ast.unparse(field.target)}: {ast.unparse(field.annotation)}"
    return said if field.value is None else f"{said} = {ast.unparse(field.value)}"
