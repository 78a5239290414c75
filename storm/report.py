"""The report of a storm: for a terminal, as JSON, and for the page of the documentation."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from storm.checks.promises import Promise
from storm.checks.recovery import Recovery
from storm.faults.arena import Strike
from storm.load.bodies import REQUIRED

RECOVERY_LIMIT_S: Final = 5.0
"""The p99 of all recoveries has to be below it. It includes what else the machine does."""


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that is known at the end."""

    command: str
    about: str
    schema: str  # Its revision says how old the engine of the run is.
    seconds: float
    acknowledged: int
    decided: int
    interfaces: Mapping[str, int]  # Events with an outcome, by interface.
    retried: Mapping[str, int]
    skipped_sends: int
    wanted: Sequence[str]  # Kinds of faults.
    strikes: Sequence[Strike]
    not_struck: Mapping[str, str] = field(default_factory=dict)  # A kind, and what went wrong.
    skipped: Mapping[str, str] = field(default_factory=dict)  # A kind, and why.
    promises: Sequence[Promise] = ()
    recoveries: Sequence[Recovery] = ()
    recovery_p50_s: float = 0.0
    recovery_p99_s: float = 0.0
    slowest_p50_s: float = 0.0  # Of the slowest queue after each fault.
    slowest_p90_s: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether each kind struck, each promise was checked and kept, and recovery was fast."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Why the run does not hold; empty when it does."""
        return list(self._problems())

    @property
    def slow_kinds(self) -> list[str]:
        """The kinds of faults after which the p99 of recovery reached the limit."""
        return [one.kind for one in self.recoveries if one.p99_s >= RECOVERY_LIMIT_S]

    def _problems(self) -> Iterator[str]:
        struck = {strike.kind for strike in self.strikes}
        missing = [kind for kind in self.wanted if kind not in struck | self.skipped.keys()]
        # One that has struck may have failed since.
        missing += [kind for kind in self.not_struck if kind not in missing]
        if missing:
            yield f"did not strike: {', '.join(missing)}"
        if not struck:
            yield "no fault struck"
        if unused := [interface for interface in REQUIRED if not self.interfaces.get(interface)]:
            yield f"no event has an outcome that was sent by: {', '.join(unused)}"
        if not self.promises:
            yield "no promise was checked"
        for promise in self.promises:
            if promise.broken:
                yield f"broken: {promise.name}"
            elif not promise.checked:
                yield f"nothing to check: {promise.name}"
        if not self.recoveries:
            yield "no recovery was measured"
        if self.recovery_p99_s >= RECOVERY_LIMIT_S:
            slow = f"; {', '.join(self.slow_kinds)}" if self.slow_kinds else ""
            yield f"recovery p99 {self.recovery_p99_s:.2f} s, limit {RECOVERY_LIMIT_S:g} s{slow}"

    def json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return asdict(self) | {"holds": self.holds, "problems": self.problems}

    def text(self) -> str:
        """Return the report for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.command}"
        yield f"{self.about}, schema {self.schema}, {self.seconds:.0f} s"
        yield ""
        kinds = f"{len(self._by_kind())} kinds; {len(self.wanted)} were wanted"
        yield f"FAULTS  {len(self.strikes)} of {kinds}"
        recoveries = {one.kind: one for one in self.recoveries}
        for kind, strikes in sorted(self._by_kind().items()):
            recovery = recoveries.get(kind)
            spread = (
                f"recovery p50 {recovery.p50_s:5.2f} s  p99 {recovery.p99_s:5.2f} s"
                if recovery
                else "recovery not seen                "
            )
            yield f"  {len(strikes):3} x {kind:34} {spread}  {strikes[-1].proof}"
        for kind, why in self.skipped.items():
            yield f"    - {kind:34} skipped: {why}"
        for kind, why in self.not_struck.items():
            yield f"    ! {kind:34} DID NOT STRIKE: {why}"
        yield ""
        yield f"LOAD  {self.acknowledged:,} acknowledged, {self.decided:,} decided"
        for interface, count in sorted(self.interfaces.items()):
            yield f"  {count:6,} x {interface}"
        for name, count in sorted(self.retried.items()):
            yield f"  {count:6,} x retried after {name}"
        if self.skipped_sends:
            yield f"  {self.skipped_sends:6,} x not sent: too many callers were waiting"
        yield ""
        yield "PROMISES"
        for promise in self.promises:
            mark = "BROKEN" if promise.broken else "ok    " if promise.checked else "EMPTY "
            yield f"  {mark} {promise.name:27} {promise.broken:6,} of {promise.checked:,}"
            yield from (f"           {example}" for example in promise.examples)
        yield (
            f"  recovery of a queue after a fault: p50 {self.recovery_p50_s:.2f} s,"
            f" p99 {self.recovery_p99_s:.2f} s, limit {RECOVERY_LIMIT_S:g} s"
        )
        yield (
            f"  recovery of the slowest queue after a fault: p50 {self.slowest_p50_s:.2f} s,"
            f" p90 {self.slowest_p90_s:.2f} s"
        )
        yield from (f"  slower after: {kind}" for kind in self.slow_kinds)
        yield ""
        yield from (f"DOES NOT HOLD  {problem}" for problem in self.problems)
        yield f"{'all promises kept' if self.holds else 'FAILED'}; again: {self.command}"

    def _by_kind(self) -> Mapping[str, list[Strike]]:
        by_kind: dict[str, list[Strike]] = defaultdict(list)
        for strike in self.strikes:
            by_kind[strike.kind].append(strike)
        return by_kind
