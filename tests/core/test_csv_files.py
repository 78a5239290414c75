"""Files of comma-separated values: what is read, what is refused, and what rows stand for."""

import csv
import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.customers.uploads import csv_files
from cardledger.ledger.customers.uploads.csv_files import ParsedFile, Row, UnreadableError
from tests.steps import result_of

HEADER = "platformCustomerId,umaAddress,customerType,fullName"
ADA = "ada-1,,INDIVIDUAL,Ada Lovelace"


def parsed_file(content: bytes) -> ParsedFile:
    return result_of(csv_files.parse(content))


def rows(content: bytes) -> list[list[str]]:
    parsed = parsed_file(content)
    found = [list(row.cells) for part in parsed.parts for row in csv_files.rows_of(part)]
    assert parsed.total == len(found)
    return found


def complaint(content: bytes) -> str:
    with pytest.raises(UnreadableError) as refused:
        parsed_file(content)
    return str(refused.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_any_line_end_and_a_byte_order_mark_are_read(end: str, mark: str) -> None:
    content = f"{mark}{HEADER}{end}{ADA}{end}{end}"

    parsed = parsed_file(content.encode())

    assert list(parsed.columns) == HEADER.split(",")
    assert rows(content.encode()) == [ADA.split(",")]


def test_a_cell_may_have_commas_quotes_and_line_breaks() -> None:
    content = f'{HEADER}\r\na,,INDIVIDUAL,"Ada ""the"" first,\r\nof her name"\r\n'

    assert rows(content.encode())[0][3] == 'Ada "the" first,\r\nof her name'


@pytest.mark.parametrize("formula", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", '=HYPERLINK("x")'])
def test_a_formula_is_the_text_that_it_is(formula: str) -> None:
    written = io.StringIO()
    csv.writer(written).writerows([HEADER.split(","), ["a", "", "INDIVIDUAL", formula]])

    [cells] = rows(written.getvalue().encode())

    assert csv_files.body_of(HEADER.split(","), Row(line=2, cells=cells))["fullName"] == formula


def test_another_encoding_is_named_with_its_place() -> None:
    latin_1 = f"{HEADER}\n{ADA}\nb,,INDIVIDUAL,Zoë\n".encode("latin-1")

    message = complaint(latin_1)

    assert "not UTF-8" in message
    assert "in line 3" in message
    assert "UTF-16" in complaint(f"{HEADER}\n{ADA}\n".encode("utf-16"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER.replace(",", ";") + "\n", "separate columns with commas"),
        (HEADER + "\n", "no rows"),
        (HEADER, "no rows"),
        (HEADER + "\n\n,,,\n", "no rows"),
        ("", "lacks the columns"),
        (ADA + "\n" + ADA, "unknown columns"),
        ("fullName\nAda", "lacks the columns 'customerType'"),
        (HEADER + ",colour\n" + ADA, "unknown columns: 'colour'"),
        (HEADER + ",fullName\n" + ADA, "a column twice: 'fullName'"),
        (HEADER + '\na,,INDIVIDUAL,"Ada\n', "Line"),
        (HEADER + "\na,,INDIVIDUAL," + "x" * 200_000, "row of line 2 has more than 16,384"),
        (HEADER + "\n" + '"\n",' * 10_000, "has more than 16,384"),
        (HEADER + "\n" + "," * 20_000, "row of line 2 has more than 16,384"),
        ("email," * 2_000_000, "row of line 1 has more than 16,384"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_what_to_change(content: str, words: str) -> None:
    assert words in complaint(content.encode())


def test_the_limit_of_characters_is_that_of_a_row_and_not_of_the_file() -> None:
    long = "a,,INDIVIDUAL," + "x" * (csv_files.ROW_CHARACTERS - 15) + "\n"

    assert parsed_file(f"{HEADER}\n{long * 3}\n\n{ADA}".encode()).total == 4


def test_a_file_has_100_000_rows_at_most() -> None:
    line = ADA + "\n"

    assert parsed_file((HEADER + "\n" + line * 100_000).encode()).total == 100_000
    assert "100,000" in complaint((HEADER + "\n" + line * 100_001).encode())


def test_a_file_has_1_000_000_lines_at_most() -> None:
    blank = HEADER + "\n" + "\n" * (csv_files.LINE_LIMIT - 2)
    a_letter_a_line = ADA + "\n" + ('"' + "x\n" * 8_000 + '"\n') * 126

    assert parsed_file((blank + ADA).encode()).total == 1
    assert "1,000,000 lines" in complaint((blank + "\n" + ADA).encode())
    assert "1,000,000 lines" in complaint((HEADER + "\n" + a_letter_a_line).encode())


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("before", [0, 1, 8_100, 8_190, 8_192, 16_384, 50_000])
@pytest.mark.parametrize("bad", [b"\xff", b"\xe2\x82,", b"\xe2"])
def test_an_invalid_byte_is_named_with_its_place(mark: str, before: int, bad: bytes) -> None:
    rows_before = f"{mark}{HEADER}\n" + ("\u00e4,,INDIVIDUAL,Zo\u00eb\n" * 3_000)[:before]
    content = rows_before.encode() + bad
    with pytest.raises(UnicodeDecodeError) as expected:
        content.decode()

    line = content.count(b"\n", 0, expected.value.start) + 1
    assert f"byte {expected.value.start}, in line {line}," in complaint(content)


def test_cells_without_a_column_take_no_memory() -> None:
    content = (HEADER + "\n" + ("," * 16_000 + "a\n") * 100).encode()

    parsed = parsed_file(content)

    assert sum(map(len, parsed.parts)) < 10_000
    [row, *_] = csv_files.rows_of(parsed.parts[0])
    with pytest.raises(ValueError, match="more than 4 cells"):
        csv_files.body_of(parsed.columns, row)


@pytest.mark.parametrize("line", [ADA + "\n", "x" * 16_000 + "\n", "\n"])
def test_the_parts_of_a_file_and_the_steps_of_its_reading_are_small(line: str) -> None:
    content = (HEADER + "\n" + line * 1_000 + ADA).encode()
    parsed = parsed_file(content)

    assert sum(1 for _ in csv_files.parse(content)) == 1_001  # Each row, blank ones as well.
    assert max(map(len, parsed.parts)) < 2 * 65_536
    assert all(len(csv_files.rows_of(part)) <= csv_files.PART_ROWS for part in parsed.parts)


@given(st.binary())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(UnreadableError):
        assert parsed_file(content).total > 0


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8")), min_size=4, max_size=4).filter(
            lambda cells: any(map(str.strip, cells))
        ),
        min_size=1,
        max_size=200,
    )
)
def test_what_a_program_writes_is_read_again(cells: list[list[str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([HEADER.split(","), *cells])

    assert rows(written.getvalue().encode()) == cells


# --- rows --------------------------------------------------------------------------------------

COLUMNS = [*csv_files.REQUIRED, *sorted(csv_files.COLUMNS - set(csv_files.REQUIRED))]


def body(**cells: str) -> dict[str, object]:
    row = Row(line=2, cells=[cells.get(name, "") for name in COLUMNS])
    return csv_files.body_of(COLUMNS, row)


def test_a_row_is_the_body_of_a_request() -> None:
    person = body(
        customerType="INDIVIDUAL",
        platformCustomerId=" ada-1 ",
        umaAddress="",
        fullName="Ada",
        birthDate="1990-12-10",
        addressLine1="1 Main Street",
        postalCode="10001",
        country="US",
        businessLegalName="not a person's",
        description="not kept",
    )
    acme = body(
        customerType="BUSINESS",
        platformCustomerId="acme",
        umaAddress="$acme@example.com",
        businessLegalName="Acme",
        businessTaxId="1",
        fullName="not a business's",
    )

    assert person == {
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "ada-1",
        "fullName": "Ada",
        "birthDate": "1990-12-10",
        "address": {"line1": "1 Main Street", "postalCode": "10001", "country": "US"},
    }
    assert acme == {
        "customerType": "BUSINESS",
        "platformCustomerId": "acme",
        "umaAddress": "$acme@example.com",
        "businessInfo": {"legalName": "Acme", "taxId": "1"},
    }


def test_a_row_with_other_cells_than_columns_is_refused() -> None:
    for cells in (["a"], ["a"] * 5):
        with pytest.raises(ValueError, match="cells"):
            csv_files.body_of(HEADER.split(","), Row(line=2, cells=cells))


def test_an_error_names_the_column_of_a_field() -> None:
    assert csv_files.column_of("address.postalCode") == "postalCode"
    assert csv_files.column_of("address.line1") == "addressLine1"
    assert csv_files.column_of("businessInfo.legalName") == "businessLegalName"
    assert csv_files.column_of("fullName") == "fullName"
    assert csv_files.correlation_of(COLUMNS, Row(line=7, cells=[])) == "line 7"
    own = Row(line=7, cells=["a\0b"])
    assert csv_files.correlation_of(["platformCustomerId"], own) == "a\ufffdb"
