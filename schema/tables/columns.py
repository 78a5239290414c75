"""What all tables share: names of constraints, and columns of the usual types."""

from typing import Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, Text, Uuid, text
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


def key(name: str, comment: str, *, nullable: bool = False) -> Column[object]:
    """Return a column of ids."""
    return Column(name, Uuid, nullable=nullable, comment=comment)


def amount(name: str, comment: str) -> Column[int]:
    """Return a column of totals in minor units, 0 at first."""
    return Column(name, BigInteger, nullable=False, server_default=text("0"), comment=comment)


def count(name: str, comment: str) -> Column[int]:
    """Return a column of numbers, 0 at first."""
    return Column(name, Integer, nullable=False, server_default=text("0"), comment=comment)


def text_column(name: str, comment: str, *, nullable: bool = False) -> Column[str]:
    """Return a column of text."""
    return Column(name, Text, nullable=nullable, comment=comment)


def timestamp(name: str, comment: str, *, nullable: bool = False) -> Column[object]:
    """Return a column of times with their zone."""
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable, comment=comment)
