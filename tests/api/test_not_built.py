"""Operations that are not implemented respond 501; every operation of the interface is known."""

import re
from pathlib import Path

import httpx2
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.http.operations import AGENT
from cardledger.api.openapi import not_implemented
from tests.api import contract
from tests.api.documents import document
from tests.api.support import TIMEOUT_S, Api, ok, refused

# Method and path of every operation of the public interface.
INDEX = (Path(__file__).parents[1] / "fixtures" / "operations.txt").read_text().splitlines()
TABLE = [(method, path) for area in not_implemented.TABLE for method, path in area]


def places(path: str) -> str:
    """Return `path` without the names of its parameters."""
    return re.sub(r"{\w+}", "{}", path)


def built() -> set[str]:
    return {
        f"{method.upper()} {places(path)}"
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "servers" and "x-unimplemented" not in operation
    }


def test_every_operation_of_the_interface_is_implemented_or_in_the_table() -> None:
    wanted = {places(operation) for operation in INDEX}
    table = {f"{method} {places(path)}" for method, path in TABLE}

    assert len(INDEX) == len(wanted) == 153
    assert len(TABLE) == len(table)
    assert wanted - built() - table == set()
    assert table <= wanted, "the table has operations of the interface only"
    assert table & built() == set(), "an implemented operation leaves the table"


@pytest.mark.parametrize(("method", "path"), TABLE)
def test_an_operation_that_is_not_implemented_authenticates_then_responds_501(
    api: Api, agent_token: str, method: str, path: str
) -> None:
    where = re.sub(r"{\w+}", "Customer:1", path)
    is_agents = not_implemented.scheme_of(path) == AGENT
    body = b"{ not JSON" if method != "GET" else None

    known = httpx2.request(
        method,
        api.root + BASE_PATH + where + "?limit=0&limit=x&surprise",
        content=body,
        timeout=TIMEOUT_S,
        auth=None if is_agents else (api.tenant.client_id, api.tenant.client_secret),
        headers={"Authorization": f"Bearer {agent_token}"} if is_agents else {},
    )
    unknown = httpx2.request(method, api.root + BASE_PATH + where, timeout=TIMEOUT_S)

    error = refused(known, 501, "NOT_IMPLEMENTED")
    assert error["message"].startswith("Not implemented: ")
    assert known.headers["x-should-retry"] == "false"
    refused(unknown, 401, "UNAUTHORIZED")
    contract.hold(known)
    contract.hold(unknown)


def test_other_methods_of_such_a_path_are_405(api: Api) -> None:
    answer = api.http.put("/quotes")

    refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "POST"
    assert api.http.head("/quotes").status_code == 405
    assert api.http.head("/stablecoins").status_code == 501


def test_an_implemented_path_is_not_hidden_by_one_that_is_not(api: Api) -> None:
    customer = api.customer()

    assert ok(api.get(f"/customers/{customer['id']}"))["id"] == customer["id"]
    assert ok(api.get("/customers/end-user-terms"))["version"]
    refused(api.get("/customers/other-terms"), 404, "USER_NOT_FOUND")


@pytest.fixture(scope="module")
def agent_token(api: Api) -> str:
    """An access token of an agent."""
    return api.agent_token(api.customer()["id"])
