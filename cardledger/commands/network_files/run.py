"""What `cardledger reconcile` does, and what it prints."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cardledger.commands.daily.arguments import printable
from cardledger.config.errors import USAGE, CommandError
from cardledger.ledger.network_files import profile as profiles
from cardledger.ledger.network_files import reader
from cardledger.ledger.network_files.profile import Profile, ProfileError
from cardledger.ledger.network_files.records import RefusedError
from cardledger.ledger.network_files.settlement_file import SettlementFile, interchange_text


def reconcile(path: Path, *, profile: str | None, dry_run: bool, as_json: bool) -> int:
    """Check the file at `path` and print the result; return the exit code."""
    if not dry_run:
        raise CommandError("add --dry-run: files are checked, and not kept yet", code=USAGE)
    by_profile = None if profile is None else _profile(profile)
    with _opened(path) as file:
        try:
            found = reader.read(file, by_profile)
            lines = sum(1 for _ in found)
        except RefusedError as error:
            _print(_refusal(error), _refusal_text(path, error), as_json=as_json)
            return USAGE
    _print(_valid(found, lines), _valid_text(found, lines), as_json=as_json)
    return 0


def _profile(name: str) -> Profile:
    try:
        return profiles.load(name)
    except ProfileError as error:
        raise CommandError(f"--profile {error}", code=USAGE) from None


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=USAGE) from None
    with file:
        yield file


def _refusal(error: RefusedError) -> dict[str, Any]:
    return {
        "state": "REFUSED",
        "code": error.code,
        "line": error.line,
        "column": error.column,
        "message": error.message,
    }


def _refusal_text(path: Path, error: RefusedError) -> str:
    place = "".join(
        f", {name} {value}"
        for name, value in (("line", error.line), ("column", error.column))
        if value is not None
    )
    return f"REFUSED  {error.code}  {printable(path)}{place}: {error.message}"


def _valid(found: SettlementFile, lines: int) -> dict[str, Any]:
    header = found.header
    return {
        "state": "VALID",
        "fileId": header.file_id,
        "network": header.network,
        "settlementDate": header.settlement_date,
        "cycle": header.cycle,
        "lines": lines,
        "totals": [
            {
                "currency": currency,
                "count": totals.lines,
                "amount": totals.amount,
                "interchange": interchange_text(totals.interchange),
            }
            for currency, totals in sorted(found.totals.items())
        ],
        "digest": found.digest,
    }


def _valid_text(found: SettlementFile, lines: int) -> str:
    header = found.header
    cycle = "" if header.cycle is None else f"  cycle {printable(header.cycle)}"
    first = (
        f"VALID  {printable(header.file_id)}  {header.network}  {header.settlement_date}{cycle}"
        f"  {lines} lines"
    )
    totals = (
        f"  {currency}  {total.lines} lines  {total.amount} minor units  interchange"
        f" {interchange_text(total.interchange)}"
        for currency, total in sorted(found.totals.items())
    )
    return "\n".join((first, *totals))


def _print(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    print(json.dumps(document) if as_json else text)
