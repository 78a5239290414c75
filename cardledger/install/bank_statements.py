"""What people do with statements of the bank: import them, and match again.

Source: docs/decisions/0084-bank-statements.md
"""

from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Final

import psycopg

from cardledger.config.errors import CommandError
from cardledger.install import settlement_files
from cardledger.install.acting import Session
from cardledger.install.settlement_files import BreakCount, Proof
from cardledger.ledger.bank_statements.records import Line, Summary
from cardledger.ledger.bank_statements.statement import Statement
from cardledger.ledger.network_files.records import Code, RefusedError
from cardledger.schema.ids import Id

_BLOCK_LINES: Final = 5_000
_SEPARATOR: Final = "\x1f"  # No line of a statement has it.
_OVERLAPS: Final = "CL006"

RULES: Final = ("REFERENCE", "AMOUNT", "NETWORK", "REST")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of a statement that is imported; `matched` is lines by rule.

    Units: minor units of `currency`. `gap`: by how much `opening` differs from the closing balance
    of the statement before; None: there is none, or they are equal.
    """

    state: str
    account: str
    statement_id: str
    currency: str
    first_day: date
    last_day: date
    opening: int
    closing: int
    lines: int
    gap: int | None
    matched: dict[str, int]
    breaks: list[BreakCount]
    proof: Proof
    open_breaks: int


def import_statement(
    session: Session, platform: Id, summary: Summary, statement: Statement, *, keep: bool
) -> Result:
    """Import `statement`, of which `summary` is known, in one database transaction.

    `keep`: whether to commit it. Raises: RefusedError. Then, and when the process ends in between,
    nothing has changed.
    """
    connection = session.connection
    with settlement_files.alone(session), connection.transaction(force_rollback=not keep):
        # One snapshot: the ledger may not change between the lines and their proof.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if (known := _known(session, platform, summary)) is not None:
            return _result(session, known, "ALREADY_IMPORTED")
        [(key,)] = session.rows(
            "SELECT {finance}.begin_statement(%s, %s, %s, %s, %s::date, %s::date, %s, %s)",
            platform,
            summary.account,
            summary.statement_id,
            summary.currency,
            summary.first_day,
            summary.last_day,
            summary.opening,
            summary.closing,
        )
        lines = iter(statement)
        while block := tuple(islice(lines, _BLOCK_LINES)):
            _add(session, key, block)
        if statement.summary != summary:
            raise CommandError("the file has changed while it was read: import it again")
        _finish(session, key, summary)
        return _result(session, key, "IMPORTED" if keep else "DRY_RUN")


def rematch(session: Session) -> list[Result]:
    """Match open lines with what came later; return what is known of statements with open breaks.

    The database transaction is one snapshot, as of an import.
    """
    connection = session.connection
    with settlement_files.alone(session), connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.rows("SELECT {finance}.rematch_bank()")
        keys = session.rows(
            "SELECT s.statement_id FROM {finance}.bank_statements s WHERE s.open_breaks > 0"
            " OR EXISTS (SELECT FROM {finance}.statement_proofs p"
            " WHERE p.statement_id = s.statement_id AND p.proved_at >= now())"
            " ORDER BY s.first_day, s.imported_at, s.statement_id"
        )
        return [_result(session, key, "REMATCHED") for (key,) in keys]


def _add(session: Session, key: Id, lines: tuple[Line, ...]) -> None:
    columns = [
        _SEPARATOR.join(["" if value is None else str(value) for value in column])
        for column in zip(*lines, strict=True)
    ]
    places = ", ".join(["%s"] * (len(columns) + 1))
    session.rows(f"SELECT {{finance}}.add_statement_lines({places})", key, *columns)


def _finish(session: Session, key: Id, summary: Summary) -> None:
    try:
        session.rows("SELECT {finance}.finish_statement(%s, %s)", key, summary.digest)
    except psycopg.Error as error:
        if error.sqlstate != _OVERLAPS:
            raise
        raise RefusedError(Code.STATEMENT_OVERLAPS, f"{error.diag.message_primary}") from None


def _known(session: Session, platform: Id, summary: Summary) -> Id | None:
    """Return the statement of the account that was imported before, under any name, if one was.

    Raises: RefusedError if the one of this name was another one.
    """
    rows = session.rows(
        "SELECT statement_id, digest, imported_at FROM {finance}.bank_statements"
        " WHERE (platform_id, account) = (%s, %s)"
        " AND (bank_statement_id = %s OR (currency, digest) = (%s, %s))"
        " ORDER BY bank_statement_id = %s DESC LIMIT 1",
        platform,
        summary.account,
        summary.statement_id,
        summary.currency,
        summary.digest,
        summary.statement_id,
    )
    if not rows:
        return None
    [(key, digest, imported_at)] = rows
    if digest != summary.digest:
        raise RefusedError(
            Code.FILE_ID_REUSED,
            f"a statement {summary.statement_id!a} of account {summary.account!a} with other lines"
            f" was imported at {imported_at.isoformat()}",
            column="statement_id",
        )
    found: Id = key
    return found


def _result(session: Session, key: Id, state: str) -> Result:
    [row] = session.rows(
        "SELECT account, bank_statement_id, currency, first_day, last_day, opening, closing, lines,"
        " opening::numeric - closing_before, open_breaks"
        " FROM {finance}.bank_statements WHERE statement_id = %s",
        key,
    )
    account, statement_id, currency, first, last, opening, closing, lines, gap, open_breaks = row
    matched = dict.fromkeys(RULES, 0) | dict(
        session.rows(
            "SELECT rule, count(DISTINCT line) FROM {finance}.bank_payments"
            " WHERE statement_id = %s GROUP BY rule",
            key,
        )
    )
    breaks = session.rows(
        "SELECT kind, currency, count(*), sum(difference) FROM {finance}.breaks"
        " WHERE statement_id = %s GROUP BY kind, currency ORDER BY kind",
        key,
    )
    [amounts] = session.rows(
        "SELECT ledger, difference, statement FROM {finance}.statement_proofs"
        " WHERE statement_id = %s AND is_latest",
        key,
    )
    return Result(
        state=state,
        account=account,
        statement_id=statement_id,
        currency=currency,
        first_day=first,
        last_day=last,
        opening=opening,
        closing=closing,
        lines=lines,
        gap=int(gap) if gap else None,
        matched=matched,
        breaks=[BreakCount(kind, code, count, int(total)) for kind, code, count, total in breaks],
        proof=Proof(currency, *map(int, amounts)),
        open_breaks=open_breaks,
    )
