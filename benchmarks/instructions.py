"""How many instructions an engine thread takes for a message: python -m benchmarks.instructions.

Rates vary by a third with what else runs on a machine; what callgrind counts hardly does, so a
change that saves a hundredth is seen. Needs valgrind. What PostgreSQL does is not among it.
To compare, run it of both checkouts; for compiled rules as `make bench` does, with .compiled on the
path (see the Makefile). `callgrind_annotate --inclusive=yes FILE` says where they are.
"""

import argparse
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks import workbench, workload
from benchmarks.parts import engine
from cardledger.config import gc_tuning
from cardledger.ledger.engine.build import is_compiled
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.batch_connections import batch_engine

_MESSAGES: Final = 2_000
_WARM_UP: Final = 2  # Rounds that are not counted: caches, plans, prepared statements.
_BATCH: Final = 500
_DRAIN: Final = "--drain"  # What the child is started with.


def main() -> None:
    """Print what authorizations and clearings take."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=Path, help="a directory for what callgrind wrote")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, workbench.server(None) as url:
        print(f"rules {'compiled' if is_compiled() else 'interpreted'}, Python {sys.version}")
        for kind in ("authorizations", "clearings"):
            out = (options.keep or Path(scratch)) / f"callgrind.{kind}"
            with workbench.bench(url) as bench:
                counted = _count(bench, kind, out)
            print(f"{kind}: {counted / _MESSAGES / 1_000:,.1f} thousand instructions a message")


def _count(bench: workbench.Bench, kind: str, out: Path) -> int:
    """Return how many instructions the last round of `kind` took a child under callgrind."""
    cardholders = bench.cardholders(engine.CARDHOLDERS)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no"]
    child = subprocess.Popen(
        [*command, sys.executable, __file__, _DRAIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdin is not None
    # Not for all to see among the arguments.
    child.stdin.write(f"{bench.app_url}\n{workbench.SECRET_KEY}\n")
    for number in range(_WARM_UP + 1):
        wanted = workload.purchases(cardholders, _MESSAGES, seed=number, run="counted")
        options = {
            "authorizations": workload.authorizations(wanted),
            "clearings": workload.clearings(wanted),
        }
        for name, messages in options.items():
            _drain(bench, child, messages, counts=number == _WARM_UP and name == kind)
    child.communicate()
    [total] = [line for line in out.read_text().splitlines() if line.startswith("totals:")]
    return int(total.split()[1])


def _drain(
    bench: workbench.Bench, child: "subprocess.Popen[str]", messages: list[Message], *, counts: bool
) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    bench.accept(messages)
    _instrument(child.pid, on=counts)
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    _instrument(child.pid, on=False)


def _instrument(pid: int, *, on: bool) -> None:
    command = ["callgrind_control", f"--instr={'on' if on else 'off'}", str(pid)]
    subprocess.run(command, check=True, capture_output=True)


def _work() -> None:
    """Decide all that waits, once for every line that comes in after the URL and the server key."""
    url, secret_key = sys.stdin.readline().strip(), sys.stdin.readline().strip()
    database = batch_engine(url, pool_size=1, max_overflow=0)
    gc_tuning.freeze()
    worker = Engine(
        database,
        key=InboxKey(secret_key),
        batch_size=_BATCH,
        rail=SandboxFundingRail(delay=timedelta(0)),
    )
    for _ in sys.stdin:
        waiting = [shard for _, shard in worker.waiting()]
        print(worker.drain(Lane.LIVE, waiting, lambda _: None), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == [_DRAIN]:
        _work()
    else:
        main()
