"""What each format makes of names, amounts and days that others get wrong."""

import csv
import errno
import gc
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from shutil import which
from typing import IO, Any
from zipfile import ZipFile

import duckdb
import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from cardledger.commands.reports import (
    as_csv,
    as_json,
    as_parquet,
    as_table,
    as_xlsx,
    extra,
    xlsx_rows,
)
from cardledger.commands.reports.document import Document, Head, Row, plain
from cardledger.config.errors import CommandError
from cardledger.ledger.queries.report_definitions import Column, Kind

COLUMNS = (
    Column("entry_id", Kind.ID),
    Column("posted_on", Kind.DATE),
    Column("recorded_at", Kind.TIME),
    Column("merchant"),
    Column("amount", Kind.MINOR),
    Column("amount_decimal", Kind.MAJOR),
    Column("currency"),
    Column("line", Kind.COUNT),
    Column("interchange", Kind.FRACTION),
)
NAMES = [column.name for column in COLUMNS]
DECIMALS = {"USD": 2, "KWD": 3, "JPY": 0, "BTC": 8}
NASTY = [
    '=HYPERLINK("http://x","click")',
    "+1",
    "-1",
    "@x",
    "http://example.com/",
    "0012",
    "1e5",
    "line\nbreak",
    "carriage\r\nreturn",
    'quote " and, comma',
    " blanks around ",
    "",
    "{=1+1}",
    "<r><t>other</t></r>",
    "<t>&amp;</t>",
    "_x0041_",
    "caf\u00e9 \u8cb7\u3044\u7269 \U0001f4b3",
    "true",
    "NULL",
    "\\N",
    "\\.",
]
BEYOND_53 = 2**53 + 1
HEAD = Head(
    report="journal",
    version=1,
    database="books",
    time_zone="America/New_York",
    on=date(2026, 10, 31),
    known=datetime(2026, 11, 1, 6, tzinfo=UTC),
    first=date(2026, 10, 1),
    filters={"currency": "USD"},
)

Write = Callable[[IO[bytes], Document], None]


def row(
    merchant: str | None = "CHEZ ROUX",
    amount: int | None = 1250,
    currency: str = "USD",
    interchange: str | None = None,
) -> Row:
    decimal = None if amount is None else plain(amount, DECIMALS.get(currency, 0))
    return (
        "019542f5-b3e7-7d02-8000-00000000a1b4:2:0",
        "2026-10-31",
        "2026-10-31T12:00:00.123456Z",
        merchant,
        amount,
        decimal,
        currency,
        0,
        interchange,
    )


def as_values(rows: Iterable[Row]) -> list[Row]:
    """Return `rows` of texts as Parquet gets them: values of Python."""
    return [
        (
            key,
            date.fromisoformat(day),
            datetime.fromisoformat(moment),
            merchant,
            amount,
            decimal and Decimal(decimal),
            currency,
            line,
            interchange and Decimal(interchange),
        )
        for key, day, moment, merchant, amount, decimal, currency, line, interchange in rows
    ]


def document(rows: Sequence[Row], *, head: Head = HEAD, per_batch: int = 3) -> Document:
    batches = [rows[start : start + per_batch] for start in range(0, len(rows), per_batch)]
    return Document(head=head, columns=COLUMNS, batches=iter(batches), decimals=DECIMALS)


def written(write: Write, rows: Sequence[Row]) -> bytes:
    out = io.BytesIO()
    write(out, document(rows))
    return out.getvalue()


# --- CSV -------------------------------------------------------------------------------------


def as_csv_reads(value: object) -> str:
    return "" if value is None else str(value)


def test_csv_has_a_header_ends_lines_with_crlf_and_quotes_what_it_must() -> None:
    text = written(as_csv.write, [row('a "b", c'), row("line\nbreak"), row(None)]).decode()

    header, rest = text.split("\r\n", 1)
    assert header == ",".join(NAMES)
    assert ',"a ""b"", c",1250,12.50,USD,0,\r\n' in rest
    assert ',"line\nbreak",1250,' in rest
    assert text.endswith(",,1250,12.50,USD,0,\r\n")


def test_csv_tells_empty_text_from_none() -> None:
    rows = [row("a"), row(""), row(None), row("b")]

    lines = written(as_csv.write, rows).decode().split("\r\n")

    merchants = [line.split(",")[3] for line in lines[1:5]]
    assert merchants == ["a", '""', "", "b"]


@pytest.mark.parametrize("merchant", NASTY)
def test_csv_keeps_a_name_exactly(merchant: str) -> None:
    content = written(as_csv.write, [row(merchant), row(merchant)])

    read = list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    assert [line[3] for line in read] == ["merchant", merchant, merchant]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)


@given(st.lists(st.tuples(st.none() | texts, st.integers(-(2**63), 2**63 - 1)), max_size=12))
def test_csv_survives_a_reader(values: list[tuple[str | None, int]]) -> None:
    rows = [row(merchant, amount) for merchant, amount in values]

    content = written(as_csv.write, rows).decode()

    read = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    assert read == [NAMES, *([as_csv_reads(value) for value in one] for one in rows)]


@given(st.lists(st.none() | texts | st.integers(), min_size=2, max_size=6))
def test_a_line_made_here_is_that_of_the_writer_but_for_empty_texts(values: list[Any]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerow(values)

    assert as_csv.line(values).replace('""', "") == out.getvalue().replace('""', "")


# --- JSON ------------------------------------------------------------------------------------


def test_json_has_the_head_and_the_rows_with_exact_integers() -> None:
    rows = [row(NASTY[0], BEYOND_53), row(None, -5, "JPY"), *[row()] * 5]

    read = json.loads(written(as_json.write, rows))

    assert read["report"] == "journal"
    assert (read["version"], read["database"]) == (1, "books")
    assert (read["from"], read["on"]) == ("2026-10-01", "2026-10-31")
    assert (read["known"], read["timeZone"]) == ("2026-11-01T06:00:00.000000Z", "America/New_York")
    assert read["rows"] == [dict(zip(NAMES, one, strict=True)) for one in rows]
    assert read["rows"][0]["amount"] == 9_007_199_254_740_993


def test_json_without_rows_is_a_document() -> None:
    assert json.loads(written(as_json.write, []))["rows"] == []


# --- xlsx ------------------------------------------------------------------------------------


def sheets_of(content: bytes) -> dict[str, list[list[Any]]]:
    """Return the cells of every sheet, as openpyxl reads them without believing a cache."""
    book = openpyxl.load_workbook(io.BytesIO(content), data_only=False)
    return {sheet.title: [list(cells) for cells in sheet.iter_rows()] for sheet in book}


def test_numbers_are_numbers_in_the_format_of_their_currency() -> None:
    amounts = [("USD", 123_456), ("KWD", 1_234), ("JPY", 500), ("BTC", 1), ("USD", -5)]
    rows = [row(None, amount, currency) for currency, amount in amounts]

    _, *cells = sheets_of(written(as_xlsx.write, rows))["journal"]

    found = [(line[4].value, line[4].number_format, line[4].data_type) for line in cells]
    assert found == [
        (1234.56, "#,##0.00", "n"),
        (1.234, "#,##0.000", "n"),
        (500, "#,##0", "n"),
        (0.00000001, "#,##0.00000000", "n"),
        (-0.05, "#,##0.00", "n"),
    ]


@given(st.integers(-(10**15) + 1, 10**15 - 1), st.sampled_from(sorted(DECIMALS)))
def test_an_amount_of_15_digits_is_read_exactly(amount: int, currency: str) -> None:
    decimals = DECIMALS[currency]

    read = float(plain(amount, decimals))

    assert f"{read:.{decimals}f}".removeprefix("-") == plain(abs(amount), decimals)


def test_an_amount_beyond_15_digits_is_text_and_the_workbook_says_so() -> None:
    rows = [row(None, BEYOND_53), row(None, 10**15 - 1), row(None, -(10**15)), row(None, 1, "XXX")]

    sheets = sheets_of(written(as_xlsx.write, rows))

    _, *cells = sheets["journal"]
    assert [line[4].value for line in cells] == [
        "90071992547409.93",
        9_999_999_999_999.99,
        "-10000000000000.00",
        "1 minor units",
    ]
    about = {name.value: value.value for name, value in sheets["about"]}
    assert about["amounts as text"].startswith("3: more digits than the 15")
    assert about["known"] == "2026-11-01T06:00:00.000000Z"
    assert (about["on"], about["version"], about["database"]) == ("2026-10-31", "1", "books")


def test_a_workbook_of_usual_amounts_says_nothing_about_text() -> None:
    about = sheets_of(written(as_xlsx.write, [row()]))["about"]

    assert "amounts as text" not in {name.value for name, _ in about}


def test_an_amount_that_is_not_rounded_is_a_number_while_it_has_15_digits() -> None:
    rows = [row(interchange="12.3456"), row(interchange="1234567890123.456")]

    _, first, second = sheets_of(written(as_xlsx.write, rows))["journal"]

    assert (first[7].value, first[7].data_type) == (0.123456, "n")
    assert second[7].value == "12345678901.23456"


@pytest.mark.parametrize("merchant", [name for name in NASTY if name])
def test_no_name_becomes_a_formula_a_link_or_a_number(merchant: str) -> None:
    content = written(as_xlsx.write, [row(merchant)])

    _, cells = sheets_of(content)["journal"]
    assert cells[3].data_type == "s"
    assert cells[3].hyperlink is None
    shown = cells[3].value.replace("_x005F_", "_").replace("_x000D_", "\r")
    assert shown == merchant
    assert cells[0].data_type == "s"
    xml = ZipFile(io.BytesIO(content)).read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in xml
    assert "hyperlink" not in xml.replace("HYPERLINK", "").lower().replace(merchant.lower(), "")


def test_days_are_days_and_times_and_ids_are_text() -> None:
    _, cells = sheets_of(written(as_xlsx.write, [row()]))["journal"]

    assert cells[1].is_date
    assert cells[1].value == datetime(2026, 10, 31)  # noqa: DTZ001 - a day
    assert cells[2].value == "2026-10-31T12:00:00.123456Z"
    assert cells[0].number_format == cells[3].number_format == "@"


def test_a_full_sheet_is_followed_by_another_with_the_names_of_the_columns() -> None:
    out = io.BytesIO()
    rows = [row(None, number) for number in range(7)]

    as_xlsx.write(out, document(rows), rows_per_sheet=4)

    sheets = sheets_of(out.getvalue())
    assert list(sheets) == ["journal", "journal 2", "journal 3", "about"]
    names = [name for name in NAMES if name != "amount_decimal"]
    for title in ("journal", "journal 2", "journal 3"):
        assert [cell.value for cell in sheets[title][0]] == names
    amounts = [line[4].value for title in list(sheets)[:3] for line in sheets[title][1:]]
    assert amounts == [number / 100 for number in range(7)]


def test_a_sheet_ends_before_the_last_row_that_excel_has() -> None:
    assert as_xlsx.ROWS_PER_SHEET < 1_048_576


def test_a_text_that_no_cell_can_hold_is_cut_and_the_workbook_says_so() -> None:
    sheets = sheets_of(written(as_xlsx.write, [row("x" * 40_000)]))

    assert len(sheets["journal"][1][3].value) == xlsx_rows.TEXT_LIMIT
    about = {name.value: value.value for name, value in sheets["about"]}
    assert about["texts cut"].startswith("1: ")


def test_libreoffice_reads_the_same_texts_and_numbers(tmp_path: Path) -> None:
    office = which("soffice") or which("libreoffice")
    if office is None:
        pytest.skip("LibreOffice is not installed")
    names = [name for name in NASTY if name and "\r" not in name]
    book = tmp_path / "journal.xlsx"
    book.write_bytes(written(as_xlsx.write, [row(name) for name in names]))

    target = "csv:Text - txt - csv (StarCalc):44,34,76"
    subprocess.run(
        [office, "--headless", "--convert-to", target, "--outdir", str(tmp_path), str(book)],
        check=True,
        capture_output=True,
        timeout=120,
    )

    with (tmp_path / "journal.csv").open(encoding="utf-8", newline="") as file:
        _, *read = csv.reader(file)
    assert [line[3] for line in read] == names
    assert {line[4] for line in read} == {"12.50"}


# --- Parquet ---------------------------------------------------------------------------------


def parquet_file(tmp_path: Path, rows: Sequence[Row]) -> str:
    file = tmp_path / "journal.parquet"
    file.write_bytes(written(as_parquet.write, as_values(rows)))
    return str(file)


def test_parquet_has_minor_units_beside_decimals(tmp_path: Path) -> None:
    file = parquet_file(tmp_path, [row(NASTY[0], BEYOND_53), row(None, 1, "BTC")])

    schema = parquet.read_schema(file)
    assert [*zip(schema.names, map(str, schema.types), strict=True)] == [
        ("entry_id", "string"),
        ("posted_on", "date32[day]"),
        ("recorded_at", "timestamp[us, tz=UTC]"),
        ("merchant", "string"),
        ("amount", "int64"),
        ("amount_decimal", "decimal128(38, 8)"),
        ("currency", "string"),
        ("line", "int64"),
        ("interchange", "decimal128(38, 8)"),
        ("interchange_decimal", "decimal128(38, 8)"),
    ]
    assert json.loads(schema.metadata[b"cardledger"])["timeZone"] == "America/New_York"


@pytest.mark.parametrize("per_group", [2, 30_000])
def test_sums_of_duckdb_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_group: int
) -> None:
    monkeypatch.setattr(as_parquet, "_ROWS_PER_GROUP", per_group)
    rows = [
        row(None, BEYOND_53),
        row(None, -1, interchange="12.3456"),
        row(None, 2**62),
        row(None, 1_234, "KWD"),
        row(None, 500, "JPY"),
        row(None, None),
    ]

    sums = duckdb.execute(
        "SELECT currency, sum(amount), sum(amount_decimal), count(*), sum(interchange_decimal)"
        f" FROM '{parquet_file(tmp_path, rows)}' GROUP BY currency ORDER BY currency"
    ).fetchall()

    usd = BEYOND_53 - 1 + 2**62
    assert sums == [
        ("JPY", 500, Decimal(500), 1, None),
        ("KWD", 1_234, Decimal("1.234"), 1, None),
        ("USD", usd, Decimal(plain(usd, 2)), 4, Decimal("0.123456")),
    ]


def test_parquet_keeps_names_days_and_times(tmp_path: Path) -> None:
    rows = [row(name) for name in NASTY]

    read = parquet.read_table(parquet_file(tmp_path, rows)).to_pylist()

    assert [one["merchant"] for one in read] == NASTY
    assert read[0]["posted_on"] == date(2026, 10, 31)
    assert read[0]["recorded_at"] == datetime(2026, 10, 31, 12, 0, 0, 123456, tzinfo=UTC)


def test_an_amount_of_more_than_64_bits_is_an_error_and_no_file_of_other_amounts() -> None:
    with pytest.raises(CommandError, match="no place in Parquet"):
        written(as_parquet.write, as_values([row(None, 2**63)]))


# --- tables ----------------------------------------------------------------------------------


def test_a_table_says_what_it_is_about_and_shows_major_units() -> None:
    text = written(as_table.write, [row("CHEZ ROUX", 123_456_789), row(None, 7, "KWD")]).decode()

    head, names, first, second = text.splitlines()
    assert head == (
        "journal from 2026-10-01 to 2026-10-31, known at 2026-11-01T06:00:00.000000Z, days in"
        " America/New_York, database books, columns of version 1, currency USD"
    )
    assert names.split() == [name for name in NAMES if name != "amount_decimal"]
    assert "1,234,567.89" in first
    assert "0.007" in second


def test_a_long_table_is_cut_and_says_where_the_rest_is() -> None:
    text = written(as_table.write, [row()] * (as_table.ROWS_SHOWN + 1)).decode()

    lines = text.splitlines()
    assert lines[-1] == "the first 1,000 rows; --format csv has all"
    assert len(lines) == as_table.ROWS_SHOWN + 3


def test_a_table_without_rows_says_none() -> None:
    assert written(as_table.write, []).decode().splitlines()[-1] == "none"


def test_open_amounts_are_summed_by_age_and_currency() -> None:
    columns = (Column("currency"), Column("owed", Kind.MINOR), Column("age"))
    rows = [("USD", 100, "0-1"), ("USD", 250, "over 30"), ("JPY", 7, "2-3"), ("USD", 1, "0-1")]
    out = io.BytesIO()

    as_table.write(
        out, Document(head=HEAD, columns=columns, batches=iter([rows]), decimals=DECIMALS)
    )

    lines = [line.split() for line in out.getvalue().decode().splitlines()]
    assert ["2-3", "days", "7"] in lines
    assert ["JPY", "7"] in lines
    assert ["0-1", "days", "1.01"] in lines
    assert ["over", "30", "days", "2.50"] in lines
    assert ["USD", "3.51"] in lines


# --- packages --------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(CommandError, match=r"pip install 'cardledger\[export\]'"):
        extra.package("no_such_package", needed_for="xlsx")


@pytest.mark.parametrize("name", ["xlsxwriter", "pyarrow"])
def test_formats_can_be_imported_without_their_packages(name: str) -> None:
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "from cardledger.commands.reports import as_parquet, as_xlsx\n"
        "from cardledger.config.errors import CommandError\n"
        "try: as_xlsx.package(); as_parquet.packages()\n"
        "except CommandError as error: print(error)\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert f"needs {name} " in printed


# --- sums of any size -----------------------------------------------------------------------------

TOTALS = (Column("account"), Column("currency"), Column("net", Kind.TOTAL))
HIGHEST = [("CUSTOMER", "USD", -(2**64 - 2)), ("CARD_HOLDS", "KWD", 2**64 - 2)]


def totals_as(write: Write) -> bytes:
    out = io.BytesIO()
    write(out, Document(head=HEAD, columns=TOTALS, batches=iter([HIGHEST]), decimals=DECIMALS))
    return out.getvalue()


def test_a_sum_of_more_than_64_bits_is_exact_in_every_format(tmp_path: Path) -> None:
    assert json.loads(totals_as(as_json.write))["rows"][0]["net"] == -(2**64 - 2)
    assert b"CUSTOMER,USD,-18446744073709551614\r\n" in totals_as(as_csv.write)
    shown = totals_as(as_table.write).decode()
    assert "-184,467,440,737,095,516.14" in shown
    assert "18,446,744,073,709,551.614" in shown
    book = openpyxl.load_workbook(io.BytesIO(totals_as(as_xlsx.write)))
    assert [row[2].value for row in book["journal"].iter_rows(min_row=2)] == [
        "-184467440737095516.14", "18446744073709551.614",
    ]  # fmt: skip
    file = tmp_path / "totals.parquet"
    file.write_bytes(totals_as(as_parquet.write))
    query = f"SELECT typeof(net), net, net_decimal FROM '{file}' ORDER BY net"
    assert duckdb.connect().execute(query).fetchall() == [
        ("DECIMAL(38,0)", Decimal(-(2**64 - 2)), Decimal("-184467440737095516.14")),
        ("DECIMAL(38,0)", Decimal(2**64 - 2), Decimal("18446744073709551.614")),
    ]


def test_a_workbook_on_a_full_disk_is_one_error_and_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), data)

    document = Document(head=HEAD, columns=TOTALS, batches=iter([HIGHEST]), decimals=DECIMALS)

    with pytest.raises(OSError, match="No space left"):
        as_xlsx.write(FullDisk(), document)

    gc.collect()
    assert capfd.readouterr().err == ""
