"""`python -m attack`: the command that attacks and reports."""

import json
from pathlib import Path
from typing import Annotated

import typer

from attack import run
from cardledger.commands.cli import report_errors


def main(  # noqa: PLR0913 - the options of the command
    *,
    seconds: Annotated[
        float, typer.Option(metavar="S", help="How long each attack strikes.", min=0.5)
    ] = 60.0,
    redis_seconds: Annotated[
        float, typer.Option(metavar="S", help="How long the attack on Redis strikes.", min=0.5)
    ] = 300.0,
    rate: Annotated[
        float,
        typer.Option(metavar="N", help="Authorizations of the other platform a second.", min=1),
    ] = run.RATE,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Attack to play, may be repeated (all of them)."),
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
    """Play every attack against a system that serves another platform, and judge its effect.

    The exit code is 1 when a limit was broken, or when an attack did not strike.
    """
    names = tuple(only or run.ATTACKS)
    unknown = [name for name in names if name not in run.ATTACKS]
    if unknown:
        raise typer.BadParameter(f"no attack {unknown[0]!r}; there are: {', '.join(run.ATTACKS)}")
    options = run.Options(
        seconds=seconds,
        redis_seconds=redis_seconds,
        quiet_seconds=min(10.0, max(1.0, seconds / 6)),
        rate=rate,
        names=names,
        home=keep,
    )
    report = run.run(options, progress=True)
    print(report.text())
    if json_file is not None:
        json_file.write_text(json.dumps(report.json(), indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(0 if report.holds else 1)


if __name__ == "__main__":
    report_errors(lambda: typer.run(main))
