"""Nothing keeps a file that was received once it is prepared."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cardledger.api.loop_turns import LoopTurns
from cardledger.api.routes.customers import uploads
from cardledger.api.uploads.multipart import ReceivedFile

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
    call: Any = SimpleNamespace(services=SimpleNamespace(loop_turns=LoopTurns()), prepared=[])
    before = sys.getrefcount(content)

    async def read() -> None:
        call.prepared.append(await uploads._read(call, ReceivedFile("a.csv", content)))

    asyncio.run(read())

    assert sys.getrefcount(content) == before
    assert len(call.prepared) == 1
