"""The page of the docs about speed, made of runs: `python -m benchmarks.page RUN.json docs`.

RUN.json is what `python -m benchmarks --json` wrote; there may be several, for parts that were
measured apart. They are kept as docs/benchmarks.json; the tables in docs/benchmarks.md and the
charts beside it are made of them, so that no figure there is typed by hand.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from benchmarks.results import charts, report
from benchmarks.results.figures import Figure

Run = Mapping[str, Any]
"""What `python -m benchmarks --json` writes."""

_HOTTEST: Final = 20  # Lines of the profile, its head included.
_QUIET: Final = 0.5  # Load, in processes that wanted to run before it began.
_BEGIN: Final = "<!-- made by `python -m benchmarks.page RUN.json docs`: begin -->\n"
_END: Final = "<!-- end -->\n"
_CHARTS: Final = {
    "engine": "Rates of the engine by the size of its batches",
    "latency": "Latencies over HTTP by requests a second",
    "growth": "Rates by what is stored already",
}


def main() -> None:
    """Make page and charts of runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="JSON files of `python -m benchmarks`")
    parser.add_argument("docs", type=Path, help="the directory of benchmarks.md")
    options = parser.parse_args()
    runs = [json.loads(run.read_text(encoding="utf-8")) for run in options.runs]
    page = options.docs / "benchmarks.md"
    page.write_text(renewed(page.read_text(encoding="utf-8"), runs), encoding="utf-8")
    kept = json.dumps(runs, indent=1) + "\n"
    (options.docs / "benchmarks.json").write_text(kept, encoding="utf-8")
    for name, chart in charts.rendered(runs).items():
        (options.docs / f"bench-{name}.svg").write_text(chart, encoding="utf-8")


def renewed(page: str, runs: Sequence[Run]) -> str:
    """Return `page` with what is made of `runs`, in the place of what was."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"the page needs a line {_BEGIN.strip()} and a later one {_END.strip()}")
    made = [text for run in runs for text in _table(run)]
    pictures = [f"![{text}](bench-{name}.svg)\n\n" for name, text in _CHARTS.items()]
    return "".join([before, begin, *made, *_missed(runs), *pictures, *_profiles(runs), end, after])


def _table(run: Run) -> Iterator[str]:
    """Yield where and how a run was, and its figures."""
    about = run["about"]
    yield f"`{about['command']}`, {about['at'].replace('T', ' ')}, cardledger"
    yield f" {about['cardledger']}.\n"
    yield from (f"{line}.\n" for line in report.place(about))
    yield f"{report.duration(run['seconds'])}.\n"
    if (part := run.get("stopped_in")) is not None:
        yield f"INCOMPLETE: the run stopped in part {part}.\n"
    if about["load"] > _QUIET:
        yield "The machine had other work: rates are lower than they could be, and less sure.\n"
    yield "\n"
    yield "| | median | | spread | bar (aim) | |\n|---|--:|---|---|---|---|\n"
    for part, of_part in groupby(_figures(run), key=lambda figure: figure.part):
        yield f"| **{part}** | | | | | |\n"
        yield from (_row(figure) for figure in of_part)
    yield "\n"


def _figures(run: Run) -> list[Figure]:
    return [figure_of(row) for row in run["figures"]]


def _profiles(runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run["profile"]:
            lines = [line.rstrip() for line in run["profile"].splitlines()[:_HOTTEST]]
            yield "Where the time of one thread goes in batches of 500 authorizations:\n"
            yield "\n".join(["", "```", *lines, "```", "", ""])


def figure_of(row: Mapping[str, Any]) -> Figure:
    """Return a figure as `python -m benchmarks` had it."""
    fields = ("part", "name", "unit", "values", "least", "aim", "lower")
    # Runs of before have none of it.
    return Figure(**{name: row[name] for name in fields}, pooled=row.get("pooled"))


def _row(figure: Figure) -> str:
    cells = (
        figure.name,
        report.shown(figure.median, figure.unit),
        figure.unit,
        report.spread(figure),
        report.bar(figure),
        report.verdict(figure),
    )
    return f"| {' | '.join(cells)} |\n"


def _missed(runs: Sequence[Run]) -> Iterator[str]:
    """Yield which bars do not hold, and by how much."""
    held = [figure for run in runs for figure in _figures(run) if figure.holds is not None]
    missed = [figure for figure in held if not figure.holds]
    yield f"{len(held) - len(missed)} of {len(held)} bars hold."
    if missed:
        yield " Not reached:\n\n"
        for figure in missed:
            how_far = report.verdict(figure).partition(", ")[2]
            median = f"{report.shown(figure.median, figure.unit)} {figure.unit}"
            yield f"* {figure.name}: {median}, {report.bar(figure)}: {how_far}.\n"
    yield "\n" if missed else "\n\n"


if __name__ == "__main__":
    main()
