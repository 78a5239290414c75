"""How many files a process may open: every connection is one."""

import resource
from contextlib import suppress
from typing import Final

_ENOUGH: Final = 10_240  # Where there is no hard limit; macOS refuses more.


def raise_limit() -> int:
    """Raise this process's limit of open files to the hard limit; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, _ENOUGH) if hard == resource.RLIM_INFINITY else hard
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
