"""Jobs that create customers, without a server, so that nothing advances by itself."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.background.customer_uploads import CustomerUploads
from cardledger.api.background.upkeep import Upkeep
from cardledger.ledger.customers.uploads import csv_files, registry
from cardledger.ledger.sandbox.identity_verifier import SandboxIdentityVerifier
from cardledger.ledger.storage.caps import CapReachedError
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id
from tests.api.support import SECRET_KEY, Tenant, new_tenant
from tests.api.test_customer_uploads import people, person, text_of
from tests.command_process import FORKING
from tests.steps import result_of
from tests.waiting import eventually, limit_s


class _Runner:
    """What advances jobs, in a test of its own."""

    def __init__(self, config: ApiConfig) -> None:
        self._config = config

    def run(self, *, steps: int | None = None) -> int:
        """Advance jobs until there is nothing to do, or by so many steps; returns how many."""
        return asyncio.run(self._run(steps))

    async def _run(self, steps: int | None) -> int:
        url = self._config.database_url
        platforms, installation = PlatformConnections(url, keyed=True), async_engine(url)
        runner = CustomerUploads(
            platforms,
            installation,
            verifier=SandboxIdentityVerifier(),
            keys=KeyRing(SECRET_KEY),
            clock=lambda: datetime.now(UTC),
        )
        done = 0
        try:
            while (steps is None or done < steps) and await runner.step():
                done += 1
        finally:
            await platforms.dispose()
            await installation.dispose()
        return done


def enqueue(config: ApiConfig, tenant: Tenant, content: bytes) -> Id:
    async def create() -> Id:
        platforms = PlatformConnections(config.database_url, keyed=True)
        try:
            async with platforms.writing(tenant.platform_id) as connection:
                job = await registry.create(
                    connection,
                    platform_id=tenant.platform_id,
                    file=result_of(csv_files.parse(content)),
                    at=datetime.now(UTC),
                )
        finally:
            await platforms.dispose()
        key: Id = job.id
        return key

    return asyncio.run(create())


def counts(url: str, tenant: Tenant) -> tuple[int, int]:
    """Return how many customers a platform has, and how many names they have."""
    with psycopg.connect(url) as connection:
        [row] = connection.execute(
            "SELECT count(*), count(DISTINCT platform_customer_id) FROM customers"
            " WHERE platform_id = %s",
            [tenant.platform_id],
        )
    return row


def state_of(url: str, key: Id) -> tuple[str, int, int]:
    with psycopg.connect(url) as connection:
        [row] = connection.execute(
            "SELECT status, processed, failed FROM customer_uploads WHERE id = %s", [key]
        )
    return row


def test_a_job_advances_by_parts_and_shows_its_progress(
    api_config: ApiConfig, database_url: str
) -> None:
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    key = enqueue(api_config, tenant, people(120))

    before = state_of(database_url, key)
    runner.run(steps=1)
    after = state_of(database_url, key)
    runner.run()

    assert before == ("PENDING", 0, 0)
    assert after == ("PROCESSING", 50, 0)
    assert state_of(database_url, key) == ("COMPLETED", 120, 0)
    assert counts(database_url, tenant) == (120, 120)


def _has_processed(url: str, key: Id, least: int) -> bool:
    return state_of(url, key)[1] >= least


def test_a_process_that_is_killed_in_the_middle_leaves_every_row_to_be_processed_once(
    api_config: ApiConfig, database_url: str
) -> None:
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    key = enqueue(api_config, tenant, people(600))
    kills = 0

    for threshold in (1, 150, 300):
        process = FORKING.Process(target=runner.run)
        process.start()
        eventually(partial(_has_processed, database_url, key, threshold))
        process.kill()
        process.join(limit_s())
        kills += state_of(database_url, key)[0] == "PROCESSING"
    runner.run()

    assert kills, "it was killed in the middle of its work"
    assert state_of(database_url, key) == ("COMPLETED", 600, 0)
    assert counts(database_url, tenant) == (600, 600)


def test_processes_side_by_side_process_every_row_once(
    api_config: ApiConfig, database_url: str
) -> None:
    tenant = new_tenant(api_config.database_url)
    keys = [enqueue(api_config, tenant, text_of(*rows)) for rows in _distinct(3, 120)]

    processes = [FORKING.Process(target=_Runner(api_config).run) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(limit_s())
    _Runner(api_config).run()

    assert [state_of(database_url, key) for key in keys] == [("COMPLETED", 120, 0)] * 3
    assert counts(database_url, tenant) == (360, 360)


def _distinct(files: int, rows: int) -> list[list[list[str]]]:
    return [[person(f"{file}-{row}") for row in range(rows)] for file in range(files)]


def test_a_platform_has_5_unfinished_jobs_at_most(api_config: ApiConfig, database_url: str) -> None:
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    for _ in range(5):
        enqueue(api_config, tenant, people(1))

    with pytest.raises(CapReachedError) as refusal:
        enqueue(api_config, tenant, people(1))
    runner.run()

    assert refusal.value.limit == 5
    enqueue(api_config, tenant, people(1))
    runner.run()
    assert counts(database_url, tenant)[0] == 1


def test_a_job_is_deleted_long_after_its_end(api_config: ApiConfig, database_url: str) -> None:
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    ended = enqueue(api_config, tenant, people(1))
    runner.run()
    waits = enqueue(api_config, tenant, people(1))

    async def upkeep(later: timedelta) -> int:
        url = api_config.database_url
        platforms, installation = PlatformConnections(url, keyed=True), async_engine(url)
        kept = Upkeep(platforms, installation, files=None, clock=lambda: datetime.now(UTC) + later)
        removed = await kept.step()
        await platforms.dispose()
        await installation.dispose()
        return removed

    assert asyncio.run(upkeep(timedelta(days=89))) == 0
    assert asyncio.run(upkeep(timedelta(days=91))) >= 1
    with psycopg.connect(database_url) as connection:
        left = connection.execute(
            "SELECT id FROM customer_uploads WHERE platform_id = %s", [tenant.platform_id]
        ).fetchall()
    assert [str(key) for (key,) in left] == [str(waits)]
    assert ended != waits


def test_the_newest_jobs_of_a_platform_are_kept(
    api_config: ApiConfig, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "KEPT_LIMIT", 2)
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    keys = []
    for _ in range(4):
        keys.append(enqueue(api_config, tenant, people(1)))
        runner.run()

    with psycopg.connect(database_url) as connection:
        left = connection.execute(
            "SELECT id FROM customer_uploads WHERE platform_id = %s ORDER BY id",
            [tenant.platform_id],
        ).fetchall()
    assert [str(key) for (key,) in left] == [str(key) for key in keys[2:]]


def test_a_row_that_no_text_column_can_keep_fails_alone(
    api_config: ApiConfig, database_url: str
) -> None:
    tenant, runner = new_tenant(api_config.database_url), _Runner(api_config)
    key = enqueue(api_config, tenant, text_of(person("a\0b"), person("good")))

    runner.run()

    assert state_of(database_url, key) == ("COMPLETED", 2, 1)


def test_a_job_that_cannot_advance_keeps_no_other_one_waiting(
    api_config: ApiConfig, database_url: str
) -> None:
    runner, broken = _Runner(api_config), new_tenant(api_config.database_url)
    stuck = enqueue(api_config, broken, people(1))
    with psycopg.connect(database_url) as connection:
        change = "UPDATE customer_upload_parts SET rows = 'cut off' WHERE upload_id = %s"
        connection.execute(change, [stuck])
    key = enqueue(api_config, new_tenant(api_config.database_url), people(1))

    runner.run()

    assert state_of(database_url, key) == ("COMPLETED", 1, 0)
    assert state_of(database_url, stuck) == ("PENDING", 0, 0)
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM customer_upload_parts WHERE upload_id = %s", [stuck])
    runner.run()
