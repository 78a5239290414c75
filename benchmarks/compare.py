"""Compare revisions by turns on one machine: python -m benchmarks.compare BEFORE AFTER.

Each revision is built, with compiled rules where there is a C compiler, and runs in a process of
its own on servers of its own. Every round measures each of them once, in random order, so that what
else the machine does meets all of them. A ratio is that of a round, of one revision to the first;
the table has medians and quartiles. `HEAD+benchmarks/without_walls.patch` is a revision with a
patch applied: here the one that takes out MACs, the rights of roles and the views of a platform.

What is measured: `engine` (batches of 500, one thread, and bytes of the write-ahead log), `http`
(authorizations: one at a time, and on 64 connections, with the processor time of the API, workers,
PostgreSQL and Redis for each, which varies least).
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent
_PARTS: Final = ("engine", "http")
_SHOWN: Final = 20  # Characters of a revision in the table.

# Runs in the process of a revision: only what `benchmarks` has had since it began.
_CHILD: Final = """
import contextlib, json, sys
import psutil
import psycopg
from benchmarks import workbench, workload
from benchmarks.parts import service

part, seconds, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])

def log_position(url):
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT (pg_current_wal_lsn() - '0/0')::int8").fetchone()
    return row[0]

def engine(bench, cardholders, number):
    wanted = workload.purchases(cardholders, count, seed=number, run="compared")
    figures = {}
    for name, messages in (
        ("authorizations", workload.authorizations(wanted)),
        ("clearings", workload.clearings(wanted)),
    ):
        bench.accept(messages)
        before = log_position(bench.owner_url)
        figures[f"{name}, rate"] = bench.drain().rate
        after = log_position(bench.owner_url)
        figures[f"{name}, WAL bytes"] = (after - before) / count
    return figures

def processor_seconds():
    # Of everything that serves; what sends the requests is this process.
    used = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used[child.pid] = sum(child.cpu_times()[:2])
    return used

def http(authorizations):
    one = authorizations.closed(connections=1, seconds=seconds)
    before = processor_seconds()
    many = authorizations.closed(connections=64, seconds=seconds)
    after = processor_seconds()
    used = sum(after[pid] - before.get(pid, 0) for pid in after)
    assert not authorizations.failed
    return {
        "one at a time, p50 ms": one.quantile_ms(0.5),
        "64 connections, rate": many.rate,
        "64 connections, CPU ms each": 1_000 * used / sum(many.statuses.values()),
    }

with contextlib.ExitStack() as stack:
    postgres = stack.enter_context(workbench.server(None))
    bench = stack.enter_context(workbench.bench(postgres))
    if part == "engine":
        cardholders = bench.cardholders(4_000)
        measure = lambda number: engine(bench, cardholders, number)
    else:
        running = stack.enter_context(service.service(bench))
        authorizations = service.Authorizations(running)
        measure = lambda number: http(authorizations)
    for line in sys.stdin:
        print(json.dumps(measure(int(line))), flush=True)
"""


def main() -> None:
    """Print how the revisions compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "revisions",
        nargs="+",
        help="of git, or REVISION+PATCH; the first is what others are compared to",
    )
    parser.add_argument("--part", choices=_PARTS, action="append", help="default: both")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement over HTTP")
    parser.add_argument(
        "--messages", type=int, default=4_000, help="of each measurement of the engine"
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="start each revision for its turn: the background work of the others is left out",
    )
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    with tempfile.TemporaryDirectory(prefix="cardledger-compare-") as scratch:
        paths = [
            _built(Path(scratch) / str(place), revision)
            for place, revision in enumerate(options.revisions)
        ]
        for part in options.part or _PARTS:
            arguments = (part, str(options.seconds), str(options.messages))
            print(f"\n{part}, {options.rounds} rounds", flush=True)
            figures = measured(paths, arguments, options.rounds, alone=options.alone)
            show(options.revisions, figures)


def _built(scratch: Path, revision: str) -> str:
    """Return the path on which Python finds the package and the benchmarks of `revision`.

    After a `+` it names a patch that is applied.
    """
    commit, _, patch = revision.partition("+")
    tree, package = scratch / "tree", scratch / "package"
    tree.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", commit],  # noqa: S607 - on the PATH
        check=True,
        stdout=subprocess.PIPE,
    )
    subprocess.run(["tar", "-x", "-C", str(tree)], check=True, input=archive.stdout)  # noqa: S607
    if patch:
        subprocess.run(["git", "apply", Path(patch).resolve()], cwd=tree, check=True)  # noqa: S607
    compiles = shutil.which("cc") is not None
    print(f"building {revision}, rules {'compiled' if compiles else 'interpreted'}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
         "--target", str(package), str(tree)],
        check=True,
        env={**os.environ, "CARDLEDGER_COMPILE": "1" if compiles else ""},
    )  # fmt: skip
    return f"{package}:{tree}"


def measured(
    paths: Sequence[str], arguments: Sequence[str], rounds: int, *, alone: bool
) -> list[dict[str, list[float]]]:
    """Return the figures of each revision, a value a round; what is measured first only warms up.

    When `alone`, a revision is started for its turn and stopped after it.
    """
    figures: list[dict[str, list[float]]] = [defaultdict(list) for _ in paths]
    with ExitStack() as stack:
        children = [] if alone else [stack.enter_context(_warm(path, arguments)) for path in paths]
        for number in range(1, rounds + 1):
            for place in random.sample(range(len(paths)), len(paths)):
                with ExitStack() as turn:
                    if alone:
                        child = turn.enter_context(_warm(paths[place], arguments))
                    else:
                        child = children[place]
                    for name, value in _asked(child, number).items():
                        figures[place][name].append(value)
    return figures


@contextmanager
def _warm(path: str, arguments: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """Yield the process of a revision, which has measured once."""
    with _child(path, arguments) as child:
        _asked(child, 0)
        yield child


def _child(path: str, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    """Start the process of a revision; it ends with its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
    )


def _asked(child: "subprocess.Popen[str]", number: int) -> Mapping[str, float]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{number}\n")
    child.stdin.flush()
    answer = child.stdout.readline()
    assert answer, "a revision could not be measured; its error is above"
    figures: Mapping[str, float] = json.loads(answer)
    return figures


def show(revisions: Sequence[str], figures: Sequence[Mapping[str, list[float]]]) -> None:
    first = figures[0]
    for name, values in first.items():
        for revision, measured in zip(revisions, figures, strict=True):
            ratios = [own / of_first for own, of_first in zip(measured[name], values, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"{name:32}{revision[-_SHOWN:]:>{_SHOWN}}{statistics.median(measured[name]):12,.1f}"
                f"   ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
