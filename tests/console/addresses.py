"""An address of every page of the console, each with something to show."""

from collections.abc import Iterator, Mapping
from typing import Final

from fastapi.routing import APIRoute

from cardledger.api.console import ROOT
from cardledger.api.console.access import forms
from cardledger.api.console.application import routes
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from tests.api.support import Api, ok
from tests.console.payments import Payments
from tests.console.person import Person, shown
from tests.console.stories import Stories
from tests.waiting import eventually

WITHOUT: Final = {
    "/": "leads to the console",
    f"{ROOT}/static/{{name}}": "is a file",
    f"{ROOT}/login": "is shown before there is a session",
    f"{ROOT}/live": "is a part of the overview, which has it",
    f"{ROOT}/simulator/payments": "has forms; the pages that they lead to show their requests",
    f"{ROOT}/simulator/card": "leads to the page of a card",
    f"{ROOT}/{{path:path}}": "is every path without a page",
}
"""The paths that are asked for with GET and show nothing of the API."""


def paths() -> Iterator[str]:
    """Yield the paths of the console's routes that take a GET."""
    for route in routes(ConsoleConfig(mode=ConsoleMode.ACT), is_sandbox=True):
        assert isinstance(route, APIRoute)
        if "GET" in (route.methods or ()):
            yield route.path


def addresses_of(api: Api, person: Person, stories: Stories) -> Mapping[str, str]:
    """An address of every page by its path."""
    [endpoint, *_] = ok(api.get("/webhooks/endpoints"))["data"]
    [delivery, *_] = eventually(lambda: ok(api.get("/webhooks/deliveries"))["data"])
    tip = ok(api.get(f"/transactions/{stories.tip}"))
    [deposit, *_] = [
        each
        for each in ok(api.get("/transactions", customerId=tip["customerId"]))["data"]
        if each["id"].startswith("Transaction:")
    ]
    front = shown(person.get("/simulator"))
    fields = {"form_token": person.hidden(front, "form_token"), "idempotency_key": forms.new_key()}
    story = person.post("/simulator/stories/tip", fields).headers["location"]
    send, receive = Payments.of(api).addresses
    ids = {
        "card_transaction_id": stories.exception,
        "customer_id": tip["customerId"],
        "account_id": tip["accountId"],
        "card_id": tip["cardId"],
        "delivery_id": delivery["id"],
        "endpoint_id": endpoint["id"],
    }
    special = {
        f"{ROOT}/search": f"{ROOT}/search?q={deposit['id']}",
        f"{ROOT}/simulator/stories/{{name}}": story,
        f"{ROOT}/simulator/cards/{{card_id}}/fund": (
            f"{ROOT}/simulator/cards/{tip['cardId']}/fund?amount=5.00+USD"
        ),
        f"{ROOT}/simulator/payments/send": f"{ROOT}{send}",
        f"{ROOT}/simulator/payments/receive": f"{ROOT}{receive}",
    }
    return {
        path: special.get(path) or path.format(**ids) for path in paths() if path not in WITHOUT
    }
