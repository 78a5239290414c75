"""`cardledger up`: run the system and say where it is."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from cardledger import __version__
from cardledger.config import configuration
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.install import credentials
from cardledger.install.ready_file import Running
from cardledger.supervisor.plan import Plan, Step
from cardledger.supervisor.signals import Signals
from cardledger.supervisor.system import System

_NAME_WIDTH: Final = 11
_DETAIL_WIDTH: Final = 57
_PREFIX_WIDTH: Final = 9


def up(
    *,
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    ready_file: Path | None,
    workers: int,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    settings = configuration.load(host=host, port=port, data_dir=data_dir)
    out = terminal.console()
    out.print(Text.assemble(("cardledger ", "bold"), __version__, f"   {settings.data_dir}"))
    plan = Plan(
        settings=settings,
        workers=workers,
        ready_file=_writable(ready_file) if ready_file else None,
    )
    system = System(plan, log=printed_logs(settings), on_step=lambda step: show_step(out, step))
    signals = Signals()
    with signals.caught():
        try:
            running = system.start()
            signals.note_only()
            _show_ready(out, settings, running, console=system.console_link())
            signals.wait()
            out.print(" stopping …")
        except KeyboardInterrupt:
            out.print(" stopping …")
        finally:
            signals.note_only()
            asked = signals.count
            # A second Ctrl-C or SIGTERM stops at once.
            system.stop(is_urgent=lambda: signals.count > max(asked, 1))
    out.print(" stopped; nothing that was accepted is lost")


def show_step(out: Console, step: Step) -> None:
    """Print what has been set up, how long that took, and what it costs to have it this way."""
    line = Text.assemble(
        (" ok ", "green"),
        (step.name.ljust(_NAME_WIDTH), "bold"),
        step.detail.ljust(_DETAIL_WIDTH),
        (f"{step.seconds:>5.1f} s", "dim"),
    )
    out.print(line)
    if step.cost:
        out.print(Text(f"    {'':{_NAME_WIDTH}}{step.cost}", style="yellow"))


def printed_logs(settings: Settings) -> Callable[[str, str], None]:
    """Return what prints the children's logs: JSON as it is, lines for people with their source."""
    is_json = settings.log_format == "json"
    colours = ("cyan", "magenta", "green", "blue", "yellow")
    err = terminal.console(sys.stderr)
    seen: dict[str, str] = {}
    lock = threading.Lock()

    def log(name: str, line: str) -> None:
        with lock:
            if is_json:
                own = json.dumps({"process": name, "event": line})
                print(line if line.startswith("{") else own, file=sys.stderr, flush=True)
                return
            colour = seen.setdefault(name, colours[len(seen) % len(colours)])
            err.print(Text.assemble((f"{name.ljust(_PREFIX_WIDTH)}| ", colour), line))

    return log


def _show_ready(out: Console, settings: Settings, running: Running, *, console: str | None) -> None:
    kept = settings.data_dir / credentials.FILE
    out.print(Text.assemble((" ready", "bold green"), f"   client id {running.client_id}"))
    out.print(f"         secrets in {kept}")
    if console is not None:
        # The ticket is for one use within a minute, so that it may stand in a log.
        out.print(Text(f" console {console}", style="cyan"), soft_wrap=True)
    if out.is_terminal:
        # On a terminal only, because elsewhere it would end up in logs.
        login = f"{running.client_id}:{running.client_secret}"
        out.print(Text(f" try     curl -u {login} {running.base_url}/config", style="cyan"))
    out.print(" Ctrl-C stops everything and loses nothing")


def _writable(ready_file: Path) -> Path:
    path = ready_file.expanduser().absolute()
    if not path.parent.is_dir():
        raise CommandError(
            f"cannot write {path}: there is no directory {path.parent}; create it first", code=USAGE
        )
    if path.is_dir():
        raise CommandError(f"cannot write {path}: it is a directory", code=USAGE)
    return path
