"""Generate the runs in docs/storm.md: `python -m storm.page RUN.json… docs`.

Each RUN.json is what `python -m storm --json` wrote. Several runs are added up: their faults by
kind, their promises, their slowest recoveries. So no figure on the page is typed by hand.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Run = Mapping[str, Any]
"""What `python -m storm --json` writes."""

_BEGIN: Final = "<!-- made by `python -m storm.page RUN.json docs`: begin -->\n"
_END: Final = "<!-- end -->\n"


def main() -> None:
    """Renew the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", help="JSON files of `python -m storm`")
    parser.add_argument("docs", type=Path, help="the directory of storm.md")
    options = parser.parse_args()
    runs = [json.loads(run.read_text(encoding="utf-8")) for run in options.runs]
    page = options.docs / "storm.md"
    page.write_text(renewed(page.read_text(encoding="utf-8"), runs), encoding="utf-8")
    if missing := never_struck(runs):
        raise SystemExit(f"no run struck with: {', '.join(missing)}")


def renewed(page: str, runs: Sequence[Run]) -> str:
    """Return `page` with what is made of `runs`, in the place of what was."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"the page needs a line {_BEGIN.strip()} and a later one {_END.strip()}")
    return "".join([before, begin, *_runs(runs), *_promises(runs), *_faults(runs), end, after])


def never_struck(runs: Sequence[Run]) -> list[str]:
    """Return the kinds of faults that runs wanted, and with which none struck or was skipped."""
    seen = {strike["kind"] for run in runs for strike in run["strikes"]}
    seen.update(kind for run in runs for kind in run["skipped"])
    return sorted({kind for run in runs for kind in run["wanted"]} - seen)


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    yield (
        "| command | schema | faults | acknowledged | decided | minutes | recovery p50 (s)"
        " | p99 (s) | of the slowest queue p50 (s) | p90 (s) | |\n"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
    for run in runs:
        verdict = "holds" if run["holds"] else f"**fails**: {'; '.join(run['problems'])}"
        yield (
            f"| `{run['command']}` | {run['schema']} | {len(run['strikes'])}"
            f" | {run['acknowledged']:,} | {run['decided']:,} | {run['seconds'] / 60:.1f}"
            f" | {run['recovery_p50_s']:.2f} | {run['recovery_p99_s']:.2f}"
            f" | {run['slowest_p50_s']:.2f} | {run['slowest_p90_s']:.2f} | {verdict} |\n"
        )
    yield "\n"
    yield from (f"On {about}.\n" for about in sorted({run["about"] for run in runs}))
    yield "\n"


def _promises(runs: Sequence[Run]) -> Iterator[str]:
    checked: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for run in runs:
        for promise in run["promises"]:
            checked[promise["name"]] += promise["checked"]
            broken[promise["name"]] += promise["broken"]
    yield "| promise | broken | checked |\n|---|--:|--:|\n"
    yield from (f"| {name} | {broken[name]:,} | {count:,} |\n" for name, count in checked.items())
    yield "\n"
    yield from (
        f"* **{promise['name']}** (`{run['command']}`): {example}\n"
        for run in runs
        for promise in run["promises"]
        for example in promise["examples"][:2]
    )
    yield "\n"


def _faults(runs: Sequence[Run]) -> Iterator[str]:
    struck = Counter(strike["kind"] for run in runs for strike in run["strikes"])
    proofs = {strike["kind"]: strike["proof"] for run in runs for strike in run["strikes"]}
    yield "| fault | struck | recovery p50 (s) | p99 (s) | the proof of the last one |\n"
    yield "|---|--:|--:|--:|---|\n"
    for kind in sorted(struck):
        found = [one for run in runs for one in run["recoveries"] if one["kind"] == kind]
        # The slowest run's: quantiles of several runs cannot be added up.
        p50 = max((one["p50_s"] for one in found), default=0.0)
        p99 = max((one["p99_s"] for one in found), default=0.0)
        yield f"| {kind} | {struck[kind]} | {p50:.2f} | {p99:.2f} | {proofs[kind]} |\n"
    skipped = {kind: why for run in runs for kind, why in run["skipped"].items()}
    for kind, why in skipped.items():
        yield f"| {kind} | skipped | | | {why} |\n"
    for kind in never_struck(runs):
        yield f"| {kind} | **0** | | | no run struck with it |\n"
    yield "\n"


if __name__ == "__main__":
    main()
