"""Files for tests of uploads: small ones that are whole, made of nothing."""

import struct
import zlib
from typing import Any

PDF = (
    b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
    b"2 0 obj\n<< /Type /Pages /Kids [] /Count 0 >>\nendobj\n"
    b"xref\n0 3\n0000000000 65535 f \n0000000009 00000 n \n0000000058 00000 n \n"
    b"trailer\n<< /Size 3 /Root 1 0 R >>\nstartxref\n107\n%%EOF\n"
)

PASSPORT: dict[str, str] = {"documentType": "PASSPORT", "country": "US"}


def png_chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(width: int = 400, height: int = 300, *, padding: int = 0) -> bytes:
    """Return a grey PNG; of many pixels it has only the head, as a bomb does."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = b"" if width * height > 10**7 else (b"\0" + b"\x80" * width) * height
    parts = [png_chunk(b"IHDR", head), png_chunk(b"IDAT", zlib.compress(pixels))]
    parts += [png_chunk(b"teXt", bytes(padding))] if padding else []
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + png_chunk(b"IEND", b"")


def jpeg(width: int = 400, height: int = 300) -> bytes:
    """Return the frame of a JPEG with a picture that shows nothing."""
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    scan = b"\xff\xda" + struct.pack(">H", 8) + b"\x01\x01\x00\x00\x3f\x00" + bytes(64)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"\0\0" + frame + scan + b"\xff\xd9"


def pdf_of(size: int) -> bytes:
    """Return a PDF of exactly `size` bytes."""
    head, tail = PDF.split(b"xref", 1)
    return head + b"%" * (size - len(PDF)) + b"xref" + tail


def form(holder: str | None, content: bytes = PDF, **fields: str) -> dict[str, Any]:
    """Return the arguments of a request that uploads a passport of `holder`."""
    stated = PASSPORT | ({} if holder is None else {"documentHolder": holder}) | fields
    return {"data": stated, "files": {"file": ("passport.pdf", content, "application/pdf")}}
