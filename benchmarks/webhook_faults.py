"""Reliability and latency of webhook delivery: python -m benchmarks.webhook_faults.

Sends card events to a FIFO endpoint that fails at random, with a worker that is killed again and
again, and reports the result; then measures how soon a first attempt comes while events are
committed at a steady rate. Uses DATABASE_URL and REDIS_URL (whose database is emptied), or starts
servers of its own.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import psycopg
from psycopg import sql
from redis import Redis

from cardledger.embedded import directories
from cardledger.embedded.servers import find_postgres, find_redis
from cardledger.schema import migrate
from tests import storm
from tests.databases import fresh_database
from tests.world import World, open_world

_PASSWORD = "app"  # noqa: S105 - of a role that lives as long as this program


def main() -> int:
    """Run both measurements and print the figures; returns 1 when a guarantee is violated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--failing", type=float, default=0.3, help="share of requests")
    parser.add_argument("--rate", type=int, default=200, help="events a second, for the latency")
    parser.add_argument("--seconds", type=float, default=20, help="of the latency")
    options = parser.parse_args()
    with _world() as (world, redis_url):
        report = storm.storm(
            world,
            redis_url,
            events=options.events,
            kills=options.kills,
            failing=options.failing,
            patience_s=1200,
        )
        soon = storm.latency(world, redis_url, rate=options.rate, seconds=options.seconds)
    print(
        f"{report.webhooks:,} webhooks of {report.events:,} card events,"
        f" {report.requests:,} requests, {options.failing:.0%} failed at random,"
        f" the worker killed {report.kills} times:"
        f" {report.seconds:.0f} s, {report.requests / report.seconds * 60:,.0f} requests a minute"
    )
    print(
        f"not delivered {report.not_delivered}, out of order {report.out_of_order}, not proven"
        f" {report.unproven}, ids with two bodies {report.with_two_bodies}, sent again after they"
        f" were taken {report.repeated_after_taken}"
    )
    print(
        f"first attempt at {options.rate} events/s, {soon.events:,} events:"
        f" p50 {soon.p50_ms:.0f} ms, p99 {soon.p99_ms:.0f} ms, longest"
        f" {soon.longest_ms:.0f} ms; read by the receiver, which shares a process with"
        f" the load: p50 {soon.arrived_p50_ms:.0f} ms, p99 {soon.arrived_p99_ms:.0f} ms"
    )
    broken = report.not_delivered + report.out_of_order + report.unproven + report.with_two_bodies
    return int(broken > 0 or soon.p50_ms > 100 or soon.p99_ms > 1000)


@contextmanager
def _world() -> Iterator[tuple[World, str]]:
    with ExitStack() as stack:
        home = directories.temporary("cardledger-bench-")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
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
