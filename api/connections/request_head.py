"""Pure checks of request heads, their refusals, and where pipelined requests end."""

import re
from collections.abc import Sequence
from typing import Final

from cardledger.api.http.errors import HEAD_TOO_LARGE, ApiError, unavailable
from cardledger.schema.wire.errors import Code

MAX_HEAD: Final = 16 * 1024
"""Bytes of a request line with its headers."""

BAD_REQUEST: Final = 400

MALFORMED: Final = ApiError(
    Code.INVALID_INPUT,
    "Malformed HTTP/1.1 request; check the request line and the headers.",
    status=BAD_REQUEST,
)
LARGE_HEAD: Final = ApiError(
    Code.INVALID_INPUT,
    f"Request line and headers too large; send at most {MAX_HEAD} bytes.",
    status=HEAD_TOO_LARGE,
)

FULL: Final = unavailable("Too many connections; use fewer, or retry in a moment.")

_AROUND: Final = len(": \r\n")
_FORM: Final = b"multipart/form-data"

HEAD_END: Final = b"\r\n\r\n"
PIECE: Final = 4096
"""The parser gets no more at once where more than one request may be in it."""

# A host and a port (RFC 3986).
_HOST: Final = re.compile(rb"(?:[\w.~%-]+|\[[\da-fA-F:.]+\])(?::\d{1,5})?")


def host_error(headers: Sequence[tuple[bytes, bytes]], version: str) -> str | None:
    """Return what is wrong with the header Host, None if nothing is (RFC 9112, section 3.2).

    HTTP/1.0 does not require it, and health checks of load balancers leave it out.
    """
    values = [value for name, value in headers if name == b"host"]
    if len(values) == 1:
        if _HOST.fullmatch(values[0]):
            return None
        return "Invalid header Host; send the server's host name, and its port if needed."
    if values:
        return "Duplicate header Host; send it once."
    return None if version == "1.0" else "Missing header Host; send it once."


def size_of(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Return how many bytes the head has, without the rest of the request line."""
    return len(url) + sum(len(name) + len(value) + _AROUND for name, value in headers)


def length_of_body(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return how many bytes the body has, None where the head does not say."""
    length = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            length = int(value)  # Digits of at most 64 bits: the parser has checked it.
    return length


def is_form(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the body is said to be a form, which may have a large file."""
    return any(
        name == b"content-type" and value[: len(_FORM)].lower() == _FORM for name, value in headers
    )


def is_one_request(data: bytes) -> bool:
    """Return whether `data` is short and has at most one end of a head."""
    return len(data) <= PIECE and data.count(HEAD_END) < 2  # noqa: PLR2004 - two


def piece_end(data: bytes, start: int) -> int:
    """Return where the piece of `data` ends that begins at `start`: at the end of a head at most.

    A body may contain the end of a head; it is then parsed in more pieces than necessary.
    """
    most = min(start + PIECE, len(data))
    found = data.find(HEAD_END, start, most)
    return most if found < 0 else found + len(HEAD_END)
