"""Where a platform is told of what happens, what it was told, and how to be told again."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, PlainValidator

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import (
    CardTransactionId,
    Name,
    PageQuery,
    Request,
    Response,
    ShortName,
    Time,
    WebhookDeliveryId,
    WebhookEndpointId,
    WebhookId,
    parse_id,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.schema.wire.webhooks.urls import WebhookUrl

Mode = Literal["FIFO", "PARALLEL"]
State = Literal["ENABLED", "DISABLED"]
DisabledReason = Literal["PLATFORM", "GONE", "FAILING"]
GivenUpReason = Literal["GONE", "FAILING"]
DeliveryState = Literal["PENDING", "DELIVERED", "FAILED", "NO_ENDPOINT"]

_TYPES: Final = frozenset(kind.value for kind in WebhookType)
_GROUPS: Final = frozenset(f"{kind.partition('.')[0]}.*" for kind in _TYPES if "." in kind)
_RESOURCE: Final = re.compile(r"[A-Za-z]{1,40}")


def _event_filter(value: str) -> str:
    if value not in _TYPES and value not in _GROUPS:
        message = "must be an event type, such as CARD_TRANSACTION.SETTLED, or CARD_TRANSACTION.*"
        raise ValueError(message)
    return value


def _each_once(value: list[str]) -> list[str]:
    if len(set(value)) != len(value):
        message = "names an event type twice; send every one once"
        raise ValueError(message)
    return value


EventTypes = Annotated[
    list[Annotated[ShortName, AfterValidator(_event_filter)]],
    Field(max_length=100),
    AfterValidator(_each_once),
]
"""Types that are wanted, by name or by group; an empty list wants all."""


def _subject(value: object) -> Id:
    said = str(value)
    resource = said.partition(":")[0].partition("%")[0]
    if not _RESOURCE.fullmatch(resource):
        message = "must be of the form <Resource>:<uuid>"
        raise ValueError(message)
    return parse_id(resource, said)


SubjectId = Annotated[
    Id,
    PlainValidator(_subject, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
    Field(examples=["CardTransaction:019542f5-b3e7-7d02-0000-00000000a1b4"]),
]
"""The resource that a webhook is about, whichever kind it is."""


class WebhookEndpointCreate(Request):
    """An endpoint that is asked for. Its mode is for ever: what is under way depends on it."""

    url: WebhookUrl
    description: Name | None = None
    event_types: EventTypes = Field(default_factory=list)
    mode: Mode = "PARALLEL"
    state: State = "ENABLED"


class WebhookEndpointUpdate(Request):
    """What to change; a field that is not there stays, a null `description` takes it away."""

    url: WebhookUrl | None = None
    description: Name | None = None
    event_types: EventTypes | None = None
    state: State | None = None


class WebhookEndpointResource(Response):
    """An endpoint; `secret` is there once, in the answer to its creation or rotation.

    `disabledReason` is PLATFORM (asked for), GONE (it answered 410) or FAILING (nothing but
    failures for five days).
    """

    id: WebhookEndpointId
    url: str
    description: str | None = None
    event_types: list[str]
    mode: Mode
    state: State
    disabled_reason: DisabledReason | None = None
    is_default: bool
    secret: str | None = None
    former_secret_until: Time | None = None
    failing_since: Time | None = None
    created_at: Time
    updated_at: Time


class WebhookEndpointsQuery(PageQuery):
    """Which page of the endpoints, oldest first."""


class WebhookEndpointDisabled(Response):
    """What the platform's other endpoints are told of one that disabled itself."""

    id: WebhookEndpointId
    url: str
    description: str | None = None
    state: Literal["DISABLED"] = "DISABLED"
    disabled_reason: GivenUpReason


class SigningKey(Response):
    """A public key of `X-Grid-Signature`: NEXT is published before it signs, FORMER after."""

    public_key: str
    status: Literal["NEXT", "CURRENT", "FORMER"]
    signs_from: Time
    signs_until: Time | None = None


class SigningKeys(Response):
    """The keys that a receiver should accept now, the one that signs first."""

    data: list[SigningKey]


class SigningKeyRotate(Request):
    """How long both keys are published before, and after, the new one signs."""

    overlap_hours: Annotated[int, Field(strict=True, ge=0, le=168)] = 24


class WebhookDeliveriesQuery(PageQuery):
    """Filters of the list of deliveries; all have to match, times included."""

    endpoint_id: WebhookEndpointId | None = None
    type: ShortName | None = None
    subject_id: SubjectId | None = None
    card_transaction_id: CardTransactionId | None = None
    state: DeliveryState | None = None
    since: Time | None = None
    until: Time | None = None


class WebhookAttemptResource(Response):
    """One attempt: a status came back, or `error` says why none did."""

    number: int
    attempted_at: Time
    duration_ms: int
    status: int | None = None
    error: str | None = None
    response_head: str | None = None


class WebhookDeliveryResource(Response):
    """One webhook on its way to one endpoint; `attempts` counts, `attemptList` tells.

    A PENDING delivery without `nextAttemptAt` waits for an earlier one of its resource.
    """

    id: WebhookDeliveryId
    webhook_id: WebhookId
    endpoint_id: WebhookEndpointId | None = None
    type: str
    subject_id: str
    sequence: int | None = None
    state: DeliveryState
    attempts: int
    next_attempt_at: Time | None = None
    last_status: int | None = None
    created_at: Time
    delivered_at: Time | None = None
    attempt_list: list[WebhookAttemptResource] | None = None
    payload: dict[str, Any] | None = None


class WebhookReplay(Request):
    """What to send again: every delivery made in a window of time, or only those that failed.

    `cursor` is the `nextCursor` of an answer that did not come to the end.
    """

    endpoint_id: WebhookEndpointId | None = None
    since: Time
    until: Time | None = None
    only_failed: Annotated[bool, Field(strict=True)] = True
    cursor: WebhookDeliveryId | None = None


class WebhookReplayed(Response):
    """How many deliveries are due again; `nextCursor` is there when there may be more."""

    count: int
    has_more: bool
    next_cursor: WebhookDeliveryId | None = None


class WebhookTest(Request):
    """Which endpoint to try; without one, the platform's `webhookEndpoint`."""

    endpoint_id: WebhookEndpointId | None = None


class WebhookTestResource(Response):
    """What came of a test; without `responseStatus`, `error` says why nothing came back."""

    delivery_id: WebhookDeliveryId
    webhook_id: WebhookId
    endpoint_id: WebhookEndpointId
    url: str
    delivered: bool
    duration_ms: int
    response_status: int | None = None
    response_body: str | None = None
    error: str | None = None


class SandboxWebhookTestResource(Response):
    """What the platform's `webhookEndpoint` answered to a test; the names are the interface's."""

    model_config = ConfigDict(alias_generator=None)

    url: str
    response_status: int
    response_body: str
