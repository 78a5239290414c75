"""The restaurant tip over HTTP: API responses, journal, webhooks."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from cardledger.config.errors import CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install.http_client import HttpApi
from cardledger.ledger.projections import history
from cardledger.schema import connections
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import parse_id
from cardledger.webhooks.receiver import Arrival, Receiver

FUNDED: Final = 50_000
AUTHORIZED: Final = 1_250
CLEARED: Final = 1_500

_WEBHOOK_TIMEOUT_S: Final = 20.0
_ACTIVATION_TIMEOUT_S: Final = 60.0
_SETTLED: Final = "CARD_TRANSACTION.SETTLED"

_EXPECTED: Final = {
    "status after the authorization": "AUTHORIZED",
    "pulls after the authorization": 1,
    "status after the clearing": "SETTLED",
    "pulls after the clearing": 2,
    "settled": CLEARED,
    "balance": FUNDED - CLEARED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """An event and one of its entries; an event that moves no money has no accounts."""

    at: datetime
    event: str
    debit: str | None
    credit: str | None
    amount: int
    status: str | None  # Of the card transaction after the event; None for a deposit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """What the API, the journal and the webhook receiver show."""

    customer_id: str
    account_id: str
    card_id: str
    last4: str
    card_transaction_id: str
    authorization: Mapping[str, Any]
    clearing: Mapping[str, Any]
    balance: int
    journal: Sequence[JournalLine]
    webhooks: Sequence[Arrival]

    def deviations(self) -> list[str]:
        """Return the differences from the expected result, as text."""
        actual = {
            "status after the authorization": self.authorization["status"],
            "pulls after the authorization": self.authorization["pullSummary"]["count"],
            "status after the clearing": self.clearing["status"],
            "pulls after the clearing": self.clearing["pullSummary"]["count"],
            "settled": self.clearing["settlementSummary"]["totalAmount"],
            "balance": self.balance,
        }
        return [
            f"{name} is {actual[name]}, expected {expected}"
            for name, expected in _EXPECTED.items()
            if actual[name] != expected
        ]


def play(api: HttpApi, receiver: Receiver, database_url: DatabaseUrl) -> Tip:
    """Play the tip on the running system and collect its results.

    Raises: CommandError when a request fails or a webhook does not arrive.
    """
    customer = api.post(
        "/customers",
        {
            "customerType": "INDIVIDUAL",
            "fullName": "Ada Lovelace",
            "region": "US",
            "currencies": ["USD"],
        },
    )
    account = account_of(api, customer["id"])
    api.post(f"/sandbox/internal-accounts/{account}/fund", {"amount": FUNDED})
    card = api.post(
        "/cards",
        {"cardholderId": customer["id"], "form": "VIRTUAL", "fundingSources": [account]},
    )
    activated = wait_for(receiver, "CARD.STATE_CHANGE", card["id"])
    simulate = f"/sandbox/cards/{card['id']}/simulate"
    authorization = api.post(
        f"{simulate}/authorization",
        {
            "amount": AUTHORIZED,
            "currency": {"code": "USD"},
            "merchant": {"descriptor": "CHEZ ROUX PARIS", "mcc": "5812", "country": "FR"},
        },
    )
    clearing = api.post(
        f"{simulate}/clearing",
        {"cardTransactionId": authorization["id"], "amount": CLEARED},
    )
    balance = balance_of(api, customer["id"])
    wait_for(receiver, _SETTLED, authorization["id"])
    _wait_for_balance(receiver, account, balance)
    return Tip(
        customer_id=customer["id"],
        account_id=account,
        card_id=card["id"],
        last4=activated.content["data"]["last4"],
        card_transaction_id=authorization["id"],
        authorization=authorization,
        clearing=clearing,
        balance=balance,
        journal=journal(database_url, account, authorization["id"]),
        webhooks=_about(receiver, {account, card["id"], authorization["id"]}),
    )


def wait_until_active(api: HttpApi, cards: Sequence[str]) -> None:
    """Return once all of `cards` are active.

    Raises: CommandError when one is not in time.
    """
    deadline = time.monotonic() + _ACTIVATION_TIMEOUT_S
    for card in cards:
        while api.get(f"/cards/{card}")["state"] != "ACTIVE":
            if time.monotonic() > deadline:
                raise CommandError(f"{card} was not activated in {_ACTIVATION_TIMEOUT_S:g} s")
            time.sleep(0.02)


def account_of(api: HttpApi, customer_id: str) -> str:
    """Return the id of a customer's only internal account."""
    account: str = _account(api, customer_id)["id"]
    return account


def balance_of(api: HttpApi, customer_id: str) -> int:
    """Return the balance of a customer's only internal account."""
    balance: int = _account(api, customer_id)["balance"]["amount"]
    return balance


def wait_for(
    receiver: Receiver,
    kind: str,
    resource_id: str,
    matches: Callable[[dict[str, Any]], bool] = lambda _data: True,
) -> Arrival:
    """Return the webhook of `kind` about `resource_id` once it has arrived.

    Raises: CommandError when it does not arrive.
    """

    def is_expected(arrival: Arrival) -> bool:
        data = arrival.content.get("data", {})
        return arrival.type == kind and data.get("id") == resource_id and matches(data)

    try:
        arrived = receiver.wait_for(
            lambda all_: any(map(is_expected, all_)), timeout_s=_WEBHOOK_TIMEOUT_S
        )
    except TimeoutError:
        raise CommandError(
            f"the webhook {kind} of {resource_id} did not arrive within {_WEBHOOK_TIMEOUT_S:g} s"
        ) from None
    return next(filter(is_expected, arrived))


def journal(
    database_url: DatabaseUrl, account_id: str, card_transaction_id: str
) -> list[JournalLine]:
    """Return the journal of an account's deposits and of a card transaction, in order."""
    account = parse_id("InternalAccount", account_id)
    purchase = parse_id("CardTransaction", card_transaction_id)
    with connections.connect(database_url) as connection:
        rows = connection.execute(_JOURNAL, {"account": account, "purchase": purchase}).fetchall()
        statuses = _statuses(connection, purchase, [row[0] for row in rows])
    return [
        JournalLine(
            at=at,
            event=event,
            debit=debit,
            credit=credit,
            amount=amount,
            status=statuses.get(sequence),
        )
        for sequence, at, event, debit, credit, amount in rows
    ]


def _wait_for_balance(receiver: Receiver, account_id: str, balance: int) -> None:
    def is_last(data: dict[str, Any]) -> bool:
        amount: int = data["balance"]["amount"]
        return amount == balance

    wait_for(receiver, "INTERNAL_ACCOUNT.BALANCE_UPDATED", account_id, is_last)


def _account(api: HttpApi, customer_id: str) -> dict[str, Any]:
    [account] = api.get(f"/customers/internal-accounts?customerId={customer_id}")["data"]
    assert isinstance(account, dict)
    return account


def _statuses(
    connection: psycopg.Connection[Any], purchase: Id, sequences: Sequence[int]
) -> dict[int, str]:
    places = [(purchase, sequence) for sequence in set(sequences) if sequence]
    roll_ups = history.at(connection, places)
    return {sequence: str(roll_up.state.status) for (_, sequence), roll_up in roll_ups.items()}


def _about(receiver: Receiver, resources: set[str]) -> list[Arrival]:
    return [
        arrival
        for arrival in receiver.received
        if arrival.content.get("data", {}).get("id") in resources
    ]


# Entries with their accounts, and events that moved no money.
_JOURNAL: Final = """
    SELECT e.sequence, e.recorded_at, e.kind, d.name, c.name, coalesce(n.amount, e.amount)
    FROM card_transaction_events e
    LEFT JOIN entries n ON n.subject_id = e.card_transaction_id AND n.sequence = e.sequence
    LEFT JOIN LATERAL (
        SELECT kind AS name FROM system_accounts WHERE id = n.debit_account_id
        UNION ALL SELECT 'CUSTOMER' FROM internal_accounts WHERE id = n.debit_account_id
    ) d ON true
    LEFT JOIN LATERAL (
        SELECT kind AS name FROM system_accounts WHERE id = n.credit_account_id
        UNION ALL SELECT 'CUSTOMER' FROM internal_accounts WHERE id = n.credit_account_id
    ) c ON true
    WHERE e.card_transaction_id = %(purchase)s
    UNION ALL
    SELECT 0, d.recorded_at, 'DEPOSITED', s.kind, 'CUSTOMER', n.amount
    FROM deposits d
    JOIN entries n ON n.subject_id = d.id
    JOIN system_accounts s ON s.id = n.debit_account_id
    WHERE d.account_id = %(account)s
    ORDER BY 2, 1
"""
