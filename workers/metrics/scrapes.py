"""The page of metrics of this process, in the text format of Prometheus.

It is made at most once a second, however often it is asked for, and by one thread at a time.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cardledger.workers.metrics.families import Family
from cardledger.workers.metrics.instruments import Sample, Source

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_KEPT_S: Final = 1.0


class _Families(Collector):
    """Hands the samples of sources to the library, which writes them."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources: Final = sources

    @override
    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            for family, samples in source.read():
                yield _metric(family, samples)


def _metric(family: Family, samples: Sequence[Sample]) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind.value)
    for sample in samples:
        labels = dict(zip(family.labels, sample.labels, strict=True))
        if sample.bound is not None:
            labels["le"] = sample.bound
        metric.add_sample(family.name + sample.suffix, labels, sample.value)
    return metric


class Scrapes:
    """Answers the requests for the metrics of this process, in an event loop."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Read `sources`, each of which may take a second or two."""
        self._registry: Final = CollectorRegistry()
        self._registry.register(_Families(sources))
        ProcessCollector(registry=self._registry)  # Processor time, memory, open files.
        self._making: Final = asyncio.Lock()
        self._page = b""
        self._made_at = float("-inf")

    async def page(self) -> bytes:
        """Return the page, at most a second old."""
        async with self._making:
            if monotonic() - self._made_at > _KEPT_S:
                self._page = await asyncio.to_thread(self.make)
                self._made_at = monotonic()
            return self._page

    def make(self) -> bytes:
        """Return the page of now."""
        page: bytes = generate_latest(self._registry)
        return page
