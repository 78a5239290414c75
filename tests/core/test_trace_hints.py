"""A Redis that does not respond delays webhooks by the time-out of one look-up."""

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cardledger.ledger.webhooks.leases import Delivery
from cardledger.schema.ids import Id
from cardledger.workers.signals.redis_connections import connect
from cardledger.workers.tracing.hints import TraceHints

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def delivery(*, attempts: int = 0) -> Delivery:
    none = Id(bytes(16))
    return Delivery(
        id=none,
        webhook=none,
        customer_id=none,
        platform_id=none,
        type="CARD_TRANSACTION.SETTLED",
        subject_id=none,
        body=json.dumps({"sequence": 1}).encode(),
        attempts=attempts,
        leased_until=NOON,
        endpoint_id=none,
        endpoint_version=NOON,
        url="https://example.com",
        is_fifo=False,
        failing_since=None,
    )


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def connections(server: socket.socket) -> int:
    count = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_a_silent_redis_is_asked_once_and_then_left_alone(silent: socket.socket) -> None:
    url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
    hints = TraceHints(connect(url, timeout_s=0.05))

    found = [hints.of(delivery()) for _ in range(50)]

    assert found == [None] * 50
    assert connections(silent) == 1


def test_later_attempts_look_for_no_trace(silent: socket.socket) -> None:
    url = f"redis://127.0.0.1:{silent.getsockname()[1]}"

    TraceHints(connect(url, timeout_s=0.05)).of(delivery(attempts=1))

    assert connections(silent) == 0
