"""pytest fixtures of cardledger: the real system, and a platform of its own for each test.

    def test_a_tip_is_settled(cardledger):
        card = cardledger.cardholder(balance=50_000)
        cardledger.events(card.event("AUTHORIZATION", 1250), card.event("CLEARING", 1500))
        assert cardledger.balance(card) == 48_500

`pip install "cardledger-client[testing]"` brings the system with its embedded servers. It starts
with the first test that uses the fixture, once for each process of pytest-xdist; until then nothing
but this module is imported.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from cardledger.testing import System
    from cardledger.webhooks.receiver import Receiver
    from cardledger_client import Client, Event, Outcome

__all__ = ["Cardholder", "Platform", "cardledger", "cardledger_system"]

_POLL_S: Final = 0.01
_WAIT_S: Final = 30.0
_NUMBERS: Final = count(1)


@pytest.fixture(scope="session")
def cardledger_system() -> Iterator["System"]:
    """The real system: API, workers and servers, all of them processes of this test run."""
    try:
        from cardledger.testing import System  # noqa: PLC0415 - with the first test that uses it
    except ModuleNotFoundError as error:
        pytest.fail(f'{error}: pip install "cardledger-client[testing]"', pytrace=False)
    with System() as system:
        yield system


@pytest.fixture
def cardledger(cardledger_system: "System") -> Iterator["Platform"]:
    """A new platform in the system, with a client and a receiver of its webhooks."""
    from cardledger.webhooks.receiver import Receiver  # noqa: PLC0415 - as above
    from cardledger_client import Client  # noqa: PLC0415 - as above

    made, running = cardledger_system.platform(), cardledger_system.running
    token = f"{made.access.client_id}:{made.access.client_secret}"
    with (
        Receiver(made.public_key, made.webhook_secret) as receiver,
        Client(running.base_url, token) as client,
    ):
        client.call("PATCH", "/config", {"webhookEndpoint": receiver.url})
        yield Platform(
            client=client,
            receiver=receiver,
            base_url=running.base_url,
            token=token,
            database_url=running.database_url,
            webhook_secret=made.webhook_secret,
            webhook_public_key=made.public_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cardholder:
    """A customer with one card on one account; `purchase` is the token of their next events."""

    customer_id: str
    account_id: str
    card_id: str
    currency: str
    purchase: str

    def event(self, kind: str, amount: int | None = None, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return an event of the card, with a reference of its own; `amount` is in minor units.

        All events of a cardholder belong to one purchase, unless `issuerTransactionToken` says
        otherwise.
        """
        event = {
            "type": kind,
            "source": "test",
            "reference": f"{self.purchase}-{next(_NUMBERS)}",
            "issuerTransactionToken": self.purchase,
            "cardId": self.card_id,
            "currency": self.currency,
            "amount": amount,
            **fields,
        }
        return {name: value for name, value in event.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform: `client` calls it with `token`, and its webhooks are received here.

    `database_url` is that of the ledger, for events in a database transaction of the test.
    """

    client: "Client"
    receiver: "Receiver"
    base_url: str
    token: str
    database_url: str
    webhook_secret: str
    webhook_public_key: str

    def cardholder(self, balance: int = 50_000) -> Cardholder:
        """Return a new cardholder with an active card and `balance` minor units of USD."""
        name = {"customerType": "INDIVIDUAL", "fullName": "Ada Lovelace"}
        customer = self.client.call("POST", "/customers", name)["id"]
        account = next(self._accounts(customer))["id"]
        if balance:
            path = f"/sandbox/internal-accounts/{account}/fund"
            self.client.call("POST", path, {"amount": balance})
        request = {"cardholderId": customer, "form": "VIRTUAL", "fundingSources": [account]}
        card = self.client.call("POST", "/cards", request)["id"]
        _wait_until(lambda: self.client.card(card)["state"] == "ACTIVE", "the card is not ACTIVE")
        return Cardholder(
            customer_id=customer,
            account_id=account,
            card_id=card,
            currency="USD",
            purchase=f"purchase-{uuid4()}",
        )

    def events(self, *events: "Event") -> "list[Outcome]":
        """Submit `events` and return their outcomes."""
        return self.client.events(events)

    def balance(self, cardholder: Cardholder) -> int:
        """Return the available balance of the cardholder's account, in minor units."""
        [account] = self._accounts(cardholder.customer_id)
        return int(account["balance"]["amount"])

    def webhooks(
        self, at_least: int = 0, *, kind: str = "", timeout_s: float = _WAIT_S
    ) -> list[tuple[bytes, Mapping[str, str]]]:
        """Wait for `at_least` webhooks whose type begins with `kind`; return body and headers.

        Shape: all that have arrived so far, in their order of arrival; names of headers are in
        lower case.
        Raises: TimeoutError.
        """
        arrivals = self.receiver.wait_for(
            lambda arrived: sum(each.type.startswith(kind) for each in arrived) >= at_least,
            timeout_s=timeout_s,
        )
        return [(each.body, each.headers) for each in arrivals if each.type.startswith(kind)]

    def _accounts(self, customer_id: str) -> Iterator[Any]:
        return self.client.items(
            "/customers/internal-accounts", customerId=customer_id, currency="USD"
        )


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {_WAIT_S:g} s")
        time.sleep(_POLL_S)
