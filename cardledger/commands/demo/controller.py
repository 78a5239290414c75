"""`demo --finance`: a controller's October, by the commands that a controller types.

The books of October 2026 from its first entry to its close: the files of the network and of the
bank, the breaks that two people clear, an exception that they write off, and a fact that arrives
when the month is closed. Every command is a process of its own, with the
login of the person who types it. docs/finance.md is the same month; a test compares the two.
"""

import json
from typing import Final

import psycopg
from rich.text import Text

from cardledger.commands.demo import october, october_breaks, restaurant_tip
from cardledger.commands.demo.october import CARDHOLDERS, Cards
from cardledger.commands.demo.office import Books, Office, Trial
from cardledger.config.errors import CommandError
from cardledger.install.http_client import HttpApi
from cardledger.install.ready_file import Running
from cardledger.schema import connections

PREPARES: Final = october_breaks.PREPARES
APPROVES: Final = october_breaks.APPROVES
OPERATOR: Final = "operator"

_MONTH: Final = f"{october.FIRST_DAY:%Y-%m}"
_LAST_DAY: Final = str(october.LAST_DAY)
_FIRST_DAYS: Final = str(october.FIRST_DAY + 6 * october.DAY)
_SUSPENSE: Final = ("SUSPENSE", "USD")
_CLOSED: Final = "CL004"  # SQLSTATE of an entry of a closed day.

_IN_SUSPENSE: Final = (
    "SELECT cause, reason, type, amount, open_amount, posted_on FROM finance.suspense"
)
_LATE: Final = (
    "SELECT late_from, posted_on, event, amount, reference FROM finance.journal"
    " WHERE late_from IS NOT NULL"
)
_PURCHASE: Final = (
    "SELECT event, debit_kind, credit_kind, amount FROM finance.journal"
    " WHERE merchant = 'TOOLS AND SONS' ORDER BY sequence, line"
)
_PERIOD: Final = "SELECT state FROM finance.periods WHERE last_day = %s ORDER BY prepared_at DESC"
_OWES: Final = "SELECT card_transaction_id, owed FROM finance.receivables"
_INTO_CLOSED_DAY: Final = """
    INSERT INTO entries (subject_id, sequence, line, customer_id, debit_account_id,
        credit_account_id, amount, recorded_at, occurred_at, posted_on)
    SELECT gen_random_uuid(), 0, 1, customer_id, debit_account_id, credit_account_id, 1, now(),
        now(), %s
    FROM entries WHERE account_id IS NULL LIMIT 1
"""


def play(office: Office, running: Running) -> None:
    """Play the month on a system whose books are empty.

    Raises: CommandError when a command or a request fails.
    """
    if running.finance_url is None:
        raise CommandError("the login of finance is not known: demo --finance needs one")
    books = Books(running.finance_url)
    _open(office)
    cards = _issue_cards(running)
    _record_october(office, books, cards)
    october_breaks.play(office, books, cards)
    _report(office, books)
    _write_off(office, books)
    before = _close(office, books)
    _come_late(office, books, cards, before)
    _refuse_closed_day(office, running)
    office.run(OPERATOR, "verify")
    office.month.findings["the books verify after the close"] = True


def _open(office: Office) -> None:
    office.heading("The office: two people, and the business days of the network")
    for person, right in ((PREPARES, "prepare"), (APPROVES, "approve")):
        url = office.run(OPERATOR, "person", "add", person, "--may", right, is_secret=True)
        office.logins[person] = url.splitlines()[-1]
    office.run(APPROVES, "close", "begin", str(october.FIRST_DAY))
    calendar = ("--time-zone", "America/New_York", "--cut-off", "17:00", "--days", "mon-fri")
    office.run(OPERATOR, "calendar", "set", october.NETWORK, *calendar)


def _issue_cards(running: Running) -> Cards:
    with HttpApi(running.base_url, running.client_id, running.client_secret) as api:
        ids = []
        for cardholder in CARDHOLDERS:
            customer = api.post(
                "/customers",
                {
                    "customerType": "INDIVIDUAL",
                    "fullName": cardholder.name,
                    "currencies": ["USD"],
                },
            )
            account = restaurant_tip.account_of(api, customer["id"])
            deposit = {"amount": cardholder.funds, "occurredAt": october.FUNDED_AT}
            api.post(f"/sandbox/internal-accounts/{account}/fund", deposit)
            card = {
                "cardholderId": customer["id"],
                "form": "VIRTUAL",
                "fundingSources": [account],
            }
            ids.append(api.post("/cards", card)["id"])
        restaurant_tip.wait_until_active(api, ids)
    return october.of_cards(ids)


def _record_october(office: Office, books: Books, cards: Cards) -> None:
    office.heading("October: what the network sent, and one clearing that is not valid")
    events = office.write("october.jsonl", october.events(cards))
    office.run(OPERATOR, "submit", events, to="outcomes.jsonl")
    broken = office.write("slip.jsonl", [october.malformed(cards)])
    office.run(OPERATOR, "submit", broken, fails=True)
    held = books.in_suspense()
    office.ask(PREPARES, _IN_SUSPENSE)
    office.month.findings["what cannot be applied stands in SUSPENSE"] = bool(held)
    corrected = office.write("corrected.jsonl", [october.corrected(cards)])
    office.run(OPERATOR, "submit", corrected, to="outcomes.jsonl")
    office.ask(PREPARES, _IN_SUSPENSE)
    rest = books.trial_balance().get(_SUSPENSE)
    office.month.findings["SUSPENSE is zero once it is applied"] = rest == 0


def _report(office: Office, books: Books) -> None:
    office.heading("The end of the month: the trial balance, and who owes what")
    office.run(PREPARES, "report", "trial-balance", "--on", _LAST_DAY)
    office.run(PREPARES, "report", "network-days", "--to", _FIRST_DAYS)
    office.ask(PREPARES, "SELECT merchant, currency, owed FROM finance.receivables")
    net = sum(books.trial_balance().values())
    office.month.findings["the trial balance adds up to zero"] = not net


def _write_off(office: Office, books: Books) -> None:
    office.heading("An exception: two people give up what Charles Babbage owes")
    [(purchase, owed)] = books.rows(_OWES)
    amount = f"{owed // 100}.{owed % 100:02}"
    reason = ("--reason", "the customer cannot be reached")
    name = f"CardTransaction:{purchase}"
    prepared = office.run(
        PREPARES, "adjust", "write-off", name, "--amount", amount, *reason, "--json"
    )
    adjustment = json.loads(prepared)["id"]
    office.run(PREPARES, "adjust", "approve", adjustment, fails=True)
    office.run(APPROVES, "adjust", "approve", adjustment)
    office.ask(PREPARES, _PURCHASE)
    office.month.findings["the receivable is written off"] = not books.rows(_OWES)


def _close(office: Office, books: Books) -> Trial:
    office.heading("The close: one person prepares, another seals")
    office.run(PREPARES, "close", _MONTH, fails=True)
    office.run(OPERATOR, "verify")
    reason = ("--reason", "the processor sends the event in November")
    allowed = ("--allow", "IN_FILE_ONLY", *reason)
    closing = json.loads(office.run(PREPARES, "close", _MONTH, *allowed, "--json"))["id"]
    office.run(APPROVES, "close", "approve", closing)
    office.run(PREPARES, "close", "list")
    state = books.rows(_PERIOD, _LAST_DAY)
    office.month.findings["October is sealed"] = state[:1] == [("SEALED",)]
    return books.trial_balance()


def _come_late(office: Office, books: Books, cards: Cards, before: Trial) -> None:
    office.heading("November: a clearing of 30 October arrives")
    late = office.write("late.jsonl", [october.late_fact(cards)])
    office.run(OPERATOR, "submit", late, to="outcomes.jsonl")
    posted = {(was, day) for was, day, *_ in office.ask(PREPARES, _LATE)}
    office.month.findings["the late fact is posted on the first open day"] = posted == {
        (october.LATE_SETTLEMENT_DATE, october.LAST_DAY + october.DAY)
    }
    office.run(PREPARES, "reconcile", "--rematch", "--json", to="rematched.json")
    left = books.rows(october_breaks.OPEN)
    office.month.findings["the late fact explains the last break"] = not left
    office.run(PREPARES, "report", "trial-balance", "--on", _LAST_DAY)
    office.month.findings["October has not moved"] = books.trial_balance() == before


def _refuse_closed_day(office: Office, running: Running) -> None:
    """Try to insert an entry of the closed month with the rights of the application."""
    office.heading("The database refuses an entry of a closed day, by any login")
    try:
        with connections.connect(running.database_url, reply_limit_s=None) as connection:
            connection.execute(_INTO_CLOSED_DAY, [_LAST_DAY])
            connection.rollback()
    except psycopg.Error as error:
        message, state = error.diag.message_primary, error.sqlstate
    else:
        message, state = "it was inserted", None
    office.out.print()
    office.out.print(Text(f"INSERT INTO entries … posted on {_LAST_DAY}", style="cyan"))
    office.out.print(Text(str(message)), soft_wrap=True)
    office.month.findings["an entry of a closed day is refused"] = state == _CLOSED
