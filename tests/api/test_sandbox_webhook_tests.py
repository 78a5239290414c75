"""A test of the sandbox, repeated with its `Idempotency-Key`."""

from uuid import uuid4

import httpx2

from cardledger.api.app import ApiConfig
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, closed_port, new_tenant, ok, refused
from tests.receiver import Receiver
from tests.waiting import eventually


def test_a_test_without_a_response_is_sent_again_with_its_key(
    root: str, api_config: ApiConfig
) -> None:
    headers = {"Idempotency-Key": str(uuid4())}
    with Api(root, new_tenant(api_config.database_url)) as own, Receiver() as receiver:
        receiver.reply_always(Reply())
        ok(own.patch("/config", {"webhookEndpoint": f"http://127.0.0.1:{closed_port()}/"}))

        def test() -> httpx2.Response:
            return own.http.post("/sandbox/webhooks/test", headers=headers)

        def sent() -> int:
            return len(ok(own.get("/webhooks/deliveries", type="TEST"))["data"])

        eventually(sent)  # The one of the new endpoint.
        before = sent()
        refused(test(), 400, "WEBHOOK_DELIVERY_ERROR")
        assert sent() == before + 1, "no request repeats itself"
        refused(test(), 400, "WEBHOOK_DELIVERY_ERROR")
        ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
        first, again = test(), test()

    assert ok(first)["response_status"] == 200
    assert ok(again) == ok(first), "a success is kept"
    assert again.headers["Idempotent-Replayed"] == "true"
