"""Identifiers: UUIDv7, made by the application, in order of creation within a process."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from os import urandom
from typing import Final

from uuid_utils import uuid7

from cardledger.schema.ids import Id

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)


def new_id() -> Id:
    """Return a new identifier that increases with time and does not have a reserved ending."""
    while _is_reserved(key := uuid7().bytes):
        pass
    return Id(key)


def derived_id(name: str, *, at: datetime) -> Id:
    """Return the identifier of `name` at `at`: the same in every process, else like `new_id`."""
    digest = blake2b(name.encode(), digest_size=16).digest()
    return _uuid7(_milliseconds(at) + digest[6:])


def numbered_ids(count: int, *, at: datetime) -> Sequence[Id]:
    """Return `count` identifiers of `at`, in ascending order and each for `beside`.

    Shape: at most 4,096.
    """
    time = _milliseconds(at)
    return [_uuid7(time + number.to_bytes(2) + bytes(8)) for number in range(count)]


def beside(key: Id, *names: Id) -> Id:
    """Return the identifier of `names` with the time and the order of `key`, as any process does.

    `key` may itself be such an identifier: its name does not count.
    """
    digest = blake2b(b"".join(names), digest_size=8).digest()
    return _uuid7(key[:8] + digest)


def ids_in_order(at: datetime, keys: Sequence[Id]) -> list[Id]:
    """Return an identifier of `at` for each of `keys`: ascending, with the last bytes of its key.

    Those of a later time are higher, if it is later by a quarter of a microsecond for each key.
    """
    first = _moment(at)
    return [
        _uuid7((first + place >> 12).to_bytes(6) + (first + place & 0xFFF).to_bytes(2) + key[8:])
        for place, key in enumerate(keys)
    ]


def ids_from(at: datetime) -> Callable[[], Id]:
    """Return a function that makes identifiers of `at`, in ascending order; 4 million at most.

    Those of a later time are higher: they are in the order of a clock that several processes go by.
    """
    moment = _moment(at)
    start = (moment >> 12 << 16 | 0x7000 | moment & 0xFFF).to_bytes(8)
    # A batch makes thousands: its random bits are drawn once, and tell it from other batches.
    tail = urandom(5)
    while _is_reserved(start + bytes(3) + tail):
        tail = urandom(5)
    places = count(1 << 23)  # The variant, then the place.

    def next_id() -> Id:
        return Id(start + next(places).to_bytes(3) + tail)

    return next_id


def first_id_at(at: datetime) -> Id:
    """Return the first of all identifiers of `at`; those before 1970 have none."""
    return Id(_milliseconds(max(at, _EPOCH)) + bytes(10))


def time_of_id(key: Id) -> datetime:
    """Return when `key`, a UUIDv7, was made, in milliseconds; the latest time if it is no time."""
    try:
        return _EPOCH + int.from_bytes(key[:6]) * _MILLISECOND
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _moment(at: datetime) -> int:
    """Return the milliseconds to `at`, and in twelve bits more their fraction.

    These are behind the milliseconds in a UUIDv7, too (RFC 9562, method 3).
    """
    return ((at - _EPOCH) // _MICROSECOND << 12) // 1000


def _milliseconds(at: datetime) -> bytes:
    return ((at - _EPOCH) // _MILLISECOND).to_bytes(6)


def _uuid7(raw: bytes) -> Id:
    """Return `raw` with the version and the variant of a UUIDv7, and without a reserved ending."""
    digits = bytearray(raw)
    digits[6] = 0x70 | digits[6] & 0x0F  # The version.
    digits[8] = 0x80 | digits[8] & 0x3F  # The variant.
    if _is_reserved(digits):
        digits[14] |= 0x08
    return Id(digits)


def _is_reserved(key: bytes | bytearray) -> bool:
    """Return whether the last three digits are 001 to 006, which only chosen ids may have."""
    return not key[14] & 0x0F and 1 <= key[15] <= 6  # noqa: PLR2004 - the above
