"""The metrics of the three processes, as Prometheus scrapes them, the dashboard and the alerts."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.schema.roles import Role
from cardledger.webhooks.receiver import Reply
from cardledger.workers.metrics import verified
from cardledger.workers.metrics.access import Access, MetricsConfig
from cardledger.workers.metrics.families import FAMILIES, Exporter, Kind
from cardledger.workers.metrics.verified import Verified
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole
from tests.api.support import (
    SECRET_KEY,
    TIMEOUT_S,
    Api,
    closed_port,
    made,
    new_tenant,
    refused,
    rejected,
    server,
)
from tests.databases import as_role
from tests.receiver import Receiver
from tests.waiting import eventually
from tests.worker_process import worker_process

OPS: Final = Path(__file__).parents[2] / "ops"
TOKEN: Final = "a token of metrics, 32 characters long"
_SUFFIXES: Final = {Kind.HISTOGRAM: "_count"}


@dataclass(frozen=True)
class Sample:
    """A number of a scrape."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Ports:
    """Where the metrics of workers are."""

    events: int
    webhooks: int


def scraped(url: str, **headers: str) -> list[Sample]:
    page = httpx2.get(url, headers=headers, timeout=TIMEOUT_S)
    assert page.status_code == 200, page.text
    return [
        Sample(sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    ]


@pytest.fixture(scope="module")
def ports(api_config: ApiConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """The ports of a worker for each role, in whose directory the books were verified."""
    directory = tmp_path_factory.mktemp("health")
    verified.note(directory, Verified(at=1.0, events=2, differences=0))
    events = WorkerConfig(
        database_url=as_role(api_config.database_url, Role.WORKER),
        redis_url=api_config.redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.EVENTS,
        threads=4,
        health_dir=directory,
        metrics=MetricsConfig(port=closed_port()),
    )
    webhooks = replace(
        events,
        database_url=as_role(api_config.database_url, Role.WEBHOOKS),
        role=WorkerRole.WEBHOOKS,
        metrics=MetricsConfig(port=closed_port(), access=Access(token=TOKEN)),
    )
    with worker_process(events), worker_process(webhooks):
        assert events.metrics is not None
        assert webhooks.metrics is not None
        yield Ports(events.metrics.port, webhooks.metrics.port)


@pytest.fixture(scope="module")
def root(api_config: ApiConfig, ports: Ports) -> Iterator[str]:  # noqa: ARG001 - workers
    with server(api_config) as url:
        yield url


@pytest.fixture(scope="module")
def scrapes(
    root: str, ports: Ports, api: Api, api_config: ApiConfig
) -> dict[Exporter, list[Sample]]:
    """What the three processes export after a purchase with a tip that is not paid for in full."""
    rejected(api_config.database_url, api, {"source": "visa", "reference": "broken"})
    with Receiver() as receiver:
        receiver.reply_always(Reply())
        made(api.post("/webhooks/endpoints", {"url": receiver.url, "eventTypes": []}))
        card = api.active_card(balance=2_000)
        authorized = api.authorize(card["id"], 1_250)
        declined = api.authorize(card["id"], 900_000)
        api.clear(card["id"], authorized["id"], 5_000)
        assert declined["status"] == "DECLINED"
        receiver.wait_for(lambda arrivals: len(arrivals) > 3)
    httpx2.get(f"{root}{BASE_PATH}/nowhere/at/all", timeout=TIMEOUT_S)

    def look() -> dict[Exporter, list[Sample]] | None:
        found = {
            Exporter.API: scraped(f"{root}/metrics"),
            Exporter.EVENTS: scraped(f"http://127.0.0.1:{ports.events}/metrics"),
            Exporter.WEBHOOKS: scraped(
                f"http://127.0.0.1:{ports.webhooks}/metrics", Authorization=f"Bearer {TOKEN}"
            ),
        }
        # Figures of tables are some seconds old.
        names = {sample.name for samples in found.values() for sample in samples}
        return found if "cardledger_exceptions" in names else None

    return eventually(look)


Scrapes = dict[Exporter, list[Sample]]


def test_a_process_exports_what_is_documented_and_with_its_labels(scrapes: Scrapes) -> None:
    for exporter, samples in scrapes.items():
        own = [family for family in FAMILIES if exporter in family.exporters]
        expected = {family.name + _SUFFIXES.get(family.kind, "") for family in own}
        labels = {family.name + _SUFFIXES.get(family.kind, ""): family.labels for family in own}
        found = {sample.name: sample for sample in samples if sample.name in expected}

        assert found.keys() == expected, exporter
        for name, sample in found.items():
            assert set(sample.labels) == set(labels[name]), name
        others = {sample.name for sample in samples if sample.name.startswith("cardledger_")}
        suffixes = ("_bucket", "_sum")
        assert {name for name in others if not name.endswith(suffixes)} == expected, exporter


def value(scrapes: Scrapes, exporter: Exporter, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for sample in scrapes[exporter]
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def test_the_numbers_are_those_of_what_happened(scrapes: Scrapes) -> None:
    decisions = "cardledger_decisions_total"
    kinds = {"type": "AUTHORIZATION"}
    assert value(scrapes, Exporter.EVENTS, decisions, outcome="APPLIED", **kinds) == 1
    assert value(scrapes, Exporter.EVENTS, decisions, outcome="DECLINED", **kinds) == 1
    latency = "cardledger_decision_latency_seconds_count"
    assert value(scrapes, Exporter.EVENTS, latency, lane="live") >= 4
    owed = "cardledger_exceptions_owed_minor_units"
    assert value(scrapes, Exporter.EVENTS, owed, currency="USD") == 3_750
    rejections = "cardledger_rejections_last_day"
    assert value(scrapes, Exporter.EVENTS, rejections, reason="MALFORMED") == 1
    assert value(scrapes, Exporter.EVENTS, "cardledger_verified_events") == 2
    attempts = "cardledger_webhook_attempts_total"
    assert value(scrapes, Exporter.WEBHOOKS, attempts, result="delivered") >= 4
    assert value(scrapes, Exporter.WEBHOOKS, "cardledger_webhook_delay_seconds_count") >= 4
    for exporter in Exporter:
        assert value(scrapes, exporter, "cardledger_postgresql_available") == 1


def test_requests_are_named_by_templates_of_routes_and_no_label_has_an_id(
    scrapes: Scrapes,
) -> None:
    requests = "cardledger_http_requests_total"
    route = f"{BASE_PATH}/sandbox/cards/{{card_id}}/simulate/authorization"
    assert value(scrapes, Exporter.API, requests, route=route, method="POST", status="200") >= 2
    assert value(scrapes, Exporter.API, requests, route="other", status="404") >= 1
    for samples in scrapes.values():
        for sample in samples:
            text = " ".join(sample.labels.values())
            assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}|nowhere", text), sample


def test_the_page_of_the_api_is_for_this_machine_or_for_the_token(
    root: str, api_config: ApiConfig
) -> None:
    url = f"{root}/metrics"
    for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"Host": "ledger.example.com"}):
        refused(httpx2.get(url, headers=headers, timeout=TIMEOUT_S), 404, "REFERENCE_NOT_FOUND")
    with server(replace(api_config, metrics=Access(token=TOKEN))) as guarded:
        url = f"{guarded}/metrics"
        answer = httpx2.get(url, timeout=TIMEOUT_S)
        assert refused(answer, 401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"] == 'Bearer realm="metrics"'
        assert scraped(url, Authorization=f"Bearer {TOKEN}")
    with server(replace(api_config, metrics=Access(is_behind_proxy=True))) as proxied:
        answer = httpx2.get(f"{proxied}/metrics", timeout=TIMEOUT_S)
        refused(answer, 404, "REFERENCE_NOT_FOUND")


def test_a_refusal_is_counted_by_its_reason(api_config: ApiConfig, ports: Ports) -> None:  # noqa: ARG001 - workers
    name = "cardledger_http_refusals_total"
    with server(replace(api_config, rate_limit="1/hour")) as limited:

        def refused() -> float:
            page = {Exporter.API: scraped(f"{limited}/metrics")}
            return value(page, Exporter.API, name, reason="rate_limit")

        before = refused()
        with Api(limited, new_tenant(api_config.database_url)) as api:
            statuses = [api.get("/config").status_code for _ in range(3)]
        after = eventually(lambda: refused() >= before + 2)

    assert statuses == [200, 429, 429]
    assert after


# --- the dashboard and the alerts ----------------------------------------------------------------


def used_in(text: str) -> set[str]:
    return set(re.findall(r"\b(?:cardledger|process)_[a-z_]+", text))


@pytest.mark.parametrize("file", ["grafana.json", "alerts.yml"])
def test_every_metric_of_the_dashboard_and_the_alerts_is_scraped(
    scrapes: Scrapes, file: str
) -> None:
    names = {sample.name for samples in scrapes.values() for sample in samples}

    used = used_in((OPS / file).read_text(encoding="utf-8"))

    assert used
    assert used <= names


def test_every_metric_is_on_the_dashboard() -> None:
    used = used_in((OPS / "grafana.json").read_text(encoding="utf-8"))

    stems = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert {family.name for family in FAMILIES} <= stems


def test_the_dashboard_has_panels_with_queries_of_its_data_source() -> None:
    dashboard = json.loads((OPS / "grafana.json").read_text(encoding="utf-8"))

    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["expr"] for target in panel["targets"]), panel["title"]


def rules() -> list[dict[str, Any]]:
    groups = YAML(typ="safe").load(OPS / "alerts.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_a_summary_and_says_what_to_do() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "runbook"}
        assert all(text.endswith(".") for text in rule["annotations"].values()), rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_the_alerts() -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(OPS / "alerts.yml")],  # noqa: S607 - the one on the path
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
