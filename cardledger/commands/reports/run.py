"""Read a report from one snapshot of the books and write it in the wanted format."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psycopg

from cardledger.commands.reports import (
    as_csv,
    as_json,
    as_parquet,
    as_table,
    as_xlsx,
    output,
    scopes,
)
from cardledger.commands.reports.document import Document
from cardledger.commands.reports.scopes import Wanted
from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import CommandError
from cardledger.config.options import ReportFormat as Format
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.install import discovery
from cardledger.ledger.queries import report_snapshot
from cardledger.ledger.queries.report_definitions import REPORTS, Report
from cardledger.ledger.queries.report_snapshot import Scope, Snapshot
from cardledger.schema.finance import VERSION

BINARY: Final = frozenset({Format.XLSX, Format.PARQUET})
_WRITERS: Final[dict[Format, Callable[[IO[bytes], Document], None]]] = {
    Format.TABLE: as_table.write,
    Format.CSV: as_csv.write,
    Format.JSON: as_json.write,
    Format.XLSX: as_xlsx.write,
    Format.PARQUET: as_parquet.write,
}

_NO_RIGHT: Final = (
    "this role may not read the books; log in as a person of `cardledger person`, or as"
    " <database>_finance"
)
_NO_BOOKS: Final = "the database has no books for finance yet; run `cardledger migrate`"
_FIXES: Final[tuple[tuple[type[psycopg.Error], str], ...]] = (
    (psycopg.errors.InsufficientPrivilege, _NO_RIGHT),
    (psycopg.errors.UndefinedFunction, _NO_BOOKS),
    (psycopg.errors.UndefinedTable, _NO_BOOKS),
    (psycopg.errors.InvalidSchemaName, _NO_BOOKS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How a report is written and where to; the format of a file can be told by its name."""

    format: Format
    file: Path | None

    @classmethod
    def of(cls, named: Format | None, file: Path | None) -> "Target":
        """Return the format `named`, else that of the suffix of `file`, else a table.

        Raises: CommandError, a usage error.
        """
        suffix = "" if file is None else file.suffix.removeprefix(".").lower()
        by_suffix = Format(suffix) if suffix in set(Format) else Format.TABLE
        found = named or by_suffix
        output.check(file, is_binary=found in BINARY, name=found)
        return cls(format=found, file=file)


def run(wanted: Wanted, target: Target) -> None:
    """Write the report `wanted` to `target`.

    Raises: CommandError.
    """
    values = scopes.parsed(wanted)
    report = REPORTS[wanted.report]
    check_packages(target.format)
    with snapshot_of(wanted.data_dir) as snapshot:
        scope = scopes.scope_of(values, snapshot)
        if target.format is Format.CSV:
            _write_csv(report, scope, snapshot, target)
            return
        is_table = target.format is Format.TABLE
        rows = snapshot.rows(
            report,
            scope,
            texts=target.format is not Format.PARQUET,
            limit=as_table.row_limit(report.columns) if is_table else None,
        )
        with closing(rows):
            document = Document(
                head=scopes.head_of(report.name, scope, snapshot),
                columns=report.columns,
                batches=rows,
                decimals=snapshot.decimals,
            )
            write(document, target)


def write(document: Document, target: Target) -> None:
    """Write `document` to `target`; a table on standard output fits the terminal."""
    with output.opened(target.file) as out:
        if target.format is Format.TABLE and target.file is None:
            as_table.show(terminal.console(), document)
            return
        _WRITERS[target.format](out, document)
    if target.file is not None or target.format is Format.CSV:
        # CSV has no room for it; the other formats have it inside.
        print(document.head.line(), file=sys.stderr)


def _write_csv(report: Report, scope: Scope, snapshot: Snapshot, target: Target) -> None:
    """Write the lines as PostgreSQL makes them, which takes two thirds of the time of ours."""
    with output.opened(target.file) as out, closing(snapshot.lines(report, scope)) as lines:
        as_csv.write_lines(out, report.columns, lines)
    print(scopes.head_of(report.name, scope, snapshot).line(), file=sys.stderr)


def check_packages(wanted: Format) -> None:
    """Say that a package is missing before the books are read."""
    match wanted:
        case Format.XLSX:
            as_xlsx.package()
        case Format.PARQUET:
            as_parquet.packages()
        case _:
            pass


@contextmanager
def snapshot_of(data_dir: Path | None) -> Iterator[Snapshot]:
    """Yield a snapshot of the books of an installation.

    Raises: CommandError.
    """
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with (
        discovery.database(settings) as url,
        _explained(url),
        report_snapshot.opened(url) as snapshot,
    ):
        if snapshot.version < VERSION:
            raise CommandError(
                f"the books of the database are of version {snapshot.version}, this release"
                f" reads version {VERSION}; run `cardledger migrate`"
            )
        yield snapshot


@contextmanager
def _explained(url: DatabaseUrl) -> Iterator[None]:
    """Turn an error of PostgreSQL into one line that says what to do."""
    try:
        yield
    except psycopg.Error as error:
        # The details of a message can quote rows.
        message = error.diag.message_primary or str(error).strip()
        for kind, fix in _FIXES:
            if isinstance(error, kind):
                raise CommandError(f"{message}: {fix}") from None
        raise CommandError(f"PostgreSQL at {url.redacted} failed: {message}") from None
