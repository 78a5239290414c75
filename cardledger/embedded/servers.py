"""PostgreSQL and Redis for `up`, `demo` and the tests: found when there are some, else started.

Every kind of server has `start()`, `stop()`, `url` and `origin` (what to tell the person).
`start()` may be called again after the server died; `stop()` may be called twice.

Our own servers are children, watched over by `watchdog.py`, so they end with the process
that started them, however that ends. One process owns a data directory: it holds a lock that its
server inherits, so the lock is free exactly when no server process is left, and a stale pid file
(after kill -9, or a restart of the machine where another process now has that number) is known to
be stale. A second process with the same data directory shares the running server, and must not
outlive the owner.
"""

from cardledger.embedded.child_server import Server, ServerError
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.embedded.postgres import (
    OLDEST_POSTGRES,
    EmbeddedPostgres,
    GivenPostgres,
    find_postgres,
)
from cardledger.embedded.redis_server import (
    GivenRedis,
    OwnRedis,
    RedisProgram,
    best_redis,
    find_redis,
    redis_in_wheel,
    redis_on_path,
    serves_without_password,
)

__all__ = [
    "OLDEST_POSTGRES",
    "DatabaseUrl",
    "EmbeddedPostgres",
    "GivenPostgres",
    "GivenRedis",
    "OwnRedis",
    "RedisProgram",
    "Server",
    "ServerError",
    "best_redis",
    "find_postgres",
    "find_redis",
    "redis_in_wheel",
    "redis_on_path",
    "serves_without_password",
]
