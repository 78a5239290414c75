"""The cardholders of a storm: two accounts each, a card that lives, cards that will be closed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx2
import psycopg

from benchmarks import workload
from cardledger.api import BASE_PATH
from cardledger.ledger.messaging.inbox import Owner
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import ENDPOINT_SECRET
from cardledger.ledger.webhooks import signatures
from cardledger.schema.ids import Id
from storm.system import System
from tests.storm import FlakyReceiver

CARDS_TO_CLOSE: Final = 6
_AGENTS: Final = 8
_KINDS: Final = ["CARD_TRANSACTION.*"]
_POLICY: Final = {
    "permissions": ["CREATE_TRANSFERS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 10_000_000},
}


@dataclass(slots=True)
class Cardholder:
    """One cardholder; `purchases` are tokens that were approved, amount and card."""

    owner: Owner
    card_id: Id
    accounts: tuple[Id, Id]
    to_close: list[Id]
    agent_token: str | None = None
    purchases: list[tuple[str, int, str]] = field(default_factory=list)


def populate(system: System, count: int) -> list[Cardholder]:
    """Insert `count` cardholders, as evenly over the queues as it goes."""
    assert system.sandbox is not None
    platform = Id.parse(system.sandbox.access.platform_id)
    made = workload.new_cardholders(system.owner_url, platform, count)
    cardholders = []
    with psycopg.connect(system.owner_url) as connection:
        for one in made:
            second = new_id()
            connection.execute(
                "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type,"
                " status, created_at, updated_at)"
                " VALUES (%s, %s, %s, 'USD', 'INTERNAL_FIAT', 'ACTIVE', now(), now())",
                [second, one.owner.customer_id, platform],
            )
            to_close = [new_id() for _ in range(CARDS_TO_CLOSE)]
            for card in to_close:
                connection.execute(
                    "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state,"
                    " form, currency, funding_sources, processor_ref, issuer_ref, created_at,"
                    " updated_at) VALUES (%s, %s, %s, %s, 'ACTIVE', 'VIRTUAL', 'USD', %s, 'p',"
                    " 'i', now(), now())",
                    [card, one.owner.customer_id, platform, str(card), [one.account_id]],
                )
            accounts = (one.account_id, second)
            cardholders.append(Cardholder(one.owner, one.card_id, accounts, to_close))
    return cardholders


def connect_agents(system: System, cardholders: Sequence[Cardholder]) -> None:
    """Give the first cardholders an agent each, which may make transfers for them."""
    assert system.sandbox is not None
    access = system.sandbox.access
    login = (access.client_id, access.client_secret)
    base = f"{system.base_url}{BASE_PATH}"
    with httpx2.Client(base_url=base, auth=login, timeout=30, trust_env=False) as api:
        for cardholder in cardholders[:_AGENTS]:
            customer = f"Customer:{cardholder.owner.customer_id}"
            asked = {"name": "Saver", "customerId": customer, "policy": _POLICY}
            code = api.post("/agents", json=asked).raise_for_status().json()["deviceCode"]["code"]
            path = f"{base}/agents/device-codes/{code}/redeem"
            redeemed = httpx2.post(path, timeout=30, trust_env=False).raise_for_status().json()
            cardholder.agent_token = redeemed["accessToken"]


def subscribe(system: System, receiver: FlakyReceiver) -> None:
    """Subscribe `receiver` to the events of card transactions, strictly in order."""
    assert system.sandbox is not None
    platform = Id.parse(system.sandbox.access.platform_id)
    secret = signatures.new_webhook_secret()
    receiver.judge(system.sandbox.public_key, secret)
    keys: KeyRing = system.keys
    endpoint = new_id()
    sealed = keys.encrypt(secret.encode(), ENDPOINT_SECRET.of(platform, endpoint))
    with psycopg.connect(system.owner_url) as connection:
        connection.execute(
            "INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode,"
            " state, secret, created_at, updated_at)"
            " VALUES (%s, %s, false, %s, %s, 'FIFO', 'ENABLED', %s, now(), now())",
            [endpoint, platform, receiver.url, _KINDS, sealed],
        )
