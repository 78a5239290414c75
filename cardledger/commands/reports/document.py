"""A report as every format gets it: its head, its columns and a stream of rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cardledger.ledger.queries.report_definitions import Column, Kind
from cardledger.schema.wire.common import rfc3339

Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the figures of a report are about; without it they mean nothing."""

    report: str
    version: int
    database: str
    time_zone: str  # Of the days of the books; times are in UTC and say so.
    on: date
    known: datetime
    first: date | None = None
    filters: Mapping[str, str] = field(default_factory=dict)  # By the name of the option.

    def wire(self) -> dict[str, Any]:
        """Return the head as JSON."""
        document: dict[str, Any] = {
            "report": self.report,
            "version": self.version,
            "database": self.database,
        }
        if self.first is not None:
            document["from"] = self.first.isoformat()
        return document | {
            "on": self.on.isoformat(),
            "known": rfc3339(self.known),
            "timeZone": self.time_zone,
            **self.filters,
        }

    def line(self) -> str:
        """Return the head as one line for people."""
        period = f"on {self.on}" if self.first is None else f"from {self.first} to {self.on}"
        filters = "".join(f", {name} {value}" for name, value in self.filters.items())
        return (
            f"{self.report} {period}, known at {rfc3339(self.known)}, days in {self.time_zone},"
            f" database {self.database}, columns of version {self.version}{filters}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report to write.

    Shape: `batches` are some thousand rows each, which are read while they are written. A row has
    a value for each of `columns`. `decimals` has the number of decimals of each currency.
    """

    head: Head
    columns: Sequence[Column]
    batches: Iterator[Sequence[Row]]
    decimals: Mapping[str, int]

    def place(self, name: str) -> int | None:
        """Return the place of the column `name`, None if there is none."""
        return next((at for at, column in enumerate(self.columns) if column.name == name), None)

    def decimals_of(self) -> Callable[[Row], int | None]:
        """Return what finds the decimals of the amounts of a row; None of an unknown currency."""
        place, decimals = self.place("currency"), self.decimals
        if place is None:
            return lambda _: None
        return lambda row: decimals.get(row[place])

    def in_major_units(self) -> list[tuple[int, Column]]:
        """Return the columns, with their places, where amounts are shown in major units.

        A column that repeats another in major units is left out.
        """
        return [
            (place, column)
            for place, column in enumerate(self.columns)
            if column.kind is not Kind.MAJOR
        ]


def major(minor: str, decimals: int) -> str:
    """Return an amount in minor units with decimals of its own in major units: 12.5 is 0.125."""
    return format(Decimal(minor).scaleb(-decimals), "f")


def plain(minor: int, decimals: int) -> str:
    """Return minor units in major units, as programs read them: 1250 is 12.50."""
    sign, digits = "-" if minor < 0 else "", str(abs(minor)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else f"{sign}{digits}"
