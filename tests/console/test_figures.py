"""Figures beside the rows of other platforms: read up to a limit, which they then say."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.api.console.rates import RateMemory, Rates
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries.console import platform_figures
from cardledger.ledger.queries.console.platform_figures import Counts
from cardledger.ledger.storage.ids import first_id_at, new_id
from cardledger.schema.ids import Id
from tests.api.support import new_tenant
from tests.console.snapshots import in_snapshot

NOW: Final = datetime.now(UTC)

_OUTCOMES: Final = (
    "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash, message_id,"
    " outcome, recorded_at) SELECT %s, %s, 'visa', 'figures-' || n, '', %s, 'APPLIED', now()"
    " FROM generate_series(1, %s) AS n"
)
_REJECTION: Final = (
    "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
    " VALUES (%s, %s, %s, '{}', 'MALFORMED', now())"
)
_DELIVERY: Final = (
    "INSERT INTO webhook_deliveries (id, customer_id, platform_id, webhook_id, type, subject_id,"
    " body, state, attempts, created_at, delivered_at) SELECT id, %s, %s, id, 'TEST', id, '{}',"
    " 'DELIVERED', 1, now(), now() FROM (SELECT %s::uuid AS id) made"
)
_INBOX: Final = (
    "INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference, body,"
    " body_hash, received_at) VALUES (0, 0, %s, %s, %s, 'visa', %s, '{}', '', now())"
)


@pytest.fixture
def crowded(database_url: DatabaseUrl, config: ApiConfig) -> Iterator[tuple[Id, Id]]:
    """Two platforms without a worker; the first has ten outcomes and three messages that wait."""
    crowd, other = (new_tenant(config.database_url).platform_id for _ in range(2))
    customer = new_id()
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(_OUTCOMES, [customer, crowd, new_id(), 10])
        for number in range(3):
            owner.execute(_INBOX, [new_id(), customer, crowd, f"figures-{number}"])
        yield crowd, other
        owner.execute("DELETE FROM inbox WHERE platform_id = %s", [crowd])


def counts(config: ApiConfig, platform: Id) -> Counts:
    since = NOW - timedelta(minutes=1)
    return in_snapshot(
        config,
        platform,
        lambda connection: platform_figures.counts(connection, platform_id=platform, since=since),
    )


def total(counts: Counts) -> dict[str, int]:
    found: dict[str, int] = {}
    for decided in counts.decisions.values():
        for name, number in decided.items():
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
        owner.execute(_OUTCOMES, [new_id(), crowd, new_id(), 1_000])

    whole = counts(config, crowd)
    of_other = counts(config, other)
    monkeypatch.setattr(platform_figures, "RATE_PAGES", (1, 2))
    monkeypatch.setattr(platform_figures, "RATE_MARGIN", 0)
    some = counts(config, crowd)
    none = counts(config, other)

    assert total(whole) == {"APPLIED": 1_010}
    assert 0 < total(some)["APPLIED"] < 1_000
    assert (of_other.decisions, none.decisions) == ({}, {})
    assert [each.are_decisions_capped for each in (whole, of_other, some, none)] == [
        False,
        False,
        True,
        True,
    ]


def test_the_smallest_tail_that_begins_with_an_older_decision_is_enough(
    config: ApiConfig,
    crowded: tuple[Id, Id],
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, other = crowded
    of_old = _OUTCOMES.replace("now()", "now() - interval '1 hour'")
    with psycopg.connect(database_url, autocommit=True) as owner:
        for statement, count in (
            (of_old, 1_000),
            (_OUTCOMES, 50),
            (of_old, 1_000),
            (_OUTCOMES, 300),
        ):
            owner.execute(statement, [new_id(), other, new_id(), count])
    monkeypatch.setattr(platform_figures, "RATE_MARGIN", 0)

    def counted(*pages: int) -> tuple[int, bool]:
        monkeypatch.setattr(platform_figures, "RATE_PAGES", pages)
        found = counts(config, other)
        return total(found).get("APPLIED", 0), found.are_decisions_capped

    few, is_capped = counted(1)
    assert 0 < few < 300
    assert is_capped
    # A larger tail would count those before the old ones as well.
    assert counted(1, 2, 12, 28) == (300, False)
    assert counted(28) == (350, False)
    # A margin is read before the tail.
    monkeypatch.setattr(platform_figures, "RATE_MARGIN", 12)
    assert counted(1) == (300, True)


def test_what_was_accepted_long_before_counts_when_it_is_decided(
    config: ApiConfig, crowded: tuple[Id, Id], database_url: DatabaseUrl
) -> None:
    _, other = crowded
    accepted = first_id_at(NOW - timedelta(hours=3))
    customer = Id(b"\x01" + bytes(15))
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(_OUTCOMES, [new_id(), other, accepted, 5])
        owner.execute(_REJECTION, [accepted, customer, other])
        owner.execute(_DELIVERY, [customer, other, accepted])

    found = counts(config, other)

    assert total(found) == {"APPLIED": 5, "REJECTED": 1}
    assert sum(found.delivered.values()) == 1
    assert not found.are_decisions_capped


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
            owner.execute(_REJECTION, [new_id(), customer, other])
            owner.execute(_DELIVERY, [customer, other, new_id()])

    monkeypatch.setattr(platform_figures, "RATE_ROWS", (1, 2))
    some = counts(config, other)
    monkeypatch.setattr(platform_figures, "RATE_ROWS", (1, 4))
    whole = counts(config, other)

    assert (total(some), sum(some.delivered.values())) == ({"REJECTED": 2}, 2)
    assert (some.are_decisions_capped, some.are_deliveries_capped) == (True, True)
    assert (total(whole), sum(whole.delivered.values())) == ({"REJECTED": 3}, 3)
    assert (whole.are_decisions_capped, whole.are_deliveries_capped) == (False, False)


def test_what_waits_behind_others_is_not_shown_as_nothing(
    config: ApiConfig, crowded: tuple[Id, Id], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = crowded

    def inbox() -> tuple[int, bool]:
        read = in_snapshot(
            config,
            other,
            lambda connection: platform_figures.read(connection, platform_id=other, now=NOW),
        )
        [live] = [each for each in read.depths if each.name == "inbox, live"]
        return live.count, live.is_capped

    assert inbox() == (0, False)
    monkeypatch.setattr(platform_figures, "ROW_LIMIT", 2)
    assert inbox() == (0, True)


def test_rates_that_cannot_be_read_in_time_leave_the_rest_and_are_read_in_part_next(
    config: ApiConfig, crowded: tuple[Id, Id], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, _ = crowded
    memory, asked, now = RateMemory(), list[datetime](), datetime.now(UTC)
    read = platform_figures.counts

    async def noted(connection: AsyncConnection, *, platform_id: Id, since: datetime) -> Counts:
        asked.append(since)
        return await read(connection, platform_id=platform_id, since=since)

    async def looks(connection: AsyncConnection) -> tuple[Rates, Rates]:
        with monkeypatch.context() as slow:
            slow.setattr(platform_figures, "_DELIVERED", "SELECT pg_sleep(9)")
            failed = await memory.look(connection, crowd, now)
        figures = await platform_figures.read(connection, platform_id=crowd, now=NOW)
        assert figures.depths
        return failed, await memory.look(connection, crowd, now)

    monkeypatch.setattr(platform_figures, "counts", noted)
    failed, after = in_snapshot(config, crowd, looks)

    assert (failed.decisions.total, failed.decisions.is_capped) == (0, True)
    assert (after.decisions.total, after.decisions.is_capped) == (10, True)
    assert asked[1] - asked[0] > timedelta(minutes=13)
