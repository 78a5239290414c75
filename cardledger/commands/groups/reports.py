"""`cardledger report`: the reports of finance.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

from pathlib import Path
from typing import Annotated

import typer

from cardledger.config.options import DataDir, ReportFormat

app = typer.Typer(
    name="report",
    help="Report the books as a table, CSV, JSON, xlsx or Parquet.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


On = Annotated[
    str | None,
    typer.Option(
        metavar="DAY", help="What was posted on or before this day (today).", show_default=False
    ),
]
Known = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="As it was known at this time, such as 2026-11-01T06:00:00Z (now).",
        show_default=False,
    ),
]
First = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DAY", help="From this day on (from the first one).", show_default=False
    ),
]
Last = Annotated[
    str | None,
    typer.Option("--to", metavar="DAY", help="Up to this day (today).", show_default=False),
]
Platform = Annotated[
    str | None, typer.Option(metavar="ID", help="Only of this platform.", show_default=False)
]
Currency = Annotated[
    str | None,
    typer.Option(metavar="CODE", help="Only in this currency, such as USD.", show_default=False),
]
AccountOption = typer.Option(
    "--account",
    metavar="ACCOUNT",
    help="InternalAccount:<uuid>, a UUID, or the kind of a system account such as"
    " NETWORK_SETTLEMENT, with --currency and --platform if there are several.",
    show_default=False,
)
FormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--format",
        help="How to write it (by the suffix of --output, else table); xlsx and parquet need"
        " cardledger[export].",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write to this file, which appears whole or not at all (standard output).",
        show_default=False,
    ),
]


@app.command("trial-balance")
def trial_balance(  # noqa: PLR0913 - the options of the command
    *,
    on: On = None,
    known: Known = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """Debits and credits of each account; each currency balances."""
    _run(
        "trial-balance",
        fmt,
        output,
        data_dir,
        on=on,
        known=known,
        currency=currency,
        platform=platform,
    )


@app.command()
def journal(  # noqa: PLR0913 - the options of the command
    *,
    first: First = None,
    last: Last = None,
    known: Known = None,
    account: Annotated[str | None, AccountOption] = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """Every entry of a period, one a row, with its dates, accounts and cause."""
    _run(
        "journal",
        fmt,
        output,
        data_dir,
        first=first,
        last=last,
        known=known,
        account=account,
        currency=currency,
        platform=platform,
    )


@app.command()
def statement(  # noqa: PLR0913 - the options of the command
    *,
    account: Annotated[str, AccountOption],
    first: First = None,
    last: Last = None,
    known: Known = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """One account: its opening balance, then every posting with the balance after it."""
    _run(
        "statement",
        fmt,
        output,
        data_dir,
        first=first,
        last=last,
        known=known,
        account=account,
        currency=currency,
        platform=platform,
    )


@app.command("network-days")
def network_days(  # noqa: PLR0913 - the options of the command
    *,
    first: First = None,
    last: Last = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """What the network took and gave, by settlement date, network, cycle and currency."""
    _run(
        "network-days",
        fmt,
        output,
        data_dir,
        first=first,
        last=last,
        currency=currency,
        platform=platform,
    )


@app.command()
def holds(  # noqa: PLR0913 - the options of the command
    *,
    on: On = None,
    known: Known = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """What is held for clearings to come, by card transaction, with its age."""
    _run("holds", fmt, output, data_dir, on=on, known=known, currency=currency, platform=platform)


@app.command()
def receivables(  # noqa: PLR0913 - the options of the command
    *,
    on: On = None,
    known: Known = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """What customers owe, by card transaction, with its age."""
    _run(
        "receivables",
        fmt,
        output,
        data_dir,
        on=on,
        known=known,
        currency=currency,
        platform=platform,
    )


@app.command()
def unapplied(
    *,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """Rejected and parked messages that move money, with their age."""
    _run("unapplied", fmt, output, data_dir, currency=currency, platform=platform)


@app.command()
def breaks(  # noqa: PLR0913 - the options of the command
    *,
    first: First = None,
    last: Last = None,
    currency: Currency = None,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """What settlement files and the ledger differ by, as known now."""
    _run(
        "breaks",
        fmt,
        output,
        data_dir,
        first=first,
        last=last,
        currency=currency,
        platform=platform,
    )


@app.command()
def explain(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="CardTransaction:<uuid>, or the UUID alone.")
    ],
    *,
    platform: Platform = None,
    fmt: FormatOption = None,
    output: Output = None,
    data_dir: DataDir = None,
) -> None:
    """Every cent of a card transaction, in the sentences of the HTTP API."""
    from cardledger.commands.reports import explain as command
    from cardledger.commands.reports.run import Target
    from cardledger.commands.reports.scopes import Wanted

    wanted = Wanted(report=command.NAME, platform=platform, data_dir=data_dir)
    command.run(name, wanted, Target.of(fmt, output))


def _run(  # noqa: PLR0913 - the options of all reports
    report: str,
    fmt: ReportFormat | None,
    output: Path | None,
    data_dir: Path | None,
    *,
    on: str | None = None,
    known: str | None = None,
    first: str | None = None,
    last: str | None = None,
    account: str | None = None,
    currency: str | None = None,
    platform: str | None = None,
) -> None:
    from cardledger.commands.reports import run as command
    from cardledger.commands.reports.scopes import Wanted

    wanted = Wanted(
        report=report,
        on=on if last is None else last,
        on_option="--on" if last is None else "--to",
        known=known,
        first=first,
        account=account,
        currency=currency,
        platform=platform,
        data_dir=data_dir,
    )
    command.run(wanted, command.Target.of(fmt, output))
