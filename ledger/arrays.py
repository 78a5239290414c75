"""Columns of a batch as PostgreSQL arrays, in the binary form of the wire.

`unnest` of such arrays is how one statement looks up, or changes, five hundred rows. psycopg would
send them as text, value by value, which costs several times as much.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from struct import Struct
from typing import Any, Final
from uuid import UUID

from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format
from typing_extensions import override

_HEADER: Final = Struct(
    "!iiIii"
)  # Dimensions, whether nulls, type of a value, length, first index.
_NOTHING: Final = Struct("!iiI")
_NULL: Final = b"\xff\xff\xff\xff"
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


def uuids(values: Collection[UUID | None]) -> Uuids:
    """Return `values` as a `uuid[]`."""
    return Uuids(_packed(values, _uuid, 2950))


def texts(values: Collection[str | None]) -> Texts:
    """Return `values` as a `text[]`; none may hold U+0000, which no text of PostgreSQL can."""
    return Texts(_packed(values, _text, 25))


def integers(values: Collection[int | None]) -> Integers:
    """Return `values` as an `int4[]`."""
    return Integers(_packed(values, _int4, 23))


def bigints(values: Collection[int | None]) -> Bigints:
    """Return `values` as an `int8[]`."""
    return Bigints(_packed(values, _int8, 20))


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
    if not values:
        return _NOTHING.pack(0, 0, oid)
    body = b"".join([_NULL if value is None else pack(value) for value in values])
    return _HEADER.pack(1, 1, oid, len(values), 1) + body


def _uuid(value: UUID) -> bytes:
    return b"\0\0\0\x10" + value.bytes


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
