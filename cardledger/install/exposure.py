"""What would be unsafe on a network: a process refuses to start with it, or an operator accepts it.

Only settings are read, so that the refusal comes before anything connects or listens.
Source: docs/decisions/0045-safe-on-a-network.md
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import zip_longest
from typing import Any, Final

import psycopg
from psycopg import pq

from cardledger.config import unsafe
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.config.unsafe import Unsafe
from cardledger.schema import connections, ssrf
from cardledger.workers.signals import redis_connections

_VERIFIED: Final = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """Something unsafe, and the setting that repairs it."""

    name: Unsafe
    problem: str
    repair: str


def check(settings: Settings, *, listens_on: str | None = None) -> list[Hazard]:
    """Return what is unsafe and accepted by name, for a process about to start.

    `listens_on` says where it listens beyond loopback; None: nowhere.
    Raises: CommandError for everything that is not accepted.
    """
    found = hazards(settings, listens_on=listens_on)
    accepted = unsafe.parse(settings.accept_unsafe)
    refused = [hazard for hazard in found if hazard.name not in accepted]
    if refused:
        names = accepted.union(hazard.name for hazard in refused)
        raise CommandError(_refusal(refused, names), code=USAGE)
    return found


def hazards(settings: Settings, *, listens_on: str | None = None) -> list[Hazard]:
    """Return everything unsafe, whether it is accepted or not."""
    return [
        *(_listening(settings, listens_on) if listens_on is not None else ()),
        *_redis(settings, listens_on),
        *_postgres(settings),
    ]


def check_metrics(settings: Settings) -> None:
    """Check that a worker shows its metrics to this machine only, or to who has the token.

    Raises: CommandError.
    """
    if settings.metrics_port is None or settings.metrics_token is not None:
        return
    where = beyond_loopback(settings.metrics_host, settings.metrics_port)
    if where is not None:
        message = (
            f"not started: metrics would be served on {where} to everyone; set"
            " CARDLEDGER_METRICS_TOKEN, or CARDLEDGER_METRICS_HOST=127.0.0.1"
        )
        raise CommandError(message, code=USAGE)


# --- the address to listen on ----------------------------------------------------------------


def beyond_loopback(host: str, port: int) -> str | None:
    """Return the addresses outside of loopback that `host` stands for; None when it has none.

    Raises: CommandError when `host` is not a known name.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror or error}; choose another"
        raise CommandError(f"{message} --host") from None
    return _listed(_beyond_loopback(family, address) for family, *_, address in found)


def beyond_loopback_of(listening: socket.socket) -> str | None:
    """Return the address of a socket when it is outside of loopback."""
    return _listed([_beyond_loopback(listening.family, listening.getsockname())])


def is_loopback(address: str) -> bool:
    """Return whether `address` is in 127.0.0.0/8, also in its form for IPv6 sockets, or is ::1."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return ssrf.is_loopback(mapped or parsed)


def _beyond_loopback(family: int, address: Any) -> str | None:  # noqa: ANN401 - of any family
    if family == socket.AF_UNIX:
        return None
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return str(address)
    host, port = str(address[0]), address[1]
    if is_loopback(host):
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listed(addresses: Iterator[str | None] | Sequence[str | None]) -> str | None:
    # A name may have one address several times.
    return " and ".join(dict.fromkeys(filter(None, addresses))) or None


def _listening(settings: Settings, where: str) -> Iterator[Hazard]:
    if settings.sandbox:
        yield Hazard(
            name=Unsafe.SANDBOX,
            problem=f"the sandbox is on, and the API listens on {where}: clients make money by"
            " request",
            repair="CARDLEDGER_SANDBOX=false, or --host 127.0.0.1",
        )
    if not settings.forwarded_allow_ips:
        yield Hazard(
            name=Unsafe.PLAINTEXT,
            problem=f"the API listens on {where} without TLS, and no reverse proxy is named",
            repair="CARDLEDGER_FORWARDED_ALLOW_IPS=<address of a reverse proxy with TLS>, see"
            " docs/reverse-proxy.md; or --host 127.0.0.1",
        )


# --- Redis and PostgreSQL ----------------------------------------------------------------------


def _redis(settings: Settings, listens_on: str | None) -> Iterator[Hazard]:
    if settings.redis_url is None:  # One of our own, on loopback with a password.
        return
    try:
        named = redis_connections.parameters(settings.redis_url.get_secret_value())
    except ValueError:  # Nothing can connect to it either.
        return
    if "path" in named or named.get("password"):
        return
    host = str(named.get("host", "localhost"))
    if not _is_here(host) or listens_on is not None:
        beyond = f", and the API listens on {listens_on}" if _is_here(host) else ""
        yield Hazard(
            name=Unsafe.REDIS_WITHOUT_PASSWORD,
            problem=f"REDIS_URL has no password for Redis on {host}{beyond}",
            repair="REDIS_URL=rediss://<user>:<password>@<host>:6379/0, see docs/redis.md",
        )


def is_unix_socket(redis_url: str) -> bool:
    """Return whether only file permissions decide who can connect to Redis."""
    try:
        return "path" in redis_connections.parameters(redis_url)
    except ValueError:
        return False


def is_redis_in_plain_text(url: str) -> bool:
    """Return whether passwords and outcomes cross a network unencrypted or to an unknown server."""
    try:
        named = redis_connections.parameters(url)
    except ValueError:
        return False
    if "path" in named or _is_here(str(named.get("host", "localhost"))):
        return False
    is_verified = named.get("ssl_cert_reqs", "required") in {"required", "CERT_REQUIRED"}
    return not (redis_connections.has_tls(named) and is_verified)


def _postgres(settings: Settings) -> Iterator[Hazard]:
    # An embedded one is on a Unix socket.
    for url in filter(None, (settings.database_url, settings.console_database_url)):
        yield from _connections_to(url.get_secret_value())


def _connections_to(url: str) -> Iterator[Hazard]:
    try:
        named = _connection_parameters(url)
    except psycopg.Error:  # Nothing can connect to it either.
        return
    remote = [place for place in _places(named) if not _is_here(place)]
    sslmode = named.get("sslmode", "")
    if remote and sslmode != _VERIFIED:
        yield Hazard(
            name=Unsafe.POSTGRESQL_UNVERIFIED,
            problem=f"connections to PostgreSQL on {' and '.join(remote)} have sslmode={sslmode},"
            " which does not verify the server",
            repair="DATABASE_URL=…?sslmode=verify-full&sslrootcert=<file or system>, see"
            " docs/postgresql.md",
        )


def _connection_parameters(url: str) -> dict[str, str]:
    """Return the parameters of `url`, and of libpq's environment where it names none.

    Raises: psycopg.Error when libpq does not understand `url`.
    """
    named = {name: str(value) for name, value in connections.parameters(url).items() if value != ""}
    found = (option for option in pq.Conninfo.get_defaults() if option.val)
    defaults = {option.keyword.decode(): (option.val or b"").decode() for option in found}
    if "service" in named:
        # libpq reads its file when it connects: what the URL itself does not name is unknown.
        defaults |= {"host": f"the host of service {named['service']}", "sslmode": "unknown"}
    elif named.get("sslrootcert") == "system":
        defaults["sslmode"] = _VERIFIED  # libpq's default then, and it refuses others.
    return defaults | named


def _places(named: Mapping[str, str]) -> Iterator[str]:
    """Yield where each host of a URL is: its address if there is one, else its name."""
    addresses, names = named.get("hostaddr", "").split(","), named.get("host", "").split(",")
    for address, name in zip_longest(addresses, names, fillvalue=""):
        yield address or name


def _is_here(place: str) -> bool:
    """Return whether a server is on this machine: a Unix socket, or an address of loopback.

    A name other than `localhost` is another machine: what it resolves to may change.
    """
    return place == "localhost" or place[:1] in {"", "/", "@"} or is_loopback(place)


# --- what the operator reads -----------------------------------------------------------------


def _refusal(refused: Sequence[Hazard], names: frozenset[Unsafe]) -> str:
    problems = "\n".join(
        f"  {hazard.name}: {hazard.problem}\n    fix: {hazard.repair}" for hazard in refused
    )
    accepted = ",".join(name for name in Unsafe if name in names)
    return (
        f"not started, because this is unsafe on a network:\n{problems}\n"
        f"  to accept it all the same: CARDLEDGER_ACCEPT_UNSAFE={accepted}"
    )
