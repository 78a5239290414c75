"""One storm from its beginning to its report."""

import logging
import platform
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
import structlog

from cardledger.embedded import directories
from cardledger.schema import migrate
from storm.checks import clocks, promises, record, recovery
from storm.checks.record import Reader
from storm.faults import campaign as campaigns
from storm.faults.arena import Arena
from storm.faults.campaign import Campaign
from storm.faults.crashes import CRASHES
from storm.faults.errors import ERRORS
from storm.faults.silences import SILENCES
from storm.load import payers, population
from storm.load.callers import Load
from storm.load.journal import Journal
from storm.report import Report
from storm.system import System, wait_until
from tests.storm import FlakyReceiver

KINDS: Final = {fault.kind: fault for fault in (*CRASHES, *SILENCES, *ERRORS)}

RATE: Final = 40.0
"""Calls a second."""

_SWITCH_S: Final = 0.0002
_QUIET_TIMEOUT_S: Final = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a storm is made of; the same options make the same schedule."""

    seed: int
    seconds: float
    rate: float = RATE
    cardholders: int = 32
    kinds: Sequence[str] = tuple(KINDS)
    home: Path | None = None  # Kept; else a temporary directory.

    @property
    def command(self) -> str:
        """The command that does the same again."""
        words = ["make storm", f"SEED={self.seed}", f"MINUTES={self.seconds / 60:g}"]
        extra = [] if len(self.kinds) == len(KINDS) else [f'--kind "{one}"' for one in self.kinds]
        if self.rate != RATE:
            extra.append(f"--rate {self.rate:g}")
        return " ".join([*words, f"ARGS='{' '.join(extra)}'"] if extra else words)

    @property
    def warnings(self) -> Iterator[str]:
        """What is to be known before the run: that it is too short for its kinds of faults."""
        minutes = campaigns.minutes_for(len(self.kinds))
        if self.seconds < minutes * 60:
            yield (
                f"{len(self.kinds)} kinds of faults need about {minutes:.1f} minutes; in"
                f" {self.seconds / 60:g} some do not have their turn, and the run will not hold"
            )


def run(options: Options, *, progress: bool = False) -> Report:
    """Run a storm and return its report.

    Raises: CommandError, ServerError, TimeoutError when the system does not start; then its logs
    and data are kept.
    """
    home = options.home or directories.temporary("cardledger-storm-")
    is_kept = options.home is not None
    interval = sys.getswitchinterval()
    # The proxy shares this process with the load: it must not wait 5 ms for every piece of data.
    sys.setswitchinterval(_SWITCH_S)
    try:
        with (
            logs_in(home / "storm.log"),
            System(home) as system,
            FlakyReceiver(failing=0.1, seed=options.seed) as receiver,
        ):
            return _Storm(options, system, receiver, progress=progress).run()
    except Exception as error:
        is_kept = True
        error.add_note(f"Logs and data are in {home}.")
        raise
    finally:
        sys.setswitchinterval(interval)
        if not is_kept:
            shutil.rmtree(home, ignore_errors=True)


class _Storm:
    def __init__(
        self, options: Options, system: System, receiver: FlakyReceiver, *, progress: bool
    ) -> None:
        self._options: Final = options
        self._system: Final = system
        self._receiver: Final = receiver
        self._progress: Final = progress
        self._pause: Final = threading.Event()

    def run(self) -> Report:
        began = time.monotonic()
        system, options = self._system, self._options
        for line in options.warnings:
            self._tell(line)
        record.instrument(system)
        self._tell("processes start")
        system.start_processes()
        wait_until(self._is_ready, "the API serves")
        customers = payers.populate(system)
        cardholders = population.populate(system, options.cardholders)
        population.connect_agents(system, cardholders)
        population.subscribe(system, self._receiver)
        journal = Journal()
        load = Load(system, cardholders, customers, journal, seed=options.seed, rate=options.rate)
        reader = Reader(system)
        faults = [KINDS[kind] for kind in options.kinds]
        arena = Arena(system, options.seed)
        campaign = Campaign(faults, arena, seed=options.seed, report=self._tell)
        load.start()
        wait_until(load.is_warm.is_set, "the accounts are funded")
        reader.start()
        try:
            campaign.strike_for(options.seconds, load.check)
            self._tell("the faults are over; waiting for the callers")
            load.stop()
            self._tell("waiting until all is quiet")
            left = self._wait_until_quiet()
        except BaseException:
            load.stop(patience_s=0)  # An interrupt, or an error: there is nothing to report.
            raise
        finally:
            reader.stop()
        self._tell("checking")
        return self._report(campaign, journal, load, reader, left, time.monotonic() - began)

    # --- afterwards ------------------------------------------------------------------------------

    def _wait_until_quiet(self) -> dict[str, int]:
        """Return what still waits when nothing has moved any more, at best nothing."""
        deadline = time.monotonic() + _QUIET_TIMEOUT_S
        with self._system.connect() as connection:
            while any((left := promises.waiting(connection)).values()):
                if time.monotonic() > deadline:
                    return left
                self._pause.wait(0.2)
        return left

    def _report(  # noqa: PLR0913, PLR0917 - the inputs of the report
        self,
        campaign: Campaign,
        journal: Journal,
        load: Load,
        reader: Reader,
        left: dict[str, int],
        seconds: float,
    ) -> Report:
        found = record.read(self._system)
        recovered = recovery.recoveries(campaign.strikes, journal, found)
        return Report(
            command=self._options.command,
            about=f"{platform.machine()}, Python {platform.python_version()},"
            f" {self._system.postgres.origin}, {self._system.redis.origin}",
            schema=migrate.head(),
            seconds=seconds,
            acknowledged=journal.acknowledged,
            decided=len(found.decisions),
            interfaces=journal.answered_by_interface,
            retried=journal.errors,
            skipped_sends=load.skipped,
            wanted=self._options.kinds,
            strikes=campaign.strikes,
            not_struck=campaign.not_struck,
            skipped=campaign.skipped,
            promises=[
                promises.lost(journal, found),
                promises.applied_twice(self._system, journal, found),
                promises.approval_reported_late(journal),
                promises.wrongly_rejected(journal, found),
                clocks.not_wrongly_declined(journal, found),
                promises.stuck(left, journal),
                promises.conserved(reader.snapshots, reader.violations),
                promises.replayed(self._system, found),
                promises.paid(self._system),
                promises.verified(self._system),
                promises.ordered(journal, found),
                promises.delivered(self._system, self._receiver),
            ],
            recoveries=recovered.by_kind,
            recovery_p50_s=recovery.quantile(recovered.of_queues, 0.5),
            recovery_p99_s=recovery.quantile(recovered.of_queues, 0.99),
            slowest_p50_s=recovery.quantile(recovered.of_faults, 0.5),
            slowest_p90_s=recovery.quantile(recovered.of_faults, 0.9),
        )

    def _is_ready(self) -> bool:
        try:
            answer = httpx2.get(f"{self._system.base_url}/readyz", timeout=5, trust_env=False)
        except httpx2.TransportError:
            return False
        return answer.is_success

    def _tell(self, line: str) -> None:
        if self._progress:
            print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


@contextmanager
def logs_in(file: Path) -> Iterator[None]:
    """Have what our own client logs written to `file`: faults are no news on the terminal."""
    file.parent.mkdir(parents=True, exist_ok=True)
    before = structlog.get_config()
    handler = logging.FileHandler(file)
    root = logging.getLogger()
    root.addHandler(handler)
    with file.open("a", encoding="utf-8") as log:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.PrintLoggerFactory(log),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)
            root.removeHandler(handler)
            handler.close()
