"""Distributions built from these sources, and empty environments to install them in."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = ROOT / "client"


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, target: str, directory: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", directory, cwd=source)
    (built,) = directory.iterdir()
    return built


class Environment:
    """An empty environment that sees the dependencies installed here, but nothing of ours."""

    def __init__(self, directory: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory.parent)
        self.python = directory / "bin" / "python"
        self.packages = next(directory.glob("lib/python*/site-packages"))
        here = next(path for path in sys.path if path.endswith("site-packages"))
        # A directory named in a .pth file is searched last, and its own .pth files are not read:
        # the editable install of these sources stays out.
        (self.packages / "dependencies.pth").write_text(here + "\n")

    def pip(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        run(*command, "--python", self.python, *arguments, cwd=self.packages)

    def install(self, *what: str | Path, compiled: bool = False) -> None:
        """Install `what`, without dependencies.

        `compiled`: with bytecode, which takes longer than all else, for what is started often.
        """
        options = ["--no-index", "--no-deps", "--no-build-isolation"]
        self.pip("install", *options, "--compile" if compiled else "--no-compile", *what)

    def execute(self, code: str, cwd: Path | None = None) -> str:
        return run(self.python, "-c", code, cwd=cwd or self.packages.parent).strip()
