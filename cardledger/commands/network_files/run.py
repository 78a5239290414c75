"""What `cardledger reconcile` does, and what it prints."""

import json
import os
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from cardledger.commands.daily.arguments import key_of, printable
from cardledger.config import configuration
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.embedded.servers import ServerError
from cardledger.install import acting, discovery, settlement_files
from cardledger.install.settlement_files import Result
from cardledger.ledger.file_profiles.profile import ProfileError
from cardledger.ledger.network_files import profile as profiles
from cardledger.ledger.network_files import reader
from cardledger.ledger.network_files.profile import Profile
from cardledger.ledger.network_files.records import RefusedError
from cardledger.schema import connections

RULES: Final = ("REFERENCE", "TOKEN", "CARD")


def reconcile(  # noqa: PLR0913 - the options of the command
    path: Path,
    *,
    profile: str | None,
    platform: str | None,
    dry_run: bool,
    as_json: bool,
    data_dir: Path | None,
) -> int:
    """Import the file at `path`, match it and print the result; return the exit code."""
    by_profile = None if profile is None else _profile(profile)
    with failing_with_usage("reconcile"), opened(path) as file:
        try:
            if dry_run:
                for _ in reader.read(file, by_profile):
                    pass
                file.seek(0)
            with session(data_dir, may="prepare", is_long=True) as person:
                result = _imported(person, file, by_profile, platform, keep=not dry_run)
        except RefusedError as error:
            show(refusal(error), refusal_text(path, error), as_json=as_json)
            return USAGE
    show(as_document(result), as_text(result), as_json=as_json)
    return FAILURE if result.open_breaks else 0


def rematch(*, as_json: bool, data_dir: Path | None) -> int:
    """Match open breaks again and print the files that have some; return the exit code."""
    with (
        failing_with_usage("reconcile"),
        session(data_dir, may="prepare", is_long=True) as person,
    ):
        results = settlement_files.rematch(person)
    count = sum(result.open_breaks for result in results)
    document = {
        "state": "REMATCHED",
        "files": [as_document(result) for result in results],
        "openBreaks": count,
    }
    text = "\n".join([*map(as_text, results), f"{len(results)} files, {count} open breaks"])
    show(document, text, as_json=as_json)
    return FAILURE if count else 0


@contextmanager
def failing_with_usage(command: str) -> Iterator[None]:
    """End a failure of `command` with 2: 1 says that breaks are open, to those who act on it."""
    try:
        yield
    except (CommandError, ServerError) as error:
        raise CommandError(str(error), code=USAGE) from None
    except Exception:  # noqa: BLE001 - else Python would end with 1
        traceback.print_exc()
        raise CommandError(
            f"{command} failed by a defect of cardledger, and has changed nothing; report the"
            " traceback above",
            code=USAGE,
        ) from None


@contextmanager
def session(data_dir: Path | None, *, may: str, is_long: bool = False) -> Iterator[acting.Session]:
    """Yield a session of the person whose login is in the settings.

    `is_long`: a statement may take as long as it needs.
    """
    limit_s = None if is_long else connections.REPLY_LIMIT_S
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with (
        discovery.database(settings) as url,
        acting.as_person(url, may=may, reply_limit_s=limit_s) as person,
    ):
        yield person


def _imported(
    person: acting.Session,
    file: BinaryIO,
    profile: Profile | None,
    platform: str | None,
    *,
    keep: bool,
) -> Result:
    settlement_files.check_right(person)
    try:
        of_platform = (
            settlement_files.platform_of(person)
            if platform is None
            else key_of(platform, "Platform", "--platform")
        )
        return settlement_files.import_file(
            person, of_platform, reader.read(file, profile), keep=keep
        )
    except RefusedError as error:
        if keep:
            settlement_files.refuse(person, error)
        raise


def _profile(name: str) -> Profile:
    try:
        return profiles.load(name)
    except ProfileError as error:
        raise CommandError(f"--profile {error}", code=USAGE) from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Yield the file at `path`, or a copy of what can be read only once: a pipe, standard input.

    So no database transaction waits for what another process writes.
    """
    try:
        file = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", code=USAGE) from None
    with file:
        if str(path) != "-" and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            yield copy


def refusal(error: RefusedError) -> dict[str, Any]:
    """Return what `--json` prints of a file that is refused."""
    return {
        "state": "REFUSED",
        "code": error.code,
        "line": error.line,
        "column": error.column,
        "message": error.message,
    }


def refusal_text(path: Path, error: RefusedError) -> str:
    """Return a refusal as a line for people."""
    place = "".join(
        f", {name} {value}"
        for name, value in (("line", error.line), ("column", error.column))
        if value is not None
    )
    return f"REFUSED  {error.code}  {printable(path)}{place}: {error.message}"


def as_document(result: Result) -> dict[str, Any]:
    """Return what `--json` prints; amounts are minor units."""
    return {
        "state": result.state,
        "fileId": result.file_id,
        "network": result.network,
        "settlementDate": str(result.settlement_date),
        "cycle": result.cycle,
        "lines": result.lines,
        "matched": result.matched,
        "breaks": [
            {
                "kind": each.kind,
                "currency": each.currency,
                "count": each.count,
                "difference": each.difference,
            }
            for each in result.breaks
        ],
        "proof": [
            {
                "currency": each.currency,
                "ledger": each.ledger,
                "difference": each.difference,
                "file": each.file,
            }
            for each in result.proof
        ],
        "openBreaks": result.open_breaks,
    }


def as_text(result: Result) -> str:
    """Return the result as lines for people; amounts are minor units."""
    cycle = "" if result.cycle is None else f"  cycle {printable(result.cycle)}"
    matched = ", ".join(f"{result.matched[rule]} by {rule}" for rule in RULES)
    head = f"{result.state}  {printable(result.file_id)}  {result.network}"
    return "\n".join(
        [
            f"{head}  {result.settlement_date}{cycle}",
            f"  {result.lines} lines: matched {matched}; {result.open_breaks} open breaks",
            *(
                f"  {each.kind:<16}  {each.currency}  {each.count:>7}  difference {each.difference}"
                for each in result.breaks
            ),
            *(
                f"  proof {each.currency}: ledger {each.ledger} + differences {each.difference}"
                f" = file {each.file}"
                for each in result.proof
            ),
        ]
    )


def show(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print `document` as JSON, or `text`."""
    print(json.dumps(document) if as_json else text)
