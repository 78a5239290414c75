"""The console: guesses at its login and its tickets, and a flood of its pages."""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from secrets import token_urlsafe
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

from attack import wire
from attack.arena import Arena, Attack, Party, cycle
from attack.judge import Measure, Strike
from attack.wire import Answer
from cardledger.api.console import ROOT

_LOGIN: Final = f"{ROOT}/login"
_SEE_OTHER: Final = 303
_GUESSERS: Final = 16
_READERS: Final = 64
_PAGES: Final = (
    ROOT,
    f"{ROOT}/card-transactions?status=SETTLED",
    f"{ROOT}/journal",
    f"{ROOT}/trial-balance",
    f"{ROOT}/accounts",
    f"{ROOT}/customers",
    f"{ROOT}/cards",
    f"{ROOT}/exceptions",
    f"{ROOT}/webhooks",
    f"{ROOT}/system",
)


def _page(arena: Arena, path: str, cookie: str | None = None) -> bytes:
    headers = {"Accept": "text/html"} | ({} if cookie is None else {"Cookie": cookie})
    return wire.request("GET", replace(arena.address, base=""), path, headers=headers)


def _form(arena: Arena, fields: Mapping[str, str]) -> bytes:
    return wire.request(
        "POST",
        replace(arena.address, base=""),
        _LOGIN,
        body=urlencode(fields).encode(),
        headers={
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{arena.address.host}",
        },
    )


async def _logged_in(arena: Arena, party: Party) -> Answer:
    """Begin a session, as a person does."""
    access = party.access
    fields = {"client_id": access.client_id, "client_secret": access.client_secret}
    connection = arena.connection()
    try:
        return await connection.exchange(_form(arena, fields))
    finally:
        connection.close()


async def _logins(arena: Arena) -> Strike:
    refused, asked = 0, 0
    client_id = arena.victim.access.client_id

    def guess(number: int) -> bytes:
        match number % 3:
            case 0:
                return _form(arena, {"client_id": client_id, "client_secret": token_urlsafe()})
            case 1:
                return _form(arena, {"client_id": f"clid_{uuid4().hex}", "client_secret": "x"})
            case _:
                ticket = f"{uuid4().hex}_{token_urlsafe(32)}"
                return _page(arena, f"{_LOGIN}?ticket={ticket}")

    async def log_in() -> None:
        nonlocal refused, asked
        while arena.is_on:
            asked += 1
            refused += (await _logged_in(arena, arena.victim)).status != _SEE_OTHER
            await asyncio.sleep(0.2)

    numbers = itertools.count()
    arena.begin()
    flood, _ = await asyncio.gather(arena.flood(lambda: guess(next(numbers)), _GUESSERS), log_in())
    return flood.strike(
        401,
        429,
        503,
        processed=(401,),
        measures=[
            Measure(name="right logins refused", value=refused, limit=0),
            Measure(name="times no person logged in", value=0 if asked else 1, limit=0),
        ],
    )


async def _pages(arena: Arena) -> Strike:
    head = (await _logged_in(arena, arena.attacker)).head.decode()
    lines = (line.partition(": ") for line in head.splitlines())
    cookies = [value.partition(";")[0] for name, _, value in lines if name.lower() == "set-cookie"]
    if not cookies:
        raise RuntimeError(f"no session: {head[:200]!r}")
    path = cycle(list(_PAGES))
    arena.begin()
    flood = await arena.flood(lambda: _page(arena, path(), cookies[0]), _READERS)
    return flood.strike(200, 429, 503, processed=(200,))


ATTACKS: Final = (
    Attack(
        item="C15",
        name="console logins",
        aim="wrong secrets and tickets at the login lock a person out, or begin a session",
        run=_logins,
    ),
    Attack(
        item="C15",
        name="console pages",
        aim=f"{_READERS} connections that read pages of the console take the database's time",
        run=_pages,
    ),
)
