"""Links in a chat or a tracker: a page of another site leads to the console, in Chromium."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from playwright.sync_api import Browser, Request, expect

from tests.console.browser.conftest import Visiting
from tests.console.stories import Stories

pytestmark = pytest.mark.browser

Chat = Callable[[str], str]


@pytest.fixture(scope="module")
def chat(stories: Stories) -> Iterator[Chat]:
    """Return what gives the address of a page of another site with a link to the console."""
    del stories  # The browser's event loop begins after them.
    links: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<a href="{links[-1]}">look at this</a>'.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def say(link: str) -> str:
            links.append(link)
            # The console is at 127.0.0.1: to a browser, that is another site.
            return f"http://localhost:{server.server_port}/"

        yield say
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("with_scripts", [True, False])
def test_a_link_of_another_site_opens_in_the_session_of_the_browser(
    visit: Visiting, chat: Chat, root: str, stories: Stories, *, with_scripts: bool
) -> None:
    link = f"{root}/console/card-transactions/{stories.tip}?asOf=2"
    page = visit(with_scripts=with_scripts).page.context.new_page()
    page.goto(chat(link))
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request))  # noqa: PLW0108 - it takes no method

    page.get_by_role("link").click()

    expect(page.get_by_role("heading", name="Where every cent went")).to_be_visible()
    assert page.url == link
    heads = [each.all_headers() for each in sent if each.url == link]
    assert [(head["sec-fetch-site"], "cookie" in head) for head in heads] == [
        ("cross-site", False),
        ("same-origin", True),
    ]


def test_without_a_session_a_link_of_another_site_leads_to_the_login(
    chromium: Browser, chat: Chat, root: str
) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(chat(f"{root}/console/cards?state=ACTIVE"))

        page.get_by_role("link").click()

        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert page.url == f"{root}/console/login?next=%2Fconsole%2Fcards%3Fstate%3DACTIVE"
