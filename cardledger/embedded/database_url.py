"""The URL of a PostgreSQL database, in the forms that clients expect."""

from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote, urlencode

from cardledger.schema import location

_SECRETS: Final = ("password=", "sslpassword=")


class _Parts(NamedTuple):
    """The components of a URL, still percent-encoded.

    Not of `urlsplit`, which expects one host where libpq takes several.
    """

    login: str  # "user:password", empty when PostgreSQL chooses.
    hosts: str  # "host:port,host:port"
    database: str
    query: str


class DatabaseUrl(str):
    """A `postgresql://` URL as libpq takes it: psycopg and psql. It may name several hosts.

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
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        url = _joined(_parts(self)._replace(login=login))
        return url if database is None else url.with_database(database)

    def with_database(self, database: str) -> "DatabaseUrl":
        """Return the same server and role for another database."""
        return _joined(_parts(self)._replace(database=quote(database, safe="")))

    @property
    def role(self) -> str:
        """The role, empty when the URL leaves it to libpq."""
        return unquote(_parts(self).login.partition(":")[0])

    @property
    def database(self) -> str:
        """The database's name, empty when the URL leaves it to the server."""
        return unquote(_parts(self).database)

    def with_schema(self, name: str) -> "DatabaseUrl":
        """Return the same database with the tables in the PostgreSQL schema `name`."""
        return DatabaseUrl(location.with_name(self, name))

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of the tables."""
        return location.name_in(self)

    @property
    def sqlalchemy(self) -> str:
        """The form for SQLAlchemy 2.0, which names the driver, and several hosts as parameters."""
        parts = _parts(self)
        if "," in parts.hosts:
            named = [_host_and_port(host) for host in parts.hosts.split(",")]
            hosts, ports = (",".join(values) for values in zip(*named, strict=True))
            where = urlencode({"host": hosts, "port": ports}, safe=",:")
            parts = parts._replace(hosts="", query="&".join(filter(None, [where, parts.query])))
        return f"postgresql+psycopg{_joined(parts).removeprefix('postgresql')}"

    @property
    def redacted(self) -> str:
        """The URL without its passwords and options, for people and logs."""
        parts = _parts(location.without_options(self))
        shown = [part for part in parts.query.split("&") if not part.startswith(_SECRETS)]
        return _text(parts._replace(login=parts.login.partition(":")[0], query="&".join(shown)))


def _parts(url: str) -> _Parts:
    base, _, query = url.partition("://")[2].partition("?")
    place, _, database = base.partition("/")
    login, _, hosts = place.rpartition("@")
    return _Parts(login, hosts, database, query)


def _joined(parts: _Parts) -> DatabaseUrl:
    return DatabaseUrl(_text(parts))


def _text(parts: _Parts) -> str:
    login = f"{parts.login}@" if parts.login else ""
    path = f"/{parts.database}" if parts.database else ""
    query = f"?{parts.query}" if parts.query else ""
    return f"postgresql://{login}{parts.hosts}{path}{query}"


def _host_and_port(host: str) -> tuple[str, str]:
    """Return the two parts of `host`, which has brackets around an IPv6 address."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = host, ""
    return name.strip("[]"), port or "5432"
