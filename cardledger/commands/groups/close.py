"""`cardledger close`: close and reopen periods of the books, two people each time.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from cardledger.commands.groups.database import identifier, quoted
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from cardledger.ledger.books.closings import Closings, Finding, Request
    from cardledger.ledger.books.periods import Period
    from cardledger.schema.ids import Id


class _Group(TyperGroup):
    """The group of commands in which `close 2026-10` is short for `close prepare 2026-10`."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["prepare", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="close",
    cls=_Group,
    help="Close periods of the books: `close 2026-10` is short for `close prepare 2026-10`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Closing = Annotated[
    str, typer.Argument(metavar="ID", help="The closing, as `prepare` or `list` shows it.")
]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Why; kept with your login.", show_default=False)
]


@app.command()
def begin(
    day: Annotated[str, typer.Argument(metavar="DAY", help="YYYY-MM-DD.")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Let the books begin on a day, before the first period is closed.

    A movement of an earlier day is posted on it. New books begin with the month in which they were
    made. Needs the login of a person who may approve.
    """
    from cardledger.ledger.books import periods

    try:
        first_day = periods.day(day).first
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from None
    with _opened(data_dir) as closings:
        closings.begin(first_day)
    print(f"the books begin on {first_day}")


@app.command()
def prepare(  # noqa: PLR0913 - the options of the command
    month: Annotated[
        str | None, typer.Argument(metavar="MONTH", help="YYYY-MM.", show_default=False)
    ] = None,
    *,
    day: Annotated[
        str | None,
        typer.Option(
            "--day", metavar="DAY", help="One day, YYYY-MM-DD, not a month.", show_default=False
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Close although this is in the way: a kind that `close` lists, such as INBOX,"
            " MISSING_FILE, MOVE_WITHOUT_LINE, UNBOOKED_LINE or a kind of break. May be repeated,"
            " each with a --reason.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Why it is allowed; kept with your login.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Prepare to close a month or a day; another person approves it.

    Lists what is in the way and how to clear it; exits with 1 while something is that is not
    allowed. Periods are closed in order, after they have ended. Needs the login of a person who may
    prepare.
    """
    from cardledger.ledger.books.closings import InTheWayError

    period = _period(month, day)
    allowed = _allowed(allow or [], reason or [])
    with _opened(data_dir) as closings:
        try:
            made = closings.prepare(period, allowed)
        except InTheWayError as error:
            findings = closings.in_the_way(period)
            if as_json:
                print(json.dumps({"inTheWay": [_finding(each) for each in findings]}, indent=2))
            else:
                _show_findings(findings)
            raise CommandError(
                f"{error}; clear it, or allow it with --allow KIND --reason TEXT"
            ) from None
    _print_state(made, "PREPARED", as_json=as_json)


@app.command()
def approve(closing: Closing, *, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Close or reopen what another person has prepared.

    A closed period is sealed: its trial balance, the number of its entries and their SHA-256 are
    kept. Repeat the command if it was interrupted. Needs the login of a person who may approve.
    """
    key = _key(closing)
    with _opened(data_dir) as closings:
        state = closings.approve(key)
    _print_state(key, state, as_json=as_json)


@app.command()
def reject(
    closing: Closing, *, reason: Reason, as_json: Json = False, data_dir: DataDir = None
) -> None:
    """Reject what another person has prepared.

    Needs the login of a person who may approve.
    """
    key = _key(closing)
    with _opened(data_dir) as closings:
        state = closings.reject(key, reason)
    _print_state(key, state, as_json=as_json)


@app.command()
def reopen(
    closing: Closing, *, reason: Reason, as_json: Json = False, data_dir: DataDir = None
) -> None:
    """Prepare to reopen the period closed last; another person approves it by its own id.

    Its seal stays, and another one is made when it is closed again. Needs the login of a person who
    may prepare.
    """
    key = _key(closing)
    with _opened(data_dir) as closings:
        made = closings.prepare_reopening(key, reason)
    _print_state(made, "PREPARED", as_json=as_json)


@app.command("list")
def list_closings(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List closings and reopenings, oldest first."""
    with _opened(data_dir) as closings:
        requests = closings.requests()
    if as_json:
        print(json.dumps([_request(each) for each in requests], indent=2))
        return
    for each in requests:
        print(_line(each))
    if not requests:
        print("none")


# --- options --------------------------------------------------------------------------------------


def _period(month: str | None, day: str | None) -> "Period":
    from cardledger.ledger.books import periods

    if (month is None) == (day is None):
        raise CommandError("name a month, such as 2026-10, or --day and a day", code=USAGE)
    try:
        return periods.day(day) if day is not None else periods.month(month or "")
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from None


def _allowed(kinds: Sequence[str], reasons: Sequence[str]) -> dict[str, str]:
    if len(kinds) != len(reasons):
        raise CommandError("write a --reason after each --allow", code=USAGE)
    allowed = dict(zip(kinds, reasons, strict=True))
    if len(allowed) < len(kinds):
        raise CommandError("--allow: a kind is there twice", code=USAGE)
    return allowed


def _key(text: str) -> "Id":
    return identifier(text, "a closing")


@contextmanager
def _opened(data_dir: Path | None) -> "Iterator[Closings]":
    """Yield the periods of the installation.

    Raises: CommandError when PostgreSQL refuses what is done with them.
    """
    import psycopg

    from cardledger.config import configuration
    from cardledger.install import discovery
    from cardledger.ledger.books import closings

    settings = configuration.load(data_dir=data_dir, log_level="warning")
    with discovery.database(settings) as url:
        try:
            with closings.opened(url) as found:
                yield found
        except (closings.RefusedError, closings.BusyError) as error:
            raise CommandError(str(error)) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise CommandError(
                f"role {url.role} may not: {error.diag.message_primary}; log in as a person of"
                " `cardledger person` who may prepare, or approve (DATABASE_URL)"
            ) from None
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction):
            raise CommandError(
                "the database has no periods yet; run `cardledger migrate`"
            ) from None
        except psycopg.Error as error:
            message = error.diag.message_primary or str(error).strip()
            raise CommandError(f"PostgreSQL at {url.redacted} failed: {message}") from None


# --- what is printed ------------------------------------------------------------------------------


def _print_state(key: "Id", state: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"id": str(key), "state": state}))
    elif state == "PREPARED":
        print(f"{key} PREPARED: another person approves it with `cardledger close approve {key}`")
    else:
        print(f"{key} {state}")


def _finding(finding: "Finding") -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "found": finding.found,
        "detail": finding.detail,
        "meaning": finding.meaning,
        "remedy": finding.remedy,
    }


def _show_findings(findings: "Sequence[Finding]") -> None:
    shown: set[str] = set()
    for finding in findings:
        print(f"{finding.kind:<12}  {finding.found:>6}  {quoted(finding.detail)}")
        if finding.kind not in shown:
            shown.add(finding.kind)
            print(f"{'':<22}{finding.meaning}: {finding.remedy}")


def _request(request: "Request") -> dict[str, Any]:
    return {
        "id": str(request.id),
        "kind": request.kind,
        "firstDay": request.first_day.isoformat(),
        "lastDay": request.last_day.isoformat(),
        "state": request.state,
        "preparedAt": request.prepared_at.isoformat(),
        "preparedBy": request.prepared_by,
        "decidedAt": request.decided_at.isoformat() if request.decided_at else None,
        "decidedBy": request.decided_by,
        "reason": request.reason,
        "sealedAt": request.sealed_at.isoformat() if request.sealed_at else None,
        "entries": request.entries,
        "sha256": request.sha256,
    }


def _line(request: "Request") -> str:
    parts = [
        str(request.id),
        f"{request.kind:<6}",
        f"{request.first_day} to {request.last_day}",
        f"{request.state:<8}",
        f"by {quoted(request.prepared_by)}",
    ]
    if request.decided_by is not None:
        parts.append(f"and {quoted(request.decided_by)}")
    if request.entries is not None:
        parts.append(f"{request.entries} entries, sha256 {request.sha256}")
    if request.reason is not None:
        parts.append(quoted(request.reason))
    return "  ".join(parts)
