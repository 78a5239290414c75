"""A Redis for machines that have none: fakeredis' TCP server, in memory, on loopback.

    python -m cardledger.embedded.fake_redis PORT

Enough for Dramatiq, its Lua scripts included, at about a sixth of a real server's rate. It keeps
nothing: that costs no money facts, because PostgreSQL is the record and Redis only rings the
doorbell.
"""

import signal
import sys
from types import FrameType
from typing import Any

from fakeredis import FakeRedisConnection, TcpFakeServer
from redis import ResponseError

LOOPBACK = "127.0.0.1"


def main(port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    _answer_errors_without_hanging_up()
    server = TcpFakeServer((LOOPBACK, port), server_version=(7, 0))
    server.daemon_threads = True  # Else an open connection would keep the process.
    with server.socket:
        server.serve_forever()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    # The threads poll their clients for ever and there is nothing to save, so just go.
    raise SystemExit(0)


def _answer_errors_without_hanging_up() -> None:
    """Make an error a reply like any other.

    The TCP server of fakeredis 2.40 closes the connection after every error reply. The first
    message that Dramatiq sends is answered NOSCRIPT, and loading the script then fails on a closed
    connection: measured, every second start lost its first message.
    """
    read = FakeRedisConnection.read_response

    def read_response(self: FakeRedisConnection, **options: Any) -> Any:  # noqa: ANN401 - as there.
        try:
            return read(self, **options)
        except ResponseError as error:
            return error

    FakeRedisConnection.read_response = read_response  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    main(int(sys.argv[1]))
