"""Stories of the simulator, played step by step beside the picture that they draw."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from pydantic import Field

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.access.forms import Action, Answer, Transacting
from cardledger.api.console.access.proven_addresses import Tag, is_proven, proven
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.histories import folded
from cardledger.api.console.html import documents, picture, rendering
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.routing import console_router, failure, redirect
from cardledger.api.console.simulator import currencies, stories
from cardledger.api.console.simulator.cardholders import CardholderRequest, SetUpError, set_up
from cardledger.api.console.simulator.stories import BY_NAME, Run, Story
from cardledger.api.http.errors import invalid_field, not_found, unknown_path
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.queries.console import purchase_history
from cardledger.schema.wire.common import (
    CURRENCIES,
    CardId,
    CardTransactionId,
    InternalAccountId,
    parse_id,
    public_id,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import OutcomeType

_PART: Final = navigation.SIMULATOR
_STORIES: Final = f"{_PART.path}/stories"
_NAME: Final = "Ada Example"
_PLAY: Final = "play"
_UNDECIDED: Final = (
    "The event was accepted, and is not decided yet. Reload this page in a moment: the form is sent"
    " again, and goes on with the same cardholder."
)

router = console_router()


class RunQuery(Filters):
    """A run: its cardholder, its purchase, and how many steps were played.

    With `play` a browser with scripts goes on by itself. `outcome` is that of an event of the
    network which the step has sent. Both count only with the `tag` that proves them: an address
    that another site or person has made plays nothing, and reports nothing.
    """

    run: Annotated[str, Field(max_length=100)]
    card: CardId
    account: InternalAccountId
    purchase: CardTransactionId
    step: Annotated[int, Field(ge=1, le=20)]
    play: Annotated[str, Field(max_length=10)] = ""
    outcome: OutcomeType | None = None
    first_outcome: OutcomeType | None = None
    tag: Tag = ""


@router.post(f"{_STORIES}/{{name}}")
@form_on(_PART.path)
async def begin(request: Request, action: Transacting, name: str) -> Response:
    """Make a cardholder for a story and play its first step."""
    story = _story(name)
    run_id = action.fields[forms.KEY]
    if not stories.is_run(run_id):
        raise forms.outdated()
    async with action.call.snapshot() as connection:
        platform = await platforms.get(connection, action.call.platform_id)
    currency = currencies.usual(platform.supported_currencies)
    wanted = CardholderRequest(name=_NAME, currency=currency, balance=story.balance)
    try:
        made = await set_up(action, wanted, run_id=run_id)
    except SetUpError as error:
        return await failure(request, error.answer.status, str(error))
    run = Run(
        id=run_id, card=made.card, account=made.account, purchase=None, currency=made.currency
    )
    return await _play(request, action, story, 1, run)


@router.post(f"{_STORIES}/{{name}}/steps/{{number}}")
@form_on(_PART.path)
async def play(request: Request, action: Transacting, name: str, number: int) -> Response:
    """Play the step `number` of a run, once, whatever page it is sent from."""
    story = _story(name)
    fields = action.fields
    if not 1 < number <= len(story.steps):
        raise unknown_path()
    run_id = fields[forms.KEY].rpartition(".")[0]
    currency = fields.get("currency", "")
    if not stories.is_run(run_id) or fields[forms.KEY] != stories.key_of(run_id, number):
        raise forms.outdated()
    if currency not in CURRENCIES:
        raise invalid_field("currency", "must be that of the account")
    run = Run(
        id=run_id,
        card=_id(fields, "card", "Card"),
        account=_id(fields, "account", "InternalAccount"),
        purchase=_id(fields, "purchase", "CardTransaction"),
        currency=currency,
    )
    return await _play(request, action, story, number, run)


@router.get(f"{_STORIES}/{{name}}")
async def show(
    request: Request, name: str, query: Annotated[RunQuery, Query()], call: Viewer
) -> Response:
    """Show a run as of the steps that were played, with the picture of its purchase."""
    story = _story(name)
    if query.step > len(story.steps) or not stories.is_run(query.run):
        raise unknown_path()
    async with call.snapshot() as connection:
        events = await purchase_history.read(
            connection, platform_id=call.platform_id, card_transaction_id=query.purchase
        )
    if (
        events is None
        or events.resource.card_id != query.card
        or events.resource.account_id != query.account
    ):
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction")
    history = await folded(call, events)
    purchase = public_id("CardTransaction", query.purchase)
    run = Run(
        id=query.run,
        card=public_id("Card", query.card),
        account=public_id("InternalAccount", query.account),
        purchase=purchase,
        currency=history.resource.held_amount.currency.code,
    )
    made = stories.request_of(story, query.step, run)
    is_own = is_proven(request, call.session, call.keys)
    return await rendering.page(
        request,
        "simulator_story.html",
        call=call,
        part=_PART,
        story=story,
        stories=stories.STORIES,
        with_amounts=currencies.with_amounts,
        run=run,
        step=query.step,
        is_own=is_own,
        is_playing=is_own and query.play == _PLAY,
        next_key=stories.key_of(query.run, query.step + 1),
        new_key=forms.new_key,
        history=history,
        purchase=history.resource,
        name=purchase,
        picture=picture.draw(history),
        made=[rendering.api_call(request, call, made.path, body=made.body, key=made.key)],
        outcome=query.outcome if is_own else None,
        first_outcome=query.first_outcome,
        api=documents.events_call(request, call, history, {"step": query.step}),
    )


async def _play(request: Request, action: Action, story: Story, number: int, run: Run) -> Response:
    wanted = stories.request_of(story, number, run)
    answer = await action.run("POST", wanted.path, wanted.body, key=wanted.key)
    if not answer.is_success:
        return await failure(request, answer.status, answer.message)
    outcome = _outcome_in(answer)
    if outcome is not None and not stories.is_as_expected(story.steps[number - 1], outcome):
        return await failure(request, *_unexpected(outcome))
    shown = {
        "run": run.id,
        "card": run.card,
        "account": run.account,
        "purchase": run.purchase or _purchase_in(outcome or answer.body),
        "step": str(number),
    }
    if action.fields.get("play") == _PLAY:
        shown["play"] = _PLAY
    for name in ("outcome", "firstOutcome"):
        if outcome and outcome.get(name):
            shown[name] = outcome[name]
    return redirect(
        proven(f"{_STORIES}/{story.name}", shown, action.call.session, action.call.keys)
    )


def _outcome_in(answer: Answer) -> Mapping[str, Any] | None:
    """Return the outcome of the event that a step has sent to the network, None of an operation."""
    outcome: Mapping[str, Any] | None = answer.body[0] if isinstance(answer.body, list) else None
    return outcome


def _unexpected(outcome: Mapping[str, Any]) -> tuple[int, str]:
    """Return status and message of an event that did not become what the story needs."""
    if OutcomeType.ACCEPTED in {outcome["outcome"], outcome.get("firstOutcome")}:
        return 503, _UNDECIDED
    name, detail = (outcome.get(key) for key in ("reason", "detail"))
    said = ": ".join(str(each) for each in (outcome["outcome"], name, detail) if each)
    return 409, f"The outcome of the event is not that of the story: {said}"


def _purchase_in(body: Mapping[str, Any]) -> str:
    """Return the purchase of the first step, by an operation or by an event of the network."""
    return str(body.get("cardTransaction", body)["id"])


def _story(name: str) -> Story:
    story = BY_NAME.get(name)
    if story is None:
        raise unknown_path()
    return story


def _id(fields: Mapping[str, str], name: str, resource: str) -> str:
    try:
        return public_id(resource, parse_id(resource, fields.get(name, "")))
    except ValueError as error:
        raise invalid_field(name, str(error)) from None
