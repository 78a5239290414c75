"""A parser of forms that keeps no more than their limits allow, whatever a sender claims.

Pieces are fed as they arrive; the first one beyond a limit ends the form. Python-Multipart finds
the parts; what they mean is decided here. It searches for boundaries quickly and steps through what
looks like one slowly, byte by byte, so that boundaries and the blanks after them are few as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.schema.wire.errors import Code

FORM: Final = "multipart/form-data"

PARTS_LIMIT: Final = 50
"""Parts of a form; no operation has as many fields."""

BOUNDARIES_LIMIT: Final = 2 * PARTS_LIMIT
"""Lines that begin with the boundary; RFC 2046 allows none within a part."""

PIECE: Final = 16 * 1024
"""Bytes that are fed at a time: 1 ms, and 3 ms where every byte is stepped through."""

FIELDS_LIMIT: Final = 64 * 1024
"""Bytes of all fields that are no file."""

_HEADERS_LIMIT: Final = 8  # Of a part.
_HEADER_LIMIT: Final = 1_024  # Bytes of a header of a part.
_CONTENT_TYPE_LIMIT: Final = 255  # Characters.
_BLANKS_LIMIT: Final = 1_024  # Bytes of pieces that are only blanks behind a boundary.
_BEFORE_LIMIT: Final = 1_024  # Bytes before the first boundary: line ends, which take long.
_PLAIN: Final = frozenset({b"", b"binary", b"7bit", b"8bit"})


def boundary_of(content_types: list[str], content_encoding: str) -> bytes:
    """Return the boundary of a form, by the headers Content-Type of its request.

    Raises: ApiError INVALID_INPUT when it is no form, or compressed.
    """
    if content_encoding.strip().lower() not in {"", "identity"}:
        message = "Unsupported Content-Encoding; send the body uncompressed."
        raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Encoding"})
    if len(content_types) == 1 and len(content_types[0]) <= _CONTENT_TYPE_LIMIT:
        media_type, options = parse_options_header(content_types[0])
        boundary = options.get(b"boundary", b"")
        if media_type == FORM.encode() and 0 < len(boundary) <= 70:  # noqa: PLR2004 - RFC 2046
            return boundary
    message = f"Unsupported content type; send the header Content-Type: {FORM} with a boundary."
    raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Type"})


@dataclass(frozen=True, slots=True, repr=False)
class ReceivedFile:
    """A file of a form, as it was received. Without a `repr`, so that no log shows it."""

    name: str  # As the sender states it: not safe as a path.
    content: bytes


class FileTooLargeError(Exception):
    """A file of the form has more bytes than it may have."""


class FormReader:
    """Collects the parts of one form from its bytes."""

    def __init__(self, boundary: bytes, *, max_file: int) -> None:
        """Let the one file of the form have `max_file` bytes."""
        self._max_file: Final = max_file
        self._delimiter: Final = b"\r\n--" + boundary
        self._delimiters = 0
        self._size = 0
        self._blanks = 0
        self._before = b""  # The end of the last piece, in which a delimiter may begin.
        self._body: dict[str, Any] = {}
        self._fields_size = 0
        self._files_size = 0
        self._parts = 0
        self._is_whole = False
        self._header = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._name = ""
        self._file_name: str | None = None
        self._content = BytesIO()
        self._parser: Final = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._add_data,
                "on_part_end": self._end_part,
                "on_header_field": self._add_to_header,
                "on_header_value": self._add_to_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_end": self._end,
            },
            max_header_count=_HEADERS_LIMIT,
            max_header_size=_HEADER_LIMIT,
        )

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the form, of which there are at most `PIECE`.

        Raises: ApiError INVALID_INPUT, FileTooLargeError.
        """
        self._size += len(piece)
        if not self._parts and self._size > _BEFORE_LIMIT + PIECE:
            raise _malformed("it does not begin with its boundary")
        searched = self._before + piece
        self._delimiters += searched.count(self._delimiter)
        if self._delimiters > BOUNDARIES_LIMIT:
            raise _malformed(f"it has more than {BOUNDARIES_LIMIT} boundaries")
        self._before = searched[1 - len(self._delimiter) :]
        try:
            self._parser.write(piece)
        except FormParserError:
            raise _malformed("it cannot be parsed") from None
        is_padding = self._parser.state == MultipartState.BOUNDARY_PADDING
        self._blanks = self._blanks + len(piece) if is_padding and not piece.strip(b" \t") else 0
        if self._blanks > _BLANKS_LIMIT:
            raise _malformed("a boundary is followed by too many blanks")

    def finish(self) -> Mapping[str, Any]:
        """Return the fields by name: texts, and each file as a `ReceivedFile`.

        Raises: ApiError INVALID_INPUT when the form is cut off.
        """
        if not self._is_whole:
            raise _malformed("its last boundary is missing")
        return self._body

    def close(self) -> None:
        """Free what was received: parser and reader refer to each other."""
        self._parser.callbacks = {}
        self._body = {}
        self._content = BytesIO()

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > PARTS_LIMIT:
            raise _malformed(f"it has more than {PARTS_LIMIT} parts")
        self._headers = {}
        self._content = BytesIO()

    def _add_to_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_to_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._header_value)
        self._header, self._header_value = bytearray(), bytearray()

    def _end_headers(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        kind, options = parse_options_header(disposition)
        name = options.get(b"name", b"")
        if kind != b"form-data" or not name:
            raise _malformed("each part needs the header Content-Disposition with a name")
        self._name = _text(name, "name")
        if self._name in self._body:
            raise invalid_field(self._name, "is a duplicate part of the form; send it once")
        encoding = self._headers.get(b"content-transfer-encoding", b"").strip().lower()
        if encoding not in _PLAIN:
            raise invalid_field(self._name, "must be sent as it is, without a transfer encoding")
        stated = options.get(b"filename")
        self._file_name = None if stated is None else stated.decode("utf-8", "replace")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self._content.write(memoryview(data)[start:end])
        if self._file_name is not None:
            if self._files_size + self._content.tell() > self._max_file:
                raise FileTooLargeError
        elif self._fields_size + self._content.tell() > FIELDS_LIMIT:
            raise _malformed(f"its fields have more than {FIELDS_LIMIT} bytes")

    def _end_part(self) -> None:
        content = self._content.getvalue()  # Not a copy, which takes 30 ms for a large file.
        self._content = BytesIO()
        if self._file_name is not None:
            self._files_size += len(content)
            self._body[self._name] = ReceivedFile(self._file_name, content)
        else:
            self._fields_size += len(content)
            self._body[self._name] = _text(content, self._name)

    def _end(self) -> None:
        self._is_whole = True


def _text(raw: bytes, field: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise invalid_field(field, f"must be UTF-8; byte {error.start} is not valid") from None


def _malformed(what: str) -> ApiError:
    return invalid_field("", f"must be a form ({FORM}): {what}")
