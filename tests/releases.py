"""The release that follows this one: a copy of the package with further migrations."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import cardledger

PRESENT: Final = Path(cardledger.__file__).parents[1]
"""The directory that this release is imported from."""


def next_release(directory: Path, revisions: Mapping[str, str]) -> Path:
    """Copy the package below `directory`, with `revisions` by their file name; return where it is.

    Only its migrations differ: it is a release whose code has not changed.
    """
    package = directory / "cardledger"
    shutil.copytree(
        PRESENT / "cardledger", package, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name, source in revisions.items():
        (package / "schema" / "migrations" / "versions" / name).write_text(source, encoding="utf-8")
    return directory
