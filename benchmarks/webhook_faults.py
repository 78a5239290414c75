"""How soon and how surely webhooks arrive: python -m benchmarks.webhook_faults.

Sends card events to a FIFO endpoint that fails at random, with a worker that is killed again and
again, and says what came of it; then measures how soon a first attempt comes while events are
committed at a steady rate. Uses DATABASE_URL and REDIS_URL (whose database is emptied), or starts
servers of its own.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import psycopg
from psycopg import sql
from redis import Redis

from cardledger.embedded.servers import find_postgres, find_redis
from cardledger.schema import migrate
from tests import storm
from tests.databases import fresh_database
from tests.world import World, open_world

_PASSWORD = "app"  # noqa: S105 - of a role that lives as long as this program


def main() -> int:
    """Play it and print the figures; returns 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--failing", type=float, default=0.3, help="share of requests")
    parser.add_argument("--rate", type=int, default=200, help="events a second, for the latency")
    parser.add_argument("--seconds", type=float, default=20, help="of the latency")
    asked = parser.parse_args()
    with _world() as (world, redis_url):
        found = storm.storm(
            world,
            redis_url,
            events=asked.events,
            kills=asked.kills,
            failing=asked.failing,
            patience_s=1200,
        )
        soon = storm.latency(world, redis_url, rate=asked.rate, seconds=asked.seconds)
    print(
        f"{found.webhooks:,} webhooks of {found.events:,} card events, {found.requests:,} requests,"
        f" {asked.failing:.0%} failed at random, the worker killed {found.kills} times:"
        f" {found.seconds:.0f} s, {found.requests / found.seconds * 60:,.0f} requests a minute"
    )
    print(
        f"not delivered {found.not_delivered}, out of order {found.out_of_order}, not proven"
        f" {found.unproven}, ids with two bodies {found.with_two_bodies}, sent again after they"
        f" were taken {found.repeated_after_taken}"
    )
    print(
        f"first attempt at {asked.rate} events/s, {soon.events:,} events: p50 {soon.p50_ms:.0f} ms,"
        f" p99 {soon.p99_ms:.0f} ms, longest {soon.longest_ms:.0f} ms; read by the receiver, which"
        f" shares a process with the load: p50 {soon.arrived_p50_ms:.0f} ms,"
        f" p99 {soon.arrived_p99_ms:.0f} ms"
    )
    broken = found.not_delivered + found.out_of_order + found.unproven + found.with_two_bodies
    return int(broken > 0 or soon.p50_ms > 100 or soon.p99_ms > 1000)


@contextmanager
def _world() -> Iterator[tuple[World, str]]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cardledger-bench-")))
        postgres = find_postgres(os.environ.get("DATABASE_URL"), home)
        redis = find_redis(os.environ.get("REDIS_URL"), home)
        for server in (postgres, redis):
            server.start()
            stack.callback(server.stop)
        with Redis.from_url(redis.url) as client:
            client.flushdb()
        with fresh_database(postgres.url) as url:
            migrate.upgrade(url)
            role = sql.Identifier(migrate.app_role(url))
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, _PASSWORD))
            try:
                with open_world(url, url.with_user(migrate.app_role(url), _PASSWORD)) as world:
                    yield world, redis.url
            finally:
                migrate.downgrade(url, "base")  # The role belongs to the server and would stay.


if __name__ == "__main__":
    sys.exit(main())
