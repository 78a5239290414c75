"""A report in a file is whole or not there."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cardledger.commands.reports import output
from cardledger.commands.reports.run import Target
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.options import ReportFormat
from tests.waiting import limit_s


def test_a_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"

    with output.opened(file) as stream:
        stream.write(b"half")
        stream.flush()
        assert not file.exists()

    assert file.read_bytes() == b"half"
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_report_that_fails_leaves_the_file_before(
    tmp_path: Path, error: type[BaseException]
) -> None:
    file = tmp_path / "report.csv"
    file.write_bytes(b"before")

    def fail() -> None:
        with output.opened(file) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        fail()

    assert file.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_has_the_rights_of_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    before = os.umask(0o027)

    try:
        with output.opened(file):
            pass
    finally:
        os.umask(before)

    assert file.stat().st_mode & 0o777 == 0o640


def test_what_a_link_names_is_replaced(tmp_path: Path) -> None:
    file, link = tmp_path / "real.csv", tmp_path / "link.csv"
    file.write_bytes(b"before")
    link.symlink_to(file)

    with output.opened(link) as stream:
        stream.write(b"after")

    assert link.is_symlink()
    assert file.read_bytes() == b"after"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    def fail() -> None:
        with output.opened(tmp_path / "report.csv"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CommandError, match=r"cannot write .*report\.csv: No space left"):
        fail()

    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("named", "file", "expected"),
    [
        (None, None, ReportFormat.TABLE),
        (None, "x.csv", ReportFormat.CSV),
        (None, "x.XLSX", ReportFormat.XLSX),
        (None, "x.txt", ReportFormat.TABLE),
        (ReportFormat.JSON, "x.csv", ReportFormat.JSON),
        (ReportFormat.CSV, None, ReportFormat.CSV),
    ],
)
def test_a_format_is_named_or_told_by_the_suffix(
    named: ReportFormat | None, file: str | None, expected: ReportFormat
) -> None:
    target = Target.of(named, None if file is None else Path(file))

    assert target.format is expected


def test_an_output_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "none" / "x.csv"):
        with pytest.raises(CommandError) as refused:
            output.check(file, is_binary=False, name="csv")
        assert refused.value.code == USAGE


@pytest.mark.parametrize("is_link", [False, True])
def test_a_pipe_or_a_device_is_refused_and_left_as_it_is(tmp_path: Path, *, is_link: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    named = pipe
    if is_link:
        named = tmp_path / "report.csv"
        named.symlink_to(pipe)

    with pytest.raises(CommandError, match="is not a regular file") as refused:
        Target.of(None, named)

    assert refused.value.code == USAGE
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_on_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)

        with (
            pytest.raises(CommandError, match="cannot write standard output: No space left"),
            output.opened(None) as stream,
        ):
            stream.write(b"half")


def test_a_table_whose_reader_has_left_is_a_broken_pipe() -> None:
    # `ending_with_reader` makes of it the exit code of SIGPIPE; Rich would exit with 1.
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", closefd=False) as stream:
        table = terminal.console(stream)

        with pytest.raises(BrokenPipeError):
            table.print("row")

        # What is still buffered has to go somewhere when it is closed.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writer)
        os.close(nowhere)
    os.close(writer)


_WRITES_AND_WAITS = """
import signal, sys
from pathlib import Path
from cardledger.commands.reports import output
with output.opened(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("written", flush=True)
    while True:
        signal.pause()
"""


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES_AND_WAITS, str(tmp_path / "report.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        assert len([*tmp_path.iterdir()]) == 1

        process.terminate()
        _, errors = process.communicate(timeout=limit_s())

    assert process.returncode == 128 + signal.SIGTERM
    assert errors == b""
    assert not [*tmp_path.iterdir()]
