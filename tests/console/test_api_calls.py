"""Every page shows its JSON and the command of it; a call that was made is repeated by its command.

A new page has an address in `addresses`, or a reason in `WITHOUT`.
"""

import json
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from html import unescape
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest

from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.api.console.html.rendering import ApiCall
from cardledger.embedded.servers import DatabaseUrl
from tests.api.support import Api, made, ok
from tests.console.addresses import WITHOUT, addresses_of, paths
from tests.console.person import Person, command_of, shown
from tests.console.stories import Stories, play

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_JSON: Final = re.compile(
    r'<pre class="json"[^>]*aria-label="JSON of this page"><code>(.*?)</code>', re.DOTALL
)


def document_of(page: str) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of a page."""
    [text] = _JSON.findall(page)
    return json.loads(unescape(text))


@pytest.fixture(scope="module")
def stories(api: Api) -> Stories:
    made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/refused"}))
    return play(api)


@pytest.fixture
def addresses(api: Api, person: Person, stories: Stories) -> Mapping[str, str]:
    return addresses_of(api, person, stories)


def test_every_page_has_its_json_and_a_command_that_answers(
    person: Person, api: Api, addresses: Mapping[str, str]
) -> None:
    for path, address in addresses.items():
        page = shown(person.http.get(address))
        assert 'id="curl"' in page, f"{path} has no command"
        assert document_of(page), f"{path} has no JSON"
        program, *words = shlex.split(command_of(page).partition(" | ")[0])
        assert program in {"curl", "cardledger"}, path
        if program == "curl":
            assert api.http.get(words[-1]).status_code == 200, f"{path}: {words}"
    assert set(WITHOUT) <= set(paths())


def test_what_the_api_does_not_answer_is_noted(
    person: Person, api: Api, stories: Stories, addresses: Mapping[str, str]
) -> None:
    def page(path: str) -> str:
        return shown(person.http.get(addresses[f"{ROOT}{path}"]))

    assert "the other figures are counted for this page" in page("")
    assert "The API has no search" in page("/search")
    assert "the rest is of this page only" in page("/system")
    assert "The command lists the latest cards." in page("/simulator")
    fund = page("/exceptions/{card_transaction_id}/fund")
    assert "The API returns the card transaction; since when it is due" in fund
    owed = ok(api.get(f"/transactions/{stories.exception}"))
    shown_by_fund = document_of(fund)
    assert {name: shown_by_fund[name] for name in owed} == owed
    assert shown_by_fund["missingAmount"]["amount"] == 1_500


def test_the_json_of_an_account_has_its_statement(
    person: Person, api: Api, stories: Stories
) -> None:
    account = ok(api.get(f"/transactions/{stories.tip}"))["accountId"]

    page = shown(person.get(f"/accounts/{account}", before=3))

    document = document_of(page)
    lines = document.pop("statement")
    assert [each["id"] for each in document.pop("cards")] == [
        ok(api.get(f"/transactions/{stories.tip}"))["cardId"]
    ]
    assert document.pop("hasMoreCards") is False
    assert document == ok(api.get(f"/internal-accounts/{account}"))
    assert [(each["entry"], each["event"], each["amount"]["amount"]) for each in lines] == [
        (2, "PULLED", -1_250),
        (1, "DEPOSITED", 50_000),
    ]
    [deposit] = ok(api.get("/transactions", accountIdentifier=account, type="INCOMING"))["data"]
    assert [each["subject"] for each in lines] == [
        {"kind": "CARD_TRANSACTION", "id": stories.tip, "source": None, "reference": None},
        {"kind": "DEPOSIT", "id": deposit["id"], "source": None, "reference": None},
    ]
    command = f"cardledger report statement --platform {api.tenant.platform_id} --account {account}"
    assert command in page


def test_the_json_of_the_overview_and_the_system_have_what_they_show(
    person: Person,
    stories: Stories,
    database_url: DatabaseUrl,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO book_verification_runs (began_at, ended_at, differences)"
            " VALUES (%s, %s, 3)",
            [datetime(2026, 1, 30, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)],
        )
    overview = document_of(shown(person.get("")))
    system = document_of(shown(person.get("/system")))

    [due] = overview["openExceptions"]
    assert (due["count"], due["dueAmount"]["amount"]) == (1, 2_500)
    verified = {"endedAt": "2026-01-31T00:00:00.000000Z", "differenceCount": 3}
    assert overview["lastVerification"] == verified
    assert stories.tip in {each["id"] for each in overview["data"]}
    assert {each["queue"] for each in overview["waiting"]} >= {"outbox", "webhooks to send"}
    assert system["settings"]["CARDLEDGER_CONSOLE"] == "act"
    assert system["readiness"]["postgresql"] == "answers"


def test_what_a_page_lists_is_in_its_json(person: Person, addresses: Mapping[str, str]) -> None:
    missing = {}
    for path, address in addresses.items():
        page = shown(person.http.get(address)).partition("<main")[2]
        content = page.partition('<section class="api"')[0]
        tables = "".join(re.findall(r"<tbody.*?</tbody>", content, re.DOTALL))
        ids = set(re.findall(r"[A-Z][A-Za-z]+:([0-9a-f]{8}-[0-9a-f-]{27})", tables))
        missing[path] = sorted(ids - set(_UUID.findall(json.dumps(document_of(page)))))

    assert not {path: ids for path, ids in missing.items() if ids}


# --- calls that were made -------------------------------------------------------------------------


def test_a_key_is_one_word_of_a_shell() -> None:
    key = 'it\'s `id` $(id) "x" \\ ;'

    call = ApiCall(path="/x", document=None, client_id="a", root="http://b", body={}, key=key)
    plain = ApiCall(path="/x", document=None, client_id="a", root="http://b", body={})

    words = shlex.split(call.curl)
    assert words[words.index("-H") + 1] == f"Idempotency-Key: {key}"
    assert "Idempotency-Key" not in plain.curl


def repeated(api: Api, page: str) -> httpx2.Response:
    """Run the command of the call that a page says was just made."""
    [command] = re.findall(r'aria-label="The API call just made"><code>(.*?)</code>', page)
    return run(api, unescape(command))


def run(api: Api, command: str) -> httpx2.Response:
    """Run the command of a call that was made; it has an Idempotency-Key."""
    words = shlex.split(command)
    headers = dict(
        words[place + 1].split(": ", 1) for place, word in enumerate(words) if word == "-H"
    )
    assert set(headers) == {"Idempotency-Key", "Content-Type"}
    body = words[words.index("-d") + 1]
    return api.http.post(words[3], content=body.encode(), headers=headers)


def available(api: Api, account: str) -> int:
    return int(ok(api.get(f"/internal-accounts/{account}"))["balance"]["amount"])


def test_the_command_of_a_step_repeats_it_and_applies_nothing_twice(
    person: Person, api: Api
) -> None:
    front = shown(person.get("/simulator"))
    token = person.hidden(front, "form_token")
    fields = {"form_token": token, "idempotency_key": forms.new_key()}
    place = person.post("/simulator/stories/tip", fields).headers["location"]
    page = shown(person.http.get(place))
    account = person.hidden(page, "account")
    before = available(api, account)

    answer = repeated(api, page)

    assert ok(answer)["id"] == person.hidden(page, "purchase")
    assert available(api, account) == before
    assert urlsplit(place).path == f"{ROOT}/simulator/stories/tip"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("authorization", {"amount": "12.50 USD", "descriptor": "BISTRO"}),
        ("fund", {"amount": "5.00 USD"}),
    ],
)
def test_the_command_of_a_form_repeats_it_and_applies_nothing_twice(
    person: Person, api: Api, name: str, fields: dict[str, str]
) -> None:
    card = api.active_card(balance=10_000)
    [account] = card["fundingSources"]
    form = shown(person.get(f"/simulator/cards/{card['id']}"))
    sent = {
        "form_token": person.hidden(form, "form_token"),
        "idempotency_key": forms.new_key(),
        "account": account,
        **fields,
    }
    made_by_form = person.post(f"/simulator/cards/{card['id']}/{name}", sent)
    page = shown(person.http.get(made_by_form.headers["location"]))
    before = available(api, account)

    ok(repeated(api, page))

    assert available(api, account) == before
    purchases = ok(api.get("/transactions", cardId=card["id"]))["data"]
    assert len(purchases) == (0 if name == "fund" else 1)


def test_the_commands_of_a_cardholder_make_the_same_one(person: Person, api: Api) -> None:
    fields = {
        "form_token": person.hidden(shown(person.get("/simulator")), "form_token"),
        "idempotency_key": forms.new_key(),
        "name": "Grace <i>",
        "amount": "25.00 USD",
        "card_ending": "005",
    }
    place = person.post("/simulator/cardholders", fields).headers["location"]
    page = shown(person.http.get(place))
    commands = re.findall(r'aria-label="The API calls just made, \d"><code>(.*?)</code>', page)

    customer, deposit, card = (run(api, unescape(each)) for each in commands)

    made_before = ok(api.get(f"/cards/{made(card)['id']}"))
    assert urlsplit(place).path.endswith(made_before["id"])
    assert made_before["cardholderId"] == made(customer)["id"]
    assert ok(deposit)["balance"]["amount"] == 2_500
    assert available(api, made_before["fundingSources"][0]) == 2_500
    assert "<i>" not in page
    shown(person.http.get(place.replace("balance=2500", "balance=x")), 400)


def test_a_key_in_an_address_is_one_that_may_be(person: Person, api: Api) -> None:
    card = api.active_card()["id"]
    query = {"made": "authorization", "amount": "1 USD", "descriptor": "SHOP"}

    shown(person.get(f"/simulator/cards/{card}", **query, key="two words"), 400)
    assert "Idempotency-Key" not in shown(person.get(f"/simulator/cards/{card}", **query))
