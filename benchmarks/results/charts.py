"""The charts of the docs, drawn from the JSON of runs; `benchmarks/page.py` asks for them.

They are SVG without scripts, in colours that hold on a light and on a dark page.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pygal
from pygal.style import Style

# pygal adds an importer of plugins, of which Python 3.11 warns at every import; we have none.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

_STYLE: Final = Style(
    background="transparent",
    plot_background="transparent",
    foreground="#6e7781",
    foreground_strong="#57606a",
    foreground_subtle="#d0d7de",
    colors=("#1f6feb", "#bf8700", "#1a7f37", "#8250df"),
    value_colors=("#6e7781",) * 4,
    font_family="system-ui, sans-serif",
    label_font_size=13,
    major_label_font_size=13,
    legend_font_size=13,
    title_font_size=16,
    value_font_size=12,
)
_BATCH: Final = re.compile(r"(authorizations|clearings), batches of ([0-9,]+)$")
_STORED: Final = re.compile(r"authorizations, ([0-9.]+ million) events$")
_KINDS: Final = ("authorizations", "clearings")
# Where scripts would find the numbers, of which there are none, and when it was drawn.
_NOT_DRAWN: Final = re.compile(r"\s*<script.*?</script>|<!--.*?-->", re.DOTALL)
_PACED: Final = re.compile(r"HTTP authorization at ([0-9]+)/s, (p50|p99|p99\.9)$")


def rendered(runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the charts of `runs` by name: the same for the same runs, to the byte."""
    medians = {row["name"]: row["median"] for run in runs for row in run["figures"]}
    charts = {"engine": by_batch(medians), "latency": by_rate(medians), "growth": by_size(medians)}
    return {name: _as_text(name, chart) for name, chart in charts.items()}


def _as_text(name: str, chart: Any) -> str:  # noqa: ANN401 - pygal has no types
    chart.uuid = f"bench-{name}"  # Else a new id each time.
    drawn: str = chart.render(is_unicode=True, pretty_print=True)
    return _NOT_DRAWN.sub("", drawn).rstrip() + "\n"


def by_batch(medians: Mapping[str, float]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return the engine's rates by the size of its batches."""
    medians_by_key = {
        (m[1], int(m[2].replace(",", ""))): v for k, v in medians.items() if (m := _BATCH.match(k))
    }
    sizes = sorted({size for _, size in medians_by_key})
    chart = _chart(pygal.Bar, "The engine, by messages in a commit", "a second")
    chart.x_labels = [f"{size:,}" for size in sizes]
    for kind in _KINDS:
        chart.add(kind, [round(medians_by_key.get((kind, size), 0)) for size in sizes])
    return chart


def by_rate(medians: Mapping[str, float]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return how long an authorization takes over HTTP, by how many there are a second."""
    medians_by_key = {
        (match[2], int(match[1])): median
        for name, median in medians.items()
        if (match := _PACED.match(name))
    }
    rates = sorted({rate for _, rate in medians_by_key})
    chart = _chart(pygal.Bar, "An authorization over HTTP, at a fixed rate", "ms")
    chart.x_labels = [f"{rate}/s" for rate in rates]
    for share in ("p50", "p99", "p99.9"):
        chart.add(share, [round(medians_by_key.get((share, rate), 0), 1) for rate in rates])
    return chart


def by_size(medians: Mapping[str, float]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return the engine's rates on large records, beside those on empty ones."""
    sizes = [match[1] for name in medians if (match := _STORED.match(name))]
    chart = _chart(pygal.Bar, "The engine, by events stored before", "a second")
    chart.x_labels = [f"{size} events" for size in sizes]
    for kind in _KINDS:
        for series, place in (
            (f"{kind}, empty beside it", "empty, beside {}"),
            (kind, "{} events"),
        ):
            names = [f"{kind}, {place.format(size)}" for size in sizes]
            chart.add(series, [round(medians.get(name, 0)) for name in names])
    return chart


def _chart(kind: Any, title: str, unit: str) -> Any:  # noqa: ANN401 - pygal has no types
    return kind(
        title=title,
        y_title=unit,
        style=_STYLE,
        js=[],
        width=760,
        height=320,
        legend_at_bottom=True,
        print_values=True,
        print_values_position="top",
        value_formatter=lambda value: f"{value:,.9g}",
        show_minor_y_labels=False,
    )
