"""HEAD wherever GET: the same status and headers, and no body."""

import re
from base64 import b64encode
from collections.abc import Iterator

import httpx2
import pytest

from cardledger.api import BASE_PATH
from cardledger.ledger.storage.ids import new_id
from tests.api.contract import operations
from tests.api.documents import document
from tests.api.support import Api
from tests.waiting import limit_s

IGNORED = {"date", "x-request-id"}
PATHS = sorted(path for path, method, _ in operations() if method == "get")


def located(path: str) -> str:
    """Return the URL of `path`, with an id, perhaps of another type, for each parameter."""
    base = "" if "servers" in document()["paths"][path] else BASE_PATH
    return base + re.sub(r"{\w+}", f"Card:{new_id()}", path)


@pytest.fixture(scope="module")
def agent(api: Api) -> str:
    """The header of an agent."""
    return f"Bearer {api.agent_token(api.customer()['id'])}"


@pytest.fixture(scope="module")
def platform(api: Api) -> str:
    """The header of a platform."""
    secret = f"{api.tenant.client_id}:{api.tenant.client_secret}"
    return f"Basic {b64encode(secret.encode()).decode()}"


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=api.root, timeout=limit_s()) as made:
        yield made


@pytest.mark.parametrize("path", PATHS)
def test_head_returns_what_get_returns_without_a_body(
    client: httpx2.Client, agent: str, platform: str, path: str
) -> None:
    url = located(path)
    headers = {"Authorization": agent if "/agents/me" in path else platform}

    got = client.get(url, headers=headers)
    head = client.head(url, headers=headers)

    assert got.status_code < 500 or got.status_code == 501
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert {name: value for name, value in head.headers.items() if name not in IGNORED} == {
        name: value for name, value in got.headers.items() if name not in IGNORED
    }
