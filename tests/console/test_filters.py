"""Fields of filters and forms: what is read as an amount, and what is refused."""

import re
from datetime import UTC, datetime
from typing import Final, NoReturn

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from cardledger.api.app import ApiConfig
from cardledger.api.console import ROOT
from cardledger.api.console.access.refusals import form_page_at
from cardledger.api.console.application import PAGES
from cardledger.api.console.lists.filters import Amount, LastMoment, NamedAmount
from cardledger.ledger.storage.snapshot_connections import (
    SnapshotConnections,
    SnapshotError,
    SnapshotProblem,
)
from tests.api.support import Api, new_tenant
from tests.console.fields import Fields
from tests.console.person import Person, shown
from tests.console.test_accounts import main_of

AMOUNTS: TypeAdapter[NamedAmount] = TypeAdapter(Amount)
LAST_MOMENTS: TypeAdapter[datetime] = TypeAdapter(LastMoment)

REFUSED: Final = {
    "/card-transactions": ("minAmount", "12,50 USD", "At least", "must be an amount"),
    "/exceptions": ("accountId", "12", "Account", "must be of the form InternalAccount:"),
    "/customers": ("since", "yesterday", "From (UTC)", "must be a time in UTC"),
    "/accounts": ("currency", "dollars", "Currency", "must"),
    "/cards": ("customerId", "Card:1", "Customer", "must be of the form Customer:"),
    "/journal": ("until", "1969-12-31T00:00", "To (UTC)", "must be a time in UTC from 1970"),
    "/webhooks/deliveries": ("subjectId", "x", "About", "must"),
}
"""Every list: a filter that it refuses, the label of that, and what is said."""


@pytest.mark.parametrize(
    ("text", "minor_units", "currency"),
    [
        ("12.50 USD", 1_250, "USD"),
        ("12.5usd", 1_250, "USD"),
        ("1,234.5 USD", 123_450, "USD"),
        ("1,234,567.89 USD", 123_456_789, "USD"),
        ("1234567.89 USD", 123_456_789, "USD"),
        ("0.01 USD", 1, "USD"),
        ("1,500 EUR", 150_000, "EUR"),
        ("1,500 JPY", 1_500, "JPY"),
        ("1500 JPY", 1_500, "JPY"),
        ("1.500 KWD", 1_500, "KWD"),
        ("1,500 KWD", 1_500_000, "KWD"),
        ("1,234.567 KWD", 1_234_567, "KWD"),
        ("92,233,720,368,547,758.07 USD", 2**63 - 1, "USD"),
    ],
)
def test_a_comma_separates_groups_of_three_digits(
    text: str, minor_units: int, currency: str
) -> None:
    read = AMOUNTS.validate_python(text)

    assert (read.minor_units, read.currency) == (minor_units, currency)


@pytest.mark.parametrize(
    "text",
    [
        "1,50 EUR",
        "1,5 EUR",
        "1,5000 EUR",
        "12,34,567 EUR",
        "1234,567 EUR",
        "0,500 EUR",
        "1,,234 EUR",
        "1,234, EUR",
        ",234 EUR",
        "1.234,50 EUR",
        "1.234.567 EUR",
        "1.50,000 EUR",
        "1,50 JPY",
        "1,50 KWD",
    ],
)
def test_another_comma_is_refused_with_how_amounts_are_written(text: str) -> None:
    with pytest.raises(ValidationError, match="decimals follow a point, and a comma only"):
        AMOUNTS.validate_python(text)


@pytest.mark.parametrize("text", ["1.5 JPY", "1,234.5 JPY", "1.2345 KWD", "1.505 EUR"])
def test_more_decimals_than_the_currency_has_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must have at most [0-3] decimals"):
        AMOUNTS.validate_python(text)


def test_a_filter_says_how_amounts_are_written(person: Person) -> None:
    page = shown(person.get("/card-transactions", minAmount="1,50 EUR"), 400)

    assert "such as 1,234.50 USD: decimals follow a point" in page
    shown(person.get("/card-transactions", minAmount="1,500.00 EUR"))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2026-01-31", (23, 59, 59)),
        ("2026-01-31T12:00", (12, 0, 0)),
        ("2026-01-31T12:00:30", (12, 0, 30)),
        ("2026-01-31 12:00Z", (12, 0, 0)),
    ],
)
def test_until_a_day_or_a_second_is_until_its_end(text: str, end: tuple[int, int, int]) -> None:
    read = LAST_MOMENTS.validate_python(text)

    assert read == datetime(2026, 1, 31, *end, 999_999, tzinfo=UTC)


# --- a filter that is refused ---------------------------------------------------------------------


def unread(*_: object) -> NoReturn:
    raise AssertionError("rows are read")


def test_every_list_is_here() -> None:
    views = [route for each in PAGES for route in each.routes if isinstance(route, APIRoute)]

    lists = {
        route.path for route in views if (page := form_page_at(route.endpoint)) and page.is_list
    }

    assert lists == {f"{ROOT}{path}" for path in REFUSED}


@pytest.mark.parametrize("path", REFUSED)
def test_a_refused_filter_stays_in_the_form_and_nothing_is_read(
    person: Person, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value, label, message = REFUSED[path]
    before = Fields.of_page(shown(person.get(path)))
    monkeypatch.setattr(SnapshotConnections, "snapshot", unread)

    page = shown(person.get(path, **{name: value}), 400)

    fields = Fields.of_page(page)
    assert fields.filled() == before.filled() | {name: value}
    assert list(fields.wrong()) == [name]
    assert fields.of[name].label == label
    assert fields.wrong()[name].startswith("M" + message[1:])
    assert f"That cannot be shown {label} {message}" in fields.alert
    assert f'<a href="#{name}">{label}</a>' in page
    assert "Nothing is listed until the filter is corrected." in page
    assert not [part for part in ("<table", 'id="api-title"', 'class="pages"') if part in page]
    assert f'href="{ROOT}{path}"' in page  # Clears the filters.


def test_all_that_was_typed_stays(person: Person, api: Api) -> None:
    typed = {
        "status": "SETTLED",
        "cardId": api.active_card()["id"],
        "since": "2026-01-31T12:00",
        "until": "2026-02-28",
        "minAmount": "12,50 USD",
    }

    fields = Fields.of_page(shown(person.get("/card-transactions", **typed), 400))

    kept = {name: value for name, value in fields.filled().items() if value}
    assert kept == typed | {"until": "2026-02-28T23:59:59"}  # As a field for times has a day.
    assert list(fields.wrong()) == ["minAmount"]


@pytest.mark.parametrize("path", REFUSED)
def test_a_form_with_nothing_in_it_is_the_whole_list(
    root: str, config: ApiConfig, path: str
) -> None:
    with Person(root) as visitor:
        visitor.log_in(new_tenant(config.database_url))  # Which has nothing to list.
        whole = main_of(shown(visitor.get(path)))
        names = Fields.of_page(whole).of

        filtered = main_of(shown(visitor.get(path, **dict.fromkeys(names, ""))))

    [said] = re.findall(r'(?s)<div class="empty">.*?</div>', whole)
    assert said in filtered


def test_each_wrong_field_is_named(person: Person) -> None:
    typed = {"since": "soon", "status": "SOLD", "minAmount": "x", "colour": "red", "limit": "0"}

    page = shown(person.get("/card-transactions", **typed), 400)

    fields = Fields.of_page(page)
    assert list(fields.wrong()) == ["status", "since", "minAmount"]
    assert {name: fields.of[name].value for name in fields.wrong()} == {
        "since": "soon",
        "status": "SOLD",
        "minAmount": "x",
    }
    for words in ("From (UTC) must be a time", "Status has no such choice", "At least must be an"):
        assert words in fields.alert
    assert "colour is not a known field; remove it" in fields.alert
    assert "limit must be" in fields.alert


def test_what_was_typed_is_text(person: Person) -> None:
    typed = '"><script>alert(1)</script>\N{RIGHT-TO-LEFT OVERRIDE}&amp;'

    page = shown(person.get("/card-transactions", minAmount=typed, status=typed), 400)

    fields = Fields.of_page(page)
    assert [fields.of[name].value for name in ("minAmount", "status")] == [typed, typed]
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    "path", ["/card-transactions", "/customers", "/journal", "/webhooks/deliveries"]
)
def test_a_time_may_have_seconds(person: Person, path: str) -> None:
    typed = {"since": "2026-01-31T12:00:30", "until": "2026-01-31T12:00:59"}

    page = shown(person.get(path, **typed))

    fields = Fields.of_page(page)
    assert {name: fields.of[name].value for name in typed} == typed
    times = re.findall(r'<input [^>]*type="datetime-local"[^>]*>', page)
    assert len(times) == 2
    # Without it, browsers take seconds for wrong and do not send the form.
    assert all(' step="1"' in each for each in times)


def test_the_day_before_ends_with_the_second_before_the_journal_begins(person: Person) -> None:
    page = shown(person.get("/journal", since="2026-01-31T12:00:30", until="2026-01-31T13:00"))

    [link] = re.findall(r'href="([^"]*)">The day before</a>', page)
    assert "since=2026-01-31T00%3A00%3A00" in link
    assert "until=2026-01-31T12%3A00%3A29" in link


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/card-transactions", "cardId"),
        ("/exceptions", "currency"),
        ("/customers", "platformCustomerId"),
        ("/cards", "cursor"),
        ("/journal", "since"),
        ("/webhooks/deliveries", "type"),
        ("/simulator/payments/send", "quote"),
        ("/simulator/payments/receive?amount=5.00+USD&sender=$success.usd@x.test", "receiver"),
    ],
)
def test_a_character_that_no_text_can_have_is_refused(person: Person, path: str, name: str) -> None:
    page = shown(
        person.http.get(f"{ROOT}{path}{'&' if '?' in path else '?'}{name}=$x%00y@x.test"), 400
    )

    assert "must not contain the character U+0000" in Fields.of_page(page).alert


def test_a_page_of_other_filters_is_refused_with_the_form(person: Person) -> None:
    page = shown(person.get("/cards", cursor="forged", state="CLOSED"), 400)

    fields = Fields.of_page(page)
    assert "cursor is that of another list, or of other filters" in fields.alert
    assert fields.of["state"].value == "CLOSED"
    assert fields.wrong() == {}


def test_a_list_that_takes_too_long_keeps_its_filters(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> NoReturn:
        raise SnapshotError(SnapshotProblem.SLOW)

    monkeypatch.setattr(SnapshotConnections, "snapshot", slow)
    page = shown(person.get("/card-transactions", minAmount="12.50 USD"), 503)

    fields = Fields.of_page(page)
    assert fields.of["minAmount"].value == "12.50 USD"
    assert "took longer than 2 s, so it was stopped. Narrow the filter" in fields.alert
    assert "Nothing is listed until the filter is narrowed." in page


def test_a_statement_until_no_time_is_not_listed(person: Person, api: Api) -> None:
    account = api.active_card(balance=100)["fundingSources"][0]

    page = shown(person.get(f"/accounts/{account}", until="soon"), 400)

    fields = Fields.of_page(page)
    assert "Recorded until (UTC) must be a time in UTC" in fields.alert
    assert fields.of["until"].value == "soon"
    assert "Nothing is listed until the time is corrected." in page
    assert "Table of entries" not in page


def test_a_refused_filter_of_a_stranger_leads_to_the_login(root: str) -> None:
    with Person(root) as stranger:
        answer = stranger.get("/card-transactions", minAmount="x")

    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{ROOT}/login?")
