"""The command `cardledger`: what a person types.

Typer and names are imported here; what a command needs is imported inside it, so that `--help` and
`--version` answer at once.
"""

# ruff: noqa: PLC0415 - see above.

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cardledger.commands import webhooks
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.workers.signals.roles import WorkerRole

_INTERRUPTED = 130
_BROKEN_PIPE = 141  # As a shell shows a process that SIGPIPE has ended.

app = typer.Typer(
    name="cardledger",
    help="An event-driven card-transaction ledger. Try `cardledger demo` first.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(webhooks.app)

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Where embedded servers keep their data and this installation its secrets"
        " (default: .cardledger).",
        show_default=False,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on (default: 127.0.0.1).", show_default=False),
]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port to listen on; 0 takes a free one (default: 8000).",
        min=0,
        max=65535,
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Supervised = Annotated[str | None, typer.Option(hidden=True)]
Stale = Annotated[list[Path] | None, typer.Option(hidden=True)]
ListenFd = Annotated[int | None, typer.Option(hidden=True)]


def main() -> None:
    """Run the command `cardledger`."""
    report_errors(app)


def report_errors(command: Callable[[], None]) -> None:
    """Run `command`; print an error that a person can fix as one line on standard error."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        command()
    except CommandError as error:
        _fail(str(error), error.code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except Exception as error:
        _fail_if_known(error)
        raise


@app.callback(invoke_without_command=True)
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)
    ] = False,
) -> None:
    if version:
        from cardledger import __version__

        typer.echo(f"cardledger {__version__}")
        raise typer.Exit


@app.command()
def demo(  # noqa: PLR0913 - the options of the command
    *,
    events: Annotated[
        int, typer.Option(help="Events in the crowd, repetitions not counted.", min=0)
    ] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed plays the same crowd.")] = 7,
    as_json: Json = False,
    check: Annotated[
        bool, typer.Option("--check", help="Also hold the story to its numbers, exactly.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay up afterwards, until Ctrl-C, to look around.")
    ] = False,
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
) -> None:
    """Play a restaurant tip and a crowd, and prove the books.

    Starts everything like `up`, in a temporary directory unless --data-dir says where. Ends with
    exit code 0 only when the proof holds.
    """
    from cardledger.demo import play
    from cardledger.demo.result import Options

    options = Options(events=events, seed=seed, as_json=as_json, check=check, keep=keep)
    raise typer.Exit(play.run(options, host=host, port=port, data_dir=data_dir))


@app.command()
def up(
    *,
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="Write addresses and credentials here, as JSON, once everything serves; the file"
            " is removed at the end.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1, max=64)] = 1,
) -> None:
    """Run the whole system until Ctrl-C.

    That is PostgreSQL, Redis, schema, API, workers and a sandbox platform. Uses DATABASE_URL and
    REDIS_URL when they are set, and else servers of its own. Stopping loses nothing.
    """
    from cardledger.commands import up as serve

    serve.up(host=host, port=port, data_dir=data_dir, ready_file=ready_file, workers=workers)


@app.command()
def submit(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of JSON lines; - is standard input.")
    ],
    *,
    wait: Annotated[
        bool,
        typer.Option(help="Wait for the outcomes and print one a line, in the order of the file."),
    ] = True,
    platform: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only cards of this platform may be used.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds without any progress before giving up.", min=0.1)
    ] = 300.0,
    data_dir: DataDir = None,
) -> None:
    """Enqueue a file of network events and print the outcomes.

    One event a line, as JSON. Outcomes go to standard output as JSON lines in the order of the
    file, counts to standard error. The same file may be submitted again at any time: an event
    that was applied is a DUPLICATE from then on.
    """
    from cardledger.commands import submit as command

    try:
        command.run(file, wait=wait, platform=platform, timeout_s=timeout, data_dir=data_dir)
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain once more at its own end.
        _silence_standard_output()
        raise typer.Exit(_BROKEN_PIPE) from None


@app.command()
def verify(*, as_json: Json = False, data_dir: DataDir = None) -> None:
    """Fold every event again and compare with the books.

    Roll-ups, entries and balances have to be what the events make them. Ends with exit code 1 when
    anything differs.
    """
    from cardledger.commands import verify as verifying

    raise typer.Exit(verifying.run(as_json=as_json, data_dir=data_dir))


@app.command()
def listen(  # noqa: PLR0913 - the options of the command
    *,
    forward_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Pass each webhook on to this URL, and its answer back.",
            show_default=False,
        ),
    ] = None,
    register: Annotated[
        bool,
        typer.Option(
            "--register",
            help="Set the platform's webhook endpoint to this command while it runs.",
        ),
    ] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="whsec_…",
            help="Verify with this secret, or with that of a file: @FILE. May be repeated.",
            show_default=False,
        ),
    ] = None,
    public_key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Verify with this public key (PEM). May be repeated.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each webhook whole, as a JSON line.")
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="Ready file of the system to listen to (default: what runs in --data-dir).",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Receive webhooks on this machine, verify them and print a line each.

    Keys are those of the running system unless --secret or --public-key is given; with both kinds
    both signatures have to hold. Answers 200, 401 when a webhook is not proven, or what the
    application behind --forward-to answers. Runs until Ctrl-C.
    """
    from cardledger.commands import listen as command

    options = command.Options(
        port=port,
        secrets=secret or (),
        public_keys=public_key or (),
        forward_to=forward_to,
        register=register,
        as_json=as_json,
        ready_file=ready_file,
        data_dir=data_dir,
    )
    try:
        command.run(options)
    except BrokenPipeError:
        _silence_standard_output()
        raise typer.Exit(_BROKEN_PIPE) from None


@app.command()
def expire(
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="As of this moment instead of now, as 2026-03-01T12:00:00Z.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Let authorizations expire that are due, without waiting for the schedule.

    Workers do this by themselves all the time. With --at, everything that will be due by then.
    """
    from cardledger.commands import expire as expiring

    expiring.run(at=at, data_dir=data_dir)


@app.command()
def migrate(
    *,
    down: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="Go down to this revision instead (base: remove everything).",
            show_default=False,
        ),
    ] = None,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements instead of running them.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before --down removes data.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Bring the database to the schema of this release.

    Gives the application's role the password in CARDLEDGER_APP_PASSWORD when that is set.
    """
    from cardledger.commands import migrate as migrating

    migrating.run(down=down, as_sql=as_sql, yes=yes, data_dir=data_dir)


@app.command()
def doctor(*, as_json: Json = False, data_dir: DataDir = None, port: Port = None) -> None:
    """Look whether everything is in order.

    Names the one command that mends what is not. Ends with exit code 1 when something fails.
    """
    from cardledger.commands import doctor as command

    raise typer.Exit(command.run(as_json=as_json, data_dir=data_dir, port=port))


@app.command()
def platform(
    name: Annotated[str, typer.Argument(help="What people call it.")],
    *,
    data_dir: DataDir = None,
) -> None:
    """Set up a platform with an API token.

    Prints its secrets, once, as JSON. For installations without `up`, which does this by itself.
    """
    from cardledger.commands import up as serve

    serve.create_platform(name, data_dir=data_dir)


@app.command()
def settings() -> None:
    """List every environment variable that is read."""
    from cardledger.config.settings import variables

    for name, meaning in variables().items():
        typer.echo(f"{name}\n    {meaning}")


@app.command()
def openapi() -> None:
    """Print the document of the HTTP interface: OpenAPI 3.1, as the server has it."""
    from cardledger.commands import generate_docs

    typer.echo(generate_docs.openapi_page(), nl=False)


@app.command()
def api(
    *,
    host: Host = None,
    port: Port = None,
    listen_fd: ListenFd = None,
    supervised: Supervised = None,
    stale: Stale = None,
) -> None:
    """Run one API process, until SIGTERM.

    DATABASE_URL, REDIS_URL and CARDLEDGER_SECRET_KEY say with what.
    """
    _watch_parent(supervised, stale)
    from cardledger.config import configuration
    from cardledger.supervisor import processes

    found = configuration.load(host=host, port=port, process=supervised)
    processes.run_api(found, listen_fd=listen_fd, supervised=supervised is not None)


@app.command()
def worker(
    *,
    only: Annotated[
        WorkerRole | None, typer.Option(help="Decide events, or send webhooks, and no more.")
    ] = None,
    supervised: Supervised = None,
    stale: Stale = None,
) -> None:
    """Run one worker process, until SIGTERM.

    It decides events and sends webhooks; on more than one processor a process for each is faster.
    DATABASE_URL, REDIS_URL and CARDLEDGER_SECRET_KEY say with what.
    """
    _watch_parent(supervised, stale)
    from cardledger.config import configuration
    from cardledger.supervisor import processes

    found = configuration.load(process=supervised)
    processes.run_worker(found, role=only, supervised=supervised is not None)


def _watch_parent(supervised: str | None, stale: list[Path] | None) -> None:
    if supervised is not None:
        from cardledger.supervisor import lifeline

        lifeline.watch_parent(stale or [])


def _fail(message: str, code: int) -> NoReturn:
    print(f"cardledger: {message}", file=sys.stderr)
    sys.exit(code)


def _fail_if_known(error: Exception) -> None:
    """End with one line for what a person can mend, though it comes from deeper down."""
    from cardledger.embedded.servers import ServerError

    if isinstance(error, ServerError):
        _fail(str(error), FAILURE)


def _silence_standard_output() -> None:
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


__all__ = ["USAGE", "app", "main"]
