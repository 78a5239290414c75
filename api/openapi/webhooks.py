"""Webhooks in the document: one operation per type, one schema per kind of resource."""

import re
from collections.abc import Mapping
from typing import Any, Final

from cardledger.api.openapi.signatures import SCHEMAS
from cardledger.schema.wire.webhooks.envelope import WebhookType
from cardledger.schema.wire.webhooks.payloads import IN_ORDER, PAYLOADS

Json = dict[str, Any]

DESCRIPTIONS: Final[Mapping[WebhookType, str]] = {
    WebhookType.CARD_STATE_CHANGE: "The state of a card has changed, such as frozen or closed.",
    WebhookType.CARD_FUNDING_SOURCE_CHANGE: "The funding sources of a card were replaced.",
    WebhookType.CARD_TRANSACTION_AUTHORIZED: (
        "A card transaction was authorized, or its authorization has changed."
    ),
    WebhookType.CARD_TRANSACTION_PARTIALLY_SETTLED: (
        "A part of a card transaction has cleared; more clearings may follow."
    ),
    WebhookType.CARD_TRANSACTION_SETTLED: (
        "A card transaction has cleared completely, or a credit such as a cash deposit was paid."
    ),
    WebhookType.CARD_TRANSACTION_REFUNDED: "A card transaction was refunded completely.",
    WebhookType.CARD_TRANSACTION_EXCEPTION: (
        "A clearing exceeds the money in the account: an amount is due."
    ),
    WebhookType.CARD_TRANSACTION_DECLINED: "An authorization was declined.",
    WebhookType.CARD_TRANSACTION_VOIDED: (
        "An authorization was reversed, has expired or was cancelled; nothing has cleared."
    ),
    WebhookType.CUSTOMER_KYC_PENDING: "The identity verification of an individual has started.",
    WebhookType.CUSTOMER_KYC_APPROVED: "The identity of an individual was approved.",
    WebhookType.CUSTOMER_KYC_REJECTED: "The identity of an individual was rejected.",
    WebhookType.CUSTOMER_KYB_PENDING: "The verification of a business has started.",
    WebhookType.CUSTOMER_KYB_APPROVED: "A business was approved.",
    WebhookType.CUSTOMER_KYB_REJECTED: "A business was rejected.",
    WebhookType.VERIFICATION_RESOLVE_ERRORS: "A verification has problems to correct.",
    WebhookType.VERIFICATION_PENDING_MANUAL_REVIEW: "A verification is reviewed by a person.",
    WebhookType.VERIFICATION_APPROVED: "A verification was approved.",
    WebhookType.VERIFICATION_REJECTED: "A verification was rejected.",
    WebhookType.OUTGOING_PAYMENT_PENDING: (
        "A payment out was requested; where an agent requested it, it may await an approval."
    ),
    WebhookType.OUTGOING_PAYMENT_PENDING_AUTHORIZATION: (
        "A payment out awaits the strong authentication of the customer."
    ),
    WebhookType.OUTGOING_PAYMENT_PROCESSING: "A payment out was debited and is being executed.",
    WebhookType.OUTGOING_PAYMENT_COMPLETED: "A payment out has arrived.",
    WebhookType.OUTGOING_PAYMENT_FAILED: (
        "A payment out failed, was rejected, cancelled or returned; what was debited is refunded."
    ),
    WebhookType.OUTGOING_PAYMENT_EXPIRED: "A payment out was not executed in time; nothing moved.",
    WebhookType.OUTGOING_PAYMENT_REFUND_PENDING: "The refund of a failed payment out has begun.",
    WebhookType.OUTGOING_PAYMENT_REFUND_COMPLETED: "A failed payment out was refunded.",
    WebhookType.OUTGOING_PAYMENT_REFUND_FAILED: "The refund of a failed payment out failed.",
    WebhookType.INCOMING_PAYMENT_PENDING: (
        "A payment in awaits the platform's approval, which is the response to this webhook."
    ),
    WebhookType.INCOMING_PAYMENT_COMPLETED: "A payment in has arrived in an internal account.",
    WebhookType.INCOMING_PAYMENT_FAILED: (
        "A payment in failed or was rejected; the account was not credited."
    ),
    WebhookType.INCOMING_PAYMENT_REFUND_PENDING: "The return of a failed payment in has begun.",
    WebhookType.INCOMING_PAYMENT_REFUND_COMPLETED: "A failed payment in was returned.",
    WebhookType.INCOMING_PAYMENT_REFUND_FAILED: "The return of a failed payment in failed.",
    WebhookType.AGENT_ACTION_PENDING_APPROVAL: "An action of an agent awaits an approval.",
    WebhookType.INTERNAL_ACCOUNT_BALANCE_UPDATED: "The balance of an internal account has changed.",
    WebhookType.INVITATION_CLAIMED: "An invitation was claimed: the invitee can be paid.",
    WebhookType.EXTERNAL_ACCOUNT_STATUS_UPDATED: (
        "The status of an external account has changed, such as by a challenge that was passed."
    ),
    WebhookType.BULK_UPLOAD_COMPLETED: (
        "Every row of a file of customers was processed; some may have failed."
    ),
    WebhookType.BULK_UPLOAD_FAILED: "A file of customers could not be read.",
    WebhookType.INTERNAL_ACCOUNT_STATUS_UPDATED: "The status of an internal account has changed.",
    WebhookType.WEBHOOK_ENDPOINT_DISABLED: (
        "A webhook endpoint was disabled after persistent failures; sent to the other endpoints."
    ),
    WebhookType.TEST: "A test that the platform has requested.",
}

_SEQUENCE: Final[Json] = {
    "type": "integer",
    "format": "int64",
    "minimum": 0,
    "description": "Rises with every change of the resource: ignore a lower one than the latest.",
}
_SIGNATURES: Final = {
    "X-Grid-Signature": 'ECDSA P-256 over the body: `{"v":"1","s":"<base64>"}`.',
    "webhook-id": "Standard Webhooks: the id of the webhook.",
    "webhook-timestamp": "Standard Webhooks: the time of the attempt, in seconds since 1970.",
    "webhook-signature": "Standard Webhooks: HMAC-SHA-256 of id, timestamp and body.",
}
_RESPONSES: Final[Json] = {
    "2XX": {"description": "Received; not sent again."},
    "409": {"description": "Received before; not sent again."},
    "410": {"description": "No longer wanted: the endpoint is disabled."},
    "429": {"description": "Sent again after `Retry-After`."},
    "503": {"description": "Sent again after `Retry-After`."},
}


def webhooks() -> Json:
    """Return every webhook by its type."""
    return {kind.value: {"post": _operation(kind)} for kind in sorted(WebhookType)}


def schemas(payloads: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema of the body of every kind of webhook; `payloads` are those of `data`."""
    return {_name(subject): _schema(subject, payloads.get(subject)) for subject in PAYLOADS}


def _kind(kind: str) -> str:
    return kind.partition(".")[0]


def _name(subject: str) -> str:
    return "".join(word.capitalize() for word in subject.split("_")) + "Webhook"


def _schema(subject: str, payload: Json | None) -> Json:
    sequence: Json = {"sequence": _SEQUENCE} if subject in IN_ORDER else {}
    kinds = sorted(kind.value for kind in WebhookType if _kind(kind) == subject)
    return {
        "title": _name(subject),
        "description": f"The body of the webhooks of type {', '.join(kinds)}.",
        "type": "object",
        "required": ["id", "type", "timestamp", *sequence, "data"],
        "additionalProperties": False,
        "properties": {
            "id": {
                "type": "string",
                "description": "Identifier of the webhook: the same in every attempt.",
                "examples": ["Webhook:019542f5-b3e7-7d02-0000-00000000a1b4"],
            },
            "type": {"type": "string", "enum": kinds, "description": "Type of the webhook."},
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "Time of the event.",
            },
            **sequence,
            "data": {
                **(payload or {"type": "object"}),
                "description": "The resource after the event." if payload else "Empty.",
            },
        },
    }


def _operation(kind: WebhookType) -> Json:
    words = re.split(r"[._]", kind.value.lower())
    of_kind = {"$ref": SCHEMAS + _name(_kind(kind))}
    schema = {"allOf": [of_kind, {"properties": {"type": {"const": kind.value}}}]}
    return {
        "tags": ["Webhooks"],
        "summary": kind.value,
        "description": DESCRIPTIONS[kind],
        "operationId": "on" + "".join(word.capitalize() for word in words),
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": about,
                "schema": {"type": "string"},
            }
            for name, about in _SIGNATURES.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": _RESPONSES,
    }
