"""Addresses that say what a form has just done, and prove it to the session that sent the form.

A page leads to its next one by an address, whose parameters anyone can write. A tag of the session
proves them; without it a page takes them for none, so that no link reports what has not happened.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Request
from pydantic import Field

from cardledger.api.console.access import sessions
from cardledger.api.console.access.sessions import Session
from cardledger.ledger.storage.secrets.key_ring import KeyRing

_TAG: Final = "tag"

Tag = Annotated[str, Field(max_length=100)]
"""Type of the parameter `tag` of a page whose address may be a proven one."""


def proven(path: str, shown: Mapping[str, str], session: Session, keys: KeyRing) -> str:
    """Return the address of the page at `path` with what is `shown` there, for `session` only."""
    tag = sessions.tag_of(_text(path, shown.items()), session, keys)
    return f"{path}?{urlencode({**shown, _TAG: tag})}"


def is_proven(request: Request, session: Session, keys: KeyRing) -> bool:
    """Return whether a form of `session` has led to the address of a request, in constant time."""
    sent = request.query_params
    shown = [(name, value) for name, value in sent.multi_items() if name != _TAG]
    return sessions.is_tag(sent.get(_TAG, ""), _text(request.url.path, shown), session, keys)


def _text(path: str, shown: Iterable[tuple[str, str]]) -> str:
    return f"address {path}?{urlencode(sorted(shown))}"
