"""A statement of the bank, in the canonical form, of a profile or as MT940, opened to be read."""

from typing import BinaryIO

from cardledger.ledger.bank_statements import mt940, profiled_rows
from cardledger.ledger.bank_statements.profile import Profile
from cardledger.ledger.bank_statements.records import Summary
from cardledger.ledger.bank_statements.statement import Statement, canonical_rows

_START_BYTES = 64


def read(
    file: BinaryIO,
    profile: Profile | None = None,
    *,
    account: str | None = None,
    statement_id: str | None = None,
) -> Statement:
    """Return the statement in `file`, which can be read from its beginning again; iterate it.

    Without a profile a file that begins as MT940 is read as such. `account` and `statement_id`
    count in place of what the file says. Raises: ValueError when they are too long.
    """
    start = file.read(_START_BYTES)
    file.seek(0)
    if profile is not None:
        rows = profiled_rows.rows(file, profile)
    elif mt940.is_mt940(start):
        rows = mt940.rows(file)
    else:
        rows = canonical_rows(file)
    return Statement(rows, account=account, statement_id=statement_id)


def check(file: BinaryIO, statement: Statement) -> Summary:
    """Read all of `statement` in `file`, and return what it is; `file` is at its beginning again.

    Raises: RefusedError.
    """
    for _ in statement:
        pass
    file.seek(0)
    assert statement.summary is not None
    return statement.summary
