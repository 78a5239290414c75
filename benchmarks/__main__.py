"""`python -m benchmarks`: the command that measures."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import run
from cardledger.commands.cli import report_errors


def _bench(
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"What to measure, may be repeated (all of): {', '.join(run.PARTS)};"
            " and smoke: a few ratios, for CI.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Rounds of each measurement.", min=1)
    ] = 3,
    millions: Annotated[
        float,
        typer.Option(
            metavar="N",
            help="Millions of stored events (growth, console), and of entries (finance, closing).",
            min=0.01,
        ),
    ] = 1.0,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Write all figures to this file.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Print a profile of the engine."),
    ] = False,
) -> None:
    """Measure rates and latencies on this machine, relative to PostgreSQL alone.

    Uses DATABASE_URL (creates databases and drops them afterwards), else an embedded server.
    The exit code is 1 when a bar does not hold; an interrupted run reports what it has measured.
    """
    options = run.Options(
        parts=tuple(part or run.PARTS),
        rounds=rounds,
        millions=millions,
        json_file=json_file,
        profile=profile,
    )
    raise typer.Exit(run.run(options))


if __name__ == "__main__":
    report_errors(lambda: typer.run(_bench))
