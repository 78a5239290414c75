"""Commands for daily work: lists, explanations, live figures, stories for a sandbox.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

from typing import Annotated

import typer

from cardledger.config.options import DataDir, Json
from cardledger.ledger.core.status import Status

Platform = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Only of this platform.", show_default=False),
]
Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of rows.", min=1, max=1000)]
After = Annotated[
    str | None,
    typer.Option(
        metavar="CURSOR", help="Continue after the cursor of the last page.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (transactions, explain, exceptions, top, trigger):
        app.command()(command)


def transactions(  # noqa: PLR0913 - the options of the command
    *,
    status: Annotated[
        Status | None, typer.Option(help="Only this status.", show_default=False)
    ] = None,
    card: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of this card.", show_default=False)
    ] = None,
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="Only of this cardholder.", show_default=False)
    ] = None,
    platform: Platform = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Created from this time on, such as 2026-03-01T12:00:00Z.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 50,
    after: After = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List card transactions, newest first.

    Of all platforms, from the database; `explain` takes the id of a row. A query that takes longer
    than 8 seconds is ended: of the statuses only EXCEPTION has an index.
    """
    from cardledger.commands.daily import transactions as command

    options = command.Options(
        status=status,
        card=card,
        customer=customer,
        platform=platform,
        since=since,
        after=after,
        limit=limit,
        as_json=as_json,
        data_dir=data_dir,
    )
    command.run(options)


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="CardTransaction:<uuid>, the UUID alone, or SOURCE/REFERENCE of an event.",
        ),
    ],
    *,
    platform: Platform = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Explain a card transaction in sentences.

    Each event with the figures that it changed and its journal entries, then the webhooks with
    their state.
    """
    from cardledger.commands.daily import explain as command

    command.run(name, platform=platform, as_json=as_json, data_dir=data_dir)


def exceptions(
    *,
    platform: Platform = None,
    limit: Limit = 50,
    after: After = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List card transactions for which money is due, oldest first.

    With the event since which it is, and the sums of all by currency and age.
    """
    from cardledger.commands.daily import exceptions as command

    command.run(platform=platform, after=after, limit=limit, as_json=as_json, data_dir=data_dir)


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one sample and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a sample a line, as JSON.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Show live rates, depths and ages, each second until Ctrl-C.

    Decisions and webhook attempts a second are means of ten seconds. Counts end at 10,000;
    rejected and forged events are those of the last 24 hours.
    """
    from cardledger.commands.daily import top as command

    command.run(once=once, as_json=as_json, data_dir=data_dir)


def trigger(
    story: Annotated[
        str,
        typer.Argument(
            metavar="STORY",
            help="tip, hotel, fuel, split-shipment, refund, late-clearing, expiry or"
            " insufficient-funds.",
        ),
    ],
    *,
    card: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Play on this card instead of a new one.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Play a story on the running sandbox.

    Over the HTTP API of `up` or `demo --keep`, with a new customer, account and card. The exit code
    is 1 if a figure is not the one of the story.
    """
    from cardledger.commands.daily import trigger as command

    code = command.run(story, card=card, as_json=as_json, data_dir=data_dir)
    raise typer.Exit(code)
