"""`cardledger calendar`: the business days of networks and of the books.

What it needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cardledger.commands.groups.database import quoted, run
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.options import DataDir, Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from cardledger.ledger.books.calendars import NewVersion, StoredVersion

app = typer.Typer(
    name="calendar",
    help="Set and list the business days of networks and of the books.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A network, as events call it in settlement.network, or BOOKS: all that has no"
        " calendar.",
        show_default=False,
    ),
]


@app.command("set")
def set_calendar(  # noqa: PLR0913 - the options of the command
    name: Name,
    *,
    time_zone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone, as in the IANA database.")
    ] = "UTC",
    cut_off: Annotated[
        str,
        typer.Option(
            metavar="HH:MM",
            help="Local time from which a movement belongs to the next day; 00:00: midnight.",
        ),
    ] = "00:00",
    days: Annotated[
        str,
        typer.Option(
            "--days",
            metavar="DAYS",
            help="Days of the week that settle, such as mon-fri or mon,wed-fri.",
        ),
    ] = "mon-sun",
    holidays: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of dates that do not settle, YYYY-MM-DD, one a line; # begins a comment.",
            show_default=False,
        ),
    ] = None,
    valid_from: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="First day, in UTC, that the version applies to (default: tomorrow; the first open"
            " day for the first version of a calendar that nothing was posted by).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Add a version of a calendar; nothing that is posted moves.

    A version is never changed: a holiday that is announced later is another version, with all
    holidays.
    """
    from cardledger.config import calendar_options as options
    from cardledger.ledger.books import calendars
    from cardledger.ledger.books.business_days import Calendar

    new = calendars.NewVersion(
        name=options.name(name),
        calendar=Calendar(
            time_zone=options.time_zone(time_zone),
            cut_off=options.cut_off(cut_off),
            days=options.days(days),
            holidays=frozenset() if holidays is None else options.holidays(holidays),
        ),
        valid_from=None if valid_from is None else options.day(valid_from, "--valid-from"),
    )
    stored = run(data_dir, lambda connection: _add(connection, new))
    if as_json:
        print(json.dumps(_as_dict(stored), indent=2))
    else:
        print(_line(stored))


async def _add(connection: "AsyncConnection[Any]", new: "NewVersion") -> "StoredVersion":
    from cardledger.ledger.books import calendars

    try:
        return await calendars.add(connection, new)
    except calendars.RefusedVersionError as error:
        raise CommandError(str(error), code=USAGE) from None


@app.command("list")
def list_calendars(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """List all calendars with their versions, one a line."""
    _print(_read(data_dir), as_json=as_json)


@app.command("show")
def show(name: Name, *, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Show the versions of one calendar, with their holidays."""
    found = [version for version in _read(data_dir) if version.name == name]
    if not found:
        raise CommandError(
            f"there is no calendar {quoted(name)}; what it would be for uses BOOKS", code=USAGE
        )
    _print(found, as_json=as_json, with_holidays=True)


def _read(data_dir: Path | None) -> "Sequence[StoredVersion]":
    from cardledger.ledger.books import calendars

    return run(data_dir, calendars.read_async)


def _print(
    versions: "Sequence[StoredVersion]", *, as_json: bool, with_holidays: bool = False
) -> None:
    if as_json:
        print(json.dumps([_as_dict(version) for version in versions], indent=2))
        return
    for version in versions:
        print(_line(version))
        if with_holidays:
            for holiday in sorted(version.holidays):
                print(f"  holiday {holiday:%Y-%m-%d %a}")
    if not versions:
        print("none: a business day is a calendar day in UTC")


def _line(version: "StoredVersion") -> str:
    from cardledger.config import calendar_options as options

    count = len(version.holidays)
    return (
        f"{version.name}  from {version.valid_from}  {version.time_zone}"
        f"  cut-off {version.cut_off:%H:%M}  {options.days_text(version.days)}"
        f"  {count} holiday{'' if count == 1 else 's'}  by {quoted(version.created_by)}"
    )


def _as_dict(version: "StoredVersion") -> dict[str, Any]:
    from cardledger.config import calendar_options as options

    return {
        "name": version.name,
        "validFrom": version.valid_from.isoformat(),
        "timeZone": version.time_zone,
        "cutOff": f"{version.cut_off:%H:%M}",
        "days": options.days_text(version.days),
        "holidays": [day.isoformat() for day in sorted(version.holidays)],
        "createdAt": version.created_at.isoformat(),
        "createdBy": version.created_by,
    }
