"""A plan of days of a network: events, lines of files, and the breaks that must come of them.

A story (`network_stories`) plans what it sends, what it writes into which file and what it leaves
out, so it knows which breaks must be there. Nothing here asks the ledger or shares code with its
matching: sums are added up again, from what was planned.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

from cardledger.install.settlement_files import Break, Proof
from tests.finance_world import Network, due
from tests.settlement_files import Row

ZONE: Final = ZoneInfo("America/New_York")

# In the night in which clocks go back 01:30 is there twice; near midnight UTC has another date.
_TIMES: Final = (time(0, 10), time(1, 30), time(12), time(20, 5), time(23, 50))
_TO_FILE: Final = {"PRESENTMENT": 1, "CREDIT_REVERSAL": 1, "FEE": 1}

FileKey = tuple[date, str | None]
"""The settlement date of a file and its cycle; None: of the whole day."""


@dataclass(slots=True, eq=False)
class Sent:
    """An event; a late one is sent after the files were imported.

    `counts_late`: it is applied only when late events are sent, because it was parked before.
    """

    body: dict[str, Any]
    bought: date
    is_late: bool = False
    outcome: str = "APPLIED"
    counts_late: bool = False
    story: str = ""

    @property
    def settled(self) -> FileKey | None:
        details = self.body.get("settlement")
        if details is None:
            return None
        return date.fromisoformat(details["settlementDate"]), details.get("cycle")


@dataclass(slots=True, eq=False)
class Written:
    """A line; `number` is its place in the file, known once the file is written."""

    file: FileKey
    row: Row
    story: str = ""
    number: int = 0

    @property
    def is_fee(self) -> bool:
        return self.row["type"] in ("FEE", "FEE_REVERSAL")

    @property
    def due(self) -> int:
        return int(self.row["amount"]) * _TO_FILE.get(self.row["type"], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Must:
    """A break that must be there: of the last of `lines` in the file, or of an event alone.

    `is_of_first`: of the first of `lines`.
    """

    file: FileKey
    kind: str
    difference: int
    state: str = "open"
    cause: str | None = None
    lines: Sequence[Written] = ()
    is_of_first: bool = False
    event: Sent | None = None
    currency: str = "USD"
    ledger_difference: int | None = None  # In USD, of a line in another currency.

    @property
    def line(self) -> int | None:
        numbers = sorted(line.number for line in self.lines)
        return numbers[0 if self.is_of_first else -1] if numbers else None


@dataclass(frozen=True, slots=True)
class Match:
    """So many of `lines` are `events`, which are interchangeable."""

    lines: Sequence[Written]
    events: Sequence[Sent]
    rule: str
    is_late: bool = False

    @property
    def file(self) -> FileKey:
        return self.lines[0].file


@dataclass(slots=True)
class Plan:
    """What is sent and written, and what must come of it: `first`, and `last` after late events."""

    network: Network
    random: Random
    cycles: dict[date, tuple[str | None, ...]]  # Of the files of each day.
    events: list[Sent] = field(default_factory=list)
    lines: list[Written] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    first: list[Must] = field(default_factory=list)
    last: list[Must] = field(default_factory=list)
    stories: int = 0
    story: str = ""

    # --- what stories are made of -----------------------------------------------------------------

    @property
    def files(self) -> list[FileKey]:
        """The files, in the order in which they are imported."""
        return [(day, cycle) for day in sorted(self.cycles) for cycle in self.cycles[day]]

    def file(self) -> FileKey:
        return self.random.choice(self.files)

    def two_files(self) -> tuple[FileKey, FileKey]:
        """Return two files of different days, the earlier first."""
        first, second = sorted(self.random.sample(sorted(self.cycles), 2))
        return (first, self.random.choice(self.cycles[first])), (
            second,
            self.random.choice(self.cycles[second]),
        )

    def amount(self) -> int:
        return self.random.randint(100, 99_999)

    def name(self) -> str:
        return f"S{self.stories}"

    def event(  # noqa: PLR0913 - an event
        self,
        settled: FileKey | None,
        kind: str = "CLEARING",
        *,
        amount: int | None = None,
        token: str = "",
        bought: date | None = None,
        is_late: bool = False,
        outcome: str = "APPLIED",
        counts_late: bool = False,
        network: Network | None = None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> Sent:
        """Plan an event that is settled in a file; None: without settlement details."""
        day, cycle = settled or (date(2026, 10, 1), None)
        bought = bought or day - timedelta(days=self.random.randint(0, 2))
        moment = datetime.combine(bought, self.random.choice(_TIMES), ZONE)
        moment = moment.replace(fold=self.random.randint(0, 1))
        body = (network or self.network).event(
            kind,
            f"{self.name()}{token}",
            amount or self.amount(),
            day,
            cycle=cycle,
            occurredAt=moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            **({"merchant": {"descriptor": f"Shop  {self.stories}", "mcc": "5411"}} | fields),
        )
        if settled is None:
            del body["settlement"]
        found = Sent(body, bought, is_late, outcome, counts_late, self.story)
        self.events.append(found)
        return found

    def line(
        self, event: Sent, file: FileKey | None = None, by: str = "REFERENCE", **changes: str
    ) -> Written:
        """Write a line that is about `event`, without what the rules before `by` would find."""
        file = file or event.settled
        assert file is not None
        row = self.network.line(event.body, transaction_date=str(event.bought))
        row["merchant"] = f"SHOP {self.stories}"
        if by == "ARN":
            arn = event.body["settlement"]["acquirerReference"]
            row |= {"reference": arn, "token": "", "card_id": ""}
        elif by != "REFERENCE":
            row |= {"reference": ""} if by == "TOKEN" else {"reference": "", "token": ""}
        return self.write(file, row | changes)

    def write(self, file: FileKey, row: Row) -> Written:
        found = Written(file, row, self.story)
        self.lines.append(found)
        return found

    def arn(self) -> str:
        return f"{self.random.randrange(10**22, 10**23)}"

    def match(
        self,
        lines: Written | Sequence[Written],
        events: Sent | Sequence[Sent],
        rule: str = "REFERENCE",
        *,
        is_late: bool = False,
    ) -> None:
        some_lines = [lines] if isinstance(lines, Written) else lines
        some_events = [events] if isinstance(events, Sent) else events
        self.matches.append(Match(some_lines, some_events, rule, is_late))

    def must(self, *breaks: Must) -> None:
        """Say that `breaks` are there from the import on, and stay as they are."""
        self.first += breaks
        self.last += breaks

    def late(self, *breaks: Must) -> None:
        """Say that `breaks` are there once late events have been sent."""
        self.last += breaks

    # --- what must come of it ---------------------------------------------------------------------

    def rows(self, file: FileKey) -> list[Row]:
        """Return the lines of `file` in any order, and number them."""
        found = [each for each in self.lines if each.file == file]
        self.random.shuffle(found)
        for number, each in enumerate(found, start=3):
            each.number = number
        return [each.row for each in found]

    def wanted_breaks(self, *, is_late: bool) -> Counter[tuple[Any, ...]]:
        """Return the breaks that must be there; a file without a line is not sent."""
        sent = {line.file for line in self.lines}
        return Counter(
            (
                *each.file,
                each.kind,
                each.cause,
                each.state,
                each.line,
                each.event.body["reference"] if each.event else None,
                each.currency,
                each.difference,
                each.ledger_difference,
            )
            for each in (self.last if is_late else self.first)
            if each.file in sent
        )

    def wanted_proofs(self, file: FileKey, *, is_late: bool) -> dict[str, Proof]:
        file_sums: Counter[str] = Counter()
        for line in self.lines:
            if line.file == file:
                file_sums[line.row["currency"]] += line.due
        differences: Counter[str] = Counter()
        for each in self.last if is_late else self.first:
            if each.file == file:
                differences[each.currency] += each.difference
                differences["USD"] += each.ledger_difference or 0
        ledger = sum(
            due(each.body)
            for each in self.events
            if self._counts(each, is_late=is_late) and self._is_in(each, file, is_late=is_late)
        ) + sum(line.due for line in self.lines if line.file == file and line.is_fee)
        return {
            currency: Proof(
                currency,
                ledger if currency == "USD" else 0,
                differences[currency],
                file_sums[currency],
            )
            for currency in file_sums.keys() | differences.keys() | {"USD"}
        }

    def _counts(self, event: Sent, *, is_late: bool) -> bool:
        if event.body.get("settlement", {}).get("network", self.network.name) != self.network.name:
            return False
        if event.counts_late:
            return is_late
        return event.outcome == "APPLIED" and (is_late or not event.is_late)

    def _is_in(self, event: Sent, file: FileKey, *, is_late: bool) -> bool:
        """Return whether `file` has to prove `event`: of its day, and in no other file of it."""
        has_it = next(
            (
                each.file
                for each in self.matches
                if event in each.events and (is_late or not each.is_late)
            ),
            None,
        )
        if event.settled is None:
            return has_it == file
        if not _covers(file, event.settled):
            return False
        return has_it in {None, file} or not _covers(has_it, event.settled)

    def story_of(self, key: tuple[Any, ...]) -> str:
        """Return the story of a break in the form of `wanted_breaks`."""
        day, cycle, _, _, _, line, reference, *_ = key
        return next(
            (each.story for each in self.lines if (each.file, each.number) == ((day, cycle), line)),
            next(
                (each.story for each in self.events if each.body["reference"] == reference),
                "no story",
            ),
        )

    def wanted_matches(self, *, is_late: bool) -> Iterator[Match]:
        yield from (each for each in self.matches if is_late or not each.is_late)


def _covers(file: FileKey | None, settled: FileKey) -> bool:
    """Return whether an event settled so is one of the day and cycle of `file`."""
    if file is None or file[0] != settled[0]:
        return False
    return settled[1] is None or file[1] is None or file[1] == settled[1]


def found_breaks(breaks: Sequence[Break], files: dict[str, FileKey]) -> Counter[tuple[Any, ...]]:
    """Return `breaks` in the form of `Plan.wanted_breaks`; `files` are those of the file ids."""
    return Counter(
        (
            *files[each.file_id],
            each.kind,
            each.cause,
            each.state,
            each.line,
            each.reference if each.line is None else None,
            each.currency,
            each.difference,
            each.ledger_difference,
        )
        for each in breaks
    )
