"""Card pages: previews of their links, a second browser, and what is left after a minute."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from attack import wire
from attack.arena import Arena, Attack
from attack.attacks.connections import issued_card
from attack.judge import Measure, Strike
from attack.wire import Answer

_LIFETIME_S: Final = 60.0
_NUMBER: Final = b'class="pan"'
_FRAME: Final = {"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate"}
_PREVIEWS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("GET", {}),
    ("HEAD", {}),
    ("HEAD", _FRAME),
    ("GET", {"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}),
    ("GET", {"Sec-Fetch-Dest": "document", "Sec-Purpose": "prefetch;prerender"}),
    ("GET", {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}),
    ("GET", {"Sec-Fetch-Dest": "image"}),
    ("GET", {"User-Agent": "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"}),
    ("GET", {"Cookie": "card_viewer=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}),
)
"""How programs open a link that they were sent, or fetch it before a person does."""

_OTHERS: Final[tuple[tuple[str, dict[str, str]], ...]] = (("GET", _FRAME), ("POST", {}))
"""How a person opens it, in a second browser."""

_LATE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that a platform has asked for: where it is, and how long it may be opened."""

    path: str
    lifetime_s: float
    asked_at: float


async def _asked_for(arena: Arena, card: str) -> _Page:
    asked_at = datetime.now(UTC)
    answer = await arena.call("POST", f"/cards/{card}/reveal", {})
    found = answer.json()
    if "panEmbedUrl" not in found:
        raise RuntimeError(f"no page: {answer.status} {answer.body[:200]!r}")
    lifetime_s = (datetime.fromisoformat(found["expiresAt"]) - asked_at).total_seconds()
    return _Page(urlsplit(found["panEmbedUrl"]).path, lifetime_s, time.monotonic())


async def _opened(arena: Arena, page: _Page, method: str, headers: Mapping[str, str]) -> Answer:
    root = replace(arena.address, base="")
    if method == "HEAD":  # Its answer has the length of a body, and no body.
        closing = {"Connection": "close"}
        whole = wire.request(method, root, page.path, headers={**headers, **closing})
        head, _, body = (await wire.send_raw(root, whole)).partition(b"\r\n\r\n")
        return Answer(int(head[9:12] or 0), head, body)
    whole = wire.request(method, root, page.path, headers=headers)
    connection = arena.connection()
    try:
        return await connection.exchange(whole)
    finally:
        connection.close()


async def _card_pages(arena: Arena) -> Strike:
    """Preview links, then open them in one browser and in a second one."""
    card = await issued_card(arena)
    counts: Counter[str] = Counter()
    kept = await _asked_for(arena, card)  # Opened by none until its minute is over.
    longest_s = kept.lifetime_s
    arena.begin()
    while arena.is_on:
        page = await _asked_for(arena, card)
        longest_s = max(longest_s, page.lifetime_s)
        for method, headers in _PREVIEWS:
            answer = await _opened(arena, page, method, headers)
            counts["previews"] += answer.status == 200
            counts["shown to a preview"] += _NUMBER in answer.body
        answer = await _opened(arena, page, "GET", _FRAME)
        counts["shown"] += _NUMBER in answer.body
        counts["used up"] += _NUMBER not in answer.body
        for method, headers in _OTHERS:
            answer = await _opened(arena, page, method, headers)
            counts["shown twice"] += _NUMBER in answer.body
    arena.end()
    await asyncio.sleep(max(0.0, kept.asked_at + _LIFETIME_S + _LATE_S - time.monotonic()))
    for method, headers in _OTHERS:
        counts["shown late"] += _NUMBER in (await _opened(arena, kept, method, headers)).body
    return Strike(
        struck=counts["shown"],
        proof=f"{counts['previews']:,} previews, {counts['shown']:,} pages shown",
        measures=[
            Measure(name="pages shown to a preview", value=counts["shown to a preview"], limit=0),
            Measure(name="pages used up by previews", value=counts["used up"], limit=0),
            Measure(name="pages shown in a second browser", value=counts["shown twice"], limit=0),
            Measure(name="pages shown after a minute", value=counts["shown late"], limit=0),
            Measure(
                name="a page can be opened for",
                value=longest_s,
                limit=_LIFETIME_S + _LATE_S,
                unit="s",
            ),
        ],
    )


ATTACKS: Final = (
    Attack(
        item="B12",
        name="card pages",
        aim="previews of its link use a card page up, or it is shown twice, or after a minute",
        run=_card_pages,
    ),
)
