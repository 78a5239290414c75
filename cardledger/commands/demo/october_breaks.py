"""The files of October in `demo --finance`: imported, and their breaks cleared by two people."""

import json
from typing import Any, Final

from cardledger.commands.demo import october_files
from cardledger.commands.demo.october import Cards
from cardledger.commands.demo.office import Books, Office

PREPARES: Final = "anna"
APPROVES: Final = "ben"

OPEN: Final = """
    SELECT break_id, kind, reference, difference FROM finance.breaks
    WHERE state IN ('open', 'investigating') ORDER BY settlement_date, kind
"""
_KINDS: Final = "SELECT kind, count(*) FROM finance.breaks GROUP BY kind"
_UNBOOKED: Final = "SELECT FROM finance.bookings WHERE booked_at IS NULL"
_EVENT: Final = "SELECT FROM finance.events WHERE reference = %s"
_BOOKED: Final = (
    "SELECT kind, from_kind, to_kind, count(*), sum(amount) AS amount FROM finance.bookings"
    " GROUP BY kind, from_kind, to_kind ORDER BY kind, from_kind"
)
_PATH: Final = (
    "SELECT b.line AS bank, p.settlement_date, l.line, j.event, j.debit_kind, j.credit_kind,"
    " j.amount FROM finance.bank_lines b JOIN finance.bank_payments p USING (statement_id, line)"
    " JOIN finance.lines l USING (network_file_id) JOIN finance.journal j"
    " ON j.subject_id = l.card_transaction_id AND j.sequence = l.sequence"
    " WHERE b.booking_date = '2026-10-13' ORDER BY p.settlement_date, l.line, j.line"
)

_DECIDED: Final = {
    "TYPE_DIFFERS": ("resolved", "a refund, reversed by the network in place of credited"),
    "DUPLICATE_LINE": ("resolved", "the network credits it in November"),
    "IN_LEDGER_ONLY": ("resolved", "the network settles it in November"),
    "CURRENCY_DIFFERS": ("resolved", "billed in EUR by mistake; corrected in November"),
    "AMOUNT_DIFFERS": ("written_off", "ten cents"),
}
"""What becomes of the breaks that nothing explains, and why."""


def play(office: Office, books: Books, cards: Cards) -> None:
    """Import the files of the network and of the bank, and clear what differs.

    Raises: CommandError when a command fails.
    """
    _import(office, books, cards)
    _explain(office, books)
    _decide(office, books)


def _import(office: Office, books: Books, cards: Cards) -> None:
    office.heading("The files of the network and the statement of the bank")
    files = october_files.network_files(cards)
    statements = october_files.statements(cards)
    office.save(files | statements)
    first, *others = files
    office.run(PREPARES, "reconcile", first)
    office.run_each(
        PREPARES,
        "reconcile",
        "--json",
        files=[first, *others],
        pattern="visa-*.csv",
        to="files.jsonl",
    )
    october_statement, _ = statements
    office.run(PREPARES, "bank", october_statement, fails=True)
    office.run(PREPARES, "breaks", "list")
    found = dict(books.rows(_KINDS))
    office.month.findings["the breaks are those that were planted"] = found == october_files.PLANTED
    booked = books.wait_until(lambda: not books.rows(_UNBOOKED))
    office.month.findings["what the files say is booked"] = booked
    office.ask(PREPARES, _BOOKED)
    office.ask(PREPARES, _PATH)


def _explain(office: Office, books: Books) -> None:
    office.heading("Twelve breaks: what later files and events explain")
    office.run(PREPARES, "bank", "bank-november.csv")
    lost = _open(books, "IN_FILE_ONLY", f"{october_files.LOST}-clearing")
    office.run(
        APPROVES, "breaks", "resolve", lost, "--make-event", "--note", "lost by the processor"
    )
    books.wait_until(lambda: bool(books.rows(_EVENT, f"{october_files.LOST}-clearing")))
    office.run(PREPARES, "reconcile", "--rematch", "--json", fails=True, to="rematched.json")
    explained = not [row for row in books.rows(OPEN) if str(row[0]) == lost]
    office.month.findings["an event is made of its line, once"] = explained


def _decide(office: Office, books: Books) -> None:
    office.heading("Twelve breaks: what two people decide")
    fee = _open(books, "BANK_ONLY")
    move = ("--from", "NETWORK_FEES", "--to", "SETTLEMENT_BANK", "--amount", "12.50")
    prepared = office.run(
        PREPARES,
        *("adjust", "move", *move, "--currency", "USD"),
        *("--break", fee, "--reason", "account fee", "--json"),
    )
    office.run(APPROVES, "adjust", "approve", json.loads(prepared)["id"])
    office.run(APPROVES, "breaks", "resolve", fee, "--note", "account fee, booked by a move")
    for kind, (state, note) in _DECIDED.items():
        key = _open(books, kind)
        office.run(APPROVES, "breaks", "resolve", key, "--as", state, "--note", note)
    last = _open(books, "IN_FILE_ONLY")
    office.run(PREPARES, "breaks", "assign", last, "--to", PREPARES, "--note", "ask the processor")
    office.run(PREPARES, "breaks", "list")
    left = [kind for _, kind, *_ in books.rows(OPEN)]
    office.month.findings["two people clear all but one"] = left == ["IN_FILE_ONLY"]


def _open(books: Books, kind: str, reference: str | None = None) -> str:
    """Return the open break of `kind`, and of `reference` if it is given."""
    found: list[Any] = [
        key
        for key, each, named, _ in books.rows(OPEN)
        if each == kind and reference in {None, named}
    ]
    return str(found[0])
