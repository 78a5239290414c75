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
            help="floor, engine, service, webhooks, proof, growth; may be repeated (all); smoke:"
            " a few ratios, for CI."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of every measurement.", min=1)] = 3,
    millions: Annotated[
        float,
        typer.Option(help="Millions of events at which growth is measured, too.", min=0.01),
    ] = 1.0,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write all figures here, too.", show_default=False),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the engine's processor time goes, too.")
    ] = False,
) -> None:
    """Measure rates and latencies on this machine, beside what PostgreSQL can do at all.

    Uses DATABASE_URL (databases of its own, dropped afterwards), else an embedded server. Ends with
    exit code 1 when a bar does not hold.
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
