"""The output of the demo, in at most 80 columns; every figure comes from the run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cardledger import __version__
from cardledger.commands.demo.office import Month
from cardledger.commands.demo.restaurant_tip import AUTHORIZED, CLEARED, FUNDED, JournalLine, Tip
from cardledger.commands.demo.result import Played, Result
from cardledger.commands.demo.verification import Verification, Webhooks
from cardledger.commands.up import show_step as step
from cardledger.commands.verify import as_dict as report_as_dict
from cardledger.config.console import arrow, decimal
from cardledger.install.ready_file import Running
from cardledger.webhooks.receiver import Arrival

__all__ = [
    "after",
    "as_dict",
    "goodbye",
    "month",
    "port_taken",
    "step",
    "tip",
    "title",
    "traffic",
    "verification",
    "what_next",
    "where_to_look",
]

_CURRENCY: Final = "USD"
_WIDTH: Final = 80
_LABEL: Final = 15  # The column where the text after a label begins.


def title(out: Console, result: Result) -> None:
    """Print the version, the seed and the number of events."""
    if result.options.finance:
        out.print(Text.assemble(("cardledger demo --finance", "bold"), f"   {__version__}"))
        return
    seed, events = result.options.seed, result.options.events
    out.print(
        Text.assemble(
            ("cardledger demo", "bold"), f"   {__version__}, seed {seed}, {events:,} events"
        )
    )
    out.print(Text(" whole numbers are minor units of USD: 1250 is 12.50 USD", style="dim"))


def port_taken(out: Console, wanted: int, got: int) -> None:
    """Print which port is used instead of `wanted`."""
    out.print(Text(f"    {'':11}port {wanted} is in use; using {got}", style="yellow"))


def month(out: Console, result: Result, month: Month) -> None:
    """Print what was found in the month."""
    _heading(out, "October 2026", f"{len(month.commands)} commands in {result.seconds:.0f} s")
    for finding, holds in month.findings.items():
        mark = ("ok     ", "green") if holds else ("WRONG  ", "bold red")
        out.print(Text.assemble(" ", mark, finding))


# --- the restaurant tip ----------------------------------------------------------------------


def tip(out: Console, tip: Tip) -> None:
    """Print the tip: three lines of results, the journal, the webhooks."""
    _heading(out, "The restaurant tip", f"card ending {tip.last4}")
    authorization, clearing = tip.authorization, tip.clearing
    _tip_line(out, "authorization", AUTHORIZED, authorization)
    _tip_line(out, "clearing", CLEARED, clearing)
    out.print(
        Text.assemble(
            " balance".ljust(_LABEL),
            (f"{tip.balance:>6}", "bold"),
            f" from {FUNDED}",
            (f"   {decimal(tip.balance)} {_CURRENCY} from {decimal(FUNDED)} {_CURRENCY}", "dim"),
        )
    )
    _journal(out, tip.journal)
    _webhooks_of_story(out, tip)


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
    columns = (
        "time".rjust(8),
        f"{'event':<14}",
        f"{'debit':<16}",
        f"{'credit':<20}",
        "amount".rjust(7),
    )
    out.print(Text(f" {columns[0]}  {''.join(columns[1:])}  status", style="dim"))
    began = lines[0].at if lines else datetime.min  # noqa: DTZ901 - of no lines, no time.
    pulls = 0
    for line in lines:
        pulls += line.event == "PULLED"
        event = "POST-HOC PULL" if line.event == "PULLED" and pulls > 1 else line.event
        out.print(
            Text.assemble(
                (f" {after(line.at, began):>8}  ", "dim"),
                (f"{event:<14}", "cyan"),
                f"{_account(line.debit):<16}{_account(line.credit):<20}",
                (f"{decimal(line.amount):>7}", "bold"),
                f"  {line.status}" if line.status else "",
            )
        )


def _webhooks_of_story(out: Console, tip: Tip) -> None:
    out.print()
    out.print(Text(" webhooks received".ljust(36) + "content".ljust(26) + "signatures", "dim"))
    for arrival in tip.webhooks:
        is_verified = arrival.problem is None
        out.print(
            Text.assemble(
                (f" {arrival.type:<35}", "cyan"),
                f"{_summary(arrival):<26}",
                ("ok", "green") if is_verified else (f"INVALID {arrival.problem}", "red"),
            )
        )


def _summary(arrival: Arrival) -> str:
    data = arrival.content.get("data", {})
    if arrival.type.startswith("CARD_TRANSACTION."):
        return f"pulls {data['pullSummary']['count']}, sequence {data['sequence']}"
    if arrival.type.startswith("INTERNAL_ACCOUNT."):
        return f"balance {data['balance']['amount']}"
    return str(data.get("state", ""))


# --- simulated traffic -----------------------------------------------------------------------


def traffic(out: Console, played: Played) -> None:
    """Print the outcomes of the simulated traffic."""
    counts = played.counts
    total = counts.sent + counts.sent_again
    rate = total / played.seconds if played.seconds else 0.0
    _heading(out, "Simulated traffic", f"{played.customers} customers, {played.cards} cards")
    out.print(
        Text.assemble(
            " submitted".ljust(_LABEL),
            (f"{counts.sent:,} events", "bold"),
            f", {counts.sent_again:,} of them twice, in {played.seconds:.1f} s: ",
            (f"{rate:,.0f} events/s", "bold"),
        )
    )
    _counted(
        out,
        "duplicates",
        f"{counts.sent_again:,} submitted, {counts.duplicates_ignored:,} ignored",
    )
    reasons = ", ".join(
        f"{reason.lower().replace('_', ' ')} {count:,}"
        for reason, count in counts.declined.most_common()
    )
    _counted(
        out, "declined", f"{counts.declined.total():,}" + (f"   ({reasons})" if reasons else "")
    )
    _counted(out, "post-hoc", f"{len(counts.post_hoc):,}   (more than one pull)")
    _counted(out, "force-posted", f"{counts.force_posted:,}   (cleared without an approval)")
    _counted(out, "exceptions", f"{len(counts.exceptions):,}   (cleared above the balance)")
    _counted(
        out,
        "top-ups",
        f"{played.top_ups:,}   ({decimal(played.topped_up)} {_CURRENCY} in total, for the oldest"
        " open pulls first)",
    )


def _counted(out: Console, what: str, text: str) -> None:
    out.print(Text.assemble((f" {what}".ljust(_LABEL), "cyan"), text))


# --- verification ----------------------------------------------------------------------------


def verification(out: Console, result: Result, verified: Verification) -> None:
    """Print what was verified, with the trial balance."""
    report, hooks = verified.report, verified.webhooks
    _heading(out, "Verification", "")
    _check(
        out,
        report.holds,
        f"{report.events:,} events replayed in {verified.refold_seconds:.1f} s:"
        f" all {report.card_transactions:,} roll-ups match",
    )
    _check(
        out,
        verified.balances_hold,
        f"{report.entries:,} entries add up to the balances of {report.accounts:,} accounts,"
        " held and owed",
    )
    _check(out, not verified.sum_of_accounts, "debits equal credits: the trial balance is 0")
    for kind, amount in verified.trial_balance.items():
        out.print(f"      {_account(kind):<20}{decimal(amount):>16} {_CURRENCY}")
    out.print(
        Text(f"      {'sum':<20}{decimal(verified.sum_of_accounts):>16} {_CURRENCY}", style="bold")
    )
    _check(out, hooks.holds, _delivered(hooks))
    statuses = ", ".join(f"{count:,} {status}" for status, count in verified.statuses.items())
    for line in _wrapped(
        f"card transactions: {statuses}; owed {decimal(verified.owed)} {_CURRENCY}"
    ):
        out.print(f"   {line}")
    for difference in [*report.differences, *hooks.problems, *result.deviations]:
        out.print(Text(f"   difference   {difference}", style="red"))
    if result.options.check:
        balance = FUNDED - CLEARED
        _check(
            out,
            not result.deviations,
            f"the tip is as expected: pulls 2, settled {CLEARED}, balance {balance}",
        )
    verdict = (
        ("Verification passed.", "bold green")
        if result.holds
        else ("Verification failed.", "bold red")
    )
    out.print(Text.assemble(" ", verdict, f"   total time {result.seconds:.1f} s"))


def _check(out: Console, holds: bool, text: str) -> None:  # noqa: FBT001 - a verdict, not a switch
    out.print(Text.assemble((" ok " if holds else "FAIL", "green" if holds else "bold red"), text))


def _delivered(hooks: Webhooks) -> str:
    text = f"{hooks.verified:,} of {hooks.sent:,} webhooks delivered, both signatures verified"
    return text + (f", {hooks.pending:,} pending" if hooks.pending else "")


# --- the end ---------------------------------------------------------------------------------


def where_to_look(
    out: Console, running: Running, tip: Tip, data_dir: Path, *, console: str | None
) -> None:
    """Print commands for the running system; these lines may be longer than 80 columns."""
    login = f"{running.client_id}:{running.client_secret}"
    _heading(out, "Explore", "until Ctrl-C")
    for what, text in (
        *((("console", console),) if console else ()),
        (
            "the tip",
            f"curl -u {login} {running.base_url}/transactions/{tip.card_transaction_id}",
        ),
        ("exceptions", f"curl -u {login} '{running.base_url}/transactions?status=EXCEPTION'"),
        ("journal", f"psql '{running.database_url}' -c 'SELECT * FROM finance.journal LIMIT 5'"),
        ("verification", f"cardledger verify --data-dir {data_dir}"),
        ("logs", str(data_dir / "demo.log")),
    ):
        _counted(out, what, text)


def what_next(out: Console) -> None:
    """Print which commands to try next."""
    _heading(out, "Next steps", "")
    for command, what in (
        ("cardledger demo --keep", "run it again, keep it up, print curl and psql commands"),
        ("cardledger up", "serve until Ctrl-C; data is kept in .cardledger"),
        ("cardledger submit FILE", "submit your own events, then run cardledger verify"),
    ):
        out.print(Text.assemble((f" {command:<23}", "cyan"), what))


def goodbye(out: Console, *, kept: Path | None) -> None:
    """Print where the data is kept, if it is."""
    out.print()
    data = f"data is kept in {kept}" if kept else "no data is kept"
    out.print(Text(f" stopped; {data}", style="dim"))


def as_dict(result: Result) -> dict[str, Any]:
    """Return the run as JSON; amounts in minor units."""
    if result.month is not None:
        return _month_as_dict(result, result.month)
    assert result.tip is not None, "the run has ended"
    assert result.played is not None
    assert result.verification is not None
    assert result.running is not None
    document: dict[str, Any] = {
        "version": __version__,
        "seed": result.options.seed,
        "holds": result.holds,
        "seconds": round(result.seconds, 3),
        "steps": [
            {"name": step.name, "detail": step.detail, "seconds": round(step.seconds, 3)}
            for step in result.steps
        ],
        "story": _story_as_dict(result.tip),
        "crowd": _crowd_as_dict(result.played),
        "proof": _proof_as_dict(result.verification),
    }
    if result.options.check:
        document["check"] = {"holds": not result.deviations, "surprises": result.deviations}
    if result.options.keep:
        document["running"] = {
            "baseUrl": result.running.base_url,
            "clientId": result.running.client_id,
            "clientSecret": result.running.client_secret,
            "databaseUrl": result.running.database_url,
            "redisUrl": result.running.redis_url,
        }
    return document


def _month_as_dict(result: Result, month: Month) -> dict[str, Any]:
    return {
        "version": __version__,
        "holds": result.holds,
        "seconds": round(result.seconds, 3),
        "commands": month.commands,
        "findings": month.findings,
    }


def _story_as_dict(tip: Tip) -> dict[str, Any]:
    return {
        "customerId": tip.customer_id,
        "internalAccountId": tip.account_id,
        "cardId": tip.card_id,
        "cardTransactionId": tip.card_transaction_id,
        "funded": FUNDED,
        "authorization": tip.authorization,
        "clearing": tip.clearing,
        "balance": tip.balance,
        "journal": [_journal_as_dict(line) for line in tip.journal],
        "webhooks": [
            {
                "type": arrival.type,
                "id": arrival.webhook_id,
                "verified": arrival.problem is None,
            }
            for arrival in tip.webhooks
        ],
    }


def _crowd_as_dict(played: Played) -> dict[str, Any]:
    counts = played.counts
    return {
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
    }


def _proof_as_dict(verified: Verification) -> dict[str, Any]:
    hooks = verified.webhooks
    return {
        **report_as_dict(verified.report),
        "holds": verified.holds,
        "trialBalance": verified.trial_balance,
        "sumOfAccounts": verified.sum_of_accounts,
        "balancesHold": verified.balances_hold,
        "held": verified.held,
        "owed": verified.owed,
        "statuses": verified.statuses,
        "webhooks": {
            "sent": hooks.sent,
            "delivered": hooks.delivered,
            "verified": hooks.verified,
            "pending": hooks.pending,
            "requests": hooks.requests,
            "problems": list(hooks.problems),
        },
    }


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


def after(at: datetime, began: datetime) -> str:
    """Return how long after `began` it is, in eight characters at most."""
    seconds = (at - began).total_seconds()
    return f"+{seconds * 1000:.0f} ms" if seconds < 1 else f"+{seconds:.1f} s"


def _wrapped(text: str) -> Iterable[str]:
    from textwrap import wrap  # noqa: PLC0415

    return wrap(text, _WIDTH - 4)
