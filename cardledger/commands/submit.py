"""`cardledger submit`: a file of network events in, their outcomes out, in the same order.

A reader thread cuts the file into lines; one coroutine has them accepted, chunk after chunk, so
that the order of the file is the order of decisions; another prints outcomes as they come.
"""

import asyncio
import json
import os
import sys
import threading
import time
from asyncio import Future, Queue
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Self

from rich.text import Text

from cardledger.config import configuration, gc_tuning
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.options import FailOn
from cardledger.install import credentials, databases, discovery
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id
from cardledger.schema.wire.outcomes import Outcome, OutcomeType
from cardledger.workers.client import Client, UnavailableError, jsonl, parsing
from cardledger.workers.client.jsonl import Event, Splitter

_READ: Final = 128 * 1024
_CHUNK: Final = 500  # Events a write to the inbox: what a batch of the engine takes.
_GROUP: Final = 50  # Outcomes that are printed together, shortly after a look at their deadlines.
_MOST_WAITING: Final = 20  # Chunks accepted and not printed yet.
_RETRY_S: Final = (0.1, 0.2, 0.5, 1.0)  # Pauses while PostgreSQL is away; the last one repeats.


_Batch = Sequence[parsing.Submission | parsing.MalformedSubmission]  # Accepted together.


@dataclass(slots=True)
class Tally:
    """What became of the events, counted."""

    outcomes: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)  # A duplicate is its first outcome.
    accepted: int = 0
    began: float = field(default_factory=time.monotonic)

    def count(self, outcome: Outcome) -> None:
        """Count one more outcome."""
        self.outcomes[outcome.outcome] += 1
        is_duplicate = outcome.outcome is OutcomeType.DUPLICATE
        first = outcome.first_outcome if is_duplicate else None
        self.results[first or outcome.outcome] += 1

    @property
    def decided(self) -> int:
        """Events with an outcome."""
        return self.outcomes.total()


def run(  # noqa: PLR0913 - the options of the command
    file: str,
    *,
    wait: bool,
    platform: str | None,
    fail_on: Sequence[FailOn] | None,
    timeout_s: float,
    data_dir: Path | None,
) -> None:
    """Submit `file` to the system that is at hand.

    Raises: CommandError when not every line got an outcome, or one is rejected or has another
    outcome of `fail_on`.
    """
    failures = _failures(fail_on, wait=wait)
    settings = configuration.load(data_dir=data_dir, log_level="error")
    platform_id = _platform_id(platform)
    with _opened(file) as source:
        place = discovery.system(settings)
        databases.check_schema(place.database_url)
        submission = Submission(
            place,
            secret_key=credentials.needed_key(settings),
            wait=wait,
            platform_id=platform_id,
            timeout_s=timeout_s,
            tell=_writer(),
        )
        gc_tuning.freeze()
        with _Progress(source, wait=wait) as reporter:
            try:
                asyncio.run(submission.run(source, reporter))
            except BrokenPipeError:
                raise  # The reader has gone.
            except BaseException:
                reporter.close()
                _summarise(submission.tally, wait=wait)
                raise
            reporter.close()
            _summarise(submission.tally, wait=wait)
    _check(submission.tally, failures)


class Submission:
    """One file on its way through."""

    def __init__(  # noqa: PLR0913 - what the command decides, by name
        self,
        place: discovery.Place,
        *,
        secret_key: ServerKey,
        wait: bool,
        platform_id: Id | None,
        timeout_s: float,
        tell: Callable[[Sequence[Outcome]], None],
    ) -> None:
        """Submit to `place`, and `tell` the outcomes in the order of the file.

        `secret_key` is the server key, with which the events are signed.
        """
        self.tally: Final = Tally()
        self._place: Final = place
        self._secret_key: Final = secret_key
        self._wait: Final = wait
        self._platform_id: Final = platform_id
        self._timeout_s: Final = timeout_s
        self._tell: Final = tell

    async def run(self, source: BinaryIO, reporter: "_Progress") -> None:
        """Submit all of `source`.

        Raises: CommandError when there was no progress for too long.
        """
        chunks: Queue[list[Event] | None] = Queue(maxsize=2)
        waiting: Queue[_Batch | None] = Queue(maxsize=_MOST_WAITING)
        Reader(source, chunks, asyncio.get_running_loop()).start()
        # A pool of its own size: the writer and the look-up of late outcomes.
        engine = async_engine(self._place.database_url, keyed=True, pool_size=2)
        redis_url = self._place.redis_url or discovery.NO_REDIS
        try:
            client_of_file = Client(engine, redis_url, secret_key=self._secret_key)
            async with client_of_file as client, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._enqueue(client, chunks, waiting))
                tasks.create_task(self._print(client, waiting, reporter))
        except BaseExceptionGroup as group:
            # Of the two tasks, the first to fail has cancelled the other.
            raise group.exceptions[0] from None
        finally:
            await engine.dispose()

    async def _enqueue(
        self,
        client: Client,
        chunks: "Queue[list[Event] | None]",
        waiting: "Queue[_Batch | None]",
    ) -> None:
        while (chunk := await chunks.get()) is not None:
            batch = await self._accepted(client, chunk)
            self.tally.accepted += len(chunk)
            await waiting.put(batch)
        await waiting.put(None)

    async def _accepted(self, client: Client, chunk: list[Event]) -> "_Batch":
        """Have `chunk` accepted, again and again while PostgreSQL is away.

        A write whose answer was lost may have been accepted: its events are then duplicates of
        themselves, and say so.
        """
        deadline = time.monotonic() + self._timeout_s
        attempt = 0
        while True:
            try:
                return await client.accept(chunk, platform_id=self._platform_id, lane=Lane.BULK)
            except UnavailableError as error:
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"PostgreSQL has been unavailable for {self._timeout_s:g} s"
                        f" ({_first_line(error)}); submit the same file again when it is available:"
                        " no event is applied twice"
                    ) from None
            await asyncio.sleep(_RETRY_S[min(attempt, len(_RETRY_S) - 1)])
            attempt += 1

    async def _print(
        self, client: Client, waiting: "Queue[_Batch | None]", reporter: "_Progress"
    ) -> None:
        while (batch := await waiting.get()) is not None:
            futures = [each.outcome for each in batch]
            if self._wait:
                await self._decided(futures)
                for start in range(0, len(batch), _GROUP):
                    outcomes = await self._reported(client, batch[start : start + _GROUP])
                    self._count(outcomes)
                    self._tell(outcomes)
            else:
                self._count(_rejected(futures))
            reporter.update(len(batch))

    async def _reported(self, client: Client, group: "_Batch") -> list[Outcome]:
        """Return the outcomes of `group`, which are there, as they may be printed now.

        An approval may have waited for the others until after its deadline. That its reversal is
        recorded is waited for again and again while PostgreSQL is away. Raises: UnavailableError.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return await client.reported(group)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_RETRY_S[0])

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.tally.count(outcome)

    async def _decided(self, futures: "Sequence[Future[Outcome]]") -> None:
        """Return once each of `futures` has its outcome.

        Raises: CommandError, UnavailableError.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                # One after the other, in order; most have arrived already.
                for future in futures:
                    await future
        except TimeoutError:
            undecided = sum(not future.done() or future.cancelled() for future in futures)
            raise CommandError(
                f"no outcome of {undecided} event(s) for {self._timeout_s:g} s; they are accepted"
                " and will be decided once a worker runs (`cardledger doctor` says what is wrong);"
                " submit the same file again for their outcomes: no event is applied twice"
            ) from None


def _rejected(futures: "Sequence[Future[Outcome]]") -> list[Outcome]:
    """Return the rejections that are there already, as those of malformed lines are."""
    finished = [
        future.result()
        for future in futures
        if future.done() and not future.cancelled() and future.exception() is None
    ]
    return [outcome for outcome in finished if outcome.outcome is OutcomeType.REJECTED]


class Reader(threading.Thread):
    """Reads and parses, as far ahead as the queue has room.

    A thread of its own and no task, because standard input can block without limit.
    """

    def __init__(
        self,
        source: BinaryIO,
        chunks: "Queue[list[Event] | None]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(name="reader", daemon=True)
        self._source: Final = source
        self._chunks: Final = chunks
        self._loop: Final = loop

    def run(self) -> None:
        splitter = Splitter()
        try:
            while data := os.read(self._source.fileno(), _READ):
                self._hand_over(list(jsonl.parse(splitter.feed(data))))
            self._hand_over(list(jsonl.parse(splitter.finish())))
            self._put(None)
        except (RuntimeError, CancelledError):  # The event loop has ended before the file.
            return

    def _hand_over(self, events: list[Event]) -> None:
        for start in range(0, len(events), _CHUNK):
            self._put(events[start : start + _CHUNK])

    def _put(self, chunk: list[Event] | None) -> None:
        asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), self._loop).result()


class _Progress:
    """A bar over the bytes of the file, on a terminal that shows nothing else."""

    def __init__(self, source: BinaryIO, *, wait: bool) -> None:
        err = terminal.console(sys.stderr)
        self._bar: Final = terminal.progress(err, unit="events")
        # Outcomes on the same terminal would tear it.
        self._bar.disable = self._bar.disable or (wait and sys.stdout.isatty())
        self._task: Final = self._bar.add_task("submitting", total=_count_lines(source))

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, done: int) -> None:
        """Count `done` more events."""
        self._bar.advance(self._task, done)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def _count_lines(source: BinaryIO) -> int | None:
    """Return how many lines are left in a file that can be read twice."""
    if not source.seekable():
        return None
    # Without seeking: standard input may begin where another reader of the file has stopped.
    descriptor = source.fileno()
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    counted = 0
    while block := os.pread(descriptor, 1 << 20, place):
        counted += block.count(b"\n")
        place += len(block)
    return counted


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        # Unbuffered: the reader asks for large pieces.
        source = Path(file).open("rb", buffering=0)  # noqa: SIM115 - closed below.
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}", code=USAGE) from None
    with source:
        yield source


def _writer() -> Callable[[Sequence[Outcome]], None]:
    out = sys.stdout.buffer

    def write(outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            out.writelines(_line(one) for one in outcomes)
            out.flush()

    return write


def _line(outcome: Outcome) -> bytes:
    """Return `outcome` as a line in ASCII: without control characters or line breaks."""
    body = outcome.json
    if not body.isascii():
        body = json.dumps(outcome.wire, separators=(",", ":")).encode()
    return body + b"\n"


_FAILURES: Final[Mapping[OutcomeType, str]] = {
    OutcomeType.REJECTED: (
        "{count:,} event(s) were rejected and are not in the books; `cardledger rejections list`"
        " shows why"
    ),
    OutcomeType.DECLINED: "{count:,} authorization(s) were declined; their `reason` says why",
    OutcomeType.PARKED: (
        "{count:,} event(s) were parked; `cardledger parked list` shows those that still wait"
    ),
}


def _failures(fail_on: Sequence[FailOn] | None, *, wait: bool) -> list[OutcomeType]:
    """Return the outcomes that fail the command: rejections, and what `fail_on` adds.

    Raises: CommandError when the options contradict each other.
    """
    if not fail_on:
        return [OutcomeType.REJECTED]
    if FailOn.NONE in fail_on:
        if len(set(fail_on)) > 1:
            raise CommandError("--fail-on none: leave out the others, or none", code=USAGE)
        return []
    if not wait:
        raise CommandError("--fail-on needs the outcomes: leave out --no-wait", code=USAGE)
    named = {FailOn.REJECTED, *fail_on}
    return [kind for kind in _FAILURES if FailOn(kind.lower()) in named]


def _check(tally: Tally, failures: Sequence[OutcomeType]) -> None:
    """Check that no outcome fails the command.

    Raises: CommandError.
    """
    found = [
        _FAILURES[kind].format(count=tally.results[kind])
        for kind in failures
        if tally.results[kind]
    ]
    if found:
        raise CommandError(f"{'; '.join(found)} (--fail-on none: exit with 0 all the same)")


def _platform_id(platform: str | None) -> Id | None:
    if platform is None:
        return None
    try:
        return Id.parse(platform)
    except ValueError:
        pass
    try:
        return parse_id("PlatformConfig", platform)
    except ValueError:
        raise CommandError(
            f"--platform {platform}: must be a UUID, or PlatformConfig:<uuid> as in GET /config",
            code=USAGE,
        ) from None


def _summarise(tally: Tally, *, wait: bool) -> None:
    seconds = time.monotonic() - tally.began
    done = tally.decided if wait else tally.accepted
    rate = done / seconds if seconds else 0.0
    counted = ", ".join(f"{count:,} {name.lower()}" for name, count in tally.outcomes.most_common())
    if not wait:
        so_far = f" ({counted} so far)" if counted else ""
        counted = f"accepted; their outcomes are not waited for{so_far}"
    terminal.console(sys.stderr).print(
        Text(f"{done:,} events in {seconds:.1f} s ({rate:,.0f}/s): {counted or 'nothing'}")
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
