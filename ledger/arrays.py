"""Columns of a batch as PostgreSQL arrays, in the binary form of the wire.

`unnest` of such arrays is how one statement looks up, or changes, five hundred rows. psycopg would
send them as text, value by value, which costs several times as much.
"""

import struct
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format
from typing_extensions import override

from schema.ids import Id

_HEADER: Final = Struct(
    "!iiIii"
)  # Dimensions, whether nulls, type of a value, length, first index.
_NOTHING: Final = Struct("!iiI")
_NULL: Final = b"\xff\xff\xff\xff"
_UUID_LENGTH: Final = b"\0\0\0\x10"
_LENGTH: Final = Struct("!i").pack
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Array(bytes):
    """An array as it is sent; its class says of which type."""

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


def uuids(values: Collection[Id | None]) -> Uuids:
    """Return `values` as a `uuid[]`."""
    try:
        # All at once: most columns of the hot path have a value in every row.
        body = _UUID_LENGTH.join([b"", *values])  # type: ignore[list-item]
    except TypeError:  # There is a None among them.
        return Uuids(_packed(values, _uuid, 2950))
    return Uuids(_array(body, len(values), 2950))


def texts(values: Collection[str | None]) -> Texts:
    """Return `values` as a `text[]`; none may hold U+0000, which no text of PostgreSQL can."""
    return Texts(_packed(values, _text, 25))


def integers(values: Collection[int | None]) -> Integers:
    """Return `values` as an `int4[]`."""
    return Integers(_numbers(values, 4, "ii", _int4, 23))


def bigints(values: Collection[int | None]) -> Bigints:
    """Return `values` as an `int8[]`."""
    return Bigints(_numbers(values, 8, "iq", _int8, 20))


def booleans(values: Collection[bool | None]) -> Booleans:
    """Return `values` as a `bool[]`."""
    return Booleans(_packed(values, _bool, 16))


def times(values: Collection[datetime | None]) -> Times:
    """Return `values`, which have a zone, as a `timestamptz[]`."""
    return Times(_packed(values, _time, 1184))


OF_TYPE: Final[dict[str, Callable[[Collection[Any]], Array]]] = {
    "uuid": uuids,
    "text": texts,
    "int4": integers,
    "int8": bigints,
    "bool": booleans,
    "timestamptz": times,
}
"""What makes an array, by the type of its values."""


def columns(rows: Iterable[tuple[Any, ...]], *types: str) -> list[Array]:
    """Return `rows` as one array of each of `types`, also when there are none."""
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    return [OF_TYPE[kind](column) for kind, column in zip(types, columns, strict=True)]


def _packed(values: Collection[Any], pack: Callable[[Any], bytes], oid: int) -> bytes:
    body = b"".join([_NULL if value is None else pack(value) for value in values])
    return _array(body, len(values), oid)


def _numbers(
    values: Collection[int | None], size: int, shape: str, pack: Callable[[Any], bytes], oid: int
) -> bytes:
    """Return integers of `size` bytes as an array: all at once, unless there is a None."""
    lengths_and_values = [size] * (2 * len(values))
    lengths_and_values[1::2] = values  # type: ignore[assignment] # A None is what is tried.
    try:
        body = struct.pack(f"!{shape * len(values)}", *lengths_and_values)
    except struct.error:
        return _packed(values, pack, oid)
    return _array(body, len(values), oid)


def _array(body: bytes, count: int, oid: int) -> bytes:
    if not count:
        return _NOTHING.pack(0, 0, oid)
    return _HEADER.pack(1, 1, oid, count, 1) + body


def _uuid(value: Id) -> bytes:
    return _UUID_LENGTH + value


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


_pack_int4: Final = Struct("!ii").pack
_pack_int8: Final = Struct("!iq").pack


def _int4(value: int) -> bytes:
    return _pack_int4(4, value)


def _int8(value: int) -> bytes:
    return _pack_int8(8, value)


def _bool(value: bool) -> bytes:  # noqa: FBT001 - a value
    return b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0"


@lru_cache(maxsize=1_000)  # What a batch records, it records at one time.
def _time(value: datetime) -> bytes:
    since = value - _EPOCH
    return _pack_int8(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


class _Dumper(Dumper):
    format = Format.BINARY

    @override
    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


def _register(array: type[Array], oid: int) -> None:
    adapters.register_dumper(array, type(f"{array.__name__}Dumper", (_Dumper,), {"oid": oid}))


_register(Uuids, 2951)
_register(Texts, 1009)
_register(Integers, 1007)
_register(Bigints, 1016)
_register(Booleans, 1000)
_register(Times, 1185)
