"""The charts of the docs, drawn from the JSON of a run: `python benchmarks/charts.py`.

They are SVG without scripts, in colours that hold on a light and on a dark page.
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pygal
from pygal.style import Style

_STYLE: Final = Style(
    background="transparent",
    plot_background="transparent",
    foreground="#6e7781",
    foreground_strong="#57606a",
    foreground_subtle="#d0d7de",
    colors=("#1f6feb", "#bf8700", "#1a7f37", "#8250df"),
    font_family="system-ui, sans-serif",
    label_font_size=13,
    major_label_font_size=13,
    legend_font_size=13,
    title_font_size=16,
    value_font_size=12,
)
_BATCH: Final = re.compile(r"(authorizations|clearings), batches of ([0-9,]+)$")
_PACED: Final = re.compile(r"HTTP authorization at ([0-9]+)/s, (p50|p99|p99\.9)$")


def main() -> None:
    """Draw the charts of a run next to each other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figures", type=Path, help="what `cardledger bench --json` wrote")
    parser.add_argument("directory", type=Path, help="where the charts go")
    asked = parser.parse_args()
    said = json.loads(asked.figures.read_text(encoding="utf-8"))
    medians = {figure["name"]: figure["median"] for figure in said["figures"]}
    asked.directory.mkdir(parents=True, exist_ok=True)
    for name, chart in (("engine", by_batch(medians)), ("latency", by_rate(medians))):
        chart.render_to_file(str(asked.directory / f"bench-{name}.svg"))


def by_batch(medians: Mapping[str, float]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return the engine's rates by the size of its batches."""
    found = {
        (m[1], int(m[2].replace(",", ""))): v for k, v in medians.items() if (m := _BATCH.match(k))
    }
    sizes = sorted({size for _, size in found})
    chart = _chart(pygal.Bar, "The engine, by messages in a commit", "a second")
    chart.x_labels = [f"{size:,}" for size in sizes]
    for kind in ("authorizations", "clearings"):
        chart.add(kind, [round(found.get((kind, size), 0)) for size in sizes])
    return chart


def by_rate(medians: Mapping[str, float]) -> Any:  # noqa: ANN401 - pygal has no types
    """Return how long an authorization takes over HTTP, by how many there are a second."""
    found = {
        (match[2], int(match[1])): median
        for name, median in medians.items()
        if (match := _PACED.match(name))
    }
    rates = sorted({rate for _, rate in found})
    chart = _chart(pygal.Bar, "An authorization over HTTP, at a fixed rate", "ms")
    chart.x_labels = [f"{rate}/s" for rate in rates]
    for share in ("p50", "p99", "p99.9"):
        chart.add(share, [round(found.get((share, rate), 0), 1) for rate in rates])
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
        value_formatter=lambda value: f"{value:,}",
        show_minor_y_labels=False,
    )


if __name__ == "__main__":
    main()
