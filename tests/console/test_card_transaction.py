"""Card transactions as HTML: the list with its filters, and one with its picture and messages."""

import json
import re
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from html import escape, unescape

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.queries.console import purchase_history, purchase_messages
from cardledger.ledger.queries.console.purchase_history import (
    PAGE_EVENTS,
    PurchaseHistory,
    UnfoldedHistory,
)
from cardledger.ledger.queries.console.purchase_messages import PurchaseMessages, UnparsedMessages
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks import deliveries
from cardledger.ledger.webhooks.deliveries import AttemptedDeliveries
from cardledger.schema.wire.common import parse_id
from tests.api.support import Api, LoopWatch, made, new_tenant, ok, server
from tests.console.person import Person, command_of, shown, url_in
from tests.console.snapshots import in_snapshot
from tests.console.stories import Stories, play
from tests.console.test_accounts import main_of, words_of
from tests.waiting import eventually

FIGURE = re.compile(r'data-figure="([^"]+)"><dt>[^<]+</dt><dd>([^<]+)</dd>')
TOTAL = re.compile(r"</span> ([^<]+)</span>")
MANY = 10_000


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    return play(api)


def figures(page: str) -> dict[str, str]:
    return dict(FIGURE.findall(page))


def events(page: str) -> list[str]:
    return re.findall(r'<tr role="row" id="event-(\d+)"', page)


# --- one ------------------------------------------------------------------------------------------


def test_what_has_no_history_is_called_that_of_now_beside_an_earlier_event(
    person: Person, api: Api
) -> None:
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]

    last = shown(person.get(f"/card-transactions/{purchase}"))
    first = shown(person.get(f"/card-transactions/{purchase}", asOf=1))

    assert "<dt>Expires</dt>" in last
    assert "<dt>Expires (now)</dt>" in first


def test_the_tip_ends_with_fifteen_at_the_network(person: Person, stories: Stories) -> None:
    page = shown(person.get(f"/card-transactions/{stories.tip}"))

    assert figures(page) == {
        "authorizedAmount": "12.50",
        "pullSummary.totalAmount": "15.00",
        "settledAmount": "15.00",
        "refundedAmount": "0.00",
        "releaseSummary.totalAmount": "0.00",
        "heldAmount": "0.00",
        "owedAmount": "0.00",
    }
    totals = page.partition('class="totals"')[2].partition("</tr>")[0]
    assert TOTAL.findall(totals) == ["\N{MINUS SIGN}15.00", "0.00", "+15.00", "0.00"]
    assert "12.50 USD was pulled; 12.50 USD pulled in total." in page
    assert events(page) == ["1", "2", "3", "4"]


def test_as_of_an_event_the_figures_are_those_of_the_webhook(
    person: Person, stories: Stories
) -> None:
    pages = [
        shown(person.get(f"/card-transactions/{stories.exception}", asOf=number))
        for number in (2, 3, 4)
    ]

    assert [figures(page)["heldAmount"] for page in pages] == ["20.00", "20.00", "0.00"]
    assert [figures(page)["owedAmount"] for page in pages] == ["0.00", "0.00", "25.00"]
    assert [page.count('class="event later"') for page in pages] == [2, 1, 0]


def standing(page: str) -> str:
    """Return the status of a page's purchase, with its reason, as text."""
    heading = main_of(page).partition("</h1>")[2].partition("</div>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", heading).split())


def test_the_reason_of_a_status_is_that_of_the_event(root: str, config: ApiConfig) -> None:
    with Api(root, new_tenant(config.database_url)) as api, Person(root) as visitor:
        visitor.log_in(api.tenant)
        card = api.active_card()["id"]
        purchase = api.authorize(card, 1_000)["id"]
        ok(api.simulate(card, "authorization_expiry", {"cardTransactionId": purchase}))
        path = f"/card-transactions/{purchase}"

        first, last = shown(visitor.get(path, asOf=1)), shown(visitor.get(path))

    assert [standing(page) for page in (first, last)] == ["authorized", "voided expired"]


def test_a_forced_clearing_keeps_the_reason_of_the_decline(root: str, config: ApiConfig) -> None:
    with Api(root, new_tenant(config.database_url)) as api, Person(root) as visitor:
        visitor.log_in(api.tenant)
        card = api.active_card(balance=3_000)["id"]
        purchase = api.authorize(card, 900_000)["id"]
        api.clear(card, purchase, 1_000)
        path = f"/card-transactions/{purchase}"

        first, last = shown(visitor.get(path, asOf=1)), shown(visitor.get(path))

    assert standing(first) == "declined insufficient funds"
    assert standing(last) == "settled first declined: insufficient funds"


def test_money_that_comes_back_has_another_colour_and_shape(
    person: Person, stories: Stories
) -> None:
    page = shown(person.get(f"/card-transactions/{stories.refund}"))

    assert page.count('<g class="arrow back"') == 2
    assert page.count('<g class="arrow forward"') == 3
    assert "5.00 USD from network settlement to customer" in page  # For those who do not see it.


def test_what_each_event_changed_is_named_for_the_figures(person: Person, stories: Stories) -> None:
    page = shown(person.get(f"/card-transactions/{stories.tip}"))

    changes = re.findall(r'data-changes="([^"]*)"', page)

    assert changes[-1].split()[:2] == ["status", "settledAmount"]
    assert {"heldAmount", "pullSummary.totalAmount"} <= set(changes[1].split())


def test_the_messages_of_the_network_are_those_of_the_events(
    person: Person, stories: Stories, api: Api
) -> None:
    [first, *_] = ok(api.get(f"/transactions/{stories.tip}/events"))["data"]

    page = shown(person.get(f"/card-transactions/{stories.tip}"))

    messages = page.partition('id="messages"')[2]
    assert re.search(r"<td>1.2</td><td><bdi>simulator</bdi></td>", messages)
    assert first["reference"] in messages


def test_a_rejection_with_the_key_of_a_message_is_shown(person: Person, api: Api) -> None:
    card = api.active_card()["id"]
    event = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": "console-reused",
        "issuerTransactionToken": "console-token",
        "cardId": card,
        "amount": 100,
        "currency": "USD",
        "merchant": {"descriptor": "KIOSK"},
    }
    url = f"{api.root}/network-events"
    api.http.post(url, json=[event])
    other = event | {"source": "mastercard", "amount": 300, "issuerTransactionToken": "other"}
    api.http.post(url, json=[other])
    api.http.post(url, json=[other | {"amount": 400}])
    api.http.post(url, json=[event | {"amount": 200}])
    [purchase] = ok(api.get("/transactions", reference="console-token"))["data"]

    def look() -> str | None:
        page = shown(person.get(f"/card-transactions/{purchase['id']}"))
        return page if "Rejected with the same" in page else None

    rejected = eventually(look).partition("Rejected with the same")[2]
    assert "console-reused" in rejected
    assert "mastercard" not in rejected  # The other sender's message has the same reference.
    [rejection] = [each for each in ok(api.get("/rejections"))["data"] if each["source"] == "visa"]
    assert rejection["reference"] == "console-reused"
    assert f'data-copy="{rejection["id"]}"' in rejected
    link = re.search(r'<td class="key"><span class="id"><a href="(/console/search[^"]+)"', rejected)
    assert link is not None
    assert f"/rejections/{rejection['id']}" in shown(person.http.get(link[1]))


def test_what_waits_is_shown_with_what_it_waits_for(
    person: Person, api: Api, database_url: DatabaseUrl
) -> None:
    event = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": "waits-first",
        "issuerTransactionToken": "waits",
        "cardId": api.active_card()["id"],
        "amount": 100,
        "currency": "USD",
    }
    clearing = event | {"type": "CLEARING_REVERSAL", "reference": "waits-clearing"}
    refund = event | {"type": "RETURN_REVERSAL", "reference": "<i>waits-return</i>"}
    url = f"{api.root}/network-events"
    for each in (event, clearing):
        api.http.post(url, json=[each])
    [purchase] = ok(api.get("/transactions", reference="waits", cardId=event["cardId"]))["data"]
    path = f"/card-transactions/{purchase['id']}"

    one = main_of(shown(person.get(path)))
    api.http.post(url, json=[refund])
    two = main_of(shown(person.get(path)))
    parked = [
        each for each in ok(api.get("/parked-events"))["data"] if each["cardId"] == event["cardId"]
    ]
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "UPDATE parked SET body = jsonb_set(body::jsonb, '{more}', to_jsonb(repeat('x', %s)))"
            " WHERE issuer_transaction_token = 'waits'",
            [purchase_messages.BODY_BYTES],
        )
    large = main_of(shown(person.get(path)))
    api.http.post(url, json=[event | {"type": "CLEARING", "reference": "waits-no-more"}])
    applied = main_of(shown(person.get(path)))

    assert "1 parked: waits for an earlier message" in one
    assert "2 parked: wait for an earlier message" in two
    assert "1 parked: waits for" in applied
    assert [each["reference"] for each in parked] == ["<i>waits-return</i>", "waits-clearing"]
    rows = [
        f"visa {escape(each['reference'])} {{}} {each['id']} Copy {each['id']}" for each in parked
    ]
    types = ["return reversal return", "clearing reversal clearing"]
    assert parked_in(two) == [row.format(each) for row, each in zip(rows, types, strict=True)]
    assert parked_in(large) == [row.format("– –") for row in rows]  # noqa: RUF001 - a dash
    assert all(f'data-copy="{each["id"]}"' in two for each in parked)
    assert all(f'datetime="{each["createdAt"][:19]}' in two for each in parked)
    assert parked_in(applied) == parked_in(large)[:1]


def parked_in(page: str) -> list[str]:
    """Return the words of the rows of parked messages, without the time."""
    table = page.partition('aria-label="Parked messages"')[2].partition("</table>")[0]
    rows = table.partition("<tbody>")[2].split("<tr>")[1:]
    return [words_of(row).partition(":")[2][6:] for row in rows]


def test_an_identifier_is_copied_as_it_is(person: Person, api: Api) -> None:
    text = f"\u202e<\"&amp;'\r\u00e9{'x' * 240}"
    card = api.active_card(platformCardId=text)
    event = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": "console-copied",
        "issuerTransactionToken": text,
        "cardId": card["id"],
        "amount": 100,
        "currency": "USD",
    }
    api.http.post(f"{api.root}/network-events", json=[event])
    [purchase] = ok(api.get("/transactions", customerId=card["cardholderId"], type="CARD"))["data"]

    for path in (f"/card-transactions/{purchase['id']}", f"/cards/{card['id']}"):
        page = shown(person.get(path))

        assert text in [unescape(each) for each in re.findall(r'data-copy="([^"]*)"', page)]
        assert "<code>⟨U+202E⟩&lt;" in page
        assert "\u202e" not in page


def test_a_long_descriptor_is_cut(person: Person, api: Api, database_url: DatabaseUrl) -> None:
    card = api.active_card()["id"]
    purchase = str(api.authorize(card, 1_250)["id"])
    with psycopg.connect(database_url) as owner:  # The API takes at most 255 characters.
        owner.execute(
            "UPDATE card_transactions SET descriptor = %s WHERE id = %s",
            ["W" * 4_096, purchase.partition(":")[2]],
        )

    for path in ("", "/card-transactions", f"/card-transactions/{purchase}", "/journal"):
        page = main_of(shown(person.get(path)))
        runs = re.findall("W{9,}", page)
        assert runs, path
        assert max(map(len, runs)) <= 120, path


@pytest.mark.parametrize(
    ("currency", "greatest"),
    [("JPY", "9,223,372,036,854,775,807"), ("KWD", "9,223,372,036,854,775.807")],
)
def test_the_picture_has_the_greatest_amount_of_a_currency(
    root: str, config: ApiConfig, currency: str, greatest: str
) -> None:
    tenant = new_tenant(config.database_url, currencies=(currency,))
    with Api(root, tenant) as api, Person(root) as visitor:
        visitor.log_in(tenant)
        customer = api.customer()["id"]
        card = api.card(customer, [api.account(customer, currency)["id"]])
        api.wait_for_state(card["id"], "ACTIVE")
        event = {
            "type": "CLEARING",  # Nothing has authorized it, and it cannot be declined.
            "source": "visa",
            "reference": f"greatest-{currency}",
            "issuerTransactionToken": "greatest",
            "cardId": card["id"],
            "amount": 2**63 - 1,
            "currency": currency,
            "merchant": {"descriptor": "SHIPYARD"},
        }
        [outcome] = api.http.post(f"{api.root}/network-events", json=[event]).json()
        assert outcome["outcome"] == "APPLIED", outcome
        [purchase] = ok(api.get("/transactions", customerId=customer, type="CARD"))["data"]

        page = shown(visitor.get(f"/card-transactions/{purchase['id']}"))
        exceptions = main_of(shown(visitor.get("/exceptions")))

    picture = page.partition('<table class="story"')[2].partition("</table>")[0]
    assert f">{greatest}</text>" in picture
    assert figure_of(page, "settledAmount") == figure_of(page, "owedAmount") == greatest
    assert greatest in exceptions
    widths = [int(each) for each in re.findall(r'<rect class="band[^>]* width="(\d+)"', picture)]
    assert widths
    assert max(widths) <= 30


def figure_of(page: str, name: str) -> str:
    found = re.search(rf'data-figure="{name}".*?<dd[^>]*>([^<]*)</dd>', page, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_messages_that_are_left_out_are_said(
    person: Person,
    api: Api,
    stories: Stories,
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"/card-transactions/{stories.refund}"
    whole = shown(person.get(path))
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO parked (id, customer_id, card_id, issuer_transaction_token, body,"
            " received_at) SELECT gen_random_uuid(), %s, %s, %s, '{}', now()"
            " FROM generate_series(1, 2)",
            [
                tip["customerId"].partition(":")[2],
                tip["cardId"].partition(":")[2],
                tip["issuerTransactionToken"],
            ],
        )
    two = shown(person.get(f"/card-transactions/{stories.tip}"))
    reject_many(database_url, api, tip["cardId"], tip["issuerTransactionToken"], size=400)
    rejections = shown(person.get(f"/card-transactions/{stories.tip}"))

    monkeypatch.setattr(purchase_messages, "MESSAGE_LIMIT", 1)
    newest = shown(person.get(path))
    more = shown(person.get(f"/card-transactions/{stories.tip}"))
    with psycopg.connect(database_url) as owner:
        owner.execute("DELETE FROM parked WHERE body::text = '{}'")

    earlier = "those that caused earlier events are left out"
    assert [earlier in page for page in (whole, newest)] == [False, True]
    assert "More than" not in two
    assert "2 parked: wait for" in two
    assert "More than 1 parked: wait for" in more
    assert "The newest 50 rejections." in rejections
    assert "rejections.</p>" not in two


def test_rejections_with_the_token_of_the_purchase_are_shown(
    person: Person, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, other_card = (api.active_card()["id"] for _ in range(2))
    event = {
        "type": "AUTHORIZATION",
        "source": "visa",
        "reference": "token-first",
        "issuerTransactionToken": "tok\u00e9n",
        "cardId": card,
        "amount": 100,
        "currency": "USD",
        "merchant": {"descriptor": "KIOSK"},
    }
    clearing = {"type": "CLEARING"}
    sent: list[dict[str, object]] = [
        event,
        event | clearing | {"reference": "token-euros", "currency": "EUR"},
        event | clearing | {"reference": "token-malformed", "amount": "much"},
        event | {"reference": "token-other", "issuerTransactionToken": "other", "amount": -1},
        event | {"reference": "token-other-card", "cardId": other_card, "amount": -1},
    ]
    for each in sent:
        api.http.post(f"{api.root}/network-events", json=[each])
    [purchase] = ok(api.get("/transactions", reference="tok\u00e9n", cardId=card))["data"]

    page = shown(person.get(f"/card-transactions/{purchase['id']}"))
    monkeypatch.setattr(purchase_messages, "REJECTIONS_READ", 1)
    some = shown(person.get(f"/card-transactions/{purchase['id']}"))

    rejected = page.partition("Rejected with the same")[2].partition("</section>")[0]
    assert re.findall(r"<bdi>(token-[a-z-]+)</bdi>", rejected) == ["token-malformed", "token-euros"]
    assert re.findall(r"<td>(token[a-z ]*)</td>", rejected) == ["token", "token"]
    assert "newest 1 of this platform only" not in page
    assert "newest 1 of this platform only" in some
    assert "keeps no reference of theirs" in page  # Of duplicates.


def reject_many(database_url: str, api: Api, card: str, token: str, *, size: int) -> None:
    """Reject as many messages as are looked at, with `card`, `token` and a body of `size`."""
    event: dict[str, object] = {"cardId": card, "issuerTransactionToken": token, "amounts": []}
    space = size - len(json.dumps(event))
    body = json.dumps(event | {"amounts": [0] * (space // len("0, "))})
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO rejections (id, customer_id, platform_id, source, reference, body, reason,"
            " recorded_at) SELECT key, customer_id, %s, 'visa', key::text, %s, 'MALFORMED',"
            " now() FROM unnest(%s::uuid[]) AS key, cards WHERE cards.id = %s",
            [
                str(api.tenant.platform_id),
                body,
                [str(new_id()) for _ in range(purchase_messages.REJECTIONS_READ)],
                card.removeprefix("Card:"),
            ],
        )


@pytest.mark.usefixtures("root")  # For its worker.
@pytest.mark.parametrize(("size", "count"), [(4_000, 50), (64_000, 0)])
def test_many_large_rejections_do_not_block_the_event_loop(
    config: ApiConfig,
    database_url: DatabaseUrl,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    count: int,
) -> None:
    parse, read_bytes, watch = purchase_messages.parse, list[int](), LoopWatch()

    def noted(unparsed: UnparsedMessages) -> PurchaseMessages:
        read_bytes.append(sum(len(body) for _, body in unparsed.with_card))
        return parse(unparsed)

    monkeypatch.setattr(purchase_messages, "parse", noted)
    tenant = new_tenant(config.database_url)
    with server(config, watch=watch) as url, Api(url, tenant) as api, Person(url) as viewer:
        viewer.log_in(tenant)
        purchase = api.authorize(api.active_card()["id"], 100)
        path = f"/card-transactions/{purchase['id']}"
        shown(viewer.get(path))  # Compiles the template.
        token = purchase["issuerTransactionToken"]
        reject_many(database_url, api, purchase["cardId"], token, size=size)
        watch.assert_not_blocked_by(lambda: shown(viewer.get(path)))
        page = shown(viewer.get(path))

    assert read_bytes[-1] <= purchase_messages.BODIES_BYTES
    assert page.count("<td>token</td>") == count
    assert "bodies of at most 4 KiB, and 1,024 KiB of those with this card" in page


def test_webhooks_are_shown_with_their_attempts(person: Person, api: Api) -> None:
    made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/refused"}))
    purchase = api.authorize(api.active_card()["id"], 100)["id"]

    def look() -> str | None:
        page = shown(person.get(f"/card-transactions/{purchase}"))
        return page if 'class="attempt"' in page else None

    assert "CARD_TRANSACTION.AUTHORIZED" in eventually(look)


def test_ids_of_others_are_unknown_ids(person: Person, other_platform: Api) -> None:
    foreign = other_platform.authorize(other_platform.active_card()["id"], 100)["id"]
    unknown = f"CardTransaction:{new_id()}"

    pages = [
        shown(person.get(f"/card-transactions/{name}"), 404)
        for name in (foreign, unknown, "CardTransaction:x", "Card:1", "%00")
    ]

    assert len(set(pages)) <= 2  # With and without what the router makes of %00.
    assert "There is nothing here with this address or id" in pages[0]


@pytest.mark.parametrize("query", ["asOf=0", "asOf=x", "from=99999999999", "asOf=-1"])
def test_an_event_that_is_no_number_is_an_error(
    person: Person, stories: Stories, query: str
) -> None:
    response = person.http.get(f"/console/card-transactions/{stories.tip}?{query}")

    assert "That cannot be shown" in shown(response, 400)


def test_an_event_beyond_the_last_is_the_last(person: Person, stories: Stories) -> None:
    page = shown(person.get(f"/card-transactions/{stories.tip}", asOf=999))

    assert "after all 4 events" in page


def test_names_of_others_are_text_on_every_page(person: Person, stories: Stories) -> None:
    for path in ("", "/card-transactions", f"/card-transactions/{stories.hostile}"):
        page = shown(person.get(path))
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert "\u202e" not in page


def test_the_secret_is_on_no_page(person: Person, stories: Stories, api: Api) -> None:
    for path in ("", "/card-transactions", f"/card-transactions/{stories.tip}"):
        assert api.tenant.client_secret not in shown(person.get(path))


def test_the_command_makes_the_request_of_the_page(
    person: Person, stories: Stories, api: Api
) -> None:
    page = shown(person.get(f"/card-transactions/{stories.tip}"))

    command = unescape(re.findall(r'<code id="curl">(.*?)</code>', page)[0])

    assert command == (
        f"curl -u '{api.tenant.client_id}' '{api.http.base_url}transactions/{stories.tip}/events'"
    )
    assert "The API returns every event" not in page


def with_many_events(database_url: str, api: Api) -> str:
    """Return a new card transaction with `MANY` events."""
    purchase = str(api.authorize(api.active_card()["id"], 1_000)["id"])
    key = purchase.removeprefix("CardTransaction:")
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO card_transaction_events (card_transaction_id, sequence, customer_id,"
            " kind, amount, message_id, occurred_at, recorded_at)"
            " SELECT card_transaction_id, n, customer_id, 'AUTHORIZED', 1, message_id, occurred_at,"
            " recorded_at FROM card_transaction_events, generate_series(3, %s) AS n"
            " WHERE card_transaction_id = %s AND sequence = 1",
            [MANY, key],
        )
    return purchase


def test_ten_thousand_events_are_shown_in_pages(
    person: Person, database_url: DatabaseUrl, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    purchase = with_many_events(database_url, api)

    last = shown(person.get(f"/card-transactions/{purchase}"))
    middle = shown(person.get(f"/card-transactions/{purchase}", asOf=5_000))
    first = shown(person.get(f"/card-transactions/{purchase}", **{"from": 1}))

    assert events(last)[0::PAGE_EVENTS] == [str(MANY - PAGE_EVENTS + 1)]
    assert "5000" in events(middle)
    assert f"this JSON has those of this page, 1 to {PAGE_EVENTS} of {MANY}." in first
    assert figures(middle)["authorizedAmount"] == "59.98"
    assert len(events(first)) == PAGE_EVENTS
    assert max(map(len, (last, middle, first))) < 400_000
    assert "more than" not in last
    with monkeypatch.context() as fewer:
        fewer.setattr(purchase_history, "FOLD_LIMIT", 60)
        capped = shown(person.get(f"/card-transactions/{purchase}"))
    assert "has more than 60 events" in capped
    assert "this JSON has those of this page, 51 to 60 of 60 and more." in capped
    assert events(capped) == [str(number) for number in range(51, 61)]


@pytest.mark.usefixtures("root")  # For its worker.
def test_long_histories_of_a_platform_are_folded_one_by_one_beside_other_requests(
    config: ApiConfig, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold, watch, running = purchase_history.fold, LoopWatch(), list[int]()
    beside, threads = list[int](), set[int]()

    def noted(read_rows: UnfoldedHistory) -> Generator[None, None, PurchaseHistory]:
        beside.append(len(running))
        threads.add(threading.get_ident())
        running.append(1)
        try:
            return (yield from fold(read_rows))
        finally:
            running.pop()

    monkeypatch.setattr(purchase_history, "fold", noted)
    tenant = new_tenant(config.database_url)
    with server(config, watch=watch) as url, Api(url, tenant) as api, Person(url) as viewer:
        viewer.log_in(tenant)
        path = f"/card-transactions/{with_many_events(database_url, api)}"
        shown(viewer.get(path))  # Compiles the template.

        with ThreadPoolExecutor(4) as pool:
            pages = list(pool.map(lambda _: shown(viewer.get(path)), range(4)))
        watch.assert_not_blocked_by(lambda: shown(viewer.get(path)))

    assert {events(page)[-1] for page in pages} == {str(MANY)}
    assert len(beside) >= 6
    assert set(beside) == {0}
    assert len(threads) == 1


def test_a_thread_is_taken_only_for_bodies_that_are_parsed(
    person: Person, api: Api, database_url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, threads = purchase_messages.parse, list[int]()

    def noted(unparsed: UnparsedMessages) -> PurchaseMessages:
        threads.append(threading.get_ident())
        return parse(unparsed)

    monkeypatch.setattr(purchase_messages, "parse", noted)
    monkeypatch.setattr(purchase_messages, "REJECTIONS_READ", 1)
    purchase = api.authorize(api.active_card()["id"], 100)
    path = f"/card-transactions/{purchase['id']}"

    for _ in range(2):
        shown(person.get(path))
    reject_many(database_url, api, purchase["cardId"], purchase["issuerTransactionToken"], size=400)
    shown(person.get(path))

    of_loop, again, other = threads
    assert of_loop == again
    assert other != of_loop


def test_the_newest_deliveries_have_their_last_attempts(
    config: ApiConfig, api: Api, database_url: DatabaseUrl
) -> None:
    made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/refused"}))
    card = api.active_card()["id"]
    purchase = str(api.authorize(card, 100)["id"])
    api.clear(card, purchase, 100)
    platform, key = api.tenant.platform_id, parse_id("CardTransaction", purchase)

    async def about(connection: AsyncConnection) -> list[AttemptedDeliveries]:
        return [
            await deliveries.newest_about(
                connection, platform_id=platform, subject_id=key, limit=limit, attempts=2
            )
            for limit in (1, 99)
        ]

    eventually(lambda: len(in_snapshot(config, platform, about)[1].items) > 1)
    with psycopg.connect(database_url) as owner:
        inserted = owner.execute(
            "INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at,"
            " duration_ms, error) SELECT id, n, customer_id, now(), n, 'refused'"
            " FROM webhook_deliveries, generate_series(1001, 1003) AS n WHERE subject_id = %s"
            " RETURNING delivery_id",
            [str(key)],
        ).fetchall()
    newest, every = in_snapshot(config, platform, about)

    assert newest.items == every.items[:1]
    assert (newest.has_more, every.has_more) == (True, False)
    ids = [each.id for each in every.items]
    assert ids == sorted(ids, reverse=True)
    assert set(every.attempts) == set(ids)
    last = {
        tuple((each.number, each.duration_ms, each.error) for each in every.attempts[delivery])
        for (delivery,) in inserted
    }
    assert last == {((1002, 1002, "refused"), (1003, 1003, "refused"))}


# --- the list -------------------------------------------------------------------------------------


def names(page: str) -> list[str]:
    return re.findall(r'<a href="/console/card-transactions/(CardTransaction:[^"]+)">', page)


def test_the_command_of_the_list_has_its_filters(
    person: Person, stories: Stories, api: Api
) -> None:
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    query = {
        "status": "SETTLED",
        "cardId": tip["cardId"],
        "customerId": tip["customerId"],
        "accountId": tip["accountId"],
        "since": "2020-01-01",
        "until": "2100-01-01T00:00",
    }

    page = shown(person.get("/card-transactions", **query))

    found = ok(api.http.get(url_in(command_of(page))))["data"]
    assert [each["id"] for each in found] == names(page)
    assert stories.tip in names(page)


def test_the_command_of_the_list_selects_by_the_least_amount(
    person: Person,
    stories: Stories,  # noqa: ARG001 - has what is listed
) -> None:
    plain = command_of(shown(person.get("/card-transactions")))

    found = command_of(shown(person.get("/card-transactions", minAmount="9,000.00 usd")))

    assert found == (
        f'{plain} | jq \'.data |= map(select(.authorizedAmount.currency.code == "USD" and'
        " ([.authorizedAmount, .settledAmount, .refundedAmount | .amount // 0] | max) >= 900000))'"
    )


def test_filters_select_and_an_empty_field_is_none(
    person: Person, stories: Stories, api: Api
) -> None:
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    empty = {"status": "", "cardId": "", "customerId": "", "since": "", "minAmount": ""}

    def found(**query: object) -> list[str]:
        return names(shown(person.get("/card-transactions", **(empty | query))))

    assert stories.tip in found()
    assert stories.exception in found(status="EXCEPTION")
    assert stories.tip not in found(status="EXCEPTION")
    assert stories.tip in found(cardId=tip["cardId"], customerId=tip["customerId"])
    assert stories.declined not in found(cardId=tip["cardId"])
    assert stories.tip in found(accountId=tip["accountId"])
    assert stories.declined in found(minAmount="9,000.00 usd")
    assert stories.tip not in found(minAmount="15.01 USD")
    assert stories.tip not in found(minAmount="1 EUR")
    assert found(since="2999-01-01") == []
    assert stories.tip in found(until="2999-01-01T00:00")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "SOLD"),
        ("cardId", "Customer:1"),
        ("minAmount", "12.505 USD"),
        ("minAmount", "12.50"),
        ("minAmount", "9" * 30 + " USD"),
        ("minAmount", "1234567890123.000000000000000001 USD"),
        ("since", "yesterday"),
        ("since", "1969-12-31"),
        ("cursor", "forged"),
        ("colour", "red"),
    ],
)
def test_a_filter_that_is_not_understood_is_named(person: Person, name: str, value: str) -> None:
    page = shown(person.get("/card-transactions", **{name: value}), 400)

    assert name in page


def test_pages_are_by_cursor_and_keep_their_filters(person: Person, api: Api) -> None:
    card = api.active_card()["id"]
    bought = [api.authorize(card, 100)["id"] for _ in range(5)]

    first = shown(person.get("/card-transactions", cardId=card, limit=3))
    [older] = re.findall(r'rel="next" href="([^"]+)"', first)
    second = shown(person.http.get(unescape(older)))
    edited = unescape(older).replace(card.partition(":")[2], str(new_id()))

    assert names(first) + names(second) == bought[::-1]
    assert "Newest" in second
    assert 'rel="next"' not in second
    shown(person.http.get(edited), 400)
