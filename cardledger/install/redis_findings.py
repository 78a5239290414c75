"""What `cardledger doctor` and the console say about Redis."""

from collections.abc import Iterator

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from cardledger.install.findings import FAIL, OK, WARN, Finding


def examine(url: str, *, reply_limit_s: float = 5.0) -> Iterator[Finding]:
    """Yield whether Redis answers each command in time, evicts nothing, and survives a restart."""
    try:
        with Redis.from_url(
            url,
            socket_connect_timeout=reply_limit_s,
            socket_timeout=reply_limit_s,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            version = client.info("server")["redis_version"]
            policy = _config(client, "maxmemory-policy")
            is_kept = _config(client, "appendonly") == "yes" or bool(_config(client, "save"))
    except NoPermissionError:
        detail = "answers; its memory policy and persistence are not shown to this user"
        yield Finding(name="Redis", state=OK, detail=detail)
        return
    except (RedisError, OSError) as error:
        yield Finding(
            name="Redis",
            state=FAIL,
            detail=f"does not answer: {error}; the system works without Redis, but slower",
            fix="redis-server --appendonly yes, or set REDIS_URL to a running server",
        )
        return
    yield Finding(name="Redis", state=OK, detail=f"{version} answers")
    yield _memory_policy(policy)
    yield _persistence(is_kept=is_kept)


def _memory_policy(policy: str) -> Finding:
    if policy in {"noeviction", ""}:
        return Finding(name="Redis memory", state=OK, detail=policy or "managed by the provider")
    return Finding(
        name="Redis memory",
        state=FAIL,
        detail=f"{policy}: it evicts notifications when its memory is full",
        fix="redis-cli CONFIG SET maxmemory-policy noeviction",
    )


def _persistence(*, is_kept: bool) -> Finding:
    if is_kept:
        return Finding(name="Redis persistence", state=OK, detail="on")
    return Finding(
        name="Redis persistence",
        state=WARN,
        detail="off; nothing is lost, but events wait for the next sweep after a restart",
        fix="redis-cli CONFIG SET appendonly yes",
    )


def _config(client: "Redis", name: str) -> str:
    try:
        return str(client.config_get(name).get(name, ""))
    except ResponseError:  # Managed servers refuse the command.
        return ""
