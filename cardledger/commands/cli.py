"""The command line `cardledger`: its commands and options.

Only Typer is imported here. Each command imports what it needs, so that `--help` and `--version`
are immediate.
"""

# ruff: noqa: PLC0415 - see above.

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cardledger.commands.groups import (
    adjust,
    calendars,
    close,
    daily,
    keys,
    parked,
    payments,
    people,
    platforms,
    processes,
    rates,
    rejections,
    reports,
    webhooks,
)
from cardledger.commands.network_files import register as network_files
from cardledger.config import gc_tuning
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.config.options import FailOnOutcomes, Host, InstallationDir, Port, Prod
from cardledger.config.pipes import Commands

_INTERRUPTED = 130

app = typer.Typer(
    name="cardledger",
    cls=Commands,
    help="An event-driven card-transaction ledger. Try `cardledger demo` first.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(webhooks.app)
app.add_typer(rejections.app)
app.add_typer(parked.app)
app.add_typer(payments.app)
app.add_typer(platforms.app)
app.add_typer(people.app)
app.add_typer(keys.app)
app.add_typer(calendars.app)
app.add_typer(rates.app)
app.add_typer(reports.app)
app.add_typer(close.app)
app.add_typer(adjust.app)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document only.")]


def main() -> None:
    """Run the command `cardledger`."""
    gc_tuning.relax()
    report_errors(app)


def report_errors(command: Callable[[], None]) -> None:
    """Run `command`; print an error that the user can fix as one line on standard error."""
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
        bool, typer.Option("--version", help="Print version and exit.", is_eager=True)
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
        int,
        typer.Option(metavar="N", help="Number of generated events, without duplicates.", min=0),
    ] = 2000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the generated events.")] = 7,
    as_json: Json = False,
    check: Annotated[
        bool, typer.Option("--check", help="Also check the exact amounts of the story.")
    ] = False,
    finance: Annotated[
        bool,
        typer.Option(
            "--finance",
            help="Play a month of the books, from its first entry to its close.",
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep running afterwards, until Ctrl-C.")
    ] = False,
    host: Host = None,
    port: Port = None,
    data_dir: InstallationDir = None,
) -> None:
    """Run a demo and verify its books.

    Plays a restaurant tip and generated traffic. Starts everything as `up` does, in a temporary
    directory unless --data-dir is given. The exit code is 0 only if every check passes.
    With --finance: October 2026 as a controller sees it, with its close (docs/finance.md).
    """
    from cardledger.commands.demo import play
    from cardledger.commands.demo.result import Options

    options = Options(
        events=events, seed=seed, as_json=as_json, check=check, keep=keep, finance=finance
    )
    raise typer.Exit(play.run(options, host=host, port=port, data_dir=data_dir))


@app.command()
def up(
    *,
    host: Host = None,
    port: Port = None,
    data_dir: InstallationDir = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write addresses and credentials to this file, as JSON, once everything serves;"
            " it is removed at the end.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", help="Number of worker processes.", min=1, max=64)
    ] = 1,
) -> None:
    """Run the whole system until Ctrl-C.

    That is PostgreSQL, Redis, schema, API, workers and a sandbox platform. Uses DATABASE_URL and
    REDIS_URL if they are set, otherwise embedded servers. Stopping loses no accepted event.
    """
    from cardledger.commands import up as serve

    serve.up(host=host, port=port, data_dir=data_dir, ready_file=ready_file, workers=workers)


@app.command()
def submit(  # noqa: PLR0913 - the options of the command
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File of JSON lines; - reads standard input.")
    ],
    *,
    wait: Annotated[
        bool,
        typer.Option(
            help="Wait for the outcomes and print one per line, in the order of the file."
        ),
    ] = True,
    platform: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Accept only cards of this platform.", show_default=False),
    ] = None,
    fail_on: FailOnOutcomes = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds without progress after which to give up.", min=0.1
        ),
    ] = 300.0,
    data_dir: InstallationDir = None,
) -> None:
    """Enqueue a file of network events and print the outcomes.

    One JSON event per line. Outcomes are written to standard output as JSON lines in the order of
    the file, counts to standard error. The same file may be submitted again at any time: an event
    that was already decided has the outcome DUPLICATE, and counts as its first outcome.

    The exit code is 0 if every line has an outcome and none is rejected or of --fail-on; 1 if one
    is, or if not every line got an outcome; 2 for wrong options, or a file that cannot be read.
    """
    from cardledger.commands import submit as command

    command.run(
        file,
        wait=wait,
        platform=platform,
        fail_on=fail_on,
        timeout_s=timeout,
        data_dir=data_dir,
    )


@app.command()
def verify(*, as_json: Json = False, data_dir: InstallationDir = None) -> None:
    """Recompute the books from the events and compare.

    Roll-ups, entries and balances must equal what the events produce. The exit code is 1 if
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
            help="Forward each webhook to this URL and return its response.",
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
            help="Verify with this secret, or with the secret in a file: @FILE. May be repeated.",
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
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            help="Port to listen on; 0 chooses a free port.",
            min=0,
            max=65535,
        ),
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each complete webhook as a JSON line.")
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ready file of the system to listen to (default: the system in --data-dir).",
            show_default=False,
        ),
    ] = None,
    data_dir: InstallationDir = None,
) -> None:
    """Receive, verify and print webhooks on this machine.

    Verifies with the keys of the running system unless --secret or --public-key is given; if both
    are given, both signatures must be valid. Returns 200, 401 if verification fails, or the
    response of the --forward-to URL. Runs until Ctrl-C.
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
    command.run(options)


@app.command()
def expire(
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="As of this time instead of now, such as 2026-03-01T12:00:00Z.",
            show_default=False,
        ),
    ] = None,
    data_dir: InstallationDir = None,
) -> None:
    """Expire due authorizations.

    Workers do this continuously; this command does it at once. With --at, also authorizations that
    will be due by then.
    """
    from cardledger.commands import expire as expiring

    expiring.run(at=at, data_dir=data_dir)


@app.command()
def migrate(  # noqa: PLR0913 - one an option
    *,
    down: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="Downgrade to this revision instead (base: remove everything).",
            show_default=False,
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Refuse what only earlier releases write; none runs now."),
    ] = False,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements instead of running them.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation before --down removes data.")
    ] = False,
    give_up_after_s: Annotated[
        float,
        typer.Option(
            "--give-up-after",
            metavar="SECONDS",
            help="How long to try each revision while others hold locks on its tables.",
            min=0,
            max=86_400,
        ),
    ] = 60,
    data_dir: InstallationDir = None,
) -> None:
    """Migrate the database to the schema of this release, while it is in use.

    Each revision is committed by itself; after an interruption, run it again.
    Sets the passwords of the database roles to CARDLEDGER_API_PASSWORD, _WORKER_, ... if set.
    """
    from cardledger.commands import migrate as migrating

    migrating.run(
        down=down,
        finish=finish,
        as_sql=as_sql,
        yes=yes,
        give_up_after_s=give_up_after_s,
        data_dir=data_dir,
    )


@app.command()
def doctor(
    *,
    as_json: Json = False,
    production: Prod = False,
    data_dir: InstallationDir = None,
    port: Port = None,
) -> None:
    """Check the installation.

    Prints the command that fixes each problem. The exit code is 1 if a check fails.
    """
    from cardledger.commands import doctor as command

    code = command.run(as_json=as_json, data_dir=data_dir, port=port, for_production=production)
    raise typer.Exit(code)


@app.command()
def console(*, data_dir: InstallationDir = None) -> None:
    """Print a link that opens the web console once, within a minute."""
    from cardledger.commands.console import link

    typer.echo(link(data_dir))


@app.command()
def settings() -> None:
    """List the environment variables."""
    from cardledger.config.settings import variables

    for name, meaning in variables().items():
        typer.echo(f"{name}\n    {meaning}")


@app.command()
def openapi(
    *,
    events: Annotated[
        bool,
        typer.Option("--events", help="Print the JSON Schema (2020-12) of a network event."),
    ] = False,
) -> None:
    """Print the OpenAPI 3.1 document of the HTTP API."""
    from cardledger.commands import generate_docs

    page = generate_docs.events_schema() if events else generate_docs.openapi_page()
    typer.echo(page, nl=False)


processes.register(app)
daily.register(app)
network_files.register(app)


def _fail(message: str, code: int) -> NoReturn:
    print(f"cardledger: {message}", file=sys.stderr)
    sys.exit(code)


def _fail_if_known(error: Exception) -> None:
    """Exit with one line if the cause is a server that the user can fix."""
    from cardledger.embedded.servers import ServerError

    if isinstance(error, ServerError):
        _fail(str(error), FAILURE)


__all__ = ["USAGE", "app", "main"]
