"""Network events over HTTP: how a request wants them accepted, and what it gets without waiting."""

from typing import Annotated, Literal

from pydantic import Field

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import CardId, Request, Response
from cardledger.schema.wire.outcomes import OutcomeType


class IngestionQuery(Request):
    """How events are accepted.

    `lane`: events of one lane are decided in the order of their acceptance. `LIVE` is for events
    that a caller waits for, at most 20 a request; `BULK` is for files, and never delays live
    events. By default the number of events decides. `wait=false` returns once the events are
    accepted, without their outcomes.
    """

    lane: Annotated[
        Literal["LIVE", "BULK"] | None,
        Field(
            description="The lane of the events; by default LIVE for at most 20 events, else BULK."
        ),
    ] = None
    wait: Annotated[
        Literal["true", "false"],
        Field(description="Whether to wait for the outcomes, or only until all are accepted."),
    ] = "true"


class OutcomeResource(Response):
    """The outcome of a network event, with the card transaction as the event left it."""

    reference: str | None = None
    outcome: OutcomeType
    reason: str | None = None
    detail: str | None = None
    first_outcome: OutcomeType | None = None
    card_transaction: CardTransactionResource | None = None


class AcceptedEvents(Response):
    """How many events were accepted, and how many were malformed and kept as rejections."""

    accepted: int
    rejected: int


class NetworkEventQuery(Request):
    """`cardId` chooses among events of several cardholders with the same source and reference."""

    card_id: CardId | None = None
