"""The report of a storm: for a terminal, as JSON, and for the page of the documentation."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from storm.checks.promises import Promise
from storm.checks.recovery import Recovery
from storm.faults.arena import Strike

RECOVERY_LIMIT_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that is known at the end."""

    command: str
    about: str
    seconds: float
    acknowledged: int
    decided: int
    retried: Mapping[str, int]
    skipped_sends: int
    strikes: Sequence[Strike]
    not_struck: Mapping[str, str] = field(default_factory=dict)  # A kind, and what went wrong.
    skipped: Mapping[str, str] = field(default_factory=dict)  # A kind, and why.
    promises: Sequence[Promise] = ()
    recoveries: Sequence[Recovery] = ()
    recovery_p50_s: float = 0.0
    recovery_p99_s: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether every promise was kept and every kind of fault struck."""
        return not self.not_struck and not any(promise.broken for promise in self.promises)

    def json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return asdict(self) | {"holds": self.holds}

    def text(self) -> str:
        """Return the report for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.command}"
        yield f"{self.about}, {self.seconds:.0f} s"
        yield ""
        yield f"FAULTS  {len(self.strikes)} of {len(self._by_kind())} kinds"
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
        for name, count in sorted(self.retried.items()):
            yield f"  {count:6,} x retried after {name}"
        if self.skipped_sends:
            yield f"  {self.skipped_sends:6,} x not sent: too many callers were waiting"
        yield ""
        yield "PROMISES"
        for promise in self.promises:
            mark = "ok    " if not promise.broken else "BROKEN"
            yield f"  {mark} {promise.name:18} {promise.broken:6,} of {promise.checked:,}"
            yield from (f"           {example}" for example in promise.examples)
        yield (
            f"  recovery of a queue after a fault: p50 {self.recovery_p50_s:.2f} s,"
            f" p99 {self.recovery_p99_s:.2f} s"
        )
        yield ""
        yield f"{'all promises kept' if self.holds else 'PROMISES BROKEN'}; again: {self.command}"

    def _by_kind(self) -> Mapping[str, list[Strike]]:
        by_kind: dict[str, list[Strike]] = defaultdict(list)
        for strike in self.strikes:
            by_kind[strike.kind].append(strike)
        return by_kind
