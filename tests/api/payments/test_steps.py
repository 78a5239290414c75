"""Cancelling payments, and confirming their receipts."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from tests.api.payments.support import Payer, payer, settled
from tests.api.support import Api, at_once, new_tenant, ok, refused, webhooks


@pytest.fixture
def ada(api: Api) -> Payer:
    return payer(api)


def cancel(api: Api, transaction: dict[str, Any], **headers: str) -> Any:  # noqa: ANN401
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.http.post(f"/transactions/{transaction['id']}/cancel", headers=sent)


# --- cancel ------------------------------------------------------------------------------------


def test_a_pending_transfer_is_cancelled_and_refunded(
    ada: Payer, database_url: DatabaseUrl
) -> None:
    pending = ada.pays(ada.bank("005"))

    cancelled = ok(
        ada.api.post(f"/transactions/{pending['id']}/cancel", {"reason": "wrong amount"})
    )

    assert (cancelled["status"], cancelled["failureReason"]) == ("FAILED", "CANCELLED")
    assert cancelled["refund"]["reason"] == "USER_CANCELLATION"
    assert cancelled["refund"]["status"] == "COMPLETED"
    assert ada.balance() == 1_000
    sent = [kind for kind, _ in webhooks(database_url, pending["id"], 4)]
    assert sent[1:] == [
        "OUTGOING_PAYMENT.FAILED",
        "OUTGOING_PAYMENT.REFUND_PENDING",
        "OUTGOING_PAYMENT.REFUND_COMPLETED",
    ]
    refused(cancel(ada.api, pending), 409, "TRANSACTION_NOT_CANCELLABLE")


def test_a_pending_collection_is_cancelled(ada: Payer) -> None:
    pending = ada.collects(ada.bank("005"))

    cancelled = ok(cancel(ada.api, pending))

    assert (cancelled["status"], cancelled["failureReason"]) == ("FAILED", "CANCELLED")
    assert ada.balance() == 1_000


def test_a_cancellation_with_a_key_is_answered_again(ada: Payer) -> None:
    pending = ada.pays(ada.bank("005"))
    key = {"Idempotency_Key": str(uuid4())}

    first = ok(cancel(ada.api, pending, **key))
    again = ok(cancel(ada.api, pending, **key))

    assert first == again
    assert first["status"] == "FAILED"
    assert ada.balance() == 1_000


def test_of_cancellations_at_once_the_money_comes_back_once(ada: Payer) -> None:
    pending = ada.pays(ada.bank("005"))

    answers = at_once(8, lambda: cancel(ada.api, pending))

    assert {answer.status_code for answer in answers} <= {200, 409}
    assert 200 in {answer.status_code for answer in answers}
    assert ada.balance() == 1_000


def test_a_cancellation_and_the_failure_of_the_bank_refund_once(ada: Payer) -> None:
    pending = [ada.pays(bank_id, 100) for bank_id in [ada.bank("005")] * 5]

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda one: cancel(ada.api, one), pending))

    assert {answer.status_code for answer in answers} <= {200, 409}
    for transaction in pending:
        settled(ada.api, transaction, "FAILED")
    assert ada.balance() == 1_000


def test_a_completed_or_failed_transfer_cannot_be_cancelled(ada: Payer) -> None:
    done = ada.pays(ada.bank(), 1)
    failed = ada.pays(ada.bank("002"), 1)

    for transaction in (done, failed):
        refusal = refused(cancel(ada.api, transaction), 409, "TRANSACTION_NOT_CANCELLABLE")
        assert refusal["details"] == {"status": transaction["status"]}
    assert ada.balance() == 999


def test_transactions_of_other_types_cannot_be_cancelled(ada: Payer) -> None:
    [deposit] = ok(ada.api.get("/transactions", customerId=ada.customer_id))["data"]
    card = ada.api.active_card()
    purchase = ada.api.authorize(card["id"], 100)

    for transaction in (deposit, purchase):
        refusal = refused(cancel(ada.api, transaction), 400, "INVALID_INPUT")
        assert refusal["details"] == {"type": transaction["type"]}


def test_only_an_existing_transaction_of_the_platform_is_cancelled(
    ada: Payer, other_platform: Api
) -> None:
    pending = ada.pays(ada.bank("005"))

    refused(cancel(other_platform, pending), 404, "TRANSACTION_NOT_FOUND")
    for unknown in (f"Transaction:{uuid4()}", f"CardTransaction:{uuid4()}"):
        refused(cancel(ada.api, {"id": unknown}), 404, "TRANSACTION_NOT_FOUND")
    body = {"why": "wrong"}
    refused(ada.api.post(f"/transactions/{pending['id']}/cancel", body), 400, "INVALID_INPUT")


def test_steps_need_the_permission_to_transact(ada: Payer, api_config: ApiConfig) -> None:
    pending = ada.pays(ada.bank("005"))
    viewer = new_tenant(api_config.database_url, permissions=("VIEW", "MANAGE"), of=ada.api.tenant)

    with Api(ada.api.root, viewer) as weak:
        refused(cancel(weak, pending), 403, "FORBIDDEN")
        refused(weak.http.post(f"/transactions/{pending['id']}/confirm"), 403, "FORBIDDEN")


# --- confirm -----------------------------------------------------------------------------------


def test_a_receipt_is_confirmed_and_a_repetition_replaces_it(ada: Payer) -> None:
    paid = ada.pays(ada.bank(), 1)
    path = f"/transactions/{paid['id']}"

    first = ok(ada.api.http.post(path + "/confirm"))
    moment = "2026-05-01T10:00:00.000000Z"
    again = ok(ada.api.post(path + "/confirm", {"receiptDeliveryConfirmedAt": moment}))

    assert first["receiptDeliveryConfirmedAt"] > paid["createdAt"]
    assert again["receiptDeliveryConfirmedAt"] == moment
    assert ok(ada.api.get(path)) == again
    assert again == paid | {"receiptDeliveryConfirmedAt": moment}


def test_a_receipt_of_a_collection_is_confirmed(ada: Payer) -> None:
    arrived = settled(ada.api, ada.collects(ada.bank()), "COMPLETED")

    confirmed = ok(ada.api.http.post(f"/transactions/{arrived['id']}/confirm"))

    assert confirmed["receiptDeliveryConfirmedAt"]


def test_what_has_no_receipt_is_not_confirmed(ada: Payer, other_platform: Api) -> None:
    paid = ada.pays(ada.bank(), 1)
    deposits = ok(ada.api.get("/transactions", customerId=ada.customer_id, type="INCOMING"))
    purchase = ada.api.authorize(ada.api.active_card()["id"], 100)

    for transaction in (*deposits["data"], purchase):
        path = f"/transactions/{transaction['id']}/confirm"
        refusal = refused(ada.api.http.post(path), 400, "INVALID_INPUT")
        assert refusal["details"] == {"type": transaction["type"]}
    path = f"/transactions/{paid['id']}/confirm"
    refused(other_platform.http.post(path), 404, "TRANSACTION_NOT_FOUND")
    invalid = {"receiptDeliveryConfirmedAt": "yesterday"}
    refused(ada.api.post(path, invalid), 400, "INVALID_INPUT")
