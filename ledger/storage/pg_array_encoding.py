"""Encode columns of values as PostgreSQL arrays, for `pg_arrays`.

A module of its own so that it can be compiled: some of it runs for every value of a batch.
"""

import struct
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from cardledger.schema.ids import Id

# Dimensions, whether nulls, type of a value, length, first index.
_HEADER: Final = Struct("!iiIii")
_NOTHING: Final = Struct("!iiI")
_NULL: Final = b"\xff\xff\xff\xff"
_UUID_LENGTH: Final = b"\0\0\0\x10"
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(2000, 1, 1).toordinal()


def uuids(values: Collection[Id | None]) -> bytes:
    """Return `values` as a `uuid[]`."""
    try:
        # All at once: most columns of the hot path have a value in every row.
        body = _UUID_LENGTH.join([b"", *values])  # type: ignore[list-item]
    except TypeError:  # There is a None in `values`.
        return _packed(values, _uuid, 2950)
    return _array(body, len(values), 2950)


def texts(values: Collection[str | None]) -> bytes:
    """Return `values` as a `text[]`."""
    return _packed(values, _text, 25)


def integers(values: Collection[int | None]) -> bytes:
    """Return `values` as an `int4[]`."""
    return _numbers(values, 4, "ii", _int4, 23)


def bigints(values: Collection[int | None]) -> bytes:
    """Return `values` as an `int8[]`."""
    return _numbers(values, 8, "iq", _int8, 20)


def booleans(values: Collection[bool | None]) -> bytes:
    """Return `values` as a `bool[]`."""
    return _packed(values, _bool, 16)


def times(values: Collection[datetime | None]) -> bytes:
    """Return `values` as a `timestamptz[]`."""
    return _packed(values, _time, 1184)


def dates(values: Collection[date | None]) -> bytes:
    """Return `values` as a `date[]`."""
    return _packed(values, _date, 1082)


def byte_strings(values: Collection[bytes | None]) -> bytes:
    """Return `values` as a `bytea[]`."""
    return _packed(values, _bytes, 17)


def _packed(values: Collection[Any], pack: Callable[[Any], bytes], oid: int) -> bytes:
    body = b"".join([_NULL if value is None else pack(value) for value in values])
    return _array(body, len(values), oid)


def _numbers(
    values: Collection[int | None], size: int, shape: str, pack: Callable[[Any], bytes], oid: int
) -> bytes:
    """Return integers of `size` bytes as an array: all at once, unless there is a None."""
    lengths_and_values = [size] * (2 * len(values))
    lengths_and_values[1::2] = values  # type: ignore[assignment] # Of a None `pack` raises an error.
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
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


_pack_int4: Final = Struct("!ii").pack
_pack_int8: Final = Struct("!iq").pack


def _int4(value: int) -> bytes:
    return _pack_int4(4, value)


def _int8(value: int) -> bytes:
    return _pack_int8(8, value)


def _bool(value: bool) -> bytes:  # noqa: FBT001 - a value
    return b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0"


@lru_cache(maxsize=1_000)  # A batch records everything at the same time.
def _time(value: datetime) -> bytes:
    since = value - _EPOCH
    return _pack_int8(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _date(value: date) -> bytes:
    return _pack_int4(4, value.toordinal() - _FIRST_DAY)
