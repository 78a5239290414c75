"""The URL of a PostgreSQL database, in the forms that clients expect."""

from typing import Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from cardledger.schema import location


class DatabaseUrl(str):
    """A `postgresql://` URL as psycopg, SQLAlchemy and psql take it.

    It names the PostgreSQL schema of the tables (`location`), so that statements need not.
    """

    __slots__ = ()

    def __new__(cls, url: str) -> Self:
        """Take SQLAlchemy's and the old scheme too."""
        _, separator, rest = url.partition("://")
        return super().__new__(cls, location.with_default(f"postgresql{separator}{rest}"))

    def with_user(
        self, user: str, password: str | None = None, database: str | None = None
    ) -> "DatabaseUrl":
        """Return the same server for another role, and for another database when one is named."""
        parts = urlsplit(self)
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        path = parts.path if database is None else f"/{quote(database, safe='')}"
        netloc = f"{login}@{parts.netloc.rpartition('@')[2]}"
        return DatabaseUrl(urlunsplit(parts._replace(netloc=netloc, path=path)))

    def with_database(self, database: str) -> "DatabaseUrl":
        """Return the same server and role for another database."""
        path = f"/{quote(database, safe='')}"
        return DatabaseUrl(urlunsplit(urlsplit(self)._replace(path=path)))

    @property
    def database(self) -> str:
        """The database's name, empty when the URL leaves it to the server."""
        return unquote(urlsplit(self).path.removeprefix("/"))

    def with_schema(self, name: str) -> "DatabaseUrl":
        """Return the same database with the tables in the PostgreSQL schema `name`."""
        return DatabaseUrl(location.with_name(self, name))

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of the tables."""
        return location.name_in(self)

    @property
    def sqlalchemy(self) -> str:
        """The form that names the driver, for SQLAlchemy 2.0, whose default is another one."""
        return f"postgresql+psycopg{self.removeprefix('postgresql')}"

    @property
    def redacted(self) -> str:
        """The URL without its password and options, for people and logs."""
        parts = urlsplit(location.without_options(self))
        login, at, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{host}"))
