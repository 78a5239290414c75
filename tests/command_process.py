"""The command `cardledger` in a process of its own, forked from one that has imported it before.

To import its modules anew took a second of processor time for each command. The tests of `up`,
of its children and of reading from a pipe start an interpreter, as a person does.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cardledger.commands import cli
from tests.waiting import LIMIT_S, limit_s

FORKING: Final = multiprocessing.get_context("forkserver")
"""Starts processes of this project, forked from one that has imported the modules below."""

FORKING.set_forkserver_preload(
    [
        "cardledger.commands.submit",
        "cardledger.supervisor.system",
        "cardledger.workers.process.event_worker",
        "cardledger.workers.process.webhook_worker",
        __name__,
    ]
)


def run_command(
    *arguments: str,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    timeout_s: float = LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without input.

    Raises: TimeoutError after `timeout_s` seconds of an idle machine; it has been killed.
    """
    with tempfile.TemporaryDirectory(prefix="cardledger-command-") as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        process = FORKING.Process(
            target=_run, args=(arguments, dict(env), cwd or Path.cwd(), output, errors)
        )
        process.start()
        process.join(limit_s(timeout_s))
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{arguments} after {timeout_s:.0f} s: {errors.read_text()}")
        return subprocess.CompletedProcess(
            arguments, process.exitcode, output.read_text(), errors.read_text()
        )


def _run(
    arguments: tuple[str, ...], env: dict[str, str], cwd: Path, output: Path, errors: Path
) -> None:
    """Become the command: its environment, directory, standard streams and arguments."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for descriptor, path in ((1, output), (2, errors)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    # New streams, as an interpreter makes them: those of the process that forks are not ours.
    sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open to the end
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the same
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = ["cardledger", *arguments]
    cli.main()
