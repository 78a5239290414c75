"""The whole circle of money on the real system: in, spent, paid out, returned, emptied, deleted."""

import asyncio
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments import requests
from cardledger.ledger.payments.messages import RailOutcome
from cardledger.ledger.queries import transactions
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.ids import Id
from tests.external_accounts import body as external_account
from tests.external_accounts import info
from tests.system import support
from tests.waiting import eventually

pytestmark = pytest.mark.slow


class Circle:
    """A customer on a system that runs, and what the test does for it."""

    def __init__(self, api: httpx2.Client) -> None:
        self.api = api
        made = support.cardholder(api, funds=10_000)
        self.customer, self.account, self.card = made["customer"], made["account"], made["card"]

    def post(self, path: str, body: object = None) -> dict[str, Any]:
        answered = self.api.post(path, json=body)
        assert answered.is_success, answered.text
        content: dict[str, Any] = answered.json()
        return content

    def get(self, path: str, **query: str) -> dict[str, Any]:
        answered = self.api.get(path, params=query)
        assert answered.is_success, answered.text
        content: dict[str, Any] = answered.json()
        return content

    def balance(self) -> int:
        return int(self.get(f"/internal-accounts/{self.account}")["balance"]["amount"])

    def bank(self) -> str:
        details = info("USD_ACCOUNT", accountNumber=f"{secrets.randbelow(10**9)}890")
        wanted = external_account("USD_ACCOUNT", accountInfo=details, customerId=self.customer)
        return str(self.post("/customers/external-accounts", wanted)["id"])

    def pays(self, bank: str, amount: int) -> dict[str, Any]:
        wanted = {
            "source": {"accountId": self.account},
            "destination": {"accountId": bank},
            "amount": amount,
        }
        return self.post("/transfer-out", wanted)

    def becomes(self, transaction: dict[str, Any], status: str) -> dict[str, Any]:
        path = f"/transactions/{transaction['id']}"
        eventually(lambda: self.get(path)["status"] == status)
        return self.get(path)


def returns(url: str, secret_key: str, transaction: dict[str, Any]) -> None:
    """Let the bank send the payment back, as its rail tells the ledger."""
    key = Id.parse(transaction["id"].partition(":")[2])

    async def tell() -> None:
        engine = async_engine(url)
        async with engine.begin() as connection:
            [(platform_id,)] = (await connection.exec_driver_sql("SELECT id FROM platforms")).all()
            payment = await transactions.transfer(
                connection, platform_id=platform_id, transfer_id=key
            )
            assert payment is not None
            await requests.answer(
                connection,
                payment,
                outcome=RailOutcome.RETURNED,
                reason=FailureReason.PAYOUT_RETURNED,
                inbox_key=InboxKey(secret_key),
                at=datetime.now(UTC),
            )
        await engine.dispose()

    asyncio.run(tell())


def trial_balances(url: str) -> dict[str, int]:
    """Return debits less credits of all accounts, by currency."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT currency, sum(net)::bigint FROM finance.trial_balance('9999-12-31', now())"
            " GROUP BY currency"
        ).fetchall()
    return dict(rows)


def test_the_circle_of_money_closes(postgres_url: DatabaseUrl, tmp_path: Path) -> None:
    secret_key = secrets.token_urlsafe(48)
    with support.own_database(postgres_url) as url:
        env = support.environment(DATABASE_URL=url, CARDLEDGER_SECRET_KEY=secret_key)
        with support.up(tmp_path, env) as up, up.api() as api:
            circle = Circle(api)  # 100.00 USD.
            bought = support.authorize(api, circle.card, 1_250)
            support.clear(api, circle.card, bought["id"], 1_500)  # With the tip.
            assert circle.balance() == 8_500

            bank = circle.bank()
            paid = circle.pays(bank, 5_000)
            assert paid["status"] == "COMPLETED"
            assert circle.balance() == 3_500
            refusal = api.delete(f"/customers/{circle.customer}")
            assert refusal.status_code == 409

            returns(url, secret_key, paid)
            returned = circle.becomes(paid, "FAILED")
            assert returned["failureReason"] == "PAYOUT_RETURNED"
            eventually(lambda: circle.balance() == 8_500)

            assert circle.pays(bank, 8_500)["status"] == "COMPLETED"
            assert api.patch(f"/cards/{circle.card}", json={"state": "CLOSED"}).is_success
            deleted = api.delete(f"/customers/{circle.customer}")
            assert deleted.status_code == 200, deleted.text
            assert deleted.json()["isDeleted"] is True

            proof = support.run("verify", "--json", env=env)
            assert proof.returncode == 0, proof.stdout + proof.stderr
            balances = trial_balances(url)

    assert balances["USD"] == 0
    assert set(balances.values()) == {0}
