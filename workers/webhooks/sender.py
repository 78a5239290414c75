"""The webhook sender: dispatches the outbox and delivers what is due.

Any number of senders, in any number of processes, may run at once: PostgreSQL keeps which sender
has leased which delivery, and until when. In this process some threads send, and do nothing else;
one thread records their results and claims what is due (`lane`), another dispatches, a third
disables endpoints (`disabling`) and a fourth ends the deliveries of deleted ones; none waits for
another. Tests that a request waits for have a lane of their own, and so have approvals, which
payments wait for.
Source: docs/decisions/0021-one-coordinator-for-attempts.md, 0043-webhook-tests.md
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Final

from sqlalchemy import Engine

from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.webhooks import dispatch as webhook_dispatch
from cardledger.ledger.webhooks import endpoints
from cardledger.ledger.webhooks.backlogs import WAITING_LIMIT, Backlogs
from cardledger.ledger.webhooks.claims import Approvals, RequestedTests
from cardledger.ledger.webhooks.dispatch import Dispatched
from cardledger.ledger.webhooks.endpoint_tests import TEST_LIMIT
from cardledger.ledger.webhooks.folds import Folds
from cardledger.ledger.webhooks.leases import AttemptResult
from cardledger.ledger.webhooks.outbox_claims import Turns
from cardledger.workers.metrics import counted
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.tracing.hints import TraceHints
from cardledger.workers.webhooks.attempts import APPROVAL_TIMEOUT_S
from cardledger.workers.webhooks.disabling import EndpointDisabler
from cardledger.workers.webhooks.fair_share import ApartShare, FairShare
from cardledger.workers.webhooks.lane import Lane, LaneConfig
from cardledger.workers.webhooks.signer_cache import SignerCache

DISPATCH_LIMIT: Final = 500
"""Rows of the outbox that one database transaction dispatches; fewer after one that failed."""

DISCARD_LIMIT: Final = 500
"""Deliveries of deleted endpoints that one database transaction ends."""

CONNECTIONS: Final = 7
"""Database connections of a sender: to dispatch, to record and claim in each lane, for keys, to
disable, to discard."""

TEST_TIMEOUT_S: Final = 8.0
"""How long the attempt of a requested test may take: its request waits for the result."""

_APART_CONCURRENCY: Final = 32  # Of tests, and of approvals.
_APPROVALS: Final = 8  # Of one platform at a time.
_LOOK_S: Final = 2.0  # For approvals that another process has dispatched, and not sent.
_GATHER_S: Final = 0.01  # Rows that are written within a hundredth of a second share a dispatch.
_STOP_S: Final = 20.0


class Sender:
    """Delivers webhooks at least once: an attempt counts when it is recorded."""

    def __init__(  # noqa: PLR0913 - what a process decides, by name
        self,
        engine: Engine,
        keys: KeyRing,
        *,
        clock: Callable[[], datetime],
        timeout_s: float,
        retry_scale: float,
        every_s: float,
        concurrency: int = 64,
        waiting_limit: int = WAITING_LIMIT,
        allow_loopback: bool = False,
        traces: TraceHints | None = None,
    ) -> None:
        """Build the parts; `start` starts them. Without wake-ups, poll `every_s`."""
        self._engine: Final = engine
        self._clock: Final = clock
        self._turns: Final = Turns()
        self._backlogs: Final = Backlogs(waiting_limit)
        self._folds: Final = Folds()
        self._dispatch_limit = DISPATCH_LIMIT
        self._disabler: Final = EndpointDisabler(engine, every_s=every_s)
        config = LaneConfig(
            name="webhooks",
            in_order=True,
            concurrency=concurrency,
            timeout_s=timeout_s,
            retry_scale=retry_scale,
            every_s=every_s,
            allow_loopback=allow_loopback,
        )
        apart = replace(config, in_order=False, concurrency=_APART_CONCURRENCY)
        for_tests = replace(apart, name="webhook tests", timeout_s=min(timeout_s, TEST_TIMEOUT_S))
        for_approvals = replace(
            apart,
            name="approvals",
            timeout_s=min(timeout_s, APPROVAL_TIMEOUT_S),
            every_s=max(every_s, _LOOK_S),
        )
        signers = SignerCache(engine, keys, clock)

        lane = partial(
            Lane,
            engine=engine,
            signers=signers,
            clock=clock,
            on_result=self._note_result,
            traces=traces,
        )
        share = FairShare(concurrency)

        def yields() -> bool:
            # Sessions of PostgreSQL have no low priority, as this process has: the webhooks of one
            # platform would delay the authorizations of the others.
            return share.is_shared(monotonic())

        self._tests: Final = lane(
            for_tests,
            share=ApartShare(RequestedTests, _APART_CONCURRENCY, platform_limit=TEST_LIMIT),
        )
        self._approvals: Final = lane(
            for_approvals,
            share=ApartShare(Approvals, _APART_CONCURRENCY, platform_limit=_APPROVALS),
        )
        # What could not be recorded while its lease lasted is due here, but has been sent.
        self._deliveries: Final = lane(
            config, share=share, yields=yields, is_held=self._approvals.holds
        )
        self._dispatching: Final = PeriodicTask(
            "dispatch",
            self._dispatch_batch,
            every_s=every_s,
            gather_s=_GATHER_S,
            yields=yields,
        )
        self._discarding: Final = PeriodicTask("discard", self._discard_page, every_s=every_s)

    @property
    def tasks(self) -> list[PeriodicTask]:
        """The tasks that use PostgreSQL at every interval."""
        lanes = (self._deliveries, self._tests, self._approvals)
        return [self._dispatching, *(lane.task for lane in lanes), self._discarding]

    def start(self) -> None:
        """Start dispatching and delivering."""
        for task in self.tasks:
            task.start()
        self._disabler.start()

    def wake(self) -> None:
        """Dispatch the outbox, and send what is due or has become sendable, at once."""
        for task in self.tasks:
            task.wake()

    def wake_dispatch(self) -> None:
        """Dispatch the outbox at once; the deliveries made from it are then sent."""
        self._dispatching.wake()

    def close(self, limit_s: float = _STOP_S) -> None:
        """Wait for the attempts under way and record them. Nothing new is begun.

        Attempts that have not ended in `limit_s` are made again when their leases end.
        """
        deadline = StopDeadline(limit_s)
        # What takes no time comes first: no wait may let another part begin something new.
        lanes = (self._deliveries, self._tests, self._approvals)
        for lane in lanes:
            lane.claim_nothing_more()
        for task in (self._dispatching, self._discarding):
            task.stop(0)
        # None waits for the receivers or the locks of another.
        waits = [partial(lane.close, deadline) for lane in lanes]
        waits += [partial(t.stop, limit_s) for t in (self._dispatching, self._discarding)]
        deadline.run_together(waits)
        deadline.run(lambda: self._disabler.stop(deadline.left_s))

    def dispatch(self) -> Dispatched:
        """Make deliveries of a batch of the outbox.

        After a failure, as when a statement took too long, half as many at most, down to one; after
        a success twice as many.
        """
        limit = self._dispatch_limit
        self._dispatch_limit = max(limit // 2, 1)
        with self._engine.begin() as connection:
            dispatched = webhook_dispatch.dispatch(
                connection,
                limit=limit,
                at=self._clock(),
                turns=self._turns,
                backlogs=self._backlogs,
                folds=self._folds,
            )
        self._dispatch_limit = min(limit * 2, DISPATCH_LIMIT)
        return dispatched

    def deliver(self) -> int:
        """Record finished attempts and start what is due; return how many were started."""
        return self._deliveries.deliver()

    def deliver_tests(self) -> int:
        """Do as `deliver` does, with tests that a request waits for."""
        return self._tests.deliver()

    def deliver_approvals(self) -> int:
        """Do as `deliver` does, with requests for approval."""
        return self._approvals.deliver()

    def discard(self) -> int:
        """End a page of the deliveries of deleted endpoints; return how many they were."""
        with self._engine.begin() as connection:
            return endpoints.discard_page(connection, limit=DISCARD_LIMIT, at=self._clock())

    def _note_result(self, result: AttemptResult) -> None:
        counted.attempt(result)
        self._disabler.consider(result)

    def _dispatch_batch(self) -> bool:
        dispatched = self.dispatch()
        if dispatched.approvals:
            self._approvals.wake()
        if dispatched.deliveries:
            self._deliveries.wake()
        return dispatched.has_more

    def _discard_page(self) -> bool:
        return self.discard() > 0
