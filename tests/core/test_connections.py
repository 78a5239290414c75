"""Which connections are admitted, which makes room, and where a pipelined request ends."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.api.addresses import (
    counted_as,
    is_within,
    parse_networks,
    with_mapped,
)
from cardledger.api.connections.crowd import FRESH_S, Crowd
from cardledger.api.connections.limits import (
    DEFAULT_CONNECTIONS,
    RESERVE,
    ConnectionLimits,
    TooFewFilesError,
    backlog_of,
    connections_of,
)
from cardledger.api.connections.registry import Admission, ConnectionRegistry
from cardledger.api.connections.request_head import (
    HEAD_END,
    PIECE,
    host_error,
    is_one_request,
    length_of_body,
    piece_end,
)

MEBIBYTE = 1024 * 1024

# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("open_files", "connections"), [(1024, 512), (4096, 2816), (20_000, 4000), (1 << 20, 4000)]
)
def test_the_limit_of_connections_leaves_files_for_others(
    open_files: int, connections: int
) -> None:
    assert connections_of(open_files, None) == connections


@given(st.integers(min_value=512, max_value=1 << 20))
def test_connections_and_those_that_wait_to_be_accepted_have_files(open_files: int) -> None:
    connections = connections_of(open_files, None)

    assert connections <= DEFAULT_CONNECTIONS
    assert connections + backlog_of(open_files) + RESERVE < open_files


@pytest.mark.parametrize(("open_files", "wanted"), [(256, None), (1024, 513), (20_000, 20_000)])
def test_a_limit_for_which_there_are_too_few_files_is_refused(
    open_files: int, wanted: int | None
) -> None:
    with pytest.raises(TooFewFilesError, match="raise the hard limit of open files"):
        connections_of(open_files, wanted)


# --- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("", ""),
        ("/run/socket", ""),
    ],
)
def test_an_ipv6_network_counts_as_one_address(address: str, counted: str) -> None:
    assert counted_as(address) == counted


def test_proxies_are_addresses_and_networks() -> None:
    networks = parse_networks("10.0.0.0/8, 192.0.2.1,::1,")

    assert is_within("10.200.0.1", networks)
    assert is_within("::1", networks)
    assert not is_within("192.0.2.2", networks)
    assert not is_within("", networks)
    assert parse_networks("") == ()


def test_a_socket_for_both_versions_of_ip_knows_the_proxies_of_ipv4() -> None:
    networks = parse_networks("10.0.0.0/8,::1")

    assert is_within("::ffff:10.1.2.3", networks)
    assert with_mapped(networks) == ["10.0.0.0/8", "::1/128", "::ffff:10.0.0.0/104"]


@pytest.mark.parametrize("text", ["*", "10.0.0.1/8", "proxy.internal", "10.0.0.1,*"])
def test_proxies_must_be_named_by_address(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_networks(text)


# --- heads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [b"x", b"example.com:443", b"[::1]:8000", b"127.0.0.1"])
def test_one_host_is_right(host: bytes) -> None:
    assert host_error([(b"accept", b"*/*"), (b"host", host)], "1.1") is None


@pytest.mark.parametrize(
    ("hosts", "word"),
    [
        ([], "Missing"),
        ([b"a", b"a"], "Duplicate"),
        ([b""], "Invalid"),
        ([b"a b"], "Invalid"),
        ([b"user@a"], "Invalid"),
        ([b"a/b"], "Invalid"),
        ([b"a:port"], "Invalid"),
    ],
)
def test_another_number_of_hosts_is_wrong(hosts: list[bytes], word: str) -> None:
    message = host_error([(b"host", host) for host in hosts], "1.1")

    assert message is not None
    assert message.startswith(word)


def test_http_1_0_needs_no_host() -> None:
    assert host_error([], "1.0") is None
    assert host_error([(b"host", b"a"), (b"host", b"b")], "1.0") is not None


@given(st.lists(st.sampled_from([b"GET / HTTP/1.1\r\nHost: x", HEAD_END, b"x" * 5000]), max_size=9))
def test_a_piece_ends_at_the_end_of_a_head(parts: list[bytes]) -> None:
    data = b"".join(parts)
    pieces = []
    start = 0
    while start < len(data):
        end = piece_end(data, start)
        pieces.append(data[start:end])
        start = end

    assert b"".join(pieces) == data
    assert all(len(piece) <= PIECE for piece in pieces)
    assert all(HEAD_END not in piece[:-1] for piece in pieces)


def test_a_head_with_its_body_is_one_request() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n"

    assert is_one_request(head + b"{}")
    assert not is_one_request(head + b"{}" + head)
    assert not is_one_request(b"x" * (PIECE + 1))


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        ([], 0),
        ([(b"content-length", b"0")], 0),
        ([(b"host", b"x"), (b"content-length", b"1000")], 1000),
        ([(b"content-length", b"18446744073709551615")], 2**64 - 1),
        ([(b"transfer-encoding", b"chunked")], None),
        ([(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], None),
    ],
)
def test_the_length_of_a_body_is_known_from_its_head(
    headers: list[tuple[bytes, bytes]], length: int | None
) -> None:
    assert length_of_body(headers) == length


# --- the registry ------------------------------------------------------------------------------


@dataclass(eq=False)
class Peer:
    """A connection as the registry sees it."""

    address: str = "192.0.2.1"
    since: float | None = 0.0  # None: its request is being processed.
    is_idle: bool = False
    checked_at: list[float] = field(default_factory=list)
    is_open: bool = True
    looks: int = 0

    def waiting_since(self) -> float | None:
        self.looks += 1
        return self.since

    def check(self, now: float) -> None:
        self.checked_at.append(now)

    def evict(self) -> None:
        self.is_open = False


class Loop(asyncio.SelectorEventLoop):
    """Its time is set by the test."""

    seconds = 0.0

    def time(self) -> float:
        return self.seconds


@pytest.fixture
def loop() -> Iterator[Loop]:
    with closing(Loop()) as made:
        yield made


def registry(connections: int = 8, per_address: int = 4) -> ConnectionRegistry:
    made = ConnectionRegistry(ConnectionLimits(connections=connections, per_address=per_address))
    made.now = 100.0
    return made


def admit(to: ConnectionRegistry, loop: Loop, *peers: Peer) -> list[Admission]:
    return [to.admit(peer, loop) for peer in peers]


def test_the_client_that_has_been_slow_for_longest_makes_room(loop: Loop) -> None:
    slow, slower, idle = Peer(since=50.0), Peer(since=40.0), Peer(since=10.0, is_idle=True)
    busy = Peer(since=None)
    filled = registry()
    admit(filled, loop, slow, slower, idle, busy)

    assert admit(filled, loop, Peer(since=100.0)) == [Admission.ADMITTED]

    assert [each.is_open for each in (slow, slower, idle, busy)] == [True, False, True, True]


def test_an_idle_connection_makes_room_before_one_that_has_just_been_opened(
    loop: Loop,
) -> None:
    fresh, idle = Peer(since=99.9), Peer(since=99.0, is_idle=True)
    filled = registry(per_address=2)
    admit(filled, loop, fresh, idle)

    assert admit(filled, loop, Peer(since=100.0)) == [Admission.ADMITTED]

    assert fresh.is_open
    assert not idle.is_open


def test_an_address_makes_room_among_its_own_connections(loop: Loop) -> None:
    other = Peer(address="192.0.2.2", since=0.0)
    own = [Peer(since=50.0 + number) for number in range(4)]
    filled = registry()
    admit(filled, loop, other, *own)

    admit(filled, loop, Peer(since=100.0))

    assert other.is_open
    assert not own[0].is_open


def test_a_proxy_is_not_limited_as_an_address(loop: Loop) -> None:
    limits = ConnectionLimits(per_address=1, proxies=parse_networks("10.0.0.0/8"))
    filled = ConnectionRegistry(limits)

    peers = [Peer(address=filled.address_of("10.0.0.1")) for _ in range(9)]

    assert set(admit(filled, loop, *peers)) == {Admission.ADMITTED}
    assert all(peer.is_open for peer in peers)


def test_while_all_are_busy_a_reserve_is_for_health_checks(loop: Loop) -> None:
    filled = registry()
    busy = [Peer(address=f"192.0.2.{number}", since=None) for number in range(8)]
    admit(filled, loop, *busy)

    reserved = [Peer(address=f"198.51.100.{number}", since=None) for number in range(RESERVE)]

    assert set(admit(filled, loop, *reserved)) == {Admission.HEALTH_ONLY}
    assert admit(filled, loop, Peer(address="203.0.113.1")) == [Admission.REFUSED]
    assert all(peer.is_open for peer in busy + reserved)
    reserved[5].since = 0.0  # Its client does not send a request.
    assert admit(filled, loop, Peer(address="203.0.113.2")) == [Admission.HEALTH_ONLY]
    assert not reserved[5].is_open


def test_a_connection_that_was_removed_is_not_counted(loop: Loop) -> None:
    filled = registry(per_address=1)
    for _ in range(9):
        peer = Peer(since=None)
        assert admit(filled, loop, peer) == [Admission.ADMITTED]
        filled.remove(peer)
        filled.remove(peer)

    assert len(filled) == 0


def test_time_in_which_the_process_did_not_run_hardly_counts(loop: Loop) -> None:
    looked = registry()
    peer = Peer()
    admit(looked, loop, peer)

    for passed in (0.5, 60.0, 0.5):
        loop.seconds += passed
        loop.call_soon(loop.stop)
        loop.run_forever()

    assert peer.checked_at == [100.5, 101.5, 102.0]


peers = st.builds(
    Peer, since=st.none() | st.floats(min_value=0, max_value=100), is_idle=st.booleans()
)


@given(st.lists(peers, min_size=1, max_size=20))
def test_connections_make_room_in_one_order_slow_then_idle_then_fresh(members: list[Peer]) -> None:
    def order(peer: Peer) -> tuple[int, float]:
        assert peer.since is not None
        return (1 if peer.is_idle else 2 if 100.0 - peer.since < FRESH_S else 0), peer.since

    crowd = Crowd()
    for peer in members:
        crowd.add(peer)
    closed: list[Peer] = []
    while (victim := crowd.victim(100.0)) is not None:
        assert isinstance(victim, Peer)
        crowd.discard(victim)
        closed.append(victim)

    waiting = [peer for peer in members if peer.since is not None]
    assert [order(peer) for peer in closed] == sorted(order(peer) for peer in waiting)


def test_a_connection_that_is_used_since_the_look_stays(loop: Loop) -> None:
    first, second, third = (Peer(since=50.0 + number, is_idle=True) for number in range(3))
    filled = registry(per_address=3)
    admit(filled, loop, first, second, third, Peer())
    assert not first.is_open

    second.since = None
    admit(filled, loop, Peer(since=100.0))

    assert second.is_open
    assert not third.is_open


def test_a_connection_that_was_opened_since_the_look_makes_room_as_well(loop: Loop) -> None:
    filled = registry(per_address=1)
    opened = [Peer(since=100.0) for _ in range(9)]

    assert set(admit(filled, loop, *opened)) == {Admission.ADMITTED}

    assert [peer.is_open for peer in opened] == [False] * 8 + [True]


def test_what_became_slow_is_found_after_the_next_tick(loop: Loop) -> None:
    idle = [Peer(since=50.0, is_idle=True) for _ in range(4)]
    filled = registry()
    admit(filled, loop, *idle, Peer(since=100.0))
    late = next(peer for peer in idle[::-1] if peer.is_open)
    late.since, late.is_idle = 60.0, False

    loop.seconds += 0.5
    loop.call_soon(loop.stop)
    loop.run_forever()
    admit(filled, loop, Peer(since=100.5))

    assert not late.is_open


def tick(loop: Loop, seconds: float) -> None:
    loop.seconds += seconds
    loop.call_soon(loop.stop)
    loop.run_forever()


@pytest.mark.parametrize("per_address", [200, 800], ids=["of the address", "of all"])
def test_for_an_address_with_many_connections_few_are_closed_a_second(
    loop: Loop, per_address: int
) -> None:
    """A client opened again at once what was closed for another connection of its own."""
    filled = registry(connections=200, per_address=per_address)
    admit(filled, loop, *(Peer(since=50.0, is_idle=True) for _ in range(200)))

    burst = admit(filled, loop, *(Peer(since=100.0) for _ in range(150)))
    tick(loop, 0.5)
    later = admit(filled, loop, *(Peer(since=100.0) for _ in range(50)))

    assert Counter(burst) == {Admission.ADMITTED: 100, Admission.HEALTH_ONLY: 50}
    assert Counter(later) == {Admission.ADMITTED: 10, Admission.HEALTH_ONLY: 40}
    assert len(filled) == 200 + RESERVE
    tick(loop, 60.0)
    assert filled._room == {}


def test_an_address_with_few_connections_has_room_always(loop: Loop) -> None:
    filled = registry(connections=200, per_address=200)
    admit(filled, loop, *(Peer(since=50.0, is_idle=True) for _ in range(200)))
    greedy = admit(filled, loop, *(Peer(since=100.0) for _ in range(200)))
    assert greedy[-1] is not Admission.ADMITTED

    others = [Peer(address=f"198.51.100.{number}", since=100.0) for number in range(50)]
    few = [Peer(address="203.0.113.1", since=100.0) for _ in range(49)]

    assert set(admit(filled, loop, *others, *few)) == {Admission.ADMITTED}


def test_a_new_connection_does_not_cost_a_look_at_all_others(loop: Loop) -> None:
    many = [Peer(address="", since=50.0, is_idle=True) for _ in range(4000)]
    filled = registry(connections=4000)
    admit(filled, loop, *many)

    arriving = [Peer(address="", since=100.0) for _ in range(1000)]

    assert set(admit(filled, loop, *arriving)) == {Admission.ADMITTED}
    assert sum(peer.looks for peer in many + arriving) <= 4000 + 2 * 1000
    assert sum(not peer.is_open for peer in many) == 1000


def test_nor_does_it_while_all_others_are_busy(loop: Loop) -> None:
    busy = [Peer(address="", since=None) for _ in range(4000)]
    filled = registry(connections=4000)
    admit(filled, loop, *busy)

    admit(filled, loop, *(Peer(address="", since=None) for _ in range(200)))

    assert sum(peer.looks for peer in busy) <= 200 * 100


def test_what_all_connections_hold_together_is_limited() -> None:
    holding = registry()

    assert all(holding.hold(f"192.0.2.{number}", 16 * MEBIBYTE) for number in range(4))
    assert not holding.hold("192.0.2.9", 1)
    assert holding.hold("192.0.2.9", -1)


def test_one_address_holds_no_larger_share_of_bytes_than_of_connections() -> None:
    holding = registry(connections=8, per_address=2)

    assert holding.hold("192.0.2.1", 16 * MEBIBYTE)
    assert not holding.hold("192.0.2.1", 1)
    assert holding.hold("192.0.2.2", 16 * MEBIBYTE)
    assert holding.hold("192.0.2.1", -1)


def test_what_a_proxy_holds_is_not_limited_as_of_an_address() -> None:
    holding = registry(connections=8, per_address=2)

    assert holding.hold("", 64 * MEBIBYTE)
    assert not holding.hold("", 1)


@pytest.mark.parametrize(("discarding", "reads_a_second"), [(1, 6.7), (16, 107), (1_000, 110)])
def test_what_is_left_of_refused_bodies_is_read_so_often(
    discarding: int, reads_a_second: float
) -> None:
    registry = ConnectionRegistry(ConnectionLimits())

    registry.discarding = discarding

    assert discarding / registry.discard_s == pytest.approx(reads_a_second, rel=0.01)
