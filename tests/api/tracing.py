"""An authorization in a process with an SDK of OpenTelemetry, which writes the spans to a file."""

import json
from pathlib import Path
from typing import Any, Final

import httpx2
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.webhooks.receiver import Reply
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess
from tests import fence
from tests.api.support import (
    SECRET_KEY,
    TIMEOUT_S,
    Api,
    authorization,
    made,
    new_tenant,
    ok,
    server,
)
from tests.receiver import Receiver
from tests.waiting import eventually, limit_s

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"
ROUTE: Final = f"{BASE_PATH}/sandbox/cards/{{card_id}}/simulate/authorization"


def recorded(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_id": None if span.parent is None else f"{span.parent.span_id:016x}",
        "attributes": dict(span.attributes or {}),
    }


def simulate(api: Api, card_id: str, flags: str) -> None:
    path = f"/sandbox/cards/{card_id}/simulate/authorization"
    headers = {"traceparent": f"00-{TRACE}-{CALLER}-{flags}"}
    ok(api.http.post(path, json=authorization(), headers=headers))


def play(config: ApiConfig, worker_url: str, output: Path) -> None:
    """Authorize in a trace, with an SDK in this process; write the spans that it exports."""
    fence.install()
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    worker = WorkerProcess(
        WorkerConfig(database_url=worker_url, redis_url=config.redis_url, secret_key=SECRET_KEY)
    )
    worker.start()
    try:
        with (
            server(config) as root,
            Receiver() as receiver,
            Api(root, new_tenant(config.database_url)) as api,
        ):
            receiver.reply_always(Reply())
            made(api.post("/webhooks/endpoints", {"url": receiver.url, "eventTypes": []}))
            card = api.active_card()
            httpx2.get(f"{root}/healthz", timeout=TIMEOUT_S)
            exporter.clear()
            simulate(api, card["id"], "00")
            simulate(api, card["id"], "01")

            def are_complete() -> bool:
                names = {span.name for span in exporter.get_finished_spans()}
                return {"cardledger webhook", f"POST {ROUTE}"} <= names

            eventually(are_complete)
    finally:
        worker.stop(limit_s())
    found = [recorded(span) for span in exporter.get_finished_spans()]
    output.write_text(json.dumps(found), encoding="utf-8")
