"""What a worker logs while PostgreSQL and Redis are away: not a line for every attempt."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess
from cardledger.workers.signals.outage_log import DATABASE, REDIS
from tests.api.support import SECRET_KEY, closed_port
from tests.waiting import eventually

ENOUGH = 40  # Failed attempts: each used to be a traceback.


def test_a_worker_without_postgresql_and_redis_logs_a_handful_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = WorkerConfig(
        database_url=f"postgresql://ada@127.0.0.1:{closed_port()}/nothing",
        redis_url=f"redis://127.0.0.1:{closed_port()}",
        secret_key=SECRET_KEY,
        sweep_interval_s=0.1,
    )
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    # Of an outage that an earlier test has begun there is no first line; it counts all the same.
    began = DATABASE.failures
    with capture_logs() as lines, caplog.at_level(logging.WARNING):
        process = WorkerProcess(config)
        process.start()
        eventually(lambda: DATABASE.failures >= began + ENOUGH and REDIS.is_out)
        process.stop()
    structlog.configure(**before)

    assert len(lines) <= 6, lines
    assert len(caplog.records) <= 6, caplog.text
    assert not any("exc_info" in line for line in lines)
