"""The hosts of a PostgreSQL URL, and which of them accept writes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psycopg

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema import connections

_DEFAULT_PORT: Final = "5432"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What one host of a URL answered."""

    name: str  # "host:port"
    is_primary: bool = False
    problem: str | None = None  # Why it does not answer.


def count(url: DatabaseUrl) -> int:
    """Return how many hosts `url` names.

    Raises: psycopg.ProgrammingError when `url` is not valid.
    """
    return len(_named(url))


def wants_primary(url: DatabaseUrl) -> bool:
    """Return whether connections to `url` choose the host that accepts writes."""
    wanted = connections.parameters(url).get("target_session_attrs")
    return wanted in {"read-write", "primary"}


def examine(url: DatabaseUrl) -> Iterator[Host]:
    """Ask every host of `url`, in their order; each has the time limits of any connection.

    Raises: psycopg.ProgrammingError when `url` is not valid.
    """
    for host, port in _named(url):
        yield _ask(url, host, port or _DEFAULT_PORT)


def _named(url: DatabaseUrl) -> list[tuple[str, str]]:
    """Return hosts and ports; as in libpq, a single port is that of every host."""
    named = connections.parameters(url)
    hosts = str(named.get("host", "")).split(",")
    ports = str(named.get("port", "")).split(",")
    return list(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False))


def _ask(url: DatabaseUrl, host: str, port: str) -> Host:
    name = f"{host}:{port}"
    try:
        with connections.connect(
            url, host=host, port=port, target_session_attrs="any", autocommit=True
        ) as connection:
            [row] = connection.execute("SELECT NOT pg_is_in_recovery()").fetchall()
    except psycopg.Error as error:
        return Host(name=name, problem=str(error).strip().partition("\n")[0])
    return Host(name=name, is_primary=bool(row[0]))
