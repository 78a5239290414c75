"""One authorization is one trace: request, inbox, batch, delivery of its webhook."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from cardledger.api.app import ApiConfig
from cardledger.ledger.messaging import inbox
from cardledger.workers.tracing import spans
from tests.api.tracing import CALLER, ROUTE, TRACE, play
from tests.command_process import FORKING
from tests.waiting import limit_s


@dataclass(frozen=True)
class Recorded:
    """A span that was exported."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    attributes: dict[str, Any]


@pytest.fixture(scope="module")
def exported(
    api_config: ApiConfig, app_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> list[Recorded]:
    """The spans of two authorizations, one of them not sampled, in a process with an SDK."""
    output = tmp_path_factory.mktemp("spans") / "spans.json"
    process = FORKING.Process(target=play, args=(api_config, app_database_url, output))
    process.start()
    process.join(limit_s())
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode == 0
    return [Recorded(**each) for each in json.loads(output.read_text(encoding="utf-8"))]


def test_an_authorization_is_one_trace_with_four_spans(exported: list[Recorded]) -> None:
    own = [span for span in exported if span.trace_id == TRACE]
    by_name = {span.name: span for span in own}

    chain = [f"POST {ROUTE}", "cardledger inbox", "cardledger batch", "cardledger webhook"]
    parents = [CALLER, *(by_name[name].span_id for name in chain[:-1])]
    assert sorted(span.name for span in own if span.name != chain[-1]) == sorted(chain[:-1])
    assert [by_name[name].parent_id for name in chain] == parents


def test_spans_say_what_happened_without_paths_and_bodies(exported: list[Recorded]) -> None:
    by_name = {span.name: span.attributes for span in exported if span.trace_id == TRACE}

    request, batch = by_name[f"POST {ROUTE}"], by_name["cardledger batch"]
    assert request["http.route"] == ROUTE
    assert request["http.response.status_code"] == 200
    assert batch["cardledger.outcome"] == "APPLIED"
    assert batch["cardledger.network_event"].startswith("simulator/")
    assert batch["cardledger.card_transaction"].startswith("CardTransaction:")
    delivery = by_name["cardledger webhook"]
    assert delivery["cardledger.webhook_type"] == "CARD_TRANSACTION.AUTHORIZED"
    assert delivery["http.response.status_code"] == 200
    assert not re.search("Card:|Acme|RESTAURANT", json.dumps(list(by_name.values())))


def test_without_an_sdk_nothing_is_active() -> None:
    assert not spans.is_active()
    assert spans.inbox(1) is None


@pytest.mark.parametrize(
    "traceparent",
    [None, 7, "", "00-0-0-01", f"00-{'0' * 32}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00", "x" * 55],
)
def test_what_is_no_sampled_traceparent_is_no_parent(traceparent: object) -> None:
    assert spans.below(traceparent) is None


def test_the_trace_is_no_part_of_an_event() -> None:
    event = {"type": "CLEARING", "source": "visa", "reference": "r"}
    traced = {**event, inbox.TRACEPARENT: f"00-{TRACE}-{CALLER}-01"}

    assert inbox.fingerprint(traced) == inbox.fingerprint(event)
    assert inbox.event_of(traced) == event
    assert inbox.event_of(event) is event
