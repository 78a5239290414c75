"""`cardledger reconcile`: the settlement files of networks.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

from pathlib import Path
from typing import Annotated

import typer

from cardledger.config.options import Json


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(reconcile)


def reconcile(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The settlement file; `-`: standard input.")
    ],
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the file; nothing is kept.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a settlement file of a network: form, card numbers and control totals.

    Exit code 2: the file is refused as a whole.
    """
    from cardledger.commands.network_files import run

    raise typer.Exit(run.reconcile(file, profile=profile, dry_run=dry_run, as_json=as_json))
