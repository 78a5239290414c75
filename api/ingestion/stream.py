"""Outcomes as a stream: in the form of the request, NDJSON or a JSON array."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from cardledger.api.ingestion.bodies import JSON
from cardledger.schema.wire.outcomes import Outcome

_Groups = AsyncIterator[Sequence[Outcome]]


class OutcomeStream(StreamingResponse):
    """Sends outcomes as they come, and closes what was held for them at the end."""

    def __init__(
        self, groups: _Groups, media_type: str, *, close: Callable[[], Awaitable[None]]
    ) -> None:
        """Send the outcomes of `groups`; `close` is called in any case."""
        rendered = _array(groups) if media_type == JSON else _lines(groups)
        headers = {"Cache-Control": "no-store"}
        super().__init__(rendered, media_type=media_type, headers=headers)
        self._close: Final = close

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()


async def _lines(groups: _Groups) -> AsyncIterator[bytes]:
    async for group in groups:
        yield b"".join(outcome.json + b"\n" for outcome in group)


async def _array(groups: _Groups) -> AsyncIterator[bytes]:
    before = b"[\n"
    async for group in groups:
        yield before + b",\n".join(outcome.json for outcome in group)
        before = b",\n"
    yield b"\n]\n"
