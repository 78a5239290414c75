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
            help="floor, engine, service, webhooks, proof, growth; may be repeated (all); smoke:"
            " a few ratios, for CI.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Rounds of every measurement.", min=1)
    ] = 3,
    millions: Annotated[
        float,
        typer.Option(
            metavar="N", help="Also measure growth at this many million events.", min=0.01
        ),
    ] = 1.0,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Also write all figures to this file.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also print where the engine's processor time goes.")
    ] = False,
) -> None:
    """Measure rates and latencies on this machine, relative to the PostgreSQL ceiling.

    Uses DATABASE_URL (databases of its own, dropped afterwards), else an embedded server.
    The exit code is 1 if a limit is not met.
    """
    asked = run.Asked(
        parts=tuple(part or run.PARTS),
        rounds=rounds,
        millions=millions,
        json_file=json_file,
        profile=profile,
    )
    raise typer.Exit(run.run(asked))


if __name__ == "__main__":
    report_errors(lambda: typer.run(_bench))
