"""Directories of embedded servers, which another account than ours passes through under root."""

import os
import stat
import tempfile
from pathlib import Path


def make_passable(directory: Path) -> None:
    """Make `directory` and what is missing above it; what is there already stays as it is.

    Others may not list what was made. Under root others may pass through it, whatever the umask:
    PostgreSQL runs as another account.
    """
    missing = [step for step in (*reversed(directory.parents), directory) if not step.exists()]
    for step in missing:
        step.mkdir(mode=0o711, exist_ok=True)
        if os.geteuid() == 0:
            step.chmod(0o711)


def temporary(prefix: str) -> Path:
    """Return a new directory below the temporary one, made like that of `make_passable`.

    Under root, below the first of the usual temporary directories through which others may pass.
    """
    if os.geteuid() != 0:
        return Path(tempfile.mkdtemp(prefix=prefix))
    usual = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    parent = next(filter(_is_passable, usual), usual[0])
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    directory.chmod(0o711)
    return directory


def _is_passable(directory: Path) -> bool:
    steps = (directory, *directory.parents)
    return directory.is_dir() and all(step.stat().st_mode & stat.S_IXOTH for step in steps)
