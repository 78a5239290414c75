"""The page that shows a card's number, made for a frame on the platform's site.

The URL is the credential: it works for one minute, in the browser that shows the number first,
which a cookie recognizes. Programs that preview links get a page with a button and use nothing up
(docs/decisions/0047). The page loads nothing, runs nothing and must not be stored.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from string import Template
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response

from cardledger.api.http.errors import IS_HEAD
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import public_root, services_of
from cardledger.api.http.routing import public_router
from cardledger.api.http.strangers import looking_up
from cardledger.ledger.cards import reveals
from cardledger.ledger.cards.reveals import RevealedCard
from cardledger.ledger.core.card import CardState
from cardledger.ledger.ports import CardNumber
from cardledger.ledger.storage.secrets import server_keys

PATH: Final = "/embed/cards"
VIEWER_COOKIE: Final = "card_viewer"

router = public_router("Cards")

_NOT_FOUND: Final = 404
_VIEWERS: Final = "viewers of card pages"

_STYLE: Final = """
:root{color-scheme:light dark}
*{box-sizing:border-box;margin:0}
body{min-height:100vh;display:grid;place-items:center;padding:16px;
font:16px/1.4 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{width:100%;max-width:380px}
.card{container-type:inline-size;aspect-ratio:1.586;border-radius:20px;padding:7%;color:#fff;
display:flex;flex-direction:column;justify-content:space-between;
background:radial-gradient(120% 140% at 0 0,#4f6bff 0,#3730a3 45%,#111036 100%);
box-shadow:0 1px 0 #ffffff40 inset,0 18px 40px -18px #1e1b4bb3}
.off{background:radial-gradient(120% 140% at 0 0,#7c8494 0,#4b5261 45%,#22262f 100%)}
.top{display:flex;justify-content:space-between;align-items:center}
.chip{width:12%;aspect-ratio:1.3;border-radius:22%;
background:linear-gradient(135deg,#f7e7b0,#c9a24b)}
.brand{font-style:italic;font-weight:800;font-size:6.6cqw;letter-spacing:.04em}
.pan{font:500 7.8cqw/1.2 ui-monospace,"SF Mono",Menlo,Consolas,monospace;
white-space:nowrap}
.pan span+span{margin-left:.55em}
.row{display:flex;gap:12%}
dt{font-size:max(10px,2.7cqw);letter-spacing:.09em;text-transform:uppercase;opacity:.78}
dd{font:500 4.9cqw/1.3 ui-monospace,"SF Mono",Menlo,Consolas,monospace}
.pan,dd{user-select:all;-webkit-user-select:all}
button{display:block;margin:auto;padding:14px 26px;border:0;border-radius:12px;cursor:pointer;
font:inherit;font-weight:600;color:#fff;background:#3730a3}
p{margin-top:14px;text-align:center;font-size:13px;opacity:.72}
h1{font-size:20px;text-align:center}
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

_CARD: Final = Template(
    """<section class="card$off" aria-label="Card details">
<div class="top"><span class="chip"></span><span class="brand">$brand</span></div>
<div class="pan" aria-label="Card number">$pan</div>
<dl class="row">
<div><dt>Expires</dt><dd>$expiry</dd></div>
<div><dt>CVV</dt><dd>$cvv</dd></div>
</dl>
</section>
<p>$note</p>"""
)

_TEST_NOTE: Final = "A test card."
_STATE_NOTES: Final = {
    CardState.ACTIVE: "This page expires after one minute.",
    CardState.FROZEN: "This card is frozen: authorizations are declined until it is unfrozen.",
}

_UNAVAILABLE: Final = """<h1>Card details unavailable</h1>
<p>This page opens in one browser only, for one minute. Request the card details again.</p>"""

_PROMPT: Final = """<form method="post"><button>Show card details</button></form>
<p>They are shown in one browser only, until this page expires.</p>"""

_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    # Framed by any page that came over TLS, and by a developer's own machine: the origins of a
    # platform's pages are not known here, and the secret is the URL, not the frame.
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        " form-action 'self'; frame-ancestors https: http://localhost:* http://127.0.0.1:*"
    ),
}


@router.get(PATH + "/{token}", include_in_schema=False)
@router.post(PATH + "/{token}", include_in_schema=False)
async def show_card(token: str, request: Request) -> Response:
    """Show number, CVV and expiry of a card to the first browser that asks with `token`."""
    services = services_of(request)
    is_shown = _asks_for_number(request, token)
    look = reveals.view if is_shown else reveals.peek
    view = None
    async with looking_up(services.turns, _VIEWERS, address_of(request)) as look_up:
        at = services.clock()  # After the wait, in which a token may expire.
        async with services.installation.connect() as connection:
            platform_id = await reveals.platform_of(connection, token=token, keys=services.keys)
        if platform_id is None:
            look_up.is_miss = True
        else:
            async with services.platforms.writing(platform_id) as connection:
                view = await look(
                    connection,
                    token=token,
                    viewer=request.cookies.get(VIEWER_COOKIE),
                    keys=services.keys,
                    at=at,
                )
                await server_keys.load_card_key(connection, services.keys)
    issuer = services.adapters.issuer
    if view is None or issuer is None:
        return _page("Card details", _UNAVAILABLE, _NOT_FOUND)
    if not is_shown:
        return _page("Card details", _PROMPT, 200)
    number = issuer.card_number(view.card_id, view.last4)
    response = _page("Card details", card_section(view, number), 200)
    left_s = int((view.expires_at - at).total_seconds())
    response.headers["Set-Cookie"] = _viewer_cookie(request, view.viewer, left_s)
    # The browser loads the page again when it has expired, so the number leaves the screen.
    response.headers["Refresh"] = str(left_s + 1)
    return response


def _asks_for_number(request: Request, token: str) -> bool:
    """Return whether a person looks: in a frame, after the button, or in the same browser again.

    A preview of a link is a HEAD, or a GET of a whole document; no preview puts the URL in a frame,
    and scripts cannot set `Sec-Fetch-Dest`.
    """
    if IS_HEAD in request.scope:
        return False
    is_framed = request.headers.get("sec-fetch-dest") in {"iframe", "frame"}
    viewer = request.cookies.get(VIEWER_COOKIE)
    is_viewer = reveals.is_first_viewer(token, viewer, services_of(request).keys)
    return request.method == "POST" or is_framed or is_viewer


def _viewer_cookie(request: Request, viewer: str, max_age_s: int) -> str:
    """Return the cookie that opens this page again, and no other page.

    In a frame on another site a cookie needs `SameSite=None`, which needs TLS. `Partitioned` lets
    browsers that block third-party cookies keep it for this frame.
    """
    root = urlsplit(public_root(request))
    is_secure = "https" in {root.scheme, request.scope["scheme"]}
    rules = "SameSite=None; Secure; Partitioned" if is_secure else "SameSite=Lax"
    path = root.path + request.url.path
    return f"{VIEWER_COOKIE}={viewer}; Path={path}; Max-Age={max_age_s}; HttpOnly; {rules}"


def card_section(shown: RevealedCard, number: CardNumber) -> str:
    """Return the HTML of a card: what the ledger knows of it, and its number from the issuer."""
    # Groups by margin, not by blanks: the copied number is in the form that shops accept.
    groups = (number.pan[start : start + 4] for start in range(0, len(number.pan), 4))
    notes = [_TEST_NOTE] if number.is_test else []
    return _CARD.substitute(
        brand=escape(shown.brand),
        pan="".join(f"<span>{group}</span>" for group in groups),
        cvv=number.cvv,
        expiry=f"{shown.exp_month:02}/{shown.exp_year % 100:02}",
        off="" if shown.state is CardState.ACTIVE else " off",
        note=escape(" ".join([*notes, _STATE_NOTES[shown.state]])),
    )


def _page(title: str, content: str, status: int) -> Response:
    html = _PAGE.substitute(title=title, style=_STYLE, content=content)
    return Response(html, status_code=status, headers=_HEADERS, media_type="text/html")
