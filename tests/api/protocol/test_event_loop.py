"""No request keeps the event loop from other requests, and none has a large answer."""

import gc
import json
from collections.abc import Callable, Iterator
from functools import partial

import httpx2
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.http.errors import MAX_ERROR_BODY, MAX_ERRORS
from cardledger.api.http.json_body import MAX_DEPTH, MAX_KEYS
from cardledger.api.http.middleware import MAX_PARAMETERS
from cardledger.api.ingestion import bodies
from cardledger.api.uploads.limits import CUSTOMERS_FILE, DOCUMENT_FILE
from cardledger.config import gc_tuning
from tests.api.support import TIMEOUT_S, Api, LoopWatch, Tenant, refused, server


@pytest.fixture(scope="module")
def watch() -> Iterator[LoopWatch]:
    # As in an API process: a collection of the tests' own size takes 90 ms.
    gc_tuning.freeze(for_latency=True)
    yield LoopWatch()
    gc.unfreeze()
    gc_tuning.relax()


@pytest.fixture(scope="module")
def watched(api_config: ApiConfig, tenant: Tenant, watch: LoopWatch) -> Iterator[httpx2.Client]:
    """A client of a server whose event loop is watched; both have done everything once."""
    with (
        server(api_config, watch=watch) as url,
        httpx2.Client(
            base_url=url + BASE_PATH,
            auth=(tenant.client_id, tenant.client_secret),
            headers={"content-type": "application/json"},
            timeout=TIMEOUT_S,
        ) as client,
    ):
        for _ in range(2):
            for path in BODIES_TO:
                client.post(path, content=b'{"a": 0}')
            client.get("/customers?a=0")
            for path in FORMS_TO:
                client.post(path, content=form(b"x"), headers=FORM)
            for media_type in (bodies.JSON, bodies.NDJSON):
                client.post(url + bodies.PATH, content=b"[0]", headers={"content-type": media_type})
        watch.longest_s()
        yield client


def filled(unit: bytes, size: int, begin: bytes = b"", end: bytes = b"") -> bytes:
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


def keys(count: int, text: str = "f{}") -> bytes:
    return json.dumps({text.format(number): 0 for number in range(count)}).encode()


BODIES_TO = ("/tokens", "/customers", "/sandbox/webhooks/test", "/webhooks/endpoints")
BODIES: dict[str, Callable[[int], bytes]] = {
    "all keys unknown": lambda _: keys(MAX_KEYS),
    "too many keys": lambda size: keys(size // 11),
    "long keys": lambda size: keys(min(MAX_KEYS, size // 70), "k" * 50 + "{}"),
    "one long key": lambda size: keys(1, "k" * (size - 10)),
    "keys with escapes": lambda size: keys(min(MAX_KEYS, size // 70), "\u00e9\u20ac" * 4 + "{}"),
    "keys that are repeated": lambda size: filled(b'"a":0,', size, b"{", b'"a":0}'),
    "keys of many objects": lambda size: filled(b'{"a":0},', size, b"[", b"0]"),
    "a deep array": lambda size: filled(b"[", size),
    "a deep array with an end": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "deep objects": lambda size: filled(b'{"a":', size),
    "objects as deep as allowed": lambda _: b'{"a":' * MAX_DEPTH + b"0" + b"}" * MAX_DEPTH,
    "a long string": lambda size: filled(b"x", size, b'{"name":"', b'"}'),
    "a string of escapes": lambda size: filled(b"\\u0041", size, b'{"name":"', b'"}'),
    "a string of surrogates": lambda size: filled(b"\\ud83d\\ude00", size, b'{"name":"', b'"}'),
    "a string of quotes": lambda size: filled(b'\\"', size, b'{"name":"', b'"}'),
    "a string without an end": lambda size: filled(b'\\"', size, b'{"name":"'),
    "strings with escapes": lambda size: filled(b'"\\u0041",', size, b'{"name":[', b"0]}"),
    "quotes": lambda size: filled(b'"', size),
    "a number": lambda size: filled(b"9", size, b'{"name":', b"}"),
    "a fraction": lambda size: filled(b"9", size, b'{"name":0.', b"}"),
    "an exponent": lambda size: filled(b"9", size, b'{"name":1e', b"}"),
    "numbers": lambda size: filled(b"9" * 99 + b",", size, b'{"permissions":[', b"0]}"),
    "fractions": lambda size: filled(b"1.1e-300,", size, b'{"permissions":[', b"0]}"),
    "a long array": lambda size: filled(b"0,", size, b'{"permissions":[', b"0]}"),
    "an array of arrays": lambda size: filled(b"[],", size, b'{"permissions":[', b"0]}"),
    "an array of objects": lambda size: filled(b"{},", size, b'{"permissions":[', b"0]}"),
    "an array of strings": lambda size: filled(b'"",', size, b'{"eventTypes":[', b'""]}'),
    "an array instead of an object": lambda size: filled(b"0,", size, b"[", b"0]"),
    "blanks": lambda size: filled(b" ", size),
}


@pytest.mark.parametrize("size", [60_000, 1_000_000])
@pytest.mark.parametrize("shape", BODIES)
def test_no_body_blocks_the_event_loop_or_has_a_large_answer(
    watched: httpx2.Client, watch: LoopWatch, shape: str, size: int
) -> None:
    body = BODIES[shape](size)

    def refused_by(path: str) -> None:
        answer = watched.post(path, content=body)
        assert answer.status_code in {400, 413}
        assert_bounded(answer)

    for path in BODIES_TO:
        watch.assert_not_blocked_by(partial(refused_by, path))


BOUNDARY = b"b"
FORM = {"content-type": "multipart/form-data; boundary=b"}


def form(content: bytes, head: bytes = b'name="file"; filename="a"') -> bytes:
    begin = b"--" + BOUNDARY + b"\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n"
    return begin + content + b"\r\n--" + BOUNDARY + b"--\r\n"


FORMS_TO = {"/documents": DOCUMENT_FILE, "/customers/bulk/csv": CUSTOMERS_FILE}
LARGE = 8 * 1024 * 1024
"""Takes long enough to find a step that grows with the form; "a file" is as large as allowed."""

FORMS: dict[str, Callable[[int], bytes]] = {
    "a file": lambda size: form(b"x" * size),
    "a file of lines": lambda size: form(filled(b"x\r\n", size)),
    "a file of commas": lambda size: form(filled(b",", size)),
    "a file that is no text": lambda size: form(filled(b"\xff", size)),
    "a file of line ends": lambda size: form(filled(b"\r", size)),
    "a file of almost boundaries": lambda size: form(filled(b"\r\n--", size)),
    "lines that begin with the boundary": lambda size: form(filled(b"\r\n--bx", size)),
    "lines that begin like the last boundary": lambda size: form(filled(b"\r\n--b-", size)),
    "boundaries without a line": lambda size: form(filled(b"\r\n--b\r", size)),
    "a boundary and blanks": lambda size: form(filled(b" ", size, b"\r\n--b")),
    "boundaries": lambda size: form(filled(b"\r\n--b\r\n\r\n", size)),
    "a field": lambda size: form(b"x" * size, b'name="documentNumber"'),
    "a long name": lambda size: form(b"x", b'name="' + b"n" * size + b'"'),
    "a name of escapes": lambda size: form(b"x", filled(b'\\"', size, b'name="', b'"')),
    "many parameters of a part": lambda size: form(b"x", filled(b"a=b;", size)),
    "many headers": lambda size: form(b"x", filled(b"\r\na:", size, b'name="file"')),
    "a header of blanks": lambda size: form(b"x", filled(b" ", size, b'name="file"\r\na:')),
    "line ends before the form": lambda size: filled(b"\r\n", size) + form(b"x"),
    "what follows the form": lambda size: form(b"x") + filled(b"\r\n--b", size),
    "no form": lambda size: b"x" * size,
}


@pytest.mark.parametrize("path", FORMS_TO)
@pytest.mark.parametrize("shape", FORMS)
def test_no_form_blocks_the_event_loop_or_has_a_large_answer(
    watched: httpx2.Client, watch: LoopWatch, shape: str, path: str
) -> None:
    def send(content: bytes) -> None:
        answer = watched.post(path, content=content, headers=FORM)
        assert answer.status_code in {202, 400, 409, 413}
        assert_bounded(answer)

    for size in (60_000, FORMS_TO[path] if shape == "a file" else LARGE):
        watch.assert_not_blocked_by(partial(send, FORMS[shape](size)))


EVENTS: dict[str, Callable[[int], bytes]] = {
    "empty objects": lambda size: filled(b"{},", size, b"[", b"0]"),
    "empty lines": lambda size: filled(b"\n", size),
    "lines of one byte": lambda size: filled(b"0\n", size),
    "a line": lambda size: b"x" * size,
    "lines of objects": lambda size: filled(b"{}\n", size),
    "as many events as allowed": lambda size: (
        (b"x" * (size // bodies.MAX_EVENTS - 1) + b"\n") * bodies.MAX_EVENTS
    ),
    "an array of as many events as allowed": lambda size: (
        b"["
        + b",".join([b'"' + b"x" * (size // bodies.MAX_EVENTS - 4) + b'"'] * bodies.MAX_EVENTS)
        + b"]"
    ),
    "an array of long strings": lambda size: filled(
        b'"' + b"x" * 60_000 + b'",', size, b"[", b"0]"
    ),
    "an array of escapes": lambda size: filled(
        b'"' + b"\\u0041" * 10_000 + b'",', size, b"[", b"0]"
    ),
    "an array of deep arrays": lambda size: filled(
        b"[" * 900 + b"]" * 900 + b",", size, b"[", b"0]"
    ),
    "objects of many keys": lambda size: filled(keys(5_000) + b"\n", size),
    "an array of objects of many keys": lambda size: filled(keys(5_000) + b",", size, b"[", b"0]"),
    "text of three bytes": lambda size: filled("\u20ac".encode() * 1_000 + b"\n", size),
    "an array of text": lambda size: filled('"\u20ac",'.encode(), size, b"[", b"0]"),
    "text that is not UTF-8": lambda size: filled(b"x", size, b"[", b"\xff"),
    "numbers": lambda size: filled(b"9" * 4_000 + b"\n", size),
    "blanks": lambda size: b" " * size,
    "blanks in an array": lambda size: filled(b" ", size, b"[", b"]"),
    "blanks between events": lambda size: filled(b" ", size, b"[0", b",0]"),
    "blanks after an array": lambda size: filled(b" ", size, b"[0]"),
    "blanks between all events": lambda size: filled(b" " * 1_000 + b"0,", size, b"[", b"0]"),
    "a string without an end": lambda size: filled(b"x", size, b'["'),
    "quotes": lambda size: filled(b'"', size, b"["),
    "a deep array": lambda size: filled(b"[", size),
}


@pytest.mark.parametrize("media_type", [bodies.JSON, bodies.NDJSON])
@pytest.mark.parametrize("shape", EVENTS)
def test_no_body_of_events_blocks_the_event_loop(
    watched: httpx2.Client, watch: LoopWatch, shape: str, media_type: str
) -> None:
    url = watched.base_url.copy_with(path=bodies.PATH)

    def send(content: bytes) -> None:
        answer = watched.post(
            url,
            params={"wait": "false"},
            content=content,
            headers={"content-type": media_type},
        )
        assert answer.status_code in {202, 400, 413, 429}

    for size in (60_000, bodies.MAX_BODY):
        watch.assert_not_blocked_by(partial(send, EVENTS[shape](size)))


HEADS: dict[str, Callable[[int], tuple[str, dict[str, str]]]] = {
    "parameters without names": lambda size: ("/customers?" + "&" * size, {}),
    "parameters without values": lambda size: ("/customers?" + "a&" * (size // 2), {}),
    "as many parameters as allowed": lambda size: (
        "/customers?" + "&".join(f"{n}=" + "%41" * (size // 200) for n in range(MAX_PARAMETERS)),
        {},
    ),
    "one long parameter": lambda size: ("/customers?cursor=" + "%41" * (size // 3), {}),
    "an id that is encoded twice": lambda size: (
        "/webhooks/deliveries?subjectId=" + "%2541" * (size // 5),
        {},
    ),
    "parameters of an operation that is not implemented": lambda size: (
        "/exchange-rates?" + "a&" * (size // 2),
        {},
    ),
    "a long path": lambda size: ("/customers/" + "a" * size, {}),
    "a path of escapes": lambda size: ("/customers/Customer:" + "%2541" * (size // 5), {}),
    "a path of many parts": lambda size: ("/a" * (size // 2), {}),
    "one long header": lambda size: ("/customers", {"x-a": "a" * size}),
    "many headers": lambda size: ("/customers", {f"x{n}": "" for n in range(size // 10)}),
    "cookies": lambda size: ("/customers", {"cookie": "a=b;" * (size // 4)}),
    "a cookie of escapes": lambda size: (
        "/customers",
        {"cookie": 'a="' + "\\101" * (size // 4) + '"'},
    ),
    "a content type of parameters": lambda size: (
        "/tokens",
        {"content-type": "application/json" + ";" * size},
    ),
    "a content type of quotes": lambda size: (
        "/tokens",
        {"content-type": 'application/json; a="' + ";" * size + '"'},
    ),
    "long credentials": lambda size: (
        "/customers",
        {"authorization": "Basic " + "QUJD" * (size // 4)},
    ),
    "a long idempotency key": lambda size: ("/tokens", {"idempotency-key": "k" * size}),
    "a long request id": lambda size: ("/customers", {"x-request-id": "k" * size}),
}


@pytest.mark.parametrize("size", [15_000, 60_000])
@pytest.mark.parametrize("shape", HEADS)
def test_no_head_blocks_the_event_loop_or_has_a_large_answer(
    watched: httpx2.Client, watch: LoopWatch, shape: str, size: int
) -> None:
    path, headers = HEADS[shape](size)

    def send() -> None:
        if path == "/tokens":
            answer = watched.post(path, content=b'{"a":0}', headers=headers)
        else:
            answer = watched.get(path, headers=headers)
        assert answer.status_code < 500 or answer.json()["code"] == "NOT_IMPLEMENTED"
        assert_bounded(answer)

    watch.assert_not_blocked_by(send)


def assert_bounded(answer: httpx2.Response) -> None:
    assert len(answer.content) <= MAX_ERROR_BODY
    errors = answer.json().get("details", {}).get("errors", [])
    assert len(errors) <= MAX_ERRORS


def test_an_error_says_how_many_fields_it_leaves_out(root: str, tenant: Tenant) -> None:
    names = {f"f{number}": 0 for number in range(50)}
    with Api(root, tenant) as api:
        answers = [
            api.post("/tokens", {"name": "A", "permissions": ["VIEW"], **names}),
            api.post("/sandbox/webhooks/test", names),
            api.get("/customers", **names),
        ]

    for answer in answers:
        error = refused(answer, 400, "INVALID_INPUT")
        assert [part["field"] for part in error["details"]["errors"]] == [*names][:MAX_ERRORS]
        assert error["details"]["moreErrors"] == 50 - MAX_ERRORS
        assert error["message"].endswith("; and 47 more")
