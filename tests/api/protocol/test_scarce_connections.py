"""More clients than connections."""

import select
import socket
from contextlib import ExitStack
from dataclasses import replace

import psycopg

from cardledger.api.app import ApiConfig
from cardledger.api.connections.crowd import FRESH_S
from cardledger.api.connections.limits import ConnectionLimits
from tests.api.protocol.support import all_of, connection, head, one_of, refusal
from tests.api.support import TIMEOUT_S, Tenant, server
from tests.waiting import eventually


def test_health_checks_are_answered_while_every_connection_is_busy(
    api_config: ApiConfig, database_url: str, tenant: Tenant
) -> None:
    create = head(tenant, "Content-Length: 49")
    create += b'{"customerType": "INDIVIDUAL", "fullName": "Ada"}'
    limits = ConnectionLimits(connections=2, per_address=2)
    with (
        server(api_config, limits=limits) as url,
        psycopg.connect(database_url) as other,
        ExitStack() as stack,
    ):
        other.execute("LOCK TABLE customers IN SHARE MODE")
        for _ in range(2):
            stack.enter_context(connection(url)).sendall(create)
        eventually(lambda: waiting(api_config) == 2)

        with connection(url) as opened:
            opened.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            alive = all_of(opened)
        with connection(url) as opened:
            opened.sendall(create)
            refused = all_of(opened)
        assert waiting(api_config) == 2

    assert alive.startswith(b"HTTP/1.1 200 ")
    assert refusal(refused, "SERVICE_UNAVAILABLE")[0] == 503


def waiting(api_config: ApiConfig) -> int:
    """Return how many sessions wait for a lock."""
    with psycopg.connect(api_config.database_url) as connection:
        query = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def test_a_client_that_sends_a_byte_now_and_then_makes_room_before_an_idle_one(
    api_config: ApiConfig, tenant: Tenant
) -> None:
    asked = head(tenant, request="GET {}/config HTTP/1.1")
    limits = ConnectionLimits(
        connections=3,
        per_address=3,
        head_timeout_s=2 * FRESH_S,
        body_timeout_s=TIMEOUT_S,
        stall_timeout_s=TIMEOUT_S,
        keep_alive_s=3600,
    )
    with (
        server(replace(api_config, body_timeout_s=TIMEOUT_S), limits=limits) as url,
        connection(url) as idle,
        connection(url) as dripping,
    ):
        idle.sendall(asked)
        assert one_of(idle).startswith(b"HTTP/1.1 200 ")
        dripping.sendall(head(tenant, "Content-Length: 1000"))
        with connection(url) as witness:
            eventually(lambda: drip(dripping, witness), poll_s=0.05)
        with connection(url) as third, connection(url) as fourth:
            third.sendall(asked)
            fourth.sendall(asked)
            assert one_of(third).startswith(b"HTTP/1.1 200 ")
            assert one_of(fourth).startswith(b"HTTP/1.1 200 ")
            idle.sendall(asked)
            assert one_of(idle).startswith(b"HTTP/1.1 200 ")


def drip(dripping: socket.socket, witness: socket.socket) -> bool:
    """Send a byte; return whether the server has closed `witness`, whose head does not arrive."""
    dripping.sendall(b" ")
    readable, _, _ = select.select([witness], [], [], 0)
    return bool(readable)
