"""Parquet: each amount as int64 of minor units, and beside it as decimal128(38, 8) of major units.

Sums, which can have more than 64 bits, are decimal128(38, 0) of minor units. The head is JSON in
the metadata of the schema, under the key `cardledger`.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import IO, Any, Final

from cardledger.commands.reports import extra
from cardledger.commands.reports.document import Document, Row, plain
from cardledger.config.errors import CommandError
from cardledger.ledger.queries.report_definitions import Column, Kind

SUFFIX: Final = "_decimal"
"""Follows the name of a column in minor units, of that in major units."""

_PRECISION: Final = 38
_SCALE: Final = 8
_ROWS_PER_GROUP: Final = 30_000
_METADATA: Final = b"cardledger"


def write(out: IO[bytes], document: Document) -> None:
    """Write `document`, a group of rows at a time.

    Raises: CommandError when pyarrow is not installed, or a figure has too many digits.
    """
    arrow, parquet = packages()
    fields = _fields(arrow, document.columns)
    head = json.dumps(document.head.wire()).encode()
    schema = arrow.schema([(name, kind) for name, kind, _ in fields], metadata={_METADATA: head})
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        gathered: list[Any] = []
        for rows in document.batches:
            gathered.append(_batch(arrow, schema, fields, document, rows))
            if sum(len(batch) for batch in gathered) >= _ROWS_PER_GROUP:
                writer.write_table(arrow.Table.from_batches(gathered, schema))
                gathered = []
        if gathered:
            writer.write_table(arrow.Table.from_batches(gathered, schema))


def packages() -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet.

    Raises: CommandError when it is not installed.
    """
    names = ("pyarrow", "pyarrow.parquet")
    arrow, parquet = (extra.package(name, needed_for="parquet") for name in names)
    return arrow, parquet


_Values = Callable[[Document, Sequence[Row]], list[Any]]


def _fields(arrow: Any, columns: Sequence[Column]) -> list[tuple[str, Any, _Values]]:  # noqa: ANN401 - pyarrow may be absent
    """Return the name, the type and the values of each column of the file."""
    decimal = arrow.decimal128(_PRECISION, _SCALE)
    types = {
        Kind.TEXT: arrow.string(),
        Kind.ID: arrow.string(),
        Kind.DATE: arrow.date32(),
        Kind.TIME: arrow.timestamp("us", tz="UTC"),
        Kind.COUNT: arrow.int64(),
        Kind.MINOR: arrow.int64(),
        Kind.TOTAL: arrow.decimal128(_PRECISION, 0),
        Kind.FRACTION: decimal,
    }
    fields: list[tuple[str, Any, _Values]] = []
    for place, column in enumerate(columns):
        if column.kind is Kind.MAJOR:
            continue  # It is what the next lines make of the column that it repeats.
        values = _whole(place) if column.kind is Kind.TOTAL else _values(place)
        fields.append((column.name, types[column.kind], values))
        if column.kind in {Kind.MINOR, Kind.TOTAL, Kind.FRACTION}:
            fields.append((column.name + SUFFIX, decimal, _decimals(place)))
    return fields


def _values(place: int) -> _Values:
    return lambda _, rows: [row[place] for row in rows]


def _whole(place: int) -> _Values:
    return lambda _, rows: [None if row[place] is None else Decimal(row[place]) for row in rows]


def _decimals(place: int) -> _Values:
    def values(document: Document, rows: Sequence[Row]) -> list[Any]:
        decimals_of = document.decimals_of()
        return [_major(row[place], decimals_of(row)) for row in rows]

    return values


def _major(minor: int | Decimal | None, decimals: int | None) -> Decimal | None:
    if minor is None or decimals is None:
        return None
    if isinstance(minor, Decimal):
        return minor.scaleb(-decimals)
    return Decimal(plain(minor, decimals))


def _batch(
    arrow: Any,  # noqa: ANN401 - pyarrow may be absent
    schema: Any,  # noqa: ANN401
    fields: Sequence[tuple[str, Any, _Values]],
    document: Document,
    rows: Sequence[Row],
) -> Any:  # noqa: ANN401
    try:
        arrays = [arrow.array(values(document, rows), type=kind) for _, kind, values in fields]
    except (OverflowError, arrow.ArrowInvalid) as error:
        raise CommandError(f"a figure has no place in Parquet: {error}") from None
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)
