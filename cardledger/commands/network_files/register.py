"""`cardledger reconcile`, `bank` and `breaks`: files of networks and statements of the bank.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

from pathlib import Path
from typing import Annotated

import typer

from cardledger.config.options import BreakKind, BreakState, ClosedAs, DataDir, Json

_app = typer.Typer(
    name="breaks",
    help="List what settlement files, statements and the ledger differ by, and work on it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LIMIT = 100_000

Key = Annotated[str, typer.Argument(metavar="ID", help="The break.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(reconcile)
    app.command()(bank)
    app.add_typer(_app)


def reconcile(  # noqa: PLR0913 - the options of the command
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The settlement file; `-`: standard input.", show_default=False
        ),
    ] = None,
    *,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="How the file differs from cardledger-settlement-1: a shipped profile, or one of"
            " your own.",
            show_default=False,
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The platform, if there are several.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and match the file; nothing is kept.")
    ] = False,
    rematch: Annotated[
        bool,
        typer.Option("--rematch", help="In place of a file: match open breaks with what came."),
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Import the settlement file of a network, and match its lines with the events of the ledger.

    Exit code 0: no break is open; 1: breaks are; 2: the file is refused as a whole.
    """
    from cardledger.commands.network_files import run
    from cardledger.config.errors import USAGE, CommandError

    if (file is None) != rematch:
        raise CommandError("either FILE or --rematch is needed", code=USAGE)
    if file is None:
        raise typer.Exit(run.rematch(as_json=as_json, data_dir=data_dir))
    raise typer.Exit(
        run.reconcile(
            file,
            profile=profile,
            platform=platform,
            dry_run=dry_run,
            as_json=as_json,
            data_dir=data_dir,
        )
    )


def bank(  # noqa: PLR0913 - the options of the command
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The statement, as CSV or MT940; `-`: standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="How the CSV differs from cardledger-bank-1: a shipped profile, or one of your"
            " own.",
            show_default=False,
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The platform, if there are several.", show_default=False),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The account, if the file does not say it.", show_default=False
        ),
    ] = None,
    statement_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The statement, if the file does not say it; else its days.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and match the statement; nothing is kept.")
    ] = False,
    rematch: Annotated[
        bool,
        typer.Option("--rematch", help="In place of a file: match open lines with what came."),
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Import a statement of the bank, and match its lines with the days that networks settle.

    Exit code 0: no break is open; 1: breaks are; 2: the statement is refused as a whole.
    """
    from cardledger.commands.network_files import bank as command
    from cardledger.config.errors import USAGE, CommandError

    if (file is None) != rematch:
        raise CommandError("either FILE or --rematch is needed", code=USAGE)
    if file is None:
        raise typer.Exit(command.rematch(as_json=as_json, data_dir=data_dir))
    raise typer.Exit(
        command.take(
            file,
            profile=profile,
            platform=platform,
            account=account,
            statement_id=statement_id,
            dry_run=dry_run,
            as_json=as_json,
            data_dir=data_dir,
        )
    )


@_app.command("list")
def list_breaks(  # noqa: PLR0913 - the filters
    *,
    state: Annotated[
        list[BreakState] | None,
        typer.Option(
            help="Only in this state; may be repeated.", show_default="open and investigating"
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="In any state.")] = False,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this network.", show_default=False)
    ] = None,
    settlement_date: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Only of files of this day.", show_default=False),
    ] = None,
    kind: Annotated[
        BreakKind | None, typer.Option(help="Only of this kind.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of breaks.", min=1, max=_LIMIT)
    ] = 1000,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List breaks, the oldest settlement date first; with --json one a line."""
    from cardledger.commands.network_files import breaks

    states = [] if every else list(state or (BreakState.OPEN, BreakState.INVESTIGATING))
    breaks.show(
        states=[each.value for each in states] or None,
        network=network,
        day=settlement_date,
        kind=None if kind is None else kind.value,
        limit=limit,
        as_json=as_json,
        data_dir=data_dir,
    )


@_app.command()
def assign(
    key: Key,
    *,
    to: Annotated[str, typer.Option(metavar="NAME", help="The person who works on it.")],
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What to do.", show_default=False)
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Let a person work on a break, who then cannot resolve it."""
    from cardledger.commands.network_files import breaks

    breaks.assign(key, to, note, as_json=as_json, data_dir=data_dir)


@_app.command()
def note(
    key: Key,
    *,
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="What is known.")],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Write down what is known of a break."""
    from cardledger.commands.network_files import breaks

    breaks.add_note(key, text, as_json=as_json, data_dir=data_dir)


@_app.command()
def resolve(  # noqa: PLR0913 - the options of the command
    key: Key,
    *,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who audit it.")],
    closed_as: Annotated[
        ClosedAs, typer.Option("--as", help="What becomes of the difference.")
    ] = ClosedAs.RESOLVED,
    make_event: Annotated[
        bool,
        typer.Option(
            "--make-event",
            help="Submit the event that a line IN_FILE_ONLY is, once; when it is applied,"
            " `reconcile --rematch` explains the break.",
        ),
    ] = False,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Resolve a break, or write it off: another person than the one who works on it.

    Needs the right to approve. Nothing is booked (`cardledger adjust` does that), unless the
    missing event is made.
    """
    from cardledger.commands.network_files import breaks

    if make_event:
        breaks.make_event(key, note, as_json=as_json, data_dir=data_dir)
        return
    breaks.resolve(key, closed_as.value, note, as_json=as_json, data_dir=data_dir)
