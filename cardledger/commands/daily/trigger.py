"""`cardledger trigger`: play a story on a running sandbox, over the HTTP API."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cardledger.commands.daily import arguments
from cardledger.commands.daily.stories import START_BALANCE, STORIES, Figures, Step, Story
from cardledger.commands.demo import restaurant_tip
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.install import running_api
from cardledger.install.http_client import HttpApi
from cardledger.schema.wire.common import format_amount, public_id

_CARDHOLDER: Final = "Ada Lovelace"
_OF_ACCOUNT: Final = ("balance", "held", "owed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The card of a story and its account; `is_new`: made for the story."""

    customer_id: str
    account_id: str
    card_id: str
    currency: str
    balance: int  # Before the story, in minor units.
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A step that was played, the amount it had, and what it led to."""

    step: Step
    amount: int | None
    card_transaction: dict[str, Any]
    actual: Figures


@dataclass(slots=True, kw_only=True)
class Result:
    """A story and how it went."""

    story: Story
    scene: Scene
    played: list[Played] = field(default_factory=list)

    @property
    def card_transaction_id(self) -> str:
        """The card transaction of the story."""
        key: str = self.played[0].card_transaction["id"]
        return key

    def deviations(self) -> list[str]:
        """Return the differences from the expected figures, as text.

        An account that existed before has other amounts, and other events may have changed it.
        """
        return [
            text
            for number, played in enumerate(self.played, start=1)
            for text in _differences(number, played, with_account=self.scene.is_new)
        ]


def run(name: str, *, card: str | None, as_json: bool, data_dir: Path | None) -> int:
    """Play the story `name` and print each step; returns the exit code.

    Raises: CommandError when there is no such story, no system runs, or a request fails.
    """
    story = story_of(name)
    card_id = None if card is None else public_id("Card", arguments.key_of(card, "Card", "--card"))
    out = terminal.console()
    out.quiet = as_json
    with running_api.connect(data_dir, None) as api:
        scene = _new_scene(api) if card_id is None else _existing_scene(api, card_id)
        result = Result(story=story, scene=scene)
        _show_scene(out, result)
        for played in _play(api, story, scene):
            result.played.append(played)
            _show_step(out, played, scene.currency)
    command = _next_command(result, data_dir)
    if as_json:
        print(json.dumps(as_dict(result, command), indent=2))
    deviations = result.deviations()
    for deviation in deviations:
        out.print(Text(f" differs from the story: {deviation}", style="red"))
    out.print(Text.assemble("\n ", (command, "cyan")))
    return FAILURE if deviations else 0


def story_of(name: str) -> Story:
    """Return the story `name`.

    Raises: CommandError, a usage error.
    """
    story = STORIES.get(name)
    if story is None:
        raise CommandError(
            f"no story {arguments.printable(name)}; the stories are {', '.join(STORIES)}",
            code=USAGE,
        )
    return story


# --- playing -----------------------------------------------------------------------------------


def _new_scene(api: HttpApi) -> Scene:
    customer = api.post(
        "/customers",
        {
            "customerType": "INDIVIDUAL",
            "fullName": _CARDHOLDER,
            "region": "US",
            "currencies": ["USD"],
        },
    )
    account = restaurant_tip.account_of(api, customer["id"])
    api.post(f"/sandbox/internal-accounts/{account}/fund", {"amount": START_BALANCE})
    card = api.post(
        "/cards",
        {"cardholderId": customer["id"], "form": "VIRTUAL", "fundingSources": [account]},
    )
    restaurant_tip.wait_until_active(api, [card["id"]])
    return _scene(api, card, is_new=True)


def _existing_scene(api: HttpApi, card_id: str) -> Scene:
    card = api.get(f"/cards/{card_id}")
    if card["state"] != "ACTIVE" or not card["fundingSources"]:
        raise CommandError(f"{card_id} is {card['state']}; name an ACTIVE card")
    return _scene(api, card, is_new=False)


def _scene(api: HttpApi, card: dict[str, Any], *, is_new: bool) -> Scene:
    account_id = card["fundingSources"][0]
    account = _account(api, card["cardholderId"], account_id)
    return Scene(
        customer_id=card["cardholderId"],
        account_id=account_id,
        card_id=card["id"],
        currency=account["balance"]["currency"]["code"],
        balance=account["balance"]["amount"],
        is_new=is_new,
    )


def _account(api: HttpApi, customer_id: str, account_id: str) -> dict[str, Any]:
    accounts = api.get(f"/customers/internal-accounts?customerId={customer_id}&limit=100")["data"]
    for account in accounts:
        if account["id"] == account_id:
            return dict(account)
    raise CommandError(f"{account_id} is not among the first 100 accounts of {customer_id}")


def _play(api: HttpApi, story: Story, scene: Scene) -> Iterator[Played]:
    card_transaction_id = None
    for step in story.steps:
        amount = step.amount
        if amount is not None and story.exceeds_balance:
            amount += scene.balance - START_BALANCE
        name = step.type.lower()
        body = _body(story, scene, amount, card_transaction_id)
        card_transaction = api.post(f"/sandbox/cards/{scene.card_id}/simulate/{name}", body)
        card_transaction_id = card_transaction["id"]
        account = _account(api, scene.customer_id, scene.account_id)
        yield Played(
            step=step,
            amount=amount,
            card_transaction=card_transaction,
            actual=figures_of(account, card_transaction),
        )


def _body(
    story: Story, scene: Scene, amount: int | None, card_transaction_id: str | None
) -> dict[str, Any]:
    if card_transaction_id is None:
        return {
            "amount": amount,
            "currency": {"code": scene.currency},
            "merchant": {"descriptor": story.descriptor, "mcc": story.mcc},
        }
    about = {"cardTransactionId": card_transaction_id}
    return about if amount is None else {**about, "amount": amount}


def figures_of(account: dict[str, Any], card_transaction: dict[str, Any]) -> Figures:
    """Return the figures of an account and a card transaction of the HTTP API."""
    return Figures(
        balance=account["balance"]["amount"],
        held=account["heldAmount"]["amount"],
        owed=account["owedAmount"]["amount"],
        status=card_transaction["status"],
        authorized=card_transaction["authorizedAmount"]["amount"],
        pull_count=card_transaction["pullSummary"]["count"],
        pulled=card_transaction["pullSummary"]["totalAmount"],
        released=card_transaction["releaseSummary"]["totalAmount"],
        settled=card_transaction["settlementSummary"]["totalAmount"],
        refunded=card_transaction["refundSummary"]["totalAmount"],
    )


def _differences(number: int, played: Played, *, with_account: bool) -> Iterator[str]:
    expected, actual = dataclasses.asdict(played.step.expected), dataclasses.asdict(played.actual)
    for name, value in expected.items():
        depends_on_balance = name in _OF_ACCOUNT or played.amount != played.step.amount
        if actual[name] != value and (with_account or not depends_on_balance):
            yield f"step {number}: {name} is {actual[name]}, expected {value}"


def _next_command(result: Result, data_dir: Path | None) -> str:
    where = "" if data_dir is None else f" --data-dir {data_dir}"
    return f"cardledger explain {result.card_transaction_id}{where}"


# --- output ------------------------------------------------------------------------------------


def as_dict(result: Result, command: str) -> dict[str, Any]:
    """Return `result` as JSON; amounts in minor units."""
    return {
        "story": result.story.name,
        "customerId": result.scene.customer_id,
        "accountId": result.scene.account_id,
        "cardId": result.scene.card_id,
        "cardTransactionId": result.card_transaction_id,
        "steps": [
            {
                "type": played.step.type,
                **({} if played.amount is None else {"amount": played.amount}),
                "account": {name: getattr(played.actual, name) for name in _OF_ACCOUNT},
                "cardTransaction": played.card_transaction,
            }
            for played in result.played
        ],
        "deviations": result.deviations(),
        "next": command,
    }


def _show_scene(out: Console, result: Result) -> None:
    scene = result.scene
    out.print(Text.assemble((result.story.name, "bold"), f"   {result.story.summary}"))
    out.print(Text(f" {scene.card_id}", style="dim"))
    out.print(Text(f" balance {format_amount(scene.balance, scene.currency)}"))


def _show_step(out: Console, played: Played, currency: str) -> None:
    amount = "" if played.amount is None else f" {format_amount(played.amount, currency)}"
    reason = played.card_transaction.get("declineReason")
    out.print(
        Text.assemble(
            (f" {played.step.type}{amount} {terminal.arrow()} ", "cyan"),
            (played.actual.status, "bold green"),
            f" {reason}" if reason else "",
        )
    )
    out.print(Text(f"   {_summary(played.actual, currency)}", style="dim"))


def _summary(figures: Figures, currency: str) -> str:
    names: Sequence[str] = (*_OF_ACCOUNT, "pulled", "released", "settled", "refunded")
    return ", ".join(
        f"{name} {format_amount(amount, currency)}"
        for name in names
        if (amount := getattr(figures, name)) or name == "balance"
    )
