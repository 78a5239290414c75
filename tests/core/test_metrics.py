"""Counters, histograms and pages of metrics, and who may read them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import canaries
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.workers.metrics import counted, families
from cardledger.workers.metrics.access import Access, Scrape, Verdict
from cardledger.workers.metrics.families import FAMILIES, Exporter, Family, Kind
from cardledger.workers.metrics.instruments import Counts, Gauge, Histogram, Source
from cardledger.workers.metrics.scrapes import Scrapes
from cardledger.workers.metrics.verified import LastVerification, Verified, note

TOKEN = "a token of metrics, 32 characters long"
LOCAL = {"host": "127.0.0.1:8000", "user-agent": "Prometheus/3.7"}


def numbers(*sources: Source) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the numbers on a page of `sources`, by the name of the sample and its labels.

    Labels are in the order of their names.
    """
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(Scrapes(sources).make().decode()):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


# --- who may read --------------------------------------------------------------------------------


def verdict(
    access: Access, peer: str = "127.0.0.1", version: str = "1.1", **headers: str
) -> Verdict:
    given = LOCAL | {name.replace("_", "-"): value for name, value in headers.items()}
    return access.verdict(Scrape(peer, version, [*given.items()]))


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:9101"])
def test_a_program_of_the_same_machine_reads_without_a_token(peer: str, host: str) -> None:
    assert verdict(Access(), peer, host=host) is Verdict.ALLOWED


@pytest.mark.parametrize(
    "headers",
    [
        {"x_forwarded_for": "127.0.0.1"},
        {"x_forwarded_proto": "https"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"x_real_ip": "127.0.0.1"},
        {"host": "ledger.example.com"},
        {"host": "127.0.0.1.example.com"},
        {"host": "[::1"},
        {"version": "1.0"},
        {"peer": "192.0.2.7"},
        {"peer": "::ffff:192.0.2.7"},
        {"peer": ""},
    ],
)
def test_a_request_that_was_passed_on_or_comes_from_elsewhere_finds_nothing(
    headers: dict[str, str],
) -> None:
    assert verdict(Access(), **headers) is Verdict.UNKNOWN


def test_where_a_proxy_is_configured_loopback_is_a_stranger() -> None:
    assert verdict(Access(is_behind_proxy=True)) is Verdict.UNKNOWN


@pytest.mark.parametrize("is_behind_proxy", [False, True])
def test_with_a_token_every_request_needs_it(is_behind_proxy: bool) -> None:  # noqa: FBT001 - a parameter
    access = Access(token=TOKEN, is_behind_proxy=is_behind_proxy)

    assert verdict(access, "192.0.2.7", authorization=f"Bearer {TOKEN}") is Verdict.ALLOWED
    for wrong in ("", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e9"):
        assert verdict(access, authorization=wrong) is Verdict.UNAUTHORIZED, wrong
    assert verdict(access) is Verdict.UNAUTHORIZED
    twice = [("authorization", f"Bearer {TOKEN}")] * 2
    assert access.verdict(Scrape("127.0.0.1", "1.1", twice)) is Verdict.UNAUTHORIZED


# --- numbers -------------------------------------------------------------------------------------

COUNTER = Family(
    name="cardledger_tests_total",
    kind=Kind.COUNTER,
    meaning="Tests.",
    exporters=(Exporter.API,),
    labels=("what",),
)
HISTOGRAM = Family(
    name="cardledger_test_seconds",
    kind=Kind.HISTOGRAM,
    meaning='Times\nwith a "quote".',
    exporters=(Exporter.API,),
    labels=("what",),
    buckets=(0.5, 1.0),
)


def test_a_counter_begins_at_zero_and_counts() -> None:
    counter = Counts(COUNTER, ("a",))
    counter.add("b", number=2)
    counter.add_all({("b",): 1})

    assert numbers(counter)["cardledger_tests_total"] == {("a",): 0, ("b",): 3}


def test_a_histogram_counts_a_value_in_its_bucket_and_those_above() -> None:
    histogram = Histogram(HISTOGRAM, ("empty",))
    histogram.observe_all(("a",), [0.5, 0.75, 2.0])
    histogram.observe("a", value=0.1)

    found = numbers(histogram)
    buckets = found["cardledger_test_seconds_bucket"]
    assert [buckets[bound, "a"] for bound in ("0.5", "1.0", "+Inf")] == [2, 3, 4]
    assert found["cardledger_test_seconds_count"] == {("empty",): 0, ("a",): 4}
    assert found["cardledger_test_seconds_sum"]["a",] == pytest.approx(3.35)


def test_a_gauge_without_a_value_has_no_sample() -> None:
    assert (
        numbers(Gauge(families.CLOCK_OFFSET, lambda: None))
        .keys()
        .isdisjoint({families.CLOCK_OFFSET.name})
    )


@dataclass(frozen=True)
class Batch:
    """Messages that a test has decided."""

    at: datetime

    def message(self, body: Any, *, age_s: float = 0.0) -> Message:  # noqa: ANN401 - it may be malformed
        return Message(
            lane=Lane.BULK,
            shard=0,
            id=new_id(),
            customer_id=UNROUTED.customer_id,
            platform_id=UNROUTED.platform_id,
            source="visa",
            reference="r",
            body=body,
            body_hash=b"",
            reply_to=None,
            received_at=self.at - timedelta(seconds=age_s),
        )


def test_a_batch_is_counted_without_canaries_and_forged_messages() -> None:
    before = numbers(*counted.OF_EVENTS)
    batch = Batch(datetime.now(UTC))
    bodies: list[Any] = [{"type": "CLEARING"}, {"type": "INVENTED"}, {"type": ["CLEARING"]}, 7]
    decided = [Decided(batch.message(body, age_s=3), OutcomeType.REJECTED) for body in bodies]
    decided.append(
        Decided(batch.message({"type": "CLEARING"}), OutcomeType.APPLIED, is_forged=True)
    )
    decided.append(Decided(canaries.canary((Lane.BULK, 0), batch.at), OutcomeType.IGNORED))

    counted.decisions(decided, batch.at)

    after = numbers(*counted.OF_EVENTS)

    def more(name: str, *labels: str) -> float:
        return after[name][labels] - before.get(name, {}).get(labels, 0)

    assert more("cardledger_decisions_total", "REJECTED", "CLEARING") == 1
    assert more("cardledger_decisions_total", "REJECTED", "other") == 3
    assert more("cardledger_decision_latency_seconds_count", "bulk") == 4
    assert more("cardledger_decision_latency_seconds_bucket", "bulk", "2.0") == 0
    assert more("cardledger_decision_latency_seconds_bucket", "bulk", "5.0") == 4
    assert more("cardledger_batch_messages_sum", "bulk") == 4
    assert after.keys() >= {"process_cpu_seconds_total", "cardledger_build_info"}


@pytest.mark.parametrize(
    ("status", "retry_at", "labels"),
    [
        (200, None, ("delivered", "2xx")),
        (409, None, ("delivered", "4xx")),
        (500, datetime.now(UTC), ("retried", "5xx")),
        (None, None, ("exhausted", "none")),
        (999, None, ("exhausted", "5xx")),
    ],
)
def test_an_attempt_is_counted_by_its_result(
    status: int | None, retry_at: datetime | None, labels: tuple[str, str]
) -> None:
    name = families.ATTEMPTS.name
    before = numbers(*counted.OF_WEBHOOKS)[name].get(labels, 0)
    attempt = SimpleNamespace(
        status=status,
        duration_ms=20,
        ended_at=datetime.now(UTC),
        delivered=labels[0] == "delivered",
    )
    delivery = SimpleNamespace(webhook=new_id(), type="CARD.STATE_CHANGED")
    result: Any = SimpleNamespace(attempt=attempt, delivery=delivery, retry_at=retry_at)

    counted.attempt(result)

    assert numbers(*counted.OF_WEBHOOKS)[name][labels] == before + 1


def test_names_and_meanings_follow_one_form() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"cardledger_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert bool(family.buckets) == (family.kind is Kind.HISTOGRAM)
        assert list(family.buckets) == sorted(family.buckets)
        assert family.meaning.endswith(".")
        assert not {"platform", "customer", "id", "path"} & {*family.labels}


def test_the_last_verification_is_read_where_workers_report(tmp_path: Path) -> None:
    last = LastVerification(tmp_path)
    assert numbers(last).keys().isdisjoint({families.VERIFIED_AT.name})

    note(tmp_path / "absent", Verified(at=1.0, events=2, differences=3))
    note(tmp_path, Verified(at=1.5, events=20, differences=0))

    assert numbers(last)[families.VERIFIED_AT.name] == {(): 1.5}
    assert numbers(last)[families.VERIFIED_EVENTS.name] == {(): 20}
    (tmp_path / "verified.json").write_text("[]")
    assert numbers(last).keys().isdisjoint({families.VERIFIED_AT.name})
