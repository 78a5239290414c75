"""Compiles the rules for wheels when it is asked to: CARDLEDGER_COMPILE=1 (docs/decisions/0023).

Needs a C compiler and Python's headers. Where the build has an environment of its own, pip puts
there what mypy has to see of what we depend on.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

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
        _compile(root, sources, built)
        for module in built.rglob("*.so"):
            build_data["force_include"][str(module)] = str(module.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _is_wanted() -> bool:
    return os.environ.get("CARDLEDGER_COMPILE", "0") not in {"", "0"}


def _compile(root: Path, sources: list[str], built: Path) -> None:
    """Leave the extension modules of `sources`, which are relative to `root`, below `built`."""
    from mypyc.build import mypycify  # noqa: PLC0415 - only whoever compiles has them
    from setuptools import Distribution  # type: ignore[import-untyped]  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        before = Path.cwd()
        os.chdir(root)  # Where mypy finds the packages, and its configuration.
        try:
            extensions = mypycify(sources, target_dir=scratch, group_name="cardledger")
            command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
            command.build_lib, command.build_temp = str(built), scratch
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)
