"""Cookies of the console: for this console alone, and never for a script."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

from cardledger.api.console import ROOT
from cardledger.api.http.request_context import public_root
from cardledger.schema import ssrf

_NAME: Final = "cardledger_console"
_PORTS: Final = {"http": 80, "https": 443}
_ACTED_S: Final = 30


def session_cookie_of(request: Request) -> str:
    """Return the cookie of the session of a request; empty without one."""
    return request.cookies.get(_name(request), "")


def session_cookie(request: Request, value: str, max_age_s: int) -> str:
    """Return the header that sets the cookie of a session."""
    return _cookie(request, _name(request), value, max_age_s)


def has_acted(request: Request) -> bool:
    """Return whether the browser has sent a form within the last half minute, or sends one now."""
    return request.method == "POST" or _acted(request) in request.cookies


def acted_cookie(request: Request) -> str:
    """Return the header that remembers for half a minute that a form was sent.

    A page that follows shows what the form has done, which a replica may not have yet.
    """
    return _cookie(request, _acted(request), "yes", _ACTED_S)


def _name(request: Request) -> str:
    """Return the name of the session's cookie, which is that of the port that browsers connect to.

    Browsers share cookies between the ports of a host, on which there may be several consoles; the
    processes of one console, behind a proxy, share its public URL and have ports of their own.
    """
    root = urlsplit(public_root(request))
    return f"{_NAME}_{root.port or _PORTS[root.scheme]}"


def _acted(request: Request) -> str:
    return f"{_name(request)}_acted"


def _cookie(request: Request, name: str, value: str, max_age_s: int) -> str:
    secure = "; Secure" if _is_for_tls_only(request) else ""
    return f"{name}={value}; Path={ROOT}; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"


def _is_for_tls_only(request: Request) -> bool:
    """Return whether browsers reach this console with TLS, or from another machine.

    Without a public URL, the root is the address of this process, also behind a proxy. Of what the
    browser has opened only the request tells: its host is passed on, and its scheme by a proxy that
    is named in the settings.
    """
    root, opened = urlsplit(public_root(request)), request.url
    hosts = (root.hostname or "", opened.hostname or "")
    return "https" in {root.scheme, opened.scheme} or not all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ssrf.is_loopback(ip_address(host))
    except ValueError:
        return False
