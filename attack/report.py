"""The report of a run: a table for a terminal, and JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from attack.judge import Finding, Measure

_NAME: Final = 34
_UNSAID: Final = (
    "rows: ",
    "times without ",
    "other platform's refusals",
    "other platform's samples missing",
    "answers of other statuses",
    "processes that ended",
)
"""Measures of which the table has only those above their limits; all are in the JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is known at the end."""

    command: str
    about: str
    quiet_p50_ms: float
    quiet_p99_ms: float
    findings: Sequence[Finding]

    @property
    def holds(self) -> bool:
        """Whether every attack struck and was withstood."""
        return bool(self.findings) and all(finding.holds for finding in self.findings)

    def json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        findings = [
            asdict(finding)
            | {
                "holds": finding.holds,
                "measures": [
                    asdict(measure) | {"holds": measure.holds} for measure in finding.measures
                ],
            }
            for finding in self.findings
        ]
        return asdict(self) | {"holds": self.holds, "findings": findings}

    def text(self) -> str:
        """Return the report for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.command
        yield self.about
        yield (
            f"quiet: the other platform's authorizations p50 {self.quiet_p50_ms:.1f} ms,"
            f" p99 {self.quiet_p99_ms:.1f} ms"
        )
        yield ""
        yield f"{'':7}{'ATTACK':{_NAME + 5}} {'EFFECT':>12}  {'LIMIT':>12}"
        for finding in self.findings:
            yield from _of(finding)
        withstood = sum(finding.holds for finding in self.findings)
        yield ""
        yield f"{withstood} of {len(self.findings)} attacks withstood; again: {self.command}"


def _of(finding: Finding) -> Iterator[str]:
    mark = "ok    " if finding.holds else "BROKEN"
    yield f"{mark} {finding.item:4} {finding.name} ({finding.seconds:.0f} s): {finding.aim}"
    if finding.error is not None:
        yield f"{'':12}NOT PLAYED: {finding.error}"
    elif not finding.struck:
        yield f"{'':12}DID NOT STRIKE: {finding.proof}"
    else:
        yield f"{'':12}{finding.proof}"
    for measure in finding.measures:
        if measure.holds and measure.name.startswith(_UNSAID):
            continue
        note = "" if measure.holds else "  <-- above its limit"
        value, limit = (_shown(measure, figure) for figure in (measure.value, measure.limit))
        yield f"{'':12}{measure.name:{_NAME}} {value}  {limit}{note}"


def _shown(measure: Measure, value: float) -> str:
    number = f"{value:,.1f}" if measure.unit in {"ms", "s"} and value < 1000 else f"{value:,.0f}"
    return f"{f'{number} {measure.unit}'.rstrip():>12}"
