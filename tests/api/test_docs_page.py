"""The page of the interface: complete, from this server alone, and nothing on it from elsewhere."""

import re

import httpx2
import pytest

from tests.api.support import TIMEOUT_S, refused


def test_everything_on_the_page_comes_from_this_server(root: str) -> None:
    page = httpx2.get(f"{root}/docs", timeout=TIMEOUT_S)

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    addresses = re.findall(r"""(?:src|href|data-document)=["']([^"']+)""", page.text)
    assert {"/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json"} < set(addresses)
    for address in addresses:
        if address != "data:,":
            assert httpx2.get(root + address, timeout=TIMEOUT_S).is_success, address


@pytest.mark.parametrize("path", ["/docs", "/docs/page.js", "/docs/swagger-ui-bundle.js"])
def test_nothing_from_elsewhere_may_run_on_it(root: str, path: str) -> None:
    headers = httpx2.get(root + path, timeout=TIMEOUT_S).headers

    policy = dict(part.strip().split(" ", 1) for part in headers[CSP].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]


def test_its_own_script_asks_nobody_else(root: str) -> None:
    script = httpx2.get(f"{root}/docs/page.js", timeout=TIMEOUT_S)

    assert script.headers["content-type"].startswith("text/javascript")
    assert "http" not in script.text
    assert "validatorUrl: null" in script.text


@pytest.mark.parametrize("name", ["core.py", "__init__.py", "redoc.standalone.js", "%2e%2e"])
def test_only_parts_of_the_page_are_given_out(root: str, name: str) -> None:
    answer = httpx2.get(f"{root}/docs/{name}", timeout=TIMEOUT_S)

    refused(answer, 404, "REFERENCE_NOT_FOUND")


def test_other_answers_have_no_such_policy(root: str) -> None:
    assert CSP not in httpx2.get(f"{root}/healthz", timeout=TIMEOUT_S).headers


CSP = "content-security-policy"
