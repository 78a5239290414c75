"""A settlement file, read one line at a time and checked whole: header, lines, control totals.

Nothing may be done with the lines unless the iteration ends: only the end proves them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

from cardledger.ledger.network_files import csv_rows, fields
from cardledger.ledger.network_files.records import (
    COLUMNS,
    PLACE,
    SIGNS,
    Code,
    Header,
    Line,
    LineType,
    RefusedError,
    Totals,
)
from cardledger.schema.wire.common import CURRENCIES

Rows = Iterator[tuple[int, Sequence[str]]]
"""Rows of a file, each after the number of its first line; fields are in the order of `COLUMNS`."""

_RECORD: Final = PLACE["record"]
_FILE_ID: Final = PLACE["file_id"]
_NETWORK: Final = PLACE["network"]
_DATE: Final = PLACE["settlement_date"]
_CYCLE: Final = PLACE["cycle"]
_CURRENCY: Final = PLACE["currency"]
_AMOUNT: Final = PLACE["amount"]
_INTERCHANGE: Final = PLACE["interchange"]
_COUNT: Final = PLACE["count"]

_OF_HEADER: Final = (
    ("file_id", _FILE_ID, Code.BAD_HEADER),
    ("network", _NETWORK, Code.UNKNOWN_NETWORK),
    ("settlement_date", _DATE, Code.BAD_DATE),
    ("cycle", _CYCLE, Code.BAD_HEADER),
)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SCALE: Final = 10**fields.INTERCHANGE_PLACES
_FEES: Final = (LineType.FEE.value, LineType.FEE_REVERSAL.value)


class SettlementFile:
    """A file that is read by iterating it, once.

    `header` is there from the beginning, `totals` and `digest` when the iteration has ended.
    `digest` is the SHA-256 of what was parsed: the same for the same rows in other bytes.
    """

    def __init__(self, rows: Rows, *, states_interchange: bool = True) -> None:
        """Read the header record of `rows`. Raises: RefusedError.

        `states_interchange`: whether the totals of the file have a total of interchange.
        """
        self._rows = rows
        self._states_interchange = states_interchange
        self.header: Final = self._read_header()
        self.totals: dict[str, Totals] = {}
        self.digest = ""

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines in order. Raises: RefusedError, also at the end."""
        digest = hashlib.sha256(_canonical(self.header))
        trailers: dict[str, Totals] = {}
        sums: dict[str, list[int]] = {}
        fees: dict[str, Counter[str]] = {kind: Counter() for kind in _FEES}
        own = tuple(field or "" for field in self.header)
        number = 1
        for number, row in self._rows:
            record = row[_RECORD]
            if record == "D" and not trailers:
                fields.refuse_card_numbers(row, number)
                if row[_FILE_ID] or row[_NETWORK] or row[_DATE] or row[_CYCLE]:
                    _check_is_of(own, row, number)
                line = fields.parse_line(row, number)
                digest.update(_canonical(line[1:]))
                added = sums.get(line.currency)
                if added is None:
                    added = sums[line.currency] = [0, 0, 0]
                added[0] += 1
                added[1] += SIGNS[line.type] * line.amount
                added[2] += line.interchange or 0
                if line.type in fees:
                    fees[line.type][line.currency] += line.amount
                yield line
            elif record == "T":
                self._add_trailer(trailers, row, number)
            else:
                raise _misplaced(record, row, number)
        found = {currency: Totals(*added) for currency, added in sums.items()}
        self._check_totals(found, trailers, number)
        _check_bookings(found, fees, number)
        # They are those of record T, but for an interchange of which T says nothing.
        self.totals = trailers if self._states_interchange else found
        self.digest = digest.hexdigest()

    def _read_header(self) -> Header:
        first = next(self._rows, None)
        if first is None:
            raise RefusedError(Code.NO_HEADER, "the file has no record H: it must be the first")
        number, row = first
        fields.refuse_card_numbers(row, number)
        if row[_RECORD] != "H":
            raise RefusedError(
                Code.NO_HEADER,
                f"record {fields.shown(row[_RECORD])}: the first record must be H",
                line=number,
                column="record",
            )
        if not row[_FILE_ID]:
            raise RefusedError(
                Code.BAD_HEADER, "record H must have a file_id", line=number, column="file_id"
            )
        return Header(
            fields.text_of_header("file_id", row[_FILE_ID], number),
            fields.network(row[_NETWORK], number),
            fields.settlement_date(row[_DATE], number),
            fields.text_of_header("cycle", row[_CYCLE], number) or None,
        )

    def _add_trailer(self, trailers: dict[str, Totals], row: Sequence[str], number: int) -> None:
        fields.refuse_card_numbers(row, number, is_total=True)
        currency = fields.currency_of_total(row[_CURRENCY], number)
        if currency in trailers:
            raise RefusedError(
                Code.CONTROL_TOTAL,
                f"there is a second record T in {currency}: one has the total of a currency",
                line=number,
                column="currency",
            )
        trailers[currency] = Totals(
            fields.count(row[_COUNT], number),
            fields.total(row[_AMOUNT], number),
            fields.interchange(row[_INTERCHANGE], number, is_total=True) or 0,
        )

    def _check_totals(
        self, found: dict[str, Totals], trailers: dict[str, Totals], last_line: int
    ) -> None:
        if not trailers:
            raise RefusedError(
                Code.NO_TRAILER,
                "the file has no record T: it must be the last, one for each currency",
                line=last_line,
            )
        for currency in sorted(found.keys() | trailers.keys()):
            added, total = found.get(currency, Totals(0, 0, 0)), trailers.get(currency)
            if total is None:
                raise RefusedError(
                    Code.NO_TRAILER,
                    f"there are {added.lines} lines in {currency} and no record T for them",
                    line=last_line,
                )
            if added.lines != total.lines:
                raise _differs(
                    Code.CONTROL_COUNT,
                    "count",
                    f"the file has {added.lines} lines in {currency}, record T says {total.lines}",
                    last_line,
                )
            if added.amount != total.amount:
                raise _differs(
                    Code.CONTROL_TOTAL,
                    "amount",
                    f"the lines in {currency} add up to {added.amount}, record T says"
                    f" {total.amount}",
                    last_line,
                )
            if added.interchange != total.interchange and self._states_interchange:
                raise _differs(
                    Code.CONTROL_TOTAL,
                    "interchange",
                    f"the interchange in {currency} adds up to"
                    f" {interchange_text(added.interchange)}, record T says"
                    f" {interchange_text(total.interchange)}",
                    last_line,
                )


def _check_bookings(
    totals: dict[str, Totals], fees: dict[str, Counter[str]], last_line: int
) -> None:
    """Refuse what could not be booked: it must be an amount of an entry."""
    for currency, total in totals.items():
        decimals = CURRENCIES[currency].decimals
        interchange = -(-abs(total.interchange) * 10**decimals // _SCALE)
        for column, amount in (
            ("interchange", interchange),
            *(("amount", sums[currency]) for sums in fees.values()),
        ):
            if amount > fields.MAX_AMOUNT:
                raise _differs(
                    Code.BAD_AMOUNT,
                    column,
                    f"the total in {currency} must be at most {fields.MAX_AMOUNT} minor units",
                    last_line,
                )


def canonical_rows(file: BinaryIO) -> Rows:
    """Yield the rows of a file of the canonical form after the row that names its columns.

    Raises: RefusedError.
    """
    rows = csv_rows.rows(file)
    first = next(rows, None)
    if first is None:
        raise RefusedError(Code.EMPTY_FILE, "the file is empty")
    names = first[1]
    _check_names(names, first[0])
    arranged = arrange([names.index(name) for name in COLUMNS])
    width = len(COLUMNS)
    for number, row in rows:
        if len(row) != width:
            raise RefusedError(
                Code.TRUNCATED, f"the row has {len(row)} of {width} columns", line=number
            )
        yield number, arranged(row)


def arrange(places: list[int]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return a function that returns the fields of a row in the order of `places`."""
    if places == list(range(len(places))):
        return lambda row: row
    return lambda row: [row[place] for place in places]


def interchange_text(millionths: int) -> str:
    """Return an interchange as a decimal in units of its currency, without zeros at the end."""
    whole, fraction = divmod(abs(millionths), _SCALE)
    text = f"{'-' if millionths < 0 else ''}{whole}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _check_names(names: Sequence[str], number: int) -> None:
    counts = {name: names.count(name) for name in names}
    problems = (
        [f"{name} is missing" for name in COLUMNS if name not in counts]
        + [f"{name} is there {count} times" for name, count in counts.items() if count > 1]
        + ["others are unknown" for name in counts if name not in PLACE][:1]
    )
    if problems:
        raise RefusedError(
            Code.BAD_HEADER,
            f"the first row must name the columns {', '.join(COLUMNS)}: {problems[0]}",
            line=number,
            column=next((name for name in COLUMNS if name not in counts), None),
        )


def _check_is_of(own: Sequence[str], row: Sequence[str], number: int) -> None:
    for name, place, code in _OF_HEADER:
        if row[place] and row[place] != own[place - _FILE_ID]:
            raise RefusedError(
                code,
                f"{fields.shown(row[place])}: must be as in record H, or empty",
                line=number,
                column=name,
            )


def _misplaced(record: str, row: Sequence[str], number: int) -> RefusedError:
    fields.refuse_card_numbers(row, number)
    if record == "H":
        return RefusedError(
            Code.BAD_HEADER, "there is a second record H", line=number, column="record"
        )
    if record == "D":
        return RefusedError(
            Code.NO_TRAILER,
            "record D after a record T: the totals must be the last records",
            line=number,
            column="record",
        )
    return RefusedError(
        Code.BAD_TYPE, f"{fields.shown(record)}: must be H, D or T", line=number, column="record"
    )


def _differs(code: Code, column: str, message: str, line: int) -> RefusedError:
    return RefusedError(code, message, line=line, column=column)


def _kept_encoder() -> Callable[[Sequence[object]], str]:
    """Return what `_ENCODER.encode` is, without making an encoder for each line of a file."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    quoted = json.encoder.encode_basestring
    encode = make(None, _ENCODER.default, quoted, None, ":", ",", False, False, True)  # noqa: FBT003 - in C
    return lambda values: "".join(encode(values, 0))


_ENCODE: Final = _kept_encoder()


def _canonical(values: Sequence[object]) -> bytes:
    return _ENCODE(values).encode() + b"\n"
