"""What `cardledger breaks` does, and what it prints."""

import json
from datetime import date
from pathlib import Path
from typing import Any

from cardledger.commands.daily.arguments import printable
from cardledger.commands.groups.database import identifier
from cardledger.commands.network_files.run import session
from cardledger.config.errors import USAGE, CommandError
from cardledger.install import settlement_files
from cardledger.install.settlement_files import Break


def show(  # noqa: PLR0913 - the options of the command
    *,
    states: list[str] | None,
    network: str | None,
    day: str | None,
    kind: str | None,
    limit: int,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Print the breaks that meet the conditions."""
    on = None if day is None else _day(day)
    with session(data_dir, may="prepare") as person:
        found = settlement_files.breaks(
            person, states=states, network=network, day=on, kind=kind, limit=limit
        )
    for each in found:
        print(json.dumps(_as_document(each)) if as_json else _as_text(each))
    if not found and not as_json:
        print("none")


def assign(
    key: str, person: str, note: str | None, *, as_json: bool, data_dir: Path | None
) -> None:
    """Let `person` work on the break `key`."""
    wanted = identifier(key, "a break")
    with session(data_dir, may="prepare") as acting:
        state = settlement_files.assign(acting, wanted, person, note)
    _show_state(key, state, as_json=as_json)


def add_note(key: str, note: str, *, as_json: bool, data_dir: Path | None) -> None:
    """Write down what is known of the break `key`."""
    wanted = identifier(key, "a break")
    with session(data_dir, may="prepare") as acting:
        state = settlement_files.add_note(acting, wanted, note)
    _show_state(key, state, as_json=as_json)


def make_event(key: str, note: str, *, as_json: bool, data_dir: Path | None) -> None:
    """Enqueue the event that the line of the break `key` is."""
    wanted = identifier(key, "a break")
    with session(data_dir, may="approve") as acting:
        state = settlement_files.make_event(acting, wanted, note)
    _show_state(key, state, as_json=as_json)


def resolve(key: str, state: str, note: str, *, as_json: bool, data_dir: Path | None) -> None:
    """Close the break `key`."""
    wanted = identifier(key, "a break")
    with session(data_dir, may="approve") as acting:
        found = settlement_files.resolve(acting, wanted, state, note)
    _show_state(key, found, as_json=as_json)


def _show_state(key: str, state: str, *, as_json: bool) -> None:
    print(json.dumps({"id": key, "state": state}) if as_json else f"break {key} {state}")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--settlement-date {printable(text)}: not a day; write it like 2026-10-26", code=USAGE
        ) from None


def _as_document(found: Break) -> dict[str, Any]:
    card_transaction = found.card_transaction_id
    document = {
        "id": str(found.id),
        "kind": found.kind,
        "cause": found.cause,
        "state": found.state,
        "network": found.network,
        "fileId": found.file_id,
        "line": found.line,
        "reference": found.reference,
        "issuerTransactionToken": found.token,
        "cardTransaction": None if card_transaction is None else str(card_transaction),
        "currency": found.currency,
        "fileAmount": found.file_amount,
        "ledgerAmount": found.ledger_amount,
        "difference": found.difference,
        "settlementDate": str(found.settlement_date),
        "rule": found.rule,
        "ageDays": found.age_days,
        "owner": found.owner,
    }
    if found.ledger_currency is not None:
        document["ledgerCurrency"] = found.ledger_currency
        document["ledgerDifference"] = found.ledger_difference
    return document


def _as_text(found: Break) -> str:
    cause = "" if found.cause is None else f" {found.cause}"
    return (
        f"{found.id}  {found.settlement_date}  {printable(found.network)}  {found.state:<13}"
        f"  {found.kind}{printable(cause)}  {found.difference} {found.currency}"
        f"  {printable(found.reference or found.token)}  {printable(found.owner)}"
    )
