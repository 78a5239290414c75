"""The commands of a page, executed in one shell, and what the page says that they print."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.waiting import limit_s

ROOT: Final = Path(__file__).parents[1]

_BLOCK: Final = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK: Final = "--- end of block ---"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A block of commands, and the block below it with what they print, if there is one."""

    commands: str
    language: str = ""
    printed: str = ""


def steps(page: str) -> list[Step]:
    """Return the blocks of shell commands of a page, in order."""
    blocks: list[tuple[str, str]] = [*_BLOCK.findall(page), ("", "")]
    return [
        Step(commands=text)
        if language == "sh"
        else Step(commands=text, language=language, printed=printed)
        for (kind, text), (language, printed) in pairwise(blocks)
        if kind == "sh"
    ]


def execute(page_steps: list[Step], directory: Path, environment: Mapping[str, str]) -> list[str]:
    """Execute the blocks in one shell, which ends at the first failure; return what each printed.

    `python` is this interpreter, and `cardledger` the command of these sources.
    """
    commands = directory / "bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("cardledger", "-m cardledger")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (commands / name).chmod(0o700)
    script = "".join(f"{step.commands}\necho '{_MARK}'\n" for step in page_steps)
    finished = subprocess.run(
        ["/bin/sh", "-e", "-c", script],
        cwd=directory,
        env={
            **environment,
            "PATH": f"{commands}:{environment['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=limit_s(60),
    )
    *printed, rest = finished.stdout.split(f"{_MARK}\n")
    assert finished.returncode == 0, [*printed[-1:], rest, finished.stderr]
    return printed


def check(step: Step, printed: str) -> None:
    """Assert that a block printed what the page says; `…` in a text stands for anything."""
    if step.language == "json":
        assert documents(printed) == documents(step.printed), step.commands
    elif step.language == "text":
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        expected = [re.escape(line).replace("…", ".*") for line in step.printed.splitlines()]
        assert re.fullmatch("\n".join(expected), "\n".join(lines)), printed
    else:
        assert printed == "", step.commands


def documents(text: str) -> list[Any]:
    """Return the JSON documents in `text`, one after the other."""
    return [*_documents(text)]


def _documents(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        yield document
        rest = rest[end:].strip()
