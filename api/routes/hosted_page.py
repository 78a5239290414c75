"""Pages for people: they load nothing, run nothing and must not be stored."""

from base64 import b64encode
from hashlib import sha256
from html import escape
from string import Template
from typing import Final

from fastapi import Response

NOT_FOUND: Final = 404

_STYLE: Final = """
:root{color-scheme:light dark}
*{box-sizing:border-box;margin:0}
body{min-height:100vh;display:grid;place-items:center;padding:16px;text-align:center;
font:16px/1.4 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{width:100%;max-width:420px;display:grid;gap:18px}
h1{font-size:20px}
button,a{display:inline-block;margin:auto;padding:14px 26px;border:0;border-radius:12px;
cursor:pointer;font:inherit;font-weight:600;color:#fff;background:#3730a3;text-decoration:none}
p{font-size:13px;opacity:.72}
"""

_PAGE: Final = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex">
<title>$title</title>
<style>$style</style>
</head>
<body>
<main>
$content
</main>
</body>
</html>
"""
)

_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        " form-action 'self'; frame-ancestors 'none'"
    ),
}


def response(title: str, content: str, status: int = 200) -> Response:
    """Return a page with `content`, which is HTML."""
    html = _PAGE.substitute(title=escape(title), style=_STYLE, content=content)
    return Response(html, status_code=status, headers=_HEADERS, media_type="text/html")


def heading(text: str) -> str:
    """Return the HTML of a heading."""
    return f"<h1>{escape(text)}</h1>"


def paragraph(text: str) -> str:
    """Return the HTML of a paragraph."""
    return f"<p>{escape(text)}</p>"


def link(url: str, text: str) -> str:
    """Return the HTML of a link to `url`, which a person follows."""
    return f'<a href="{escape(url)}" rel="noreferrer">{escape(text)}</a>'
