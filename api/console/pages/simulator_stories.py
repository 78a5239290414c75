"""Stories of the simulator, played step by step beside the picture that they draw."""

from asyncio import to_thread
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from pydantic import Field

from cardledger.api.console import navigation
from cardledger.api.console.access import forms, sessions
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.access.forms import Action, Answer, Transacting
from cardledger.api.console.html import documents, picture, rendering
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.routing import console_router, failure, redirect
from cardledger.api.console.simulator import stories
from cardledger.api.console.simulator.cardholders import CardholderRequest, SetUpError, set_up
from cardledger.api.console.simulator.stories import BY_NAME, Run, Story
from cardledger.api.http.errors import invalid_field, not_found, unknown_path
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

_PART: Final = navigation.SIMULATOR
_STORIES: Final = f"{_PART.path}/stories"
_NAME: Final = "Ada Example"
_PLAY: Final = "play"

router = console_router()


class RunQuery(Filters):
    """A run: its cardholder, its purchase, and how many steps were played.

    With `play`, a token of the session, a browser with scripts goes on by itself. So an address
    that another site or person has made plays nothing.
    """

    run: Annotated[str, Field(max_length=100)]
    card: CardId
    account: InternalAccountId
    purchase: CardTransactionId
    step: Annotated[int, Field(ge=1, le=20)]
    play: Annotated[str, Field(max_length=100)] = ""


@router.post(f"{_STORIES}/{{name}}")
async def begin(request: Request, action: Transacting, name: str) -> Response:
    """Make a cardholder for a story and play its first step."""
    story = _story(name)
    run_id = action.fields[forms.KEY]
    if not stories.is_run(run_id):
        raise invalid_field(forms.KEY, "must be the one of the form; reload the page")
    wanted = CardholderRequest(name=_NAME, minor_units=story.balance)
    try:
        made = await set_up(action, wanted, run_id=run_id)
    except SetUpError as error:
        return await failure(request, error.answer.status, error.answer.message)
    run = Run(
        id=run_id, card=made.card, account=made.account, purchase=None, currency=made.currency
    )
    return await _play(request, action, story, 1, run)


@router.post(f"{_STORIES}/{{name}}/steps/{{number}}")
async def play(request: Request, action: Transacting, name: str, number: int) -> Response:
    """Play the step `number` of a run, once, whatever page it is sent from."""
    story = _story(name)
    fields = action.fields
    if not 1 < number <= len(story.steps):
        raise unknown_path()
    run_id = fields[forms.KEY].rpartition(".")[0]
    currency = fields.get("currency", "")
    if not stories.is_run(run_id) or fields[forms.KEY] != stories.key_of(run_id, number):
        raise invalid_field(forms.KEY, "must be the one of the form; reload the page")
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
    history = await to_thread(purchase_history.fold, events)
    purchase = public_id("CardTransaction", query.purchase)
    run = Run(
        id=query.run,
        card=public_id("Card", query.card),
        account=public_id("InternalAccount", query.account),
        purchase=purchase,
        currency=history.resource.held_amount.currency.code,
    )
    made = stories.request_of(story, query.step, run)
    return await rendering.page(
        request,
        "simulator_story.html",
        call=call,
        part=_PART,
        story=story,
        stories=stories.STORIES,
        run=run,
        step=query.step,
        is_playing=sessions.is_play_token(query.play, query.run, call.session, call.keys),
        next_key=stories.key_of(query.run, query.step + 1),
        new_key=forms.new_key,
        history=history,
        purchase=history.resource,
        name=purchase,
        picture=picture.draw(history),
        made=rendering.api_call(request, call, made.path, body=made.body, key=made.key),
        api=documents.events_call(request, call, history),
    )


async def _play(request: Request, action: Action, story: Story, number: int, run: Run) -> Response:
    wanted = stories.request_of(story, number, run)
    answer = await action.run("POST", wanted.path, wanted.body, key=wanted.key)
    if not answer.is_success:
        return await failure(request, answer.status, answer.message)
    shown = {
        "run": run.id,
        "card": run.card,
        "account": run.account,
        "purchase": run.purchase or _purchase_in(answer),
        "step": number,
        "play": _play_token(action, run),
    }
    return redirect(f"{_STORIES}/{story.name}?{urlencode(shown)}")


def _play_token(action: Action, run: Run) -> str:
    if action.fields.get("play") != _PLAY:
        return ""
    return sessions.play_token(run.id, action.call.session, action.call.keys)


def _purchase_in(answer: Answer) -> str:
    """Return the purchase of the first step, by an operation or by an event of the network."""
    body = answer.body
    return str(body[0]["cardTransaction"]["id"] if isinstance(body, list) else body["id"])


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
