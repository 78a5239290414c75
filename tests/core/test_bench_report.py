"""What `python -m benchmarks` prints and writes, and the page and charts that are made of it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.results import charts, report
from benchmarks.results.figures import Figure, find, quantile, ratio
from benchmarks.results.report import Results
from cardledger.config import console as terminal

DOCS = Path(__file__).parents[2] / "docs"

RATE = Figure(part="engine", name="authorizations", unit="/s", values=[9_000, 12_000, 10_000])
WAIT = Figure(part="service", name="p99", unit="ms", values=[30.0], lower=True)
ABOUT: dict[str, Any] = {
    "command": "python -m benchmarks --rounds 3 --millions 1",
    "at": "2026-03-01T12:00+00:00",
    "cardledger": "0.1.0",
    "python": "3.11.7",
    "rules": "compiled",
    "system": "Linux x86_64",
    "processor": "A Processor",
    "cores": 2,
    "memory_gib": 8,
    "load": 0.1,
    "postgres": {
        "server_version": "15.1 (Debian)",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "autovacuum": "on",
        "shared_buffers": "128MB",
        "max_wal_size": "1GB",
    },
}


def run_of(*figures: Figure) -> dict[str, Any]:
    return {
        "about": ABOUT,
        "seconds": {"engine": 30.2, "service": 60.0},
        "figures": [figure.wire() for figure in figures],
        "profile": "1 function call\n\n   tottime  function\n",
    }


# --- figures ------------------------------------------------------------------------------------


def test_a_figure_has_a_median_and_a_spread() -> None:
    assert RATE.median == 10_000
    assert RATE.spread == 0.3


def test_a_figure_of_pooled_samples_is_called_by_them_and_keeps_them_in_a_file() -> None:
    ratio_of_all = replace(WAIT, unit="ratio", values=[1.0, 1.3], pooled=1.2)

    assert ratio_of_all.median == 1.2
    assert report.spread(ratio_of_all) == "± 13%"
    assert page.figure_of(json.loads(json.dumps(ratio_of_all.wire()))) == ratio_of_all


@pytest.mark.parametrize(
    ("figure", "held"),
    [
        (RATE, (None, False)),
        (replace(RATE, least=10_000, aim=10_001), (True, False)),
        (replace(RATE, least=10_001), (False, False)),
        (replace(RATE, least=1, aim=10_000), (True, True)),
        (replace(WAIT, least=30, aim=29), (True, False)),
        (replace(WAIT, least=29), (False, False)),
        (replace(WAIT, least=40, aim=30), (True, True)),
    ],
)
def test_a_limit_holds_from_its_side(figure: Figure, held: tuple[bool | None, bool]) -> None:
    assert (figure.holds, figure.reaches_aim) == held


def test_a_ratio_is_one_of_medians() -> None:
    twice = replace(RATE, values=[5_000])

    figure = ratio("to half", RATE, twice, part="ratios", least=1.5, aim=2.5)

    assert (figure.median, figure.holds, figure.reaches_aim) == (2.0, True, False)


def test_figures_are_found_by_their_whole_name() -> None:
    assert find([RATE, WAIT], "p99") is WAIT
    assert find([RATE, WAIT], "p9") is None


def test_a_quantile_is_a_value_that_was_there() -> None:
    values = list(range(100, 0, -1))

    assert [quantile(values, share) for share in (0, 0.5, 0.99, 1)] == [1, 51, 100, 100]


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (RATE, ""),
        (replace(RATE, least=20_000), "NOT REACHED, 50% short"),
        (replace(RATE, least=5_000), "ok"),
        (replace(RATE, least=5_000, aim=9_000), "ok, aim reached"),
        (replace(WAIT, least=20), "NOT REACHED, 50% over"),
        (replace(WAIT, least=6), "NOT REACHED, 5 times as much"),
        (replace(WAIT, least=0), "NOT REACHED, 30 too many"),
    ],
)
def test_a_verdict_states_by_how_much_a_limit_is_missed(figure: Figure, verdict: str) -> None:
    assert report.verdict(figure) == verdict


def test_the_table_is_aligned_and_has_nothing_at_the_end_of_its_lines() -> None:
    figures = [
        replace(RATE, least=15_000, aim=25_000),
        replace(RATE, name="a much longer name than that of the others"),
        replace(WAIT, least=40),
    ]

    lines = [line.plain for line in report.lines(figures)]

    assert lines[:2] + lines[4:6] == ["", " engine", "", " service"]
    first, second, third = lines[2], lines[3], lines[6]
    assert " ".join(first.split()) == (
        "authorizations 10,000 /s ± 15% at least 15,000 (25,000) NOT REACHED, 33% short"
    )
    assert " ".join(third.split()) == "p99 30.00 ms at most 40 ok"
    assert first.index(" /s") == second.index(" /s") == third.index(" ms")
    assert first.index("at least") == third.index("at most")
    assert first.index("NOT REACHED") == third.index("ok")
    assert not any(line.endswith(" ") for line in lines)


def test_the_table_ends_with_how_many_bars_hold_and_on_what(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = [replace(RATE, least=15_000), replace(WAIT, least=40), RATE]

    report.show(
        terminal.console(),
        Results(about=ABOUT, figures=figures, seconds={"engine": 30.2, "service": 60.0}),
    )

    printed = capsys.readouterr().out
    assert " 1 of 2 bars hold. " in printed
    assert "A Processor, 2 cores, 8 GiB" in printed
    assert "90 s in all: engine 30, service 60" in printed
    assert not re.search(r"[ \t]$", printed, re.MULTILINE)


def test_what_is_written_is_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    figures = [replace(RATE, least=15_000, aim=25_000), WAIT]

    report.write(file, Results(about=ABOUT, figures=figures, seconds={"engine": 30.2}))

    written = json.loads(file.read_text())
    assert [page.figure_of(row) for row in written["figures"]] == figures
    assert written["figures"][0]["median"] == 10_000
    assert written["about"] == ABOUT


# --- the page and the charts --------------------------------------------------------------------


def test_a_page_gets_the_figures_of_a_run_and_keeps_what_was_written_around_them() -> None:
    before = "# Speed\n\nWords.\n\n"
    empty = f"{before}{page._BEGIN}of an earlier run\n{page._END}\nMore words.\n"

    made = page.renewed(empty, [run_of(replace(RATE, least=15_000), WAIT)])

    assert made.startswith(before)
    assert made.endswith("\nMore words.\n")
    assert "earlier" not in made
    assert (
        "| authorizations | 10,000 | /s | ± 15% | at least 15,000 | NOT REACHED, 33% short |"
        in made
    )
    assert "\n```\n1 function call\n\n   tottime  function\n```\n" in made
    assert "* authorizations: 10,000 /s, at least 15,000: 33% short." in made
    assert page.renewed(made, [run_of(replace(RATE, least=15_000), WAIT)]) == made


def test_a_page_says_when_the_machine_had_other_work() -> None:
    quiet, busy = run_of(RATE), run_of(RATE) | {"about": ABOUT | {"load": 3.0}}
    empty = f"{page._BEGIN}{page._END}"

    assert "had other work" not in page.renewed(empty, [quiet])
    assert "had other work" in page.renewed(empty, [busy])


def test_a_page_marks_an_interrupted_run() -> None:
    complete, interrupted = run_of(RATE), run_of(RATE) | {"stopped_in": "growth"}
    empty = f"{page._BEGIN}{page._END}"

    assert "INCOMPLETE" not in page.renewed(empty, [complete])
    assert "INCOMPLETE: the run stopped in part growth." in page.renewed(empty, [interrupted])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_a_part_that_stops_is_named_with_its_time(stop: type[BaseException]) -> None:
    results = Results()
    with results.measuring("floor"):
        pass

    with pytest.raises(stop), results.measuring("engine"):
        raise stop

    assert results.stopped_in == "engine"
    assert list(results.seconds) == ["floor", "engine"]


def test_one_command_makes_page_charts_and_what_they_are_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks.md").write_text(f"# Speed\n{page._BEGIN}{page._END}")
    for name, figure in (("first", RATE), ("second", WAIT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run_of(figure)))
    files = [str(tmp_path / "first.json"), str(tmp_path / "second.json")]
    monkeypatch.setattr("sys.argv", ["page", *files, str(tmp_path)])

    page.main()

    made = (tmp_path / "benchmarks.md").read_text()
    assert made.index("| authorizations |") < made.index("| p99 |")
    assert made.count("A Processor") == 2, "each run says where it was"
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == [run_of(RATE), run_of(WAIT)]
    linked = set(re.findall(r"\]\((.*\.svg)\)", made))
    assert linked == {file.name for file in tmp_path.glob("*.svg")} != set()


def test_a_page_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(SystemExit, match="the page needs a line"):
        page.renewed("# Speed\n", [run_of(RATE)])


def test_charts_show_the_medians_of_a_run_and_run_no_scripts() -> None:
    run = run_of(
        replace(RATE, name="authorizations, batches of 2,000"),
        replace(RATE, name="clearings, batches of 2,000", values=[7_654]),
        replace(WAIT, name="HTTP authorization at 300/s, p99", values=[12.34]),
        replace(RATE, name="authorizations, 10 million events", values=[4_321]),
        replace(RATE, name="authorizations, empty, beside 10 million", values=[4_567]),
    )

    drawn = charts.rendered([run])

    assert {"10,000", "7,654"} <= set(texts(drawn["engine"]))
    assert {"12.3", "300/s"} <= set(texts(drawn["latency"]))
    assert {"4,321", "4,567"} <= set(texts(drawn["growth"]))
    assert not any("script" in chart or "http:" in links(chart) for chart in drawn.values())
    assert not any("<!--" in chart for chart in drawn.values()), "not even the day"
    assert charts.rendered([run]) == drawn


def test_the_page_in_the_docs_is_made_of_the_run_that_is_kept_beside_it() -> None:
    runs = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    written = (DOCS / "benchmarks.md").read_text(encoding="utf-8")

    assert page.renewed(written, runs) == written, "run `make bench-page`"
    for name, chart in charts.rendered(runs).items():
        kept = (DOCS / f"bench-{name}.svg").read_text(encoding="utf-8")
        assert kept == chart, "run `make bench-page`"


def texts(chart: str) -> list[str]:
    return re.findall(r"<(?:text|tspan|title|desc)[^>]*>\s*([^<]*?)\s*</", chart)


def links(chart: str) -> str:
    return " ".join(re.findall(r'(?:href|src)="([^"]*)"', chart))
