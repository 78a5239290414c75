"""Directories of embedded servers, which another account than ours passes through under root."""

import os
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
    """Return a new directory below the temporary one, made like that of `make_passable`."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    if os.geteuid() == 0:
        directory.chmod(0o711)
    return directory
