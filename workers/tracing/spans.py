"""Spans, by the API of OpenTelemetry alone: the operator brings the SDK and the exporter.

Without an SDK nothing is made and nothing is kept. Of a trace that is sampled, the message in the
inbox keeps the `traceparent`, which is no part of its event.
Source: docs/decisions/0059-observability.md
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from cardledger.ledger.messaging.inbox import TRACEPARENT
from cardledger.schema.wire.common import public_id

if TYPE_CHECKING:
    from cardledger.ledger.engine.records import Decided

# `traceparent` of W3C Trace Context.
_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)

_tracer: Final = trace.get_tracer("cardledger", version("cardledger"))


def is_active() -> bool:
    """Return whether an SDK is configured in this process."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def written(span: Span) -> str | None:
    """Return the `traceparent` of what comes below `span`; None when it is not sampled."""
    context = span.get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def below(traceparent: object, *, sampled: bool = True) -> Context | None:
    """Return the context of what comes below `traceparent`; None when it is none.

    Without `sampled`, also of a trace that its caller does not record.
    """
    found = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    if not parent.is_valid or (sampled and not parent.trace_flags.sampled):
        return None
    return set_span_in_context(NonRecordingSpan(parent), Context())


# --- request -------------------------------------------------------------------------------------


@contextmanager
def request(method: str, traceparent: Sequence[str]) -> Iterator[Span]:
    """Have what the block does in a span of an HTTP request, below the one that its caller sent.

    `end_request` gives it its name.
    """
    parent = below(traceparent[0], sampled=False) if len(traceparent) == 1 else None
    with _tracer.start_as_current_span(
        method,
        context=parent or Context(),
        kind=SpanKind.SERVER,
        # The texts of exceptions can quote what a client has sent.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def end_request(method: str, route: str | None, status: int) -> None:
    """Name the current span by the template of the route: paths have ids, and some have tokens."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    span.update_name(f"{method} {route}" if route else method)
    span.set_attribute("http.request.method", method)
    span.set_attribute("http.response.status_code", status)
    if route:
        span.set_attribute("http.route", route)
    if status >= 500:  # noqa: PLR2004 - errors of the server
        span.set_status(StatusCode.ERROR)


# --- inbox ---------------------------------------------------------------------------------------


class InboxSpan:
    """The write of events that were submitted together."""

    def __init__(self, span: Span, traceparent: str) -> None:
        self._span: Final = span
        self.traceparent: Final = traceparent
        """What their messages keep."""

    def end(self, error: BaseException | None = None) -> None:
        """Note that they are durable, or why they are not."""
        if error is not None:
            self._span.set_status(StatusCode.ERROR, type(error).__name__)
        self._span.end()


def inbox(count: int) -> InboxSpan | None:
    """Begin the write of `count` events below the current span; None when it is not sampled."""
    if written(trace.get_current_span()) is None:
        return None
    attributes = {"messaging.batch.message_count": count}
    span = _tracer.start_span("cardledger inbox", kind=SpanKind.PRODUCER, attributes=attributes)
    traceparent = written(span)
    return None if traceparent is None else InboxSpan(span, traceparent)


# --- batch ---------------------------------------------------------------------------------------


def decided(batch: "Sequence[Decided]", began_ns: int) -> dict[str, str]:
    """Make a span for each message of a trace in `batch`, which began at `began_ns`.

    Returns the `traceparent` of what these decisions cause, by `change_key`.
    """
    caused = {}
    for each in batch:
        body = each.message.body
        parent = below(body.get(TRACEPARENT)) if isinstance(body, dict) else None
        if parent is None:
            continue
        span = _tracer.start_span(
            "cardledger batch",
            context=parent,
            kind=SpanKind.CONSUMER,
            start_time=began_ns,
            attributes=_about(each) | {"messaging.batch.message_count": len(batch)},
        )
        span.end()
        traceparent = written(span)
        if traceparent is not None and each.roll_up is not None:
            after = each.roll_up
            caused[change_key(after.identity.id.hex(), after.state.sequence)] = traceparent
    return caused


def _about(decided: "Decided") -> dict[str, Any]:
    message, after = decided.message, decided.roll_up
    about = {
        "cardledger.network_event": f"{message.source}/{message.reference}",
        "cardledger.outcome": decided.outcome.value,
    }
    if after is not None:
        about["cardledger.card_transaction"] = public_id("CardTransaction", after.identity.id)
    return about


def change_key(subject: str, sequence: int) -> str:
    """Return what names a change of a card transaction, which a webhook reports."""
    return f"{subject}.{sequence}"


# --- delivery ------------------------------------------------------------------------------------


@contextmanager
def delivery(traceparent: str | None, about: Mapping[str, Any]) -> Iterator[Span | None]:
    """Have what the block does in the span of a delivery below `traceparent`, if there is one."""
    parent = below(traceparent)
    if parent is None:
        yield None
        return
    with _tracer.start_as_current_span(
        "cardledger webhook",
        context=parent,
        kind=SpanKind.PRODUCER,
        attributes=about,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span
