"""Webhooks: endpoints, deliveries, and what is done with them by forms."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import NoReturn

import httpx2
import psycopg
import pytest
import structlog
from standardwebhooks import Webhook
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.snapshot_connections import (
    SnapshotConnections,
    SnapshotError,
    SnapshotProblem,
)
from cardledger.webhooks.receiver import Reply
from tests.api.support import Api, made, new_tenant, ok
from tests.console.fields import Fields
from tests.console.person import Person, command_of, shown, url_in
from tests.console.test_accounts import main_of
from tests.receiver import Receiver
from tests.waiting import eventually

HOSTILE = b"<script>alert(1)</script>\xe2\x80\xae"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything; tests of signatures check them."""
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        yield receiver


@pytest.fixture
def api(root: str, config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(config.database_url)) as client:
        yield client


@pytest.fixture
def endpoint(api: Api, receiver: Receiver) -> str:
    """An endpoint at `receiver`; its first TEST has arrived."""
    created = made(api.post("/webhooks/endpoints", {"url": receiver.url, "description": "books"}))
    receiver.wait_for(lambda arrivals: len(arrivals) >= 1)
    return str(created["id"])


def sent(person: Person, **more: str) -> dict[str, str]:
    page = shown(person.get("/webhooks"))
    return {
        "form_token": person.hidden(page, "form_token"),
        "idempotency_key": forms.new_key(),
        **more,
    }


def act(person: Person, endpoint: str, name: str, **fields: str) -> httpx2.Response:
    form = sent(person, as_of=as_of(person, endpoint), **fields)
    return person.post(f"/webhooks/endpoints/{endpoint}/{name}", form)


def as_of(person: Person, endpoint: str) -> str:
    """Return which state of the endpoint a form of its page belongs to."""
    return person.hidden(shown(person.get(f"/webhooks/endpoints/{endpoint}")), "as_of")


def away(*_: object) -> NoReturn:
    raise SnapshotError(SnapshotProblem.AWAY)


def followed(person: Person, answer: httpx2.Response) -> str:
    assert answer.status_code == 303, answer.text
    return shown(person.http.get(answer.headers["location"]))


def delivery(api: Api, state: str, **query: object) -> str:
    """Return the newest delivery, once it has the state."""

    def look() -> str | None:
        found = ok(api.get("/webhooks/deliveries", **query))["data"]
        return str(found[0]["id"]) if found and found[0]["state"] == state else None

    return eventually(look)


def failing(api: Api, endpoint: str, purchase: str) -> str:
    """Return the newest delivery about a purchase, once two attempts of it have failed."""

    def look() -> str | None:
        found = ok(api.get("/webhooks/deliveries", subjectId=purchase, endpointId=endpoint))["data"]
        return str(found[0]["id"]) if found and found[0]["attempts"] > 1 else None

    return eventually(look)


def test_a_platform_without_endpoints_is_told_how_to_make_one(person: Person) -> None:
    page = shown(person.get("/webhooks"))

    assert "No endpoint." in page
    assert "No webhook yet." in page


def test_endpoints_and_deliveries_are_listed(person: Person, api: Api, endpoint: str) -> None:
    card = api.active_card()["id"]
    purchase = api.authorize(card, 1_250)["id"]
    delivery(api, "DELIVERED", subjectId=purchase)

    front = shown(person.get("/webhooks"))
    about = shown(person.get("/webhooks/deliveries", subjectId=purchase))
    none = shown(person.get("/webhooks/deliveries", state="FAILED"))

    assert "books" in front
    assert endpoint in front
    assert about.count("CARD_TRANSACTION.AUTHORIZED</a>") == 1
    for name in (purchase, endpoint):  # Shown by their ends, and copied whole.
        assert f'title="{name}"><code>…{name[-12:]}</code></a>' in about
        assert f'data-copy="{name}"' in about
    assert "No delivery matches." in none


def test_deliveries_have_pages(person: Person, api: Api, endpoint: str) -> None:
    del endpoint
    card = api.active_card()["id"]
    for _ in range(4):
        api.authorize(card, 100)

    first = shown(person.get("/webhooks/deliveries", limit=2))
    link = re.search(r'rel="next" href="/console([^"]+)"', first)
    assert link is not None
    second = shown(person.http.get(ROOT + unescape(link[1])))
    edited = re.sub("cursor=.", "cursor=!", unescape(link[1]))

    rows = [
        re.findall(r"deliveries/(WebhookDelivery:[0-9a-f-]+)", page) for page in (first, second)
    ]
    assert [len(each) for each in rows] == [2, 2]
    assert not set(rows[0]) & set(rows[1])
    shown(person.http.get(ROOT + edited), 400)


def test_the_command_has_every_filter(person: Person, api: Api, endpoint: str) -> None:
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]
    key = delivery(api, "DELIVERED", subjectId=purchase)
    query = {
        "endpointId": endpoint,
        "subjectId": purchase,
        "state": "DELIVERED",
        "type": "CARD_TRANSACTION.AUTHORIZED",
        "since": "2020-01-01T12:00",
        "until": "2100-01-01",
    }

    url = url_in(command_of(shown(person.get("/webhooks/deliveries", **query))))

    params = httpx2.URL(url).params
    assert set(params) == {*query, "limit"}
    assert params["limit"] == "50"
    assert [each["id"] for each in ok(api.http.get(url))["data"]] == [key]


def attempt(database_url: DatabaseUrl, key: str, numbers: range) -> None:
    """Record attempts of a delivery, beside its first one."""
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at,"
            " duration_ms, status) SELECT a.delivery_id, a.number + n, a.customer_id,"
            " a.attempted_at, 1, 500 FROM webhook_attempts a, unnest(%s::integer[]) AS n"
            " WHERE a.delivery_id = %s AND a.number = 1",
            [list(numbers), key.partition(":")[2]],
        )


def test_attempts_have_pages(
    person: Person, api: Api, receiver: Receiver, endpoint: str, database_url: DatabaseUrl
) -> None:
    receiver.reply_always(Reply(status=500))
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]
    key = failing(api, endpoint, purchase)
    few = shown(person.get(f"/webhooks/deliveries/{key}"))
    attempt(database_url, key, range(1000, 1024))
    more = shown(person.get(f"/webhooks/deliveries/{key}"))
    attempt(database_url, key, range(1024, 1060))

    first = shown(person.get(f"/webhooks/deliveries/{key}"))
    second = shown(person.get(f"/webhooks/deliveries/{key}", before=numbers(first)[-1]))

    note = "The API answers with the last 20 attempts; this JSON has those of this page."
    assert [note in page for page in (few, more, first, second)] == [False, True, True, True]
    assert len(ok(api.get(f"/webhooks/deliveries/{key}"))["attemptList"]) == 20
    assert 25 <= len(numbers(more)) < 50
    assert numbers(first) == list(range(1060, 1010, -1))
    assert numbers(second)[:10] == list(range(1010, 1000, -1))
    assert numbers(second)[-1] == 1
    assert f'rel="next" href="/console/webhooks/deliveries/{key}?before=1011"' in first
    assert 'rel="next"' not in second
    shown(person.get(f"/webhooks/deliveries/{key}", before=2**31), 400)
    of_purchase = shown(person.get(f"/card-transactions/{purchase}"))
    assert re.findall(r'class="attempt"[^>]*>(\d+):', of_purchase) == [
        str(number) for number in range(1051, 1061)
    ]
    assert "… <time" in of_purchase
    assert re.search(r'<time class="attempt" datetime="[^"]+Z" title="[^"]+Z">', of_purchase)


def numbers(page: str) -> list[int]:
    attempts = page.partition('id="attempts-title"')[2].partition("</table>")[0]
    return [int(each) for each in re.findall(r'<th scope="row">(\d+)</th>', attempts)]


def test_a_delivery_shows_payload_and_every_attempt_as_text(
    person: Person, api: Api, receiver: Receiver, endpoint: str
) -> None:
    receiver.reply_always(Reply(status=500, body=HOSTILE))
    purchase = api.authorize(api.active_card()["id"], 1_250, descriptor="<b>BISTRO</b>\u202e")["id"]
    key = failing(api, endpoint, purchase)

    page = shown(person.get(f"/webhooks/deliveries/{key}"))

    assert page.count('<b class="bad">500</b>') > 1
    assert page.index("Send again") < page.index('id="attempts-title"'), "not moved by attempts"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩" in page
    assert "<script>alert" not in page
    assert "&lt;b&gt;BISTRO&lt;/b&gt;\\u202e" in page
    assert "\u202e" not in page
    assert "pending</span>" in page


def test_a_failing_delivery_is_sent_again_at_once(
    person: Person, api: Api, receiver: Receiver, endpoint: str
) -> None:
    receiver.reply_always(Reply(status=503))
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]
    key = failing(api, endpoint, purchase)
    receiver.reply_always(Reply())
    form = sent(person)

    for _ in range(2):
        followed(person, person.post(f"/webhooks/deliveries/{key}/retry", form))
    delivery(api, "DELIVERED", subjectId=purchase)

    assert "delivered</span>" in shown(person.get(f"/webhooks/deliveries/{key}"))


def test_a_test_leads_to_its_result(person: Person, receiver: Receiver, endpoint: str) -> None:
    receiver.reply_always(Reply(status=418, body=HOSTILE))

    page = followed(person, act(person, endpoint, "test"))

    assert '<b class="bad">418</b>' in page
    assert "<script>alert" not in page


def test_an_endpoint_is_disabled_and_enabled(person: Person, endpoint: str) -> None:
    disabled = followed(person, act(person, endpoint, "disable"))
    enabled = followed(person, act(person, endpoint, "enable"))

    assert "disabled</span>" in disabled
    assert "enabled</span>" in enabled


def test_a_form_that_is_sent_again_changes_the_endpoint_once(
    person: Person, api: Api, endpoint: str
) -> None:
    form = sent(person, as_of=as_of(person, endpoint))
    path = f"/webhooks/endpoints/{endpoint}/disable"
    answers = [person.post(path, form) for _ in range(2)]
    followed(person, act(person, endpoint, "enable"))

    again = shown(person.post(path, form), 409)

    assert [each.status_code for each in answers] == [303, 303]
    assert "The endpoint has changed since this form was shown" in again
    assert ok(api.get(f"/webhooks/endpoints/{endpoint}"))["state"] == "ENABLED"


def test_a_change_is_compared_with_the_endpoint_of_the_primary(
    person: Person, api: Api, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = sent(person, as_of=as_of(person, endpoint))

    monkeypatch.setattr(SnapshotConnections, "snapshot", away)
    answer = person.post(f"/webhooks/endpoints/{endpoint}/disable", form)

    assert answer.status_code == 303, answer.text
    assert ok(api.get(f"/webhooks/endpoints/{endpoint}"))["state"] == "DISABLED"


def test_what_an_endpoint_has_missed_is_replayed(person: Person, api: Api, endpoint: str) -> None:
    followed(person, act(person, endpoint, "disable"))
    purchase = api.authorize(api.active_card()["id"], 1_250)["id"]
    delivery(api, "NO_ENDPOINT", subjectId=purchase)
    followed(person, act(person, endpoint, "enable"))

    page = followed(person, act(person, endpoint, "replay", since="2020-01-01T00:00"))

    assert re.search(r"[1-9][0-9]* deliver(y is|ies are) sent again", page)
    delivery(api, "DELIVERED", subjectId=purchase, endpointId=endpoint)


@pytest.mark.parametrize("since", ["yesterday", "1969-12-31T12:00", '"><b>'])
def test_a_replay_since_no_time_stays_in_its_form(
    person: Person, endpoint: str, since: str
) -> None:
    page = shown(act(person, endpoint, "replay", since=since), 400)

    fields = Fields.of_page(page)
    assert fields.of["since"].value == since
    assert fields.wrong()["since"].startswith("Must be a time in UTC")
    assert "Not done Since (UTC) must be a time in UTC" in fields.alert
    assert f'action="{ROOT}/webhooks/endpoints/{endpoint}/replay"' in page


def test_the_rest_of_a_replay_is_still_that_after_a_wrong_time(
    person: Person, endpoint: str
) -> None:
    after = f"WebhookDelivery:{new_id()}"

    page = shown(act(person, endpoint, "replay", since="soon", after=after), 400)

    assert person.hidden(page, "after") == after
    assert "Replay the rest" in page


def test_a_rotated_secret_is_shown_once(person: Person, endpoint: str) -> None:
    shown(act(person, endpoint, "rotate-secret"), 400)
    form = sent(person, as_of=as_of(person, endpoint), confirmed="yes")
    path = f"/webhooks/endpoints/{endpoint}/rotate-secret"

    first, second = shown(person.post(path, form)), shown(person.post(path, form))
    later = shown(person.get(f"/webhooks/endpoints/{endpoint}"))

    assert "whsec_" in first
    assert "whsec_" not in second + later
    assert "the secret was shown once" in second


def test_a_rotation_is_not_repeated_by_the_form_of_another_person(
    root: str, config: ApiConfig, api: Api, receiver: Receiver, endpoint: str
) -> None:
    path = f"/webhooks/endpoints/{endpoint}/rotate-secret"
    with Person(root) as first, Person(root) as second:
        for person in (first, second):
            person.log_in(new_tenant(config.database_url, of=api.tenant))
        stale = sent(second, as_of=as_of(second, endpoint), confirmed="yes")
        page = shown(act(first, endpoint, "rotate-secret", confirmed="yes"))

        answer = shown(second.post(path, stale))

    [secret] = set(re.findall(r"whsec_[\w+/=-]+", page))
    assert "the secret was shown once" in answer
    assert "whsec_" not in answer
    ok(api.post("/webhooks/test", {"endpointId": endpoint}))
    last = receiver.received[-1]
    assert Webhook(secret).verify(last.body, last.headers)


def test_forms_of_one_state_that_are_sent_at_once_are_one_rotation(
    person: Person, endpoint: str
) -> None:
    state = as_of(person, endpoint)
    rotations = [sent(person, as_of=state, confirmed="yes") for _ in range(4)]
    path = f"/webhooks/endpoints/{endpoint}/rotate-secret"

    with ThreadPoolExecutor(len(rotations)) as pool:
        pages = [shown(each) for each in pool.map(lambda form: person.post(path, form), rotations)]

    assert sum("whsec_" in page for page in pages) == 1
    assert sum("the secret was shown once" in page for page in pages) == 3


def test_a_rotation_of_an_endpoint_that_has_changed_otherwise_is_refused(
    person: Person, endpoint: str
) -> None:
    path = f"/webhooks/endpoints/{endpoint}/rotate-secret"
    stale = sent(person, as_of=as_of(person, endpoint), confirmed="yes")
    followed(person, act(person, endpoint, "disable"))

    answers = [
        shown(person.post(path, form), 409)
        for form in (stale, stale | {"as_of": "yesterday"}, stale | {"as_of": ""})
    ]

    assert all("The endpoint has changed since this form was shown" in each for each in answers)


def test_another_rotation_says_that_it_replaces_the_secret_of_the_last(
    person: Person, endpoint: str
) -> None:
    page = f"/webhooks/endpoints/{endpoint}"
    before = shown(person.get(page))

    shown(act(person, endpoint, "rotate-secret", confirmed="yes"))

    assert "Both sign for 24 hours." in before
    after = shown(person.get(page))
    assert "less than ten minutes ago" in after
    assert "Both sign for 24 hours." not in after


def test_a_rotated_secret_is_shown_when_the_page_cannot_be_read(
    person: Person, api: Api, receiver: Receiver, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = sent(person, as_of=as_of(person, endpoint), confirmed="yes")

    monkeypatch.setattr(SnapshotConnections, "snapshot", away)
    page = shown(person.post(f"/webhooks/endpoints/{endpoint}/rotate-secret", form))

    [secret] = set(re.findall(r"whsec_[\w+/=-]+", page))
    assert "The deliveries could not be read." in page
    assert "<form" not in main_of(page)  # They would belong to the endpoint as it was before.
    ok(api.post("/webhooks/test", {"endpointId": endpoint}))
    last = receiver.received[-1]
    assert Webhook(secret).verify(last.body, last.headers)


def test_ids_of_other_platforms_are_unknown(
    person: Person, other_platform: Api, receiver: Receiver
) -> None:
    created = made(other_platform.post("/webhooks/endpoints", {"url": receiver.url}))
    foreign = delivery(other_platform, "DELIVERED", endpointId=created["id"])
    unknown = "019542f5-b3e7-7d02-0000-00000000a1b4"

    paths = [
        f"/webhooks/endpoints/{created['id']}",
        f"/webhooks/endpoints/WebhookEndpoint:{unknown}",
        f"/webhooks/deliveries/{foreign}",
        f"/webhooks/deliveries/WebhookDelivery:{unknown}",
    ]
    form = sent(person, confirmed="yes", since="2020-01-01T00:00")
    posts = [
        *(f"{paths[0]}/{name}" for name in ("test", "rotate-secret", "replay", "disable")),
        f"{paths[2]}/retry",
    ]

    pages = [shown(person.get(path), 404) for path in paths]
    pages += [
        shown(person.post(path, form | {"idempotency_key": forms.new_key()}), 404) for path in posts
    ]

    assert len({re.sub(r'value="[^"]*"', "", page) for page in pages}) == 1
    assert ok(other_platform.get(paths[0].removeprefix("")))["state"] == "ENABLED"


def test_a_token_without_manage_sees_and_changes_nothing(
    root: str, config: ApiConfig, api: Api, endpoint: str
) -> None:
    tenant = new_tenant(config.database_url, permissions=("VIEW", "TRANSACT"), of=api.tenant)
    with Person(root) as viewer:
        viewer.log_in(tenant)
        page = shown(viewer.get(f"/webhooks/endpoints/{endpoint}"))
        form = sent(viewer, confirmed="yes")
        statuses = {
            viewer.post(f"/webhooks/endpoints/{endpoint}/{name}", form).status_code
            for name in ("test", "rotate-secret", "replay", "disable")
        }

    assert "Rotate" not in page
    assert statuses == {403}


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_no_other_site_changes_an_endpoint(person: Person, endpoint: str, origin: str) -> None:
    form = sent(person, confirmed="yes", since="2020-01-01T00:00")

    for name in ("test", "rotate-secret", "replay", "disable"):
        path = f"/webhooks/endpoints/{endpoint}/{name}"
        shown(person.post(path, form, Origin=origin), 403)

    assert "enabled</span>" in shown(person.get(f"/webhooks/endpoints/{endpoint}"))


def test_an_action_is_logged_with_its_token_and_request_id(person: Person, endpoint: str) -> None:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    try:
        with capture_logs(processors=[merge_contextvars]) as logs:
            answer = act(person, endpoint, "disable")
            eventually(lambda: [line for line in logs if line.get("method") == "POST"])
    finally:
        structlog.configure(**before)

    [line] = [line for line in logs if line.get("method") == "PATCH"]
    assert line["caller"].startswith("Token:")
    assert line["path"].endswith(endpoint)
    assert line["request_id"] == answer.headers["X-Request-Id"]
