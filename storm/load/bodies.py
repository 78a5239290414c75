"""How often each door is used, and what is sent through them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from storm.load import payers

MERCHANT: Final = {"descriptor": "CORNER BAKERY 0417", "mcc": "5812", "country": "US"}

SHARES: Final = {
    "live": 34,
    "bulk": 12,
    "http": 22,
    "credit": 4,
    "duplicate": 7,
    "reuse": 5,
    "deposit": 6,
    "transfer": 5,
    "funding source": 5,
    "card closure": 1,
    "file": 1,
    **payers.DOORS,
}
"""How often each door is used, relative to the others."""


def without_deadline(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `body` as its caller sends it once more."""
    return {name: value for name, value in body.items() if name != "decideBy"}


def write_lines(path: Path, events: Sequence[Mapping[str, Any]]) -> None:
    """Write `events` as a file for `cardledger submit`."""
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
