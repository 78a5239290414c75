"""`python -m storm`: the command that strikes and reports."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cardledger.commands.cli import report_errors
from storm import run


def _storm(  # noqa: PLR0913 - the options of the command
    *,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the load and the schedule.")] = 1,
    minutes: Annotated[
        float, typer.Option(metavar="M", help="How long faults strike.", min=0.05)
    ] = 5.0,
    rate: Annotated[
        float, typer.Option(metavar="N", help="Calls a second, over all interfaces.", min=1)
    ] = run.RATE,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Kind of fault, may be repeated (all of them)."),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep data and logs there.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the report to this file, as JSON."),
    ] = None,
) -> None:
    """Run a whole system under load while faults strike, and check every promise.

    The exit code is 1 when a promise was broken or had nothing to check, when a kind of fault never
    struck, or when the p99 of the recoveries reached 5 seconds.
    """
    kinds = tuple(kind or run.KINDS)
    unknown = [name for name in kinds if name not in run.KINDS]
    if unknown:
        raise typer.BadParameter(f"no fault {unknown[0]!r}; there are: {', '.join(run.KINDS)}")
    options = run.Options(seed=seed, seconds=minutes * 60, rate=rate, kinds=kinds, home=keep)
    report = run.run(options, progress=True)
    print(report.text())
    if json_file is not None:
        json_file.write_text(json.dumps(report.json(), indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(0 if report.holds else 1)


if __name__ == "__main__":
    report_errors(lambda: typer.run(_storm))
