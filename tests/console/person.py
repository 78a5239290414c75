"""A person with a browser that has no JavaScript: follows links, sends forms, keeps cookies."""

import re
import shlex
from html import unescape
from typing import Self
from urllib.parse import urlsplit

import httpx2

from cardledger.api.console import ROOT
from cardledger.api.console.html.headers import HEADERS
from tests.api.support import TIMEOUT_S, Tenant


class Person:
    """Reads pages of the console; every answer is checked for what all pages have."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.http = httpx2.Client(
            base_url=root,
            timeout=TIMEOUT_S,
            headers={"Accept": "text/html", "Origin": root},
            event_hooks={"response": [_has_all_headers]},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **query: object) -> httpx2.Response:
        """Return the page at `path` below the console."""
        params = {name: str(value) for name, value in query.items()}
        return self.http.get(f"{ROOT}{path}", params=params)

    def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        """Send a form to `path` below the console."""
        return self.http.post(f"{ROOT}{path}", data=fields, headers=headers)

    def log_in(self, tenant: Tenant) -> None:
        """Begin a session with the token of `tenant`."""
        fields = {"client_id": tenant.client_id, "client_secret": tenant.client_secret}
        response = self.post("/login", fields)
        assert (response.status_code, response.headers["location"]) == (303, ROOT), response.text

    def hidden(self, page: str, name: str) -> str:
        """Return the value of the first hidden field `name` of a page."""
        found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', page)
        assert found is not None, f"no hidden field {name}"
        return unescape(found[1])


def shown(response: httpx2.Response, status: int = 200) -> str:
    """Return the HTML of a page, after checking that it is one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return response.text


def command_of(page: str) -> str:
    """Return the command of the API that a page shows."""
    [command] = re.findall(r'<code id="curl">(.*?)</code>', page)
    return unescape(command)


def url_in(command: str) -> str:
    """Return the address that a command requests."""
    return shlex.split(command)[3]


def _has_all_headers(response: httpx2.Response) -> None:
    path = urlsplit(str(response.url)).path
    if not path.startswith(ROOT) or path.startswith(f"{ROOT}/static/"):
        return
    found = {name: response.headers.get(name) for name in HEADERS}
    assert found == HEADERS, f"{response.status_code} {response.url}: {response.read()!r}"
