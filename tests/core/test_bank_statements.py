"""Statements of the bank are read strictly: each refusal says code, line and column."""

import io
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.bank_statements import mt940, profile, reader, statement
from cardledger.ledger.bank_statements.records import Line, Summary
from cardledger.ledger.file_profiles.profile import ProfileError
from cardledger.ledger.network_files.records import Code, RefusedError
from tests.bank_statements import COLUMNS, line, statement_of

DAY: Final = date(2026, 10, 26)
PAGE: Final = Path("docs/bank-statements.md")

MT940: Final = """:20:START
:25:12345678/0001234567
:28C:00042/001
:60F:C261026USD10000,00
:61:2610261026D1191,65NTRFNONREF//BK-5501
:86:VISA SETTLEMENT 2026-10-23
:61:2610271027RC12,5NCHGNONREF//BK-5502
:86:MONTHLY FEE
:62F:C261027USD8795,85
-
"""


def read(data: bytes, name: str | None = None) -> tuple[list[Line], Summary]:
    found = reader.read(io.BytesIO(data), None if name is None else profile.load(name))
    lines = list(found)
    assert found.summary is not None
    return lines, found.summary


def test_a_statement_is_read_with_its_balances() -> None:
    data = statement_of(
        line(
            DAY, -119_165, "VISA, SETTLEMENT\nof 23", bank_reference="BK-1", value_date="2026-10-27"
        ),
        line(date(2026, 10, 25), 2**63 - 1 - 10**6, "=SUM(A1)"),
        opening=10**6,
    )

    lines, summary = read(data)

    assert lines[0] == Line(
        2, "2026-10-26", "2026-10-27", -119_165, "BK-1", "VISA, SETTLEMENT\nof 23"
    )
    assert lines[1].line == 4
    assert summary[:8] == (
        "SETTLEMENT",
        "2026-10-25..2026-10-26 USD",
        "USD",
        "2026-10-25",
        "2026-10-26",
        10**6,
        2**63 - 1 - 119_165,
        2,
    )


def test_the_digest_is_of_the_rows_whatever_their_bytes() -> None:
    rows = [line(DAY, -5, "a"), line(DAY, 7, "b, c")]

    digests = {
        read(data)[1].digest
        for data in (
            statement_of(*rows),
            b"\xef\xbb\xbf" + statement_of(*rows, end="\n"),
            statement_of(*rows, columns=COLUMNS[::-1]),
        )
    }

    assert len(digests) == 1
    assert read(statement_of(*rows, opening=1))[1].digest not in digests
    assert read(statement_of(*rows[::-1]))[1].digest not in digests


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        ({"amount": "1.5"}, Code.BAD_AMOUNT, "amount"),
        ({"amount": " 5"}, Code.BAD_AMOUNT, "amount"),
        ({"amount": "1e3"}, Code.BAD_AMOUNT, "amount"),
        ({"amount": "१२"}, Code.BAD_AMOUNT, "amount"),
        ({"amount": "0"}, Code.BAD_AMOUNT, "amount"),
        ({"amount": ""}, Code.BAD_AMOUNT, "amount"),
        ({"amount": str(2**63)}, Code.BAD_AMOUNT, "amount"),
        ({"closing": str(2**63)}, Code.BAD_AMOUNT, "closing"),
        ({"booking_date": "26.10.2026"}, Code.BAD_DATE, "booking_date"),
        ({"booking_date": "2026-02-30"}, Code.BAD_DATE, "booking_date"),
        ({"value_date": "2026-2-3"}, Code.BAD_DATE, "value_date"),
        ({"currency": "usd"}, Code.MIXED_ACCOUNTS, "currency"),
        ({"currency": "EUR"}, Code.MIXED_ACCOUNTS, "currency"),
        ({"opening": "1"}, Code.CONTROL_TOTAL, "opening"),
        ({"closing": "4"}, Code.CONTROL_TOTAL, "closing"),
        ({"description": "4111 1111 1111 1111"}, Code.PAN_FOUND, "description"),
        ({"description": "x4111111111111111x"}, Code.PAN_FOUND, "description"),
        ({"description": "x" * 2049}, Code.BAD_TYPE, "description"),
        ({"bank_reference": "x" * 201}, Code.BAD_TYPE, "bank_reference"),
    ],
)
def test_a_row_that_is_not_right_refuses_the_statement(
    changes: dict[str, str], code: Code, column: str
) -> None:
    data = statement_of(line(DAY, 5), line(DAY, -2))
    good = data.decode().splitlines()
    row = dict(zip(COLUMNS, good[2].split(","), strict=True)) | changes
    bad = "\r\n".join([*good[:2], ",".join(row[name] for name in COLUMNS)])

    with pytest.raises(RefusedError) as caught:
        read(bad.encode())

    assert (caught.value.code, caught.value.line, caught.value.column) == (code, 3, column)
    assert "4111" not in caught.value.message


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.EMPTY_FILE),
        (",".join(COLUMNS).encode(), Code.EMPTY_FILE),
        (b"booking_date,amount\n", Code.BAD_HEADER),
        (",".join([*COLUMNS, "x"]).encode(), Code.BAD_HEADER),
        (",".join([*COLUMNS, "amount"]).encode(), Code.BAD_HEADER),
        (statement_of(line(DAY, 1))[:-12], Code.TRUNCATED),
        (statement_of(line(DAY, 1, closing="")), Code.NO_TRAILER),
        (statement_of(line(DAY, 1, opening="")), Code.NO_TRAILER),
        (statement_of(line(DAY, 1, currency="")), Code.UNKNOWN_CURRENCY),
        (statement_of(line(DAY, 1, currency="ABC")), Code.UNKNOWN_CURRENCY),
        (statement_of(line(DAY, 1, "\x00")), Code.NOT_UTF8),
        (statement_of(line(DAY, 1, "ä")).replace(b"\xc3", b""), Code.NOT_UTF8),
    ],
)
def test_a_statement_that_is_not_whole_is_refused(data: bytes, code: Code) -> None:
    with pytest.raises(RefusedError) as caught:
        read(data)

    assert caught.value.code == code


@given(st.lists(st.integers(-(10**12), 10**12).filter(bool), min_size=1, max_size=20), st.data())
def test_any_changed_amount_is_noticed(amounts: list[int], data: st.DataObject) -> None:
    rows = [line(DAY, amount) for amount in amounts]
    closing = str(sum(amounts))
    place = data.draw(st.integers(0, len(rows) - 1))
    changed = [dict(row) for row in rows]
    changed[place]["amount"] = str(amounts[place] + data.draw(st.sampled_from([-1, 1, 10])))
    changed[-1]["closing"] = closing

    read(statement_of(*rows))
    with pytest.raises(RefusedError):
        read(statement_of(*changed))


def test_memory_does_not_grow_with_the_statement() -> None:
    def peak(count: int) -> int:
        rows = [line(DAY, 1, "a line of the bank that says something")] * count
        file = io.BytesIO(statement_of(*rows))
        tracemalloc.start()
        for _ in reader.read(file):
            pass
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(20_000) < peak(2_000) + 200_000


def test_a_statement_has_a_greatest_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "MAX_LINES", 3)
    lines = [line(DAY, 1)] * 3

    assert read(statement_of(*lines))[1].lines == 3
    with pytest.raises(RefusedError) as caught:
        read(statement_of(*lines, line(DAY, 1)))

    assert (caught.value.code, caught.value.line) == (Code.TOO_LARGE, 5)


# --- profiles and MT940 ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", profile.shipped())
def test_each_shipped_profile_reads_its_sample(name: str) -> None:
    sample = (profile.SHIPPED / f"{name}.sample.csv").read_bytes()

    lines, summary = read(sample, name)

    assert [each.amount for each in lines] == [-119_165, -1_250]
    assert (summary.opening, summary.closing) == (1_000_000, 879_585)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (b"-12,50", b"-12,5x", Code.BAD_AMOUNT),
        (b"-12,50", b"-13,50", Code.CONTROL_TOTAL),
        (b"27.10.2026", b"27/10/2026", Code.BAD_DATE),
        (b"OCTOBER", b"4111111111111111", Code.PAN_FOUND),
        (b"Balance", b"Saldo", Code.BAD_HEADER),
    ],
)
def test_what_a_profile_makes_is_checked_as_strictly(
    before: bytes, after: bytes, code: Code
) -> None:
    sample = (profile.SHIPPED / "running-balance.sample.csv").read_bytes()
    assert before in sample

    with pytest.raises(RefusedError) as caught:
        read(sample.replace(before, after), "running-balance")

    assert caught.value.code == code
    assert "4111" not in caught.value.message


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('balance = "Balance"', "", "columns: must have either"),
        ('amount = "Amount"', "", "columns.amount: is missing"),
        ('unit = "major"', 'unit = "cents"', "amounts.unit: must be"),
        ('currency = "Currency"', "", "columns.currency: is missing"),
        ('name = "running-balance"', "", "name: is missing"),
        ('balance = "Balance"', 'saldo = "Balance"', "columns.saldo: must be one of"),
        ('delimiter = ";"', 'delimiter = ";;"', "delimiter: must be one character"),
    ],
)
def test_a_profile_that_is_not_valid_says_which_key(
    before: str, after: str, complaint: str
) -> None:
    text = (profile.SHIPPED / "running-balance.toml").read_text(encoding="utf-8")
    assert before in text

    with pytest.raises(ProfileError, match=complaint.replace(".", r"\.")):
        profile.parse(text.replace(before, after))


def test_mt940_is_read_by_its_library() -> None:
    lines, summary = read(MT940.encode())

    assert [each[1:] for each in lines] == [
        ("2026-10-26", "2026-10-26", -119_165, "BK-5501", "VISA SETTLEMENT 2026-10-23"),
        ("2026-10-27", "2026-10-27", -1_250, "BK-5502", "MONTHLY FEE"),
    ]
    assert summary[:2] == ("12345678/0001234567", "00042/001 2026-10-27")
    assert (summary.opening, summary.closing) == (1_000_000, 879_585)


def test_messages_of_mt940_that_follow_each_other_are_one_statement() -> None:
    second = (
        MT940.replace("00042/001", "00042/002")
        .replace("C261026USD10000,00", "C261027USD8795,85")
        .replace("C261027USD8795,85\n-", "C261027USD7591,70\n-")
    )

    lines, summary = read((MT940 + second).encode())

    assert len(lines) == 4
    assert summary.statement_id == "00042/001..00042/002 2026-10-27"
    assert (summary.opening, summary.closing) == (1_000_000, 759_170)
    with pytest.raises(RefusedError) as caught:
        read((MT940 + MT940).encode())
    assert (caught.value.code, caught.value.column) == (Code.CONTROL_TOTAL, "opening")


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (":62F:C261027USD8795,85", ":62F:C261027USD8795,84", Code.CONTROL_TOTAL),
        (":62F:C261027USD8795,85", "", Code.NO_TRAILER),
        (":61:2610271027RC12,5N", ":61:what", Code.TRUNCATED),
        ("MONTHLY FEE", "card 4111111111111111", Code.PAN_FOUND),
        ("RC12,5N", "RC12,505N", Code.BAD_AMOUNT),
        ("USD", "XQX", Code.UNKNOWN_CURRENCY),
        ("MONTHLY", "\x1f", Code.NOT_UTF8),
    ],
)
def test_mt940_that_is_not_right_is_refused(before: str, after: str, code: Code) -> None:
    assert before in MT940

    with pytest.raises(RefusedError) as caught:
        read(MT940.replace(before, after).encode())

    assert caught.value.code == code
    assert "4111" not in caught.value.message


def test_mt940_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mt940, "MAX_BYTES", 100)

    with pytest.raises(RefusedError) as caught:
        read(MT940.encode())

    assert caught.value.code == Code.TOO_LARGE


def test_the_page_has_every_code_and_profile_and_a_sample() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sample = page.split("<!-- canonical sample -->\n```csv\n")[1].split("```")[0]

    lines, summary = read(sample.encode())

    assert len(lines) == summary.lines == 3
    for name in (*COLUMNS, *profile.shipped()):
        assert f"`{name}`" in page
