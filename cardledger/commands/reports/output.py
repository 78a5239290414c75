"""Where a report goes: standard output, or a file that appears whole or not at all."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final, NoReturn

from cardledger.config.errors import USAGE, CommandError
from cardledger.config.pipes import discard_output

_MODE: Final = 0o666  # Less the umask of the process.
_OF_SIGNALS: Final = 128  # What shells add to the number of the signal that ended a process.


@contextmanager
def opened(file: Path | None) -> Iterator[IO[bytes]]:
    """Yield where to write bytes: standard output, or what becomes `file` at the end.

    A file is written beside its place under another name and renamed after it is on the disk, so
    that neither a crash nor an error leaves half a report, nor takes away the one that was there.
    SIGTERM ends the process with an exception, which removes what was written.
    Raises: CommandError when it cannot be written; BrokenPipeError when nothing reads it any more.
    """
    if file is None:
        with _unwound_by_sigterm(), _standard_output() as stream:
            yield stream
        return
    try:
        with _unwound_by_sigterm(), _replacing(file) as stream:
            yield stream
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror or error}") from None


def check(file: Path | None, *, is_binary: bool, name: str) -> None:
    """Reject, before anything is read, an output that cannot take the format `name`.

    Raises: CommandError, a usage error.
    """
    if file is None:
        if is_binary and sys.stdout.isatty():
            raise CommandError(
                f"--format {name} is binary: name a file with --output, or redirect standard"
                " output",
                code=USAGE,
            )
    elif file.is_dir():
        raise CommandError(f"--output {file}: is a directory", code=USAGE)
    elif file.exists() and not file.is_file():
        # The rename would take the place of the device or the pipe itself, even of /dev/null.
        raise CommandError(
            f"--output {file}: is not a regular file; leave --output out, name --format, and"
            " redirect standard output",
            code=USAGE,
        )
    elif not file.parent.is_dir():
        raise CommandError(f"--output {file}: {file.parent} is not a directory", code=USAGE)


@contextmanager
def _unwound_by_sigterm() -> Iterator[None]:
    """For the length of a block, make SIGTERM an exception instead of the end."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(_OF_SIGNALS + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may handle signals.
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        message = f"cannot write standard output: {error.strerror or error}"
        raise CommandError(message) from None


@contextmanager
def _replacing(file: Path) -> Iterator[IO[bytes]]:
    # A link stays a link: what it names is replaced.
    place = file.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fchmod(stream.fileno(), _MODE & ~_umask())
            os.fsync(stream.fileno())
        written.replace(place)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    _flush_directory(place.parent)


def _umask() -> int:
    # It can only be read by setting it.
    current = os.umask(0o077)
    os.umask(current)
    return current


def _flush_directory(directory: Path) -> None:
    """Have the rename on the disk, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
