"""What the API's role writes about payments beside the API moves nothing: its terms are signed."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.compatibility import OLDEST_HEAD_LIMITED
from cardledger.schema.ids import Id
from tests.api.support import AgentApi, Api, made, new_tenant, ok, redeem, refused
from tests.api.test_quotes import Payer, payer_of, set_rate
from tests.databases import as_platform

Json = dict[str, Any]

MINTED = 500_000_000


@pytest.fixture(scope="module")
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """A platform with USD and EUR, at 1.25 dollars for a euro without a spread."""
    with Api(root, new_tenant(api_config.database_url, currencies=("USD", "EUR"))) as client:
        set_rate(client, "USD", "EUR", 1.25)
        yield client


@pytest.fixture
def payer(own: Api) -> Payer:
    return payer_of(own)


@pytest.fixture
def intruder(own: Api, app_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A login with the role of the API, on the views of the platform."""
    with as_platform(app_database_url, own.tenant.platform_id) as login:
        yield login


def key_of(public: str) -> Id:
    return Id.parse(public.partition(":")[2])


def insert(login: psycopg.Connection[Any], table: str, row: Mapping[str, object]) -> None:
    values = ", ".join(["%s"] * len(row))
    login.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", [*row.values()])
    login.commit()


def now(login: psycopg.Connection[Any]) -> object:
    [(found,)] = login.execute("SELECT now()")
    return found


def quote_of(login: psycopg.Connection[Any], payer: Payer) -> Json:
    """Return the row of a quote at a rate of five million dollars for a cent."""
    at = now(login)
    [(later,)] = login.execute("SELECT now() + interval '1 hour'")
    return {
        "id": new_id(),
        "platform_id": payer.api.tenant.platform_id,
        "customer_id": key_of(payer.id),
        "status": "PENDING",
        "transaction_id": new_id(),
        "source_account_id": key_of(payer.usd),
        "destination_account_id": key_of(payer.eur),
        "sending_currency": "USD",
        "receiving_currency": "EUR",
        "locked_side": "SENDING",
        "sending_amount": 1,
        "receiving_amount": MINTED,
        "fee_amount": 0,
        "fee_fixed": 0,
        "fee_bps": 0,
        "rate_numerator": MINTED,
        "rate_denominator": 1,
        "created_at": at,
        "expires_at": later,
        "updated_at": at,
    }


def payment_of(login: psycopg.Connection[Any], payer: Payer, **columns: object) -> Json:
    """Return the row of a conversion at that rate, as one that awaits approval."""
    at = now(login)
    return {
        "id": new_id(),
        "platform_id": payer.api.tenant.platform_id,
        "customer_id": key_of(payer.id),
        "kind": "EXCHANGE",
        "source_account_id": key_of(payer.usd),
        "destination_account_id": key_of(payer.eur),
        "amount": 1,
        "currency": "USD",
        "received_amount": MINTED,
        "received_currency": "EUR",
        "rate_numerator": MINTED,
        "rate_denominator": 1,
        "locked_side": "SENDING",
        "status": "PENDING",
        "created_at": at,
        "updated_at": at,
    } | columns


def agent_of(own: Api, payer: Payer) -> tuple[str, AgentApi]:
    policy = {
        "permissions": ["CREATE_TRANSFERS", "CREATE_QUOTES", "EXECUTE_QUOTES"],
        "defaultExecutionMode": "APPROVAL_REQUIRED",
        "spendingLimits": {
            "currency": "USD",
            "perTransactionLimit": 100_000,
            "dailyLimit": 100_000,
        },
    }
    wish = {"name": "Buyer", "customerId": payer.id, "policy": policy}
    created = made(own.post("/agents", wish))
    token = ok(redeem(own.root, created["deviceCode"]["code"]))["accessToken"]
    return str(created["agent"]["id"]), AgentApi(own.root, str(token))


def balances(payer: Payer) -> tuple[int, int]:
    return payer.balance(payer.usd), payer.balance(payer.eur)


def assert_goes_on(payer: Payer) -> None:
    """Assert that the queue of the customer has not stopped."""
    usd, eur = balances(payer)
    quote = payer.quote(payer.eur, lockedCurrencyAmount=1_000)
    assert ok(payer.execute(quote))["status"] == "COMPLETED"
    assert balances(payer) == (usd - 1_000, eur + 800)


def test_a_quote_that_the_api_has_not_made_is_not_executed(
    payer: Payer, intruder: psycopg.Connection[Any]
) -> None:
    forged = quote_of(intruder, payer)
    insert(intruder, "quotes", forged)

    answer = payer.execute({"id": f"Quote:{forged['id']}"})

    refusal = refused(answer, 409, "CONFLICT")
    assert refusal["details"]["reason"] == "QUOTE_NOT_SIGNED"
    assert balances(payer) == (50_000, 0)
    assert_goes_on(payer)


def test_a_quote_with_the_mac_of_another_one_is_not_executed(
    payer: Payer, intruder: psycopg.Connection[Any]
) -> None:
    honest = key_of(payer.quote(payer.eur)["id"])
    [(mac,)] = intruder.execute("SELECT mac FROM quotes WHERE id = %s", [honest])
    forged = quote_of(intruder, payer) | {"mac": mac}
    insert(intruder, "quotes", forged)

    refused(payer.execute({"id": f"Quote:{forged['id']}"}), 409, "CONFLICT")

    assert balances(payer) == (50_000, 0)


def test_a_quote_of_the_previous_release_is_executed_until_its_end(
    payer: Payer, database_url: str
) -> None:
    early, late = payer.quote(payer.eur), payer.quote(payer.eur)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("UPDATE quotes SET mac = NULL")
        [(finished,)] = owner.execute("SELECT oldest_head FROM schema_compatibility")
        change = "UPDATE schema_compatibility SET oldest_head = %s"
        owner.execute(change, [OLDEST_HEAD_LIMITED])
        try:
            ok(payer.execute(early))
        finally:
            owner.execute(change, [finished])

    refused(payer.execute(late), 409, "CONFLICT")

    assert balances(payer) == (40_000, 8_000)


def test_an_action_that_the_api_has_not_drafted_fails_when_it_is_approved(
    own: Api, payer: Payer, intruder: psycopg.Connection[Any]
) -> None:
    agent, client = agent_of(own, payer)
    client.http.close()
    forged = payment_of(intruder, payer, agent_id=key_of(agent))
    insert(intruder, "transfers", forged)
    action = {name: forged[name] for name in ("id", "agent_id", "customer_id", "platform_id")} | {
        "type": "TRANSFER_OUT",
        "created_at": forged["created_at"],
    }
    insert(intruder, "agent_actions", action)

    after = ok(own.post(f"/transactions/Transaction:{forged['id']}/approve", None))

    assert (after["status"], after["failureReason"]) == ("FAILED", "INTERNAL_ERROR")
    assert balances(payer) == (50_000, 0)
    assert_goes_on(payer)


def test_an_action_whose_amount_was_changed_fails_when_it_is_approved(
    own: Api, payer: Payer, database_url: str
) -> None:
    _, client = agent_of(own, payer)
    body = {
        "source": {"sourceType": "ACCOUNT", "accountId": payer.usd},
        "destination": {"destinationType": "ACCOUNT", "accountId": payer.eur},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 10_000,
    }
    with client:
        quote = made(client.post("/agents/me/quotes", body))
        ok(client.http.post(f"/agents/me/quotes/{quote['id']}/execute"))
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "UPDATE transfers SET received_amount = %s, rate_numerator = %s WHERE id = %s",
            [MINTED, MINTED, key_of(quote["transactionId"])],
        )

    after = ok(own.post(f"/transactions/{quote['transactionId']}/approve", None))

    assert after["status"] == "FAILED"
    assert balances(payer) == (50_000, 0)


def test_a_payment_that_has_not_arrived_is_not_credited_when_it_is_approved(
    own: Api, payer: Payer, intruder: psycopg.Connection[Any]
) -> None:
    arrived = payment_of(
        intruder,
        payer,
        kind="RECEIVED",
        amount=MINTED,
        needs_approval=True,
        requested_at=now(intruder),
        destination_account_id=key_of(payer.usd),
        source_account_id=None,
        **dict.fromkeys(
            (
                "received_amount",
                "received_currency",
                "rate_numerator",
                "rate_denominator",
                "locked_side",
            )
        ),
    )
    insert(intruder, "transfers", arrived)

    answer = own.post(f"/transactions/Transaction:{arrived['id']}/approve", None)

    assert answer.status_code in {400, 404, 409}, answer.text
    assert balances(payer) == (50_000, 0)
    assert_goes_on(payer)
