"""What the demo says, in at most 80 columns: aligned, every figure out of the run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cardledger import __version__
from cardledger.commands.up import show_step as step
from cardledger.commands.verify import as_dict as report_as_dict
from cardledger.config.console import arrow, decimal
from cardledger.demo.proof import Proof, Webhooks
from cardledger.demo.result import Played, Result
from cardledger.demo.story import AUTHORIZED, CLEARED, FUNDED, JournalLine, Story
from cardledger.install.ready_file import Running
from cardledger.webhooks.receiver import Arrival

__all__ = [
    "as_dict",
    "crowd",
    "goodbye",
    "port_taken",
    "proof",
    "step",
    "story",
    "title",
    "what_next",
    "where_to_look",
]

_CURRENCY: Final = "USD"
_WIDTH: Final = 80
_LABEL: Final = 15  # Where the text after a label begins.


def title(out: Console, result: Result) -> None:
    """Say what this is."""
    seed, events = result.options.seed, result.options.events
    out.print(
        Text.assemble(
            ("cardledger demo", "bold"), f"   {__version__}, seed {seed}, {events:,} events"
        )
    )
    out.print(Text(" amounts in minor units of USD (1250 is 12.50 USD)", style="dim"))


def port_taken(out: Console, wanted: int, got: int) -> None:
    """Say that another port was taken."""
    out.print(Text(f"    {'':11}port {wanted} is taken, so it is {got}", style="yellow"))


# --- the story -------------------------------------------------------------------------------


def story(out: Console, told: Story) -> None:
    """Tell the tip: three lines of what happened, the journal, the webhooks."""
    _heading(out, "The restaurant tip", f"card ending {told.last4}")
    authorization, clearing = told.authorization, told.clearing
    _tip_line(out, "authorization", AUTHORIZED, authorization)
    _tip_line(out, "clearing", CLEARED, clearing)
    out.print(
        Text.assemble(
            " balance".ljust(_LABEL),
            (f"{told.balance:>6}", "bold"),
            f" from {FUNDED}",
            (f"   {decimal(told.balance)} {_CURRENCY} from {decimal(FUNDED)} {_CURRENCY}", "dim"),
        )
    )
    _journal(out, told.journal)
    _webhooks_of_story(out, told)


def _tip_line(out: Console, what: str, amount: int, card_transaction: Mapping[str, Any]) -> None:
    settled = card_transaction["settlementSummary"]
    out.print(
        Text.assemble(
            f" {what}".ljust(_LABEL),
            f"{amount:>6} {arrow()} ",
            (f"{card_transaction['status']:<12}", "bold green"),
            f"pulls {card_transaction['pullSummary']['count']}",
            f"   settled {settled['totalAmount']}" if settled["count"] else "",
        )
    )


def _journal(out: Console, lines: Sequence[JournalLine]) -> None:
    out.print()
    columns = ("time".rjust(8), f"{'event':<14}", f"{'from':<16}", f"{'to':<20}", "amount".rjust(7))
    out.print(Text(f" {columns[0]}  {''.join(columns[1:])}  status", style="dim"))
    began = lines[0].at if lines else datetime.min  # noqa: DTZ901 - of no lines, no time.
    pulls = 0
    for line in lines:
        pulls += line.event == "PULLED"
        event = "POST-HOC PULL" if line.event == "PULLED" and pulls > 1 else line.event
        out.print(
            Text.assemble(
                (f" {_milliseconds(line.at, began):>8}  ", "dim"),
                (f"{event:<14}", "cyan"),
                f"{_account(line.debit):<16}{_account(line.credit):<20}",
                (f"{decimal(line.amount):>7}", "bold"),
                f"  {line.status}" if line.status else "",
            )
        )


def _webhooks_of_story(out: Console, told: Story) -> None:
    out.print()
    out.print(
        Text(" webhooks received".ljust(36) + "what it says".ljust(26) + "both signatures", "dim")
    )
    for arrival in told.webhooks:
        proven = arrival.problem is None
        out.print(
            Text.assemble(
                (f" {arrival.type:<35}", "cyan"),
                f"{_gist(arrival):<26}",
                ("ok", "green") if proven else (f"REFUSED {arrival.problem}", "red"),
            )
        )


def _gist(arrival: Arrival) -> str:
    data = arrival.content.get("data", {})
    if arrival.type.startswith("CARD_TRANSACTION."):
        return f"pulls {data['pullSummary']['count']}, sequence {data['sequence']}"
    if arrival.type.startswith("INTERNAL_ACCOUNT."):
        return f"balance {data['balance']['amount']}"
    return str(data.get("state", ""))


# --- the crowd -------------------------------------------------------------------------------


def crowd(out: Console, played: Played) -> None:
    """Say what became of the crowd."""
    counts = played.counts
    total = counts.sent + counts.sent_again
    rate = total / played.seconds if played.seconds else 0.0
    _heading(out, "The crowd", f"{played.customers} customers, {played.cards} cards")
    out.print(
        Text.assemble(
            " played".ljust(_LABEL),
            (f"{counts.sent:,} events", "bold"),
            f" and {counts.sent_again:,} of them again, in {played.seconds:.1f} s: ",
            (f"{rate:,.0f} events/s", "bold"),
        )
    )
    _counted(
        out,
        "duplicates",
        f"{counts.sent_again:,} sent again, {counts.duplicates_ignored:,} ignored",
    )
    reasons = ", ".join(
        f"{reason.lower().replace('_', ' ')} {count:,}"
        for reason, count in counts.declined.most_common()
    )
    _counted(
        out, "declined", f"{counts.declined.total():,}" + (f"   ({reasons})" if reasons else "")
    )
    _counted(out, "tips and more", f"{len(counts.post_hoc):,} purchases needed a post-hoc pull")
    _counted(out, "force-posted", f"{counts.force_posted:,} clearings nobody had approved")
    _counted(
        out,
        "exceptions",
        f"{len(counts.exceptions):,} purchases took what the account did not have",
    )
    _counted(
        out,
        "top-ups",
        f"{played.top_ups:,} of together {decimal(played.topped_up)} {_CURRENCY}, which paid the"
        " oldest first",
    )


def _counted(out: Console, what: str, text: str) -> None:
    out.print(Text.assemble((f" {what}".ljust(_LABEL), "cyan"), text))


# --- the proof -------------------------------------------------------------------------------


def proof(out: Console, result: Result, proved: Proof) -> None:
    """Say what was proved, with the trial balance."""
    report, hooks = proved.report, proved.webhooks
    _heading(out, "The proof", "")
    _check(
        out,
        report.holds,
        f"{report.events:,} events folded again in {proved.refold_seconds:.1f} s:"
        f" all {report.card_transactions:,} roll-ups are equal",
    )
    _check(
        out,
        proved.balances_hold,
        f"sum of {report.entries:,} entries = balances of {report.accounts:,} accounts,"
        " held and owed too",
    )
    _check(out, not proved.sum_of_accounts, "debits = credits: all accounts add up to 0")
    for kind, amount in proved.trial_balance.items():
        out.print(f"      {_account(kind):<20}{decimal(amount):>16} {_CURRENCY}")
    out.print(
        Text(f"      {'sum':<20}{decimal(proved.sum_of_accounts):>16} {_CURRENCY}", style="bold")
    )
    _check(out, hooks.holds, _delivered(hooks))
    statuses = ", ".join(f"{count:,} {status}" for status, count in proved.statuses.items())
    for line in _wrapped(f"purchases: {statuses}; owed {decimal(proved.owed)} {_CURRENCY}"):
        out.print(f"   {line}")
    for difference in [*report.differences, *hooks.problems, *result.surprises]:
        out.print(Text(f"   differs   {difference}", style="red"))
    if result.options.check:
        balance = FUNDED - CLEARED
        _check(
            out,
            not result.surprises,
            f"the story as it must be: pulls 2, settled {CLEARED}, balance {balance}",
        )
    verdict = (
        ("The proof holds.", "bold green") if result.holds else ("The proof fails.", "bold red")
    )
    out.print(Text.assemble(" ", verdict, f"   everything took {result.seconds:.1f} s"))


def _check(out: Console, holds: bool, text: str) -> None:  # noqa: FBT001 - a verdict, not a switch
    out.print(Text.assemble((" ok " if holds else " NO ", "green" if holds else "bold red"), text))


def _delivered(hooks: Webhooks) -> str:
    text = f"{hooks.verified:,} of {hooks.sent:,} webhooks delivered, both signatures verified"
    return text + (f", {hooks.pending:,} still waiting" if hooks.pending else "")


# --- the end ---------------------------------------------------------------------------------


def where_to_look(out: Console, running: Running, told: Story, data_dir: Path) -> None:
    """Say how to look around while everything is up; these lines may be longer than 80 columns."""
    login = f"{running.client_id}:{running.client_secret}"
    _heading(out, "Where to look", "until Ctrl-C")
    for what, text in (
        (
            "the purchase",
            f"curl -u {login} {running.base_url}/transactions/{told.card_transaction_id}",
        ),
        ("exceptions", f"curl -u {login} '{running.base_url}/transactions?status=EXCEPTION'"),
        ("the books", f"psql '{running.database_url}' -c 'SELECT * FROM entries LIMIT 5'"),
        ("the proof", f"cardledger verify --data-dir {data_dir}"),
        ("the logs", str(data_dir / "demo.log")),
    ):
        _counted(out, what, text)


def what_next(out: Console) -> None:
    """Say how to see more, for when this stops at once."""
    _heading(out, "Where to look", "")
    for command, what in (
        ("cardledger demo --keep", "the same, and stays up: curl and psql lines to paste"),
        ("cardledger up", "serves until Ctrl-C; its data stays in .cardledger"),
        ("cardledger submit FILE", "plays your own events; cardledger verify proves them"),
    ):
        out.print(Text.assemble((f" {command:<23}", "cyan"), what))


def goodbye(out: Console, *, kept: Path | None) -> None:
    """Say what is left."""
    out.print()
    left = f"its data is in {kept}" if kept else "nothing is left behind"
    out.print(Text(f" stopped; {left}", style="dim"))


def as_dict(result: Result) -> dict[str, Any]:
    """Return the run as machines read it; amounts in minor units."""
    told, played, proved = result.story, result.played, result.proof
    assert told is not None, "the run has ended"
    assert played is not None
    assert proved is not None
    assert result.running is not None
    counts, hooks = played.counts, proved.webhooks
    document: dict[str, Any] = {
        "version": __version__,
        "seed": result.options.seed,
        "holds": result.holds,
        "seconds": round(result.seconds, 3),
        "steps": [
            {"name": one.name, "detail": one.detail, "seconds": round(one.seconds, 3)}
            for one in result.steps
        ],
        "story": {
            "customerId": told.customer_id,
            "internalAccountId": told.account_id,
            "cardId": told.card_id,
            "cardTransactionId": told.card_transaction_id,
            "funded": FUNDED,
            "authorization": told.authorization,
            "clearing": told.clearing,
            "balance": told.balance,
            "journal": [_journal_as_dict(line) for line in told.journal],
            "webhooks": [
                {"type": one.type, "id": one.webhook_id, "verified": one.problem is None}
                for one in told.webhooks
            ],
        },
        "crowd": {
            "events": counts.sent,
            "sentAgain": counts.sent_again,
            "duplicatesIgnored": counts.duplicates_ignored,
            "outcomes": dict(counts.outcomes),
            "declined": dict(counts.declined),
            "exceptions": len(counts.exceptions),
            "postHocPulls": len(counts.post_hoc),
            "forcePosted": counts.force_posted,
            "topUps": played.top_ups,
            "toppedUp": played.topped_up,
            "customers": played.customers,
            "cards": played.cards,
            "seconds": round(played.seconds, 3),
        },
        "proof": {
            **report_as_dict(proved.report),
            "holds": proved.holds,
            "trialBalance": proved.trial_balance,
            "sumOfAccounts": proved.sum_of_accounts,
            "balancesHold": proved.balances_hold,
            "held": proved.held,
            "owed": proved.owed,
            "statuses": proved.statuses,
            "webhooks": {
                "sent": hooks.sent,
                "delivered": hooks.delivered,
                "verified": hooks.verified,
                "pending": hooks.pending,
                "requests": hooks.requests,
                "problems": list(hooks.problems),
            },
        },
    }
    if result.options.check:
        document["check"] = {"holds": not result.surprises, "surprises": result.surprises}
    if result.options.keep:
        document["running"] = {
            "baseUrl": result.running.base_url,
            "clientId": result.running.client_id,
            "clientSecret": result.running.client_secret,
            "databaseUrl": result.running.database_url,
            "redisUrl": result.running.redis_url,
        }
    return document


def _journal_as_dict(line: JournalLine) -> dict[str, Any]:
    return {
        "at": line.at.isoformat(),
        "event": line.event,
        "debit": line.debit,
        "credit": line.credit,
        "amount": line.amount,
        "status": line.status,
    }


# --- parts -----------------------------------------------------------------------------------


def _heading(out: Console, text: str, beside: str) -> None:
    out.print()
    out.print(Text.assemble(" ", (text, "bold"), (f"   {beside}" if beside else "", "dim")))


def _account(kind: str | None) -> str:
    names = {None: "", "CUSTOMER": "customer funds"}
    return names.get(kind, (kind or "").lower().replace("_", " "))


def _milliseconds(at: datetime, began: datetime) -> str:
    return f"+{(at - began).total_seconds() * 1000:,.0f} ms"


def _wrapped(text: str) -> Iterable[str]:
    from textwrap import wrap  # noqa: PLC0415

    return wrap(text, _WIDTH - 4)
