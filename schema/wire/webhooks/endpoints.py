"""Webhook endpoints, deliveries, replays and signing keys."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, PlainValidator

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import (
    CardTransactionId,
    Documented,
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
        message = "has a duplicate; send each event type once"
        raise ValueError(message)
    return value


EventTypes = Annotated[
    list[Annotated[ShortName, AfterValidator(_event_filter)]],
    Field(max_length=100),
    AfterValidator(_each_once),
]
"""Event types by name or by group; an empty list selects all."""


def _subject(value: object) -> Id:
    text = str(value)
    resource = text.partition(":")[0].partition("%")[0]
    if not _RESOURCE.fullmatch(resource):
        message = "must be of the form <Resource>:<uuid>"
        raise ValueError(message)
    return parse_id(resource, text)


SubjectId = Annotated[
    Id,
    PlainValidator(_subject, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
    Field(examples=["CardTransaction:019542f5-b3e7-7d02-0000-00000000a1b4"]),
]
"""The id of the resource of a webhook, of any type."""


class WebhookEndpointCreate(Request):
    """An endpoint to create; `mode` cannot be changed afterwards."""

    url: WebhookUrl
    description: Name | None = None
    event_types: EventTypes = Field(default_factory=list)
    mode: Mode = "PARALLEL"
    state: State = "ENABLED"


class WebhookEndpointUpdate(Request):
    """A change of an endpoint; absent fields keep their value, null removes `description`."""

    url: WebhookUrl | None = None
    description: Name | None = None
    event_types: EventTypes | None = None
    state: State | None = None


class WebhookEndpointResource(Response):
    """A webhook endpoint; `secret` is returned only when it is created or rotated.

    `disabledReason` is PLATFORM (disabled through the API), GONE (the endpoint responded 410) or
    FAILING (no delivery has succeeded for five days).
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
    """The endpoint that was disabled automatically; sent to the platform's other endpoints."""

    id: WebhookEndpointId
    url: str
    description: str | None = None
    state: Literal["DISABLED"] = "DISABLED"
    disabled_reason: GivenUpReason


class SigningKey(Response):
    """A public key of `X-Grid-Signature`; NEXT is published before it signs, FORMER after."""

    public_key: str
    status: Literal["NEXT", "CURRENT", "FORMER"]
    signs_from: Time
    signs_until: Time | None = None


class SigningKeys(Response):
    """The keys that a receiver should accept now, the current key first."""

    data: list[SigningKey]


class SigningKeyRotate(Request):
    """A rotation of the signing key; both keys are published during the overlap."""

    overlap_hours: Annotated[int, Field(strict=True, ge=0, le=168)] = 24


class WebhookDeliveriesQuery(PageQuery):
    """Filters of the list of deliveries; all must match, times are inclusive."""

    endpoint_id: WebhookEndpointId | None = None
    type: ShortName | None = None
    subject_id: SubjectId | None = None
    card_transaction_id: CardTransactionId | None = None
    state: DeliveryState | None = None
    since: Time | None = None
    until: Time | None = None


class WebhookAttemptResource(Response):
    """One attempt of a delivery: `status` is the response's, or `error` is the cause."""

    number: int
    attempted_at: Time
    duration_ms: int
    status: int | None = None
    error: str | None = None
    response_head: str | None = None


class WebhookDeliveryResource(Response):
    """The delivery of one webhook to one endpoint; `attemptList` has the last 20 of its attempts.

    A PENDING delivery without `nextAttemptAt` waits for an earlier delivery of its resource.
    """

    id: WebhookDeliveryId
    webhook_id: WebhookId
    endpoint_id: WebhookEndpointId | None = None
    type: Annotated[str, Documented(WebhookType)]
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
    """A replay of the deliveries of a period: all of them, or those that failed.

    `cursor` is the `nextCursor` of the previous response.
    """

    endpoint_id: WebhookEndpointId | None = None
    since: Time
    until: Time | None = None
    only_failed: Annotated[bool, Field(strict=True)] = True
    cursor: WebhookDeliveryId | None = None


class WebhookReplayed(Response):
    """The number of replayed deliveries; `nextCursor` is present when there may be more."""

    count: int
    has_more: bool
    next_cursor: WebhookDeliveryId | None = None


class WebhookTest(Request):
    """The endpoint to test; without `endpointId`, the platform's `webhookEndpoint`."""

    endpoint_id: WebhookEndpointId | None = None


class WebhookTestResource(Response):
    """The result of a test; without `responseStatus`, `error` is the cause."""

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
    """The response of the platform's `webhookEndpoint` to a test; snake case by contract."""

    model_config = ConfigDict(alias_generator=None)

    url: str
    response_status: int
    response_body: str
