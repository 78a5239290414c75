"""One card: frozen, unfrozen and closed by forms of its page."""

from typing import NoReturn

import httpx2
import pytest

from cardledger.api.app import ApiConfig
from cardledger.api.console.access import forms
from cardledger.ledger.storage.snapshot_connections import (
    SnapshotConnections,
    SnapshotError,
    SnapshotProblem,
)
from tests.api.support import Api, new_tenant, ok
from tests.console.person import Person, shown


@pytest.fixture
def card(api: Api) -> str:
    return str(api.active_card()["id"])


def act(person: Person, card: str, change: str, **fields: str) -> httpx2.Response:
    return person.post(f"/cards/{card}/{change}", sent(person, card) | fields)


def sent(person: Person, card: str) -> dict[str, str]:
    """Return the fields of a form of the page, or of one that shows no form."""
    answer = person.get(f"/cards/{card}")
    page = answer.text if answer.status_code == 200 else shown(person.get(""))
    shows_form = 'name="as_of"' in page
    return {
        "form_token": person.hidden(page, "form_token"),
        "idempotency_key": forms.new_key(),
        "as_of": person.hidden(page, "as_of") if shows_form else "",
        "confirmed": "yes",
    }


def state(api: Api, card: str) -> str:
    return str(ok(api.get(f"/cards/{card}"))["state"])


def offered(person: Person, card: str) -> list[str]:
    page = shown(person.get(f"/cards/{card}"))
    return [
        change
        for change in ("freeze", "unfreeze", "close")
        if f'action="/console/cards/{card}/{change}"' in page
    ]


def test_a_card_is_frozen_unfrozen_and_closed(person: Person, api: Api, card: str) -> None:
    found: list[tuple[str, list[str]]] = [(state(api, card), offered(person, card))]

    for change in ("freeze", "unfreeze", "close"):
        answer = act(person, card, change)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == f"/console/cards/{card}"
        found.append((state(api, card), offered(person, card)))

    assert found == [
        ("ACTIVE", ["freeze", "close"]),
        ("FROZEN", ["unfreeze", "close"]),
        ("ACTIVE", ["freeze", "close"]),
        ("CLOSED", []),
    ]
    assert act(person, card, "close").status_code == 303
    assert "has changed since" in shown(act(person, card, "freeze"), 409)


def test_a_change_is_compared_with_the_card_of_the_primary(
    person: Person, api: Api, card: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = sent(person, card)

    def away(*_: object) -> NoReturn:
        raise SnapshotError(SnapshotProblem.AWAY)

    monkeypatch.setattr(SnapshotConnections, "snapshot", away)
    answer = person.post(f"/cards/{card}/freeze", form)

    assert answer.status_code == 303, answer.text
    assert state(api, card) == "FROZEN"


def test_closing_releases_the_holds(person: Person, api: Api, card: str) -> None:
    purchase = api.authorize(card, 1_250)["id"]

    assert act(person, card, "close").status_code == 303

    assert ok(api.get(f"/transactions/{purchase}"))["heldAmount"]["amount"] == 0


def test_a_form_that_is_sent_again_changes_the_card_once(
    person: Person, api: Api, card: str
) -> None:
    form = sent(person, card)
    path = f"/cards/{card}/freeze"
    answers = [person.post(path, form) for _ in range(2)]
    act(person, card, "unfreeze")

    again = shown(person.post(path, form), 409)

    assert [each.status_code for each in answers] == [303, 303]
    assert "The card has changed since this form was shown" in again
    assert state(api, card) == "ACTIVE"


def test_what_the_api_refuses_is_said(person: Person, api: Api, card: str) -> None:
    page = shown(act(person, card, "unfreeze"), 409)

    assert "The card is ACTIVE; allowed:" in page
    assert state(api, card) == "ACTIVE"


@pytest.mark.parametrize("change", ["freeze", "unfreeze", "close"])
def test_what_is_not_confirmed_is_not_done(
    person: Person, api: Api, card: str, change: str
) -> None:
    page = shown(act(person, card, change, confirmed=""), 400)

    assert "confirmed" in page
    assert state(api, card) == "ACTIVE"


def test_unknown_changes_and_cards_of_others_are_not_found(
    person: Person, api: Api, other_platform: Api, card: str
) -> None:
    foreign = str(other_platform.active_card()["id"])

    shown(act(person, card, "delete"), 404)
    shown(act(person, foreign, "freeze"), 404)

    assert (state(api, card), state(other_platform, foreign)) == ("ACTIVE", "ACTIVE")


def test_a_token_without_manage_is_offered_nothing_and_changes_nothing(
    root: str, config: ApiConfig, api: Api, card: str
) -> None:
    tenant = new_tenant(config.database_url, permissions=("VIEW", "TRANSACT"), of=api.tenant)
    with Person(root) as viewer:
        viewer.log_in(tenant)

        assert offered(viewer, card) == []
        assert "MANAGE" in shown(act(viewer, card, "close"), 403)

    assert state(api, card) == "ACTIVE"


def test_no_other_site_changes_a_card(person: Person, api: Api, card: str) -> None:
    form = sent(person, card)

    shown(person.post(f"/cards/{card}/close", form, Origin="https://evil.example"), 403)
    shown(person.post(f"/cards/{card}/close", form | {"form_token": "wrong"}), 403)

    assert state(api, card) == "ACTIVE"
