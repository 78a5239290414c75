"""More clients than connections."""

from contextlib import ExitStack

import psycopg

from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from tests.api.protocol.support import all_of, connection, head, refusal
from tests.api.support import Tenant, server
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
