"""`/openapi.json` and `/docs`: the document, and a page to read and try it, from this server alone.

Both are public: they describe the interface and contain no data.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from string import Template
from threading import Lock
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from cardledger.api.http.errors import not_found
from cardledger.schema.wire.errors import Code

DOCUMENT: Final = "/openapi.json"
PAGE: Final = "/docs"

router = APIRouter(include_in_schema=False)

_HTML: Final = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>cardledger API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="$page/swagger-ui.css">
<link rel="stylesheet" href="$page/page.css">
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript. <a href="$document">The document</a> does not.</noscript>
<script src="$page/swagger-ui-bundle.js"></script>
<script src="$page/page.js" data-document="$document"></script>
</body>
</html>
"""
)

# `#authorize=<client id>:<client secret>` fills in the credentials. The part after # stays in the
# browser, and is removed from the address at once.
_SCRIPT: Final = """
const given = location.hash.match(/^#authorize=([^:]+):(.+)$/);
if (given) history.replaceState(null, "", location.pathname);

// Swagger UI's own filter finds tags only; this one finds operations by path, method and words too.
function findOperations(tags, phrase) {
  const wanted = phrase.trim().toLowerCase();
  const matches = (text) => String(text || "").toLowerCase().includes(wanted);
  const isFound = (entry) =>
    matches(entry.get("method") + " " + entry.get("path")) ||
    ["operationId", "summary"].some((key) => matches(entry.getIn(["operation", key])));
  return tags
    .map((tag, name) =>
      matches(name) ? tag : tag.update("operations", (entries) => entries.filter(isFound)))
    .filter((tag) => tag.get("operations").size > 0);
}

// Operations that are not implemented come last, and their tags are folded.
function builtFirst(a, b) {
  const rank = (entry) => (entry.getIn(["operation", "x-unimplemented"]) ? 1 : 0);
  return rank(a) - rank(b);
}

const ui = SwaggerUIBundle({
  url: document.currentScript.dataset.document,
  dom_id: "#page",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  plugins: [{ fn: { opsFilter: findOperations } }],
  deepLinking: true,
  filter: true,
  docExpansion: "list",
  operationsSorter: builtFirst,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  onComplete: () => {
    const tags = ui.specSelectors.specJson().get("tags") || [];
    tags.forEach((tag) => {
      if (tag.get("x-unimplemented")) {
        ui.layoutActions.show(["operations-tag", tag.get("name")], false);
      }
    });
    if (given) {
      ui.preauthorizeBasic("BasicAuth", decodeURIComponent(given[1]), decodeURIComponent(given[2]));
    }
  },
});
"""
_STYLE: Final = """
body{margin:0;background:#fafafa}
.swagger-ui .topbar{display:none}
.swagger-ui .info{margin:32px 0 24px}
noscript{display:block;padding:32px;font-family:sans-serif}
"""

_HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Swagger UI sets style attributes, and its icons are data URLs.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
}
_TYPES: Final = {".js": "text/javascript", ".css": "text/css"}
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class _Content:
    """A file that is served: compressed where the client accepts it, with a strong ETag."""

    raw: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    compressed: bytes = field(init=False)
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compressed", gzip.compress(self.raw, mtime=0))
        object.__setattr__(self, "tag", hashlib.sha256(self.raw).hexdigest()[:32])

    def response(self, request: Request) -> Response:
        """Return the content, or 304 when the client has it already."""
        is_compressed = _accepts_gzip(request.headers.get("accept-encoding", ""))
        # The two representations differ in their bytes, so their strong tags differ, too.
        etag = f'"{self.tag}-gzip"' if is_compressed else f'"{self.tag}"'
        headers = {
            **self.headers,
            "Cache-Control": "no-cache",
            "ETag": etag,
            "Vary": "Accept-Encoding",
        }
        if _has(etag, request.headers.get("if-none-match", "")):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        body = self.compressed if is_compressed else self.raw
        return Response(body, media_type=self.media_type, headers=headers)


def _accepts_gzip(header: str) -> bool:
    """Return whether `Accept-Encoding` has gzip, or `*`, with a weight above 0."""
    for coding in header.lower().split(","):
        name, _, weight = coding.replace(" ", "").partition(";q=")
        if name in {"gzip", "*"}:
            return weight.strip("0.") != "" if weight else True
    return False


def _has(etag: str, header: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return etag in tags or tags == ["*"]


def rendered(app: FastAPI) -> str:
    """Return the document of `app` as it is served and checked in; the text is deterministic."""
    from cardledger.api.openapi import document as openapi  # noqa: PLC0415 - imported on first use.

    made = openapi.document(app, sandbox=app.state.is_sandbox)
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


@router.get(DOCUMENT)
async def show_document(request: Request) -> Response:
    """Return the document; the first request generates it, in a thread: it takes half a second."""
    app = request.app
    if not hasattr(app.state, "document"):
        await run_in_threadpool(_generate, app)
    content: _Content = app.state.document
    return content.response(request)


@router.get(PAGE)
async def show_page(request: Request) -> Response:
    """Return the page."""
    return _page(request.scope.get("root_path", "").rstrip("/")).response(request)


@router.get(PAGE + "/{name}")
async def show_asset(name: str, request: Request) -> Response:
    """Return a file of the page; the first request reads and compresses it, in a thread."""
    content = _assets.get(name)
    if content is None:
        if name not in _OWN and name not in _files():
            raise not_found(Code.REFERENCE_NOT_FOUND, "part of this page")
        content = await run_in_threadpool(_asset, name)
    return content.response(request)


_OWN: Final = {"page.js": _SCRIPT, "page.css": _STYLE}

# One copy for all connections: responses refer to its bytes.
_assets: Final[dict[str, _Content]] = {}
_making: Final = Lock()


def _generate(app: FastAPI) -> None:
    with _making:
        if not hasattr(app.state, "document"):
            app.state.document = _Content(rendered(app).encode(), "application/json")


def _asset(name: str) -> _Content:
    with _making:
        if name not in _assets:
            raw = _OWN[name].encode() if name in _OWN else _files()[name].read_bytes()
            _assets[name] = _Content(raw, _TYPES[name[name.rindex(".") :]], _HEADERS)
        return _assets[name]


@cache
def _page(root: str) -> _Content:
    html = _HTML.substitute(page=root + PAGE, document=root + DOCUMENT)
    return _Content(html.encode(), "text/html", _HEADERS)


@cache
def _files() -> dict[str, Path]:
    """Return the files of Swagger UI, from a package that is installed for them only."""
    spec = find_spec("fastapi_offline")  # Not imported: its code is not needed.
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "static"
    return {name: folder / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")}
