"""Identifiers: UUIDs as the 16 bytes that PostgreSQL keeps of them."""

from typing import Final

from psycopg import postgres
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.types.string import BytesBinaryDumper
from typing_extensions import override

_LENGTH: Final = 16


class Id(bytes):
    """A UUID: 16 bytes, in whose order PostgreSQL sorts them.

    No `uuid.UUID`, which is a number: a ledger hashes, compares and writes ids far more often than
    it shows them, and there each of that is a call of a function in Python. Made of sixteen bytes,
    which nobody counts; `parse` reads what comes from outside.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Id":
        """Return the id that `text` shows: 32 hexadecimal digits, with dashes or without.

        Raises: ValueError for anything else.
        """
        digits = text.replace("-", "")
        key = cls.fromhex(digits)
        if len(digits) != 2 * _LENGTH or len(key) != _LENGTH:  # There is space between digits.
            raise ValueError("an id has 32 hexadecimal digits")
        return key

    @override
    def __str__(self) -> str:
        """Return the form that everybody shows, with dashes."""
        digits = self.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    @override
    def __repr__(self) -> str:
        return f"Id.parse('{self}')"


# --- on their way from and to PostgreSQL ---------------------------------------------------------


COPIED_AS: Final = "bytea"
"""The type that psycopg is told of ids for a binary COPY.

There a `uuid` is sixteen bytes, as this is, and nobody looks at the type; only that psycopg writes
bytes in C, and a type of ours by a call for every value.
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
    dump = bytes  # type: ignore[assignment] # Without a function around it.


class _TextLoader(Loader):
    @override
    def load(self, data: Buffer) -> Id:
        return Id.fromhex(bytes(data).replace(b"-", b"").decode())


class _BinaryLoader(Loader):
    format = Format.BINARY
    load = Id  # type: ignore[assignment]


def register(adapters: AdaptersMap) -> None:
    """Have connections with `adapters` read every `uuid` as an `Id`, and write ids as such."""
    for dumper in (_TextDumper, _BinaryDumper):  # The last is preferred.
        adapters.register_dumper(Id, dumper)
    for loader in (_TextLoader, _BinaryLoader):
        adapters.register_loader(_OID, loader)
    # Again: who asks for a dumper by type gets the last one, which is that of a wrapper, in Python.
    adapters.register_dumper(bytes, BytesBinaryDumper)
