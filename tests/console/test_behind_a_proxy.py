"""A console behind a proxy with TLS, of which the settings may say nothing."""

from ipaddress import ip_network
from urllib.parse import urlsplit

import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.connections.limits import ConnectionLimits
from tests.api.support import Api, server
from tests.console.person import Person, shown

HOST = {"Host": "ledger.example.com"}
FORWARDED = {"X-Forwarded-Proto": "https"}
BEHIND_A_PROXY = ConnectionLimits(proxies=(ip_network("127.0.0.1"),))


@pytest.mark.parametrize(
    ("scheme", "headers"),
    [
        ("https", FORWARDED),  # A proxy that does not pass on the host.
        ("http", HOST),  # One that does not say its scheme.
        ("https", HOST | FORWARDED),
    ],
)
def test_the_cookie_is_for_tls_only_without_a_public_url(
    config: ApiConfig, api: Api, scheme: str, headers: dict[str, str]
) -> None:
    with server(config, limits=BEHIND_A_PROXY) as root, Person(root) as stranger:
        host = headers.get("Host", urlsplit(root).netloc)

        answer = stranger.post("/login", credentials(api), Origin=f"{scheme}://{host}", **headers)

    assert answer.status_code == 303, answer.text
    assert answer.headers["set-cookie"].endswith("; SameSite=Strict; Secure")


def test_a_form_with_a_scheme_that_the_process_does_not_know_names_the_settings(
    root: str, api: Api
) -> None:
    with Person(root) as stranger:
        origins = ("https://ledger.example.com", "https://evil.example")

        same, other = (
            shown(stranger.post("/login", credentials(api), Origin=origin, **HOST), 403)
            for origin in origins
        )

    assert "set CARDLEDGER_PUBLIC_URL to that URL" in same
    assert "CARDLEDGER_FORWARDED_ALLOW_IPS" in same
    assert "not sent from a page of this console" in other
    assert "CARDLEDGER_PUBLIC_URL" not in other


def credentials(api: Api) -> dict[str, str]:
    return {"client_id": api.tenant.client_id, "client_secret": api.tenant.client_secret}
