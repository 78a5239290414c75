"""Worker processes of tests, forked from a process that has imported the worker before.

To import it anew for every test module took more than a second of processor time each.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cardledger.workers.process.main import WorkerConfig, run
from tests import fence
from tests.waiting import limit_s

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["cardledger.workers.process.main"])


@contextmanager
def worker_process(config: WorkerConfig) -> Iterator[None]:
    """Run a worker in a process of its own, which looks up no host names."""
    process = _CONTEXT.Process(target=_work, args=(config,))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join(limit_s())
        assert process.exitcode is not None, "the worker did not stop"


def _work(config: WorkerConfig) -> None:
    fence.install()
    run(config)
