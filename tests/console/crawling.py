"""Every page that a link leads to, from the first one on."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from cardledger.api.console import ROOT
from tests.console.person import Person

ALIKE_LIMIT: Final = 3
"""How many pages are visited whose addresses differ in ids, numbers and values only."""

_LINK: Final = re.compile(r'href="/console([^"#]*)"')


def pages_of(visitor: Person, *others: str) -> Iterator[tuple[str, str]]:
    """Yield path below the console and HTML of the pages that links lead to, of every kind.

    `others` are paths that no link leads to.
    """
    waiting, seen, visited = ["", *others], {"", *others}, Counter[str]()
    while waiting:
        path = waiting.pop(0)
        visited[_kind(path)] += 1
        if visited[_kind(path)] > ALIKE_LIMIT:
            continue
        answer = visitor.http.get(f"{ROOT}{path}")
        if answer.status_code == 303:
            continue
        yield path, answer.text
        for link in _LINK.findall(answer.text):
            plain = link.replace("&amp;", "&")
            if plain not in seen and not plain.startswith("/static"):
                seen.add(plain)
                waiting.append(plain)


def _kind(path: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|=[^&]*", "", path)
