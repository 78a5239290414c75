"""What `cardledger verify` last found, for the workers with the same data directory.

A file beside the health files: the roles of processes may write no table for it, and readers none.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cardledger.workers.metrics import families
from cardledger.workers.metrics.instruments import Reading, Sample

_NAME: Final = "verified.json"
_SIZE_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The end of a verification: when, how many events were folded again, what differed."""

    at: float  # Unix time.
    events: int
    differences: int


def note(directory: Path, verified: Verified) -> None:
    """Keep `verified` where workers look; nothing happens where none has run."""
    # A directory that only the workers may write to is no reason for a verification to fail.
    with suppress(OSError):
        part = directory / f"{_NAME}.part"
        part.write_text(json.dumps(asdict(verified)), encoding="utf-8")
        part.replace(directory / _NAME)


class LastVerification:
    """The metrics of the last verification; none before the first."""

    def __init__(self, directory: Path) -> None:
        """Read what `note` has kept in `directory`, anew each time."""
        self._path: Final = directory / _NAME

    def read(self) -> Iterator[Reading]:
        """Yield when it was, its position and its result."""
        verified = self._last()
        if verified is not None:
            yield families.VERIFIED_AT, [Sample((), verified.at)]
            yield families.VERIFIED_EVENTS, [Sample((), verified.events)]
            yield families.VERIFIED_DIFFERENCES, [Sample((), verified.differences)]

    def _last(self) -> Verified | None:
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(_SIZE_LIMIT))
            return Verified(
                at=float(found["at"]),
                events=int(found["events"]),
                differences=int(found["differences"]),
            )
        except (OSError, ValueError, LookupError, TypeError):
            return None
