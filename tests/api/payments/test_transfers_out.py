"""Transfers of platforms to external accounts: life, rails, refusals, and what they book."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.payments.support import OUT, Payer, bank, payer, settled
from tests.api.support import (
    Api,
    at_once,
    made,
    new_tenant,
    ok,
    refused,
    webhooks,
)

SENT = ["OUTGOING_PAYMENT.PENDING", "OUTGOING_PAYMENT.PROCESSING", "OUTGOING_PAYMENT.COMPLETED"]
FAILED = [
    "OUTGOING_PAYMENT.PENDING",
    "OUTGOING_PAYMENT.FAILED",
    "OUTGOING_PAYMENT.REFUND_PENDING",
    "OUTGOING_PAYMENT.REFUND_COMPLETED",
]


@pytest.fixture(scope="module")
def ada(api: Api) -> Payer:
    """A customer who pays nothing."""
    return payer(api)


# --- life --------------------------------------------------------------------------------------


def test_a_transfer_to_a_bank_debits_the_account_and_arrives(
    api: Api, database_url: DatabaseUrl
) -> None:
    ada = payer(api)
    bank_id = ada.bank()

    paid = ada.pays(bank_id, 400, remittanceInformation="Invoice 7", purposeOfPayment="EDUCATION")

    assert (paid["type"], paid["direction"], paid["status"]) == ("OUTGOING", "DEBIT", "COMPLETED")
    assert paid["source"] == {"sourceType": "ACCOUNT", "accountId": ada.account_id}
    assert paid["destination"] == {
        "destinationType": "ACCOUNT",
        "accountId": bank_id,
        "currency": "USD",
    }
    assert paid["sentAmount"]["amount"] == paid["receivedAmount"]["amount"] == 400
    assert paid["remittanceInformation"] == "Invoice 7"
    assert paid["purposeOfPayment"] == "EDUCATION"
    assert paid["customerId"] == ada.customer_id
    assert paid["settledAt"]
    assert "refund" not in paid
    assert ada.balance() == 600
    assert ok(api.get(f"/transactions/{paid['id']}")) == paid
    sent = webhooks(database_url, paid["id"], 3)
    assert [kind for kind, _ in sent] == SENT
    assert sent[-1][1] == paid


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("002", "INSUFFICIENT_FUNDS"), ("003", "ACCOUNT_INVALID"), ("004", "REJECTED_BY_BANK")],
)
def test_a_transfer_that_the_bank_refuses_is_refunded_at_once(
    api: Api, database_url: DatabaseUrl, ending: str, reason: str
) -> None:
    ada = payer(api)

    paid = ada.pays(ada.bank(ending))

    assert (paid["status"], paid["failureReason"]) == ("FAILED", reason)
    refund = paid["refund"]
    assert (refund["status"], refund["reason"]) == ("COMPLETED", "TRANSACTION_FAILED")
    assert refund["reference"]
    assert refund["initiatedAt"] <= refund["settledAt"]
    assert "settledAt" not in paid
    assert ada.balance() == 1_000
    assert [kind for kind, _ in webhooks(database_url, paid["id"], 4)] == FAILED


def test_a_slow_transfer_is_pending_then_fails(api: Api, database_url: DatabaseUrl) -> None:
    ada = payer(api)

    paid = ada.pays(ada.bank("005"))

    assert paid["status"] == "PENDING"
    assert ada.balance() == 600
    failed = settled(api, paid, "FAILED")
    assert failed["refund"]["status"] == "COMPLETED"
    assert ada.balance() == 1_000
    assert [kind for kind, _ in webhooks(database_url, paid["id"], 4)] == FAILED


def test_a_transfer_with_a_key_happens_once_however_often_it_is_sent(api: Api) -> None:
    ada = payer(api)
    body = ada.out(ada.bank(), 10)

    def send(_: int) -> dict[str, Any]:
        return made(api.http.post(OUT, json=body, headers={"Idempotency-Key": "rent-of-may"}))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(16)))

    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["status"] == "PENDING"
    settled(api, answers[0], "COMPLETED")
    assert ada.balance() == 990


def test_a_key_with_another_body_is_refused(api: Api) -> None:
    ada = payer(api)
    bank_id = ada.bank()
    key = {"Idempotency-Key": str(uuid4())}
    first = made(api.http.post(OUT, json=ada.out(bank_id, 10), headers=key))

    again = api.http.post(OUT, json=ada.out(bank_id, 11), headers=key)

    refused(again, 409, "CONFLICT")
    settled(api, first, "COMPLETED")
    assert ada.balance() == 990


def test_of_transfers_at_once_only_those_happen_that_the_balance_covers(api: Api) -> None:
    ada = payer(api, 1_000)
    body = ada.out(ada.bank(), 300)

    answers = at_once(8, lambda: api.post(OUT, body))

    paid = [answer.json() for answer in answers if answer.status_code == 201]
    late = [answer for answer in answers if answer.status_code != 201]
    completed = [transaction for transaction in paid if transaction["status"] == "COMPLETED"]
    failed = [transaction for transaction in paid if transaction["status"] == "FAILED"]
    assert len(completed) == 3
    assert {transaction["failureReason"] for transaction in failed} <= {"INSUFFICIENT_FUNDS"}
    assert not any("refund" in transaction for transaction in failed)
    for answer in late:
        refused(answer, 400, "INVALID_AMOUNT")
    assert ada.balance() == 100


# --- rails -------------------------------------------------------------------------------------


def test_the_fastest_rail_is_chosen_unless_one_is_named(api: Api) -> None:
    ada = payer(api)
    bank_id = ada.bank()

    chosen = ada.pays(bank_id, 1)
    named = ada.pays(bank_id, 1, destination={"accountId": bank_id, "paymentRail": "ACH"})

    assert (chosen["paymentRail"], chosen["railSelectionMode"]) == ("RTP", "AUTO")
    assert (named["paymentRail"], named["railSelectionMode"]) == ("ACH", "MANUAL")
    assert chosen["settlementTimelineSeconds"] == 60
    assert named["settlementTimelineSeconds"] == 172_800
    began, expected = (datetime.fromisoformat(named[name]) for name in (
        "createdAt", "expectedSettlementAt"))  # fmt: skip
    assert (expected - began).total_seconds() == 172_800


def test_a_rail_that_the_account_does_not_have_is_refused(ada: Payer) -> None:
    bank_id = ada.bank("111")
    body = ada.out(bank_id, destination={"accountId": bank_id, "paymentRail": "SEPA"})

    refusal = refused(ada.api.post(OUT, body), 400, "INVALID_INPUT")

    assert "ACH" in refusal["message"]
    assert refusal["details"]["errors"][0]["field"] == "destination.paymentRail"


def test_an_amount_above_the_limit_of_a_rail_is_refused_or_takes_another_rail(api: Api) -> None:
    rich = payer(api, 1_000_000_001)
    bank_id = rich.bank()
    too_much = rich.out(
        bank_id, 1_000_000_001, destination={"accountId": bank_id, "paymentRail": "RTP"}
    )

    refusal = refused(api.post(OUT, too_much), 400, "AMOUNT_OUT_OF_RANGE")
    wired = rich.pays(bank_id, 1_000_000_001)

    assert refusal["details"]["reason"] == "RAIL_LIMIT"
    assert wired["paymentRail"] == "WIRE"


def test_a_wallet_is_paid_without_a_rail(root: str, api_config: ApiConfig) -> None:
    with Api(root, new_tenant(api_config.database_url)) as api:
        ada = payer(api, 2_000_000, "USDC")
        wallet = bank(api, account_type="BASE_WALLET", customerId=ada.customer_id, currency="USDC")

        paid = ada.pays(wallet, 1_000_000)
        named = ada.out(wallet, 1, destination={"accountId": wallet, "paymentRail": "ACH"})
        refused(api.post(OUT, named), 400, "INVALID_INPUT")

    assert paid["status"] == "COMPLETED"
    assert "paymentRail" not in paid


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"amount": None}, 400, "INVALID_AMOUNT"),
        ({"amount": 0}, 400, "INVALID_AMOUNT"),
        ({"amount": -1}, 400, "INVALID_AMOUNT"),
        ({"amount": 2**63}, 400, "INVALID_AMOUNT"),
        ({"amount": "5"}, 400, "INVALID_INPUT"),
        ({"amount": 1.5}, 400, "INVALID_INPUT"),
        ({"amount": True}, 400, "INVALID_INPUT"),
        ({"source": {}}, 400, "INVALID_INPUT"),
        ({"source": {"accountId": f"InternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"source": {"accountId": f"Card:{uuid4()}"}}, 400, "INVALID_INPUT"),
        ({"destination": {"accountId": f"ExternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"destination": {"accountId": f"InternalAccount:{uuid4()}"}}, 404, "REFERENCE_NOT_FOUND"),
        ({"remittanceInformation": "x" * 81}, 400, "INVALID_INPUT"),
        ({"purposeOfPayment": "FUN"}, 400, "INVALID_INPUT"),
        ({"urgent": True}, 400, "INVALID_INPUT"),
    ],
)
def test_an_invalid_transfer_is_refused(
    ada: Payer, change: dict[str, Any], status: int, code: str
) -> None:
    body = ada.out(f"ExternalAccount:{uuid4()}") | change

    refused(ada.api.post(OUT, body), status, code)


@pytest.mark.parametrize("amount", [1_001, 2**63 - 1])
def test_an_amount_above_the_balance_is_refused_with_its_reason(ada: Payer, amount: int) -> None:
    bank_id = ada.bank(str(amount)[-3:])

    refusal = refused(ada.api.post(OUT, ada.out(bank_id, amount)), 400, "INVALID_AMOUNT")

    assert refusal["details"]["reason"] == "INSUFFICIENT_FUNDS"
    assert "10.00 USD" in refusal["message"]
    assert ok(ada.api.get("/transactions", customerId=ada.customer_id))["totalCount"] == 1


def test_an_external_account_is_no_source(ada: Payer) -> None:
    bank_id = ada.bank("222")
    body = ada.out(bank_id, source={"accountId": bank_id})

    refused(ada.api.post(OUT, body), 400, "INVALID_INPUT")


def test_an_account_in_another_currency_is_refused(ada: Payer) -> None:
    euros = ada.bank(account_type="EUR_ACCOUNT")

    refused(ada.api.post(OUT, ada.out(euros)), 400, "INVALID_CURRENCY")


def test_accounts_of_others_are_refused(ada: Payer, other_platform: Api) -> None:
    neighbour = payer(ada.api)
    foreign = payer(other_platform)

    refused(ada.api.post(OUT, ada.out(neighbour.bank())), 400, "INVALID_INPUT")
    refused(ada.api.post(OUT, ada.out(foreign.bank())), 404, "REFERENCE_NOT_FOUND")
    stolen = ada.out(ada.bank("333"), source={"accountId": foreign.account_id})
    refused(ada.api.post(OUT, stolen), 404, "REFERENCE_NOT_FOUND")
    assert foreign.balance() == 1_000


def test_a_deleted_external_account_is_not_found(ada: Payer) -> None:
    bank_id = ada.bank("444")
    assert ada.api.delete(f"/customers/external-accounts/{bank_id}").status_code == 204

    refused(ada.api.post(OUT, ada.out(bank_id)), 404, "REFERENCE_NOT_FOUND")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("PENDING", "EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED"),
        ("UNDER_REVIEW", "EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED"),
        ("INACTIVE", "INVALID_INPUT"),
    ],
)
def test_an_external_account_that_is_not_active_is_refused(
    ada: Payer, database_url: DatabaseUrl, status: str, code: str
) -> None:
    bank_id = ada.bank(f"{len(status):03}")
    execute(
        database_url,
        "UPDATE external_accounts SET status = %s WHERE id = %s",
        status,
        bank_id.partition(":")[2],
    )

    refusal = refused(ada.api.post(OUT, ada.out(bank_id)), 400, code)

    assert refusal["details"]["reason"] == "ACCOUNT_NOT_ACTIVE"


@pytest.mark.parametrize("status", ["FROZEN", "CLOSED", "PENDING", "FAILED"])
def test_an_internal_account_that_is_not_active_pays_nothing(
    api: Api, database_url: DatabaseUrl, status: str
) -> None:
    ada = payer(api)
    bank_id = ada.bank()
    execute(
        database_url,
        "UPDATE internal_accounts SET status = %s WHERE id = %s",
        status,
        ada.account_id.partition(":")[2],
    )

    refusal = refused(api.post(OUT, ada.out(bank_id)), 400, "INVALID_INPUT")

    assert refusal["details"]["reason"] == "ACCOUNT_NOT_ACTIVE"
    assert ada.balance() == 1_000


def test_a_customer_whose_identity_is_not_approved_pays_nothing_out(api: Api) -> None:
    unknown = payer(api, fullName="Ada 001")

    refusal = refused(api.post(OUT, unknown.out(unknown.bank())), 403, "USER_NOT_READY")

    assert "kycStatus" in refusal["message"]
    assert unknown.balance() == 1_000


def test_a_customer_who_has_to_authenticate_pays_trusted_accounts_only(api: Api) -> None:
    contact: dict[str, Any] = {
        "region": "DE",
        "email": "ada@example.com",
        "phoneNumber": "+4915112345678",
    }
    ada = payer(api, **contact)
    for channel in ("email", "phone"):
        path = f"/customers/{ada.customer_id}/verify-{channel}"
        assert api.post(path, None).status_code == 204
        ok(api.post(path + "/confirm", {"code": "123456"}))
    bank_id, bob = ada.bank(), payer(api)

    refused(api.post(OUT, ada.out(bank_id)), 409, "SCA_SESSION_REQUIRED")
    refused(api.post(OUT, ada.out(bob.account_id)), 409, "SCA_SESSION_REQUIRED")
    assert ada.balance() == 1_000
    trusting = f"/customers/external-accounts/{bank_id}/trust"
    ok(api.post(trusting, None))
    ok(api.post(trusting + "/confirm", {"code": "123456"}))

    assert ada.pays(bank_id)["status"] == "COMPLETED"


def test_a_transfer_needs_the_permission_to_transact(ada: Payer, api_config: ApiConfig) -> None:
    viewer = new_tenant(api_config.database_url, permissions=("VIEW", "MANAGE"), of=ada.api.tenant)
    body = ada.out(ada.bank("555"))

    with Api(ada.api.root, viewer) as weak:
        refused(weak.post(OUT, body), 403, "FORBIDDEN")

    assert ada.balance() == 1_000


# --- emptied, then deleted ---------------------------------------------------------------------


def test_a_customer_is_emptied_then_deleted(api: Api, database_url: DatabaseUrl) -> None:
    ada = payer(api)
    refusal = refused(api.delete(f"/customers/{ada.customer_id}"), 409, "CONFLICT")
    ada.pays(ada.bank(), 1_000)

    gone = ok(api.delete(f"/customers/{ada.customer_id}"))

    assert refusal["details"] == {"reason": "OPEN_BALANCE"}
    assert "POST /transfer-out" in refusal["message"]
    assert gone["isDeleted"] is True
    account = ok(api.get(f"/internal-accounts/{ada.account_id}"))
    assert account["status"] == "CLOSED"
    sent = webhooks(database_url, ada.account_id, 3)
    assert sent[-1] == ("INTERNAL_ACCOUNT.STATUS_UPDATED", account)


def test_a_customer_with_a_payment_under_way_is_not_deleted(api: Api) -> None:
    ada = payer(api)
    paid = ada.pays(ada.bank("005"), 1_000)

    refusal = refused(api.delete(f"/customers/{ada.customer_id}"), 409, "CONFLICT")

    assert refusal["details"] == {"reason": "OPEN_PAYMENTS"}
    assert paid["id"] in refusal["message"]
    settled(api, paid, "FAILED")
    assert ada.balance() == 1_000


def execute(url: str, statement: str, *values: object) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement, values)
