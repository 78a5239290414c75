"""The proxy of the storm in front of the PostgreSQL of a test.

A test can cut it, freeze it, slow it down, or put several of them into one URL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import psycopg

from cardledger.embedded.servers import DatabaseUrl
from storm.proxy import Address, Link, Network

Proxy = Link


class HasPort(Protocol):
    """A proxy on this machine."""

    @property
    def port(self) -> int: ...


@contextmanager
def proxy_to(url: DatabaseUrl) -> Iterator[Proxy]:
    """Run a proxy in front of the server of `url`, on a socket in a folder or on TCP."""
    with Network() as network:
        yield network.link("test", address_of(url))


def through(url: DatabaseUrl, *proxies: HasPort) -> DatabaseUrl:
    """Return `url` with the server reached through `proxies`, one host each, in their order."""
    with psycopg.connect(url) as connection:
        password = connection.info.password or None
        role, database = connection.info.user, connection.info.dbname
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    return (
        DatabaseUrl(f"postgresql://{hosts}/")
        .with_user(role, password, database)
        .with_schema(url.schema)
    )


def address_of(url: DatabaseUrl) -> Address:
    """Return where the server of `url` listens: a socket in a folder, or a host and a port."""
    with psycopg.connect(url) as connection:
        host, port = connection.info.host, connection.info.port
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
