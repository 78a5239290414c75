"""Identifiers: UUIDs as 16 bytes, as PostgreSQL stores them."""

from typing import Final

from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.string import BytesBinaryDumper
from typing_extensions import override

_LENGTH: Final = 16


class Id(bytes):
    """A UUID: 16 bytes, which sort as PostgreSQL sorts them.

    Not `uuid.UUID`: the ledger hashes, compares and writes ids far more often than it prints them,
    and `bytes` does that in C. The constructor does not check the length; `parse` checks input.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Id":
        """Return the id written as `text`: 32 hexadecimal digits, with or without dashes.

        Raises: ValueError for anything else.
        """
        digits = text.replace("-", "")
        key = cls.fromhex(digits)
        if len(digits) != 2 * _LENGTH or len(key) != _LENGTH:  # `fromhex` skips spaces.
            raise ValueError("an id has 32 hexadecimal digits")
        return key

    @override
    def __str__(self) -> str:
        """Return the usual form, with dashes."""
        digits = self.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    @override
    def __repr__(self) -> str:
        return f"Id.parse('{self}')"


# --- psycopg adapters ---------------------------------------------------------------------------


COPIED_AS: Final = "bytea"
"""The type of an id column in a binary COPY.

The binary form of a `uuid` is its 16 bytes, so `bytea` fits, and psycopg writes it in C instead of
calling a Python dumper for every value.
"""


_OID: Final = postgres.types["uuid"].oid


class _TextDumper(Dumper):
    oid = _OID

    @override
    def dump(self, obj: Id) -> bytes:
        return str(obj).encode()


class _BinaryDumper(Dumper):
    oid = _OID
    format = Format.BINARY
    dump = bytes  # type: ignore[assignment] # Saves a call per value.


class _TextLoader(Loader):
    @override
    def load(self, data: Buffer) -> Id:
        return Id.fromhex(bytes(data).replace(b"-", b"").decode())


class _BinaryLoader(Loader):
    format = Format.BINARY
    load = Id  # type: ignore[assignment]


def register(adapters: AdaptersMap) -> None:
    """Make connections with `adapters` read every `uuid` as an `Id` and write ids as `uuid`."""
    for dumper in (_TextDumper, _BinaryDumper):  # The last one is preferred.
        adapters.register_dumper(Id, dumper)
    for loader in (_TextLoader, _BinaryLoader):
        adapters.register_loader(_OID, loader)
    # Registered again: the last dumper of a type wins, and psycopg's own is a Python wrapper.
    adapters.register_dumper(bytes, BytesBinaryDumper)
