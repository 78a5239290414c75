"""The desk of `demo --finance`: runs the commands of each person, prints and keeps them."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cardledger.commands.demo import october
from cardledger.commands.demo.october import Event
from cardledger.config.errors import FAILURE, CommandError
from cardledger.schema import connections

_COLUMNS: Final = 100
_TIMEOUT_S: Final = 240.0
_POLL_S: Final = 0.05
_SUSPENSE: Final = ("SUSPENSE", "USD")
_TRIAL_BALANCE: Final = """
    SELECT account, currency, net FROM finance.trial_balance(%s, NULL) ORDER BY account, currency
"""

Trial = dict[tuple[str, str], int]


@dataclass(slots=True, kw_only=True)
class Month:
    """The commands of the month and what was found; it holds when every finding does."""

    commands: list[dict[str, str]] = field(default_factory=list)
    findings: dict[str, bool] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether there are findings, and all of them hold."""
        return bool(self.findings) and all(self.findings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """Runs the commands of each person and prints them with their output."""

    out: Console
    data_dir: Path
    files: Path
    month: Month
    logins: dict[str, str] = field(default_factory=dict)  # DATABASE_URL by person.

    def heading(self, title: str) -> None:
        """Print what the next commands are for."""
        self.out.print()
        self.out.print(Text(f" {title}", style="bold"))

    def run(
        self, who: str, *arguments: str, fails: bool = False, is_secret: bool = False, to: str = ""
    ) -> str:
        """Run `cardledger` with `arguments` as `who` and return its output.

        It is printed unless it `is_secret`, or goes to the file `to`.
        Raises: CommandError when the command fails, or does not although it `fails`.
        """
        line = f"cardledger {shlex.join(arguments)}" + (f" > {to}" if to else "")
        self.out.print()
        self.out.print(Text.assemble((f"{who}$ ", "dim"), (line, "cyan")), soft_wrap=True)
        with (self.files / to).open("w") if to else nullcontext(subprocess.PIPE) as stdout:
            ended = subprocess.run(  # noqa: S603 - our own command
                [sys.executable, "-m", "cardledger", *arguments],
                cwd=self.files,
                env=self._environment(who),
                stdout=stdout,
                stderr=subprocess.PIPE if to else subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        output = ended.stderr if to else ended.stdout
        shown = "" if is_secret else output
        for text in shown.splitlines():
            self.out.print(Text(text.rstrip()), soft_wrap=True)
        self.month.commands.append({"who": who, "command": line, "output": shown})
        if bool(ended.returncode) != fails:
            raise CommandError(f"`{line}` ended with exit code {ended.returncode}")
        return output

    def run_each(
        self, who: str, *arguments: str, files: Sequence[str], pattern: str, to: str
    ) -> None:
        """Run `cardledger` with `arguments` and each of `files`, those of `pattern`, as `who`.

        All output goes to the file `to`.

        Raises: CommandError when a command fails otherwise than by what it has found.
        """
        line = f"for file in {pattern}; do cardledger {shlex.join(arguments)} $file; done > {to}"
        self.out.print()
        self.out.print(Text.assemble((f"{who}$ ", "dim"), (line, "cyan")), soft_wrap=True)
        with (self.files / to).open("w") as stdout:
            for name in files:
                ended = subprocess.run(  # noqa: S603 - our own command
                    [sys.executable, "-m", "cardledger", *arguments, name],
                    cwd=self.files,
                    env=self._environment(who),
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=_TIMEOUT_S,
                    check=False,
                )
                if ended.returncode not in {0, FAILURE}:
                    raise CommandError(f"{name} was refused: {ended.stderr}")
        self.month.commands.append({"who": who, "command": line, "output": ""})

    def ask(self, who: str, statement: str) -> list[Any]:
        """Run `statement` of SQL as `who`, print it with its rows as psql does, and return them."""
        self.out.print()
        self.out.print(Text.assemble((f"{who}=> ", "dim"), (statement, "cyan")), soft_wrap=True)
        url = self.logins[who]
        with connections.connect(url, reply_limit_s=None, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            names = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall()
        cells = [names, *([str(value) for value in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        for line in lines:
            self.out.print(Text(line), soft_wrap=True)
        output = "".join(f"{line}\n" for line in lines)
        self.month.commands.append({"who": who, "command": statement, "output": output})
        return rows

    def save(self, files: Mapping[str, str]) -> None:
        """Write `files`: text by name."""
        for name, text in files.items():
            (self.files / name).write_text(text, encoding="utf-8")

    def write(self, name: str, events: Sequence[Event]) -> str:
        """Write `events` to the file `name`, one a line, and return its name."""
        lines = [json.dumps(event) + "\n" for event in events]
        (self.files / name).write_text("".join(lines), encoding="utf-8")
        return name

    def _environment(self, who: str) -> dict[str, str]:
        given = {"DATABASE_URL", "REDIS_URL"}
        kept = {name: value for name, value in os.environ.items() if name not in given}
        return {
            **kept,
            **({"DATABASE_URL": self.logins[who]} if who in self.logins else {}),
            "CARDLEDGER_DATA_DIR": str(self.data_dir),
            "COLUMNS": str(_COLUMNS),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",  # So that both streams come in their order.
        }


class Books:
    """What finance reads, to judge what the commands did."""

    def __init__(self, url: str) -> None:
        """Read with the login of finance at `url`."""
        self._url: Final = url

    def rows(self, statement: str, *parameters: object) -> list[Any]:
        """Return the rows of `statement`."""
        with connections.connect(self._url, reply_limit_s=None, autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchall()

    def trial_balance(self) -> Trial:
        """Return the net of each account and currency at the end of the month."""
        rows = self.rows(_TRIAL_BALANCE, october.LAST_DAY)
        return {(account, currency): int(net) for account, currency, net in rows}

    def in_suspense(self) -> int:
        """Return the balance of SUSPENSE once it has one, a moment after a rejection; else zero."""
        self.wait_until(lambda: bool(self.trial_balance().get(_SUSPENSE, 0)))
        return self.trial_balance().get(_SUSPENSE, 0)

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        """Wait until `holds`, which a worker brings about; return whether it does in time."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True
