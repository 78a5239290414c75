"""Directories of embedded servers, which another account than ours passes through under root."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LINK_LIMIT: Final = 40
"""The most symbolic links that the kernel follows on one path."""


def visited(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield what the kernel looks at on its way to `path`, as `lstat` sees it.

    These are directories, symbolic links, and what those lead to; the way ends at what is missing.
    Raises: OSError, also for too many links.
    """
    ahead = [*reversed(path.absolute().parts)]
    at, links = Path(ahead.pop()), 0
    yield at, at.lstat()
    while ahead:
        name = ahead.pop()
        step = at.parent if name == ".." else at / name
        try:
            found = step.lstat()
        except FileNotFoundError:
            return
        yield step, found
        if not stat.S_ISLNK(found.st_mode):
            at = step
            continue
        links += 1
        if links > LINK_LIMIT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        at = Path(target.anchor) if target.is_absolute() else at
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def foreign_link(path: Path) -> Path | None:
    """Return the first symbolic link on the way to `path` that is neither ours nor root's.

    Its owner could lead us anywhere, and elsewhere after each look.
    """
    for step, found in visited(path):
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in {0, os.geteuid()}:
            return step
    return None


def make_passable(directory: Path) -> None:
    """Make `directory` and what is missing above it; what is there already stays as it is.

    Others may not list what was made. Under root others may pass through it, whatever the umask:
    PostgreSQL runs as another account.
    Raises: OSError, also for a symbolic link of another user on the way.
    """
    link = foreign_link(directory)
    if link is not None:
        raise PermissionError(errno.EPERM, f"{link} is a symbolic link of another user")
    missing = [step for step in (*reversed(directory.parents), directory) if not step.exists()]
    for step in missing:
        try:
            step.mkdir(mode=0o711)
        except FileExistsError:  # Made meanwhile: not by us, so it stays as it is.
            if not step.is_dir():
                raise
            continue
        if os.geteuid() == 0:
            _open_up(step)


def _open_up(directory: Path) -> None:
    """Let others pass through `directory`, which we have made, and through no link in its place."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o711)
    finally:
        os.close(descriptor)


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
    if not directory.is_dir() or foreign_link(directory) is not None:
        return False
    return all(found.st_mode & stat.S_IXOTH for _, found in visited(directory))
