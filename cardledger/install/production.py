"""What `cardledger doctor --production` checks: whether the installation may be put on a network.

The rules are those of the start (`exposure`), applied as if the API listened beyond loopback; and
what cannot be known from settings alone.
"""

from collections.abc import Iterator
from typing import Final

from cardledger.config import unsafe
from cardledger.config.settings import Settings
from cardledger.config.unsafe import Unsafe
from cardledger.embedded.servers import serves_without_password
from cardledger.install import exposure
from cardledger.install.exposure import Hazard
from cardledger.install.findings import FAIL, OK, WARN, Finding

_SAFE: Final = {
    Unsafe.SANDBOX: "off",
    Unsafe.PLAINTEXT: "a reverse proxy is named, which must speak TLS",
    Unsafe.REDIS_WITHOUT_PASSWORD: "REDIS_URL has a password, or is a Unix socket",
    Unsafe.POSTGRESQL_UNVERIFIED: "verified, or on this machine",
    Unsafe.LOOPBACK_WEBHOOKS: "off",
}

_LOOPBACK_WEBHOOKS: Final = Hazard(
    name=Unsafe.LOOPBACK_WEBHOOKS,
    problem="platforms reach the programs of this machine by the URLs of their webhooks",
    repair="CARDLEDGER_SANDBOX=false",
)


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield the findings for an installation that is to serve a network."""
    accepted = unsafe.parse(settings.accept_unsafe)
    found = exposure.hazards(settings, listens_on=f"{settings.host}:{settings.port}")
    by_name = {hazard.name: hazard for hazard in found}
    if settings.loopback_webhooks:  # No refusal to start: nothing happens unless it is accepted.
        by_name[Unsafe.LOOPBACK_WEBHOOKS] = _LOOPBACK_WEBHOOKS
    for name in Unsafe:
        yield _judged(name, by_name.get(name), is_accepted=name in accepted)
    yield _given("PostgreSQL server", "DATABASE_URL", is_given=settings.database_url is not None)
    yield _given("Redis server", "REDIS_URL", is_given=settings.redis_url is not None)
    if settings.redis_url is not None:
        url = settings.redis_url.get_secret_value()
        yield _redis_login(url)
        yield _redis_tls(url)
    yield _public_url(settings)


def _judged(name: Unsafe, hazard: Hazard | None, *, is_accepted: bool) -> Finding:
    if hazard is not None:
        # An exception lets a process start; it makes nothing safe.
        by_exception = "accepted by CARDLEDGER_ACCEPT_UNSAFE: " if is_accepted else ""
        detail = f"{by_exception}{hazard.problem}"
        return Finding(name=name, state=FAIL, detail=detail, fix=hazard.repair)
    if is_accepted:
        fix = f"take {name} out of CARDLEDGER_ACCEPT_UNSAFE"
        return Finding(name=name, state=WARN, detail="accepted without need", fix=fix)
    return Finding(name=name, state=OK, detail=_SAFE[name])


def _given(name: str, variable: str, *, is_given: bool) -> Finding:
    if is_given:
        return Finding(name=name, state=OK, detail=f"from {variable}")
    detail = "embedded: one machine, no replica, no backup"
    fix = f"set {variable} to a server of your own"
    return Finding(name=name, state=FAIL, detail=detail, fix=fix)


def _redis_login(url: str) -> Finding:
    if exposure.is_unix_socket(url) or not serves_without_password(url):
        detail = "shows no keys to clients without a password"
        return Finding(name="Redis login", state=OK, detail=detail)
    detail = "shows its keys to every client, without a password"
    fix = "redis-server --aclfile redis-users.acl, see docs/redis.md"
    return Finding(name="Redis login", state=FAIL, detail=detail, fix=fix)


def _redis_tls(url: str) -> Finding:
    if exposure.is_redis_in_plain_text(url):
        detail = "on another host, and not verified by TLS: its network must be private"
        fix = "REDIS_URL=rediss://…, see docs/redis.md"
        return Finding(name="Redis TLS", state=WARN, detail=detail, fix=fix)
    return Finding(name="Redis TLS", state=OK, detail="verified, or on this machine")


def _public_url(settings: Settings) -> Finding:
    url = settings.public_url or ""
    if url.startswith("https://"):
        return Finding(name="public URL", state=OK, detail=url)
    detail = f"{url or 'not set'}: URLs in responses do not begin with https://"
    fix = "export CARDLEDGER_PUBLIC_URL=https://<name of the reverse proxy>"
    return Finding(name="public URL", state=WARN, detail=detail, fix=fix)
