"""`cardledger explain`: what happened to a card transaction, in sentences, and who was notified."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.commands.daily import arguments, reading
from cardledger.commands.daily.arguments import printable
from cardledger.config import console as terminal
from cardledger.config.errors import USAGE, CommandError
from cardledger.ledger.queries import card_transactions, event_pages, operator_history
from cardledger.ledger.queries.operator_history import OutcomeRow, WebhookRow
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import Change, EventResource
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import CurrencyAmount, format_amount, public_id, rfc3339

_RESOURCE: Final = "CardTransaction"
_WHEN_SLOW: Final = "each look-up is by key: look for locks and load in pg_stat_activity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A network event by its permanent key."""

    source: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A card transaction, its events and its webhooks; `outcome` if it was found by an event."""

    card_transaction: CardTransactionResource
    platform_id: Id
    events: Sequence[EventResource]
    webhooks: Sequence[WebhookRow]
    outcome: OutcomeRow | None


def run(name: str, *, platform: str | None, as_json: bool, data_dir: Path | None) -> None:
    """Print the history of the card transaction `name`.

    Raises: CommandError when there is none.
    """
    wanted = parse(name)
    platform_id = None if platform is None else arguments.key_of(platform, "Platform", "--platform")

    async def explain(connection: AsyncConnection) -> Explanation:
        return await find(connection, wanted, platform_id)

    explanation = reading.run(data_dir, explain, when_slow=_WHEN_SLOW)
    if as_json:
        print(json.dumps(as_dict(explanation), indent=2))
    else:
        _show(terminal.console(), explanation)


def parse(name: str) -> Id | Reference:
    """Return what `name` names: a card transaction, or a network event `SOURCE/REFERENCE`.

    Raises: CommandError, a usage error.
    """
    source, slash, reference = name.partition("/")
    if slash and source and reference and _is_storable(name):
        return Reference(source=source, reference=reference)
    try:
        return Id.parse(name.removeprefix(f"{_RESOURCE}:"))
    except ValueError:
        raise CommandError(
            f"{printable(name)}: neither a card transaction nor an event; write"
            " CardTransaction:<uuid>, the UUID alone, or SOURCE/REFERENCE",
            code=USAGE,
        ) from None


def _is_storable(text: str) -> bool:
    """Return whether a `text` column can have this value: an argument may be any bytes."""
    return "\x00" not in text and text.encode(errors="replace").decode() == text


async def find(
    connection: AsyncConnection, wanted: Id | Reference, platform_id: Id | None
) -> Explanation:
    """Return the explanation of what is `wanted`.

    Raises: CommandError when it does not exist, or is not about one card transaction.
    """
    driver = await driver_async(connection)
    outcome = None
    if isinstance(wanted, Reference):
        outcomes = await operator_history.outcomes(
            driver, wanted.source, wanted.reference, platform_id=platform_id
        )
        outcome = _only(wanted, outcomes)
        assert outcome.subject_id is not None, "_only returns an outcome with a subject"
        key = outcome.subject_id
    else:
        key = wanted
    owner = await operator_history.platform_of(driver, key)
    if owner is None or platform_id not in {None, owner}:
        raise _not_found(wanted, platform_id)
    found = await card_transactions.get(connection, platform_id=owner, card_transaction_id=key)
    events = await event_pages.every(connection, platform_id=owner, card_transaction_id=key)
    assert found is not None, "it was found in this database transaction"
    assert events is not None
    webhooks = await operator_history.webhooks(
        driver, platform_id=owner, subject_id=key, since=found.created_at
    )
    return Explanation(
        card_transaction=found,
        platform_id=owner,
        events=events,
        webhooks=webhooks,
        outcome=outcome,
    )


def _only(wanted: Reference, outcomes: Sequence[OutcomeRow]) -> OutcomeRow:
    """Return the only outcome, if it has a subject."""
    name = printable(f"{wanted.source}/{wanted.reference}")
    if not outcomes:
        raise CommandError(
            f"no event {name} was decided; it may wait in the inbox (`cardledger top`) or be"
            " rejected (`cardledger rejections list`)"
        )
    if len(outcomes) > 1:
        platforms = ", ".join(str(outcome.platform_id) for outcome in outcomes)
        raise CommandError(f"several platforms have an event {name}; add --platform: {platforms}")
    [outcome] = outcomes
    if outcome.subject_id is None:
        reason = f", {outcome.reason}" if outcome.reason else ""
        raise CommandError(
            f"the event {name} was {outcome.outcome}{reason}, without a card transaction"
        )
    return outcome


def _not_found(wanted: Id | Reference, platform_id: Id | None) -> CommandError:
    if isinstance(wanted, Reference):
        name = printable(f"{wanted.source}/{wanted.reference}")
        return CommandError(
            f"the event {name} is about a deposit or a transfer, not about a card transaction"
        )
    of = "" if platform_id is None else f" of platform {platform_id}"
    return CommandError(
        f"no card transaction {wanted}{of}; `cardledger transactions` lists those that exist"
    )


# --- JSON --------------------------------------------------------------------------------------


def as_dict(explanation: Explanation) -> dict[str, Any]:
    """Return `explanation` as JSON; card transaction and events are those of the HTTP API."""
    document: dict[str, Any] = {
        "cardTransaction": explanation.card_transaction.wire()
        | {"platformId": str(explanation.platform_id)},
        "events": [event.wire() for event in explanation.events],
        "webhooks": [_webhook(webhook) for webhook in explanation.webhooks],
    }
    outcome = explanation.outcome
    if outcome is not None:
        fields = {
            "outcome": outcome.outcome,
            "reason": outcome.reason,
            "sequence": outcome.sequence,
            "recordedAt": rfc3339(outcome.recorded_at),
        }
        document["outcome"] = _given(fields)
    return document


def _webhook(webhook: WebhookRow) -> dict[str, Any]:
    def name(resource: str, key: Id | None) -> str | None:
        return None if key is None else public_id(resource, key)

    return _given(
        {
            "webhookId": name("Webhook", webhook.webhook_id),
            "deliveryId": name("WebhookDelivery", webhook.delivery_id),
            "endpointId": name("WebhookEndpoint", webhook.endpoint_id),
            "type": webhook.type,
            "sequence": webhook.sequence,
            "state": webhook.state,
            "attempts": webhook.attempts,
            "lastStatus": webhook.last_status,
            "createdAt": rfc3339(webhook.created_at),
            "deliveredAt": webhook.delivered_at and rfc3339(webhook.delivered_at),
        }
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


# --- text --------------------------------------------------------------------------------------


def _show(out: Console, explanation: Explanation) -> None:
    resource = explanation.card_transaction
    key = public_id(_RESOURCE, resource.id)
    out.print(Text.assemble((key, "bold"), "  ", (resource.status, "bold green")))
    for line in _summary(resource):
        out.print(Text(f" {line}"))
    outcome = explanation.outcome
    if outcome is not None:
        reason = f", {outcome.reason}" if outcome.reason else ""
        place = f", up to event {outcome.sequence} below" if outcome.sequence else ""
        out.print(Text(f" outcome of the event: {outcome.outcome}{reason}{place}"))
    for event in explanation.events:
        show_event(out, event)
    _show_webhooks(out, explanation.webhooks)


def _summary(resource: CardTransactionResource) -> Iterator[str]:
    yield f"{printable(resource.merchant.descriptor)}, card {public_id('Card', resource.card_id)}"
    figures = {
        "authorized": resource.authorized_amount,
        "settled": resource.settled_amount,
        "refunded": resource.refunded_amount,
        "held": resource.held_amount,
        "owed": resource.owed_amount,
    }
    yield ", ".join(
        f"{name} {_money(amount)}" for name, amount in figures.items() if amount is not None
    )


def show_event(out: Console, event: EventResource) -> None:
    """Print `event` in a sentence, with the figures that it changed and its entries."""
    out.print()
    out.print(
        Text.assemble(
            (f" {event.sequence:>3}  ", "dim"),
            (event.type, "cyan"),
            (f"  {event.recorded_at:%Y-%m-%d %H:%M:%S.%f} UTC", "dim"),
        )
    )
    out.print(Text(f"      {printable(event.explanation)}"))
    currency = event.amount.currency.code
    for change in event.changes:
        out.print(Text(f"      {_change(change, currency)}", style="dim"))
    for entry in event.entries:
        out.print(
            Text(f"      entry {_money(entry.amount)}: debit {entry.debit}, credit {entry.credit}")
        )
    if event.source is not None:
        caused = printable(f"{event.source}/{event.reference}")
        out.print(Text(f"      caused by {caused}", style="dim"))


def _change(change: Change, currency: str) -> str:
    def figure(value: int | str | None) -> str:
        # All figures but statuses and counts are amounts.
        if isinstance(value, int) and change.field.lower().endswith("amount"):
            return format_amount(value, currency)
        return printable(value)

    return f"{change.field} {figure(change.before)} {terminal.arrow()} {figure(change.after)}"


def _money(amount: CurrencyAmount) -> str:
    return format_amount(amount.amount, str(amount.currency.code))


def _show_webhooks(out: Console, webhooks: Sequence[WebhookRow]) -> None:
    out.print()
    out.print(Text(" webhooks" if webhooks else " no webhooks", style="bold"))
    for webhook in webhooks:
        sequence = f" sequence {webhook.sequence}" if webhook.sequence is not None else ""
        status = f", last status {webhook.last_status}" if webhook.last_status else ""
        plural = "" if webhook.attempts == 1 else "s"
        out.print(
            Text.assemble(
                (f"      {webhook.type}", "cyan"),
                f"{sequence}: {webhook.state}, {webhook.attempts} attempt{plural}{status}",
            )
        )
        if webhook.delivery_id is not None:
            shown = public_id("WebhookDelivery", webhook.delivery_id)
            out.print(Text(f"      cardledger webhooks show {shown}", style="dim"))
    if len(webhooks) >= operator_history.WEBHOOK_LIMIT:
        out.print(Text("      further webhooks are not listed", style="dim"))
