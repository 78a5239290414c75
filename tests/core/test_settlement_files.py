"""Settlement files: what is read, and why one is refused."""

import io
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.file_profiles.profile import ProfileError
from cardledger.ledger.network_files import card_numbers, profile, reader
from cardledger.ledger.network_files.records import SIGNS, Code, Line, RefusedError
from cardledger.ledger.network_files.settlement_file import SettlementFile, interchange_text
from tests.settlement_files import HEADER, file_of, head, line, text_of, totals

PAN = "4111" + "1111" * 3  # The number that every scheme documents for tests.


def read(data: bytes) -> tuple[SettlementFile, list[Line]]:
    found = reader.read(io.BytesIO(data))
    return found, list(found)


def refusal(data: bytes) -> tuple[Code, int | None, str | None]:
    with pytest.raises(RefusedError) as caught:
        read(data)
    assert PAN not in caught.value.message
    return caught.value.code, caught.value.line, caught.value.column


def test_a_file_is_read_with_its_header_lines_and_totals() -> None:
    lines = (
        line(interchange="1", card_id="Card:01a2103a-f73e-762b-ad5f-176f0ed65b21"),
        line("r-2", type="CREDIT", amount="50", token="t-2", network_reference="n-2"),
        line("r-3", currency="EUR", merchant_amount="900", merchant_currency="GBP"),
    )

    found, read_lines = read(file_of(*lines))

    assert found.header == ("F-1", "VISA", "2026-10-26", "1")
    assert [each.line for each in read_lines] == [3, 4, 5]
    assert read_lines[0].card_id == "01a2103a-f73e-762b-ad5f-176f0ed65b21"
    assert read_lines[0].interchange == 1_000_000
    assert read_lines[1].type == "CREDIT"
    assert (read_lines[2].merchant_amount, read_lines[2].merchant_currency) == (900, "GBP")
    assert found.totals == {"USD": (2, 1200, 1_000_000), "EUR": (1, 1250, 0)}


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        *(
            ({"amount": amount}, Code.BAD_AMOUNT, "amount")
            for amount in (
                *("1,234.56", "-5", "1e3", " 12", "12 ", "१२", "12.5", "0", "", "+1", "0x1"),
                str(2**63),
                "9" * 40,
            )
        ),
        (
            {"merchant_amount": "1.5", "merchant_currency": "EUR"},
            Code.BAD_AMOUNT,
            "merchant_amount",
        ),
        ({"merchant_currency": "EUR"}, Code.BAD_AMOUNT, "merchant_amount"),
        ({"merchant_amount": "15"}, Code.UNKNOWN_CURRENCY, "merchant_currency"),
        ({"interchange": "0.1234567"}, Code.BAD_AMOUNT, "interchange"),
        ({"interchange": "1,5"}, Code.BAD_AMOUNT, "interchange"),
        ({"transaction_date": "2026-02-30"}, Code.BAD_DATE, "transaction_date"),
        ({"transaction_date": "20261026"}, Code.BAD_DATE, "transaction_date"),
        ({"settlement_date": "2026-10-27"}, Code.BAD_DATE, "settlement_date"),
        ({"network": "MASTERCARD"}, Code.UNKNOWN_NETWORK, "network"),
        ({"type": "PURCHASE"}, Code.BAD_TYPE, "type"),
        ({"type": ""}, Code.BAD_TYPE, "type"),
        ({"record": "X"}, Code.BAD_TYPE, "record"),
        ({"mcc": "54"}, Code.BAD_TYPE, "mcc"),
        ({"card_id": "no card"}, Code.BAD_TYPE, "card_id"),
        ({"currency": "usd"}, Code.UNKNOWN_CURRENCY, "currency"),
        ({"currency": "XYZ"}, Code.UNKNOWN_CURRENCY, "currency"),
        ({"merchant": f"CARD {PAN}"}, Code.PAN_FOUND, "merchant"),
        ({"merchant": "4111 1111 1111 1111"}, Code.PAN_FOUND, "merchant"),
        ({"card_id": PAN}, Code.PAN_FOUND, "card_id"),
        ({"amount": PAN}, Code.PAN_FOUND, "amount"),
        ({"type": PAN}, Code.PAN_FOUND, "type"),
    ],
)
def test_a_line_that_is_not_valid_is_refused_with_line_and_column(
    changes: dict[str, str], code: Code, column: str
) -> None:
    right, wrong = line("r-1"), line("r-2", **changes)

    data = text_of([head(), right, wrong, *totals([right])]).encode()

    assert refusal(data) == (code, 4, column)


@pytest.mark.parametrize("column", ["reference", "network_reference", "token"])
def test_a_reference_may_be_a_number_that_passes_the_check_of_luhn(column: str) -> None:
    _, [found] = read(file_of(line(**{column: PAN})))

    assert getattr(found, column) == PAN


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        ({"file_id": ""}, Code.BAD_HEADER, "file_id"),
        ({"file_id": "f" * 201}, Code.BAD_HEADER, "file_id"),
        ({"file_id": PAN}, Code.PAN_FOUND, "file_id"),
        ({"network": ""}, Code.UNKNOWN_NETWORK, "network"),
        ({"network": "visa"}, Code.UNKNOWN_NETWORK, "network"),
        ({"network": "BOOKS"}, Code.UNKNOWN_NETWORK, "network"),
        ({"settlement_date": "26.10.2026"}, Code.BAD_DATE, "settlement_date"),
        ({"settlement_date": "2026-13-01"}, Code.BAD_DATE, "settlement_date"),
        ({"record": "D"}, Code.NO_HEADER, "record"),
    ],
)
def test_a_header_that_is_not_valid_is_refused(
    changes: dict[str, str], code: Code, column: str
) -> None:
    assert refusal(file_of(line(), **changes)) == (code, 2, column)


def with_trailer(**changes: str) -> bytes:
    [trailer] = totals([line()])
    return text_of([head(), line(), trailer | changes]).encode()


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        ({"count": "2"}, Code.CONTROL_COUNT, "count"),
        ({"count": "one"}, Code.BAD_AMOUNT, "count"),
        ({"amount": "1249"}, Code.CONTROL_TOTAL, "amount"),
        ({"amount": "-1250"}, Code.CONTROL_TOTAL, "amount"),
        ({"amount": "12.50"}, Code.BAD_AMOUNT, "amount"),
        ({"interchange": "0.000001"}, Code.CONTROL_TOTAL, "interchange"),
        ({"currency": "EUR"}, Code.CONTROL_COUNT, "count"),
        ({"currency": "XYZ"}, Code.UNKNOWN_CURRENCY, "currency"),
    ],
)
def test_control_totals_that_differ_are_refused(
    changes: dict[str, str], code: Code, column: str
) -> None:
    assert refusal(with_trailer(**changes)) == (code, 4, column)


def test_each_currency_has_a_trailer() -> None:
    lines = [line(), line("r-2", currency="EUR")]

    assert refusal(text_of([head(), *lines, *totals(lines)[:1]]).encode())[0] == Code.NO_TRAILER
    assert (
        refusal(text_of([head(), *lines, *totals(lines), *totals(lines)]).encode())[0]
        == Code.CONTROL_TOTAL
    )


def test_records_are_in_order() -> None:
    assert refusal(text_of([]).encode()) == (Code.NO_HEADER, None, None)
    assert refusal(text_of([head(), line()]).encode()) == (Code.NO_TRAILER, 3, None)
    assert refusal(text_of([head(), *totals([line()]), line()]).encode()) == (
        Code.NO_TRAILER,
        4,
        "record",
    )
    assert refusal(text_of([head(), head(), *totals([line()])]).encode()) == (
        Code.BAD_HEADER,
        3,
        "record",
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.EMPTY_FILE),
        (b"\xef\xbb\xbf", Code.EMPTY_FILE),
        (b"\r\n\r\n", Code.EMPTY_FILE),
        (b"hello\n", Code.BAD_HEADER),
        (text_of([head()], [*HEADER, "more"]).encode(), Code.BAD_HEADER),
        (",".join(HEADER[:-1]).encode(), Code.BAD_HEADER),
        (file_of(line()).replace(b"GREEN", b"GR\xffEN"), Code.NOT_UTF8),
        (file_of(line()).replace(b"GREEN", b"GR\x00EN"), Code.NOT_UTF8),
        (file_of(line())[:-30].replace(b"5411", b'"5411'), Code.TRUNCATED),
        (file_of(line(), line("r-2"))[:-50], Code.TRUNCATED),
        (file_of(line()).replace(b"GREEN", b"G" * 70_000), Code.TRUNCATED),
        (file_of(line()).replace(b"GREEN GROCER", b'"GREEN" GROCER'), Code.TRUNCATED),
    ],
)
def test_what_is_not_a_whole_file_is_refused(data: bytes, code: Code) -> None:
    assert refusal(data)[0] == code


def test_the_line_of_a_refusal_counts_line_breaks_in_quotes() -> None:
    lines = line("r-1", merchant="TWO\nLINES, ONE ROW"), line("r-2", amount="x")

    data = text_of([head(), *lines, *totals([line()])]).encode()

    assert refusal(data) == (Code.BAD_AMOUNT, 5, "amount")


texts = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=20
).filter(lambda text: not card_numbers.found_in(text))
lines_of_files = st.builds(
    lambda kind, reference, amount, currency, interchange, merchant: line(
        reference,
        type=kind,
        amount=str(amount),
        currency=currency,
        interchange=interchange,
        merchant=merchant,
    ),
    st.sampled_from(sorted(SIGNS)),
    texts,
    st.integers(1, 10**11),
    st.sampled_from(["USD", "EUR", "JPY"]),
    st.sampled_from(["", "1", "-2", "30"]),
    texts,
)


@given(st.lists(lines_of_files, max_size=6), st.randoms(use_true_random=False))
def test_the_same_rows_in_other_bytes_have_the_same_digest(
    lines: list[dict[str, str]], chance: random.Random
) -> None:
    none = {"record": "T", "currency": "USD", "count": "0", "amount": "0"}
    rows = [head(), *lines, *(totals(lines) or [none])]
    columns = chance.sample(HEADER, len(HEADER))
    data, other = text_of(rows).encode(), text_of(rows, columns, "\n").encode("utf-8-sig")

    (found, read_lines), (again, _) = read(data), read(other)

    assert found.digest == again.digest
    assert [each.amount for each in read_lines] == [int(each["amount"]) for each in lines]
    assert [each.merchant or "" for each in read_lines] == [each["merchant"] for each in lines]


@given(st.lists(lines_of_files, min_size=1, max_size=4), st.data())
def test_a_file_that_is_cut_anywhere_is_refused(
    lines: list[dict[str, str]], data: st.DataObject
) -> None:
    whole = text_of([head(), *lines, *totals(lines)], end="\n").encode()
    # A missing line end, and an empty field at the end of a row, are not missed.
    cut = whole[: data.draw(st.integers(0, len(whole.rstrip(b"0123456789\n"))))]

    with pytest.raises(RefusedError):
        read(cut)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(noise: bytes, place: int) -> None:
    whole = file_of(line(), line("r-2"))

    try:
        read(whole[:place] + noise + whole[place:])
    except RefusedError as error:
        assert error.message  # noqa: PT017 - both ways are right


def peak_of(count: int) -> int:
    class Stream(io.RawIOBase):
        """A file that is made while it is read."""

        def __init__(self) -> None:
            self._rows = self._made()
            self._rest = b""

        def readable(self) -> bool:
            return True

        def _made(self) -> Iterator[bytes]:
            whole = text_of([head(), line()], end="\n").splitlines(keepends=True)
            yield "".join(whole[:2]).encode()
            yield from (whole[2].replace("r-1", f"r-{n}").encode() for n in range(count))
            total = {"record": "T", "currency": "USD", "count": count, "amount": count * 1250}
            yield text_of([total], end="\n").splitlines(keepends=True)[1].encode()

        def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
            self._rest = self._rest or next(self._rows, b"")
            size = min(len(buffer), len(self._rest))
            buffer[:size] = self._rest[:size]
            self._rest = self._rest[size:]
            return size

    tracemalloc.start()
    found = reader.read(io.BufferedReader(Stream()))
    assert sum(1 for _ in found) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_file() -> None:
    peak_of(1_000)  # Caches.

    assert peak_of(12_000) < peak_of(1_500) + 100_000


@pytest.mark.parametrize("name", profile.shipped())
def test_a_shipped_profile_reads_its_sample(name: str) -> None:
    data = (profile.SHIPPED / f"{name}.sample.csv").read_bytes()

    found = reader.read(io.BytesIO(data), profile.load(name))
    lines = list(found)

    assert found.header.settlement_date == "2026-10-26"
    assert len(lines) == 4
    assert {each.type for each in lines} >= {"PRESENTMENT", "FEE"}
    assert sum(total.lines for total in found.totals.values()) == 4


@pytest.mark.parametrize(
    ("before", "after", "code", "line_number"),
    [
        (b"1.234,50", b"12.34,50", Code.BAD_AMOUNT, 2),
        (b"1.234,50", b"1.234,5x", Code.BAD_AMOUNT, 2),
        (b"1.234,50", b"1.234,567", Code.BAD_AMOUNT, 2),
        (b"1.234,50", b"1.234,51", Code.CONTROL_TOTAL, 6),
        (b";05;", b";99;", Code.BAD_TYPE, 2),
        (b"05;D", b"05;X", Code.BAD_TYPE, 2),
        (b"25.10.2026", b"2026-10-25", Code.BAD_DATE, 2),
        (b"MCC\r", b"M\r", Code.BAD_HEADER, 1),
        (b"GREEN GROCER", PAN.encode(), Code.PAN_FOUND, 2),
        (b"TOTAL;;;;D;4", b"TOTAL;;;;D;5", Code.CONTROL_COUNT, 6),
        (b"1.237,65;USD", b"1.237,65;" + PAN.encode(), Code.PAN_FOUND, 6),
        (b"1.237,65;USD", PAN.encode() + b" x;USD", Code.PAN_FOUND, 6),
        (b";18,5175;25", b";18.5175;25", Code.BAD_AMOUNT, 2),
        (b";0,69;", b";0.69;", Code.BAD_AMOUNT, 3),
        (b"Merchant;MCC", b"Merchant;MCC;Amount", Code.BAD_HEADER, 1),
    ],
)
def test_a_file_of_a_profile_is_checked_as_strictly(
    before: bytes, after: bytes, code: Code, line_number: int
) -> None:
    data = (profile.SHIPPED / "semicolon-report.sample.csv").read_bytes()
    assert before in data

    with pytest.raises(RefusedError) as caught:
        list(
            reader.read(
                io.BytesIO(data.replace(before, after, 1)), profile.load("semicolon-report")
            )
        )

    assert (caught.value.code, caught.value.line) == (code, line_number)
    assert PAN not in caught.value.message


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('delimiter = "|"', 'delimiter = "||"', "delimiter: must be one character"),
        ('delimiter = "|"', 'encoding = "utf-16"', "encoding: must be one of"),
        ("amount = 7", "amount = 0", "columns.amount: must be"),
        ("amount = 7", "price = 7", "columns.price: must be one of"),
        ('"1740/C" = "FEE_REVERSAL"', '"1740/C" = "REBATE"', "types.1740/C: must be one of"),
        ('"978" = "EUR"', '"978" = "euro"', "currencies.978: must be"),
        ('trailer = "TRL"', "", "records.trailer: is missing"),
        ("count = 2", "", "totals: must have count and amount"),
        ("settlement_date = 4", "", "header.settlement_date: is missing"),
        ('name = "pipe-records"', "", "name: is missing"),
        ('name = "pipe-records"', 'title = "x"', "title: is not a key"),
        ('name = "pipe-records"', "name = ", "not TOML"),
    ],
)
def test_a_profile_that_is_not_valid_says_which_key(
    before: str, after: str, complaint: str
) -> None:
    text = (profile.SHIPPED / "pipe-records.toml").read_text(encoding="utf-8")
    assert before in text

    with pytest.raises(ProfileError, match=complaint):
        profile.parse(text.replace(before, after, 1))


def test_interchange_counts_also_where_the_totals_of_a_file_are_silent() -> None:
    of_sample = (profile.SHIPPED / "semicolon-report.toml").read_text(encoding="utf-8")
    before, after = of_sample.split("[totals]")
    silent = profile.parse(before + "[totals]" + after.replace('interchange = "Interchange"', ""))
    found = reader.read(
        io.BytesIO((profile.SHIPPED / "semicolon-report.sample.csv").read_bytes()), silent
    )

    assert sum(each.interchange or 0 for each in found) == 18_517_500
    assert found.totals["USD"].interchange == 18_517_500


@pytest.mark.parametrize("column", ["amount", "interchange", "count"])
def test_a_card_number_in_a_total_that_is_no_number_is_not_shown(column: str) -> None:
    text = text_of([head(), line(), *[row | {column: f"{PAN}x"} for row in totals([line()])]])

    with pytest.raises(RefusedError) as caught:
        read(text.encode())

    assert (caught.value.code, caught.value.column) == (Code.PAN_FOUND, column)
    assert PAN not in caught.value.message


def test_an_interchange_is_written_without_zeros_at_the_end() -> None:
    assert [interchange_text(each) for each in (0, 1, -1_500_000, 2_000_000)] == [
        "0",
        "0.000001",
        "-1.5",
        "2",
    ]


def test_the_sample_of_the_page_is_a_whole_file() -> None:
    page = (Path(__file__).parents[2] / "docs/network-files.md").read_text(encoding="utf-8")
    sample = page.split("<!-- canonical sample -->\n```csv\n")[1].split("```")[0]

    found, lines = read(sample.encode())

    assert [each.type for each in lines] == ["PRESENTMENT", "CREDIT", "FEE"]
    assert found.totals["USD"].amount == 119_165
    for code in Code:
        assert f"`{code}`" in page
    for name in profile.shipped():
        assert f"`{name}`" in page
