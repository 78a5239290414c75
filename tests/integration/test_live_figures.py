"""`cardledger top`: what a sample counts, and that it scans no table that grows."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.queries import live_figures
from cardledger.ledger.queries.live_figures import (
    ATTEMPTS,
    COUNT_LIMIT,
    DEPTHS,
    GROUPED,
    RATES,
    Sample,
)
from cardledger.ledger.storage.engines import driver, sync_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.roles import Role
from cardledger.schema.tables.webhooks import APPROVALS_EARLIER_BY
from tests.command_process import run_command
from tests.databases import as_role
from tests.system.support import environment
from tests.waiting import limit_s
from tests.world import World, open_world

STATEMENTS = {**RATES, "attempts": ATTEMPTS, **DEPTHS, **GROUPED}


@pytest.fixture
def world(database_url: DatabaseUrl, app_database_url: DatabaseUrl) -> Iterator[World]:
    with open_world(database_url, app_database_url) as made:
        yield made


@pytest.fixture
def connection(world: World) -> Iterator[psycopg.Connection[Any]]:
    """A connection as `top` has it: of the reader, planned for keys."""
    engine = sync_engine(as_role(world.app_url, Role.READER), keyed=True)
    with engine.connect() as outer:
        connection = driver(outer)
        connection.autocommit = True
        yield connection
        connection.autocommit = False
    engine.dispose()


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how the tables of `plan` are scanned."""
    if "Relation Name" in plan:
        yield plan["Node Type"], plan["Relation Name"]
    for part in plan.get("Plans", []):
        yield from scans(part)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_scans_no_table_from_the_beginning(
    connection: psycopg.Connection[Any], name: str
) -> None:
    explain = f"EXPLAIN (FORMAT JSON) {STATEMENTS[name]}"

    cursor = connection.execute(explain.encode(), live_figures.parameters(datetime.now(UTC)))
    row = cursor.fetchone()

    assert row is not None
    plan = json.dumps(row[0], indent=1)
    found = list(scans(row[0][0]["Plan"]))
    assert found or name == "attempts", plan
    assert all(kind.startswith(("Index", "Bitmap", "Tid Range")) for kind, _ in found), plan


def test_a_sample_counts_what_waits_and_what_was_decided(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    cardholder = world.cardholder(world.platform(), 5_000)
    engine = world.engine()
    authorizations = [world.authorization(cardholder, f"T{n}", 1_000) for n in range(7)]
    world.process(engine, [(cardholder, event) for event in authorizations])
    world.process(engine, [(cardholder, authorizations[0])])  # A duplicate.
    world.process(engine, [(cardholder, world.clearing(cardholder, "owing", 9_000))])
    reversal = world.event("CLEARING_REVERSAL", cardholder, "unknown", 10)
    world.process(engine, [(cardholder, reversal)])
    world.accept([(cardholder, world.authorization(cardholder, "live", 1))])
    bulk = [(cardholder, world.clearing(cardholder, f"bulk{n}", 1)) for n in range(3)]
    world.accept(bulk, Lane.BULK)

    world.connection.execute("SELECT enqueue(%s)", [Jsonb([authorizations[0]])])

    sample = live_figures.sample(connection)

    counts = {name: depth.count for name, depth in sample.depths.items()}
    assert sample.missing == []
    assert counts["inbox live"] == 1
    assert counts["inbox bulk"] == 3
    assert (sample.depths["inbox bulk"].age_s or -1) >= 0
    assert counts["enqueued"] == 1
    assert (sample.depths["enqueued"].age_s or -1) >= 0
    assert counts["outbox"] > 0
    assert (sample.depths["outbox"].age_s or -1) >= 0
    assert counts["exceptions"] == 1
    assert counts["parked"] == 1
    assert counts["rejected"] == counts["forged"] == counts["queues stalled"] == 0
    # The deposit, five approvals, the clearing; two declines: means of ten seconds.
    assert sample.decisions_per_s["APPLIED"] == pytest.approx(0.7)
    assert sample.decisions_per_s["DECLINED"] == pytest.approx(0.2)
    assert sample.decisions_per_s["DUPLICATE"] == pytest.approx(0.1)
    assert sample.decisions_per_s["PARKED"] == pytest.approx(0.1)


def test_an_approval_that_was_not_asked_for_is_due_since_its_dispatch(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    platform = world.platform()
    endpoint, at = new_id(), datetime.now(UTC) - timedelta(minutes=1)
    world.connection.execute(
        "INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode, state,"
        " created_at, updated_at)"
        " VALUES (%s, %s, false, 'https://h.example/', '{}', 'PARALLEL', 'ENABLED', now(), now())",
        [endpoint, platform],
    )
    world.connection.execute(
        "INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body,"
        " state, attempts, next_attempt_at, created_at, webhook_id, endpoint_id)"
        " VALUES (%(id)s, %(id)s, %(platform)s, 'INCOMING_PAYMENT.PENDING', %(id)s, '{}',"
        " 'PENDING', 0, %(first)s, %(at)s, %(id)s, %(endpoint)s)",
        {
            "id": new_id(),
            "platform": platform,
            "first": at - APPROVALS_EARLIER_BY,
            "at": at,
            "endpoint": endpoint,
        },
    )

    cursor = connection.execute(
        GROUPED["oldest due delivery"].encode(), live_figures.parameters(datetime.now(UTC))
    )
    row = cursor.fetchone()

    assert row is not None
    assert 60 <= row[0] < 60 + limit_s()


def test_a_count_ends_at_its_limit(world: World, connection: psycopg.Connection[Any]) -> None:
    fill = """
        INSERT INTO stalled_queues
        SELECT 0, 0, false, gen_random_uuid(), NULL, 'x', 1, now(), now()
        FROM generate_series(1, %s)
    """
    world.connection.execute(fill, [COUNT_LIMIT + 5])

    depth = live_figures.sample(connection).depths["cardholders stalled"]

    assert (depth.count, depth.is_capped) == (COUNT_LIMIT, True)


def test_only_the_end_of_a_long_table_is_read(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    fill = """
        INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash, message_id,
            outcome, recorded_at)
        SELECT %(id)s, %(id)s, 'test', 'r' || i, decode(repeat('00', 600), 'hex'),
            gen_random_uuid(), 'APPLIED', now() - interval '1 hour' + i * interval '1 second'
        FROM generate_series(1, 20000) i
    """
    world.connection.execute(fill.encode(), {"id": new_id()})

    cursor = connection.execute(
        f"EXPLAIN (ANALYZE, FORMAT JSON) {RATES['outcomes']}".encode(),
        live_figures.parameters(datetime.now(UTC)),
    )
    row = cursor.fetchone()

    assert row is not None
    read = [rows for kind, rows in rows_of(row[0][0]["Plan"]) if kind == "Tid Range Scan"]
    assert read
    assert 0 < read[0] < 15_000


def rows_of(plan: dict[str, Any]) -> Iterator[tuple[str, float]]:
    yield plan["Node Type"], plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    for part in plan.get("Plans", []):
        yield from rows_of(part)


def test_a_statement_that_takes_too_long_is_named(
    world: World, connection: psycopg.Connection[Any]
) -> None:
    connection.execute("SET lock_timeout = 0")
    connection.execute("SET statement_timeout = '100ms'")
    with psycopg.connect(world.url) as other:
        other.execute("LOCK TABLE parked IN ACCESS EXCLUSIVE MODE")

        sample: Sample = live_figures.sample(connection)

    assert sample.missing == ["parked"]
    assert "parked" not in sample.depths
    assert "outbox" in sample.depths


def test_top_prints_one_sample(world: World, tmp_path: Path) -> None:
    env = environment(DATABASE_URL=as_role(world.app_url, Role.READER))

    text = run_command("top", "--once", env=env, cwd=tmp_path)
    line = run_command("top", "--once", "--json", env=env, cwd=tmp_path)

    assert text.returncode == 0, text.stderr
    assert "decisions/s" in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80
    [sample] = [json.loads(one) for one in line.stdout.splitlines()]
    assert len(sample["depths"]) == len(DEPTHS)
    assert not sample["depths"]["inboxLive"]["isCapped"]
    assert sample["webhookAttemptsPerSecond"] == 0


def test_top_without_a_system_says_how_to_start_one(tmp_path: Path) -> None:
    finished = run_command("top", "--once", env=environment(), cwd=tmp_path)

    assert finished.returncode == 1
    assert "no system runs in" in finished.stderr
