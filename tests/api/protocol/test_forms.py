"""Forms that are costly to parse are refused, and no others, however their bytes arrive."""

import pytest

from cardledger.api.http.errors import ApiError
from cardledger.api.uploads.multipart import BOUNDARIES_LIMIT, PIECE, FormReader, ReceivedFile

HEAD = b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
LINE = b"\r\n--bx"
"""It begins with the boundary, and is no boundary: the parser steps through it, byte by byte."""


def form(content: bytes) -> bytes:
    return b"--b\r\n" + HEAD + content + b"\r\n--b--\r\n"


def content_of(body: bytes, piece: int) -> bytes:
    """Return the content of the file of a form that arrives in pieces."""
    reader = FormReader(b"b", max_file=len(body))
    for start in range(0, len(body), piece):
        reader.feed(body[start : start + piece])
    file = reader.finish()["file"]
    assert isinstance(file, ReceivedFile)
    return file.content


@pytest.mark.parametrize("piece", [1, 5, 6, 7, PIECE])
def test_lines_that_begin_with_the_boundary_are_few(piece: int) -> None:
    few = b"x" + LINE * (BOUNDARIES_LIMIT - 1)  # The last boundary is one more.

    assert content_of(form(few), piece) == few
    with pytest.raises(ApiError, match="more than 100 boundaries") as refusal:
        content_of(form(few + LINE), piece)
    assert refusal.value.status == 400


@pytest.mark.parametrize("piece", [1, 100, PIECE])
def test_blanks_after_a_boundary_are_few(piece: int) -> None:
    def with_blanks(count: int) -> bytes:
        # The parser knows blanks only after a boundary that a line end comes before.
        second = b"\r\n--b" + b" " * count + b"\r\n" + HEAD.replace(b"file", b"next", 1)
        return form(b"x" + second)

    assert content_of(with_blanks(1_000), piece) == b"x"
    with pytest.raises(ApiError, match="too many blanks"):
        content_of(with_blanks(2 * PIECE + 2_000), piece)
