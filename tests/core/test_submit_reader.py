"""The thread that reads the file of `cardledger submit`, when the command ends before the file."""

import asyncio
from asyncio import Queue
from pathlib import Path

import pytest

from cardledger.commands.submit import Reader
from cardledger.workers.client.jsonl import Event


class _Chunks(Queue[list[Event] | None]):
    """A queue of one chunk that shows when another has to wait."""

    def __init__(self) -> None:
        super().__init__(maxsize=1)
        self.one_waits = asyncio.Event()

    async def put(self, chunk: list[Event] | None) -> None:
        if self.full():
            self.one_waits.set()
        await super().put(chunk)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_ends_silently_when_the_event_loop_ends_while_it_waits_for_room(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("{}\n" * 2_000)
    with file.open("rb", buffering=0) as source:

        async def end_early() -> Reader:
            chunks = _Chunks()
            reader = Reader(source, chunks, asyncio.get_running_loop())
            reader.start()
            await chunks.one_waits.wait()
            return reader

        reader = asyncio.run(end_early())

        reader.join(10)
    assert not reader.is_alive()
