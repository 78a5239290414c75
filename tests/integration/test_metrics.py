"""The port of a worker's metrics, and figures of tables: bounded, cached, for their roles."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress

import httpx2
import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.workers.metrics import families, table_figures
from cardledger.workers.metrics.access import Access, MetricsConfig
from cardledger.workers.metrics.instruments import Labels, Source
from cardledger.workers.metrics.server import MetricsPortError, MetricsServer
from cardledger.workers.metrics.table_figures import TableFigures
from tests.waiting import eventually, limit_s
from tests.world import World, open_world

TOKEN = "a token of metrics, 32 characters long"


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


def figures_of(source: Source) -> dict[str, Mapping[Labels, float]]:
    """Return the numbers that `source` has now, by family and labels."""
    return {
        family.name: {sample.labels: sample.value for sample in samples}
        for family, samples in source.read()
    }


def test_a_worker_reads_what_waits_and_what_owes_money(world: World) -> None:
    cardholder = world.cardholder(world.platform(), 5_000)
    engine = world.engine()
    world.process(engine, [(cardholder, world.clearing(cardholder, "owing", 9_000))])
    world.process(
        engine, [(cardholder, world.event("CLEARING_REVERSAL", cardholder, "unknown", 1))]
    )
    world.accept([(cardholder, world.authorization(cardholder, "live", 1))])

    found = figures_of(TableFigures(world.worker_url, table_figures.OF_EVENTS))

    assert found[families.TABLES_READ.name] == {(): 1}
    assert found[families.INBOX_DEPTH.name] == {("live",): 1, ("bulk",): 0}
    assert found[families.INBOX_AGE.name]["live",] >= 0
    assert found[families.PARKED.name] == {(): 1}
    assert found[families.EXCEPTIONS.name] == {("USD",): 1}
    assert found[families.EXCEPTIONS_DUE.name] == {("USD",): 9_000}
    assert found[families.EXCEPTIONS_OWED.name] == {("USD",): 9_000}
    assert found[families.EXCEPTIONS_AGE.name]["USD",] >= 0
    assert found[families.REJECTIONS.name] == {}


def test_a_sender_of_webhooks_reads_what_its_role_may(world: World) -> None:
    world.cardholder(world.platform(), 5_000)

    found = figures_of(TableFigures(world.webhooks_url, table_figures.OF_WEBHOOKS))

    assert found[families.TABLES_READ.name] == {(): 1}
    assert found[families.OUTBOX_DEPTH.name][()] > 0
    assert found[families.DELIVERIES_PENDING.name] == {(): 0}
    assert found[families.DELIVERY_OVERDUE.name] == {(): 0}


def test_figures_are_kept_and_those_of_a_locked_table_are_missing(world: World) -> None:
    figures = TableFigures(world.worker_url, table_figures.OF_EVENTS)
    with psycopg.connect(world.url) as other:
        other.execute("LOCK TABLE parked IN ACCESS EXCLUSIVE MODE")

        found = figures_of(figures)

    assert found[families.TABLES_READ.name] == {(): 0}
    assert families.PARKED.name not in found
    assert families.QUEUES_STALLED.name in found
    assert figures_of(figures) == found, "PostgreSQL is asked again only after some seconds"


def test_without_postgresql_there_are_no_figures(dead_postgres: str) -> None:
    found = figures_of(TableFigures(dead_postgres, table_figures.OF_EVENTS))

    assert found == {families.TABLES_READ.name: {(): 0}}


@pytest.fixture
def dead_postgres() -> Iterator[str]:
    """The URL of a port that no process listens on and no other process can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"postgresql://ada@127.0.0.1:{taken.getsockname()[1]}/nothing"


# --- the port ------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer(MetricsConfig(port=0), (), time_limit_s=0.3)
    made.start()
    yield made
    made.stop()


def get(server: MetricsServer, path: str = "/metrics", **headers: str) -> httpx2.Response:
    return httpx2.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=limit_s())


def test_a_port_serves_the_page_and_nothing_else(server: MetricsServer) -> None:
    page = get(server)

    assert page.status_code == 200
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "process_cpu_seconds_total" in page.text
    assert get(server, "/").status_code == 404
    assert get(server, **{"X-Forwarded-For": "127.0.0.1"}).status_code == 404
    assert httpx2.post(f"http://127.0.0.1:{server.port}/metrics").status_code == 404


def test_a_port_with_a_token_demands_it() -> None:
    server = MetricsServer(MetricsConfig(port=0, access=Access(token=TOKEN)), ())
    server.start()
    try:
        refused, allowed = get(server), get(server, authorization=f"Bearer {TOKEN}")
    finally:
        server.stop()

    assert (refused.status_code, allowed.status_code) == (401, 200)
    assert refused.headers["www-authenticate"] == 'Bearer realm="metrics"'


def test_clients_that_send_nothing_or_too_much_are_left_after_a_moment(
    server: MetricsServer,
) -> None:
    address = ("127.0.0.1", server.port)
    silent = [socket.create_connection(address, timeout=limit_s()) for _ in range(30)]
    for each in silent:
        with closing(each):
            assert each.recv(100) == b""
    with closing(socket.create_connection(address, timeout=limit_s())) as endless:
        endless.sendall(b"GET /metrics HTTP/1.1\r\n" + b"a: " + b"b" * 40_000)
        with suppress(ConnectionResetError):  # What it has sent was not read to its end.
            assert endless.recv(100) == b""

    assert eventually(lambda: get(server).status_code == 200)


def test_a_port_in_use_is_an_error_with_its_name(server: MetricsServer) -> None:
    with pytest.raises(MetricsPortError, match="choose another CARDLEDGER_METRICS_PORT"):
        MetricsServer(MetricsConfig(port=server.port), ())
