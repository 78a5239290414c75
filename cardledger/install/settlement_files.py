"""What people do with settlement files: import them, match again, and work on breaks.

Source: docs/decisions/0076-settlement-files.md
"""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any, Final

import psycopg
from psycopg import errors

from cardledger.config.errors import USAGE, CommandError
from cardledger.install.acting import Session
from cardledger.ledger.network_files.records import Code, Line, RefusedError
from cardledger.ledger.network_files.settlement_file import SettlementFile, interchange_text
from cardledger.schema.ids import Id

IMPORTED: Final = "IMPORTED"
ALREADY_IMPORTED: Final = "ALREADY_IMPORTED"
DRY_RUN: Final = "DRY_RUN"

_BLOCK_LINES: Final = 5_000
_SEPARATOR: Final = "\x1f"  # No line of a file has it.
_LOCK: Final = "hashtext('cardledger settlement files')"
_UNKNOWN_NETWORK: Final = "CL005"
_REPEATED: Final = "CL006"

_RULES: Final = ("REFERENCE", "TOKEN", "CARD")


@dataclass(frozen=True, slots=True)
class BreakCount:
    """How many breaks of a kind a file has in a currency, and the sum of their differences."""

    kind: str
    currency: str
    count: int
    difference: int


@dataclass(frozen=True, slots=True)
class Proof:
    """That the ledger and all differences add up to the file, minor units of `currency`."""

    currency: str
    ledger: int
    difference: int
    file: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of a file that is imported; `matched` is by rule."""

    state: str
    file_id: str
    network: str
    settlement_date: date
    cycle: str | None
    lines: int
    matched: dict[str, int]
    breaks: list[BreakCount]
    proof: list[Proof]
    open_breaks: int


def check_right(session: Session) -> None:
    """Raise CommandError if the person may not prepare: what is refused is kept by it, too."""
    [(may,)] = session.rows(
        "SELECT has_function_privilege('{finance}.finish_file(uuid, text, jsonb)', 'EXECUTE')"
    )
    if not may:
        raise CommandError(
            f"role {session.connection.info.user} lacks the right to prepare, which the import"
            " of files needs; set DATABASE_URL to the login of a person of"
            " `cardledger person add NAME --may prepare`"
        )


def import_file(session: Session, platform: Id, file: SettlementFile, *, keep: bool) -> Result:
    """Import `file` and match its lines, in one database transaction that `keep` says to commit.

    Raises: RefusedError. Then, and when the process ends in between, nothing has changed.
    """
    connection = session.connection
    with alone(session), connection.transaction(force_rollback=not keep):
        # One snapshot: the ledger may not change between the lines and their proof.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        key = _begun(session, platform, file)
        _add_all(session, key, iter(file))
        if key is None:
            key = _same(session, platform, file)
            state = ALREADY_IMPORTED
        else:
            _finish(session, key, file)
            state = IMPORTED if keep else DRY_RUN
        return _result(session, key, state)


def refuse(session: Session, error: RefusedError) -> None:
    """Keep in the audit that a file was refused."""
    session.rows(
        "SELECT {finance}.refuse_file(%s, %s, %s, %s)",
        error.code.value,
        error.line,
        error.column,
        error.message,
    )


def rematch(session: Session) -> list[Result]:
    """Match open breaks with what came later; return what is known of each file that has some.

    The database transaction is one snapshot, as of an import.
    """
    connection = session.connection
    with alone(session), connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.rows("SELECT {finance}.rematch()")
        keys = session.rows(
            "SELECT DISTINCT f.network_file_id, f.imported_at FROM {finance}.files f"
            " JOIN {finance}.proofs p USING (network_file_id) WHERE p.proved_at >= now()"
            " ORDER BY f.imported_at, f.network_file_id"
        )
        return [_result(session, key, "REMATCHED") for key, _ in keys]


def platform_of(session: Session) -> Id:
    """Return the only platform.

    Raises: CommandError when there are several, or none.
    """
    rows = session.rows(
        "SELECT DISTINCT platform_id FROM {finance}.accounts WHERE customer_id IS NULL LIMIT 4"
    )
    if not rows:
        raise CommandError("there is no platform with accounts: nothing can be in its files")
    if len(rows) > 1:
        some = ", ".join(str(key) for (key,) in rows[:3])
        raise CommandError(f"there are several platforms: add --platform ({some}, ...)", code=USAGE)
    found: Id = rows[0][0]
    return found


@contextmanager
def alone(session: Session) -> Iterator[None]:
    """Wait until no other import is running: a snapshot must be younger than the last one."""
    session.rows(f"SELECT pg_advisory_lock({_LOCK})")
    try:
        yield
    finally:
        if not session.connection.closed:
            session.rows(f"SELECT pg_advisory_unlock({_LOCK})")


def _begun(session: Session, platform: Id, file: SettlementFile) -> Id | None:
    header = file.header
    try:
        [(key,)] = session.rows(
            "SELECT {finance}.begin_file(%s, %s, %s, %s::date, %s)",
            platform,
            header.network,
            header.file_id,
            header.settlement_date,
            header.cycle,
        )
    except psycopg.Error as error:
        if error.sqlstate != _UNKNOWN_NETWORK:
            raise
        raise RefusedError(
            Code.UNKNOWN_NETWORK, f"{error.diag.message_primary}", column="network"
        ) from None
    found: Id | None = key
    return found


def _add_all(session: Session, key: Id | None, lines: Iterator[Line]) -> None:
    """Add `lines` to the file `key`; without one only read them.

    While PostgreSQL writes a block, the next one is read.
    """
    with ThreadPoolExecutor(1) as writer:
        writing: Future[None] | None = None
        while block := tuple(islice(lines, _BLOCK_LINES)):
            if key is None:
                continue
            columns = _columns(block)
            if writing is not None:
                writing.result()
            writing = writer.submit(_add, session, key, columns)
        if writing is not None:
            writing.result()


def _columns(lines: tuple[Line, ...]) -> list[str]:
    """Return a text for each argument of the function that adds lines."""
    columns = [
        _SEPARATOR.join(["" if value is None else str(value) for value in column])
        for column in zip(*lines, strict=True)
    ]
    # In the order of the arguments; the interchange is a decimal.
    interchange = Line._fields.index("interchange")
    columns[interchange] = _SEPARATOR.join(
        ["" if line.interchange is None else interchange_text(line.interchange) for line in lines]
    )
    return columns


def _add(session: Session, key: Id, columns: list[str]) -> None:
    places = ", ".join(["%s"] * (len(columns) + 1))
    session.rows(f"SELECT {{finance}}.add_lines({places})", key, *columns)


def _finish(session: Session, key: Id, file: SettlementFile) -> None:
    totals = {
        currency: {
            "lines": total.lines,
            "amount": str(total.amount),
            "interchange": interchange_text(total.interchange),
        }
        for currency, total in file.totals.items()
    }
    try:
        session.rows(
            "SELECT {finance}.finish_file(%s, %s, %s::jsonb)", key, file.digest, json.dumps(totals)
        )
    except psycopg.Error as error:
        if error.sqlstate != _REPEATED:
            raise
        message = f"{error.diag.message_primary}, of this network, day and cycle"
        raise RefusedError(Code.FILE_REPEATED, message, column="file_id") from None


def _same(session: Session, platform: Id, file: SettlementFile) -> Id:
    """Return the file that was imported before. Raises: RefusedError when it was another one."""
    header = file.header
    [(key, digest, imported_at)] = session.rows(
        "SELECT network_file_id, digest, imported_at FROM {finance}.files"
        " WHERE (platform_id, network, file_id) = (%s, %s, %s)",
        platform,
        header.network,
        header.file_id,
    )
    if digest != file.digest:
        raise RefusedError(
            Code.FILE_ID_REUSED,
            f"a file with this file_id and other rows was imported at {imported_at.isoformat()}",
            column="file_id",
        )
    found: Id = key
    return found


def _result(session: Session, key: Id, state: str) -> Result:
    [(file_id, network, day, cycle, lines, open_breaks)] = session.rows(
        "SELECT file_id, network, settlement_date, cycle, lines, open_breaks"
        " FROM {finance}.files WHERE network_file_id = %s",
        key,
    )
    matched = dict.fromkeys(_RULES, 0) | dict(
        session.rows(
            "SELECT rule, count(*) FROM {finance}.lines"
            " WHERE network_file_id = %s AND rule IS NOT NULL GROUP BY rule",
            key,
        )
    )
    breaks = session.rows(
        "SELECT kind, currency, count(*), sum(difference) FROM ("
        " SELECT kind, currency, difference FROM {finance}.breaks WHERE network_file_id = %s"
        " UNION ALL SELECT kind, ledger_currency, ledger_difference FROM {finance}.breaks"
        " WHERE network_file_id = %s AND ledger_currency IS NOT NULL) b"
        " GROUP BY kind, currency ORDER BY kind, currency",
        key,
        key,
    )
    proof = session.rows(
        "SELECT currency, ledger, difference, file FROM {finance}.proofs"
        " WHERE network_file_id = %s AND is_latest ORDER BY currency",
        key,
    )
    return Result(
        state=state,
        file_id=file_id,
        network=network,
        settlement_date=day,
        cycle=cycle,
        lines=lines,
        matched=matched,
        breaks=[BreakCount(kind, code, count, int(total)) for kind, code, count, total in breaks],
        proof=[Proof(code, *map(int, amounts)) for code, *amounts in proof],
        open_breaks=open_breaks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A row of the view `breaks`: amounts are minor units, positive where due to the network.

    Of a statement of the bank, `file_id` is that of the statement, and amounts are positive where
    they arrived at the bank.
    """

    id: Id
    kind: str
    cause: str | None
    state: str
    network: str | None
    settlement_date: date
    file_id: str
    line: int | None
    reference: str | None
    token: str | None
    card_transaction_id: Id | None
    currency: str
    file_amount: int | None
    ledger_amount: int | None
    difference: int
    ledger_currency: str | None
    ledger_difference: int | None
    rule: str | None
    age_days: int
    owner: str | None


_LIST: Final = """
    SELECT break_id, kind, cause, state, network, settlement_date, file_id, line, reference,
        issuer_transaction_token, card_transaction_id, currency, file_amount, ledger_amount,
        difference, ledger_currency, ledger_difference, rule, age_days, owner
    FROM {finance}.breaks
    WHERE (%(states)s::text[] IS NULL OR state = ANY (%(states)s))
        AND (%(network)s::text IS NULL OR network = %(network)s)
        AND (%(day)s::date IS NULL OR settlement_date = %(day)s)
        AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    ORDER BY settlement_date, network NULLS LAST, file_id, line, break_id LIMIT %(limit)s
"""


def breaks(  # noqa: PLR0913 - the filters
    session: Session,
    *,
    states: list[str] | None,
    network: str | None,
    day: date | None,
    kind: str | None,
    limit: int,
) -> list[Break]:
    """Return breaks, the oldest settlement date first."""
    values = {"states": states, "network": network, "day": day, "kind": kind, "limit": limit}
    names = tuple(Break.__dataclass_fields__)
    found = []
    for row in session.named_rows(_LIST, values):
        fields: dict[str, Any] = dict(zip(names, row, strict=True))
        for name in ("difference", "ledger_difference"):
            fields[name] = None if fields[name] is None else int(fields[name])
        found.append(Break(**fields))
    return found


def assign(session: Session, key: Id, person: str, note: str | None) -> str:
    """Let `person` work on the break `key`; return its state. Raises: CommandError."""
    return _state(session, "assign_break(%s, %s, %s)", key, person, note)


def add_note(session: Session, key: Id, note: str) -> str:
    """Write down what is known of the break `key`; return its state. Raises: CommandError."""
    return _state(session, "note_break(%s, %s)", key, note)


def resolve(session: Session, key: Id, state: str, note: str) -> str:
    """Close the break `key` as resolved or written_off; return its state. Raises: CommandError."""
    return _state(session, "resolve_break(%s, %s, %s)", key, state, note)


def make_event(session: Session, key: Id, note: str) -> str:
    """Enqueue the event that the line of the break `key` is; return the state of the break.

    It is applied once: its key is that of the line. Raises: CommandError.
    """
    return _state(session, "make_event(%s, %s)", key, note)


def _state(session: Session, call: str, *values: object) -> str:
    try:
        [(state,)] = session.rows(f"SELECT {{finance}}.{call}", *values)
    except errors.CheckViolation as error:
        raise CommandError(f"{error.diag.message_primary}") from None
    found: str = state
    return found
