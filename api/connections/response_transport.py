"""What uvicorn writes a response to, and when it reads on."""

import asyncio
from typing import Final, Protocol

from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl

_CONTINUE: Final = b"HTTP/1.1 100 "

Data = bytes | bytearray | memoryview


class Connection(Protocol):
    """The connection of a response: it keeps the head for the body that follows."""

    transport: asyncio.Transport

    def keep_head(self, head: Data) -> None:
        """Send `head` together with the body, if that follows at once."""

    def write_body(self, data: Data) -> None:
        """Send a part of the body, after the head that was kept for it."""

    def close_after_response(self) -> None:
        """Close the connection."""


class ResponseTransport(asyncio.Transport):
    """What one response is written to."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection: Final = connection
        self._transport: Final = connection.transport
        self._has_head = False

    @override
    def write(self, data: Data) -> None:
        if self._has_head:
            self._connection.write_body(data)
        elif bytes(data[: len(_CONTINUE)]) == _CONTINUE:
            self._transport.write(data)
        else:
            self._has_head = True
            self._connection.keep_head(data)

    @override
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    @override
    def close(self) -> None:
        self._connection.close_after_response()


class Flow(FlowControl):
    """Reads on only when nothing waits to be parsed; uvicorn would when a body is asked for."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.is_holding = False

    @override
    def resume_reading(self) -> None:
        if not self.is_holding:
            super().resume_reading()
