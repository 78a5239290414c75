"""Sessions in which a person acts on the books, by functions of the schema for finance.

Source: docs/decisions/0064-people-are-roles.md
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from cardledger.config.errors import CommandError
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.schema import connections, finance, ids

# What is wrong with an argument, and what has happened meanwhile, in the words of the database.
_SENTENCES: Final = (errors.InvalidParameterValue, errors.ObjectNotInPrerequisiteState)
_NO_BOOKS: Final = (errors.UndefinedFunction, errors.UndefinedTable, errors.InvalidSchemaName)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection of a person, each statement a database transaction of its own."""

    connection: psycopg.Connection[Any]
    schema: str  # Of views and functions.

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of `statement`, which names views and functions as `{finance}.…`."""
        query = sql.SQL(statement).format(finance=sql.Identifier(self.schema))
        return self.connection.execute(query, values).fetchall()

    def named_rows(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Do as `rows` does, with parameters by name."""
        query = sql.SQL(statement).format(finance=sql.Identifier(self.schema))
        return self.connection.execute(query, values).fetchall()


@contextmanager
def as_person(
    url: DatabaseUrl, *, may: str, reply_limit_s: float | None = connections.REPLY_LIMIT_S
) -> Iterator[Session]:
    """Yield a session of the login in `url`; `may` is the right that it needs, for messages.

    Without `reply_limit_s` its statements may take as long as they need.

    Raises: CommandError when PostgreSQL refuses what is done with it.
    """
    try:
        with connections.connect(url, reply_limit_s=reply_limit_s, autocommit=True) as connection:
            ids.register(connection.adapters)
            row = connection.execute(f"SELECT {finance.find(url.schema)}".encode()).fetchone()
            assert row is not None
            yield Session(connection, row[0])
    except _SENTENCES as error:
        raise CommandError(f"{error.diag.message_primary}") from None
    except errors.InsufficientPrivilege as error:
        raise CommandError(
            f"role {url.role} may not: {error.diag.message_primary}; set DATABASE_URL to the login"
            f" of a person of `cardledger person add NAME --may {may}`"
        ) from None
    except _NO_BOOKS as error:
        raise CommandError(f"{error.diag.message_primary}: run `cardledger migrate`") from None
    except psycopg.Error as error:
        # The details of a message can quote rows.
        message = error.diag.message_primary or str(error).strip()
        raise CommandError(f"PostgreSQL at {url.redacted} failed: {message}") from None
