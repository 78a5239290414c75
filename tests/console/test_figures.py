"""Figures beside the rows of other platforms: read up to a limit, which they then say."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.console import rates
from cardledger.api.console.rates import RateMemory, Rates
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries.console import platform_figures, platform_rates
from cardledger.ledger.queries.console.platform_figures import Depth
from cardledger.ledger.queries.console.platform_rates import INTERVAL_S, Counted
from cardledger.ledger.storage.ids import first_id_at, new_id
from cardledger.schema.ids import Id
from tests.api.support import new_tenant, server
from tests.console.person import Person, shown
from tests.console.rows import DELIVERY, INBOX, OUTCOMES, REJECTION
from tests.console.snapshots import in_snapshot
from tests.console.test_accounts import words_of

NOW: Final = datetime.now(UTC)


@pytest.fixture
def crowded(database_url: DatabaseUrl, config: ApiConfig) -> Iterator[tuple[Id, Id]]:
    """Two platforms without a worker; the first has ten outcomes and three messages that wait."""
    crowd, other = (new_tenant(config.database_url).platform_id for _ in range(2))
    customer = new_id()
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(OUTCOMES, [customer, crowd, new_id(), 10])
        for number in range(3):
            owner.execute(INBOX, [new_id(), customer, crowd, f"figures-{number}"])
        yield crowd, other
        owner.execute("DELETE FROM inbox WHERE platform_id = %s", [crowd])


def decisions(config: ApiConfig, platform: Id) -> Counted:
    since = NOW - timedelta(minutes=1)
    return in_snapshot(
        config,
        platform,
        lambda connection: platform_rates.decisions(connection, platform_id=platform, since=since),
    )


def rejections_and_deliveries(config: ApiConfig, platform: Id) -> tuple[Counted, Counted]:
    since = NOW - timedelta(minutes=1)

    async def read(connection: AsyncConnection) -> tuple[Counted, Counted]:
        return (
            await platform_rates.rejections(connection, platform_id=platform, since=since),
            await platform_rates.deliveries(connection, platform_id=platform, since=since),
        )

    return in_snapshot(config, platform, read)


def total(counted: Counted) -> dict[str, int]:
    found: dict[str, int] = {}
    for numbers in counted.numbers.values():
        for name, number in numbers.items():
            found[name] = found.get(name, 0) + number
    return found


def test_decisions_are_read_up_to_a_limit_whose_they_are(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, other = crowded
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(OUTCOMES, [new_id(), crowd, new_id(), 1_000])

    whole = decisions(config, crowd)
    of_other = decisions(config, other)
    monkeypatch.setattr(platform_rates, "RATE_PAGES", (1, 2))
    monkeypatch.setattr(platform_rates, "RATE_MARGIN", 0)
    some = decisions(config, crowd)
    none = decisions(config, other)

    assert total(whole) == {"APPLIED": 1_010}
    assert 0 < total(some)["APPLIED"] < 1_000
    assert (of_other.numbers, none.numbers) == ({}, {})
    assert [each.is_whole for each in (whole, of_other, some, none)] == [True, True, False, False]


def test_the_smallest_tail_that_begins_with_an_older_decision_is_enough(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other = crowded
    of_old = OUTCOMES.replace("now()", "now() - interval '1 hour'")
    with psycopg.connect(database_url, autocommit=True) as owner:
        for statement, count in (
            (of_old, 1_000),
            (OUTCOMES, 50),
            (of_old, 1_000),
            (OUTCOMES, 300),
        ):
            owner.execute(statement, [new_id(), other, new_id(), count])
    monkeypatch.setattr(platform_rates, "RATE_MARGIN", 0)

    def counted(*pages: int) -> tuple[int, bool]:
        monkeypatch.setattr(platform_rates, "RATE_PAGES", pages)
        found = decisions(config, other)
        return total(found).get("APPLIED", 0), found.is_whole

    few, is_whole = counted(1)
    assert 0 < few < 300
    assert not is_whole
    # A larger tail would count those before the old ones as well.
    assert counted(1, 2, 12, 28) == (300, True)
    assert counted(28) == (350, True)
    # A margin is read before the tail.
    monkeypatch.setattr(platform_rates, "RATE_MARGIN", 12)
    assert counted(1) == (300, False)


def test_what_was_accepted_long_before_counts_when_it_is_decided(
    config: ApiConfig, crowded: tuple[Id, Id], database_url: DatabaseUrl
) -> None:
    _, other = crowded
    accepted = first_id_at(NOW - timedelta(hours=3))
    customer = Id(b"\x01" + bytes(15))
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(OUTCOMES, [new_id(), other, accepted, 5])
        owner.execute(REJECTION, [accepted, customer, other])
        owner.execute(DELIVERY, [customer, other, accepted])

    found = [decisions(config, other), *rejections_and_deliveries(config, other)]

    assert [total(each) for each in found] == [{"APPLIED": 5}, {"REJECTED": 1}, {"DELIVERED": 1}]
    assert all(each.is_whole for each in found)


def test_rejections_and_deliveries_are_read_up_to_a_limit(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other = crowded
    customer = Id(b"\x01" + bytes(15))
    with psycopg.connect(database_url, autocommit=True) as owner:
        for _ in range(3):
            owner.execute(REJECTION, [new_id(), customer, other])
            owner.execute(DELIVERY, [customer, other, new_id()])

    monkeypatch.setattr(platform_rates, "RATE_ROWS", (1, 2))
    some = rejections_and_deliveries(config, other)
    monkeypatch.setattr(platform_rates, "RATE_ROWS", (1, 4))
    whole = rejections_and_deliveries(config, other)

    assert [total(each) for each in some] == [{"REJECTED": 2}, {"DELIVERED": 2}]
    assert [total(each) for each in whole] == [{"REJECTED": 3}, {"DELIVERED": 3}]
    assert [each.is_whole for each in (*some, *whole)] == [False, False, True, True]


def live_inbox(config: ApiConfig, platform: Id) -> Depth:
    depths = in_snapshot(
        config,
        platform,
        lambda connection: platform_figures.depths(connection, platform_id=platform),
    )
    [live] = [each for each in depths if each.name == "inbox, live"]
    return live


def test_what_waits_behind_others_is_not_shown_as_nothing(
    config: ApiConfig, crowded: tuple[Id, Id], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = crowded

    alone = live_inbox(config, other)
    monkeypatch.setattr(platform_figures, "ROW_LIMIT", 2)
    capped = live_inbox(config, other)

    assert (alone.count, alone.is_capped) == (0, False)
    assert (capped.count, capped.is_capped) == (0, True)


def test_the_age_of_a_backlog_is_that_of_its_oldest_message_in_any_queue(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, other = crowded
    oldest = NOW - timedelta(hours=1)
    in_queue = INBOX.replace("VALUES (0, 0,", "VALUES (0, 5,").replace("now()", "%s")
    customer = new_id()
    with psycopg.connect(database_url, autocommit=True) as owner:
        for platform, reference, at in (
            (other, "figures-first", oldest - timedelta(hours=1)),
            (crowd, "figures-second", oldest),
        ):
            owner.execute(in_queue, [new_id(), customer, platform, reference, at])
        monkeypatch.setattr(platform_figures, "ROW_LIMIT", 2)
        known = live_inbox(config, crowd)
        # Behind a message of others, no more of its queue is read.
        monkeypatch.setattr(platform_figures, "QUEUE_ROWS", 1)
        unknown = live_inbox(config, crowd)
        owner.execute("DELETE FROM inbox WHERE platform_id = %s", [other])

    assert (known.since, known.is_older, known.is_capped) == (oldest, False, True)
    assert unknown.is_older
    assert unknown.since is not None
    assert unknown.since > oldest


def test_overview_and_system_say_what_is_not_known_of_a_queue(
    config: ApiConfig,
    crowded: tuple[Id, Id],  # noqa: ARG001 - their messages
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform_figures, "ROW_LIMIT", 2)
    monkeypatch.setattr(platform_figures, "QUEUE_ROWS", 1)
    tenant = new_tenant(config.database_url)
    an_hour_old = INBOX.replace("now()", "now() - interval '1 hour'")
    in_another_queue = an_hour_old.replace("VALUES (0, 0,", "VALUES (0, 5,")

    with (
        psycopg.connect(database_url, autocommit=True) as owner,
        server(config) as root,
        Person(root) as visitor,
    ):
        visitor.log_in(tenant)
        unknown = live_queue(shown(visitor.get("/system")))
        owner.execute(in_another_queue, [new_id(), new_id(), tenant.platform_id, "figures"])
        older = live_queue(shown(visitor.get("/system")))
        on_overview = live_queue(shown(visitor.get("")))
        owner.execute("DELETE FROM inbox WHERE platform_id = %s", [tenant.platform_id])

    assert unknown == "at least 0 not known"
    assert re.fullmatch(r"at least \d at least \d+ \w+", older)
    assert on_overview == older


def live_queue(page: str) -> str:
    """Return what a page says of the queue of live events."""
    found = re.search(r"inbox, live</[a-z]+>(.*?)</(?:tr|div)>", page, re.DOTALL)
    assert found is not None
    return words_of(found[1])


def test_rates_that_cannot_be_read_in_time_leave_the_rest_and_are_read_in_part_next(
    config: ApiConfig, crowded: tuple[Id, Id], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, _ = crowded
    memory, asked, now = RateMemory(), list[datetime](), datetime.now(UTC)

    async def noted(
        connection: AsyncConnection, *, platform_id: Id, since: datetime, before: object = None
    ) -> Counted:
        assert before is None  # What is lost is not read again.
        asked.append(since)
        return await platform_rates.decisions(connection, platform_id=platform_id, since=since)

    async def looks(connection: AsyncConnection) -> tuple[Rates, Rates]:
        with monkeypatch.context() as slow:
            slow.setattr(platform_rates, "_DELIVERED", "SELECT pg_sleep(9)")
            failed = await memory.look(connection, crowd, now)
        figures = await platform_figures.read(connection, platform_id=crowd, now=NOW)
        assert figures.depths
        return failed, await memory.look(connection, crowd, now)

    monkeypatch.setitem(rates._READERS, "decisions", noted)
    failed, after = in_snapshot(config, crowd, looks)

    assert (failed.decisions.total, failed.decisions.unknown_s) == (0, 900)
    assert after.decisions.total == 10
    assert 0 < after.decisions.unknown_s < 900
    assert asked[1] - asked[0] > timedelta(minutes=13)


def test_what_a_look_cannot_read_is_unknown_until_looks_after_it_have_read_it(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd, other = crowded
    at_times = OUTCOMES.replace("now()", "%s")
    memory, customer = RateMemory(), Id(b"\x02" + bytes(15))
    # In the order of time, as they are decided: 50 in each interval.
    first = (int(NOW.timestamp()) // INTERVAL_S - 60) * INTERVAL_S
    times = [datetime.fromtimestamp(first + second, UTC) for second in range(0, 600, 5)]
    with psycopg.connect(database_url, autocommit=True) as owner:
        for at in times:
            for platform in (crowd, other):
                owner.execute(at_times, [new_id(), platform, new_id(), at, 25])
            owner.execute(
                DELIVERY.replace("now(), now()", "%s, %s"), [customer, other, at, at, new_id()]
            )
    monkeypatch.setattr(platform_rates, "RATE_PAGES", (20,))
    monkeypatch.setattr(platform_rates, "EARLIER_PAGES", 40)
    monkeypatch.setattr(platform_rates, "RATE_MARGIN", 3)
    monkeypatch.setattr(platform_rates, "RATE_ROWS", (10, 30))
    monkeypatch.setattr(platform_rates, "EARLIER_ROWS", 30)

    async def looks(connection: AsyncConnection) -> list[Rates]:
        return [await memory.look(connection, other, NOW) for _ in range(20)]

    looked = in_snapshot(config, other, looks)

    past = [each.decisions.counts[30:90] for each in looked]
    unknown = [each.decisions.unknown_s for each in looked]
    assert 0 < unknown[0] < 900
    assert unknown == sorted(unknown, reverse=True)
    # What is known is exact, and a bar that is not known is not zero.
    assert all(count in {None, 50} for counts in past for count in counts[:-1])
    assert looked[-1].decisions.total == 25 * len(times) == dict(looked[-1].outcomes)["APPLIED"]
    assert (looked[-1].decisions.unknown_s, looked[-1].webhooks.unknown_s) == (0, 0)
    assert looked[-1].webhooks.total == len(times)


def test_a_tab_that_was_hidden_has_a_gap_that_is_filled(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other = crowded
    at_times = OUTCOMES.replace("now()", "%s")
    begin = (int(NOW.timestamp()) // INTERVAL_S - 80) * INTERVAL_S
    memory = RateMemory()

    def decide(seconds: range) -> datetime:
        times = [datetime.fromtimestamp(begin + second, UTC) for second in seconds]
        with psycopg.connect(database_url, autocommit=True) as owner:
            for at in times:
                owner.execute(at_times, [new_id(), other, new_id(), at, 50])
        return times[-1]

    def look(now: datetime) -> Rates:
        return in_snapshot(config, other, lambda each: memory.look(each, other, now))

    # Few: pages before these have later rows, of other tests.
    monkeypatch.setattr(platform_rates, "RATE_PAGES", (8,))
    monkeypatch.setattr(platform_rates, "EARLIER_PAGES", 40)
    monkeypatch.setattr(platform_rates, "RATE_MARGIN", 3)

    look(decide(range(0, 100, 5)))
    hidden_since = look(decide(range(100, 105, 5)))
    shown_at = decide(range(105, 600, 5))
    shown = look(shown_at)
    after = [look(shown_at) for _ in range(20)][-1]

    assert hidden_since.decisions.total > 0
    assert 0 < shown.decisions.unknown_s < 900
    assert (after.decisions.unknown_s, after.decisions.total) == (0, 50 * 120)
