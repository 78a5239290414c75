"""Files of comma-separated values: what is read, what is refused, and what rows stand for."""

import csv
import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.customers.uploads import csv_files
from cardledger.ledger.customers.uploads.csv_files import Row, UnreadableError

HEADER = "platformCustomerId,umaAddress,customerType,fullName"
ADA = "ada-1,,INDIVIDUAL,Ada Lovelace"


def rows(content: bytes) -> list[list[str]]:
    parsed = csv_files.parse(content)
    found = [list(row.cells) for part in parsed.parts for row in csv_files.rows_of(part)]
    assert parsed.total == len(found)
    return found


def complaint(content: bytes) -> str:
    with pytest.raises(UnreadableError) as refused:
        csv_files.parse(content)
    return str(refused.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_any_line_end_and_a_byte_order_mark_are_read(end: str, mark: str) -> None:
    content = f"{mark}{HEADER}{end}{ADA}{end}{end}"

    parsed = csv_files.parse(content.encode())

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

    assert csv_files.parse(f"{HEADER}\n{long * 3}\n\n{ADA}".encode()).total == 4


def test_a_file_has_100_000_rows_at_most() -> None:
    line = ADA + "\n"

    assert csv_files.parse((HEADER + "\n" + line * 100_000).encode()).total == 100_000
    assert "100,000" in complaint((HEADER + "\n" + line * 100_001).encode())


@given(st.binary())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(UnreadableError):
        assert csv_files.parse(content).total > 0


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
