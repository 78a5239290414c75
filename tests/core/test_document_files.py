"""What files of documents are, by their content, and how their names are shown."""

import io
import time
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.customers.documents import file_names, formats
from cardledger.ledger.customers.documents.formats import DocumentRefusedError
from cardledger.schema.wire.customers.documents import Fault
from tests.files import PDF, jpeg, pdf_of, png, png_chunk

WHOLE = {formats.PDF: PDF, formats.PNG: png(), formats.JPEG: jpeg()}


def zip_bomb() -> bytes:
    """Return a small archive of a file of 100 MB."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("passport.pdf", bytes(100_000_000))
    return packed.getvalue()


def fault_of(content: bytes) -> Fault:
    with pytest.raises(DocumentRefusedError) as refused:
        formats.media_type_of(content)
    assert str(refused.value).endswith(".")
    return refused.value.fault


@pytest.mark.parametrize("media_type", WHOLE)
def test_a_whole_file_is_accepted_for_what_it_is(media_type: str) -> None:
    assert formats.media_type_of(WHOLE[media_type]) == media_type


@pytest.mark.parametrize(
    "content",
    [
        b"MZ\x90\x00" + bytes(200),
        b"\x7fELF\x02\x01\x01" + bytes(200),
        b"#!/bin/sh\nexit\n",
        b"<html><script>alert(1)</script></html>",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"GIF89a" + bytes(200),
        b" " + PDF,
        b"%PDF-",
        b"x",
    ],
)
def test_anything_else_is_unsuitable(content: bytes) -> None:
    assert fault_of(content) is Fault.UNSUITABLE_DOCUMENT


def test_an_archive_is_unsuitable_and_is_not_opened() -> None:
    bomb = zip_bomb()

    began = time.process_time()

    assert len(bomb) < 200_000
    assert fault_of(bomb) is Fault.UNSUITABLE_DOCUMENT
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("media_type", WHOLE)
def test_a_file_that_is_cut_off_is_incomplete(media_type: str) -> None:
    whole = WHOLE[media_type]

    for length in (len(whole) // 2, len(whole) - 13):
        assert fault_of(whole[:length]) is Fault.INCOMPLETE


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_no_part_of_a_file_fails_in_another_way(media_type: str, data: st.DataObject) -> None:
    whole = WHOLE[media_type]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + whole[end:]

    with suppress(DocumentRefusedError):
        assert formats.media_type_of(damaged) == media_type


@given(st.sampled_from([b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"]), st.binary())
def test_a_head_alone_makes_no_document(head: bytes, rest: bytes) -> None:
    try:
        formats.media_type_of(head + rest)
    except DocumentRefusedError:
        return
    assert rest, "bytes that happen to be a whole document"


def test_a_changed_byte_of_a_png_is_noticed() -> None:
    changed = bytearray(png())
    changed[50] ^= 1

    assert fault_of(bytes(changed)) is Fault.INCOMPLETE


@pytest.mark.parametrize("make", [png, jpeg])
def test_an_image_that_is_too_small_cannot_be_read(make: object) -> None:
    assert callable(make)
    assert fault_of(make(199, 1000)) is Fault.LOW_QUALITY
    assert formats.media_type_of(make(200, 200))


def test_an_image_of_too_many_pixels_is_refused_for_its_head() -> None:
    assert fault_of(png(65_000, 65_000)) is Fault.UNSUITABLE_DOCUMENT
    assert fault_of(jpeg(65_000, 65_000)) is Fault.UNSUITABLE_DOCUMENT


def test_a_file_of_countless_parts_takes_no_time() -> None:
    many = png()[:33] + png_chunk(b"teXt", b"") * 800_000
    filled = b"\xff\xd8" + b"\xff" * 10_000_000

    began = time.process_time()

    assert fault_of(many) is Fault.INCOMPLETE
    assert fault_of(filled) is Fault.INCOMPLETE
    assert fault_of(b"%PDF-1.7" + b"1" * 10_000_000) is Fault.INCOMPLETE
    assert time.process_time() - began < 0.5


def test_something_behind_the_end_is_accepted_as_readers_do() -> None:
    assert formats.media_type_of(PDF + b"\n" * 100) == formats.PDF
    assert formats.media_type_of(jpeg() + b"camera") == formats.JPEG
    assert len(pdf_of(5_000)) == 5_000
    assert formats.media_type_of(pdf_of(5_000)) == formats.PDF


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("passport.pdf", "passport.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\Ada\\pass port.pdf", "pass port.pdf"),
        (".htaccess", "htaccess"),
        ("", "document"),
        ("..", "document"),
        ("/", "document"),
        ("a\x00b\r\nc.pdf", "a b c.pdf"),
        ("invoice\u202efdp.exe", "invoice fdp.exe"),
        ("\ud800.pdf", "pdf"),
        ("  a   b  ", "a b"),
        ("%22quoted%22.pdf", '"quoted".pdf'),
        ("Pässe 漢字.pdf", "Pässe 漢字.pdf"),
    ],
)
def test_a_name_is_shown_without_folders_and_invisible_characters(name: str, shown: str) -> None:
    assert file_names.shown(name) == shown


def test_a_long_name_keeps_its_extension() -> None:
    assert file_names.shown("a" * 1_000 + ".pdf") == "a" * 251 + ".pdf"
    assert file_names.shown("a." + "b" * 1_000) == "a"


@given(st.text())
def test_a_name_can_always_be_shown_and_stored(name: str) -> None:
    shown = file_names.shown(name)

    assert 1 <= len(shown) <= 255
    assert "/" not in shown
    assert "\\" not in shown
    assert shown.isprintable()
    shown.encode()
