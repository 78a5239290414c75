"""Addresses that say what a form has done: believed in the session that sent the form, only."""

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

import httpx2
import pytest

from cardledger.api.console import ROOT
from cardledger.api.console.access import sessions
from cardledger.api.console.access.proven_addresses import proven
from cardledger.api.console.access.sessions import Session
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from tests.api.support import SECRET_KEY, Api, made
from tests.console.person import Person, shown
from tests.console.test_accounts import main_of
from tests.console.test_simulator import card_of, confirmation, sent

KEYS = KeyRing(SECRET_KEY)

REPLAYED = "sent again."
MADE = "just made"


@pytest.fixture
def endpoint(api: Api) -> str:
    """The address of an endpoint, below the console."""
    created = made(api.post("/webhooks/endpoints", {"url": "http://127.0.0.1:9/refused"}))
    return f"/webhooks/endpoints/{created['id']}"


def replayed(person: Person, endpoint: str) -> httpx2.Response:
    """Answer the form of a replay."""
    fields = sent(person, shown(person.get(endpoint)), since="2020-01-01T00:00:30")
    return person.post(f"{endpoint}/replay", fields)


def funded(person: Person, card: str) -> httpx2.Response:
    """Answer the confirmed deposit of 1.00 on the account of a card."""
    return person.post(f"{card}/fund", confirmation(person, card, "1 USD"))


def session_of(person: Person) -> Session:
    [cookie] = [value for name, value in person.http.cookies.items() if not name.endswith("_acted")]
    session = sessions.session_in(cookie, KEYS, at=datetime.now(UTC))
    assert session is not None
    return session


def edited(address: str, **others: str) -> str:
    """Return an address with other parameters."""
    path, _, query = address.partition("?")
    return f"{path}?{urlencode(dict(parse_qsl(query)) | others)}"


@pytest.fixture(params=["replay", "deposit"])
def act(request: pytest.FixtureRequest, endpoint: str) -> tuple[Callable[[Person], str], str]:
    """What sends a form and returns the address that this leads to, and what its page says."""

    def replay(person: Person) -> str:
        return replayed(person, endpoint).headers["location"]

    def deposit(person: Person) -> str:
        return funded(person, card_of(person, amount="100.00 USD")).headers["location"]

    return (replay, REPLAYED) if request.param == "replay" else (deposit, MADE)


def test_another_session_is_not_told_what_a_form_has_done(
    person: Person, root: str, api: Api, act: tuple[Callable[[Person], str], str]
) -> None:
    send, said = act
    address = send(person)
    with Person(root) as another:
        another.log_in(api.tenant)

        own, foreign = (shown(each.http.get(address)) for each in (person, another))

    assert said in main_of(own)
    assert said not in main_of(foreign)


def test_an_address_that_was_edited_says_nothing(
    person: Person, act: tuple[Callable[[Person], str], str]
) -> None:
    send, said = act
    address = send(person)
    path = address.partition("?")[0]

    for other in (
        edited(address, replayed="500") if said == REPLAYED else edited(address, amount="2 USD"),
        edited(address, tag="A" * 43),
        edited(address, tag=""),
        f"{path}?replayed=500" if said == REPLAYED else f"{path}?made=fund&amount=5 USD&key=x",
    ):
        assert said not in main_of(shown(person.http.get(other))), other


def test_the_rest_of_a_replay_is_that_of_the_session(
    person: Person, root: str, api: Api, endpoint: str
) -> None:
    after = f"WebhookDelivery:{new_id()}"
    shown_there = {"replayed": "500", "since": "2020-01-01T00:00:30", "after": after}
    address = proven(f"{ROOT}{endpoint}", shown_there, session_of(person), KEYS)
    with Person(root) as another:
        another.log_in(api.tenant)

        own, foreign = (main_of(shown(each.http.get(address))) for each in (person, another))

    assert f"500 deliveries are {REPLAYED} There are more" in own
    assert person.hidden(own, "after") == after
    assert "2020-01-01T00:00:30" in own  # With its seconds, so that the rest is of that time.
    assert "Replay the rest" in own
    for trace in (REPLAYED, after, 'name="after"', "2020-01-01", "Replay the rest"):
        assert trace not in foreign
