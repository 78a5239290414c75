"""The proxy of the storm, in front of a server that sends back what it gets."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typing_extensions import override

from storm.proxy import Link, Network, Trap
from tests.waiting import eventually, limit_s


class Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets."""

    @override
    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


@pytest.fixture
def link() -> Iterator[Link]:
    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server,
        Network() as network,
    ):
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        host, port = server.server_address[:2]
        yield network.link("test", (str(host), port))
        server.shutdown()


@contextmanager
def connection(link: Link) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", link.port), limit_s()) as made:
        yield made


def echoed(client: socket.socket, data: bytes) -> bytes:
    """Send `data`; return what comes back until as much has come, or the connection has ended."""
    client.sendall(data)
    got = b""
    try:
        while len(got) < len(data) and (more := client.recv(1 << 16)):
            got += more
    except ConnectionResetError:
        pass
    return got


def is_silent(client: socket.socket) -> bool:
    client.settimeout(0.1)
    try:
        return not client.recv(1, socket.MSG_PEEK) and False
    except TimeoutError:
        return True
    finally:
        client.settimeout(limit_s())


def test_what_is_sent_arrives(link: Link) -> None:
    data = bytes(range(256)) * 4_000

    with connection(link) as client:
        assert echoed(client, data) == data


def test_a_frozen_link_accepts_and_forwards_nothing_until_it_thaws(link: Link) -> None:
    with connection(link) as client:
        assert echoed(client, b"before") == b"before"
        link.freeze()
        client.sendall(b"held")
        eventually(lambda: link.held_bytes == 4)
        assert is_silent(client)
        with connection(link) as another:
            another.sendall(b"new")
            assert is_silent(another)

            link.thaw()

            assert client.recv(10) == b"held"
            assert another.recv(10) == b"new"


def test_a_silent_connection_leaves_the_others_alone(link: Link) -> None:
    with connection(link) as one:
        assert echoed(one, b"a") == b"a"
        assert link.freeze_present() == 1
        one.sendall(b"lost")
        with connection(link) as other:
            assert echoed(other, b"b") == b"b"
        assert is_silent(one)

        eventually(lambda: link.cut_frozen() == 4)

        assert not is_silent(one)


def test_connections_are_cut_in_the_middle_of_a_message(link: Link) -> None:
    with connection(link) as client:
        link.cut_after(1_000)

        assert len(echoed(client, bytes(5_000))) < 5_000
        eventually(lambda: link.cut_connections == 1)

    with connection(link) as client:
        assert echoed(client, b"after") == b"after"


@pytest.mark.parametrize("trap", Trap)
def test_a_connection_is_cut_at_a_marked_message(link: Link, trap: Trap) -> None:
    with connection(link) as client:
        link.cut_at(b"COMMIT", trap)
        assert echoed(client, b"other") == b"other"

        assert echoed(client, b"COMMIT") == b""

        assert link.trapped == 1
        eventually(lambda: link.connections == 0)


def test_a_delay_is_counted_and_changes_nothing(link: Link) -> None:
    with connection(link) as client:
        link.delay(0.01)

        assert echoed(client, b"slow") == b"slow"

        assert link.delayed_bytes == 8
