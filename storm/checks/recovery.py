"""Recovery: the time until queues decide again after a fault."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cardledger.ledger.messaging.inbox import Lane
from storm.checks.record import Record
from storm.faults.arena import Strike
from storm.load.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long queues with work took to decide again after a fault of one kind, in seconds."""

    kind: str
    queues: int
    p50_s: float
    p99_s: float
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoveries:
    """The recovery of each kind of fault; in seconds, in order, of each queue and each fault.

    Of a fault it is that of its slowest queue: many queues that did not notice it hide no other.
    """

    by_kind: Sequence[Recovery]
    of_queues: Sequence[float]
    of_faults: Sequence[float]


def recoveries(strikes: Sequence[Strike], journal: Journal, record: Record) -> Recoveries:
    """Return how long queues took to decide again after each of `strikes`.

    Counted from the moment the fault was over, or the message that is decided first began to wait
    if that was later, to the commit of that decision. Callers begin to wait with their first
    attempt; a message of a file or of the bulk lane waits from its acceptance on.
    """
    decided: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for sent in journal.events.values():
        decision = record.decisions.get(sent.key)
        if decision is not None and sent.key:
            message = record.accepted.get(decision.message_id)
            if message is not None:
                waits_since = sent.began if sent.lane is Lane.LIVE else message.at
                decided[message.lane, message.shard].append((decision.at, waits_since))
    for queue in decided.values():
        queue.sort()
    by_kind: dict[str, list[float]] = defaultdict(list)
    slowest: list[float] = []
    for number, strike in enumerate(strikes):
        until = strikes[number + 1].began if number + 1 < len(strikes) else float("inf")
        found = (_first_after(queue, strike.recovers_from, until) for queue in decided.values())
        waits = [wait for wait in found if wait is not None]
        if waits:
            by_kind[strike.kind] += waits
            slowest.append(max(waits))
    return Recoveries(
        by_kind=[_recovery(kind, sorted(waits)) for kind, waits in by_kind.items()],
        of_queues=sorted(wait for waits in by_kind.values() for wait in waits),
        of_faults=sorted(slowest),
    )


def _first_after(queue: Sequence[tuple[float, float]], moment: float, until: float) -> float | None:
    for at, began in queue:
        if at >= moment:
            start = max(moment, began)
            return at - start if start < until else None
    return None


def _recovery(kind: str, waits: Sequence[float]) -> Recovery:
    return Recovery(
        kind=kind,
        queues=len(waits),
        p50_s=quantile(waits, 0.5),
        p99_s=quantile(waits, 0.99),
        longest_s=waits[-1],
    )


def quantile(ordered_values: Sequence[float], share: float) -> float:
    """Return the value that `share` of them do not exceed; 0 of none."""
    if not ordered_values:
        return 0.0
    return ordered_values[min(int(len(ordered_values) * share), len(ordered_values) - 1)]
