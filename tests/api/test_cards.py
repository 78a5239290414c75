"""A card after it was issued: every move, what it spends from, its end; and the list of cards."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.cards import issuing
from cardledger.ledger.storage.ids import new_id
from tests.api.support import (
    Api,
    another_account,
    at_once,
    check_cap,
    made,
    ok,
    refused,
    server,
    webhooks,
)
from tests.waiting import eventually, limit_s

STATES = ("PENDING_KYC", "PROCESSING", "ACTIVE", "FROZEN", "CLOSED")
MOVES = {
    ("ACTIVE", "FROZEN"),
    ("ACTIVE", "CLOSED"),
    ("FROZEN", "ACTIVE"),
    ("FROZEN", "CLOSED"),
}


def put_into(owner_url: str, card_id: str, state: str) -> None:
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "UPDATE cards SET state = %s WHERE id = %s", [state, card_id.removeprefix("Card:")]
        )


def unfinished(api: Api) -> dict[str, Any]:
    """Return a card that stays `PROCESSING`."""
    customer = api.customer()
    account = api.account(customer["id"])
    return api.card(customer["id"], [account["id"]], platformCardId=f"{uuid4()}-001")


def money_of(api: Api, card: dict[str, Any]) -> tuple[int, int]:
    account = api.account(card["cardholderId"])
    return account["balance"]["amount"], account["heldAmount"]["amount"]


def test_a_cardholder_has_exactly_as_many_open_cards_as_it_may_have(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuing, "CARD_LIMIT", 3)
    cardholder = api.customer()["id"]
    sources = [api.account(cardholder)["id"]]
    request = {"cardholderId": cardholder, "form": "VIRTUAL", "fundingSources": sources}

    answers = at_once(8, lambda: api.post("/cards", request))

    check_cap(answers, made=3, limit=3)
    created = next(answer for answer in answers if answer.status_code == 201).json()
    api.wait_for_state(created["id"], "ACTIVE")
    ok(api.patch(f"/cards/{created['id']}", {"state": "CLOSED"}))
    made(api.post("/cards", request))


@pytest.mark.parametrize(
    ("before", "requested"), list(product(STATES, ("ACTIVE", "FROZEN", "CLOSED")))
)
def test_a_card_changes_state_only_by_allowed_transitions(
    api: Api, database_url: str, before: str, requested: str
) -> None:
    card = api.active_card(balance=0)
    put_into(database_url, card["id"], before)

    answer = api.patch(f"/cards/{card['id']}", {"state": requested})

    if (before, requested) in MOVES:
        changed = ok(answer)
        reason = "CLOSED_BY_PLATFORM" if requested == "CLOSED" else None
        assert (changed["state"], changed["stateReason"]) == (requested, reason)
        assert changed["updatedAt"] > card["updatedAt"]
        assert ok(api.get(f"/cards/{card['id']}")) == changed
    else:
        twice = (before, requested) == ("CLOSED", "CLOSED")
        refused(answer, 409, "CARD_ALREADY_CLOSED" if twice else "INVALID_STATE_TRANSITION")
        assert ok(api.get(f"/cards/{card['id']}"))["state"] == before


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("PENDING_KYC", "INVALID_STATE_TRANSITION"),
        ("PROCESSING", "INVALID_STATE_TRANSITION"),
        ("CLOSED", "CARD_NOT_MUTABLE"),
    ],
)
def test_a_card_that_is_not_active_or_frozen_cannot_be_changed(
    api: Api, database_url: str, before: str, code: str
) -> None:
    card = api.active_card(balance=0)
    put_into(database_url, card["id"], before)

    for change in (
        {"maxSpendPerTransaction": 5},
        {"maxSpendPerTransaction": None},
        {"fundingSources": card["fundingSources"]},
    ):
        refused(api.patch(f"/cards/{card['id']}", change), 409, code)


@pytest.mark.parametrize("suffix", ["005", "006"])
def test_closing_a_card_releases_a_pending_pull(api: Api, suffix: str) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 400, descriptor=f"SHOP {suffix}")
    assert authorized["pullSummary"]["pendingCount"] == 1

    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    def look() -> dict[str, Any] | None:
        now = ok(api.get(f"/transactions/{authorized['id']}"))
        return None if now["pullSummary"]["pendingCount"] else now

    after = eventually(look)
    assert (after["status"], after["heldAmount"]["amount"]) == ("VOIDED", 0)
    assert money_of(api, card) == (1000, 0)


def test_a_frozen_card_declines_authorizations_and_settles_clearings(api: Api) -> None:
    card = api.active_card(balance=1000)
    earlier = api.authorize(card["id"], 400)
    ok(api.patch(f"/cards/{card['id']}", {"state": "FROZEN"}))

    declined = api.authorize(card["id"], 100)
    cleared = api.clear(card["id"], earlier["id"], 500)
    ok(api.patch(f"/cards/{card['id']}", {"state": "ACTIVE"}))

    assert (declined["status"], declined["declineReason"]) == ("DECLINED", "CARD_PAUSED")
    assert (cleared["status"], cleared["settledAmount"]["amount"]) == ("SETTLED", 500)
    assert api.authorize(card["id"], 100)["status"] == "AUTHORIZED"


def test_closing_a_card_releases_its_holds_and_nothing_else(api: Api) -> None:
    card = api.active_card(balance=1000)
    untouched = api.authorize(card["id"], 100)
    half = api.authorize(card["id"], 200)
    api.clear(card["id"], half["id"], 50)
    done = api.authorize(card["id"], 300)
    api.clear(card["id"], done["id"], 300)
    assert money_of(api, card) == (400, 250)

    closed = ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    assert closed["fundingSources"] == []
    assert closed["last4"] == card["last4"]
    assert money_of(api, card) == (650, 0)  # At once: the answer has waited for it.
    after = [ok(api.get(f"/transactions/{item['id']}")) for item in (untouched, half, done)]
    assert [item["status"] for item in after] == ["VOIDED", "SETTLED", "SETTLED"]
    assert after[0]["statusReason"] == "CARD_CLOSED"
    assert [item["heldAmount"]["amount"] for item in after] == [0, 0, 0]
    declined = api.authorize(card["id"], 1)
    assert (declined["status"], declined["declineReason"]) == ("DECLINED", "CARD_NOT_ACTIVE")


def test_a_closed_card_still_receives_refunds(api: Api) -> None:
    card = api.active_card(balance=1000)
    authorized = api.authorize(card["id"], 300)
    api.clear(card["id"], authorized["id"], 300)
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    back = api.simulate(
        card["id"], "return", {"cardTransactionId": authorized["id"], "amount": 300}
    )

    assert ok(back)["status"] == "REFUNDED"
    assert money_of(api, card) == (1000, 0)


def test_a_late_clearing_debits_the_account_of_a_closed_card(api: Api) -> None:
    card = api.active_card(balance=1000)
    [account_id] = card["fundingSources"]
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    paid = api.simulate(
        card["id"],
        "financial_credit_authorization",
        {"amount": 70, "currency": {"code": "USD"}, "merchant": {"descriptor": "CASH IN"}},
    )

    assert ok(paid)["accountId"] == account_id
    assert money_of(api, card) == (1070, 0)


def test_the_platform_card_id_of_a_closed_card_can_be_used_again(api: Api) -> None:
    name = str(uuid4())
    card = api.active_card(balance=0, platformCardId=name)
    application = {
        "cardholderId": card["cardholderId"],
        "form": "VIRTUAL",
        "fundingSources": card["fundingSources"],
        "platformCardId": name,
    }

    refused(api.post("/cards", application), 409, "CONFLICT")
    ok(api.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

    assert made(api.post("/cards", application))["platformCardId"] == name


def test_a_card_spends_from_its_new_first_source(api: Api, database_url: str) -> None:
    card = api.active_card(balance=1000)
    [old] = card["fundingSources"]
    earlier = api.authorize(card["id"], 100)
    new = another_account(database_url, api.tenant, card["cardholderId"])
    api.fund(new, 500)

    changed = ok(api.patch(f"/cards/{card['id']}", {"fundingSources": [new, old]}))

    assert changed["fundingSources"] == [new, old]
    assert api.authorize(card["id"], 500)["accountId"] == new
    assert api.authorize(card["id"], 1)["declineReason"] == "INSUFFICIENT_FUNDS"
    assert api.clear(card["id"], earlier["id"], 120)["accountId"] == old


def test_a_spending_limit_is_set_kept_and_removed(api: Api) -> None:
    card = api.active_card(balance=10_000)
    path = f"/cards/{card['id']}"

    limited = ok(api.patch(path, {"maxSpendPerTransaction": 100}))
    at_it, above = api.authorize(card["id"], 100), api.authorize(card["id"], 101)
    kept = ok(api.patch(path, {"state": "FROZEN"}))
    free = ok(api.patch(path, {"state": "ACTIVE", "maxSpendPerTransaction": None}))

    assert card["maxSpendPerTransaction"] is None
    assert limited["maxSpendPerTransaction"] == kept["maxSpendPerTransaction"] == 100
    assert at_it["status"] == "AUTHORIZED"
    assert above["declineReason"] == "SPEND_LIMIT_EXCEEDED"
    assert (free["state"], free["maxSpendPerTransaction"]) == ("ACTIVE", None)
    assert api.authorize(card["id"], 101)["status"] == "AUTHORIZED"


def test_the_webhook_of_the_state_precedes_that_of_the_funding_sources(
    api: Api, database_url: str
) -> None:
    card = api.active_card(balance=0)
    path = f"/cards/{card['id']}"

    limited = ok(api.patch(path, {"maxSpendPerTransaction": 5}))
    both = ok(api.patch(path, {"state": "FROZEN", "fundingSources": card["fundingSources"]}))
    closed = ok(api.patch(path, {"state": "CLOSED"}))

    sent = webhooks(database_url, card["id"], 4)
    assert limited["maxSpendPerTransaction"] == 5  # Which is no news.
    assert sent == [
        ("CARD.STATE_CHANGE", card),
        ("CARD.STATE_CHANGE", both),
        ("CARD.FUNDING_SOURCE_CHANGE", both),
        ("CARD.STATE_CHANGE", closed),
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"state": "PROCESSING"}, "state"),
        ({"state": "PENDING_KYC"}, "state"),
        ({"state": "active"}, "state"),
        ({"state": None}, "state"),
        ({"state": 1}, "state"),
        ({"fundingSources": []}, "fundingSources"),
        ({"fundingSources": None}, "fundingSources"),
        ({"fundingSources": ["x"]}, "fundingSources.0"),
        ({"maxSpendPerTransaction": 0}, "maxSpendPerTransaction"),
        ({"maxSpendPerTransaction": -1}, "maxSpendPerTransaction"),
        ({"maxSpendPerTransaction": 1.0}, "maxSpendPerTransaction"),
        ({"maxSpendPerTransaction": "5"}, "maxSpendPerTransaction"),
        ({"maxSpendPerTransaction": 2**63}, "maxSpendPerTransaction"),
        ({"state": "CLOSED", "maxSpendPerTransaction": 5}, "state"),
        ({"state": "CLOSED", "maxSpendPerTransaction": None}, "state"),
        ({"platformCardId": "new"}, "platformCardId"),
        ({"stateReason": "CLOSED_BY_GRID"}, "stateReason"),
    ],
)
def test_an_invalid_change_is_refused(api: Api, change: dict[str, Any], field: str) -> None:
    card = api.active_card(balance=0)

    details = refused(api.patch(f"/cards/{card['id']}", change), 400, "INVALID_INPUT")["details"]

    assert [error["field"] for error in details["errors"]] == [field]
    assert ok(api.get(f"/cards/{card['id']}")) == card


def test_an_empty_change_and_a_change_with_closed_are_refused(api: Api) -> None:
    card = api.active_card(balance=0)
    path = f"/cards/{card['id']}"
    closing = {"state": "CLOSED", "fundingSources": card["fundingSources"]}

    refused(api.patch(path, {}), 400, "INVALID_INPUT")
    refused(api.patch(path, []), 400, "INVALID_INPUT")
    refused(api.raw("PATCH", path, ""), 400, "INVALID_INPUT")
    refused(api.patch(path, closing), 400, "INVALID_INPUT")

    assert ok(api.get(path)) == card


def test_a_funding_source_must_be_the_cardholders_and_in_the_cards_currency(
    api: Api, database_url: str
) -> None:
    card, other = api.active_card(balance=0), api.active_card(balance=0)
    [own] = card["fundingSources"]
    cardholder = card["cardholderId"]

    def another(**changes: str) -> str:
        return another_account(database_url, api.tenant, cardholder, **changes)

    for source in (
        other["fundingSources"][0],
        f"InternalAccount:{uuid4()}",
        api.account(cardholder, "EUR")["id"],
        api.account(cardholder, "USDC")["id"],
        another(kind="EMBEDDED_WALLET"),
        another(status="FROZEN"),
        another(status="CLOSED"),
    ):
        body = refused(
            api.patch(f"/cards/{card['id']}", {"fundingSources": [own, source], "state": "FROZEN"}),
            400,
            "FUNDING_SOURCE_INELIGIBLE",
        )
        assert body["details"]["errors"][0]["field"] == "fundingSources.1"
    twice = {"fundingSources": [own, own]}
    refused(api.patch(f"/cards/{card['id']}", twice), 400, "INVALID_INPUT")

    assert ok(api.get(f"/cards/{card['id']}")) == card  # Not frozen either: all or nothing.


@pytest.mark.parametrize(("suffix", "word"), [("002", "enough money"), ("003", "closed")])
def test_the_sandbox_refuses_funding_sources_by_suffix(
    api: Api, database_url: str, suffix: str, word: str
) -> None:
    card = api.active_card(balance=0)
    source = another_account(database_url, api.tenant, card["cardholderId"], ends_in=suffix)
    application = {
        "cardholderId": card["cardholderId"],
        "form": "VIRTUAL",
        "fundingSources": [source],
    }

    on_create = api.post("/cards", application)
    on_change = api.patch(f"/cards/{card['id']}", {"fundingSources": [source]})

    for answer in (on_create, on_change):
        assert word in refused(answer, 400, "FUNDING_SOURCE_INELIGIBLE")["message"]


@pytest.mark.parametrize(
    ("suffix", "state"),
    [("001", "PROCESSING"), ("002", "CLOSED"), ("005", "ACTIVE"), ("abc", "ACTIVE")],
)
def test_without_a_platform_card_id_the_cardholders_suffix_decides(
    api: Api, database_url: str, suffix: str, state: str
) -> None:
    cardholder = str(new_id())[:-3] + suffix
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'INDIVIDUAL', 'APPROVED', %s, '{USD}', now(), now())",
            [cardholder, api.tenant.platform_id, cardholder, f"${cardholder}@test"],
        )
    account = another_account(database_url, api.tenant, f"Customer:{cardholder}")

    card = api.card(f"Customer:{cardholder}", [account])

    assert card["platformCardId"].endswith(suffix)
    assert api.wait_for_state(card["id"], state)["fundingSources"] == (
        [] if state == "CLOSED" else [account]
    )


@pytest.mark.parametrize("suffix", ["001", "004", "005", "006", "abc"])
def test_a_funding_source_with_any_other_suffix_is_accepted(
    api: Api, database_url: str, suffix: str
) -> None:
    card = api.active_card(balance=0)
    source = another_account(database_url, api.tenant, card["cardholderId"], ends_in=suffix)

    changed = ok(api.patch(f"/cards/{card['id']}", {"fundingSources": [source]}))

    assert changed["fundingSources"] == [source]


def test_a_card_of_another_platform_cannot_be_changed(api: Api, other_platform: Api) -> None:
    card = api.active_card(balance=0)

    for path in (f"/cards/{card['id']}", f"/cards/Card:{uuid4()}", "/cards/x"):
        refused(other_platform.patch(path, {"state": "CLOSED"}), 404, "REFERENCE_NOT_FOUND")

    assert ok(api.get(f"/cards/{card['id']}")) == card


# --- at once -------------------------------------------------------------------------------------


def test_of_concurrent_equal_transitions_one_succeeds(api: Api, database_url: str) -> None:
    card = api.active_card(balance=0)
    path = f"/cards/{card['id']}"

    with ThreadPoolExecutor(10) as pool:
        frozen = list(pool.map(lambda _: api.patch(path, {"state": "FROZEN"}), range(10)))
        closed = list(pool.map(lambda _: api.patch(path, {"state": "CLOSED"}), range(10)))

    for answers, code in ((frozen, "INVALID_STATE_TRANSITION"), (closed, "CARD_ALREADY_CLOSED")):
        lost = [answer for answer in answers if answer.status_code != 200]
        assert len(lost) == 9
        for answer in lost:
            refused(answer, 409, code)
    sent = [data["state"] for _, data in webhooks(database_url, card["id"], 3)]
    assert sent == ["ACTIVE", "FROZEN", "CLOSED"]


def test_concurrent_changes_of_different_fields_are_all_kept(api: Api) -> None:
    card = api.active_card(balance=0)
    path = f"/cards/{card['id']}"
    changes: list[dict[str, Any]] = [{"state": "FROZEN"}, {"maxSpendPerTransaction": 7}]

    with ThreadPoolExecutor(2) as pool:
        for answer in pool.map(lambda change: api.patch(path, change), changes):
            ok(answer)

    after = ok(api.get(path))
    assert (after["state"], after["maxSpendPerTransaction"]) == ("FROZEN", 7)


def test_a_card_closed_during_authorizations_holds_nothing(api: Api) -> None:
    card = api.active_card(balance=100_000)
    path = f"/cards/{card['id']}"

    with ThreadPoolExecutor(16) as pool:
        authorizations = [pool.submit(api.authorize, card["id"], 10) for _ in range(60)]
        closed = pool.submit(api.patch, path, {"state": "CLOSED"})
        authorizations += [pool.submit(api.authorize, card["id"], 10) for _ in range(60)]
        ok(closed.result())
        ids = [future.result()["id"] for future in authorizations]

    assert eventually(lambda: money_of(api, card) == (100_000, 0))
    statuses = {ok(api.get(f"/transactions/{key}"))["status"] for key in ids}
    assert "DECLINED" in statuses
    assert statuses <= {"VOIDED", "DECLINED"}


def test_a_card_is_closed_also_while_no_worker_runs(
    api_config: ApiConfig, database_url: str, api: Api
) -> None:
    card = api.active_card(balance=1000)
    key = card["id"].removeprefix("Card:")
    api.authorize(card["id"], 300)
    impatient = replace(api_config, reply_timeout_s=limit_s(2))
    with (
        server(impatient) as root,
        Api(root, api.tenant) as caller,
        psycopg.connect(database_url) as connection,
    ):
        # As long as this lock is held, no worker decides anything.
        connection.execute("SELECT FROM inbox_shards FOR UPDATE")

        closed = ok(caller.patch(f"/cards/{card['id']}", {"state": "CLOSED"}))

        waiting = connection.execute(
            "SELECT body ->> 'type', source, reference FROM inbox WHERE reference LIKE %s",
            [f"{key}/%"],
        ).fetchall()
        assert money_of(api, card) == (700, 300)
    assert closed["state"] == "CLOSED"
    assert waiting == [("CARD_CLOSED", "cards", f"{key}/closed")]
    assert eventually(lambda: money_of(api, card) == (1000, 0))


# --- the list ------------------------------------------------------------------------------------


def test_cards_are_filtered_by_every_parameter(
    api: Api, other_platform: Api, database_url: str
) -> None:
    mine = api.active_card(balance=0, platformCardId=f"{uuid4()}")
    cardholder, [account] = mine["cardholderId"], mine["fundingSources"]
    second = another_account(database_url, api.tenant, cardholder)
    both = api.wait_for_state(api.card(cardholder, [account, second])["id"], "ACTIVE")
    waiting = unfinished(api)
    frozen = ok(api.patch(f"/cards/{mine['id']}", {"state": "FROZEN"}))

    def listed(who: Api = api, **query: str) -> list[dict[str, Any]]:
        page = ok(who.get("/cards", **query))
        assert page["totalCount"] == len(page["data"])
        data = page["data"]
        assert isinstance(data, list)
        return data

    assert listed(cardholderId=cardholder) == [both, frozen]
    assert listed(cardholderId=cardholder, sortOrder="asc") == [frozen, both]
    assert listed(accountId=account) == [both, frozen]
    assert listed(accountId=second) == [both]
    assert listed(platformCardId=mine["platformCardId"]) == [frozen]
    assert listed(cardholderId=cardholder, state="ACTIVE") == [both]
    assert listed(cardholderId=waiting["cardholderId"], state="PROCESSING") == [waiting]
    assert listed(cardholderId=cardholder, state="PROCESSING") == []
    assert listed(accountId=f"InternalAccount:{uuid4()}") == []
    for query in ({"cardholderId": cardholder}, {"accountId": account}, {}):
        assert listed(other_platform, **query) == []

    closed = ok(api.patch(f"/cards/{both['id']}", {"state": "CLOSED"}))
    assert listed(accountId=second) == []
    assert listed(cardholderId=cardholder, state="CLOSED") == [closed]


def test_pages_hold_every_card_once(api: Api) -> None:
    customer = api.customer()
    account = api.account(customer["id"])
    issued = [api.card(customer["id"], [account["id"]])["id"] for _ in range(5)]

    seen: list[str] = []
    query: dict[str, object] = {"cardholderId": customer["id"], "limit": 2}
    while True:
        page = ok(api.get("/cards", **query))
        seen += [card["id"] for card in page["data"]]
        assert page["totalCount"] == 5
        assert page["hasMore"] == ("nextCursor" in page)
        if not page["hasMore"]:
            break
        query["cursor"] = page["nextCursor"]

    assert seen == issued[::-1]
    moved = {**query, "cardholderId": api.customer()["id"]}
    refused(api.get("/cards", **moved), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "query",
    [
        {"state": "OPEN"},
        {"state": "active"},
        {"state": ""},
        {"cardholderId": "me"},
        {"accountId": "Card:1"},
        {"platformCardId": ""},
        {"sortOrder": "up"},
        {"limit": "0"},
        {"limit": "101"},
        {"cursor": "x"},
        {"surprise": "1"},
    ],
)
def test_an_invalid_list_query_is_refused(api: Api, query: dict[str, str]) -> None:
    refused(api.get("/cards", **query), 400, "INVALID_INPUT")
