"""The links to the console that commands print, followed as a person does."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cardledger.embedded.servers import DatabaseUrl
from tests.console.person import Person, shown
from tests.system import support
from tests.system.support import COMMAND, Up, environment, started
from tests.waiting import eventually

_LINK = re.compile(r"\bconsole +(http://\S+\?ticket=\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: DatabaseUrl, redis_url: str
) -> Iterator[Up]:
    with support.own_database(postgres_url) as database_url:
        env = environment(DATABASE_URL=database_url, REDIS_URL=redis_url)
        with support.up(tmp_path_factory.mktemp("up"), env) as running:
            yield running


def printed_link(output: Callable[[], str], process: subprocess.Popen[bytes]) -> str:
    """Return the link to the console that a running command prints."""
    link = eventually(lambda: _LINK.search(output()), timeout_s=200, process=process)
    return str(link[1])


def visitor_of(link: str) -> Person:
    """Return a person without a session, at the server of a link."""
    parts = urlsplit(link)
    return Person(f"{parts.scheme}://{parts.netloc}")


def opened(visitor: Person, link: str, status: int = 200) -> str:
    """Return the page that a link leads to."""
    answer = visitor.http.get(link)
    while answer.status_code == 303:
        answer = visitor.http.get(answer.headers["location"])
    return shown(answer, status)


def opens_once(link: str) -> str:
    """Return the page that a link opens, after checking that it begins no second session."""
    with visitor_of(link) as first, visitor_of(link) as second:
        page = opened(first, link)
        again = opened(second, link, 401)

        assert "Log out" in opened(first, "/console")
        assert second.get("").headers["location"].startswith("/console/login")
    assert "Log out" in page
    assert "This link was used" in again
    return page


def test_two_clicks_after_the_link_of_up_is_the_picture_of_the_tip(system: Up) -> None:
    link = printed_link(system.output, system.process)

    with visitor_of(link) as visitor, visitor_of(link) as second:
        overview = opened(visitor, link)
        again = opened(second, link, 401)
        [simulator] = re.findall(r'<a href="([^"]*)">Simulator</a>', overview)
        stories = opened(visitor, simulator)
        fields = {name: visitor.hidden(stories, name) for name in ("form_token", "idempotency_key")}
        [action] = re.findall(r'<form method="post" action="/console(/\S*/tip)">', stories)
        picture = opened(visitor, visitor.post(action, fields).headers["location"])

    assert "<h1>Overview</h1>" in overview
    assert "This link was used" in again
    assert "Where every cent went" in picture
    assert "12.50" in picture


def test_the_command_prints_a_link_that_logs_in_once(system: Up) -> None:
    printed = support.run("console", "--data-dir", str(system.data_dir))

    page = opens_once(printed.stdout.strip())

    assert printed.returncode == 0, printed.stderr
    assert "<h1>Overview</h1>" in page


@pytest.mark.slow
def test_the_link_of_the_demo_opens_the_picture_of_the_tip(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--events", "50", "--port", "0", "--keep"]
    file = tmp_path / "output.txt"
    with (
        file.open("w") as output,
        started(
            command, env=environment(), cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        page = opens_once(printed_link(file.read_text, process))
        process.terminate()

    assert "Where every cent went" in page
    assert re.search(r'data-figure="settledAmount".*?<dd[^>]*>15\.00</dd>', page, re.DOTALL)
