"""Nothing keeps a file that was received once it is prepared."""

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from cardledger.api.http.errors import ApiError
from cardledger.api.loop_turns import LoopTurns
from cardledger.api.routes.customers import uploads
from cardledger.api.uploads.multipart import FormReader, ReceivedFile

HEADER = b"platformCustomerId,umaAddress,customerType,fullName\n"
READABLE = [HEADER + b"a,,INDIVIDUAL,Ada\n"]
UNREADABLE = [HEADER + b"\xff\n", HEADER + b'a,"\n', b"nonsense\n", HEADER]


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("content", READABLE + UNREADABLE)
def test_a_file_of_customers_is_freed_without_the_garbage_collector(content: bytes) -> None:
    services = SimpleNamespace(loop_turns=LoopTurns())
    state = SimpleNamespace(services=services)
    request: Any = SimpleNamespace(scope={}, app=SimpleNamespace(state=state), prepared=[])
    before = sys.getrefcount(content)

    async def read() -> None:
        request.prepared.append(await uploads._read(request, ReceivedFile("a.csv", content)))

    asyncio.run(read())

    assert sys.getrefcount(content) == before
    assert len(request.prepared) == 1


HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@pytest.mark.parametrize("end", [b"\r\n--b--\r\n", b"\r\n--b\r\n", b""])
def test_a_form_is_freed_without_the_garbage_collector(end: bytes) -> None:
    reader = FormReader(b"b", max_file=1_000)
    reader.feed(HEAD + b"content" + end)
    watched = weakref.ref(reader)
    with suppress(ApiError):
        reader.finish()

    reader.close()
    del reader

    assert watched() is None
