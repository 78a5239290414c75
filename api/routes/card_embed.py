"""The page that shows a card's number, in a frame of the platform's own.

Its address is the permission to see it, once; so nobody else is asked who they are. Nothing on it
comes from elsewhere, nothing on it runs, and nobody may keep it.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from string import Template
from typing import Final

from fastapi import APIRouter, Request, Response

from cardledger.api.http.request_context import services_of
from cardledger.ledger.cards import reveals
from cardledger.ledger.cards.reveals import RevealedCard
from cardledger.ledger.core.card import CardState
from cardledger.ledger.ports import CardNumber

PATH: Final = "/embed/cards"

router = APIRouter(tags=["Cards"])

_GONE: Final = 404

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
<div class="top"><span class="chip"></span><span class="brand">VISA</span></div>
<div class="pan" aria-label="Card number">$pan</div>
<dl class="row">
<div><dt>Expires</dt><dd>$expiry</dd></div>
<div><dt>CVV</dt><dd>$cvv</dd></div>
</dl>
</section>
<p>$note</p>"""
)

_NOTES: Final = {
    CardState.ACTIVE: "A test card. This page opens once; leave it and it is gone.",
    CardState.FROZEN: "This card is frozen: it pays nothing until it is used again.",
}

_NOTHING: Final = """<h1>Nothing to see here any more</h1>
<p>This page opens once, and only for a few minutes. Ask for the card details again.</p>"""

_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    # Who may frame it: any page that came over TLS, and a developer's own machine. Which pages a
    # platform has is not known here; the address is the secret, not who frames it.
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors https: http://localhost:* http://127.0.0.1:*"
    ),
}


@router.get(PATH + "/{token}", include_in_schema=False)
async def show_card(token: str, request: Request) -> Response:
    """Show number, CVV and expiry of a card to whoever has a fresh `token`."""
    services = services_of(request)
    async with services.writer.begin() as connection:
        shown = await reveals.open_once(
            connection, token=token, keys=services.keys, at=services.clock()
        )
    issuer = services.adapters.issuer
    if shown is None or issuer is None:
        return _page("Card details", _NOTHING, _GONE)
    number = issuer.card_number(shown.card_id, shown.last4)
    return _page("Card details", _card(shown, number), 200)


def _card(shown: RevealedCard, number: CardNumber) -> str:
    # Groups by margin, not by blanks: what is copied is the number as shops want it.
    groups = (number.pan[start : start + 4] for start in range(0, len(number.pan), 4))
    return _CARD.substitute(
        pan="".join(f"<span>{group}</span>" for group in groups),
        cvv=number.cvv,
        expiry=f"{shown.exp_month:02}/{shown.exp_year % 100:02}",
        off="" if shown.state is CardState.ACTIVE else " off",
        note=escape(_NOTES[shown.state]),
    )


def _page(title: str, content: str, status: int) -> Response:
    html = _PAGE.substitute(title=title, style=_STYLE, content=content)
    return Response(html, status_code=status, headers=_HEADERS, media_type="text/html")
