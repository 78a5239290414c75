"""`cardledger api`, `cardledger worker` and `cardledger relay`: one process each, for a supervisor.

What each needs is imported when it runs, so that `--help` stays quick.
"""

# ruff: noqa: PLC0415 - see above.

import sys
from pathlib import Path
from typing import Annotated

import typer

from cardledger.config.errors import FAILURE
from cardledger.config.options import DataDir, Host, LaneName, Port
from cardledger.workers.signals.roles import WorkerRole

Supervised = Annotated[str | None, typer.Option(hidden=True)]
Stale = Annotated[list[Path] | None, typer.Option(hidden=True)]
ListenFd = Annotated[int | None, typer.Option(hidden=True)]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (api, worker, relay):
        app.command()(command)


def api(
    *,
    host: Host = None,
    port: Port = None,
    listen_fd: ListenFd = None,
    supervised: Supervised = None,
    stale: Stale = None,
) -> None:
    """Run one API process, until SIGTERM.

    Requires DATABASE_URL, REDIS_URL and CARDLEDGER_SECRET_KEY.
    """
    _watch_parent(supervised, stale)
    from cardledger.config import configuration
    from cardledger.supervisor import processes

    found = configuration.load(host=host, port=port, process=supervised)
    processes.run_api(found, listen_fd=listen_fd, supervised=supervised is not None)


def worker(  # noqa: PLR0913 - one an option
    *,
    only: Annotated[
        WorkerRole | None, typer.Option(help="Only decide events, or only send webhooks.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the worker that runs with this data directory."),
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="With --check: only problems that a restart may end."),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Port to serve /metrics on (default: none).",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None,
    supervised: Supervised = None,
    stale: Stale = None,
) -> None:
    """Run one worker process, until SIGTERM.

    It decides events and sends webhooks; with several processors, use one process for each role.
    Requires DATABASE_URL, REDIS_URL and CARDLEDGER_SECRET_KEY.
    """
    _watch_parent(supervised, stale)
    from cardledger.config import configuration
    from cardledger.supervisor import processes

    found = configuration.load(metrics_port=metrics_port, process=supervised)
    if live and not check:
        raise typer.BadParameter("--live is an option of --check")
    if check:
        problems = processes.check_worker(found, role=only, of_worker_only=live)
        print("\n".join(problems) or "healthy")
        sys.exit(FAILURE if problems else 0)
    processes.run_worker(found, role=only, supervised=supervised is not None)


def relay(  # noqa: PLR0913 - the options of the command
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            help="Database with the outbox table, as SQLAlchemy names it:"
            " postgresql://user:password@host/database; @FILE reads it from a file.",
        ),
    ],
    table: Annotated[
        str, typer.Option(metavar="NAME", help="The outbox table, or schema.table.")
    ] = "cardledger_outbox",
    create_table: Annotated[
        bool, typer.Option("--create-table", help="Create the table if there is none.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End when the table is empty; 1 if events were refused.")
    ] = False,
    lane: Annotated[
        LaneName, typer.Option(help="LIVE for events that a network waits for, BULK for files.")
    ] = LaneName.LIVE,
    data_dir: DataDir = None,
) -> None:
    """Enqueue the events of an outbox table in another database, until SIGTERM.

    The table has the columns id, event (JSON) and error. Rows are sent in the order of their ids
    and deleted; those that cannot be enqueued get an error and do not stop the others. Requires
    DATABASE_URL, for which the login of <database>_submit is enough.
    """
    from cardledger.commands.relay import run as command

    command.run(
        source,
        table=table,
        create_table=create_table,
        once=once,
        lane=lane.value,
        data_dir=data_dir,
    )


def _watch_parent(supervised: str | None, stale: list[Path] | None) -> None:
    if supervised is not None:
        from cardledger.supervisor import lifeline

        lifeline.watch_parent(stale or [])
