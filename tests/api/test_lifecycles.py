"""The life cycles of the contract over HTTP, as far as the simulators let anybody play them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.support import Api, authorization, ok

FIXTURES = Path(__file__).parents[1] / "fixtures"
LIFE_CYCLES = {
    life["id"]: life
    for name in ("lifecycles.json", "credit_lifecycles.json")
    for life in json.loads((FIXTURES / name).read_text())
}

# A simulator refuses what a network would have no reason to send (a clearing of what is closed),
# and some events have none (increments, clearing reversals, messages that come twice).
PLAYABLE = [
    "S01",
    "S02",
    "S06",
    "S08",
    "S09",
    "S10",
    "S12",
    "S16",
    "S17",
    "S23",
    "S35",
    "S36",
    "S43",
    "S46",
    "S47",
    "S48",
    "S52",
    "S56",
    "S59",
    "S64",
    "S66",
    "C01",
    "C02",
    "C03",
    "C04",
    "C05",
    "C06",
    "C07",
    "C09",
    "C10",
    "C13",
]


class Player:
    """Plays one life cycle on a card of its own."""

    def __init__(self, api: Api, balance: int) -> None:
        self.api = api
        self.card = api.active_card(balance=balance)
        self.ids: dict[str, str] = {}

    def play(self, step: dict[str, Any]) -> None:
        match step["type"]:
            case "FUND":
                self.api.fund(self.card["fundingSources"][0], step["amount"])
            case "CARD_FROZEN":
                ok(self.api.patch(f"/cards/{self.card['id']}", {"state": "FROZEN"}))
            case (
                "AUTHORIZATION"
                | "FINANCIAL_AUTHORIZATION"
                | "CREDIT_AUTHORIZATION"
                | "FINANCIAL_CREDIT_AUTHORIZATION"
            ):
                name = step["type"].lower()
                asked = self.simulate(name, authorization(step["amount"]))
                self.ids[step["transaction"]] = asked["id"]
                assert asked.get("declineReason") == step.get("declineReason")
            case kind:
                name = kind.lower()
                body = {"cardTransactionId": self.ids[step["transaction"]]}
                if name != "return_reversal":  # It takes everything back by itself.
                    body |= {key: step[key] for key in ("amount", "final") if key in step}
                self.simulate(name, body)

    def simulate(self, name: str, body: object) -> dict[str, Any]:
        return ok(self.api.simulate(self.card["id"], name, body))

    def standing(self) -> dict[str, Any]:
        accounts = ok(
            self.api.get("/customers/internal-accounts", customerId=self.card["cardholderId"])
        )
        account = accounts["data"][0]
        return {
            "balance": account["balance"]["amount"],
            "held": account["heldAmount"]["amount"],
            "owed": account["owedAmount"]["amount"],
            "transactions": {name: self.figures(key) for name, key in self.ids.items()},
        }

    def figures(self, card_transaction_id: str) -> dict[str, Any]:
        seen = ok(self.api.get(f"/transactions/{card_transaction_id}"))
        return {
            "status": seen["status"],
            "authorized": seen["authorizedAmount"]["amount"],
            "pullCount": seen["pullSummary"]["count"],
            "pulled": seen["pullSummary"]["totalAmount"],
            "released": seen["releaseSummary"]["totalAmount"],
            "settled": seen["settlementSummary"]["totalAmount"],
            "refunded": seen["refundSummary"]["totalAmount"],
        }


@pytest.mark.parametrize("name", PLAYABLE)
def test_a_life_cycle_gives_its_numbers_after_every_step(api: Api, name: str) -> None:
    life = LIFE_CYCLES[name]
    player = Player(api, life["startBalance"])

    for number, step in enumerate(life["steps"], start=1):
        player.play(step)
        assert player.standing() == step["expect"], f"{name}, step {number}"


def test_every_event_is_explained_and_each_begins_where_the_last_one_ended(api: Api) -> None:
    player = Player(api, 50_000)
    for step in LIFE_CYCLES["S66"]["steps"]:
        player.play(step)

    events = ok(api.get(f"/transactions/{player.ids['T1']}/events"))["data"]

    kinds = ["AUTHORIZED", "PULLED", "PULLED", "CLEARED", "REFUNDED"]
    assert [event["type"] for event in events] == kinds
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert events[3]["explanation"] == "A final clearing of 15.00 USD was settled."
    assert all(event["source"] == "simulator" and event["reference"] for event in events)
    figures: dict[str, Any] = {}
    for change in (change for event in events for change in event["changes"]):
        assert figures.get(change["field"], change.get("before")) == change.get("before")
        figures[change["field"]] = change["after"]
    assert figures["status"] == "REFUNDED"
    assert figures["settledAmount"] == figures["refundedAmount"] == 1500
    moved = [(e["debit"], e["credit"], e["amount"]["amount"]) for e in events[2]["entries"]]
    assert moved == [("CUSTOMER", "CARD_HOLDS", 250)]


def test_lists_are_filtered_by_everything_that_names_a_card_transaction(api: Api) -> None:
    player = Player(api, 50_000)
    for step in LIFE_CYCLES["S08"]["steps"]:
        player.play(step)
    first, second = (ok(api.get(f"/transactions/{key}")) for key in player.ids.values())

    def listed(**query: object) -> list[str]:
        found = ok(api.get("/transactions", sortOrder="asc", **query))["data"]
        mine = set(player.ids.values())
        return [one["id"] for one in found if one["id"] in mine]

    both = [first["id"], second["id"]]
    assert listed(platformCustomerId=first["platformCustomerId"]) == both
    assert listed(accountIdentifier=first["accountId"]) == both
    assert listed(senderAccountIdentifier=first["accountId"]) == both
    assert listed(receiverAccountIdentifier=first["accountId"]) == []
    assert listed(reference=second["issuerTransactionToken"]) == [second["id"]]
    assert listed(cardId=first["cardId"], startDate=second["createdAt"]) == [second["id"]]
    assert listed(cardId=first["cardId"], endDate=first["createdAt"]) == [first["id"]]
