"""What a file is, by its content: a PDF, a JPEG or a PNG, whole and legible.

Its name and the type that its sender states are not asked. Nothing is decompressed: a file that
would grow when it is opened costs nothing here, and an image with too many pixels is refused.
"""

import re
from collections.abc import Callable
from typing import Final
from zlib import crc32

from cardledger.schema.wire.customers.documents import Fault

PDF: Final = "application/pdf"
JPEG: Final = "image/jpeg"
PNG: Final = "image/png"

SIDE_MIN: Final = 200
"""Pixels of the shorter side of an image that a person can read."""

PIXEL_LIMIT: Final = 100_000_000
"""Pixels of an image: more than any scanner makes of a page, and less than exhausts a reader."""

_PART_LIMIT: Final = 10_000
"""Chunks of a PNG, or markers of a JPEG before its picture: far more than any program writes."""

_PDF_HEAD: Final = re.compile(rb"%PDF-[12]\.[0-9]")
_PDF_TAIL: Final = 1024  # Bytes; readers look for the end of a PDF in them.
_PDF_OBJECT: Final = b" obj"

_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK: Final = 12  # Length, type and checksum of a chunk.
_PNG_HEADER: Final = 13

_JPEG_HEAD: Final = b"\xff\xd8\xff"
_JPEG_END: Final = b"\xff\xd9"
_JPEG_MARKER: Final = 0xFF  # Begins a marker; repeated it fills.
_JPEG_SCAN: Final = 0xDA
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})  # Markers without a segment.
# Markers of a frame, whose segment has the size of the image.
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_FRAME: Final = 7  # Bytes up to and with the size.


class DocumentRefusedError(Exception):
    """The document is not accepted; the message says what to send instead."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Final = fault


def media_type_of(content: bytes) -> str:
    """Return the media type of a file.

    Raises: DocumentRefusedError.
    """
    for media_type, is_begun, check in _FORMATS:
        if is_begun(content):
            check(content)
            return media_type
    raise DocumentRefusedError(
        Fault.UNSUITABLE_DOCUMENT, "The file is not a PDF, JPEG or PNG; send one of these."
    )


def _check_pdf(content: bytes) -> None:
    tail = content[-_PDF_TAIL:]
    if b"startxref" not in tail or b"%%EOF" not in tail or _PDF_OBJECT not in content:
        raise _incomplete("PDF")


def _check_png(content: bytes) -> None:
    size: tuple[int, int] | None = None
    has_data = False
    place = len(_PNG_HEAD)
    for _ in range(_PART_LIMIT):
        if place + _PNG_CHUNK > len(content):
            break
        length = int.from_bytes(content[place : place + 4])
        end = place + _PNG_CHUNK + length
        kind = content[place + 4 : place + 8]
        if end > len(content) or (size is None) != (kind == b"IHDR"):
            break
        body = memoryview(content)[place + 4 : end - 4]
        if crc32(body) != int.from_bytes(content[end - 4 : end]):
            break
        if kind == b"IHDR":
            if length != _PNG_HEADER:
                break
            size = int.from_bytes(body[4:8]), int.from_bytes(body[8:12])
        has_data = has_data or kind == b"IDAT"
        if kind == b"IEND":
            if size is None or not has_data:
                break
            _check_size(*size)
            return
        place = end
    raise _incomplete("PNG")


def _check_jpeg(content: bytes) -> None:
    size: tuple[int, int] | None = None
    place = 2
    for _ in range(_PART_LIMIT):
        if place + 4 > len(content) or content[place] != _JPEG_MARKER:
            break
        marker = content[place + 1]
        if marker == _JPEG_MARKER or marker in _JPEG_ALONE:
            place += 1 if marker == _JPEG_MARKER else 2
            continue
        end = place + 2 + int.from_bytes(content[place + 2 : place + 4])
        if marker in _JPEG_FRAMES and end <= len(content) and end - place > _JPEG_FRAME + 2:
            frame = content[place + 4 : end]
            size = int.from_bytes(frame[3:5]), int.from_bytes(frame[1:3])
        if marker == _JPEG_SCAN:
            # The end may have something behind it, which cameras add.
            if size is None or content.find(_JPEG_END, end) < 0:
                break
            _check_size(*size)
            return
        if end <= place + 3:
            break
        place = end
    raise _incomplete("JPEG")


def _check_size(width: int, height: int) -> None:
    if width * height > PIXEL_LIMIT:
        message = f"The image has more than {PIXEL_LIMIT:,} pixels; send a smaller one."
        raise DocumentRefusedError(Fault.UNSUITABLE_DOCUMENT, message)
    if min(width, height) < SIDE_MIN:
        message = (
            f"The image has {width} by {height} pixels; send one of at least {SIDE_MIN} by"
            f" {SIDE_MIN}, which a person can read."
        )
        raise DocumentRefusedError(Fault.LOW_QUALITY, message)


def _incomplete(kind: str) -> DocumentRefusedError:
    message = f"The {kind} is cut off or damaged; send the whole file."
    return DocumentRefusedError(Fault.INCOMPLETE, message)


_FORMATS: Final[tuple[tuple[str, Callable[[bytes], object], Callable[[bytes], None]], ...]] = (
    (PDF, _PDF_HEAD.match, _check_pdf),
    (PNG, lambda content: content.startswith(_PNG_HEAD), _check_png),
    (JPEG, lambda content: content.startswith(_JPEG_HEAD), _check_jpeg),
)
