"""The whole service under the benchmark's load, for a moment."""

import asyncio
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from fastapi.routing import APIRoute

from benchmarks import workbench
from benchmarks.parts import console, ingestion, service, stored_deliveries, tenants, webhooks
from benchmarks.parts.service import Authorizations, Service
from cardledger.api.console import ROOT, navigation
from cardledger.api.console.application import PAGES, SANDBOX_PAGES
from cardledger.embedded.servers import DatabaseUrl


@pytest.fixture(scope="module")
def running(postgres_url: DatabaseUrl, redis_url: str) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDIS_URL", redis_url)
        with workbench.bench(postgres_url) as bench, service.service(bench) as system:
            yield system


def test_authorizations_over_http_are_decided_by_the_ledger(running: Service) -> None:
    authorizations = Authorizations(running)

    closed = authorizations.closed(connections=4, seconds=0.3)
    paced = authorizations.paced(20, seconds=0.5)

    assert authorizations.failed == 0
    assert len(paced.seconds) == 10
    with psycopg.connect(running.bench.owner_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM card_transactions WHERE status = 'AUTHORIZED'"
        ).fetchone()
    assert row == (len(closed.seconds) + len(paced.seconds),)


def test_a_wrong_secret_is_counted_as_a_failure(running: Service) -> None:
    authorizations = Authorizations(running, secret="wrong")

    result = authorizations.closed(connections=1, seconds=0.1)

    # How many guesses are let through before they are too many is not for this test to say.
    assert 401 in result.statuses
    assert set(result.statuses) <= {401, 429}
    assert authorizations.failed == result.failed == len(result.seconds) > 0


def test_a_file_is_submitted_with_the_key_of_the_system(running: Service) -> None:
    [decided, submitted] = service.submit(running, lambda _: None, lines=20)

    assert decided.median > 0
    assert submitted.name == "submit of 20 clearings, outcomes printed"


def test_files_over_http_are_measured_beside_submit(running: Service) -> None:
    [posted, ratio] = ingestion.measure(running, rounds=1, progress=lambda _: None, events=20)

    assert len(posted.values) == len(ratio.values) == 1
    assert posted.values[0] > 0
    assert ratio.least == 0.6


def test_a_platform_is_measured_without_and_with_the_load_of_another(running: Service) -> None:
    [measured] = tenants.measure(running, connections=2, seconds=0.3, rounds=1)

    assert measured.load_rate > 0
    assert len(measured.quiet.seconds) == len(measured.loaded.seconds) == 6


def test_every_page_of_the_console_is_measured_beside_authorizations(
    running: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_CARDHOLDERS", 20)
    monkeypatch.setattr(console, "_EXCEPTIONS", 10)
    monkeypatch.setattr(console, "_DELIVERIES", 120)
    monkeypatch.setattr(console, "_RATE", 20)
    monkeypatch.setattr(console, "_PAGES_A_SECOND", 8.0)
    monkeypatch.setattr(console, "_PAGES_OF_TWO_A_SECOND", 4.0)

    figures = list(
        console.measure(running, events=1_000, rounds=1, progress=lambda _: None, visits=1)
    )

    pages = [figure for figure in figures if figure.name.startswith("page: ")]
    assert [figure.name for figure in pages] == [f"page: {name}, p95" for name in console.PAGES]
    failed = [figure for figure in figures if figure.name.startswith("pages that were not")]
    assert [figure.values for figure in failed] == [[0]]
    assert all(figure.median > 0 for figure in figures if figure not in failed)
    for figure in figures:
        if figure.name.endswith(" to alone"):
            assert len(figure.values) == 2, "those of the halves of the run"
            assert figure.pooled == figure.median
    _check_deliveries(running.bench.owner_url)


def test_two_people_go_on_reading_where_they_ended(
    running: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PAGES_OF_TWO_A_SECOND", 20.0)
    paths = {"cards": "/cards", "none": "/none", "system": "/system", "customers": "/customers"}
    reader = console.Reader(running, paths)

    windows = [asyncio.run(reader.read_on(0.1)) for _ in range(4)]

    assert [dict(window.statuses) for window in windows] == [{200: 1, 404: 1}, {200: 2}] * 2


def test_windows_alone_and_beside_pages_are_by_turns() -> None:
    order = "".join("b" if is_beside else "a" for is_beside in console.by_turns(4))

    assert order == "baabbaab"


_SHAPES = """
    SELECT DISTINCT d.type, d.sequence IS NULL, d.state, d.attempts, d.next_attempt_at IS NULL,
        d.last_status, d.delivered_at > d.created_at, d.endpoint_id, d.attempts_before,
        substr(d.id::text, 15, 1), a.number, a.status, a.error, a.response_head
    FROM webhook_deliveries d
    JOIN webhook_attempts a ON (a.delivery_id, a.customer_id) = (d.id, d.customer_id)
    WHERE d.state = 'DELIVERED' AND starts_with(d.type, 'CARD_TRANSACTION.')
        AND (d.id::text LIKE %s) = %s
"""
_STORED: Final = f"%{stored_deliveries.END}"


def _check_deliveries(url: str) -> None:
    """Check that stored deliveries are as those that were sent, but for those that have failed."""
    with psycopg.connect(url) as connection:
        [(stored, failed)] = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE state = 'FAILED') FROM webhook_deliveries"
            " WHERE id::text LIKE %s",
            [_STORED],
        ).fetchall()
        sent, made = (
            set(connection.execute(_SHAPES, [_STORED, is_made]).fetchall())
            for is_made in (False, True)
        )

    assert (stored, failed) == (120, 1)
    assert made == sent


def test_every_page_of_the_console_is_among_those_that_are_measured() -> None:
    routes = {
        route.path: route.path_regex
        for router in (*PAGES, *SANDBOX_PAGES)
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    measured = [f"{ROOT}{path}".partition("?")[0] for path in console.PAGES.values()]

    forgotten = {
        path for path, regex in routes.items() if not any(regex.match(each) for each in measured)
    }

    assert forgotten == {f"{navigation.SIMULATOR.path}/card"}, "it reads nothing: it redirects"


def test_webhooks_are_measured_from_a_backlog_and_at_a_rate(running: Service) -> None:
    figures = {
        figure.name: figure
        for figure in webhooks.measure(
            running, rounds=1, progress=lambda _: None, backlog=40, seconds=0.3
        )
    }

    assert set(figures) == {
        "webhooks delivered, a backlog, FIFO",
        "webhook, first attempt at 200 events/s, p50",
        "webhook, first attempt at 200 events/s, p99",
    }
    assert all(figure.median > 0 for figure in figures.values())
    with psycopg.connect(running.bench.owner_url) as connection:
        rows = connection.execute(
            "SELECT state, count(*) FROM webhook_deliveries WHERE type = %s"
            " AND endpoint_id IS NOT NULL AND id::text NOT LIKE %s GROUP BY state",
            ["CARD_TRANSACTION.AUTHORIZED", _STORED],
        ).fetchall()
    [(state, count)] = rows
    assert state == "DELIVERED"
    assert count >= 40 + 60  # The replay takes what the minute before has left, too.
