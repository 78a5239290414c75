"""Endpoints, deliveries, replay and tests of webhooks, with a real receiver and a real worker."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from standardwebhooks import Webhook

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import signatures
from cardledger.ledger.webhooks.endpoints import ENDPOINT_LIMIT
from cardledger.ledger.webhooks.signatures import SignatureError
from cardledger.ledger.webhooks.signing_keys import KEPT, PUBLISHED_LIMIT, ROWS_LIMIT
from cardledger.webhooks.receiver import Reply
from tests.api.support import (
    Api,
    at_once,
    check_cap,
    closed_port,
    made,
    new_tenant,
    ok,
    refused,
    server,
)
from tests.receiver import Receiver
from tests.waiting import eventually

PATH = "/webhooks/endpoints"


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything; tests of signatures check them."""
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


def endpoint(api: Api, url: str, **fields: object) -> dict[str, Any]:
    return made(api.post(PATH, {"url": url, **fields}))


def arrived(receiver: Receiver, kind: str, count: int = 1) -> list[dict[str, Any]]:
    arrivals = receiver.wait_for(lambda all_: sum(a.type == kind for a in all_) >= count)
    return [one.content for one in arrivals if one.type == kind]


def deliveries(api: Api, **query: object) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ok(api.get("/webhooks/deliveries", **query))["data"]
    return listed


def ended(api: Api, count: int, **query: object) -> list[dict[str, Any]]:
    """Return the deliveries when there are `count` and none waits."""

    def look() -> list[dict[str, Any]] | None:
        found = deliveries(api, **query)
        done = len(found) >= count and all(one["state"] != "PENDING" for one in found)
        return found if done else None

    return eventually(look)


# --- endpoints ---------------------------------------------------------------------------------


def test_an_endpoint_shows_its_secret_once_and_is_sent_a_test_that_it_proves(
    own: Api, receiver: Receiver
) -> None:
    answer = own.post(PATH, {"url": receiver.url, "description": "books", "mode": "FIFO"})
    created = made(answer)

    shown = ok(own.get(f"{PATH}/{created['id']}"))
    arrived(receiver, "TEST")

    assert answer.headers["cache-control"] == "no-store"
    assert created["id"].startswith("WebhookEndpoint:")
    assert created["secret"].startswith("whsec_")
    assert shown == {name: value for name, value in created.items() if name != "secret"}
    assert (shown["mode"], shown["state"], shown["isDefault"]) == ("FIFO", "ENABLED", False)
    assert (shown["eventTypes"], shown["description"]) == ([], "books")
    [test] = receiver.received
    assert Webhook(created["secret"]).verify(test.body, test.headers) == test.content
    assert test.content["data"] == {}


def test_a_secret_is_kept_nowhere_in_clear(own: Api, receiver: Receiver, database_url: str) -> None:
    secret = endpoint(own, receiver.url)["secret"]

    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT t::text, t.* FROM webhook_endpoints t").fetchall()
    assert secret not in str(rows)
    assert secret.encode().hex() not in str(rows)


def test_the_endpoint_of_the_settings_is_the_default_one(own: Api, receiver: Receiver) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    arrived(receiver, "TEST")
    [default] = ok(own.get(PATH))["data"]
    assert (default["isDefault"], default["url"]) == (True, receiver.url)

    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    other = receiver.url + "?2"
    ok(own.patch(f"{PATH}/{default['id']}", {"url": other}))
    arrived(receiver, "TEST", 2)

    assert ok(own.get("/config"))["webhookEndpoint"] == other
    assert len(receiver.received) == 2, "the same URL again is no change"
    ok(own.patch("/config", {"webhookEndpoint": None}))
    assert ok(own.get(PATH))["data"] == []
    refused(own.get(f"{PATH}/{default['id']}"), 404, "REFERENCE_NOT_FOUND")
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    assert [one["id"] for one in ok(own.get(PATH))["data"]] == [default["id"]]
    ok(own.patch(f"{PATH}/{default['id']}", {"state": "DISABLED"}))
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    assert ok(own.get(f"{PATH}/{default['id']}"))["state"] == "ENABLED"


def test_endpoints_are_changed_listed_and_deleted(own: Api, receiver: Receiver) -> None:
    first, second = (endpoint(own, f"{receiver.url}?{n}", description="x") for n in (1, 2))

    changed = ok(
        own.patch(
            f"{PATH}/{first['id']}",
            {"description": None, "eventTypes": ["CARD.*"], "state": "DISABLED"},
        )
    )
    page = ok(own.get(PATH, limit=1))
    deleted = own.delete(f"{PATH}/{second['id']}")

    assert "description" not in changed
    assert (changed["state"], changed["disabledReason"]) == ("DISABLED", "PLATFORM")
    assert changed["eventTypes"] == ["CARD.*"]
    assert [one["id"] for one in page["data"]] == [first["id"]]
    assert (page["hasMore"], page["totalCount"]) == (True, 2)
    assert (deleted.status_code, deleted.content) == (204, b"")
    refused(own.delete(f"{PATH}/{second['id']}"), 404, "REFERENCE_NOT_FOUND")
    enabled = ok(own.patch(f"{PATH}/{first['id']}", {"state": "ENABLED"}))
    assert "disabledReason" not in enabled


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "http://example.com/"},
        {"url": "https://example.com/", "mode": "SOMETIMES"},
        {"url": "https://example.com/", "eventTypes": ["CARD"]},
        {"url": "https://example.com/", "eventTypes": ["CARD.EATEN"]},
        {"url": "https://example.com/", "eventTypes": ["*"]},
        {"url": "https://example.com/", "eventTypes": ["CARD.*", "CARD.*"]},
        {"url": "https://example.com/", "eventTypes": "CARD.*"},
        {"url": "https://example.com/", "eventTypes": None},
        {"url": "https://example.com/", "secret": "whsec_mine"},
        {"url": "https://example.com/\r\nx: y"},
    ],
)
def test_an_invalid_endpoint_is_refused(api: Api, body: dict[str, Any]) -> None:
    refused(api.post(PATH, body), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "body",
    [{}, {"url": None}, {"mode": "FIFO"}, {"state": None}, {"eventTypes": None}, {"url": "x"}],
)
def test_an_invalid_change_of_an_endpoint_is_refused(own: Api, body: dict[str, Any]) -> None:
    key = endpoint(own, "https://127.0.0.1:1/", state="DISABLED")["id"]

    refused(own.patch(f"{PATH}/{key}", body), 400, "INVALID_INPUT")


def test_outside_the_sandbox_an_endpoint_needs_tls(api_config: ApiConfig) -> None:
    config = ApiConfig(**{**vars_of(api_config), "sandbox": False})
    with (
        server(config) as root,
        Api(root, new_tenant(api_config.database_url)) as production,
    ):
        body = refused(production.post(PATH, {"url": "http://127.0.0.1/"}), 400, "INVALID_INPUT")
        # Not with `production`, which holds answers against the document of a sandbox.
        who = (production.tenant.client_id, production.tenant.client_secret)
        missing = httpx2.post(f"{root}{BASE_PATH}/sandbox/webhooks/test", auth=who)

    assert body["details"]["errors"][0]["field"] == "url"
    assert missing.status_code == 404


def vars_of(config: ApiConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ApiConfig.__dataclass_fields__}


def test_a_platform_gets_exactly_as_many_endpoints_as_it_may_have(
    own: Api, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode,"
            " state, disabled_reason, created_at, updated_at)"
            " SELECT gen_random_uuid(), %s, false, 'https://127.0.0.1:1/', '{}', 'FIFO',"
            " 'DISABLED', 'PLATFORM', now(), now() FROM generate_series(1, %s)",
            [own.tenant.platform_id, ENDPOINT_LIMIT - 5],
        )
    ok(own.patch("/config", {"webhookEndpoint": "https://127.0.0.1:1/"}))  # Does not count.

    wish = {"url": "https://127.0.0.1:1/", "state": "DISABLED"}
    answers = at_once(20, lambda: own.post(PATH, wish))

    check_cap(answers, made=5, limit=ENDPOINT_LIMIT)


# --- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_default", [True, False])
def test_after_a_rotation_both_secrets_prove_a_webhook(
    own: Api,
    receiver: Receiver,
    *,
    is_default: bool,
) -> None:
    if is_default:
        ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
        [default] = ok(own.get(PATH))["data"]
        key, former = default["id"], None
    else:
        created = endpoint(own, receiver.url)
        key, former = created["id"], created["secret"]
    arrived(receiver, "TEST")

    rotated = ok(own.post(f"{PATH}/{key}/rotate-secret", {}))
    ok(own.post("/webhooks/test", {"endpointId": key}))

    until = datetime.fromisoformat(rotated["formerSecretUntil"]) - datetime.now(UTC)
    assert timedelta(hours=23, minutes=59) < until <= timedelta(hours=24)
    last = receiver.received[-1]
    for secret in filter(None, (rotated["secret"], former)):
        assert Webhook(secret).verify(last.body, last.headers)
    assert len(last.headers["webhook-signature"].split()) == 2
    assert "secret" not in ok(own.get(f"{PATH}/{key}"))


def test_a_rotation_whose_response_was_lost_is_repeated_without_losing_the_secret_in_use(
    own: Api, receiver: Receiver
) -> None:
    created = endpoint(own, receiver.url)
    ok(own.post(f"{PATH}/{created['id']}/rotate-secret", {}))
    rotated = ok(own.post(f"{PATH}/{created['id']}/rotate-secret", {}))

    ok(own.post("/webhooks/test", {"endpointId": created["id"]}))

    last = receiver.received[-1]
    for secret in (rotated["secret"], created["secret"]):
        assert Webhook(secret).verify(last.body, last.headers)


def test_anybody_may_read_the_public_keys_and_both_while_one_takes_over(own: Api) -> None:
    config = ok(own.get("/config"))
    path = own.root + f"/.well-known/cardledger/webhook-keys/{config['id']}"

    before = ok(own.http.get(path, auth=None))
    rotated = ok(own.post("/webhooks/signing-keys/rotate", {}))
    answer = own.http.get(path, auth=None)

    assert [one["status"] for one in before["data"]] == ["CURRENT"]
    assert before["data"][0]["publicKey"] == config["webhookPublicKey"]
    assert [one["status"] for one in rotated["data"]] == ["CURRENT", "NEXT"]
    assert ok(answer) == rotated == ok(own.get("/webhooks/signing-keys"))
    assert "max-age" in answer.headers["cache-control"]
    assert ok(own.get("/config"))["webhookPublicKey"] == config["webhookPublicKey"]
    unknown = own.root + f"/.well-known/cardledger/webhook-keys/PlatformConfig:{uuid4()}"
    refused(own.http.get(unknown, auth=None), 404, "REFERENCE_NOT_FOUND")


def test_a_key_that_others_know_is_replaced_within_seconds(own: Api, receiver: Receiver) -> None:
    key = endpoint(own, receiver.url)["id"]

    [new] = ok(own.post("/webhooks/signing-keys/rotate", {"overlapHours": 0}))["data"]

    public_key = signatures.load_public_key(new["publicKey"])

    def signs() -> bool:
        ok(own.post("/webhooks/test", {"endpointId": key}))
        last = receiver.received[-1]
        with suppress(SignatureError):
            signatures.verify_grid(last.body, last.headers["x-grid-signature"], public_key)
            return True
        return False

    eventually(signs)  # The sender keeps keys for five seconds.
    assert ok(own.get("/config"))["webhookPublicKey"] == new["publicKey"]
    refused(own.post("/webhooks/signing-keys/rotate", {"overlapHours": 169}), 400, "INVALID_INPUT")


def test_a_platform_gets_exactly_as_many_signing_keys_as_may_be_published(own: Api) -> None:
    path = "/webhooks/signing-keys/rotate"

    answers = at_once(20, lambda: own.post(path, {"overlapHours": 168}))

    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [409] * 11
    for answer in answers:
        if answer.status_code == 409:
            assert refused(answer, 409, "CONFLICT")["details"] == {"limit": PUBLISHED_LIMIT}
    published = ok(own.get("/webhooks/signing-keys"))["data"]
    assert len(published) == PUBLISHED_LIMIT
    [before, *_] = published
    replaced = ok(own.post(path, {"overlapHours": 0}))["data"]  # It takes the place of another.
    assert [key["publicKey"] for key in replaced[1:]] == [key["publicKey"] for key in published[1:]]
    assert replaced[0]["publicKey"] != before["publicKey"]
    refused(own.post(path, {"overlapHours": 1}), 409, "CONFLICT")


def add_keys(api: Api, database_url: str, count: int, *, first: timedelta, kept: timedelta) -> None:
    """Insert `count` signing keys, a second apart, the first of which signs `first` from now on.

    Each leaves the one before it published until `kept` from now.
    """
    with psycopg.connect(database_url) as connection:
        connection.cursor().executemany(
            "INSERT INTO webhook_signing_keys (id, platform_id, private_key, public_key,"
            " signs_from, former_until, created_at)"
            " VALUES (gen_random_uuid(), %s, '', %s, now() + %s, now() + %s, now())",
            [
                [api.tenant.platform_id, f"key {n}", first + timedelta(seconds=n), kept]
                for n in range(count)
            ],
        )


@pytest.mark.parametrize("count", [PUBLISHED_LIMIT + 2, ROWS_LIMIT + 20])
def test_a_key_is_replaced_and_published_however_many_there_are_from_before_there_was_a_limit(
    own: Api, receiver: Receiver, database_url: str, count: int
) -> None:
    day = timedelta(days=1)
    add_keys(own, database_url, count, first=-timedelta(seconds=count), kept=day)

    published = ok(own.post("/webhooks/signing-keys/rotate", {"overlapHours": 0}))["data"]

    assert published == ok(own.get("/webhooks/signing-keys"))["data"]
    assert [one["status"] for one in published].count("CURRENT") == 1
    assert published[0]["publicKey"] == ok(own.get("/config"))["webhookPublicKey"]
    public_key = signatures.load_public_key(published[0]["publicKey"])
    endpoint(own, receiver.url)
    signed = receiver.wait_for(bool)[0]
    signatures.verify_grid(signed.body, signed.headers["x-grid-signature"], public_key)
    refused(own.post("/webhooks/signing-keys/rotate", {"overlapHours": 1}), 409, "CONFLICT")


def test_the_key_that_signs_is_published_however_many_sign_later(
    own: Api, database_url: str
) -> None:
    hour = timedelta(hours=1)
    add_keys(own, database_url, ROWS_LIMIT + 20, first=hour, kept=3 * hour)

    current, *following = ok(own.get("/webhooks/signing-keys"))["data"]

    assert current["status"] == "CURRENT"
    assert current["publicKey"] == ok(own.get("/config"))["webhookPublicKey"]
    assert [one["publicKey"] for one in following[:2]] == ["key 0", "key 1"]
    assert {one["status"] for one in following} == {"NEXT"}


def test_keys_that_ended_long_ago_do_not_hinder_a_replacement(own: Api, database_url: str) -> None:
    ago = -2 * KEPT
    add_keys(own, database_url, ROWS_LIMIT, first=ago, kept=ago)

    [current] = ok(own.post("/webhooks/signing-keys/rotate", {"overlapHours": 0}))["data"]

    assert current["status"] == "CURRENT"


def test_keys_that_are_replaced_at_once_are_bounded_too(own: Api, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO webhook_signing_keys (id, platform_id, private_key, public_key,"
            " signs_from, former_until, created_at) SELECT gen_random_uuid(), %s, '', 'x',"
            " at, at, at FROM generate_series(1, %s) n, LATERAL (SELECT now() - n * interval '1s')"
            " AS t (at)",
            [own.tenant.platform_id, ROWS_LIMIT - 2],
        )

    answers = at_once(4, lambda: own.post("/webhooks/signing-keys/rotate", {"overlapHours": 0}))

    assert sorted(answer.status_code for answer in answers) == [200, 200, 409, 409]
    refusal = max(answers, key=lambda answer: answer.status_code)
    assert refused(refusal, 409, "CONFLICT")["details"] == {"limit": ROWS_LIMIT}


# --- deliveries --------------------------------------------------------------------------------


def test_deliveries_are_listed_by_what_they_are(own: Api, receiver: Receiver) -> None:
    key = endpoint(own, receiver.url)["id"]
    card = own.active_card()
    purchase = own.authorize(card["id"], 1250)
    own.clear(card["id"], purchase["id"], 1500)
    [settled] = ended(own, 1, type="CARD_TRANSACTION.SETTLED")

    mine = ended(own, 2, cardTransactionId=purchase["id"])

    assert [one["type"].partition(".")[2] for one in mine] == ["SETTLED", "AUTHORIZED"]
    assert mine[0]["sequence"] > mine[1]["sequence"]
    assert settled["subjectId"] == purchase["id"]
    assert settled["endpointId"] == key
    assert (settled["state"], settled["attempts"], settled["lastStatus"]) == ("DELIVERED", 1, 200)
    assert deliveries(own, subjectId=card["id"])
    assert all(one["subjectId"] == card["id"] for one in deliveries(own, subjectId=card["id"]))
    assert deliveries(own, state="FAILED") == []
    assert deliveries(own, endpointId=f"WebhookEndpoint:{new_id()}") == []
    assert len(deliveries(own, endpointId=key)) == len(deliveries(own))
    assert deliveries(own, since=settled["createdAt"])
    assert deliveries(own, until="2020-01-01T00:00:00Z") == []
    page = ok(own.get("/webhooks/deliveries", limit=1))
    assert (
        page["data"][0]["id"]
        != ok(own.get("/webhooks/deliveries", limit=1, cursor=page["nextCursor"]))["data"][0]["id"]
    )


@pytest.mark.parametrize(
    "query", [{"state": "LOST"}, {"subjectId": "1"}, {"since": "now"}, {"limit": "0"}, {"x": "1"}]
)
def test_invalid_filters_of_deliveries_are_refused(api: Api, query: dict[str, str]) -> None:
    refused(api.get("/webhooks/deliveries", **query), 400, "INVALID_INPUT")


def test_a_delivery_shows_its_payload_and_every_attempt(own: Api, receiver: Receiver) -> None:
    receiver.reply(Reply(status=500, body=b"not today"))
    endpoint(own, receiver.url, eventTypes=["CARD.*"])
    own.active_card(balance=0)
    [shown] = ended(own, 1, type="CARD.STATE_CHANGE")

    found = ok(own.get(f"/webhooks/deliveries/{shown['id']}"))

    assert found["payload"]["id"] == found["webhookId"]
    assert found["payload"]["type"] == "CARD.STATE_CHANGE"
    assert [one["number"] for one in found["attemptList"]] == list(range(1, found["attempts"] + 1))
    assert found["attemptList"][-1]["status"] == 200
    assert found["attemptList"][-1]["durationMs"] >= 0


def failed(api: Api, receiver: Receiver) -> dict[str, Any]:
    """Return a delivery that was given up, by the one way that takes no ten attempts."""
    key = endpoint(api, receiver.url, eventTypes=["CARD.*"])["id"]
    arrived(receiver, "TEST")
    receiver.reply_always(Reply(status=410))
    api.active_card(balance=0)
    eventually(lambda: ok(api.get(f"{PATH}/{key}")).get("disabledReason") == "GONE")
    [one] = eventually(lambda: deliveries(api, type="CARD.STATE_CHANGE", state="FAILED"))
    receiver.reply_always(Reply())
    ok(api.patch(f"{PATH}/{key}", {"state": "ENABLED"}))
    return one


def test_a_delivery_is_sent_again_with_its_id(own: Api, receiver: Receiver) -> None:
    one = failed(own, receiver)

    again = ok(own.post(f"/webhooks/deliveries/{one['id']}/retry", {}))
    eventually(lambda: deliveries(own, type="CARD.STATE_CHANGE", state="DELIVERED"))
    ok(own.post(f"/webhooks/deliveries/{one['id']}/retry", {}))

    assert (again["id"], again["state"]) == (one["id"], "PENDING")
    messages = [one_["id"] for one_ in arrived(receiver, "CARD.STATE_CHANGE", 3)]
    assert messages == [one["webhookId"]] * 3
    shown = ok(own.get(f"/webhooks/deliveries/{one['id']}"))
    assert len(shown["attemptList"]) >= 2


def test_what_failed_since_is_sent_again(own: Api, receiver: Receiver) -> None:
    one = failed(own, receiver)
    since = one["createdAt"]

    nothing = ok(own.post("/webhooks/replay", {"since": "2999-01-01T00:00:00Z"}))
    replayed = ok(own.post("/webhooks/replay", {"since": since}))
    eventually(lambda: deliveries(own, type="CARD.STATE_CHANGE", state="DELIVERED"))
    again = ok(own.post("/webhooks/replay", {"since": since}))
    everything = ok(own.post("/webhooks/replay", {"since": since, "onlyFailed": False}))

    assert nothing == {"count": 0, "hasMore": False}
    assert replayed == {"count": 1, "hasMore": False}
    assert again["count"] == 0
    assert everything["count"] == 1
    arrived(receiver, "CARD.STATE_CHANGE", 3)


def test_a_webhook_without_an_endpoint_is_replayed_to_a_later_one(
    own: Api, receiver: Receiver
) -> None:
    began = datetime.now(UTC).isoformat()
    own.active_card(balance=0)
    [kept] = eventually(lambda: deliveries(own, type="CARD.STATE_CHANGE"))
    assert (kept["state"], "endpointId" in kept) == ("NO_ENDPOINT", False)
    refused(own.post(f"/webhooks/deliveries/{kept['id']}/retry", {}), 409, "CONFLICT")

    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    replayed = ok(own.post("/webhooks/replay", {"since": began}))

    assert replayed["count"] == 2, "what there is to tell of a customer, and of its card"
    [messages] = arrived(receiver, "CARD.STATE_CHANGE")
    assert messages["id"] == kept["webhookId"]


def test_what_waits_for_a_deleted_endpoint_is_kept_and_not_sent(own: Api) -> None:
    key = endpoint(own, f"http://127.0.0.1:{closed_port()}/")["id"]
    card = own.active_card(balance=0)
    eventually(lambda: deliveries(own, subjectId=card["id"]))

    own.delete(f"{PATH}/{key}")

    [kept] = ended(own, 1, subjectId=card["id"])
    assert kept["state"] in {"NO_ENDPOINT", "FAILED"}
    assert "nextAttemptAt" not in kept


def test_what_an_endpoint_missed_while_it_was_disabled_is_sent_on_request(
    own: Api, receiver: Receiver
) -> None:
    key, other = (endpoint(own, receiver.url, eventTypes=["CARD.*"])["id"] for _ in range(2))
    arrived(receiver, "TEST", 2)
    for disabled in (key, other):
        ok(own.patch(f"{PATH}/{disabled}", {"state": "DISABLED"}))
    own.active_card(balance=0)
    [kept] = eventually(lambda: deliveries(own, type="CARD.STATE_CHANGE"))
    ok(own.patch(f"{PATH}/{key}", {"state": "ENABLED"}))
    replay = {"since": kept["createdAt"], "endpointId": key}

    replayed = ok(own.post("/webhooks/replay", replay))
    again = ok(own.post("/webhooks/replay", replay))

    assert (kept["state"], "endpointId" in kept) == ("NO_ENDPOINT", False)
    assert (replayed["count"], again["count"]) == (1, 0)
    [sent] = arrived(receiver, "CARD.STATE_CHANGE")
    assert sent["id"] == kept["webhookId"]
    [done] = ended(own, 1, endpointId=key, type="CARD.STATE_CHANGE")
    assert (done["state"], done["createdAt"]) == ("DELIVERED", kept["createdAt"])
    assert deliveries(own, endpointId=other, type="CARD.STATE_CHANGE") == []


def test_a_missed_webhook_is_not_retried_but_replayed(own: Api, receiver: Receiver) -> None:
    """A retry gave it to the default endpoint and took it away from those that had missed it."""
    key = endpoint(own, receiver.url, eventTypes=["CARD.*"])["id"]
    ok(own.patch(f"{PATH}/{key}", {"state": "DISABLED"}))
    own.active_card(balance=0)
    [kept] = eventually(lambda: deliveries(own, type="CARD.STATE_CHANGE"))
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))

    refused(own.post(f"/webhooks/deliveries/{kept['id']}/retry", {}), 409, "CONFLICT")

    ok(own.patch(f"{PATH}/{key}", {"state": "ENABLED"}))
    replay = {"since": kept["createdAt"], "endpointId": key}
    assert ok(own.post("/webhooks/replay", replay))["count"] == 1


def test_a_replay_takes_every_time_of_the_calendar(own: Api) -> None:
    body = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59Z"}

    assert ok(own.post("/webhooks/replay", body)) == {"count": 0, "hasMore": False}
    late = {"since": "9999-12-31T23:59:59Z"}
    assert ok(own.post("/webhooks/replay", late)) == {"count": 0, "hasMore": False}


def test_a_replay_reads_a_bounded_number_of_deliveries_and_returns_where_to_continue(
    own: Api, database_url: str
) -> None:
    key = endpoint(own, f"http://127.0.0.1:{closed_port()}/", state="DISABLED")["id"]
    with psycopg.connect(database_url) as connection:
        connection.execute(_MANY_DELIVERED, {"endpoint": key.partition(":")[2]})
    asked = {"since": "2020-01-01T00:00:00Z"}

    first = ok(own.post("/webhooks/replay", asked))
    second = ok(own.post("/webhooks/replay", asked | {"cursor": first["nextCursor"]}))

    assert (first["count"], first["hasMore"]) == (0, True)
    assert second == {"count": 0, "hasMore": False}


_MANY_DELIVERED = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, body, state,
        attempts, created_at, webhook_id, endpoint_id)
    SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '70008000'
        || lpad(to_hex(number), 12, '0'))::uuid, e.id, e.platform_id, 'CARD.STATE_CHANGE', e.id,
        '{}', 'DELIVERED', 1, now(), e.id, e.id
    FROM webhook_endpoints e, generate_series(1, 100500) number WHERE e.id = %(endpoint)s
"""


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"since": "yesterday"},
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2026-01-02T00:00:00Z", "onlyFailed": "yes"},
        {"since": "2026-01-02T00:00:00Z", "endpointId": "1"},
    ],
)
def test_an_invalid_replay_is_refused(api: Api, body: dict[str, Any]) -> None:
    refused(api.post("/webhooks/replay", body), 400, "INVALID_INPUT")


def test_a_replay_to_an_unknown_endpoint_is_refused(api: Api) -> None:
    body = {"since": "2026-01-02T00:00:00Z", "endpointId": f"WebhookEndpoint:{uuid4()}"}

    refused(api.post("/webhooks/replay", body), 404, "REFERENCE_NOT_FOUND")


# --- tests -------------------------------------------------------------------------------------


def test_the_sandbox_test_says_what_came_back_in_the_words_of_the_interface(
    own: Api, receiver: Receiver
) -> None:
    refused(own.raw("POST", "/sandbox/webhooks/test", b""), 400, "WEBHOOK_ENDPOINT_NOT_SET")
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    arrived(receiver, "TEST")
    receiver.reply_always(Reply(status=418, body=b"tea"))

    sent_body = ok(own.raw("POST", "/sandbox/webhooks/test", b""))

    assert sent_body == {"url": receiver.url, "response_status": 418, "response_body": "tea"}
    assert len(receiver.received) == 2
    nowhere = f"http://127.0.0.1:{closed_port()}/"
    ok(own.patch("/config", {"webhookEndpoint": nowhere}))
    refused(own.raw("POST", "/sandbox/webhooks/test", b""), 400, "WEBHOOK_DELIVERY_ERROR")


def test_a_test_of_an_endpoint_returns_its_result_and_is_listed(
    own: Api, receiver: Receiver
) -> None:
    key = endpoint(own, receiver.url, state="DISABLED")["id"]

    sent_body = ok(own.post("/webhooks/test", {"endpointId": key}))

    assert (sent_body["delivered"], sent_body["responseStatus"]) == (True, 200)
    assert sent_body["url"] == receiver.url
    [shown] = deliveries(own, type="TEST")
    assert (shown["id"], shown["webhookId"]) == (sent_body["deliveryId"], sent_body["webhookId"])
    assert len(ok(own.get(f"/webhooks/deliveries/{shown['id']}"))["attemptList"]) == 1
    missing = f"WebhookEndpoint:{new_id()}"
    refused(own.post("/webhooks/test", {"endpointId": missing}), 404, "REFERENCE_NOT_FOUND")
    refused(own.post("/webhooks/test", {}), 400, "WEBHOOK_ENDPOINT_NOT_SET")
    refused(own.http.post("/webhooks/test"), 400, "WEBHOOK_ENDPOINT_NOT_SET")


def test_a_test_without_a_body_goes_to_the_configured_endpoint(
    own: Api, receiver: Receiver
) -> None:
    ok(own.patch("/config", {"webhookEndpoint": receiver.url}))
    arrived(receiver, "TEST")

    tested = ok(own.http.post("/webhooks/test"))

    assert (tested["delivered"], tested["url"]) == (True, receiver.url)


@pytest.fixture
def deaf() -> Iterator[str]:
    """The URL of a receiver that takes connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def test_a_platform_has_two_tests_at_a_time_and_delays_no_other(
    own: Api, other_platform: Api, deaf: str, receiver: Receiver
) -> None:
    key = endpoint(own, deaf, state="DISABLED")["id"]
    others = endpoint(other_platform, receiver.url, state="DISABLED")["id"]

    def test(number: int) -> httpx2.Response:
        headers = {"Idempotency-Key": f"{key}/{number}"}
        return own.http.post("/webhooks/test", json={"endpointId": key}, headers=headers)

    with ThreadPoolExecutor(20) as pool:
        slow = [pool.submit(test, number) for number in range(20)]
        eventually(lambda: len(deliveries(own, type="TEST")) == 2)
        quick = ok(other_platform.post("/webhooks/test", {"endpointId": others}))
        answers = [one.result() for one in slow]

    refusals = [answer for answer in answers if answer.status_code == 429]
    assert len(refusals) == 18
    for answer in refusals:
        refused(answer, 429, "RATE_LIMITED")
        assert answer.headers["retry-after"] == "1"
    both = ended(own, 2, type="TEST")
    assert len(both) == 2, "a refused test leaves nothing"
    sent = ok(other_platform.get(f"/webhooks/deliveries/{quick['deliveryId']}"))
    for one in both:
        [attempt] = ok(own.get(f"/webhooks/deliveries/{one['id']}"))["attemptList"]
        began = datetime.fromisoformat(attempt["attemptedAt"])
        assert datetime.fromisoformat(sent["deliveredAt"]) < began + timedelta(
            milliseconds=attempt["durationMs"]
        )


def test_a_third_test_is_refused_before_it_uses_the_database(
    own: Api, receiver: Receiver, database_url: str
) -> None:
    key = endpoint(own, receiver.url, state="DISABLED")["id"]

    def test(_: int) -> httpx2.Response:
        return own.post("/webhooks/test", {"endpointId": key})

    with psycopg.connect(database_url) as owner, ThreadPoolExecutor(3) as pool:
        owner.execute("SELECT FROM platforms WHERE id = %s FOR UPDATE", [own.tenant.platform_id])
        pending = [pool.submit(test, number) for number in range(3)]
        eventually(lambda: any(one.done() for one in pending))
        answer = next(one.result() for one in pending if one.done())
        owner.rollback()

    refused(answer, 429, "RATE_LIMITED")


@pytest.mark.usefixtures("root")  # Its worker sends the test.
def test_a_test_without_a_result_in_time_says_so_and_goes_on(
    own: Api, api_config: ApiConfig, deaf: str
) -> None:
    key = endpoint(own, deaf, state="DISABLED")["id"]
    # Several times less than what the sender gives a receiver.
    config = replace(api_config, reply_timeout_s=1.0)
    with server(config) as impatient, Api(impatient, own.tenant) as caller:
        ok(caller.get("/config"))  # It has connections now.
        late = {"Idempotency-Key": str(uuid4())}

        def test() -> httpx2.Response:
            return caller.http.post("/webhooks/test", json={"endpointId": key}, headers=late)

        def late_details() -> dict[str, Any] | None:
            """Return the details, unless the server was too busy to begin the test in time."""
            body = refused(test(), 503, "SERVICE_UNAVAILABLE")
            details: dict[str, Any] | None = body.get("details")
            assert details is None or details["deliveryId"] in body["message"]
            return details

        details = eventually(late_details)
        found = eventually(lambda: repeated if (repeated := test()).status_code == 200 else None)

    assert ok(found)["deliveryId"] == details["deliveryId"], "the key stands for one test"
    assert "no response within" in ok(found)["error"]


def test_a_caller_that_leaves_a_test_leaves_nothing_behind(
    own: Api, deaf: str, receiver: Receiver
) -> None:
    key = endpoint(own, deaf, state="DISABLED")["id"]
    for _ in range(2):
        with pytest.raises(httpx2.TimeoutException):
            own.http.post("/webhooks/test", json={"endpointId": key}, timeout=0.5)

    assert len(ended(own, 2, type="TEST")) == 2

    ok(own.patch(f"{PATH}/{key}", {"url": receiver.url}))
    answer = eventually(
        lambda: (
            tried
            if (tried := own.post("/webhooks/test", {"endpointId": key})).status_code != 429
            else None
        )
    )
    assert ok(answer)["delivered"]


# --- who may -----------------------------------------------------------------------------------


def test_another_platform_sees_neither_endpoint_nor_delivery(
    own: Api, other_platform: Api, receiver: Receiver
) -> None:
    key = endpoint(own, receiver.url)["id"]
    [sent] = ended(own, 1, type="TEST")

    for answer in (
        other_platform.get(f"{PATH}/{key}"),
        other_platform.patch(f"{PATH}/{key}", {"description": "mine"}),
        other_platform.delete(f"{PATH}/{key}"),
        other_platform.post(f"{PATH}/{key}/rotate-secret", {}),
        other_platform.post("/webhooks/test", {"endpointId": key}),
        other_platform.get(f"/webhooks/deliveries/{sent['id']}"),
        other_platform.post(f"/webhooks/deliveries/{sent['id']}/retry", {}),
    ):
        refused(answer, 404, "REFERENCE_NOT_FOUND")
    replay = {"since": "2020-01-01T00:00:00Z", "endpointId": key, "onlyFailed": False}
    refused(other_platform.post("/webhooks/replay", replay), 404, "REFERENCE_NOT_FOUND")
    assert ok(other_platform.post("/webhooks/replay", replay | {"endpointId": None}))["count"] == 0
    assert deliveries(other_platform, endpointId=key) == []
    assert ok(own.get(f"{PATH}/{key}"))["url"] == receiver.url


def test_reading_needs_view_and_changing_needs_manage(
    own: Api, root: str, api_config: ApiConfig, receiver: Receiver
) -> None:
    key = endpoint(own, receiver.url)["id"]
    tenant = new_tenant(api_config.database_url, permissions=("VIEW", "TRANSACT"), of=own.tenant)

    with Api(root, tenant) as viewer:
        ok(viewer.get(PATH))
        ok(viewer.get(f"{PATH}/{key}"))
        ok(viewer.get("/webhooks/deliveries"))
        ok(viewer.get("/webhooks/signing-keys"))
        for answer in (
            viewer.post(PATH, {"url": receiver.url}),
            viewer.patch(f"{PATH}/{key}", {"description": "x"}),
            viewer.delete(f"{PATH}/{key}"),
            viewer.post(f"{PATH}/{key}/rotate-secret", {}),
            viewer.post("/webhooks/signing-keys/rotate", {}),
            viewer.post("/webhooks/test", {}),
            viewer.post("/webhooks/replay", {"since": "2020-01-01T00:00:00Z"}),
            viewer.post(f"/webhooks/deliveries/WebhookDelivery:{new_id()}/retry", {}),
        ):
            refused(answer, 403, "FORBIDDEN")
