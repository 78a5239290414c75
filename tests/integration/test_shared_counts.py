"""Counts that processes share over Redis, whatever other programs write to their keys."""

import asyncio
from collections.abc import Iterator

import pytest
from redis import Redis

from cardledger.ledger.storage.ids import new_id
from cardledger.workers.signals import shared_counts
from cardledger.workers.signals.shared_counts import Increment, SharedCounts
from tests.world import SECRET_KEY


@pytest.fixture
def attacker(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


@pytest.mark.parametrize("damaged", [0, 1], ids=["window", "window before"])
def test_a_count_of_another_type_ends_no_exchange_and_is_replaced(
    redis_url: str, attacker: Redis, damaged: int
) -> None:
    names, window = [str(new_id()) for _ in range(2)], 7
    key = f"cardledger:counts:{names[0]}:{window - damaged}"

    def added(*, window: int = window) -> list[Increment]:
        return [Increment(name=name, window=window, times=1, expires_s=60) for name in names]

    async def exchange() -> list[list[tuple[int, int]]]:
        one, other = SharedCounts(redis_url, SECRET_KEY), SharedCounts(redis_url, SECRET_KEY)
        await one.exchange(added(window=window - 1))
        await one.exchange(added())
        attacker.set(key, "a text")
        totals = [await counts.exchange(added()) for counts in (one, other, one)]
        await one.close()
        await other.close()
        return totals

    totals = asyncio.run(exchange())

    # What this process had counted itself is never lost, and that of others not for long.
    whole = [[(2, 1), (2, 1)], [(3, 1), (3, 1)], [(4, 1), (4, 1)]]
    if damaged:
        whole[1][0] = (3, 0)
    assert totals == whole
    assert attacker.type(key) in ({b"hash"} if not damaged else {b"none"})


def test_the_counts_that_a_process_keeps_of_itself_are_those_used_last(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "_OWN_LIMIT", 3)

    async def exchange() -> list[str]:
        counts = SharedCounts(redis_url, SECRET_KEY)
        for name in ("a", "b", "c", "a", "d"):
            await counts.exchange([Increment(name=name, window=7, times=1, expires_s=9)])
        await counts.close()
        return [key.split(":")[2] for key in counts._own]

    assert asyncio.run(exchange()) == ["c", "a", "d"]
