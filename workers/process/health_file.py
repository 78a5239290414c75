"""The health file of a worker: written by its own threads, read by the check of its container.

Standard library only, so that the check is quick. Ages are of the monotonic clock, which the
processes of a machine share and which is never set.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Final

FRESH_S: Final = 3.0
"""How old a file may be: it is written every second, and by a frozen process not at all."""

_START_TIME: Final = 19  # Its place among the fields of `stat` of proc(5) behind the second one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health that a worker reports."""

    role: str
    pid: int
    written_at: float
    # Each with what to do; none when all is well.
    problems: Sequence[str]  # Of this worker: a restart, or its server, may end them.
    installation_problems: Sequence[str]  # Of all workers: a restart changes nothing.
    redis: str  # Never a problem: without it outcomes come a little later.
    started: str = ""  # When the process was, as `_started` says; written with the file.


def write(directory: Path, health: Health) -> None:
    """Write `health` to the file of its process, whole or not at all.

    Raises: OSError.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    path = _path(directory, health.role, health.pid)
    fresh = path.with_suffix(".new")
    written = asdict(health) | {"started": _started(health.pid)}
    fresh.write_text(json.dumps(written), encoding="utf-8")
    fresh.replace(path)


def remove(directory: Path, role: str, pid: int) -> None:
    """Remove the file of a process that stops in good order."""
    _path(directory, role, pid).unlink(missing_ok=True)


def problems(
    directory: Path, role: str, *, of_worker_only: bool = False, now: float | None = None
) -> list[str]:
    """Return why the workers of `role` that run here cannot decide; nothing when all is well.

    Files of processes that have ended do not count, but some worker must run. With
    `of_worker_only`, problems of the whole installation do not count.
    """
    found_files = list(_read(directory, role))
    now = monotonic() if now is None else now  # After the files: one may be written meanwhile.
    running = [health for health in found_files if _runs(health, now)]
    if not running:
        return [f"no worker ({role}) runs here; start one, or set CARDLEDGER_DATA_DIR to its own"]
    found: list[str] = []
    shared: dict[str, None] = {}  # In order; several workers report the same.
    for health in running:
        age = now - health.written_at
        if age > FRESH_S:
            found.append(
                f"worker {health.pid} has not reported for {age:.0f} s: it is frozen; restart it"
            )
        else:
            found += [f"worker {health.pid}: {problem}" for problem in health.problems]
            if not of_worker_only:
                shared.update(dict.fromkeys(health.installation_problems))
    return [*found, *shared]


def _read(directory: Path, role: str) -> Iterator[Health]:
    for path in sorted(directory.glob(f"worker-{role}-*.json")):
        try:
            yield Health(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # Removed since the listing, or written by another release.


def _runs(health: Health, now: float) -> bool:
    """Return whether the process that wrote `health` runs: not another one that has its id now."""
    if health.written_at > now:
        return False  # Of before the machine was started.
    try:
        os.kill(health.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _started(health.pid)
    return started == health.started or not (started and health.started)


def _started(pid: int) -> str:
    """Return when the process `pid` was started, in ticks of the machine; "" where none says so."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field, the name of the program, may have blanks and parentheses in it.
    return stat.rpartition(")")[2].split()[_START_TIME]


def _path(directory: Path, role: str, pid: int) -> Path:
    return directory / f"worker-{role}-{pid}.json"
