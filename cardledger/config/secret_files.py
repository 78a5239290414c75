"""Secrets of the environment that are in files: `NAME_FILE` names the file that contains `NAME`.

Orchestrators mount secrets as files, which no listing of processes and no dump of an environment
shows.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SUFFIX: Final = "_FILE"

_SIZE_LIMIT: Final = 16 * 1024


def read(names: Iterable[str]) -> dict[str, str]:
    """Return the value of each variable in `names` that is given by a file.

    A line break at the end of a file is not part of the secret.
    Raises: ValueError naming the variable; never the content, nor the path, because some put the
    secret there.
    """
    return {
        name: _content(name + SUFFIX, path)
        for name in names
        if (path := os.environ.get(name + SUFFIX)) and not _is_given_twice(name)
    }


def _is_given_twice(name: str) -> bool:
    if os.environ.get(name):
        raise ValueError(f"{name} and {name}{SUFFIX} are both set; set one of them")
    return False


def _content(variable: str, path: str) -> str:
    try:
        # Not blocking: a pipe without a writer would keep the process from starting.
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{variable}: not a regular file")
            content = file.read(_SIZE_LIMIT + 1)
    except OSError as error:
        raise ValueError(f"{variable}: cannot read the file: {error.strerror}") from None
    if len(content) > _SIZE_LIMIT:
        raise ValueError(f"{variable}: the file has more than {_SIZE_LIMIT:,} bytes")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{variable}: the file is not text in UTF-8") from None
    if not text:
        raise ValueError(f"{variable}: the file is empty")
    return text
