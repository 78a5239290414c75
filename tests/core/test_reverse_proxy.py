"""The example of a reverse proxy lets through what the API takes; read as nginx reads it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from starlette.routing import Route

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.http.operations import Guarded
from cardledger.api.http.routing import MAX_BODY
from cardledger.api.ingestion.bodies import MAX_BODY as MAX_EVENTS_BODY

PAGE: Final = Path(__file__).parents[2] / "docs" / "reverse-proxy.md"
UNITS: Final = {"k": 1024, "m": 1024 * 1024}
SIZE: Final = re.compile(r"client_max_body_size\s+(\d+)([km]);")


def example() -> str:
    [found] = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def size_in(text: str) -> int | None:
    found = SIZE.search(text)
    return None if found is None else int(found[1]) * UNITS[found[2]]


def proxied(path: str) -> int:
    """Return how many bytes of a body for `path` the example passes on."""
    configuration = example()
    of_server = size_in(configuration.partition("location")[0])
    assert of_server is not None
    for kind, pattern, block in re.findall(
        r"location (=|~) (\S+)\s+\{(.*?)\}", configuration, re.DOTALL
    ):
        if path == pattern if kind == "=" else re.search(pattern, path):
            return size_in(block) or of_server
    return of_server


def limits() -> Iterator[tuple[str, int]]:
    """Yield the path of each operation, with ids, and the limit of its body."""
    config = ApiConfig(
        database_url="postgresql://127.0.0.1:1/none",
        redis_url="redis://127.0.0.1:1",
        secret_key="a secret key that only tests use, long enough",
        console=ConsoleConfig(mode=ConsoleMode.ACT),
    )
    for route in create_app(config).router.routes:
        assert isinstance(route, Route)
        path, limit = re.sub(r"\{[^}]*\}", "x", route.path), MAX_BODY
        if isinstance(route, Guarded):
            access = route.access
            if access.form is not None:
                limit = access.form.max_body
            elif access.stream is not None:
                limit = MAX_EVENTS_BODY
        yield path, limit


@pytest.fixture(scope="module")
def found() -> set[tuple[str, int]]:
    return set(limits())


def test_a_body_as_large_as_the_api_takes_is_passed_on_and_little_more(
    found: set[tuple[str, int]],
) -> None:
    large = {(path, limit) for path, limit in found if limit > MAX_BODY}

    assert len(large) >= 4
    for path, limit in large:
        assert limit <= proxied(path) < 1.1 * limit, path


def test_all_other_bodies_have_the_limit_of_the_api(found: set[tuple[str, int]]) -> None:
    large = {path for path, limit in found if limit > MAX_BODY}

    others = {path: proxied(path) for path, _ in found if path not in large}

    assert set(others.values()) == {MAX_BODY}, others
