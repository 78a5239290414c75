"""The measurement of what a caller pays while Redis is unavailable."""

from benchmarks.parts import without_redis
from benchmarks.workbench import bench
from cardledger.embedded.servers import DatabaseUrl


def test_latencies_are_measured_with_a_redis_without_one_and_with_a_silent_one(
    postgres_url: DatabaseUrl, redis_url: str
) -> None:
    with bench(postgres_url) as made:
        measured = without_redis.measure(made, redis_url, seconds=0.2, warm_up_s=0.1)

    assert [each.redis for each in measured] == ["with Redis", "dead Redis", "silent Redis"]
    assert all("p50" in each.line and each.waited_ms for each in measured)
