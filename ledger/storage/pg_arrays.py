"""Columns of a batch as PostgreSQL arrays, in the binary form of the wire.

With `unnest` of such arrays a single statement looks up, or changes, five hundred rows. psycopg
would send them as text, value by value, which takes several times as long.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format
from typing_extensions import override

from cardledger.ledger.storage import pg_array_encoding
from cardledger.schema.ids import Id


class Array(bytes):
    """An encoded array; its class is its type."""

    __slots__ = ()


class Uuids(Array):
    """A `uuid[]`."""


class Texts(Array):
    """A `text[]`."""


class Integers(Array):
    """An `int4[]`."""


class Bigints(Array):
    """An `int8[]`."""


class Booleans(Array):
    """A `bool[]`."""


class Times(Array):
    """A `timestamptz[]`."""


class Dates(Array):
    """A `date[]`."""


class ByteStrings(Array):
    """A `bytea[]`."""


class Numerics(Array):
    """A `numeric[]`, as text: few rows have one."""


def uuids(values: Collection[Id | None]) -> Uuids:
    """Return `values` as a `uuid[]`."""
    return Uuids(pg_array_encoding.uuids(values))


def texts(values: Collection[str | None]) -> Texts:
    """Return `values` as a `text[]`; none may contain U+0000, which PostgreSQL does not allow."""
    return Texts(pg_array_encoding.texts(values))


def integers(values: Collection[int | None]) -> Integers:
    """Return `values` as an `int4[]`."""
    return Integers(pg_array_encoding.integers(values))


def bigints(values: Collection[int | None]) -> Bigints:
    """Return `values` as an `int8[]`."""
    return Bigints(pg_array_encoding.bigints(values))


def booleans(values: Collection[bool | None]) -> Booleans:
    """Return `values` as a `bool[]`."""
    return Booleans(pg_array_encoding.booleans(values))


def times(values: Collection[datetime | None]) -> Times:
    """Return `values`, which have a zone, as a `timestamptz[]`."""
    return Times(pg_array_encoding.times(values))


def dates(values: Collection[date | None]) -> Dates:
    """Return `values` as a `date[]`."""
    return Dates(pg_array_encoding.dates(values))


def byte_strings(values: Collection[bytes | None]) -> ByteStrings:
    """Return `values` as a `bytea[]`."""
    return ByteStrings(pg_array_encoding.byte_strings(values))


def numerics(values: Collection[Decimal | None]) -> Numerics:
    """Return `values`, which are finite, as a `numeric[]`."""
    items = ",".join("NULL" if value is None else f"{value:f}" for value in values)
    return Numerics(f"{{{items}}}".encode())


OF_TYPE: Final[dict[str, Callable[[Collection[Any]], Array]]] = {
    "uuid": uuids,
    "text": texts,
    "int4": integers,
    "int8": bigints,
    "bool": booleans,
    "timestamptz": times,
    "date": dates,
    "bytea": byte_strings,
    "int2": integers,  # PostgreSQL checks the range when it assigns them.
    "json": texts,
    "numeric": numerics,
}
"""The functions above by the type of the values."""


def columns(rows: Iterable[tuple[Any, ...]], *types: str) -> list[Array]:
    """Return `rows` as one array of each of `types`, also when there are none."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return [OF_TYPE[kind](column) for kind, column in zip(types, columns, strict=True)]


class _Dumper(Dumper):
    format = Format.BINARY

    @override
    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


class _TextDumper(_Dumper):
    format = Format.TEXT


def _register(array: type[Array], oid: int) -> None:
    adapters.register_dumper(array, type(f"{array.__name__}Dumper", (_Dumper,), {"oid": oid}))


_register(Uuids, 2951)
_register(Texts, 1009)
_register(Integers, 1007)
_register(Bigints, 1016)
_register(Booleans, 1000)
_register(Times, 1185)
_register(Dates, 1182)
_register(ByteStrings, 1001)
adapters.register_dumper(Numerics, type("NumericsDumper", (_TextDumper,), {"oid": 1231}))
