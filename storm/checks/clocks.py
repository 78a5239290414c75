"""Decisions that only a clock or the state of a card explains, checked against both.

The replay takes them over from the record, because the model has no clock.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from storm.checks.promises import Promise
from storm.checks.record import Accepted, Decision, Record
from storm.checks.replay import NOT_ACTIVE, TIMED_OUT
from storm.load.journal import Journal, seconds_of

_INACTIVE: Final = {"CLOSED", "FROZEN"}
_CARDS: Final = "/cards/"
_EARLIEST_S: Final = 1.2  # A reading of PostgreSQL's clock takes a second at most.


def not_wrongly_declined(journal: Journal, record: Record) -> Promise:
    """No authorization was declined or expired by a time or a state that had not come.

    By PostgreSQL's clock, at the commit. A timeout reversal comes from a caller that could not have
    received the answer in time, so it may decline before `decideBy`, by no more than what a client
    does not know of PostgreSQL's clock.
    """
    promise = Promise("wrongly declined or expired")
    inactive_since = _inactive_since(journal)
    for decision in record.decisions.values():
        accepted = record.accepted.get(decision.message_id)
        if accepted is None:
            continue  # The replay names it.
        body = accepted.body
        if body.get("type") == TIMEOUT_REVERSAL:
            promise.checked += 1
            promise.fail_all(_too_early(accepted))
            continue
        promise.checked += (
            "decideBy" in body or "expiresAt" in body or decision.reason == NOT_ACTIVE
        )
        promise.fail_all(_problems(decision, body, inactive_since))
    return promise


def _too_early(reversal: Accepted) -> Iterator[str]:
    decide_by = reversal.body.get("authorization", {}).get("decideBy")
    if decide_by is None:
        yield f"{reversal.key}: reversed for a decideBy that it did not have"
    elif (early_s := seconds_of(decide_by) - reversal.at) > _EARLIEST_S:
        yield f"{reversal.key}: reversed {early_s:.3f} s before its decideBy"


def _problems(
    decision: Decision, body: Mapping[str, Any], inactive_since: Mapping[str, float]
) -> Iterator[str]:
    named = f"{decision.key} {body.get('type')}"
    if decision.reason == TIMED_OUT:
        decide_by = body.get("decideBy")
        if decide_by is None:
            yield f"{named}: {TIMED_OUT} without a decideBy"
        elif (early_s := seconds_of(decide_by) - decision.at) > 0:
            yield f"{named}: {TIMED_OUT} {early_s:.3f} s before its decideBy"
    if "expiresAt" in body and decision.outcome == "APPLIED":
        early_s = seconds_of(body["expiresAt"]) - decision.at
        if early_s > 0:
            yield f"{named}: expired {early_s:.3f} s before its expiresAt"
    if decision.reason == NOT_ACTIVE:
        card = body.get("cardId", "")
        since = inactive_since.get(card)
        if since is None:
            yield f"{named}: {NOT_ACTIVE}, and {card} was neither closed nor frozen"
        elif decision.at < since:
            yield f"{named}: {NOT_ACTIVE} {since - decision.at:.3f} s before {card} was closed"


def _inactive_since(journal: Journal) -> Mapping[str, float]:
    """Return when the first request that closes or freezes a card was sent, by the card's id."""
    since: dict[str, float] = defaultdict(lambda: float("inf"))
    for call in journal.calls:
        if call.method == "PATCH" and _CARDS in call.path and call.body.get("state") in _INACTIVE:
            card = call.path.rpartition("/")[2]
            since[card] = min(since[card], call.began)
    return dict(since)
