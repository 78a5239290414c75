"""`/docs` and `/openapi.json`: served by this server alone, compressed and cached."""

import gzip
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from cardledger.api.openapi import docs_page
from cardledger.api.openapi.docs_page import DOCUMENT
from tests.api.contract import operations
from tests.api.documents import Json, text
from tests.api.support import TIMEOUT_S, refused

CSP = "content-security-policy"
SCRIPT = "/docs/page.js"
BUNDLE = "/docs/swagger-ui-bundle.js"


def get(url: str, **headers: str) -> httpx2.Response:
    return httpx2.get(url, headers=headers, timeout=TIMEOUT_S)


def test_every_file_of_the_page_comes_from_this_server(root: str) -> None:
    page = get(f"{root}/docs")

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    addresses = re.findall(r"""(?:src|href|data-document)=["']([^"']+)""", page.text)
    assert {BUNDLE, "/docs/swagger-ui.css", "/openapi.json"} < set(addresses)
    for address in addresses:
        if address != "data:,":
            assert get(root + address).is_success, address


@pytest.mark.parametrize("path", ["/docs", SCRIPT, BUNDLE])
def test_scripts_of_other_servers_cannot_run_on_the_page(root: str, path: str) -> None:
    headers = get(root + path).headers

    policy = dict(part.strip().split(" ", 1) for part in headers[CSP].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-request-id"]


def test_its_own_script_calls_no_other_server(root: str) -> None:
    script = get(root + SCRIPT)

    assert script.headers["content-type"].startswith("text/javascript")
    assert "http" not in script.text
    assert "validatorUrl: null" in script.text


@pytest.mark.parametrize("name", ["core.py", "__init__.py", "redoc.standalone.js", "%2e%2e"])
def test_only_files_of_the_page_are_served(root: str, name: str) -> None:
    answer = get(f"{root}/docs/{name}")

    refused(answer, 404, "REFERENCE_NOT_FOUND")


def test_other_responses_have_no_content_security_policy(root: str) -> None:
    assert CSP not in get(f"{root}/healthz").headers


# --- compressed and cached ---------------------------------------------------------------------


def test_concurrent_first_requests_make_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_page, "_assets", {})

    with ThreadPoolExecutor(8) as pool:
        copies = list(pool.map(lambda _: docs_page._asset("swagger-ui-bundle.js"), range(8)))

    assert len({id(copy) for copy in copies}) == 1


@pytest.mark.parametrize("path", [DOCUMENT, "/docs", SCRIPT, BUNDLE])
def test_a_client_that_accepts_gzip_gets_the_same_content_compressed(root: str, path: str) -> None:
    plain = get(root + path, **{"Accept-Encoding": "identity"})
    compressed = get(root + path, **{"Accept-Encoding": "br, gzip;q=0.8"})

    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.content == plain.content
    assert compressed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert compressed.headers["etag"] != plain.headers["etag"]
    assert int(compressed.headers["content-length"]) <= len(gzip.compress(plain.content, 1))


@pytest.mark.parametrize("header", ["", "identity", "br", "gzip;q=0", "gzip;q=0.000"])
def test_a_client_that_does_not_accept_gzip_gets_it_plain(root: str, header: str) -> None:
    answer = get(root + DOCUMENT, **{"Accept-Encoding": header})

    assert "content-encoding" not in answer.headers
    assert answer.text == text()


@pytest.mark.parametrize("path", [DOCUMENT, "/docs", SCRIPT, BUNDLE])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_client_that_has_the_content_gets_304(root: str, path: str, encoding: str) -> None:
    accept = {"Accept-Encoding": encoding}
    etag = get(root + path, **accept).headers["etag"]

    for known in (etag, f'"other", W/{etag}', "*"):
        answer = get(root + path, **accept, **{"If-None-Match": known})
        assert answer.status_code == 304, known
        assert answer.content == b""
        assert answer.headers["etag"] == etag
        assert answer.headers["x-request-id"]
    assert get(root + path, **accept, **{"If-None-Match": '"other"'}).status_code == 200


# --- finding operations ------------------------------------------------------------------------

# The few methods of Immutable.js that Swagger UI's filter uses, on top of plain objects.
HARNESS = """
const wrap = (value) => ({
  get: (key) => value[key],
  getIn: (keys) => keys.reduce((part, key) => (part == null ? part : part[key]), value),
});
class List {
  constructor(items) { this.items = items; this.size = items.length; }
  filter(test) { return new List(this.items.filter(test)); }
}
class Tag {
  constructor(operations) { this.operations = operations; }
  get() { return this.operations; }
  update(_, change) { return new Tag(change(this.operations)); }
}
class Tags {
  constructor(entries) { this.entries = entries; }
  map(change) { return new Tags(this.entries.map(([name, tag]) => [name, change(tag, name)])); }
  filter(test) { return new Tags(this.entries.filter(([name, tag]) => test(tag, name))); }
}
const page = require("fs").readFileSync(0, "utf8");
const given = JSON.parse(process.argv[1]);
const location = { hash: "", pathname: "/docs" };
let options;
const SwaggerUIBundle = (wanted) => { options = wanted; return {}; };
SwaggerUIBundle.presets = {};
const document = { currentScript: { dataset: { document: "/openapi.json" } } };
eval(page.replaceAll("const ui", "var ui"));
const tags = new Tags(Object.entries(given.tags).map(
  ([name, operations]) => [name, new Tag(new List(operations.map(wrap)))]));
const result = options.plugins[0].fn.opsFilter(tags, given.phrase);
console.log(JSON.stringify(result.entries.map(
  ([name, tag]) => [name, tag.get().items.map((entry) => entry.get("path"))])));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
@pytest.mark.parametrize(
    ("phrase", "wanted"),
    [
        ("reveal", [["Cards", ["/cards/{cardId}/reveal"]]]),
        ("POST /transactions", "Transactions"),
        ("listWebhookDeliveries", "Webhooks"),
        ("api tokens", "API Tokens"),
        ("no such operation", []),
    ],
)
def test_the_filter_finds_operations(root: str, phrase: str, wanted: object) -> None:
    node = shutil.which("node")
    assert node is not None
    tags: dict[str, list[Json]] = {}
    for path, method, operation in operations():
        words = {name: operation[name] for name in ("operationId", "summary")}
        for tag in operation["tags"]:
            tags.setdefault(tag, []).append({"path": path, "method": method, "operation": words})

    ran = subprocess.run(
        [node, "-e", HARNESS, json.dumps({"tags": tags, "phrase": phrase})],
        input=get(root + SCRIPT).text,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )

    found = json.loads(ran.stdout)
    if isinstance(wanted, str):
        assert wanted in {name for name, _ in found}
        assert len(found) < len(tags)
    else:
        assert found == wanted
