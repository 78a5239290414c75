"""Write a file, read it, and print how many KiB the process had at most.

It is a process of its own: what it has at most is what reading needs.
"""

import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, cast

from cardledger.ledger.bank_statements import profile as bank_profiles
from cardledger.ledger.bank_statements import reader as bank_reader
from cardledger.ledger.network_files import profile as network_profiles
from cardledger.ledger.network_files import reader as network_reader
from tests.settlement_files import head, line, text_of


def _canonical(count: int) -> Iterator[str]:
    first = text_of([head(), line()], end="\n").splitlines(keepends=True)
    yield "".join(first[:2])
    yield from (first[2].replace("r-1", f"r-{n}") for n in range(count))
    total = {"record": "T", "currency": "USD", "count": count, "amount": count * 1250}
    yield text_of([total], end="\n").splitlines(keepends=True)[1]


def _profiled(count: int) -> Iterator[str]:
    yield "HDR|F0261026|MASTERCARD|20261026|1\n"
    yield from (
        f"DTL|1240|DR|r-{n}|N-{n}|token-{n}|1250|840|0.5|20261025|GREEN GROCER|5411\n"
        for n in range(count)
    )
    yield f"TRL|{count}|DR|{1250 * count}|840|{count // 2}\n"


def _bank(count: int) -> Iterator[str]:
    yield "booking_date,value_date,amount,currency,bank_reference,description,opening,closing\n"
    yield "2026-10-26,,-5,USD,BK,first,1000,\n"
    yield from (f"2026-10-26,,-5,USD,BK-{n},line {n},,\n" for n in range(count - 2))
    yield f"2026-10-26,,-5,USD,BK,last,,{1000 - 5 * count}\n"


def _bank_profiled(count: int) -> Iterator[str]:
    yield "Account;Booked;Value;Text;Reference;Amount;Currency;Balance\n"
    yield from (
        f"1000;26.10.2026;26.10.2026;line {n};BK-{n};5,00;USD;{5 * n + 5},00\n"
        for n in range(count)
    )


def _statement(file: BinaryIO) -> Iterator[object]:
    return iter(bank_reader.read(file))


def _profiled_statement(file: BinaryIO) -> Iterator[object]:
    return iter(bank_reader.read(file, bank_profiles.load("running-balance")))


def _settlement_file(file: BinaryIO) -> Iterator[object]:
    return iter(network_reader.read(file))


def _profiled_settlement_file(file: BinaryIO) -> Iterator[object]:
    return iter(network_reader.read(file, network_profiles.load("pipe-records")))


Read = Callable[[BinaryIO], Iterator[object]]

FILES: Final[dict[str, tuple[Callable[[int], Iterator[str]], Read]]] = {
    "settlement file": (_canonical, _settlement_file),
    "settlement file of a profile": (_profiled, _profiled_settlement_file),
    "bank statement": (_bank, _statement),
    "bank statement of a profile": (_bank_profiled, _profiled_statement),
}


def main(name: str, count: int) -> None:
    """Read a file of `count` lines, and print the greatest size of the process."""
    rows, read = FILES[name]
    with tempfile.TemporaryFile() as file:
        file.writelines(row.encode() for row in rows(count))
        file.seek(0)
        found = sum(1 for _ in read(cast("BinaryIO", file)))
    assert found == count, found
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
