"""Requests: where they go, and what is in them."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx2

from cardledger_client.batches import Batch, Pending
from cardledger_client.version import VERSION

API_VERSION: Final = "2025-10-13"
"""The version of the interface, and the end of its base path."""

PAGE_SIZE: Final = 100
CONNECT_LIMIT_S: Final = 5.0

_DATED: Final = re.compile(r"/\d{4}-\d{2}-\d{2}$")
_EVENTS: Final = "/network-events"
_UNSENDABLE: Final = frozenset({"", ".", ".."})
_JSON: Final = {"Content-Type": "application/json"}
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request; one that `is_repeatable` has the same effect when it is sent twice."""

    method: str
    url: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_repeatable: bool = True


class Requests:
    """Builds the requests to one installation."""

    def __init__(self, base_url: str) -> None:
        """Send to `base_url`, with or without the dated base path at its end.

        Raises: ValueError when it is not an HTTP URL.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"base_url must be an http or https URL, not {base_url!r}")
        self._root: Final = _DATED.sub("", base_url.rstrip("/"))

    def outcomes(self, pending: Pending) -> Request:
        """Return the request for the outcomes of `pending`."""
        return Request(
            method="POST",
            url=self._root + _EVENTS,
            query={"lane": pending.lane},
            headers=_NDJSON,
            content=pending.content,
        )

    def acceptance(self, batch: Batch) -> Request:
        """Return the request that waits until `batch` is accepted only."""
        return Request(
            method="POST",
            url=self._root + _EVENTS,
            query={"lane": batch.lane, "wait": "false"},
            headers=_NDJSON,
            content=b"\n".join(line.content for line in batch.lines),
        )

    def outcome(self, source: str, reference: str, card_id: str | None) -> Request:
        """Return the request for the recorded outcome of an event.

        Raises: ValueError when a path cannot name it.
        """
        path = f"{_EVENTS}/{_segment(source)}/{_segment(reference)}"
        query = {} if card_id is None else {"cardId": card_id}
        return Request(method="GET", url=self._root + path, query=query)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, Any]
    ) -> Request:
        """Return the request for an operation of the dated interface.

        A POST has an idempotency key, the same in every attempt.
        """
        method = method.upper()
        headers = {} if body is None else dict(_JSON)
        if method == "POST":
            headers["Idempotency-Key"] = str(uuid4())
        return Request(
            method=method,
            url=f"{self._root}/{API_VERSION}{path}",
            query=given(query),
            headers=headers,
            content=None if body is None else json.dumps(dict(body)).encode(),
            is_repeatable=method != "DELETE",
        )

    def page(self, path: str, query: Mapping[str, Any], cursor: str | None) -> Request:
        """Return the request for one page of a list."""
        return self.call("GET", path, None, {"limit": PAGE_SIZE, **query, "cursor": cursor})


def prepared(
    http: httpx2.Client | httpx2.AsyncClient, request: Request, limit_s: float
) -> httpx2.Request:
    """Return `request` as `http` sends it.

    `limit_s` is the limit for each wait of an attempt: to connect, to send, for what comes next.
    """
    return http.build_request(
        request.method,
        request.url,
        params=request.query,
        headers=request.headers,
        content=request.content,
        timeout=httpx2.Timeout(limit_s, connect=min(limit_s, CONNECT_LIMIT_S)),
    )


def given(query: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of `query` that are not None."""
    return {name: str(value) for name, value in query.items() if value is not None}


def identified(identifier: str) -> str:
    """Return `identifier` as a part of a path.

    Raises: ValueError.
    """
    return _segment(identifier, safe=":")


def _segment(name: str, *, safe: str = "") -> str:
    """Return `name` as a segment of a path.

    Raises: ValueError for one that would not arrive: HTTP clients and proxies resolve `.` and `..`.
    """
    if name in _UNSENDABLE:
        raise ValueError(f"{name!r} cannot be part of a path")
    return quote(name, safe=safe)


def usual_headers(token: str | tuple[str, str]) -> dict[str, str]:
    """Return the headers of every request: credentials, and who asks.

    `token` is a client id and its secret, as a pair or joined by a colon.
    Raises: ValueError.
    """
    client_id, _, secret = (
        token.partition(":") if isinstance(token, str) else (token[0], "", token[1])
    )
    if not client_id or not secret:
        raise ValueError("token must be the client id and the client secret, joined by a colon")
    credentials = b64encode(f"{client_id}:{secret}".encode()).decode()
    return {
        "Authorization": f"Basic {credentials}",
        "User-Agent": f"cardledger-client/{VERSION}",
        "Accept": "application/json, application/x-ndjson",
    }
