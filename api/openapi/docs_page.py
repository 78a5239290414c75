"""The document and a page to read and try it: `/openapi.json` and `/docs`, from this server alone.

Both are for everybody: they say what there is and nothing about anyone.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from fastapi import APIRouter, FastAPI, Request, Response

from cardledger.api.http.errors import not_found
from cardledger.schema.wire.errors import Code

DOCUMENT: Final = "/openapi.json"
PAGE: Final = "/docs"

router = APIRouter(include_in_schema=False)

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".png": "image/png"}

_HTML: Final = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>cardledger: the interface</title>
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

# `#authorize=<client id>:<client secret>` fills in the credentials. What follows a # stays in the
# browser, and is taken out of the address at once.
_SCRIPT: Final = """
const given = location.hash.match(/^#authorize=([^:]+):(.+)$/);
if (given) history.replaceState(null, "", location.pathname);
const ui = SwaggerUIBundle({
  url: document.currentScript.dataset.document,
  dom_id: "#page",
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  deepLinking: true,
  filter: true,
  docExpansion: "none",
  tagsSorter: undefined,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  onComplete: () => {
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
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Swagger UI styles its elements one by one and draws its icons from data.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
}


def rendered(app: FastAPI) -> str:
    """Return the document of `app` as it is served and checked in: the same text every time."""
    from cardledger.api.openapi import document as openapi  # noqa: PLC0415 - only who asks for it pays for it.

    found = openapi.document(app, sandbox=app.state.is_sandbox)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


@router.get(DOCUMENT)
def show_document(request: Request) -> Response:
    """Return the document; it is made when it is asked for the first time.

    Not `async`: that takes a second, in which others want to be answered.
    """
    state = request.app.state
    if not hasattr(state, "document"):
        state.document = rendered(request.app).encode()
    return Response(state.document, media_type="application/json")


@router.get(PAGE)
async def show_page(request: Request) -> Response:
    """Return the page."""
    root = request.scope.get("root_path", "").rstrip("/")
    html = _HTML.substitute(page=root + PAGE, document=root + DOCUMENT)
    return Response(html, media_type="text/html", headers=_HEADERS)


@router.get(PAGE + "/{name}")
async def show_asset(name: str) -> Response:
    """Return a part of the page."""
    own = {"page.js": _SCRIPT, "page.css": _STYLE}
    files = _files()
    if name not in own and name not in files:
        raise not_found(Code.REFERENCE_NOT_FOUND, "part of this page")
    content = own[name].encode() if name in own else files[name].read_bytes()
    kind = _TYPES[name[name.rindex(".") :]]
    return Response(content, media_type=kind, headers=_HEADERS)


@cache
def _files() -> dict[str, Path]:
    """Return Swagger UI's own files, out of a package that is there for nothing else."""
    spec = find_spec("fastapi_offline")  # Not imported: its code is not needed.
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "static"
    return {name: folder / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")}
