"""Engines: how this process reaches PostgreSQL."""

from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

# A hung statement or a lost client must not hold the locks of an account for ever. The facade
# answers long before these, and a worker tries again.
_OPTIONS = "-c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"

# Every look-up of the hot path goes by key. On a young table the planner would rather scan or
# hash it whole, and keep that plan while the table grows: 4 ms instead of 0.2 ms. What is
# forbidden here costs a fortune on paper, for which the planner would also compile a statement
# that runs in a millisecond.
_KEYED = (
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan"
)


def driver_url(url: str) -> URL:
    """Return `url` with the psycopg 3 driver named, whichever way it was written."""
    parsed = make_url(url)
    return parsed.set(drivername="postgresql+psycopg")


def sync_engine(url: str, *, keyed: bool = False, **options: Any) -> Engine:  # noqa: ANN401 - handed through
    """Return an engine for threads; `keyed` is for connections that only look up by key."""
    return create_engine(driver_url(url), **_options(keyed=keyed), **options)


def async_engine(url: str, *, keyed: bool = False, **options: Any) -> AsyncEngine:  # noqa: ANN401 - handed through
    """Return an engine for an event loop; `keyed` as in `sync_engine`."""
    return create_async_engine(driver_url(url), **_options(keyed=keyed), **options)


def _options(*, keyed: bool) -> dict[str, Any]:
    return {
        "connect_args": {
            "options": _OPTIONS + (_KEYED if keyed else ""),
            "application_name": "cardledger",
            "connect_timeout": 5,
            "prepare_threshold": 2,
        },
        "pool_pre_ping": False,
        "pool_recycle": 1800,
    }
