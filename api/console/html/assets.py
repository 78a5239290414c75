"""Static files of the console, from the package alone: no page loads anything from elsewhere."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from cardledger.api.console import ROOT
from cardledger.api.console.html.headers import HEADERS
from cardledger.api.http.errors import unknown_path

DIRECTORY: Final = Path(__file__).with_name("static")

_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NAME: Final = f"{ROOT}/static"

# A file has its hash in its address, so a copy never grows stale; it holds no data.
_KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file with its media type, and the first digits of its SHA-256."""

    content: bytes
    media_type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """Return the static files by their names."""
    return {
        path.name: _asset(path) for path in sorted(DIRECTORY.iterdir()) if path.suffix in _TYPES
    }


def url_of(name: str) -> str:
    """Return the address of the file `name`."""
    return f"{_NAME}/{name}?v={assets()[name].version}"


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    version = sha256(content).hexdigest()[:12]
    return Asset(content=content, media_type=_TYPES[path.suffix], version=version)


router = APIRouter(include_in_schema=False)


@router.get(f"{_NAME}/{{name}}")
async def static_file(name: str) -> Response:
    """Return a static file."""
    asset = assets().get(name)
    if asset is None:
        raise unknown_path()
    return Response(asset.content, headers=HEADERS | _KEPT, media_type=asset.media_type)
