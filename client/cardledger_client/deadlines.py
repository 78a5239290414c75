"""Deadlines: no approval is reported once its network has stopped waiting for it.

Pure: nothing here reads a clock, the time is passed in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cardledger_client.errors import DECIDE_BY_PASSED, Error
from cardledger_client.resources import Outcome

_WHAT_TO_DO: Final = (
    "it is not an approval. Submit the authorization again, unchanged but with a later decideBy, to"
    " read what is recorded; reverse an approval"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An outcome that has arrived; as an approval it is reported before `report_by` only."""

    outcome: Outcome
    report_by: datetime | None = None

    def is_late(self, now: datetime) -> bool:
        """Return whether `now` is too late to report the approval that this is."""
        return self.report_by is not None and self.report_by <= now

    def at(self, now: datetime) -> Outcome:
        """Return what is reported at `now`; in the place of a late approval `DECIDE_BY_PASSED`."""
        if not self.is_late(now):
            return self.outcome
        detail = f"approved too late to report it: {_WHAT_TO_DO}"
        return Outcome(outcome=DECIDE_BY_PASSED, reference=self.outcome.reference, detail=detail)


class Report:
    """The outcomes of a call that reports each as it arrives."""

    def __init__(self) -> None:
        self._late: Final[list[object]] = []

    def outcome(self, answer: Answer, *, now: datetime) -> Outcome:
        """Return what is reported of `answer` at `now`."""
        if answer.is_late(now):
            self._late.append(answer.outcome.reference)
        return answer.at(now)

    def finish(self) -> None:
        """End the call, all of whose outcomes are reported.

        Raises: Error DECIDE_BY_PASSED when there were late approvals.
        """
        if self._late:
            raise passed(self._late)


class Answers:
    """The answers of a call that reports all outcomes at its end."""

    def __init__(self) -> None:
        self._answers: Final[list[Answer]] = []

    def add(self, answer: Answer) -> None:
        """Keep `answer`, which is the next one."""
        self._answers.append(answer)

    def outcomes(self, *, now: datetime) -> list[Outcome]:
        """Return the outcomes of a call that ends at `now`.

        Raises: Error DECIDE_BY_PASSED, with every outcome, when an approval among them is late.
        """
        outcomes = self._at(now)
        late = self._late(now)
        if late:
            raise passed(late, outcomes)
        return outcomes

    def error(self, failure: Error, *, now: datetime) -> Error:
        """Return the error of a call that ends at `now` because of `failure`: it has the outcomes.

        A late approval is the first thing to report: an unchanged repetition would return it.
        """
        late = self._late(now)
        if not late:
            return failure.having(self._at(now))
        if failure.code == DECIDE_BY_PASSED:
            late += failure.details["references"]
        return passed(late, self._at(now))

    def _at(self, now: datetime) -> list[Outcome]:
        return [answer.at(now) for answer in self._answers]

    def _late(self, now: datetime) -> list[object]:
        return [each.outcome.reference for each in self._answers if each.is_late(now)]


def passed(references: Iterable[object], outcomes: Sequence[Outcome] = ()) -> Error:
    """Return the error of authorizations without an outcome that may be reported."""
    return Error(
        DECIDE_BY_PASSED,
        f"no outcome by decideBy: {_WHAT_TO_DO}",
        details={"references": list(references)},
        outcomes=outcomes,
    )


def utc_now() -> datetime:
    """Return the time by which deadlines are counted."""
    return datetime.now(UTC)
