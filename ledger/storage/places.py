"""Places in lists in the order of a time: what a cursor has of the last row of a page."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cardledger.schema.ids import Id

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TIME_BYTES: Final = 8
_ID_BYTES: Final = 16
_NUMBER_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A row by its time, its id and, where one id has several rows, its numbers among them."""

    at: datetime
    id: Id
    numbers: tuple[int, ...] = ()

    def packed(self) -> bytes:
        """Return it as bytes: 8 of the microsecond, 16 of the id, 4 of each number."""
        microsecond = (self.at - _EPOCH) // _MICROSECOND
        numbers = b"".join(number.to_bytes(_NUMBER_BYTES) for number in self.numbers)
        return microsecond.to_bytes(_TIME_BYTES) + self.id + numbers


def size_of(numbers: int) -> int:
    """Return the bytes of a place with so many numbers."""
    return _TIME_BYTES + _ID_BYTES + numbers * _NUMBER_BYTES


def unpacked(packed: bytes) -> Place:
    """Return the place that was packed."""
    rest = packed[_TIME_BYTES + _ID_BYTES :]
    return Place(
        at=_EPOCH + int.from_bytes(packed[:_TIME_BYTES]) * _MICROSECOND,
        id=Id(packed[_TIME_BYTES : _TIME_BYTES + _ID_BYTES]),
        numbers=tuple(
            int.from_bytes(rest[start : start + _NUMBER_BYTES])
            for start in range(0, len(rest), _NUMBER_BYTES)
        ),
    )
